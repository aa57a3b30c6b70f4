package modernc_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestAfterALongLockLivingRunnersExtendFirst holds the write lock, as a frozen process does, until a lease has
// expired. The process that then comes first recovers nothing, so that the runner keeps its lease.
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
		c, err := other.claim(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		claimed <- c
	}()
	for {
		d, err := other.store.Describe(t.Context())
		must(t, err)
		if len(d.Warnings) > 0 && d.Now.After(held.Tasks[0].LeaseUntil) {
			if !strings.Contains(d.Warnings[0], "write lock") {
				t.Fatalf("warnings: got %q, want one about the write lock", d.Warnings)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
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
	for { // the runner dies
		c, err := other.claim(t.Context(), 1)
		must(t, err)
		if len(c.Tasks) == 1 {
			return
		}
		if c.Now.After(held.Tasks[0].LeaseUntil.Add(10 * time.Second)) {
			t.Fatal("the task of a dead runner was not claimed again")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestALockedFileIsUnavailable says what a step answers that waited for the lock in vain: nothing happened.
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

// TestWakesOfOtherProcesses enqueues through another handle, and in a transaction of the application's: a
// Wait returns although its own storage wrote nothing.
func TestWakesOfOtherProcesses(t *testing.T) {
	path := file(t)
	s, other := open(t, path), open(t, path)
	must(t, other.insert(t.Context(), "first"))
	db := database(t, path, "&_txlock=immediate")
	for name, enqueue := range map[string]func() error{
		"another handle": func() error { return other.insert(t.Context(), "a") },
		"a transaction of the application's": func() error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			_, err = s.store.Within(tx).Apply(t.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{job("b")}})
			return errors.Join(err, tx.Commit())
		},
	} {
		var since storage.Since
		for { // until nothing is left that could wake
			c, err := s.claim(t.Context(), 5)
			must(t, err)
			if since = c.Since; len(c.Tasks) == 0 && !c.More {
				break
			}
		}
		time.Sleep(50 * time.Millisecond) // the look at the last commits
		c, err := s.claim(t.Context(), 5)
		must(t, err)
		since = c.Since
		woken := make(chan time.Time, 1)
		go func() {
			if err := s.store.Wait(t.Context(), storage.WaitRequest{Queues: []string{queue}, Since: since}); err == nil {
				woken <- time.Now()
			}
		}()
		time.Sleep(20 * time.Millisecond)
		select {
		case <-woken:
			t.Fatalf("%s: woken before anything happened", name)
		default:
		}
		begun := time.Now()
		must(t, enqueue())
		select {
		case at := <-woken:
			t.Logf("%s: woken after %v", name, at.Sub(begun))
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: not woken", name)
		}
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
