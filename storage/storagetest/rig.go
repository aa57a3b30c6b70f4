package storagetest

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// rig is the storage of one rule, a session on it, and the short methods in which rules
// are written. Each method fails the rule if the storage returns an error.
type rig struct {
	testing.TB
	Opened

	ctx     context.Context //nolint:containedctx // a rig lives as long as its rule
	store   storage.Storage
	session *storage.Session
	open    Opener
	limits  storage.Limits
	virtual bool
	pace    *pace
}

// The queues that rules use, and the runner in whose name they claim.
const (
	mainQueue = "main"
	sideQueue = "side"
	runner    = "runner-1"
)

// patience is how long a rule waits for an event that has no set moment, and for a call: 16 MiB take
// more than DefaultPatience under the race detector on a busy machine.
const patience = time.Minute

// long is a lease that does not expire while a rule is tested.
const long = time.Minute

func newRig(t testing.TB, open Opener, limits storage.Limits, virtual bool) *rig {
	t.Helper()
	opened := open(t, limits)
	if virtual && opened.Advance == nil {
		opened.Advance = time.Sleep //nolint:forbidigo // in a bubble time passes by sleeping
	}
	r := &rig{
		TB: t, Opened: opened, ctx: t.Context(), store: opened.Storage, open: open, limits: limits,
		virtual: virtual, session: storage.NewSession(opened.Storage, patience), pace: &pace{begun: time.Now()},
	}
	r.Cleanup(func() { _ = opened.Storage.Close() })
	if !virtual {
		ctx, cancel := context.WithTimeout(r.ctx, 2*time.Minute)
		r.ctx = ctx
		r.Cleanup(cancel)
	}
	return r
}

// Context is the rule's context: it ends with the test or after two minutes.
func (r *rig) Context() context.Context { return r.ctx }

// again opens another handle on the same data, or reports false if the storage has only one.
func (r *rig) again() (*rig, bool) {
	r.Helper()
	if r.Again == nil {
		r.Log("not tested: this storage has one handle only")
		return nil, false
	}
	other := *r
	other.store = r.Again(r.TB)
	other.session = storage.NewSession(other.store, patience)
	r.Cleanup(func() { _ = other.store.Close() })
	return &other, true
}

// spans reports whether main and side can share a Tx. If they cannot, it tests that tx
// is refused with ErrSpan and changes none of the tasks that refs name.
func (r *rig) spans(tx storage.Tx, refs ...storage.Ref) bool {
	r.Helper()
	if storage.Spans(r.store, mainQueue, sideQueue) {
		return true
	}
	var before []any
	for _, ref := range refs {
		before = append(before, r.snapshot(ref))
	}
	_, err := r.session.ApplyOne(r.ctx, tx)
	r.wantError("a Tx across queues", err, storage.ErrSpan)
	for i, ref := range refs {
		r.want("after a refusal, "+ref.String(), r.snapshot(ref), before[i])
	}
	return false
}

// snapshot returns the task of a ref, or nil if there is none.
func (r *rig) snapshot(ref storage.Ref) any {
	r.Helper()
	t, err := r.store.Task(r.ctx, ref)
	if err != nil {
		r.wantError("read "+ref.String(), err, storage.ErrNotFound)
		return nil
	}
	return t
}

// now returns the storage's time.
func (r *rig) now() time.Time {
	r.Helper()
	d, err := r.store.Describe(r.ctx)
	r.must("describe", err)
	return d.Now
}

// pass lets at least d of the storage's time pass.
func (r *rig) pass(d time.Duration) {
	r.Helper()
	if d <= 0 {
		return
	}
	if r.Advance != nil {
		r.Advance(d)
		return
	}
	r.pace.timed.Store(true)
	defer func(begun time.Time) { r.pace.waited.Add(int64(min(d, time.Since(begun)))) }(time.Now())
	for until := r.now().Add(d); ; {
		left := until.Sub(r.now())
		if left < 0 {
			return
		}
		timer := time.NewTimer(left + time.Millisecond)
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			timer.Stop()
			r.Fatalf("waiting for the storage's clock: %v", r.ctx.Err())
		}
	}
}

// passTo lets the storage's time pass until it is later than a moment.
func (r *rig) passTo(moment time.Time) {
	r.Helper()
	r.pass(moment.Sub(r.now()) + time.Millisecond)
}

// must fails the rule if err is not nil.
func (r *rig) must(action string, err error) {
	r.Helper()
	if err != nil {
		r.pace.answered(err)
		r.Fatalf("%s: %v", action, err)
	}
}

// want fails the rule if got is not want.
func (r *rig) want(what string, got, want any) {
	r.Helper()
	if !reflect.DeepEqual(got, want) {
		r.Fatalf("%s: got %+v, want %+v", what, got, want)
	}
}

// between fails the rule if a moment is not in a span of time. It allows some slack, since
// the mark of a queue may be a little ahead of the clock.
func (r *rig) between(what string, got, from, to time.Time) {
	r.Helper()
	const slack = 5 * time.Millisecond
	if got.Before(from.Add(-slack)) || got.After(to.Add(slack)) {
		r.Fatalf("%s: got %v, want from %v to %v", what, got, from, to)
	}
}
