package modernc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestALockedFileIsUnavailableToASession has a session wait for the lock in vain, and ends the
// context of a call meanwhile. Nothing happened, and the errors state that.
func TestALockedFileIsUnavailableToASession(t *testing.T) {
	path := file(t)
	s := open(t, path)
	s.session = storage.NewSession(s.store, 0) // waits five seconds
	must(t, s.insert(t.Context(), "first"))    // opens a lane, for which a session asks for the time
	tx, err := database(t, path, "&_txlock=immediate").BeginTx(t.Context(), nil)
	must(t, err)
	calls := map[string]func() error{
		"a session": func() error { return s.insert(t.Context(), "a") },
		"a short context": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			return s.insert(ctx, "b")
		},
	}
	told := make(chan error, len(calls))
	for what, call := range calls {
		go func() {
			err := call()
			if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) {
				told <- errors.New(what + ": got " + err.Error() + ", want an ErrUnavailable and no ErrUnknown")
			}
			told <- nil
		}()
	}
	for range calls {
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
	must(t, tx.Rollback())
	for _, id := range []string{"a", "b"} {
		if state := s.state(t, id); state != "" {
			t.Errorf("%s is %s, want none", id, state)
		}
	}
}

// TestAWarningOfTheLockEnds has a step wait for the lock in vain, in a process that then writes
// nothing.
func TestAWarningOfTheLockEnds(t *testing.T) {
	path := file(t)
	s := open(t, path)
	tx, err := database(t, path, "&_txlock=immediate").BeginTx(t.Context(), nil)
	must(t, err)
	wait := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		if err := s.insert(ctx, "a"); !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("got %v, want an ErrUnavailable", err)
		}
	}
	wait()
	await(t, "nothing says how long steps have waited", func() bool {
		d, err := s.store.Describe(t.Context())
		must(t, err)
		if len(d.Warnings) == 0 { // the step began to wait late
			wait()
		}
		return len(d.Warnings) > 0
	})
	must(t, tx.Rollback())
	await(t, "nothing says that steps wait", func() bool {
		d, err := s.store.Describe(t.Context())
		must(t, err)
		return len(d.Warnings) == 1 && strings.Contains(d.Warnings[0], "waited for the write lock")
	})
}

// full makes each step that writes fail, as on a full disk, until room is called.
func full(t *testing.T, path string) (room func()) {
	t.Helper()
	execute(t, path, "CREATE TRIGGER full BEFORE UPDATE ON midge_meta BEGIN SELECT RAISE(ABORT, 'no room'); END")
	return func() { execute(t, path, "DROP TRIGGER full") }
}

// openFull opens a file whose steps fail while full has filled its disk.
func openFull(t *testing.T, path string) *side {
	t.Helper()
	const triggered = 1811
	return opened(t, sqlite.Config{
		Path: path, Driver: modernc.Driver, MinLease: time.Second,
		Code: func(err error) int {
			var coded interface{ Code() int }
			switch {
			case !errors.As(err, &coded):
				return 0
			case coded.Code() == triggered:
				return 13 // SQLITE_FULL
			}
			return coded.Code()
		},
	})
}

// TestAfterAFullDiskLivingRunnersExtendFirst prevents writes until a lease has expired. The first claim
// after that recovers nothing, by the bound that a runner sets, so that the runner of the lease keeps it.
func TestAfterAFullDiskLivingRunnersExtendFirst(t *testing.T) {
	path := file(t)
	living, other := openFull(t, path), openFull(t, path)
	must(t, living.insert(t.Context(), "a"))
	held, err := living.claim(t.Context(), 1)
	must(t, err)
	room := full(t, path)
	await(t, "the lease is over, and a warning tells why", func() bool {
		if err := other.insert(t.Context(), "b"); !errors.Is(err, storage.ErrFull) {
			t.Fatalf("got %v, want an ErrFull", err)
		}
		d, err := other.store.Describe(t.Context())
		must(t, err)
		return d.Now.After(held.Tasks[0].LeaseUntil) && len(d.Warnings) > 0 &&
			strings.Contains(d.Warnings[0], "could not be written")
	})
	room()
	c, err := other.claimBefore(t.Context(), 1, held.Now)
	must(t, err)
	if len(c.Tasks) != 0 || len(c.Ended) != 0 {
		t.Fatalf("right after the full disk: claimed %+v, want none", c.Tasks)
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
		return len(c.Tasks) == 1 && c.Tasks[0].Crashes == 1
	})
}
