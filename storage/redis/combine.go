package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// flushTime bounds one flush, all retries included.
const flushTime = 10 * time.Second

// flushParts bounds how many parts one flush takes along.
const flushParts = 64

// flight is one Apply under way: it lands when all its parts did.
type flight struct {
	left   int           // parts; guarded by combiner.mu
	landed chan struct{} // nil for one whose caller flushes it at once
	// baton asks the caller to flush what waits in its slot, itself included. Nil for one
	// who cannot.
	baton chan struct{}
}

// combiner lets concurrent Apply calls share round trips: what arrives while a flush
// is under way goes out with the next one. A lone call goes out at once.
type combiner struct {
	// flush carries out parts of one slot, filling in their outcomes.
	flush      func(ctx context.Context, parts []*part)
	ctx        context.Context //nolint:containedctx // of the flushes that no context of a caller ends
	interrupts *interrupts     // of all; nil where they cannot be interrupted

	mu      sync.Mutex // guards what follows; no I/O under it
	closed  bool
	outbox  map[int][]*part // by slot: those that wait for their flush
	busy    map[int]bool    // slots with a goroutine that empties the outbox
	parked  []chan int      // goroutines that have nothing to empty
	flushes sync.WaitGroup  // all of them; they end with close
}

func newCombiner(ctx context.Context, in *interrupts, flush func(context.Context, []*part)) *combiner {
	return &combiner{
		flush: flush, ctx: ctx, interrupts: in, outbox: make(map[int][]*part), busy: make(map[int]bool),
	}
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

// submit hands over the parts of one call, which has to wait for landed, or for baton to
// flush some. Where nothing is under way, and the call can leave when its context ends, it
// flushes its own at once, and there is no flight to wait for: a change of goroutines can
// cost more than the round trip.
func (c *combiner) submit(ctx context.Context, parts []*part) (*flight, error) {
	carries := ctx.Done() == nil || c.interrupts != nil
	f, own, err := c.enlist(parts, carries)
	if own {
		c.carry(ctx, f, parts)
		return nil, nil
	}
	return f, err
}

// carry flushes parts in the goroutine of a caller, and has the next flush begun. Where
// the caller's context ends it, the others' parts are sent again: a repeat in their lanes
// has no other outcome.
func (c *combiner) carry(ctx context.Context, f *flight, parts []*part) {
	defer c.flushes.Done()
	slot := parts[0].slot
	if !f.mayCarry(parts) {
		c.resume(slot, parts)
		return
	}
	c.flushWithin(ctx, parts)
	var again []*part
	if ctx.Err() != nil {
		parts, again = f.interrupted(ctx, parts)
	}
	c.land(slot, parts)
	c.resume(slot, again)
}

// flushWithin flushes until the context of a caller, or the combiner's, ends. The latter
// does when the storage is closed, which closes the connections too.
func (c *combiner) flushWithin(ctx context.Context, parts []*part) { //nolint:contextcheck // or its own
	limit := time.Now().Add(flushTime)
	if ctx.Done() == nil {
		c.flush(bounded{c.ctx, limit}, parts)
		return
	}
	call, end := c.interrupts.begin(bounded{ctx, limit})
	defer end()
	c.flush(call, parts)
}

// bounded is a context with a deadline and no timer: go-redis takes the deadline for those
// of its connections, which is all that it does with a timer too.
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
		unknown := errors.Is(p.err, storage.ErrUnknown)
		switch {
		case unknown && p.flight != f && p.repeats():
			again = append(again, p)
			continue
		case unknown && p.flight == f:
			p.err = ended(ctx)
		}
		done = append(done, p)
	}
	return done, again
}

// take takes what waits in a slot, as much as one flush carries.
func (c *combiner) take(slot int) []*part {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked(slot)
}

func (c *combiner) takeLocked(slot int) []*part {
	parts := c.outbox[slot]
	n := min(len(parts), flushParts)
	c.outbox[slot] = parts[n:]
	return parts[:n]
}

// enlist puts the parts into the outbox, or reports that they are the caller's own.
func (c *combiner) enlist(parts []*part, carries bool) (f *flight, own bool, err error) {
	f = &flight{left: len(parts)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, storage.ErrClosed
	}
	for _, p := range parts {
		p.flight = f
	}
	carries = carries && len(parts) == 1
	if slot := parts[0].slot; carries && !c.busy[slot] {
		c.busy[slot] = true
		c.flushes.Add(1)
		return f, true, nil
	}
	f.landed = make(chan struct{})
	if carries {
		f.baton = make(chan struct{}, 1)
	}
	for _, p := range parts {
		c.outbox[p.slot] = append(c.outbox[p.slot], p)
		if !c.busy[p.slot] {
			c.busy[p.slot] = true
			c.start(p.slot)
		}
	}
	return f, false, nil
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

// work empties one slot after the other. A goroutine that is kept needs no new stack.
func (c *combiner) work(slot int) {
	parked := make(chan int, 1)
	for more := true; more; slot, more = <-parked {
		c.empty(slot)
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

// resume has what is left of a slot's flush and what came to it meanwhile flushed: by the
// first of the callers who waits for it anyway, or by a goroutine of its own.
func (c *combiner) resume(slot int, left []*part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumeLocked(slot, left)
}

func (c *combiner) resumeLocked(slot int, left []*part) {
	if len(left) > 0 {
		c.outbox[slot] = append(left, c.outbox[slot]...)
		c.start(slot)
		return
	}
	parts := c.outbox[slot]
	if len(parts) == 0 {
		delete(c.outbox, slot)
		delete(c.busy, slot)
		return
	}
	if baton := parts[0].flight.baton; baton != nil {
		c.flushes.Add(1)
		baton <- struct{}{} // has room for one, and it goes with the parts
		return
	}
	c.start(slot)
}

// withdraw takes back what is still to be sent of a call for which nobody waits, and has
// another flush what it was asked to.
func (c *combiner) withdraw(f *flight, parts []*part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range parts {
		if waiting, some := c.outbox[p.slot]; some {
			c.outbox[p.slot] = slices.DeleteFunc(waiting, func(other *part) bool { return other.flight == f })
		}
	}
	select {
	case <-f.baton: // it came at the same moment, and is another's now
		c.resumeLocked(parts[0].slot, nil)
		c.flushes.Done()
	default:
	}
}

// empty flushes one slot until nothing is left to send.
func (c *combiner) empty(slot int) {
	for {
		c.mu.Lock()
		parts := c.takeLocked(slot)
		if len(parts) == 0 {
			delete(c.outbox, slot)
			delete(c.busy, slot)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.flushWithin(context.WithoutCancel(c.ctx), parts)
		c.land(slot, parts)
	}
}

// patience is how often a flush that is to begin lets others go first, once none of them
// brings anything: some ten microseconds.
const patience = 200

// land tells callers of their outcome, and lets them come again before the next flush
// begins. Without that the first of them would miss it, and callers in a loop would be
// flushed in turns: all but one, and then that one alone.
func (c *combiner) land(slot int, parts []*part) {
	waiting := c.landAll(slot, parts)
	most := min(waiting+len(parts), flushParts)
	if most == 1 {
		return
	}
	for yields := 0; waiting < most && yields < patience; yields++ {
		runtime.Gosched()
		if now := c.landAll(slot, nil); now > waiting {
			waiting, yields = now, 0
		}
	}
}

// landAll lands parts of a slot, and gives how many wait there.
func (c *combiner) landAll(slot int, parts []*part) (waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range parts {
		if p.flight.left--; p.flight.left == 0 && p.flight.landed != nil {
			close(p.flight.landed)
		}
	}
	return len(c.outbox[slot])
}

// send carries out the parts of a call. A caller whose context ends has an unknown
// outcome; a flush under way goes on for the others.
func (s *Storage) send(ctx context.Context, parts []*part) error {
	if err := ctx.Err(); err != nil {
		return err // nothing happened
	}
	c := s.combiner
	f, err := c.submit(ctx, parts)
	if f == nil {
		return err
	}
	for {
		select {
		case <-f.landed:
			return nil
		case <-f.baton:
			c.carry(ctx, f, c.take(parts[0].slot))
		case <-ctx.Done():
			c.withdraw(f, parts)
			return ended(ctx)
		}
	}
}

// invocation is one call of apply.lua: parts of one slot and class, in order.
type invocation struct {
	parts  []*part
	queues []string
	ops    int
	bytes  int
	script *script
	keys   []any
	args   []any
	cmd    *goredis.Cmd
}

// combine joins parts. Parts that a full Redis refuses stay apart from those that it
// has to take; the parts of one call stay in order.
func combine(parts []*part) []*invocation {
	if len(parts) == 1 {
		return []*invocation{{parts: parts, queues: parts[0].queues}}
	}
	var all []*invocation
	last := map[bool]int{true: -1, false: -1} // the open invocation of each class
	placed := make(map[*flight]int, len(parts))
	for _, p := range parts {
		at := last[p.grows]
		if at < placed[p.flight] || !all[at].fits(p) {
			at = len(all)
			all = append(all, &invocation{})
			last[p.grows] = at
		}
		placed[p.flight] = at
		inv := all[at]
		inv.parts = append(inv.parts, p)
		inv.ops += p.ops
		inv.bytes += p.bytes
		for _, q := range p.queues {
			if !slices.Contains(inv.queues, q) {
				inv.queues = append(inv.queues, q)
			}
		}
	}
	return all
}

func (inv *invocation) fits(p *part) bool {
	most := partOps
	if p.plain != "" && inv.class() == p.plain {
		most = runOps(p.plain == completionRun)
	}
	return inv.ops+p.ops <= most && inv.bytes+p.bytes <= partBytes
}

// flush carries out parts of one slot in one pipeline, by the general script where a short
// one has left them, and one by one those that failed together.
func (s *Storage) flush(ctx context.Context, parts []*part) {
	invocations := combine(parts)
	for _, inv := range invocations {
		inv.script = s.scriptOf(inv)
	}
	s.invoke(ctx, invocations)
	var left []*invocation
	for _, inv := range invocations {
		if errors.Is(inv.cmd.Err(), goredis.Nil) {
			inv.script = &s.scripts.apply
			left = append(left, inv)
		}
	}
	s.invoke(ctx, left)
	apart := s.separate(invocations)
	s.invoke(ctx, apart)
	for _, inv := range append(invocations, apart...) {
		s.hand(inv)
	}
}

// scriptOf is the script that is tried first.
func (s *Storage) scriptOf(inv *invocation) *script {
	for _, p := range inv.parts {
		if !p.short {
			return &s.scripts.apply
		}
	}
	switch inv.class() {
	case insertRun:
		if inv.alike() {
			return &s.scripts.enqueue
		}
		return &s.scripts.insert
	case completionRun:
		if inv.finishes() {
			return &s.scripts.finish
		}
		return &s.scripts.complete
	}
	return &s.scripts.apply
}

// invoke carries out invocations in one pipeline, and again those for which the server
// had forgotten the script.
func (s *Storage) invoke(ctx context.Context, invocations []*invocation) {
	for _, inv := range invocations {
		inv.keys, inv.args = s.argsOf(inv)
		inv.cmd = inv.script.call(ctx, false, inv.keys, inv.args)
	}
	s.pipeline(ctx, invocations)
	var again []*invocation
	for _, inv := range invocations {
		if forgotten(inv.cmd.Err()) {
			inv.cmd = inv.script.call(ctx, true, inv.keys, inv.args)
			again = append(again, inv)
		}
	}
	s.pipeline(ctx, again)
}

// separate gives each part of an invocation that failed an invocation of its own: one
// of them, such as one on a damaged key, spoiled it for the others, and nothing happened.
func (s *Storage) separate(invocations []*invocation) (apart []*invocation) {
	for _, inv := range invocations {
		err := translate(inv.cmd.Err())
		if err == nil || len(inv.parts) == 1 || errors.Is(err, storage.ErrUnknown) ||
			errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrRefused) {
			continue
		}
		for _, p := range inv.parts {
			apart = append(apart, &invocation{parts: []*part{p}, queues: p.queues, script: &s.scripts.apply})
		}
	}
	return apart
}

func (s *Storage) pipeline(ctx context.Context, invocations []*invocation) {
	switch len(invocations) {
	case 0:
		return
	case 1:
		_ = s.client.Process(ctx, invocations[0].cmd) // the command has its own error
		return
	}
	pipe := s.client.Pipeline()
	for _, inv := range invocations {
		_ = pipe.Process(ctx, inv.cmd)
	}
	_, _ = pipe.Exec(ctx) // likewise
}

// argsOf gives the keys and arguments of an invocation's script.
func (s *Storage) argsOf(inv *invocation) (keys, args []any) {
	switch inv.script {
	case &s.scripts.enqueue:
		return s.loneArgs(inv)
	case &s.scripts.finish:
		return s.finishArgs(inv)
	}
	n := 4 + len(inv.queues)
	for _, p := range inv.parts {
		n += p.size()
	}
	args = make([]any, 0, n)
	if inv.script == &s.scripts.apply {
		args = append(args, len(inv.queues), inv.refusal(), s.limits.DeadMax, len(inv.parts))
	} else {
		args = append(args, len(inv.queues), len(inv.parts))
	}
	keys = make([]any, 0, block*len(inv.queues))
	for _, q := range inv.queues {
		keys = s.keysOf(inv.script, q, keys)
		args = append(args, q)
	}
	for _, p := range inv.parts {
		args = p.append(args, inv.script, s.scripts)
	}
	return keys, args
}

// keysOf appends the keys of a queue that a script takes.
func (s *Storage) keysOf(sc *script, queue string, list []any) []any {
	switch sc {
	case &s.scripts.insert:
		return s.keys.some(queue, list, metaKey, tasksKey, waitingKey, lanesKey)
	case &s.scripts.complete:
		return s.keys.some(queue, list, metaKey, tasksKey, pendingKey, leasesKey, claimsKey, lanesKey)
	}
	return s.keys.of(queue, list)
}

// class is the letter of the runs that all parts are of, "" where they are not.
func (inv *invocation) class() string {
	class := inv.parts[0].plain
	for _, p := range inv.parts {
		if p.plain != class {
			return ""
		}
	}
	return class
}

// refusal is "1" where a full Redis is to refuse the invocation.
func (inv *invocation) refusal() string {
	if inv.parts[0].grows {
		return "1"
	}
	return "0"
}

// hand hands the reply of an invocation to its parts.
func (s *Storage) hand(inv *invocation) {
	if text, ok := inv.cmd.Val().(string); ok {
		if inv.script == &s.scripts.enqueue {
			inv.told(text)
		} else {
			inv.cut(text)
		}
		return
	}
	reply, err := inv.cmd.Slice()
	err = translate(err)
	if err == nil && len(reply) != len(inv.parts)+1 {
		err = fmt.Errorf("%w: %d outcomes for %d calls", errReply, len(reply)-1, len(inv.parts))
	}
	for i, p := range inv.parts {
		if err != nil {
			p.err = err
			continue
		}
		p.err = nil
		p.outcome, _ = reply[i+1].(string)
	}
}
