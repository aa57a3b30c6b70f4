package combine_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
)

// flushing is a flush under way.
type flushing struct {
	calls []*call
	land  chan struct{} // closed by the test
}

// rig is a Combiner whose flushes end when the test decides.
type rig struct {
	*combine.Combiner[*call]

	t       *testing.T
	flushes chan flushing
	callers sync.WaitGroup
}

func newRig(t *testing.T, cfg combine.Config[*call]) *rig {
	t.Helper()
	r := &rig{t: t, flushes: make(chan flushing, 100)}
	cfg.Context, cfg.Interruptible = context.WithoutCancel(t.Context()), true
	if cfg.Flush == nil {
		cfg.Flush = r.flush
	}
	r.Combiner = combine.New(cfg)
	return r
}

func (r *rig) flush(ctx context.Context, _ int, calls []*call) []*call {
	f := flushing{calls, make(chan struct{})}
	r.flushes <- f
	select {
	case <-f.land:
	case <-ctx.Done():
		calls[0].outcome = "unknown"
	}
	return nil
}

// do makes calls in a goroutine. The channel receives the error of Do.
func (r *rig) do(ctx context.Context, calls ...*call) <-chan error {
	done := make(chan error, 1)
	r.callers.Go(func() { done <- r.Do(ctx, calls...) })
	synctest.Wait()
	return done
}

// begins expects that one flush, of so many calls, has begun.
func (r *rig) begins(calls int) flushing {
	r.t.Helper()
	if len(r.flushes) != 1 {
		r.t.Fatalf("%d flushes begin, want one of %d calls", len(r.flushes), calls)
	}
	f := <-r.flushes
	if len(f.calls) != calls {
		r.t.Fatalf("a flush carries %d calls, want %d", len(f.calls), calls)
	}
	return f
}

func (r *rig) none(why string) {
	r.t.Helper()
	if len(r.flushes) > 0 {
		r.t.Fatal("a flush begins though " + why)
	}
}

func (r *rig) land(f flushing) {
	close(f.land)
	synctest.Wait()
}

// end waits for all callers.
func (r *rig) end() {
	r.callers.Wait()
	r.Close()
}

// TestCallsThatArriveMeanwhileShareTheNextFlush, in the order of their arrival.
func TestCallsThatArriveMeanwhileShareTheNextFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, combine.Config[*call]{Calls: 3, Beside: 1})
		r.do(t.Context(), &call{})
		first := r.begins(1)
		var want []*call
		for range 4 {
			c := &call{}
			r.do(t.Context(), c)
			r.none("another is under way")
			want = append(want, c)
		}
		r.land(first)
		second := r.begins(3)
		r.land(second)
		third := r.begins(1)
		r.land(third)
		r.end()
		if got := slices.Concat(second.calls, third.calls); !slices.Equal(got, want) {
			t.Error("calls are flushed out of their order")
		}
	})
}

// TestARepeatNeverSharesAFlushWithItsFirstTry nor passes it.
func TestARepeatNeverSharesAFlushWithItsFirstTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, combine.Config[*call]{Calls: 10, Beside: 1})
		r.do(t.Context(), &call{})
		first := r.begins(1)
		lane := combine.Call{Identity: storage.Call{Lane: storage.Lane{ID: [16]byte{1}}, Seq: 1}}
		try, repeat := &call{Call: lane}, &call{Call: lane}
		for _, c := range []*call{{}, try, {}, repeat, {}} {
			r.do(t.Context(), c)
		}
		r.land(first)
		second := r.begins(3)
		r.land(second)
		third := r.begins(2)
		r.land(third)
		r.end()
		if second.calls[1] != try || third.calls[0] != repeat {
			t.Error("the repeat is not flushed after its first try")
		}
	})
}

// TestGroupsGoBesideEachOther: during a flush the next begins when as many calls wait as the first carries,
// and a third when a group of calls waits.
func TestGroupsGoBesideEachOther(t *testing.T) {
	const group = 4
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, combine.Config[*call]{Beside: 3, Group: group})
		call := func(why string) {
			r.do(t.Context(), &call{})
			if why != "" {
				r.none(why)
			}
		}
		call("")
		first := r.begins(1)
		call("")
		second := r.begins(1)
		for range group - 1 {
			call("few wait, and two are under way")
		}
		call("")
		third := r.begins(group)
		r.land(first)
		r.land(second)
		for range group - 1 {
			call("fewer wait than are under way")
		}
		call("")
		fourth := r.begins(group)
		r.land(third)
		r.land(fourth)
		r.end()
	})
}

// TestCallsThatAFlushLeavesGoBesideIt, if there are enough of them for another flush.
func TestCallsThatAFlushLeavesGoBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, combine.Config[*call]{Calls: 2, Beside: 4, Group: 2})
		r.do(t.Context(), &call{})
		flushes := []flushing{r.begins(1)}
		r.do(t.Context(), &call{})
		flushes = append(flushes, r.begins(1))
		r.do(t.Context(), &call{}, &call{}, &call{}, &call{})
		for range 2 {
			if len(r.flushes) == 0 {
				t.Fatal("the calls that a flush left wait until it lands")
			}
			flushes = append(flushes, <-r.flushes)
		}
		for _, f := range flushes {
			r.land(f)
		}
		r.end()
	})
}

// TestLargeCallsDoNotWait for the flush under way, as long as few flushes are under way.
func TestLargeCallsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, combine.Config[*call]{Beside: 2})
		large := func() *call { return &call{Call: combine.Call{Large: true}} }
		r.do(t.Context(), large())
		first := r.begins(1)
		r.do(t.Context(), large())
		second := r.begins(1)
		r.do(t.Context(), large())
		r.do(t.Context(), &call{})
		r.none("two large ones are under way")
		r.land(first)
		third := r.begins(2)
		r.land(second)
		r.land(third)
		r.end()
	})
}

// TestACallerWhoLeavesEndsHisOwnCallAlone, whether the call waits, shares a flush, or is flushed by the
// caller.
func TestACallerWhoLeavesEndsHisOwnCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, combine.Config[*call]{Beside: 1})
		ctx, leave := context.WithCancelCause(t.Context())
		why := errors.New("no patience")
		own := &call{}
		first := r.do(ctx, own)
		r.begins(1)
		second := r.do(t.Context(), &call{})
		leave(why)
		if err := <-first; err != nil || own.outcome != "unknown" {
			t.Errorf("the caller who flushed his call got %v and the outcome %q", err, own.outcome)
		}
		synctest.Wait()
		under := r.begins(1)

		ctx, leave = context.WithCancelCause(t.Context())
		shares, stays := r.do(ctx, &call{}), r.do(t.Context(), &call{})
		r.land(under)
		shared := r.begins(2)
		waits, next := r.do(ctx, &call{}), r.do(t.Context(), &call{})
		leave(why)
		if err := <-shares; !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, why) {
			t.Errorf("the caller whose call was under way got %v, want ErrUnknown", err)
		}
		if err := <-waits; !errors.Is(err, storage.ErrUnavailable) || !errors.Is(err, why) {
			t.Errorf("the caller whose call waited got %v, want ErrUnavailable", err)
		}
		r.land(shared)
		r.land(r.begins(1)) // without the call of the caller who left
		for _, done := range []<-chan error{second, stays, next} {
			if err := <-done; err != nil {
				t.Errorf("another caller got %v", err)
			}
		}
		r.end()
	})
}

// TestCallsOfSeveralLinesGoTogether: one caller makes calls of several lines, and Do returns when all of
// them have an outcome.
func TestCallsOfSeveralLinesGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, combine.Config[*call]{Beside: 1})
		done := r.do(t.Context(), &call{Call: combine.Call{Line: 1}}, &call{Call: combine.Call{Line: 2}})
		first, second := <-r.flushes, <-r.flushes
		r.land(first)
		if len(done) > 0 {
			t.Error("the caller returned before its second call landed")
		}
		r.land(second)
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.end()
	})
}

// TestASpoiledFlushIsCarriedOutApart: calls whose flush another call spoiled happen all the same.
func TestASpoiledFlushIsCarriedOutApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var apart []*call
		gate := make(chan struct{})
		r := newRig(t, combine.Config[*call]{
			Beside: 1,
			Flush: func(_ context.Context, _ int, calls []*call) []*call {
				if len(calls) == 1 {
					<-gate
					return nil
				}
				return calls[1:] // the first has its outcome
			},
			Apart: func(_ context.Context, _ int, calls []*call) { apart = calls },
		})
		calls := []*call{{}, {}, {}}
		r.do(t.Context(), &call{})
		for _, c := range calls {
			r.do(t.Context(), c)
		}
		close(gate)
		r.end()
		if !slices.Equal(apart, calls[1:]) {
			t.Errorf("%d calls are carried out apart, want the two that were spoiled", len(apart))
		}
	})
}

// TestCallersInALoopAreFlushedTogether has callers call again as soon as they have their outcome. If they
// were flushed in turns, all but one and then that one, each round of calls would take two flushes. Nor may
// a flush of some calls begin while another waits for all callers. A flush waits only for a moment, so that
// on a busy machine the best of several tries counts.
func TestCallersInALoopAreFlushedTogether(t *testing.T) {
	const calls = 200
	for _, c := range []struct{ callers, beside, group int }{{16, 1, 0}, {8, 4, 4}} {
		best := calls * c.callers
		for range 6 {
			synctest.Test(t, func(t *testing.T) { best = min(best, flushesOf(t, c.callers, calls, c.beside, c.group)) })
		}
		if best > calls*5/4 {
			t.Errorf("%d callers, %d flushes beside each other: got %d, want at most %d", c.callers, c.beside, best, calls*5/4)
		}
	}
}

// flushesOf counts the flushes of callers who call in a loop.
func flushesOf(t *testing.T, callers, calls, beside, group int) int {
	t.Helper()
	var flushes, flushed atomic.Int64
	r := newRig(t, combine.Config[*call]{
		Beside: beside, Group: group,
		Flush: func(_ context.Context, _ int, calls []*call) []*call {
			flushes.Add(1)
			flushed.Add(int64(len(calls)))
			time.Sleep(time.Millisecond)
			return nil
		},
	})
	for range callers {
		r.callers.Go(func() {
			for range calls {
				if err := r.Do(t.Context(), &call{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	r.end()
	if flushed.Load() != int64(callers*calls) {
		t.Errorf("%d calls were flushed, want %d", flushed.Load(), callers*calls)
	}
	return int(flushes.Load())
}

// TestNobodyWaitsLongForCallersWhoDoNotCome, even if other work keeps all processors busy and each yield
// takes tens of milliseconds. The time is that of the processors that the other work uses meanwhile, which does
// not depend on other processes.
func TestNobodyWaitsLongForCallersWhoDoNotCome(t *testing.T) {
	var stop atomic.Bool
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop.Store(true)
	var running sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		running.Add(1)
		busy.Go(func() {
			running.Done()
			for !stop.Load() { //nolint:revive // it is to use its processor
			}
		})
	}
	running.Wait()
	r := newRig(t, combine.Config[*call]{Beside: 1, Flush: func(context.Context, int, []*call) []*call { return nil }})
	defer r.Close()
	most := time.Duration(runtime.GOMAXPROCS(0)) * time.Second
	took := most
	for try := 0; try < 3 && took >= most; try++ {
		if err := r.Do(t.Context(), &call{}, &call{}, &call{}); err != nil {
			t.Fatal(err)
		}
		begun := testserver.ProcessorTime(t)
		if err := r.Do(t.Context(), &call{}); err != nil {
			t.Fatal(err)
		}
		took = testserver.ProcessorTime(t) - begun
	}
	if took >= most {
		t.Errorf("a call behind a flush of three took %v, want less than %v", took, most)
	}
}

// TestCloseWaitsForFlushes, and refuses later calls.
func TestCloseWaitsForFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, combine.Config[*call]{Beside: 1})
		r.do(t.Context(), &call{})
		first := r.begins(1)
		waiting := r.do(t.Context(), &call{})
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			r.Close()
		}()
		synctest.Wait()
		if err := r.Do(t.Context(), &call{}); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		r.land(first)
		select {
		case <-closed:
			t.Error("Close returned before a call that waited was flushed")
		default:
		}
		r.land(r.begins(1))
		<-closed
		if err := <-waiting; err != nil {
			t.Error(err)
		}
	})
}
