package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestNoSpanHasMoreStarts plays random starts against the rate, and counts them in each span of Per.
func TestNoSpanHasMoreStarts(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := rated{T: t, seed: seed, n: 1 + rng.IntN(20), span: int64(1+rng.IntN(5000)) * 1000}
		rate := storage.Rate{N: p.n, Per: time.Duration(p.span) * time.Microsecond}
		p.limit = &Limit{Declared: &storage.DeclaredLimit{Limit: storage.Limit{Rate: rate}}}
		now := int64(1_000_000_000)
		for range 500 {
			if p.limit.affords(0, now, now) {
				p.start(now)
			} else if next := p.next(now); rng.IntN(2) == 0 {
				now = next
			}
			now += rng.Int64N(p.span/int64(p.n) + 1)
			p.limit.Starts = UnpackStarts(p.limit.Starts.Pack())
		}
		if len(p.limit.Starts) > storage.RateParts+1 {
			t.Fatalf("seed %d: %d parts", seed, len(p.limit.Starts))
		}
	}
}

// rated is a rate of n starts in a span, with its starts.
type rated struct {
	*testing.T
	seed  uint64
	n     int
	span  int64
	limit *Limit
	made  []int64
}

// start counts a start, and checks the span before it.
func (p *rated) start(now int64) {
	p.limit.count(0, now, now)
	p.made = append(p.made, now)
	if i := len(p.made) - p.n - 1; i >= 0 && now-p.made[i] < p.span {
		p.Fatalf("seed %d: %d starts in %d µs", p.seed, p.n+1, now-p.made[i])
	}
}

// next returns the moment of the next start of a rate that is spent, which it checks.
func (p *rated) next(now int64) int64 {
	next := p.limit.next(0, now, now)
	if next <= now || !p.limit.affords(0, next, next) || p.limit.affords(0, next-1, next-1) {
		p.Fatalf("seed %d: next start %d is not the first moment with room after %d", p.seed, next, now)
	}
	oldest := p.made[len(p.made)-p.n]
	if late := next - (oldest + p.span); late < 0 || late > p.span/storage.RateParts+1 {
		p.Fatalf("seed %d: the next start is %d µs late of %d", p.seed, late, p.span)
	}
	return next
}

// TestAClockSetBackCostsOnePer shows that starts of a clock that was ahead count as made now.
func TestAClockSetBackCostsOnePer(t *testing.T) {
	l := &Limit{Operator: &storage.Limit{Rate: storage.Rate{N: 2, Per: time.Second}}}
	now := int64(10_000_000_000)
	l.count(2, now+time.Hour.Microseconds(), now+time.Hour.Microseconds())
	if next := l.next(0, now, now); next < now+999_000 || next > now+1_050_000 {
		t.Errorf("the next start is %d µs after the clock was set back", next-now)
	}
	l.settle(now, now)
	if starts := UnpackStarts(l.Starts.Pack()); !l.Changed || starts.sum() != 2 {
		t.Errorf("changed %v, and %v are kept", l.Changed, starts)
	}
	if later := now + 2_000_000; !l.affords(0, later, later) {
		t.Error("starts of a clock that was ahead count for more than a Per")
	}
	l.count(0, now, now)
	l.count(0, now+500_000, now+500_000)
	l.settle(now, now)
	if starts := UnpackStarts(l.Starts.Pack()); starts.sum() != 4 {
		t.Errorf("%v are kept, want 4 starts", starts)
	}
	if l.affords(0, now+3_600_000_000+2_000_000, 0) {
		t.Error("starts ceased to count in a wait of the clock")
	}
}

// TestALimitIsReadAsItWasWritten packs limits and reads them again, also from damaged texts.
func TestALimitIsReadAsItWasWritten(t *testing.T) {
	declared := storage.DeclaredLimit{
		Limit:    storage.Limit{Concurrency: 3, Rate: storage.Rate{N: 10, Per: time.Minute}},
		Replaced: []storage.Limit{{Concurrency: 4}, {Rate: storage.Rate{N: 1, Per: time.Hour}}},
	}
	l := (*Limit)(nil).with(&storage.Settings{Declared: &declared, Limit: &storage.OperatorLimit{On: true}})
	operator, text, _ := l.Texts()
	if operator != "0 0 0" || text != "3 10 60000000;4 0 0;0 1 3600000000" {
		t.Errorf("texts %q and %q", operator, text)
	}
	if again := LimitOf(operator, text, nil); again.Damaged || again.InForce() != (storage.Limit{}) ||
		len(again.Declared.Replaced) != 2 {
		t.Errorf("read %+v", again)
	}
	each := storage.Limit{Concurrency: 3, Partition: storage.PartitionLimit{
		Rate: storage.Rate{N: 9, Per: time.Second}, Weight: 7,
	}}
	l = (*Limit)(nil).with(&storage.Settings{
		Limit:    &storage.OperatorLimit{On: true, Limit: each},
		Declared: &storage.DeclaredLimit{Limit: declared.Limit, Replaced: []storage.Limit{each}},
	})
	operator, text, _ = l.Texts()
	if operator != "3 0 0 0 9 1000000 7" || text != "3 10 60000000;3 0 0 0 9 1000000 7" {
		t.Errorf("texts %q and %q", operator, text)
	}
	if again := LimitOf(operator, text, nil); again.Damaged || again.InForce() != each ||
		!slices.Equal(again.Declared.Replaced, []storage.Limit{each}) {
		t.Errorf("read %+v", again)
	}
	for _, bad := range []string{"x", "1 2", "-1 0 0", "1 1 0", "1 0 5", "99999 0 0", "1 0 0 0", "3 0 0;x", "1 0 0 0 0 0 0", "1 0 0 2 0 0", "1 0 0 0 1 0 0", "1 0 0 99999 0 0 0", "1 0 0 2 0 0 1001", "1 0 0 2 0 0 0 0"} {
		if again := LimitOf("", bad, nil); !again.Damaged {
			t.Errorf("%q is read as %+v", bad, again.Declared)
		}
	}
	if again := LimitOf("1 0 0", "", []byte("short")); !again.Damaged || len(again.Starts) != 0 {
		t.Errorf("read %+v of damaged starts", again)
	}
}

// TestStatsHaveCopiesOfALimit: a caller that changes the results of Stats does not change the limit.
func TestStatsHaveCopiesOfALimit(t *testing.T) {
	l := LimitOf("5 0 0", "6 0 0;7 0 0", nil)
	st := l.Stats(1, 1)
	st.Operator.Concurrency, st.Declared.Limit.Concurrency, st.Declared.Replaced[0].Concurrency = 1, 1, 1
	if operator, declared, _ := l.Texts(); operator != "5 0 0" || declared != "6 0 0;7 0 0" {
		t.Errorf("the limits are %q and %q after a change of the copy", operator, declared)
	}
}
