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

// A flush carries at most so much, and a pipeline of one at most so many parts.
const (
	flushCalls = 64
	flushBytes = 64 << 20
	flushParts = 64
)

// Up to flushMost flushes of a slot are under way at the same time, from the third on of flushGroup calls
// at least: a script costs as much as some of the parts it carries.
const (
	flushMost  = 4
	flushGroup = 4
)

// slotCall is a call, or the parts of it that are in one slot: the unit that flushes share.
type slotCall struct {
	combine.Call

	parts []*part
}

// newCombiner makes what flushes calls.
func (s *Storage) newCombiner() *combine.Combiner[*slotCall] {
	return combine.New(combine.Config[*slotCall]{
		Flush: s.flush, Apart: s.flushApart, Context: context.WithoutCancel(s.background),
		Interruptible: s.interrupts != nil,
		Calls:         flushCalls, Bytes: flushBytes, Beside: flushMost, Group: flushGroup,
	})
}

// send carries out the parts of a call. A caller whose context ends has an unknown outcome; a flush that
// others share goes on for them.
func (s *Storage) send(ctx context.Context, call storage.Call, parts []*part) error {
	return s.combiner.Do(ctx, bySlot(call, parts)...)
}

// bySlot gives the parts of a call, in their order, for each slot.
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

// flush carries out calls of one slot, and gives back those of which others spoiled a part.
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

// flushTogether carries out parts of one slot in one pipeline, and by apply.lua those that a short way
// has left or was spoiled by.
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
	for _, inv := range invocations {
		inv.hand()
	}
}

// flushApart carries out parts each by itself: one of them, such as one on a damaged key, spoiled an
// invocation for the others, and nothing of it happened.
func (s *Storage) flushApart(ctx context.Context, _ int, calls []*slotCall) {
	parts := slices.DeleteFunc(slices.Clone(partsOf(calls)), func(p *part) bool { return !p.spoiled })
	for some := range slices.Chunk(parts, flushParts) {
		s.within(ctx, some, func(ctx context.Context) {
			invocations := make([]*invocation, len(some))
			for i, p := range some {
				invocations[i] = &invocation{parts: []*part{p}, queues: p.queues, script: &s.scripts.apply}
			}
			s.invoke(ctx, invocations)
			for _, inv := range invocations {
				inv.hand()
			}
		})
	}
}

// within sends parts until ctx ends or the time of a pipeline is over. A context that cannot end is that
// of no caller: Close ends it, by the storage's own and by closing the connections.
func (s *Storage) within(ctx context.Context, parts []*part, send func(context.Context)) {
	limit := time.Now().Add(flushTime)
	if ctx.Done() == nil {
		send(bounded{s.background, limit}) //nolint:contextcheck // see above
		return
	}
	call, end := s.interrupts.begin(bounded{ctx, limit})
	send(call) //nolint:contextcheck // one of ctx
	end()
	if ctx.Err() == nil {
		return
	}
	for _, p := range parts {
		if away(p.err) {
			p.err = translate(context.Cause(ctx), !errors.Is(p.err, storage.ErrUnavailable))
		}
	}
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
