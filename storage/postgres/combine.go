package postgres

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

// A flush takes along no more than this.
const (
	flushParts = 256
	flushOps   = 2000
	flushBytes = 8 << 20
)

// largeOps is what makes a call of inserts large: it does not wait for one that is under way, as
// what a transaction costs is little beside it. Small calls save more by sharing one. From so
// many on inserts are copied, three round trips included.
const largeOps = 100

// The classes of calls: each is flushed by itself, so that none waits for another's.
const (
	classInsert  = iota // nothing but plain inserts
	classSettle         // completions, with plain inserts or without
	classGeneral        // everything else
	classes
)

// flight is one Apply under way.
type flight struct{ landed chan struct{} }

// combiner lets concurrent Apply calls share transactions, and with them round trips and
// waits for the disk: what arrives while a flush is under way goes out with the next one,
// and with it what the callers of that flush send at once when they are answered.
// A lone call goes out at once, in the goroutine of its caller: one of its own for each would
// cost more than the rest of the client's work. So do large inserts, a few at once.
type combiner struct {
	// flush carries out parts of one class, filling in their outcomes.
	flush func(ctx context.Context, class int, parts []*part)
	ctx   context.Context //nolint:containedctx // of all flushes; no caller's context ends one
	most  int             // flushes of inserts at a time; of other classes there is one

	mu      sync.Mutex // guards what follows; no I/O under it
	closed  bool
	outbox  [classes][]*part // those that wait for their flush
	flights [classes]int     // flushes under way
	flushes sync.WaitGroup   // those flushes; each ends when its outbox is empty
}

// close waits for the flushes, whose context has ended, and refuses new ones.
func (c *combiner) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.flushes.Wait()
}

// submit hands over a call. Where it is alone the caller flushes it and says so by yield: no
// flush of its class is under way, or it is a large call. Else it has to wait for landed.
func (c *combiner) submit(class int, p *part) (alone bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, storage.ErrClosed
	}
	if c.flights[class] == 0 || class == classInsert && p.ops >= largeOps && c.flights[class] < c.most {
		c.flights[class]++
		c.flushes.Add(1)
		return true, nil
	}
	p.txs = slices.Clone(p.txs) // this slice is the caller's again once his context has ended
	p.flight = &flight{landed: make(chan struct{})}
	c.outbox[class] = append(c.outbox[class], p)
	return false, nil
}

// yield ends the flush of a lone call; what came meanwhile is flushed by a goroutine, which
// ends when the outbox is empty.
func (c *combiner) yield(class int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.outbox[class]) > 0 {
		c.flushes.Go(func() { c.empty(class) })
	} else {
		c.flights[class]--
	}
	c.flushes.Done()
}

// withdraw takes back a call for which nobody waits, and reports false where it was being sent.
func (c *combiner) withdraw(class int, p *part) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.outbox[class])
	c.outbox[class] = slices.DeleteFunc(c.outbox[class], func(other *part) bool { return other == p })
	return len(c.outbox[class]) < before
}

// empty flushes one class until nothing is left to send.
func (c *combiner) empty(class int) {
	for {
		c.mu.Lock()
		waiting := c.outbox[class]
		if len(waiting) == 0 {
			c.outbox[class] = nil
			c.flights[class]--
			c.mu.Unlock()
			return
		}
		n := fitting(waiting)
		parts := waiting[:n:n]
		c.outbox[class] = waiting[n:]
		c.mu.Unlock()
		c.flushSome(class, parts)
		c.land(class, parts)
	}
}

// patience is how often a flush that is to begin lets others go first, once none of them
// brings anything: some ten microseconds.
const patience = 200

// land tells callers of their outcome, and lets them come again before the next flush
// begins. Without that the first of them would miss it, and callers in a loop would be
// flushed in turns: all but one, and then that one alone.
func (c *combiner) land(class int, parts []*part) {
	waiting := c.waiting(class)
	for _, p := range parts {
		close(p.flight.landed)
	}
	most := min(waiting+len(parts), flushParts)
	if most == 1 {
		return
	}
	for yields := 0; waiting < most && yields < patience; yields++ {
		runtime.Gosched()
		if now := c.waiting(class); now > waiting {
			waiting, yields = now, 0
		}
	}
}

func (c *combiner) waiting(class int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.outbox[class])
}

// fitting gives how many of those that wait one flush takes along: one at least, and of
// one lane one at most.
func fitting(waiting []*part) int {
	ops, size := 0, 0
	lanes := make(map[[16]byte]bool, len(waiting))
	for i, p := range waiting {
		ops, size = ops+p.ops, size+p.size
		if i == flushParts || i > 0 && (ops > flushOps || size > flushBytes) || lanes[p.call.Lane.ID] {
			return i
		}
		if !p.call.IsZero() {
			lanes[p.call.Lane.ID] = true
		}
	}
	return len(waiting)
}

func (c *combiner) flushSome(class int, parts []*part) {
	ctx, cancel := context.WithTimeout(c.ctx, flushTime)
	defer cancel()
	c.flush(ctx, class, parts)
}

// flushAlone carries out a call in the goroutine of its caller, whose context ends it: that
// costs a connection and nobody else's outcome.
func (c *combiner) flushAlone(ctx context.Context, class int, p *part) {
	defer c.yield(class) //nolint:contextcheck // what others sent outlives this caller
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)() //nolint:contextcheck // it ends with either
	c.flush(ctx, class, []*part{p})
}

// send has a call carried out. A caller whose context ends has an unknown outcome; a
// flush under way goes on for the others.
func (s *Storage) send(ctx context.Context, class int, p *part) error {
	if err := ctx.Err(); err != nil {
		return err // nothing happened
	}
	alone, err := s.combiner.submit(class, p)
	if err != nil {
		return err
	}
	if alone {
		s.combiner.flushAlone(ctx, class, p)
		return p.err
	}
	select {
	case <-p.flight.landed:
		return p.err
	case <-ctx.Done():
		return ended(ctx, !s.combiner.withdraw(class, p))
	}
}

// flush carries out parts of one class.
func (s *Storage) flush(ctx context.Context, class int, parts []*part) {
	if in, lone := parts[0].lone(); lone && len(parts) == 1 {
		if s.add(ctx, parts[0], in) {
			return
		}
	} else if class != classGeneral {
		if parts = s.flushPlain(ctx, class, parts); len(parts) == 0 {
			return
		}
	}
	s.flushAll(ctx, class, parts)
}

// flushAll carries out parts in one transaction or, where one of them spoils it for the
// others, each in its own.
func (s *Storage) flushAll(ctx context.Context, class int, parts []*part) {
	err := s.retry(ctx, func() error { return s.flushOnce(ctx, class, parts) })
	err = translate(err)
	if len(parts) > 1 && err != nil && (errors.Is(err, errBusy) || !away(err) &&
		!errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrRefused)) {
		flushApart(parts, func(p *part) { s.flushAll(ctx, class, []*part{p}) })
		return
	}
	for _, p := range parts {
		if err != nil && !p.done {
			p.err = err
		}
	}
}

// flushApart carries out parts one by one. One that waits for what another transaction is
// taking is handed back, for its caller to repeat, and so are those that want the same: for
// what may be taken for long a flush waits for little and once.
func flushApart(parts []*part, flush func(p *part)) {
	awaited := make(map[any]bool)
	for _, p := range parts {
		if p.done {
			continue
		}
		wanted := p.takes()
		if slices.ContainsFunc(wanted, func(w any) bool { return awaited[w] }) {
			p.err = translate(errAwaited)
			continue
		}
		if flush(p); errors.Is(p.err, errAwaited) {
			for _, w := range wanted {
				awaited[w] = true
			}
		}
	}
}
