package modernc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestAfterALongLockLivingRunnersExtendFirst holds the write lock, like a frozen process, until a
// lease has expired. A claim that has waited since recovers nothing, by the bound that a runner sets, so
// that the runner of the lease keeps it.
func TestAfterALongLockLivingRunnersExtendFirst(t *testing.T) {
	path := file(t)
	living, other := open(t, path), open(t, path)
	must(t, living.insert(t.Context(), "a"))
	held, err := living.claim(t.Context(), 1)
	must(t, err)

	frozen := database(t, path, "&_txlock=immediate")
	tx, err := frozen.BeginTx(t.Context(), nil)
	must(t, err)
	claimed := make(chan storage.Claimed, 1)
	go func() {
		c, err := other.claimBefore(t.Context(), 1, held.Now)
		if err != nil {
			t.Error(err)
		}
		claimed <- c
	}()
	await(t, "the lease is over, and a warning tells of the lock", func() bool {
		d, err := other.store.Describe(t.Context())
		must(t, err)
		if len(d.Warnings) > 0 && !strings.Contains(d.Warnings[0], "write lock") {
			t.Fatalf("warnings: got %q, want one about the write lock", d.Warnings)
		}
		return len(d.Warnings) > 0 && d.Now.After(held.Tasks[0].LeaseUntil)
	})
	must(t, tx.Rollback())

	if c := <-claimed; len(c.Tasks) != 0 || c.More {
		t.Fatalf("right behind the lock: claimed %d tasks, more %t, want none", len(c.Tasks), c.More)
	}
	x, err := living.session.Extend(t.Context(), storage.ExtendRequest{
		Leases: []storage.Extension{{Fence: held.Fences[0], For: time.Second}},
	})
	must(t, err)
	if len(x.Lost) != 0 {
		t.Fatal("the lease was lost although its runner lives")
	}
	await(t, "the task of a dead runner is claimed again", func() bool {
		c, err := other.claim(t.Context(), 1)
		must(t, err)
		if c.Now.After(held.Tasks[0].LeaseUntil.Add(10 * time.Second)) {
			t.Fatal("the task of a dead runner was not claimed again within 10s")
		}
		return len(c.Tasks) == 1
	})
}

// TestALockedFileIsUnavailable expects the error of a step that waited for the lock in vain to state that
// nothing happened.
func TestALockedFileIsUnavailable(t *testing.T) {
	path := file(t)
	s := open(t, path)
	tx, err := database(t, path, "&_txlock=immediate").BeginTx(t.Context(), nil)
	must(t, err)
	_, err = s.store.Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{job("a")}})
	if !errors.Is(err, storage.ErrUnavailable) {
		t.Fatalf("got %v, want an ErrUnavailable", err)
	}
	must(t, tx.Rollback())
	if state := s.state(t, "a"); state != "" {
		t.Fatalf("the task is %s, want none", state)
	}
	must(t, s.insert(t.Context(), "a"))
}

// TestWakesOfOtherProcesses enqueues through another handle, and in a transaction of the
// application's. A caller that waits is woken, although its own storage wrote nothing. If the file were not
// watched, the read once a second would find one task in five so soon, and a series of tries would pass one
// time in a hundred. A busy machine may need several series.
func TestWakesOfOtherProcesses(t *testing.T) {
	const series, tries, soon = 4, 8, 200 * time.Millisecond
	path := file(t)
	s, other := open(t, path), open(t, path)
	db := database(t, path, "&_txlock=immediate")
	for name, enqueue := range map[string]func(id string) error{
		"another handle": func(id string) error { return other.insert(t.Context(), id) },
		"a transaction of the application's": func(id string) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{job(id)}})
			return errors.Join(err, tx.Commit())
		},
	} {
		passed := false
		for n := 0; n < series && !passed; n++ {
			var took []time.Duration
			for range tries {
				took = append(took, s.pickUp(t, enqueue))
			}
			slices.Sort(took)
			t.Logf("%s: picked up after %v", name, took)
			passed = took[tries*5/8-1] <= soon
		}
		if !passed {
			t.Errorf("%s: in none of %d series five of eight were picked up within %v", name, series, soon)
		}
	}
}

// quiet waits until nothing has rung for a while. The reads that follow an earlier commit have ended then,
// and the claim of pickUp is waiting.
func (s *side) quiet(t *testing.T) {
	t.Helper()
	await(t, "nothing rings", func() bool {
		c, err := s.claim(t.Context(), 0)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err = s.store.Wait(ctx, storage.WaitRequest{Queues: []string{queue}, Since: c.Since})
		return errors.Is(err, context.DeadlineExceeded)
	})
}

// pickUp returns the time from an enqueue to a claim that waited for it.
func (s *side) pickUp(t *testing.T, enqueue func(id string) error) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	id := storage.NewID()
	claimed := make(chan time.Time, 1)
	go func() {
		for ctx.Err() == nil {
			c, err := s.claim(ctx, 1)
			if err == nil && len(c.Tasks) == 1 && c.Tasks[0].ID == id {
				at := time.Now()
				_ = s.complete(ctx, c.Fences[0]) // or later claims would bring it again
				claimed <- at
				return
			}
			_ = s.store.Wait(ctx, storage.WaitRequest{Queues: []string{queue}, Since: c.Since})
		}
	}()
	s.quiet(t)
	begun := time.Now()
	must(t, enqueue(id))
	select {
	case at := <-claimed:
		return at.Sub(begun)
	case <-ctx.Done():
		t.Fatal("not picked up")
		return 0
	}
}

// TestAnIdleStorageWritesNothing claims in vain, again and again: the file stays as it is.
func TestAnIdleStorageWritesNothing(t *testing.T) {
	path := file(t)
	s := opened(t, sqlite.Config{Path: path, Driver: modernc.Driver})
	must(t, s.insert(t.Context(), "a"))
	c, err := s.claim(t.Context(), 1)
	must(t, err)
	must(t, s.complete(t.Context(), c.Fences[0]))
	_, err = s.claim(t.Context(), 1)
	must(t, err)
	db := database(t, path, "")
	conn, err := db.Conn(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	version := func() (v int) {
		must(t, conn.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&v))
		return v
	}
	before := version()
	for range 20 {
		_, err := s.claim(t.Context(), 1)
		must(t, err)
	}
	if after := version(); after != before {
		t.Errorf("20 idle claims wrote: data_version %d, was %d", after, before)
	}
}
