package storagetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestALateTryIsRepeated: a failure counts if the calls of the rule were fast, if the rule relies on
// no lease, and at the last try. Otherwise the rule is tested again on a new storage, after its preparations
// were undone.
func TestALateTryIsRepeated(t *testing.T) {
	t.Parallel()
	hold := func(r *rig) { r.holdFor(storage.MinLease) }
	for name, c := range map[string]struct {
		limits storage.Limits
		relies func(r *rig)
		busy   func(try int) time.Duration // the time that the calls of a try take
		holds  int                         // the first try that holds, 0 for none
		failed bool
		tries  int
	}{
		"it holds":                   {relies: hold, busy: always(time.Minute), holds: 1, tries: 1},
		"it fails in time":           {relies: hold, busy: always(slack), failed: true, tries: 1},
		"it is late once":            {relies: hold, busy: once, holds: 2, tries: 2},
		"it fails after it was late": {relies: hold, busy: once, failed: true, tries: 2},
		"it is always late":          {relies: hold, busy: always(slack + 1), failed: true, tries: tries},
		"it relies on time":          {relies: func(r *rig) { r.pass(1) }, busy: once, failed: true, tries: 2},
		"it lets time pass":          {relies: func(r *rig) { r.pass(time.Minute) }, busy: always(0), failed: true, tries: 1},
		"a wait is too long":         {relies: waitTooLong, busy: always(0), failed: true, tries: tries},
		"a delay":                    {relies: func(r *rig) { r.insert(delayed("d", time.Second)) }, busy: once, failed: true, tries: 2},
		"a moment": {relies: func(r *rig) {
			due := job("d")
			due.At = r.now().Add(time.Second)
			r.insert(due)
		}, busy: once, failed: true, tries: 2},
		"a long lease":         {relies: func(r *rig) { r.holdFor(long) }, busy: always(time.Minute), failed: true, tries: 1},
		"dead for a second":    {limits: storage.Limits{DeadFor: time.Second}, busy: once, failed: true, tries: 2},
		"declined for as long": {limits: storage.Limits{DeclinedFor: time.Second}, busy: once, failed: true, tries: 2},
		"no answer":            {relies: func(r *rig) { r.pace.answered(storage.ErrUnknown) }, busy: once, failed: true, tries: 2},
		"no server":            {relies: func(r *rig) { r.pace.answered(storage.ErrUnavailable) }, busy: once, failed: true, tries: 2},
		"a refusal":            {relies: func(r *rig) { r.pace.answered(storage.ErrRefused) }, busy: always(time.Minute), failed: true, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, undone := 0, 0
			ru := state(name, func(r *rig) {
				begun++
				r.Cleanup(func() { undone++ })
				if undone != begun-1 {
					r.TB.Fatalf("try %d began after %d were undone", begun, undone)
				}
				r.add("a")
				if c.relies != nil {
					c.relies(r)
				}
				<-time.After(c.busy(begun)) // virtual
				if c.holds == 0 || begun < c.holds {
					r.Fatalf("it does not hold")
				}
			}, "A rule of this test.").under(c.limits)
			failed, log := recorded(t, func(t testing.TB) { ru.check(t, openMemory, false) })
			if failed != c.failed || begun != c.tries || undone != c.tries {
				t.Errorf("failed %v after %d tries, of which %d were undone, want %v after %d:\n%s",
					failed, begun, undone, c.failed, c.tries, log)
			}
		})
	}
}

// TestTheLastTriesAreMadeAlone makes the first of the tries that are made alone while another rule is tested.
func TestTheLastTriesAreMadeAlone(t *testing.T) {
	t.Parallel()
	var other atomic.Bool
	begun, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		state("other", func(*rig) {
			other.Store(true)
			close(begun)
			<-end
			other.Store(false)
		}, "A rule of this test.").inTurn(t, openMemory, false, triesBeside)
	})
	<-begun
	all.Go(func() {
		state("alone", func(*rig) {
			if other.Load() {
				t.Error("the try began while another rule was tested")
			}
		}, "A rule of this test.").inTurn(t, openMemory, false, triesBeside+1)
	})
	testserver.Await(t, "the try waits", func() bool {
		free := turns.TryRLock()
		if free {
			turns.RUnlock()
		}
		return !free
	})
	close(end)
	all.Wait()
}

// holdFor claims a task under a lease.
func (r *rig) holdFor(lease time.Duration) {
	req := ask(1)
	req.Lease = lease
	r.take(req, "a")
}

// lateClock is a storage that takes half of the slack to return its time.
type lateClock struct{ storage.Storage }

func (s lateClock) Describe(ctx context.Context) (storage.Description, error) {
	<-time.After(slack/2 + 1) // virtual
	return s.Storage.Describe(ctx)
}

// waitTooLong lets a second pass on a machine that comes to it too late.
func waitTooLong(r *rig) {
	r.store = lateClock{r.store}
	r.pass(time.Second)
}

func always(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

// once makes the first try late, and no other.
func once(try int) time.Duration {
	if try == 1 {
		return slack + 1
	}
	return 0
}
