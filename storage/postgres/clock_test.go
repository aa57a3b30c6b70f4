package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestTheMarkKeepsPace has steps reserve many versions, and expects the mark to stay with the
// server's clock, which is this machine's.
func TestTheMarkKeepsPace(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	_, session := opened(t, cfg)
	req := claimOf(storage.MaxClaim)
	req.Queues = nil
	for i := range 100 {
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: fmt.Sprintf("q%d", i)})
	}
	for range 20 {
		if _, err := session.Claim(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if _, err := session.Apply(t.Context(), insertTxs(1000)...); err != nil {
			t.Fatal(err)
		}
	}
	a, err := session.ApplyOne(t.Context(), insertTx())
	if err != nil {
		t.Fatal(err)
	}
	if ahead := time.Until(time.UnixMicro(a.Inserted[0].Version)); ahead > 0 {
		t.Errorf("a version is %v ahead of the clock", ahead)
	}
}

// TestClockSetBack has the mark an hour ahead of the clock, as after the clock was set back: versions
// go on from the mark with each step, and do not run away.
func TestClockSetBack(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	ahead := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	err := shared.Exec(t.Context(), "SELECT setval('"+cfg.Schema+".mark', $1)", ahead.UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
	_, session := opened(t, cfg)
	last := ahead.UnixMicro()
	const steps = 50
	for range steps {
		a, err := session.ApplyOne(t.Context(), insertTx())
		if err != nil {
			t.Fatal(err)
		}
		claimed, err := session.Claim(t.Context(), claimOf(1))
		if err != nil || len(claimed.Fences) != 1 {
			t.Fatalf("claim: %d tasks, %v, want one", len(claimed.Fences), err)
		}
		inserted, version := a.Inserted[0].Version, claimed.Fences[0].Version
		if inserted <= last || version <= inserted {
			t.Fatalf("versions %d and %d after %d: want them to grow", inserted, version, last)
		}
		last = version
	}
	if moved := time.UnixMicro(last).Sub(ahead); moved > steps*100*time.Microsecond {
		t.Errorf("%d inserts and claims of one task moved the mark by %v", steps, moved)
	}
}

// TestClockSetBackUnderManyProcesses expects that no process gets a version that another one got, or
// moves the mark back.
func TestClockSetBackUnderManyProcesses(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	ahead := time.Now().Add(time.Hour).UnixMicro()
	if err := shared.Exec(t.Context(), "SELECT setval('"+cfg.Schema+".mark', $1)", ahead); err != nil {
		t.Fatal(err)
	}
	const processes, steps = 4, 100
	versions := make([][]int64, processes)
	var all sync.WaitGroup
	for i := range processes {
		_, session := opened(t, cfg)
		all.Go(func() {
			for range steps {
				a, err := session.ApplyOne(t.Context(), insertTx())
				if err != nil {
					t.Error(err)
					return
				}
				versions[i] = append(versions[i], a.Inserted[0].Version)
			}
		})
	}
	all.Wait()
	seen := make(map[int64]bool)
	for _, own := range versions {
		last := ahead
		for _, version := range own {
			if version <= last || seen[version] {
				t.Errorf("version %d after %d, given before: %t; want it new, and more", version, last, seen[version])
			}
			last, seen[version] = version, true
		}
	}
}
