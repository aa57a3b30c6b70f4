package redis

import (
	"context"
	"errors"
	"fmt"
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
	left   int // parts; guarded by combiner.mu
	landed chan struct{}
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
// flushes its own at once: a change of goroutines can cost more than the round trip.
func (c *combiner) submit(ctx context.Context, parts []*part) (*flight, error) {
	carries := ctx.Done() == nil || c.interrupts != nil
	f, own, err := c.enlist(parts, carries)
	if own {
		c.carry(ctx, f, parts)
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
	c.land(parts)
	c.resume(slot, again)
}

// flushWithin flushes until the context of a caller, or the combiner's, ends.
func (c *combiner) flushWithin(ctx context.Context, parts []*part) { //nolint:contextcheck // or its own
	if ctx.Done() == nil {
		ctx = c.ctx
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	call, end := c.interrupts.begin(ctx)
	defer end()
	c.flush(call, parts)
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
	f = &flight{left: len(parts), landed: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, storage.ErrClosed
	}
	for _, p := range parts {
		p.flight = f
	}
	if slot := parts[0].slot; carries && len(parts) == 1 {
		f.baton = make(chan struct{}, 1)
		if !c.busy[slot] {
			c.busy[slot] = true
			c.flushes.Add(1)
			return f, true, nil
		}
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
		c.flushWithin(c.ctx, parts)
		c.land(parts)
	}
}

func (c *combiner) land(parts []*part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range parts {
		if p.flight.left--; p.flight.left == 0 {
			close(p.flight.landed)
		}
	}
}

// send carries out the parts of a call. A caller whose context ends has an unknown
// outcome; a flush under way goes on for the others.
func (s *Storage) send(ctx context.Context, parts []*part) error {
	if err := ctx.Err(); err != nil {
		return err // nothing happened
	}
	c := s.combiner
	f, err := c.submit(ctx, parts)
	if err != nil {
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
	alone  []lone // what enqueue.lua is given
	script *script
	keys   []string
	args   []any
	cmd    *goredis.Cmd
}

// combine joins parts. Parts that a full Redis refuses stay apart from those that it
// has to take; the parts of one call stay in order.
func combine(parts []*part) []*invocation {
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
		if inv.alone = inv.alike(); inv.alone != nil {
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
	s.pipeline(ctx, invocations, func(pipe evaler, inv *invocation) {
		inv.keys, inv.args = s.argsOf(inv)
		inv.cmd = pipe.EvalSha(ctx, inv.script.sha, inv.keys, inv.args...)
	})
	var again []*invocation
	for _, inv := range invocations {
		if forgotten(inv.cmd.Err()) {
			again = append(again, inv)
		}
	}
	s.pipeline(ctx, again, func(pipe evaler, inv *invocation) {
		inv.cmd = pipe.Eval(ctx, inv.script.source, inv.keys, inv.args...)
	})
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

func (s *Storage) pipeline(ctx context.Context, invocations []*invocation, add func(evaler, *invocation)) {
	switch len(invocations) {
	case 0:
		return
	case 1:
		add(s.client, invocations[0])
		return
	}
	pipe := s.client.Pipeline()
	for _, inv := range invocations {
		add(pipe, inv)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}

// argsOf gives the keys and arguments of an invocation's script.
func (s *Storage) argsOf(inv *invocation) (keys []string, args []any) {
	switch inv.script {
	case &s.scripts.enqueue:
		return s.loneArgs(inv)
	case &s.scripts.finish:
		return s.finishArgs(inv)
	}
	n := 4 + len(inv.queues)
	for _, p := range inv.parts {
		n += len(p.head) + 1 + len(p.args)
	}
	args = make([]any, 0, n)
	if inv.script == &s.scripts.apply {
		args = append(args, len(inv.queues), inv.refusal(), s.limits.DeadMax, len(inv.parts))
	} else {
		args = append(args, len(inv.queues), len(inv.parts))
	}
	keys = make([]string, 0, block*len(inv.queues))
	for _, q := range inv.queues {
		keys = s.keysOf(inv.script, q, keys)
		args = append(args, q)
	}
	for _, p := range inv.parts {
		args = append(args, p.head[:4]...)
		if inv.script != &s.scripts.apply {
			args = append(args, p.before)
		}
		args = append(append(args, p.head[4]), p.args...)
	}
	return keys, args
}

// keysOf appends the keys of a queue that a script takes.
func (s *Storage) keysOf(sc *script, queue string, list []string) []string {
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
