package modernc_test

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// bury has n tasks die, whose ids begin with a prefix.
func (s *side) bury(t *testing.T, prefix string, n int) {
	t.Helper()
	ids := make([]storage.Insert, n)
	for i := range ids {
		ids[i] = job(fmt.Sprintf("%s%04d", prefix, i))
	}
	_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: ids})
	must(t, err)
	c, err := s.claimLong(t.Context(), n)
	must(t, err)
	tx := storage.Tx{}
	for _, fence := range c.Fences {
		tx.Settles = append(tx.Settles, storage.Settle{Fence: fence, Outcome: storage.Bury, Reason: "test"})
	}
	_, err = s.session.ApplyOne(t.Context(), tx)
	must(t, err)
}

func (s *side) dead(t *testing.T) int64 {
	t.Helper()
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	return stats[0].Dead
}

// TestTooManyDeadGoInBoundedSteps opens a queue with a lower bound of dead tasks than before. No step deletes
// more of them than the maintenance of a claim may handle, and the claims that follow delete the others.
func TestTooManyDeadGoInBoundedSteps(t *testing.T) {
	path := file(t)
	with := func(most int) *side {
		return opened(t, sqlite.Config{
			Path: path, Driver: modernc.Driver, MinLease: time.Second, Limits: storage.Limits{DeadMax: most},
		})
	}
	s := with(storage.NoLimit)
	s.bury(t, "a", 700)
	must(t, s.store.Close())
	const most, bound = 10, 200
	s = with(most)
	before := s.dead(t)
	s.bury(t, "b", 3)
	for {
		now := s.dead(t)
		if before-now > bound {
			t.Fatalf("a step has deleted %d of %d dead tasks, want at most %d", before-now, before, bound)
		}
		if before = now; now <= most {
			break
		}
		c, err := s.claim(t.Context(), 1)
		must(t, err)
		if !c.More && s.dead(t) > most {
			t.Fatalf("a claim has left %d dead tasks, and no more to do", s.dead(t))
		}
	}
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	if got := stats[0]; got.Dead != most || got.Totals.Evicted != 703-most {
		t.Errorf("%d dead tasks are left and %d were evicted, want %d and %d", got.Dead, got.Totals.Evicted, most, 703-most)
	}
	for _, id := range []string{"b0000", "b0001", "b0002"} {
		if got := s.state(t, id); got != storage.Dead {
			t.Errorf("%s is %q, want dead: the oldest go first", id, got)
		}
	}
}

// TestADamagedPageStopsNoCallBesideIt damages a page with tasks of one queue. Calls on another queue, which
// share a transaction with calls that read the page, succeed.
func TestADamagedPageStopsNoCallBesideIt(t *testing.T) {
	path := file(t)
	s := open(t, path)
	marker := bytes.Repeat([]byte("DAMAGED!"), 100)
	for i := range 300 {
		in := job(fmt.Sprintf("a%04d", i))
		in.Payload = []byte(`"` + string(marker) + `"`)
		_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
		must(t, err)
	}
	must(t, s.store.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	const size, leaf = 4096, 0x0d
	var pages [][]byte
	for at := size; at+size <= len(data); at += size {
		if page := data[at : at+size]; page[0] == leaf && bytes.Count(page, marker) > 2 {
			pages = append(pages, page)
		}
	}
	if len(pages) < 50 {
		t.Fatalf("%d pages hold the tasks, want 50 or more", len(pages))
	}
	s = open(t, path) // which checks the pages
	clear(pages[len(pages)/2][:8])
	must(t, os.WriteFile(path, data, 0o600))
	var all sync.WaitGroup
	var failed, refused sync.Map
	for worker := range 4 {
		all.Go(func() {
			for range 25 {
				if _, err := s.claim(t.Context(), 300); err != nil {
					refused.Store(worker, err)
				}
			}
		})
		all.Go(func() {
			for i := range 25 {
				in := job(fmt.Sprintf("b%d-%d", worker, i))
				in.Ref.Queue = "other"
				if _, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
					failed.Store(worker, err)
				}
			}
		})
	}
	all.Wait()
	failed.Range(func(worker, err any) bool {
		t.Errorf("worker %v on the other queue: %v", worker, err)
		return true
	})
	none := true
	refused.Range(func(_, err any) bool {
		none = false
		wantProblem(t, err.(error), sqlite.Broken)
		return true
	})
	if none {
		t.Error("no claim has met the damaged page")
	}
}
