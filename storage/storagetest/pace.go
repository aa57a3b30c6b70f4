package storagetest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// tries is how often a rule is tested before the failure of a late try counts. The first triesBeside of these
// are made while other rules are tested, and the others alone, so that a busy machine is less busy then.
const tries, triesBeside = 5, 3

// turns is held by each try in real time, and exclusively by a try that is made alone.
var turns sync.RWMutex

// slack is how long the calls of a try may take in all: half of the shortest lease.
const slack = storage.MinLease / 2

// pace holds whether a try of a rule was late. In real time a rule relies on calls that are
// fast beside its leases and delays, and beside the timeouts of the storage: if a busy
// machine delays them, a lease runs out before the rule has come to it. So a try that fails
// after its calls took longer than slack has shown nothing, and the rule is tested again, on
// a new storage. Several goroutines of a rule may use its pace.
type pace struct {
	begun  time.Time
	last   bool         // a failure of this try counts
	waited atomic.Int64 // nanoseconds that the rule let pass; a busy machine lets more of them pass
	timed  atomic.Bool  // the rule relies on a lease, a delay or a timeout

	cleanups []func() // only the rule's own goroutine uses them
}

// lateTry is the panic that ends a late try.
type lateTry struct{}

// rely notes that the rule relies on a lease or a delay of d.
func (p *pace) rely(d time.Duration) {
	if d > 0 && d < long {
		p.timed.Store(true)
	}
}

// relyOn notes that the rule relies on the delays and the moments of a Tx.
func (p *pace) relyOn(tx storage.Tx) {
	at := func(moment time.Time, delay time.Duration) {
		if p.rely(delay); !moment.IsZero() {
			p.timed.Store(true)
		}
	}
	for i := range tx.Inserts {
		at(tx.Inserts[i].At, tx.Inserts[i].Delay)
	}
	for i := range tx.Changes {
		at(tx.Changes[i].At, tx.Changes[i].Delay)
	}
	for i := range tx.Settles {
		p.rely(tx.Settles[i].Delay)
	}
}

// answered notes that the rule relies on a timeout if err means that no answer came.
func (p *pace) answered(err error) {
	if errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
		p.timed.Store(true)
	}
}

// late reports whether a failure now may be that of the machine.
func (p *pace) late() bool {
	busy := time.Since(p.begun) - time.Duration(p.waited.Load())
	return !p.last && p.timed.Load() && busy > slack
}

// Fatalf fails the rule, or ends a late try of it.
func (r *rig) Fatalf(format string, args ...any) {
	r.Helper()
	if r.Advance == nil && r.pace.late() {
		r.Logf("tested again, because the machine was too slow for the leases of the rule: "+format, args...)
		panic(lateTry{})
	}
	r.TB.Fatalf(format, args...)
}

// Cleanup calls f when the test ends, or when the try was late.
func (r *rig) Cleanup(f func()) {
	f = sync.OnceFunc(f)
	r.pace.cleanups = append(r.pace.cleanups, f)
	r.TB.Cleanup(f)
}

// inTurn makes the n-th try of a rule, in its turn.
func (ru rule) inTurn(t testing.TB, open Opener, virtual bool, n int) (counts bool) {
	t.Helper()
	switch {
	case virtual:
	case n > triesBeside:
		turns.Lock()
		defer turns.Unlock()
	default:
		turns.RLock()
		defer turns.RUnlock()
	}
	return ru.try(t, open, virtual, n == tries)
}

// try tests a rule on a storage of its own and reports whether the try counts.
func (ru rule) try(t testing.TB, open Opener, virtual, last bool) (counts bool) {
	t.Helper()
	r := newRig(t, open, ru.limits, virtual)
	r.pace.last = last
	r.pace.rely(ru.limits.DeadFor)
	r.pace.rely(ru.limits.DeclinedFor)
	defer func() {
		t.Helper()
		switch p := recover(); p {
		case nil:
		case lateTry{}:
			for _, f := range slices.Backward(r.pace.cleanups) {
				f()
			}
		default:
			panic(p)
		}
	}()
	ru.test(r)
	return true
}
