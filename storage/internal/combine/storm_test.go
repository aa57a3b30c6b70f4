package combine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
)

// storm makes callers come, leave and wait at random, with flushes that take random times, and checks each
// flush against the promises of the Combiner.
type storm struct {
	t   *testing.T
	cfg combine.Config[*call]

	mu    sync.Mutex  // guards under, and the outcomes of calls
	under map[int]int // flushes of a line
}

// call is a random call.
type call struct {
	combine.Call

	caller  context.Context // the only caller's context that may end the flush of the call
	spoils  bool            // it spoils a flush that it shares
	sent    int
	outcome string
	kept    bool
}

func (s *storm) flush(ctx context.Context, line int, calls []*call) (spoiled []*call) {
	s.begin(line, calls)
	defer s.end(line)
	s.carryOut(ctx, calls)
	if len(calls) > 1 && slices.ContainsFunc(calls, func(c *call) bool { return c.spoils }) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range calls {
			c.outcome = ""
		}
		return calls
	}
	return nil
}

func (s *storm) apart(ctx context.Context, _ int, calls []*call) {
	for _, c := range calls {
		s.carryOut(ctx, []*call{c})
	}
}

func (s *storm) carryOut(ctx context.Context, calls []*call) {
	outcome := "happened"
	select {
	case <-ctx.Done():
		outcome = "unknown"
		if len(calls) > 1 || ctx != calls[0].caller {
			s.t.Error("the context of a caller ended the flush of others")
		}
	case <-time.After(rand.N(4 * time.Millisecond)):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range calls {
		c.outcome = outcome
	}
}

// begin checks which calls share a flush, and that none comes before a call that arrived earlier.
func (s *storm) begin(line int, calls []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under[line]++
	if s.under[line] > s.cfg.Beside {
		s.t.Errorf("%d flushes of a line are under way", s.under[line])
	}
	ops, bytes, lanes := 0, 0, make(map[[16]byte]bool)
	for _, c := range calls {
		ops, bytes = ops+c.Ops, bytes+c.Bytes
		if c.sent++; c.sent > 1 || c.Line != line {
			s.t.Error("a call is flushed twice, or with those of another line")
		}
		if !c.Identity.IsZero() && lanes[c.Identity.Lane.ID] {
			s.t.Error("two calls of a lane share a flush")
		}
		lanes[c.Identity.Lane.ID] = !c.Identity.IsZero()
		if len(calls) > 1 && !c.kept {
			s.t.Error("a call waits that was not kept")
		}
	}
	if len(calls) > s.cfg.Calls || len(calls) > 1 && (ops > s.cfg.Ops || bytes > s.cfg.Bytes) {
		s.t.Errorf("a flush carries %d calls of %d operations and %d bytes", len(calls), ops, bytes)
	}
}

func (s *storm) end(line int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under[line]--
}

// exodus is the interval at which all callers leave whose contexts end.
const exodus = 5 * time.Millisecond

// caller makes calls, now and then several at once.
func (s *storm) caller(c *combine.Combiner[*call], lane byte) {
	for seq := range uint64(10) {
		until := time.Now().Truncate(exodus).Add(exodus)
		if rand.N(3) == 0 {
			until = until.Add(time.Hour) // this one stays
		}
		ctx, leave := context.WithDeadline(s.t.Context(), until)
		calls := make([]*call, 1+rand.N(2)*rand.N(3))
		for i := range calls {
			calls[i] = &call{caller: ctx, spoils: rand.N(8) == 0}
			calls[i].Line, calls[i].Ops, calls[i].Bytes = rand.N(2), 1+rand.N(3), rand.N(20)
			calls[i].Large = rand.N(10) == 0
			if rand.N(3) > 0 {
				calls[i].Identity = storage.Call{Lane: storage.Lane{ID: [16]byte{lane + 1}}, Seq: seq + 1}
			}
		}
		s.check(ctx, calls, c.Do(ctx, calls...))
		leave()
	}
}

func (s *storm) check(ctx context.Context, calls []*call, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unsent := !slices.ContainsFunc(calls, func(c *call) bool { return c.sent > 0 })
	switch {
	case err == nil:
		for _, c := range calls {
			if c.outcome == "" || c.outcome == "unknown" && ctx.Err() == nil {
				s.t.Errorf("a call returned with the outcome %q", c.outcome)
			}
		}
	case ctx.Err() == nil:
		s.t.Errorf("a caller who waits was told %v", err)
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, storage.ErrUnavailable):
		if !unsent {
			s.t.Error("a call that was flushed is told to have not happened")
		}
	case !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded):
		s.t.Errorf("a caller who left was told %v", err)
	}
}

// TestStorm holds the Combiner to its promises under random schedules of callers, flushes and limits.
func TestStorm(t *testing.T) {
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			s := &storm{t: t, under: make(map[int]int)}
			background, end := context.WithCancel(context.WithoutCancel(t.Context()))
			s.cfg = combine.Config[*call]{
				Flush: s.flush, Apart: s.apart, Keep: func(c *call) { c.kept = true },
				Context: background, Interruptible: rand.N(4) > 0,
				Calls: 1 + rand.N(20), Ops: 1 + rand.N(40), Bytes: 1 + rand.N(200), Beside: 1 + rand.N(4), Group: rand.N(5),
			}
			c := combine.New(s.cfg)
			var callers sync.WaitGroup
			for lane := range 1 + rand.N(100) {
				callers.Go(func() { s.caller(c, byte(lane/2)) })
			}
			callers.Wait() // a call that nobody flushes would deadlock the bubble
			c.Close()
			end()
			if err := c.Do(t.Context(), &call{}); !errors.Is(err, storage.ErrClosed) {
				t.Errorf("a closed Combiner said %v, want ErrClosed", err)
			}
			if s.under[0]+s.under[1] > 0 {
				t.Error("Close returned before the flushes")
			}
		})
	}
}
