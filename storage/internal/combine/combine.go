// Package combine lets concurrent calls of a storage share round trips.
//
// A storage hands each call to its [Combiner], with the identity of the call. Calls that arrive while
// earlier ones are under way wait for a moment and are flushed together. A call that finds nothing under
// way is flushed at once, in the goroutine of its caller: another goroutine for each would cost more than
// the rest of the client's work.
//
// The Combiner decides which calls share a flush, how many flushes are under way at the same time, and
// what the end of a caller's context means. The storage carries a flush out and keeps the outcomes in its
// own type of call. A storage that passes calls on to another process passes on what a flush gathered.
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

// Call is what a Combiner knows of a call.
type Call struct {
	// Identity is that of the call, zero for a call without one. Two calls of one lane, the second of
	// which repeats the first, never share a flush.
	Identity storage.Call
	// Line names the calls that may share a flush. Calls of one line are flushed in the order in which
	// they arrived, or beside each other.
	Line       int
	Ops, Bytes int
	// Large lets a call go by itself, without waiting for the flush under way: the round trips that it
	// could share cost little beside the rest of it.
	Large bool

	beside bool          // it goes by itself, as a large call
	landed chan struct{} // closed with the outcome; nil where the caller flushes its call itself
}

func (c *Call) combined() *Call { return c }

// Embedding is a pointer to a storage's own type of call, which embeds [Call].
type Embedding interface{ combined() *Call }

// Config says how a storage's calls are flushed.
type Config[C Embedding] struct {
	// Flush carries out calls of one line together, and keeps the outcome of each. It gives back those
	// that have none, and did not happen, because one of several calls spoiled the flush for the others.
	Flush func(ctx context.Context, line int, calls []C) (spoiled []C)
	// Apart carries out calls that were spoiled, each by itself and in their order.
	Apart func(ctx context.Context, line int, calls []C)
	// Keep copies the parts of a call that belong to its caller, before the call waits: the caller may
	// leave before the flush. May be nil.
	Keep func(call C)
	// Context is that of the flushes that no caller carries out. They end when it does.
	Context context.Context //nolint:containedctx // of the flushes; no caller's context ends one
	// Interruptible says that Flush returns when its context ends, however long the server takes. Only
	// then does a caller flush a call whose context can end.
	Interruptible bool

	// A flush takes at most so many calls, operations and bytes, but one call at least; 0 is no limit.
	Calls, Ops, Bytes int
	// Beside is how many flushes of one line are under way at the same time at most.
	Beside int
	// Group is how many calls make a third flush beside others worth its costs. With 0 no flush but that
	// of a large call begins beside another.
	Group int
}

// Combiner flushes the calls of a storage. It is safe for concurrent use.
type Combiner[C Embedding] struct {
	cfg Config[C]

	mu      sync.Mutex // guards the fields below; no I/O under it
	closed  bool
	lines   map[int]*line[C] // they stay: a storage has few
	flushes sync.WaitGroup   // all of them, and the goroutines that wait for the next
	idle    int              // goroutines that wait for a line to flush
	next    chan *line[C]    // has room for what idle goroutines are asked; closed by Close
}

// idleMost is how many goroutines wait for the next flush. The stack of one has grown to what a flush
// needs; to grow that of a new one each time takes a twentieth of a busy client's processor time.
const idleMost = 16

// line holds the calls of a line that wait for their flush.
type line[C Embedding] struct {
	number  int
	waiting []C
	flights int // flushes under way, or called for
	aboard  int // their calls
	large   int // large calls that go by themselves
	// called is set while a goroutine is about to take the calls that wait.
	called bool
}

// New makes a Combiner.
func New[C Embedding](cfg Config[C]) *Combiner[C] {
	return &Combiner[C]{cfg: cfg, lines: make(map[int]*line[C]), next: make(chan *line[C], idleMost)}
}

// Close refuses further calls and waits for the flushes, whose context has ended.
func (c *Combiner[C]) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.next)
	}
	c.mu.Unlock()
	c.flushes.Wait()
}

// Do has calls carried out, and returns when each has its outcome. Where it returns an error the calls
// have no outcome to look at: storage.ErrClosed where the Combiner was closed, storage.ErrUnavailable where
// ctx ended before any of the calls was flushed, and storage.ErrUnknown where it ended later. A flush that
// other calls share goes on without this caller.
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

// ended is the error of a caller who leaves.
func ended(ctx context.Context, sent bool) error {
	if sent {
		return fmt.Errorf("%w: %w", storage.ErrUnknown, context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, context.Cause(ctx))
}

// submit hands over calls, and reports whether the caller is to flush its own, a single one, in this line.
// Else each of the calls lands when it has its outcome.
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

// admits reports whether a call may be flushed by its caller, and counts the flush. A call that finds
// others waiting joins them. The mutex is held.
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

// line gives the line of a number. The mutex is held.
func (c *Combiner[C]) line(number int) *line[C] {
	l := c.lines[number]
	if l == nil {
		l = &line[C]{number: number}
		c.lines[number] = l
	}
	return l
}

// ready reports whether the next flush of a line begins, in which so many calls wait. It does where none
// is under way, and beside others when as many calls wait as one of those carries: so callers in a loop
// come in groups, and while the server works for one group the others get ready. The mutex is held.
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

// call has a goroutine flush the calls that wait in a line, where the next flush begins. The mutex is held.
func (c *Combiner[C]) call(l *line[C]) {
	if !c.ready(l, len(l.waiting)) {
		return
	}
	l.called = true
	l.flights++
	if c.idle > 0 && !c.closed {
		c.idle--
		c.next <- l // it has room
		return
	}
	c.flushes.Go(func() {
		for more := true; more; {
			if more = c.work(l); more {
				l, more = <-c.next
			}
		}
	})
}

// work flushes the calls that wait in a line, until no further flush begins. It reports whether its
// goroutine is to wait for another line.
func (c *Combiner[C]) work(l *line[C]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		calls := c.take(l)
		if len(calls) > 0 { // else all who waited have left
			c.call(l) // the calls that this flush leaves may go beside it
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

// fitting gives how many of the calls that wait one flush takes along: one at least, and one of a lane at
// most.
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

// carryOut carries out one flush.
func (c *Combiner[C]) carryOut(ctx context.Context, line int, calls []C) {
	if spoiled := c.cfg.Flush(ctx, line, calls); len(spoiled) > 0 {
		c.cfg.Apart(ctx, line, spoiled)
	}
}

// flushOwn carries out a call in the goroutine of its caller, whose context ends it: nobody else's outcome
// hangs on that.
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

// patience is how often a flush that is about to begin lets callers run first, once none of them brings
// anything: some ten microseconds. Where the application keeps all processors busy, each time takes tens of
// milliseconds, and patienceTime ends it.
const (
	patience     = 200
	patienceTime = time.Millisecond
)

// gather lets callers who have their outcome come again, where no other flush is under way, before the
// next one begins. Without that the first of them would miss it, and callers in a loop would be flushed in
// turns: all but one, and then that one alone. Nor may a flush of some of them begin meanwhile. The mutex is
// held, but while others run.
func (c *Combiner[C]) gather(l *line[C], landed int) {
	if l.flights > 0 || l.called || len(l.waiting)+landed < 2 {
		return
	}
	l.called = true
	defer func() { l.called = false }()
	most := len(l.waiting) + landed
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

// withdraw takes back the calls of a caller who leaves, and reports whether one of them was flushed.
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
