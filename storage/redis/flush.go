package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
)

// flushTime bounds one pipeline of a flush, all retries included.
const flushTime = 10 * time.Second

// The limits of a flush. flushParts is the limit of each of its pipelines.
const (
	flushCalls = 64
	flushBytes = 64 << 20
	flushParts = 64
)

// Up to flushMost flushes of a slot are under way at the same time. From the third on, a flush waits for
// flushGroup calls at least, because a script call itself costs as much as several of its parts.
const (
	flushMost  = 4
	flushGroup = 4
)

// slotCall is the parts of a call that are in one slot. A flush carries whole slotCalls.
type slotCall struct {
	combine.Call

	parts []*part
}

// newCombiner returns the combiner that collects calls into flushes.
func (s *Storage) newCombiner() *combine.Combiner[*slotCall] {
	return combine.New(combine.Config[*slotCall]{
		Flush: s.flush, Apart: s.flushApart, Context: context.WithoutCancel(s.background),
		Interruptible: s.interrupts != nil,
		Calls:         flushCalls, Bytes: flushBytes, Beside: flushMost, Group: flushGroup,
	})
}

// send carries out the parts of a call. If ctx ends first, the outcome is unknown to the caller; a flush
// that other calls share goes on for them.
func (s *Storage) send(ctx context.Context, call storage.Call, parts []*part) error {
	return s.combiner.Do(ctx, bySlot(call, parts)...)
}

// bySlot sorts the parts of a call by slot. It keeps their order within a slot.
func bySlot(call storage.Call, parts []*part) []*slotCall {
	calls := make([]*slotCall, 0, 1)
	in := make(map[int]*slotCall, 1)
	for _, p := range parts {
		c := in[p.slot]
		if c == nil {
			c = &slotCall{Call: combine.Call{Identity: call, Line: p.slot}}
			in[p.slot] = c
			calls = append(calls, c)
		}
		c.Ops += p.ops
		c.Bytes += p.bytes
		c.parts = append(c.parts, p)
		p.of = c
	}
	return calls
}

// flush carries out calls of one slot. It returns the calls with a part that another call spoiled.
func (s *Storage) flush(ctx context.Context, _ int, calls []*slotCall) (spoiled []*slotCall) {
	for parts := range slices.Chunk(partsOf(calls), flushParts) {
		s.within(ctx, parts, func(ctx context.Context) { s.flushTogether(ctx, parts) })
	}
	return slices.DeleteFunc(slices.Clone(calls), func(c *slotCall) bool {
		return !slices.ContainsFunc(c.parts, func(p *part) bool { return p.spoiled })
	})
}

func partsOf(calls []*slotCall) []*part {
	if len(calls) == 1 {
		return calls[0].parts
	}
	parts := make([]*part, 0, len(calls))
	for _, c := range calls {
		parts = append(parts, c.parts...)
	}
	return parts
}

// flushTogether carries out parts of one slot in one pipeline. It then sends the parts that a short way
// has left, or that made a short way fail, to apply.lua.
func (s *Storage) flushTogether(ctx context.Context, parts []*part) {
	invocations := invocationsOf(parts)
	for _, inv := range invocations {
		inv.script = s.scriptOf(inv)
	}
	s.invoke(ctx, invocations)
	var left []*invocation
	for _, inv := range invocations {
		err := inv.cmd.Err()
		if errors.Is(err, goredis.Nil) || inv.script != &s.scripts.apply && spoiled(translate(err, true)) {
			inv.script = &s.scripts.apply
			left = append(left, inv)
		}
	}
	s.invoke(ctx, left)
	s.hand(ctx, invocations)
}

// hand sets the outcome of each part, once the queues that the invocations made are on the list.
func (s *Storage) hand(ctx context.Context, invocations []*invocation) {
	for _, inv := range invocations {
		if made := inv.made(); len(made) > 0 {
			s.relist(ctx, made)
		}
		inv.hand()
	}
}

// flushApart carries out the spoiled parts of calls, each in a script call of its own. One part, for
// example on a damaged key, made the script call of all of them fail, and none of them happened.
func (s *Storage) flushApart(ctx context.Context, _ int, calls []*slotCall) {
	parts := slices.DeleteFunc(slices.Clone(partsOf(calls)), func(p *part) bool { return !p.spoiled })
	for some := range slices.Chunk(parts, flushParts) {
		s.within(ctx, some, func(ctx context.Context) {
			invocations := make([]*invocation, len(some))
			for i, p := range some {
				invocations[i] = &invocation{parts: []*part{p}, queues: p.queues, script: &s.scripts.apply}
			}
			s.invoke(ctx, invocations)
			s.hand(ctx, invocations)
		})
	}
}

// within sends parts until ctx ends or flushTime is over. A ctx that cannot end belongs to no caller;
// then Close ends the flush, by the storage's own context and by closing the connections.
func (s *Storage) within(ctx context.Context, parts []*part, send func(context.Context)) {
	limit := time.Now().Add(flushTime)
	if ctx.Done() == nil {
		send(bounded{s.background, limit}) //nolint:contextcheck // see above
		return
	}
	if endsAtDeadline(ctx) { // go-redis ends the call by itself then
		send(bounded{ctx, limit}) //nolint:contextcheck // it is the caller's, with a bound
	} else {
		call, end := s.interrupts.begin(bounded{ctx, limit})
		send(call) //nolint:contextcheck // one of ctx
		end()
	}
	if ctx.Err() == nil {
		return
	}
	for _, p := range parts {
		if away(p.err) {
			p.err = translate(context.Cause(ctx), !errors.Is(p.err, storage.ErrUnavailable))
		}
	}
}

// endsAtDeadline reports whether a context, of a storage.Session, ends at its deadline and not before.
func endsAtDeadline(ctx context.Context) bool {
	at, ok := ctx.(interface{ EndsAtDeadline() bool })
	return ok && at.EndsAtDeadline()
}

// bounded is a context with a deadline and no timer: go-redis sets the deadline on its
// connections. A wait for a free connection ends only by a timeout of go-redis, which can make a
// flush last some seconds longer if no connection is free.
type bounded struct {
	context.Context //nolint:containedctx // it is one

	until time.Time
}

// Deadline returns the earlier of the context's own deadline and until.
func (b bounded) Deadline() (time.Time, bool) {
	if own, some := b.Context.Deadline(); some && own.Before(b.until) {
		return own, true
	}
	return b.until, true
}

// Err returns context.DeadlineExceeded once until has passed.
func (b bounded) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if time.Now().After(b.until) {
		return context.DeadlineExceeded
	}
	return nil
}
