package redis

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// storm has callers come, leave and wait as chance has it, with flushes that take their time,
// and looks after what each flush has to keep to.
type storm struct {
	t     *testing.T
	store *Storage

	mu     sync.Mutex // guards what follows
	under  map[*part]bool
	sent   map[*part]int
	before map[*part]*part // that of the same call in the same slot
}

func (s *storm) flush(ctx context.Context, parts []*part) {
	s.begin(parts)
	err := error(nil)
	select {
	case <-ctx.Done():
		err = storage.ErrUnknown
	case <-time.After(time.Duration(rand.N(4)) * time.Millisecond):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		p.err, p.outcome = err, "sent"
		delete(s.under, p)
	}
}

func (s *storm) begin(parts []*part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range parts {
		if s.sent[p]++; s.under[p] || s.sent[p] > 1 && !p.repeats() {
			s.t.Error("a part is sent twice")
		}
		if last := s.before[p]; last != nil && (s.under[last] || s.sent[last] == 0) &&
			!slices.Contains(parts[:i], last) {
			s.t.Error("a part is sent before, or beside, the one before it")
		}
	}
	for _, p := range parts {
		s.under[p] = true
	}
}

// exodus is how often all leave who do at all.
const exodus = 5 * time.Millisecond

// call is one call of chance.
func (s *storm) call() {
	parts := make([]*part, 1)
	if rand.N(4) == 0 {
		parts = make([]*part, 1+rand.N(3))
	}
	seq, last := uint64(rand.N(3)), make(map[int]*part)
	s.mu.Lock()
	for i := range parts {
		p := &part{slot: rand.N(2), id: identity{seq: seq}}
		s.before[p], last[p.slot], parts[i] = last[p.slot], p, p
	}
	s.mu.Unlock()
	ctx := s.t.Context()
	if rand.N(3) > 0 { // many leave at once
		var end context.CancelFunc
		ctx, end = context.WithDeadline(ctx, time.Now().Truncate(exodus).Add(exodus))
		defer end()
	}
	if s.store.send(ctx, parts) != nil {
		return
	}
	for _, p := range parts {
		if p.outcome == "" || p.err != nil && ctx.Err() == nil {
			s.t.Error("a call returned without its outcome")
		}
	}
}

// TestCombinerInAStorm of many callers.
func TestCombinerInAStorm(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := &storm{
				t: t, under: make(map[*part]bool), sent: make(map[*part]int), before: make(map[*part]*part),
			}
			c := newCombiner(t.Context(), interruptsOfASecond(), s.flush)
			s.store = &Storage{combiner: c}
			var callers sync.WaitGroup
			for range 1 + rand.N(200) {
				callers.Go(func() {
					for range 10 {
						s.call()
					}
				})
			}
			callers.Wait() // a call that is left waiting is a deadlock of the bubble
			synctest.Wait()
			time.Sleep(time.Second) // of the bubble: what callers left behind lands
			c.close()
			if len(c.slots) > 0 {
				t.Errorf("%d slots are left with nothing to send", len(c.slots))
			}
		})
	}
}
