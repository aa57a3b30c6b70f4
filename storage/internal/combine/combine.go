// Package combine lets concurrent calls of a storage share round trips.
//
// A storage hands each call to its [Combiner], with the identity of the call. Calls that arrive while
// earlier calls are under way wait for a moment and are flushed together. A call that finds no flush under
// way is flushed at once, in the goroutine of its caller: another goroutine for each call would cost more
// than the rest of the client's work.
//
// The Combiner decides which calls share a flush, how many flushes are under way at the same time, and
// what the end of a caller's context means. The storage carries a flush out and keeps the outcomes in its
// own type of call. A storage that forwards calls to another process forwards the calls of a flush together.
package combine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// Call holds the facts about a call that a Combiner needs.
type Call struct {
	// Identity is the identity of the call, zero for a call without one. Two calls of one lane never share
	// a flush, since the second may repeat the first.
	Identity storage.Call
	// Line is the number of the line that the call belongs to. Only calls of one line share a flush. They
	// are flushed in the order in which they arrived, or by flushes under way at the same time.
	Line       int
	Ops, Bytes int
	// Large lets a call have a flush of its own, without waiting for the flush under way: the round trips
	// that it could share are a small part of its cost.
	Large bool

	beside bool          // it has a flush of its own, as a large call
	landed chan struct{} // closed once there is an outcome; nil if the caller flushes its call itself
}

func (c *Call) combined() *Call { return c }

// Embedding is a pointer to a storage's own type of call, which embeds [Call].
type Embedding interface{ combined() *Call }

// Config decides how a storage's calls are flushed.
type Config[C Embedding] struct {
	// Flush carries out calls of one line together, and keeps the outcome of each. It returns the calls
	// that have no outcome, and did not happen, because one of several calls spoiled the flush for the
	// others.
	Flush func(ctx context.Context, line int, calls []C) (spoiled []C)
	// Apart carries out calls that were spoiled, each by itself and in their order.
	Apart func(ctx context.Context, line int, calls []C)
	// Keep copies the parts of a call that belong to its caller, before the call waits: the caller may
	// leave before the flush. May be nil.
	Keep func(call C)
	// Context is the context of the flushes that no caller carries out. They end when it does.
	Context context.Context //nolint:containedctx // of the flushes; no caller's context ends one
	// Interruptible means that Flush returns when its context ends, however long the server takes.
	// Without it a caller flushes its call itself only if the caller's context cannot end.
	Interruptible bool

	// Calls, Ops and Bytes limit the calls, operations and bytes of one flush, which takes at least one
	// call; 0 is no limit.
	Calls, Ops, Bytes int
	// Beside is the most flushes of one line that are under way at the same time.
	Beside int
	// Group is how many calls make a third flush under way at the same time worth its costs. With 0 no
	// flush begins while another is under way, except the flush of a large call.
	Group int
}

// Combiner flushes the calls of a storage. It is safe for concurrent use.
type Combiner[C Embedding] struct {
	cfg Config[C]

	mu      sync.Mutex // guards the fields below; no I/O under it
	closed  bool
	lines   map[int]*line[C] // never removed: a storage has few
	flushes sync.WaitGroup   // all flushes, and the goroutines that wait for the next one
	idle    int              // goroutines that wait for a line to flush
	next    chan *line[C]    // the lines that idle goroutines are to flush, with room for all; closed by Close
}

// idleMost is the most goroutines that wait for the next flush. The stack of such a goroutine has grown to
// the size that a flush needs; to grow the stack of a new goroutine each time takes a twentieth of a busy
// client's processor time.
const idleMost = 16

// line holds the calls of a line that wait for their flush.
type line[C Embedding] struct {
	number  int
	waiting []C
	flights int // flushes under way, or about to begin, without the large calls
	aboard  int // the calls of these flushes
	large   int // large calls under way in flushes of their own
	// called is set while a goroutine is about to take the waiting calls.
	called bool
}

// New makes a Combiner. Its owner calls Close.
func New[C Embedding](cfg Config[C]) *Combiner[C] {
	return &Combiner[C]{cfg: cfg, lines: make(map[int]*line[C]), next: make(chan *line[C], idleMost)}
}

// Close refuses further calls and waits for the flushes to end. The owner ends Config.Context before.
func (c *Combiner[C]) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.next)
	}
	c.mu.Unlock()
	c.flushes.Wait()
}

// Do gets calls carried out, and returns when each has its outcome. If Do returns an error, the caller must
// not read the outcomes. The error is ctx.Err() if ctx has ended already, storage.ErrClosed if the Combiner
// is closed, storage.ErrUnavailable if ctx ended before any of the calls was flushed, and storage.ErrUnknown
// if it ended later. A flush that other calls share goes on without this caller.
func (c *Combiner[C]) Do(ctx context.Context, calls ...C) error {
	if err := ctx.Err(); err != nil {
		return err // nothing happened
	}
	l, own, err := c.submit(calls, c.cfg.Interruptible || ctx.Done() == nil)
	if err != nil {
		return err
	}
	if own {
		c.flushOwn(ctx, l, calls)
		return nil
	}
	for _, call := range calls {
		select {
		case <-call.combined().landed:
		case <-ctx.Done():
			return ended(ctx, c.withdraw(calls))
		}
	}
	return nil
}

// ended returns the error for a caller whose context ended. sent means that a call of it was flushed.
func ended(ctx context.Context, sent bool) error {
	if sent {
		return fmt.Errorf("%w: %w", storage.ErrUnknown, context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, context.Cause(ctx))
}

// submit hands over calls. It reports own if the caller is to flush its single call itself, in line l.
// Otherwise landed of each call is closed when the call has its outcome. carries means that the caller
// may flush a call itself.
func (c *Combiner[C]) submit(calls []C, carries bool) (l *line[C], own bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, storage.ErrClosed
	}
	if len(calls) == 1 && carries {
		call := calls[0].combined()
		if l = c.line(call.Line); c.admits(l, call) {
			c.flushes.Add(1)
			return l, true, nil
		}
	}
	for _, call := range calls {
		if c.cfg.Keep != nil {
			c.cfg.Keep(call)
		}
		e := call.combined()
		e.landed = make(chan struct{})
		l = c.line(e.Line)
		l.waiting = append(l.waiting, call)
		c.call(l)
	}
	return l, false, nil
}

// admits reports whether the caller may flush its call itself, and counts that flush. A call that finds
// other calls waiting joins them. The mutex is held.
func (c *Combiner[C]) admits(l *line[C], call *Call) bool {
	switch {
	case call.Large && l.flights+l.large < c.cfg.Beside:
		l.large++
		call.beside = true
	case len(l.waiting) == 0 && c.ready(l, 1):
		l.flights++
		l.aboard++
	default:
		return false
	}
	return true
}

// line returns the line with a number, which it makes if there is none. The mutex is held.
func (c *Combiner[C]) line(number int) *line[C] {
	l := c.lines[number]
	if l == nil {
		l = &line[C]{number: number}
		c.lines[number] = l
	}
	return l
}

// ready reports whether the next flush of a line begins now, with so many calls waiting. It begins if no
// flush is under way. It begins during other flushes when as many calls wait as one of them carries: so
// callers in a loop come in groups, and while the server works for one group the others get ready. The mutex
// is held.
func (c *Combiner[C]) ready(l *line[C], waiting int) bool {
	switch {
	case waiting == 0 || l.called:
		return false
	case l.flights == 0:
		return l.large == 0 || l.large < c.cfg.Beside
	case c.cfg.Group == 0 || l.flights+l.large >= c.cfg.Beside:
		return false
	case l.flights == 1:
		return waiting >= l.aboard
	}
	return waiting >= max(l.aboard/l.flights, c.cfg.Group)
}

// call makes a goroutine flush the calls that wait in a line, if the next flush is to begin now. The mutex
// is held.
func (c *Combiner[C]) call(l *line[C]) {
	if !c.ready(l, len(l.waiting)) {
		return
	}
	l.called = true
	l.flights++
	if c.idle > 0 && !c.closed {
		c.idle--
		c.next <- l // does not block: it has room for all idle goroutines
		return
	}
	c.flushes.Go(func() { c.serve(l) })
}

// serve works for a line, and then for the lines that come, until there is no room to wait for another.
func (c *Combiner[C]) serve(l *line[C]) {
	for more := true; more; {
		if more = c.work(l); more {
			l, more = <-c.next
		}
	}
}

// work flushes the calls that wait in a line, until no further flush begins. It reports whether its
// goroutine is to wait for another line.
func (c *Combiner[C]) work(l *line[C]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		calls := c.take(l)
		if len(calls) > 0 { // none if all waiting callers have left
			c.call(l) // another flush may begin at once for the calls that this one leaves waiting
			c.mu.Unlock()
			c.carryOut(c.cfg.Context, l.number, calls)
			c.mu.Lock()
			for _, call := range calls {
				close(call.combined().landed)
			}
		}
		l.flights--
		l.aboard -= len(calls)
		c.gather(l, len(calls))
		if !c.ready(l, len(l.waiting)) {
			break
		}
		l.flights++
	}
	if c.closed || c.idle == idleMost {
		return false
	}
	c.idle++
	return true
}

// take takes the calls of the next flush. The mutex is held.
func (c *Combiner[C]) take(l *line[C]) []C {
	n := c.fitting(l.waiting)
	calls := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	l.called = false
	l.aboard += n
	return calls
}

// fitting returns how many of the waiting calls one flush takes: at least one, and at most one of a lane.
func (c *Combiner[C]) fitting(waiting []C) int {
	if len(waiting) < 2 {
		return len(waiting)
	}
	over := func(n, limit int) bool { return limit > 0 && n > limit }
	ops, bytes, lanes := 0, 0, make(map[[16]byte]struct{}, len(waiting))
	for i, call := range waiting {
		e := call.combined()
		ops, bytes = ops+e.Ops, bytes+e.Bytes
		_, known := lanes[e.Identity.Lane.ID]
		if known || i > 0 && (over(i+1, c.cfg.Calls) || over(ops, c.cfg.Ops) || over(bytes, c.cfg.Bytes)) {
			return i
		}
		if !e.Identity.IsZero() {
			lanes[e.Identity.Lane.ID] = struct{}{}
		}
	}
	return len(waiting)
}

// carryOut carries out one flush, and then apart the calls that it spoiled.
func (c *Combiner[C]) carryOut(ctx context.Context, line int, calls []C) {
	if spoiled := c.cfg.Flush(ctx, line, calls); len(spoiled) > 0 {
		c.cfg.Apart(ctx, line, spoiled)
	}
}

// flushOwn carries out a call in the goroutine of its caller. The caller's context may end the flush, since
// no other caller's call is in it.
func (c *Combiner[C]) flushOwn(ctx context.Context, l *line[C], call []C) {
	defer c.flushes.Done()
	c.carryOut(ctx, l.number, call)
	c.mu.Lock()
	defer c.mu.Unlock()
	if call[0].combined().beside {
		l.large--
	} else {
		l.flights--
		l.aboard--
	}
	c.call(l)
}

// A flush that is about to begin lets callers run first. patience is how many yields in a row bring no new
// call before it gives up, which takes some ten microseconds. If the application keeps all processors
// busy, each yield takes tens of milliseconds, and patienceTime ends the waiting.
const (
	patience     = 200
	patienceTime = time.Millisecond
)

// gather lets the callers that just got their outcome call again before the next flush begins, if no other
// flush is under way. Without gather the first of them would begin the next flush alone, and callers in a
// loop would be flushed in turns: all but one, and then that one by itself. If flushes go side by side
// (Group), half of the callers are enough: the server works for them while the others get ready. While
// gather waits no flush of some of the calls may begin, so it sets called. The mutex is held, except while
// others run.
func (c *Combiner[C]) gather(l *line[C], landed int) {
	if l.flights > 0 || l.called || len(l.waiting)+landed < 2 {
		return
	}
	l.called = true
	defer func() { l.called = false }()
	most := len(l.waiting) + landed
	if c.cfg.Group > 0 {
		most /= 2
	}
	if c.cfg.Calls > 0 {
		most = min(most, c.cfg.Calls)
	}
	waiting, last := len(l.waiting), time.Now()
	for yields := 0; waiting < most && yields < patience && time.Since(last) < patienceTime; yields++ {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
		if len(l.waiting) > waiting {
			waiting, last, yields = len(l.waiting), time.Now(), 0
		}
	}
}

// withdraw removes the calls of a caller that leaves from their lines, and reports whether one of them was
// flushed already.
func (c *Combiner[C]) withdraw(calls []C) (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range calls {
		l := c.line(call.combined().Line)
		before := len(l.waiting)
		l.waiting = slices.DeleteFunc(l.waiting, func(other C) bool {
			return other.combined() == call.combined()
		})
		sent = sent || len(l.waiting) == before
	}
	return sent
}
