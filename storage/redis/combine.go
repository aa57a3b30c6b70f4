package redis

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// flushTime bounds one flush, all retries included.
const flushTime = 10 * time.Second

// flushParts bounds how many parts one flush takes along.
const flushParts = 64

// flight is one Apply under way: it lands when all its parts did.
type flight struct {
	left   int           // parts; guarded by combiner.mu
	single bool          // it has one part
	landed chan struct{} // nil for one whose caller flushes it at once
	// baton asks the caller to flush what waits in its slot, most often itself included. Nil
	// for one who cannot.
	baton chan struct{}
	gone  bool // nobody waits for it any more; guarded by combiner.mu
}

// combiner lets concurrent Apply calls share round trips: what arrives while flushes
// are under way goes out with the next one. A lone call goes out at once.
type combiner struct {
	// flush carries out parts of one slot, filling in their outcomes.
	flush      func(ctx context.Context, parts []*part)
	ctx        context.Context //nolint:containedctx // of the flushes that no context of a caller ends
	interrupts *interrupts     // of all; nil where they cannot be interrupted
	most       int             // flushes of a slot at the same time

	mu      sync.Mutex // guards what follows; no I/O under it
	closed  bool
	slots   map[int]*outbox
	parked  []chan int     // goroutines that have nothing to empty
	flushes sync.WaitGroup // all of them; they end with close
}

// outbox is what one slot has to send, and is sending.
type outbox struct {
	parts   []*part // that wait for their flush
	chained int     // those of them that have others of the same call before or behind them
	flights int     // flushes under way
	aboard  int     // their parts
	// called is set while somebody is on his way to take what waits.
	called bool
}

// Up to flushMost flushes of a slot are under way at the same time, from the third on of
// flushGroup parts at least: a script costs as much as some of the parts it carries. None takes
// more than its share while others may go beside it, but for the first flushShare.
const (
	flushMost  = 4
	flushGroup = 4
	flushShare = 16
)

// ready reports whether the next flush is to begin. It is where none is under way; and
// beside others when as many wait as one of those has taken along. So many who call one by
// one come in groups, and while the server works for one the others get ready.
func (o *outbox) ready(most int) bool {
	switch {
	case len(o.parts) == 0 || o.called:
		return false
	case o.flights == 0:
		return true
	case o.flights >= most || o.chained > 0: // parts of one call stay in order
		return false
	case o.flights == 1:
		return len(o.parts) >= o.aboard
	}
	return len(o.parts) >= max(o.aboard/o.flights, flushGroup)
}

// add puts parts in, behind what waits or before it.
func (o *outbox) add(at int, parts ...*part) {
	o.parts = slices.Insert(o.parts, at, parts...)
	for _, p := range parts {
		if !p.flight.single {
			o.chained++
		}
	}
}

// load is how much of what waits the next flush takes along: a share of all there are, where
// others may go beside it, of which most go at a time. The server works for these while the
// others get ready.
func (o *outbox) load(most int) int {
	n := min(len(o.parts), flushParts)
	if o.chained > 0 || o.flights == most-1 {
		return n
	}
	return min(n, max((len(o.parts)+o.aboard)/most, flushShare))
}

// take takes what waits, as much as one flush takes along.
func (o *outbox) take(most int) []*part {
	n := o.load(most)
	parts := o.parts[:n:n]
	o.parts = o.parts[n:]
	for _, p := range parts {
		if !p.flight.single {
			o.chained--
		}
	}
	o.called = false
	if n > 0 {
		o.flights++
		o.aboard += n
	}
	return parts
}

func newCombiner(ctx context.Context, in *interrupts, flush func(context.Context, []*part)) *combiner {
	return &combiner{flush: flush, ctx: ctx, interrupts: in, most: flushMost, slots: make(map[int]*outbox)}
}

// close waits for the flushes, whose context has ended, and refuses new ones.
func (c *combiner) close() {
	c.mu.Lock()
	c.closed = true
	for _, parked := range c.parked {
		close(parked)
	}
	c.parked = nil
	c.mu.Unlock()
	c.flushes.Wait()
}

// send carries out the parts of a call. A caller whose context ends has an unknown
// outcome; a flush under way goes on for the others.
func (s *Storage) send(ctx context.Context, parts []*part) error {
	if err := ctx.Err(); err != nil {
		return err // nothing happened
	}
	c := s.combiner
	f, all, err := c.enlist(parts, ctx.Done() == nil || c.interrupts != nil) //nolint:contextcheck // has its own
	if err != nil {
		return err
	}
	if all != nil { // a change of goroutines can cost more than the round trip
		c.carry(ctx, f, all)
		return nil
	}
	for {
		select {
		case <-f.landed:
			return nil
		case <-f.baton:
			c.carry(ctx, f, c.take(parts[0].slot))
		case <-ctx.Done():
			return translate(context.Cause(ctx), c.withdraw(f, parts))
		}
	}
}

// enlist puts the parts into their outboxes. Where a flush is to begin that the caller may
// carry, and leave when his context ends, it gives what he has to flush, his own included.
// Else he has to wait for landed, or for baton to flush some.
func (c *combiner) enlist(parts []*part, carries bool) (f *flight, all []*part, err error) {
	f = &flight{left: len(parts), single: len(parts) == 1}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, storage.ErrClosed
	}
	carries = carries && f.single
	for _, p := range parts {
		p.flight = f
		o := c.outbox(p.slot)
		o.add(len(o.parts), p)
		switch {
		case !o.ready(c.most):
		case carries && o.load(c.most) == len(o.parts) && f.mayCarry(o.parts): // its own is the last
			c.flushes.Add(1)
			return f, o.take(c.most), nil
		default:
			c.call(p.slot, o)
		}
	}
	f.landed = make(chan struct{})
	if carries {
		f.baton = make(chan struct{}, 1)
	}
	return f, nil, nil
}

// outbox gives that of a slot. The mutex is held.
func (c *combiner) outbox(slot int) *outbox {
	o := c.slots[slot]
	if o == nil {
		o = new(outbox)
		c.slots[slot] = o
	}
	return o
}

// call has what waits in a slot flushed: by the first of the callers who waits for it
// anyway, or by a goroutine. The mutex is held.
func (c *combiner) call(slot int, o *outbox) {
	o.called = true
	if baton := o.parts[0].flight.baton; baton != nil {
		c.flushes.Add(1)
		baton <- struct{}{} // has room for one, and it goes with the parts
		return
	}
	c.start(slot)
}

// callOthers has what a flush that is about to begin has left flushed beside it, where that is
// time.
func (c *combiner) callOthers(slot int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.outbox(slot); o.ready(c.most) {
		c.call(slot, o)
	}
}

// take takes what waits in a slot, for one who was called.
func (c *combiner) take(slot int) []*part {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outbox(slot).take(c.most)
}

// carry flushes parts in the goroutine of a caller, and has the next flush begun. Where
// the caller's context ends it, the others' parts are sent again: a repeat in their lanes
// has no other outcome.
func (c *combiner) carry(ctx context.Context, f *flight, parts []*part) {
	defer c.flushes.Done()
	all, slot := parts, parts[0].slot
	if !f.mayCarry(parts) {
		c.land(slot, all, nil, parts)
		return
	}
	c.callOthers(slot)
	c.flushWithin(ctx, parts)
	var again []*part
	if ctx.Err() != nil {
		parts, again = f.interrupted(ctx, parts)
	}
	c.land(slot, all, parts, again)
}

// flushWithin flushes until the context of a caller, or the combiner's, ends. The latter
// does when the storage is closed, which closes the connections too.
func (c *combiner) flushWithin(ctx context.Context, parts []*part) {
	limit := time.Now().Add(flushTime)
	if ctx.Done() == nil {
		c.flush(bounded{c.ctx, limit}, parts) //nolint:contextcheck // its own
		return
	}
	call, end := c.interrupts.begin(bounded{ctx, limit})
	defer end()
	c.flush(call, parts) //nolint:contextcheck // one of ctx
}

// bounded is a context with a deadline and no timer: go-redis takes the deadline for those
// of its connections. Its waits for a connection end by its own timeouts alone, which can
// make a flush last some seconds longer where none can be had.
type bounded struct {
	context.Context //nolint:containedctx // it is one

	until time.Time
}

// Deadline is the earlier one.
func (b bounded) Deadline() (time.Time, bool) {
	if own, some := b.Context.Deadline(); some && own.Before(b.until) {
		return own, true
	}
	return b.until, true
}

// Err tells of the deadline too.
func (b bounded) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if time.Now().After(b.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// mayCarry reports whether f's caller may flush the parts: those of others could be sent
// again if it left.
func (f *flight) mayCarry(parts []*part) bool {
	return !slices.ContainsFunc(parts, func(p *part) bool { return p.flight != f && !p.repeats() })
}

// interrupted sorts out, after the context of f's caller has ended, the parts of others
// that may not have happened.
func (f *flight) interrupted(ctx context.Context, parts []*part) (done, again []*part) {
	for _, p := range parts {
		lost := away(p.err)
		switch {
		case lost && p.flight != f && p.repeats():
			again = append(again, p)
			continue
		case lost && p.flight == f:
			p.err = translate(context.Cause(ctx), !errors.Is(p.err, storage.ErrUnavailable))
		}
		done = append(done, p)
	}
	return done, again
}

// patience is how often a flush that is to begin lets others go first, once none of them
// brings anything: some ten microseconds.
const patience = 200

// land ends a flush: it tells callers of their outcome, puts back what is to be sent again
// and has the next flush begun. Where no other is under way it lets callers come again
// before, half of them: without that the first would be flushed alone.
func (c *combiner) land(slot int, all, parts, again []*part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.outbox(slot)
	aboard := len(all)
	if aboard > 0 {
		o.flights--
		o.aboard -= aboard
	}
	again = slices.DeleteFunc(again, func(p *part) bool { return p.flight.gone })
	o.add(0, again...)
	callers := 0
	for _, p := range parts {
		if p.flight.left--; p.flight.left > 0 {
			continue
		}
		callers++
		if p.flight.landed != nil {
			close(p.flight.landed)
		}
	}
	if len(again) > 0 && !o.called && (o.flights == 0 || o.chained == 0) {
		o.called = true
		c.start(slot)
		return
	}
	if o.flights == 0 && !o.called {
		o.called = true
		c.gather(o, (len(o.parts)+callers)/2)
		o.called = false
	}
	c.next(slot, o)
}

// gather waits for callers to come again, until so many wait. The mutex is held, but while
// it waits.
func (c *combiner) gather(o *outbox, most int) {
	waiting := len(o.parts)
	for yields := 0; waiting < most && yields < patience; yields++ {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
		if len(o.parts) > waiting {
			waiting, yields = len(o.parts), 0
		}
	}
}

// next has the next flush of a slot begun where it is time. The mutex is held.
func (c *combiner) next(slot int, o *outbox) {
	if o.ready(c.most) {
		c.call(slot, o)
	} else if o.flights == 0 && !o.called {
		delete(c.slots, slot)
	}
}

// withdraw takes back what is still to be sent of a call for which nobody waits, and has
// another flush what it was asked to. It reports whether some of the call may have been sent.
func (c *combiner) withdraw(f *flight, parts []*part) (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.gone = true
	kept := 0
	for _, p := range parts {
		o := c.slots[p.slot]
		if o == nil {
			continue
		}
		before := len(o.parts)
		o.parts = slices.DeleteFunc(o.parts, func(other *part) bool {
			sent = sent || other.flight == f && other.sent
			return other.flight == f
		})
		kept += before - len(o.parts)
		if !f.single {
			o.chained -= before - len(o.parts)
		}
	}
	slot := parts[0].slot
	select {
	case <-f.baton: // it came at the same moment, and is another's now
		c.outbox(slot).called = false
		c.next(slot, c.outbox(slot))
		c.flushes.Done()
	default:
	}
	return sent || kept < len(parts)
}

// start has a goroutine empty a slot. The mutex is held.
func (c *combiner) start(slot int) {
	if n := len(c.parked) - 1; n >= 0 {
		c.parked[n] <- slot // has room for one
		c.parked = c.parked[:n]
		return
	}
	c.flushes.Go(func() { c.work(slot) })
}

// work flushes for one slot after the other. A goroutine that is kept needs no new stack.
func (c *combiner) work(slot int) {
	parked := make(chan int, 1)
	for more := true; more; slot, more = <-parked {
		parts := c.take(slot)
		if len(parts) > 0 { // or who waited has left
			c.callOthers(slot)
			c.flushWithin(context.WithoutCancel(c.ctx), parts)
		}
		c.land(slot, parts, parts, nil)
		c.mu.Lock()
		if c.closed || len(c.parked) == parkMost {
			c.mu.Unlock()
			return
		}
		c.parked = append(c.parked, parked)
		c.mu.Unlock()
	}
}

// parkMost is how many goroutines are kept.
const parkMost = 16
