package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
)

// openMini opens a storage on a Redis in the process.
func openMini(t *testing.T) (*Storage, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	s, err := Open(t.Context(), Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, server
}

func insertOf(queue, id string) storage.Tx {
	return storage.Tx{Inserts: []storage.Insert{{
		Ref: storage.Ref{Queue: queue, ID: id}, Kind: "job", Encoding: "json", Payload: []byte("{}"),
		MaxRetries: 3, CrashLimit: 3,
	}}}
}

func callOf(seq uint64) storage.Call {
	return storage.Call{Lane: storage.Lane{ID: [16]byte{1}, Opened: time.Now()}, Seq: seq}
}

// TestACallAndItsRepeatInOneFlushHappenOnce: whoever gave up while the call was waiting
// to be sent and then repeats it meets the first try in the same script call.
func TestACallAndItsRepeatInOneFlushHappenOnce(t *testing.T) {
	s, _ := openMini(t)
	if _, err := s.Apply(t.Context(), storage.Call{}, insertOf("mail", "a")); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(t.Context(), storage.ClaimRequest{
		Token: storage.NewToken(), Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}},
		Max: 1, Start: 1, Lease: time.Minute,
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatal(claimed, err)
	}
	txs := []storage.Tx{{Settles: []storage.Settle{{Fence: claimed.Fences[0], Outcome: storage.Complete}}}}
	first, _ := s.split(callOf(1), txs)
	repeat, _ := s.split(callOf(1), txs)
	s.flush(t.Context(), append(first, repeat...))
	for what, parts := range map[string][]*part{"the call": first, "its repeat": repeat} {
		applied := make([]storage.Applied, 1)
		if err := gather(parts, txs, applied); err != nil || applied[0].Err != nil {
			t.Errorf("%s gave %v, %v, want a completion", what, applied[0].Err, err)
		}
	}
}

// TestALaneSweptByAFastClockIsNotOpenedAgain: the server's clock jumps ahead, a call on
// one queue sweeps lanes, and the clock is set right. What was swept must not be taken
// for a lane that was never used.
func TestALaneSweptByAFastClockIsNotOpenedAgain(t *testing.T) {
	s, server := openMini(t)
	now := time.Now()
	server.SetTime(now)
	call := storage.Call{Lane: storage.Lane{ID: [16]byte{1}, Opened: now}, Seq: 1}
	if _, err := s.Apply(t.Context(), call, insertOf("mail", "a")); err != nil {
		t.Fatal(err)
	}
	server.SetTime(now.Add(time.Hour))
	other := storage.Call{Lane: storage.Lane{ID: [16]byte{2}, Opened: now.Add(time.Hour)}, Seq: 1}
	if _, err := s.Apply(t.Context(), other, insertOf("bulk", "b")); err != nil {
		t.Fatal(err)
	}
	server.SetTime(now.Add(time.Second))
	del := storage.Tx{Deletes: []storage.Delete{{Ref: storage.Ref{Queue: "mail", ID: "a"}}}}
	task, err := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	del.Deletes[0].Version = task.Version
	if applied, err := s.Apply(t.Context(), storage.Call{}, del); err != nil || applied[0].Err != nil {
		t.Fatal(applied, err)
	}
	_, err = s.Apply(t.Context(), call, insertOf("mail", "a"))
	if _, gone := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"}); gone == nil {
		t.Errorf("the call happened twice: the repeat gave %v", err)
	}
}

// TestACallThatFailsSpoilsNoOther that shares its flush.
func TestACallThatFailsSpoilsNoOther(t *testing.T) {
	s, server := openMini(t)
	if err := server.Set("midge:{bulk}:meta", "of a wrong type"); err != nil {
		t.Fatal(err)
	}
	good, bad := []storage.Tx{insertOf("mail", "a")}, []storage.Tx{insertOf("bulk", "b")}
	first, _ := s.split(callOf(1), bad)
	second, _ := s.split(storage.Call{}, good)
	s.flush(t.Context(), append(first, second...))
	if err := gather(second, good, make([]storage.Applied, 1)); err != nil {
		t.Errorf("the other call gave %v", err)
	}
	if err := gather(first, bad, make([]storage.Applied, 1)); err == nil {
		t.Error("the call on a key of a wrong type succeeded")
	}
}

// TestACallThatFailsKeepsTheOrderOfOthers that shares their flush.
func TestACallThatFailsKeepsTheOrderOfOthers(t *testing.T) {
	s, server := openMini(t)
	if err := server.Set("midge:{bulk}:meta", "of a wrong type"); err != nil {
		t.Fatal(err)
	}
	ref := storage.Ref{Queue: "mail", ID: "a"}
	txs := []storage.Tx{insertOf("mail", "a"), {Deletes: []storage.Delete{{Ref: ref, Version: 1}}}}
	bad, _ := s.split(storage.Call{}, []storage.Tx{insertOf("bulk", "b")})
	parts, _ := s.split(callOf(1), txs)
	if len(parts) != 2 {
		t.Fatal(parts)
	}
	bad[0].flight, parts[0].flight = &flight{left: 1, single: true}, &flight{left: 2}
	parts[1].flight = parts[0].flight
	s.flush(t.Context(), append(bad, parts...))
	applied := make([]storage.Applied, 2)
	if err := gather(parts, txs, applied); err != nil {
		t.Fatal(err)
	}
	var refused *storage.DependencyError
	if !errors.As(applied[1].Err, &refused) || len(refused.Stale) != 1 {
		t.Errorf("the second Tx gave %v, want that the first one's task has another version", applied[1].Err)
	}
}

// TestNobodySendsWhatNobodyWaitsFor: calls given up while an earlier flush is under way
// must not pile up behind it.
func TestNobodySendsWhatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var flushed atomic.Int64
		c := newCombiner(t.Context(), nil, func(_ context.Context, parts []*part) {
			<-gate
			flushed.Add(int64(len(parts)))
		})
		s := &Storage{combiner: c}
		var calls sync.WaitGroup
		ctx, end := context.WithCancel(t.Context())
		const under = 2 + 2*flushGroup // way: two alone, two groups
		for range under + 5 {
			calls.Go(func() { _ = s.send(ctx, []*part{{}}) })
			synctest.Wait()
		}
		end()
		calls.Wait()
		c.mu.Lock()
		waiting := len(c.slots[0].parts)
		c.mu.Unlock()
		close(gate)
		c.close()
		if waiting > 0 || flushed.Load() != under {
			t.Errorf("%d parts wait and %d were sent, want none and the %d under way", waiting, flushed.Load(), under)
		}
	})
}

// TestCallersComeInGroups: beside a flush under way the next begins when as many wait as that
// has taken along, and a third when it is worth a script. Parts of one call never go beside
// each other.
func TestCallersComeInGroups(t *testing.T) {
	type flush struct {
		parts int
		land  chan struct{}
	}
	synctest.Test(t, func(t *testing.T) {
		flushes := make(chan flush, 10)
		c := newCombiner(t.Context(), interruptsOfASecond(), func(_ context.Context, parts []*part) {
			f := flush{len(parts), make(chan struct{})}
			flushes <- f
			<-f.land
		})
		s := &Storage{combiner: c}
		var calls sync.WaitGroup
		call := func(parts ...*part) {
			calls.Go(func() { _ = s.send(t.Context(), parts) })
			synctest.Wait()
		}
		begins := func(parts int) flush {
			t.Helper()
			if len(flushes) != 1 {
				t.Fatalf("%d flushes begin, want one of %d parts", len(flushes), parts)
			}
			f := <-flushes
			if f.parts != parts {
				t.Fatalf("a flush takes %d parts along, want %d", f.parts, parts)
			}
			return f
		}
		none := func(why string) {
			t.Helper()
			if len(flushes) > 0 {
				t.Fatal("a flush begins though " + why)
			}
		}
		land := func(f flush) {
			close(f.land)
			synctest.Wait()
		}

		call(&part{})
		first := begins(1)
		call(&part{})
		second := begins(1)
		for range flushGroup - 1 {
			call(&part{})
			none("few wait, and two are under way")
		}
		call(&part{})
		third := begins(flushGroup)
		land(first)
		land(second)
		for range flushGroup - 1 {
			call(&part{})
			none("fewer wait than are under way")
		}
		call(&part{})
		fourth := begins(flushGroup)
		land(third)
		land(fourth)

		call(&part{}, &part{})
		whole := begins(2)
		call(&part{}, &part{})
		none("the parts of a call wait")
		land(whole)
		land(begins(2))
		calls.Wait()
		c.close()
	})
}

// TestNobodyIsAnsweredBeforeHisPartWasSent where more wait than the next flush takes: one that
// was full is under way, and as many callers come.
func TestNobodyIsAnsweredBeforeHisPartWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 40
		gate := make(chan struct{})
		var most int // that a flush of lone calls took
		c := newCombiner(t.Context(), interruptsOfASecond(), func(_ context.Context, parts []*part) {
			if parts[0].flight.single {
				most = max(most, len(parts))
			}
			<-gate
			for _, p := range parts {
				p.outcome = "sent"
			}
		})
		s := &Storage{combiner: c}
		var calls sync.WaitGroup
		var early atomic.Int64
		call := func(parts ...*part) {
			calls.Go(func() {
				if err := s.send(t.Context(), parts); err != nil || parts[0].outcome == "" {
					early.Add(1)
				}
			})
			synctest.Wait()
		}
		full := make([]*part, many)
		for i := range full {
			full[i] = new(part)
		}
		call(full...)
		for range many {
			call(&part{id: identity{lane: "lane", seq: 2}}) // others may carry it
		}
		close(gate)
		calls.Wait()
		c.close()
		if early.Load() > 0 {
			t.Errorf("%d callers were answered before their part was sent", early.Load())
		}
		if want := 2 * many / flushMost; most != want {
			t.Errorf("a flush took %d parts along, want a share of %d", most, want)
		}
	})
}

// TestWhatAFlushLeavesGoesBesideIt where more wait than it takes along: behind the parts of one
// call, which go alone, nobody else may come who would have that seen to.
func TestWhatAFlushLeavesGoesBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var under, most int
		c := newCombiner(t.Context(), interruptsOfASecond(), func(context.Context, []*part) {
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(time.Second) // virtual
			mu.Lock()
			under--
			mu.Unlock()
		})
		s := &Storage{combiner: c}
		var calls sync.WaitGroup
		call := func(parts ...*part) {
			calls.Go(func() { _ = s.send(t.Context(), parts) })
			synctest.Wait()
		}
		begun := time.Now()
		call(new(part), new(part))
		call(new(part), new(part))
		for range 198 {
			call(&part{id: identity{lane: "lane", seq: 2}})
		}
		calls.Wait()
		c.close()
		if took := time.Since(begun); most < 3 || took > 4*time.Second {
			t.Errorf("%d flushes went beside each other, and all took %v, want three and four seconds", most, took)
		}
	})
}

// giveAll gives all parts the same.
func giveAll(parts []*part, err error) {
	for _, p := range parts {
		p.err = err
	}
}

// TestACallerWhoLeavesSpoilsNoOther whose calls it was carrying: they are sent again.
func TestACallerWhoLeavesSpoilsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flushes := make(chan int, 10)
		first := make(chan struct{})
		c := newCombiner(t.Context(), interruptsOfASecond(), func(ctx context.Context, parts []*part) {
			flushes <- len(parts)
			switch len(flushes) {
			case 1, 2: // keep the others waiting, so that they share the next
				<-first
				giveAll(parts, nil)
			case 3: // hangs until its caller leaves
				<-ctx.Done()
				giveAll(parts, storage.ErrUnknown)
			default:
				giveAll(parts, nil)
			}
		})
		s := &Storage{combiner: c}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var calls sync.WaitGroup
		call := func(ctx context.Context, err *error) {
			p := &part{id: identity{lane: "lane", seq: 2}}
			calls.Go(func() {
				if *err = s.send(ctx, []*part{p}); *err == nil {
					*err = p.err
				}
			})
			synctest.Wait()
		}
		var one, two, carrier, other error
		call(t.Context(), &one)
		call(t.Context(), &two)
		call(ctx, &carrier)
		call(t.Context(), &other)
		close(first)
		synctest.Wait()
		leave()
		calls.Wait()
		c.close()
		if one != nil || two != nil || other != nil || !errors.Is(carrier, storage.ErrUnknown) || !errors.Is(carrier, context.Canceled) {
			t.Errorf("the first gave %v and %v, the one who left %v, the other %v", one, two, carrier, other)
		}
		if len(flushes) != 4 {
			t.Errorf("%d flushes, want four", len(flushes))
		}
	})
}

// TestACallerWhoLeavesHandsTheBatonOn that was passed to it in the same moment.
func TestACallerWhoLeavesHandsTheBatonOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCombiner(t.Context(), interruptsOfASecond(), func(_ context.Context, parts []*part) {
			giveAll(parts, nil)
		})
		enlist := func() (*flight, []*part) {
			parts := []*part{{id: identity{lane: "lane", seq: 2}}}
			f, _, err := c.enlist(parts, true)
			if err != nil {
				t.Fatal(err)
			}
			return f, parts
		}
		first, carried := enlist()
		second, carriedToo := enlist()
		leaver, left := enlist()
		last, _ := enlist()
		c.carry(t.Context(), first, carried) // as its caller does, and leaver has the baton
		c.withdraw(leaver, left)
		synctest.Wait()
		select {
		case <-last.baton:
		default:
			t.Fatal("nobody flushes what waits")
		}
		c.carry(t.Context(), last, c.take(0))
		<-last.landed
		c.carry(t.Context(), second, carriedToo)
		c.close()
	})
}

// TestACallerWhoLeavesSpoilsNoCallWithoutIdentity either.
func TestACallerWhoLeavesSpoilsNoCallWithoutIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flushes atomic.Int32
		first := make(chan struct{})
		c := newCombiner(t.Context(), interruptsOfASecond(), func(ctx context.Context, parts []*part) {
			switch flushes.Add(1) {
			case 1, 2:
				<-first
				giveAll(parts, nil)
			case 3: // the answer would come after a second
				select {
				case <-ctx.Done():
					giveAll(parts, storage.ErrUnknown)
				case <-time.After(time.Second):
					giveAll(parts, nil)
				}
			default:
				giveAll(parts, nil)
			}
		})
		s := &Storage{combiner: c}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var calls sync.WaitGroup
		call := func(ctx context.Context, seq uint64, err *error) {
			p := &part{id: identity{lane: "lane", seq: seq}}
			calls.Go(func() {
				if *err = s.send(ctx, []*part{p}); *err == nil {
					*err = p.err
				}
			})
			synctest.Wait()
		}
		var one, two, carrier, other error
		call(t.Context(), 2, &one)
		call(t.Context(), 2, &two)
		call(ctx, 2, &carrier)
		call(t.Context(), 0, &other)
		close(first)
		synctest.Wait()
		leave()
		calls.Wait()
		c.close()
		if other != nil {
			t.Errorf("the other gave %v, want its outcome", other)
		}
	})
}

func interruptsOfASecond() *interrupts {
	in, _ := newInterrupts(time.Second)
	return in
}
