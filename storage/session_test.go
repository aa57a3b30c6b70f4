package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestSessionRepeatsUntilKnown: with lost replies each method is still carried out once, and returns
// its first outcome.
func TestSessionRepeatsUntilKnown(t *testing.T) {
	for what, fates := range map[string][]fault{
		"requests lost": {neverSent, neverSent, neverSent},
		"replies lost":  {replyLost, replyLost, replyLost},
		"both":          {neverSent, replyLost, neverSent, replyLost},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openFlaky(t)
				s := storage.NewSession(f, 0)
				f.fate(fates...)
				a := must(s.ApplyOne(t.Context(), inserting("a", "b")))(t)
				if a.Inserted[0].Existing {
					t.Error("apply: got an existing task, want the first outcome")
				}
				f.fate(fates...)
				c := must(s.Claim(t.Context(), ask(1)))(t)
				f.fate(fates...)
				x := must(s.Extend(t.Context(), storage.ExtendRequest{Leases: []storage.Extension{{Fence: c.Fences[0]}}}))(t)
				f.fate(fates...)
				settle := storage.Tx{Settles: []storage.Settle{{Fence: c.Fences[0], Outcome: storage.Complete}}}
				must(s.ApplyOne(t.Context(), settle))(t)
				f.fate(fates...)
				succeed(t, s.Configure(t.Context(), "q", storage.Settings{Pause: &storage.Pause{On: true}}))
				got := stats(t, f)
				if len(x.Lost) > 0 || got.Waiting != 1 || got.Pending != 0 || got.Totals.Completed != 1 || !got.Paused {
					t.Errorf("got %+v, lost %v, want one task completed, one waiting, and a pause", got, x.Lost)
				}
				if want := 5 * (len(fates) + 1); len(f.sent()) != want {
					t.Errorf("calls: got %d, want %d", len(f.sent()), want)
				}
			})
		})
	}
}

func TestSessionRepeatsTheSameCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		s := storage.NewSession(f, 0)
		f.fate(replyLost, neverSent)
		must(s.Apply(t.Context(), inserting("a")))(t)
		calls := f.sent()
		if len(calls) != 3 || calls[0] != calls[1] || calls[1] != calls[2] {
			t.Errorf("calls: got %v, want one, three times", calls)
		}
		must(s.Apply(t.Context(), inserting("b")))(t)
		next := f.sent()[3]
		if next.Lane != calls[0].Lane || next.Seq <= calls[0].Seq {
			t.Errorf("the next call: got %v after %v, want the same lane and a higher number", next, calls[0])
		}
	})
}

func TestSessionPatience(t *testing.T) {
	for _, c := range []struct{ given, want time.Duration }{
		{0, storage.DefaultPatience}, {time.Second, time.Second}, {-1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := openFlaky(t)
			f.always(neverSent)
			begun := time.Now()
			_, err := storage.NewSession(f, c.given).Apply(t.Context(), inserting("a"))
			var unknown *storage.UnknownError
			if !errors.As(err, &unknown) || !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, errCut) {
				t.Fatalf("got error %v, want an *UnknownError around the storage's", err)
			}
			if took := time.Since(begun); took > c.want || took < c.want/3 {
				t.Errorf("patience %v: gave up after %v, want up to %v", c.given, took, c.want)
			}
			if n := len(f.sent()); c.given < 0 && n != 1 || c.given >= 0 && n > 20 {
				t.Errorf("patience %v: sent %d times, want 1 without patience and a few with", c.given, n)
			}
		})
	}
}

func TestSessionStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		s := storage.NewSession(f, time.Hour)
		must(s.Now(t.Context()))(t)
		f.always(neverSent)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := s.Apply(ctx, inserting("a")); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("got error %v, want ErrUnknown", err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("gave up after %v, want it to end with its context", took)
		}
	})
}

// TestSessionDoesNotRepeatRefusals: the caller gets a definite error at once.
func TestSessionDoesNotRepeatRefusals(t *testing.T) {
	f := openFlaky(t)
	s := storage.NewSession(f, 0)
	var bad *storage.InvalidError
	if _, err := s.Apply(t.Context(), storage.Tx{}); !errors.As(err, &bad) {
		t.Errorf("an empty Tx: got error %v, want an *InvalidError", err)
	}
	cancel := storage.Tx{Changes: []storage.Change{{Ref: job("a").Ref, Cancel: true}}}
	if _, err := s.ApplyOne(t.Context(), cancel); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a missing task: got error %v, want ErrNotFound", err)
	}
	if got := len(f.sent()); got != 2 {
		t.Errorf("calls: got %d, want 2", got)
	}
}

func TestSessionRepeat(t *testing.T) {
	for what, fate := range map[string]fault{"that happened": replyLost, "that did not happen": neverSent} {
		t.Run(what, func(t *testing.T) { testRepeat(t, fate) })
	}
}

func testRepeat(t *testing.T, fate fault) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		s := storage.NewSession(f, 0)
		f.always(fate)
		_, err := s.Apply(t.Context(), inserting("a"))
		var unknown *storage.UnknownError
		if !errors.As(err, &unknown) {
			t.Fatalf("got error %v, want an *UnknownError", err)
		}
		if _, err := s.Repeat(t.Context(), unknown); !errors.As(err, &unknown) {
			t.Errorf("repeated while the storage is away: got error %v, want an *UnknownError", err)
		}
		f.always(arrives)
		must(s.Apply(t.Context(), inserting("other")))(t) // its lane is left alone
		a := must(s.Repeat(t.Context(), unknown))(t)
		if a[0].Err != nil || a[0].Inserted[0].Existing {
			t.Errorf("repeated: got %+v, want the first outcome", a[0])
		}
		if got := stats(t, f).Totals.Enqueued; got != 2 {
			t.Errorf("enqueued: got %d, want 2", got)
		}
		time.Sleep(storage.LaneLife)
		must(s.Claim(t.Context(), ask(0)))(t) // which may sweep the records of lanes
		if _, err := s.Repeat(t.Context(), unknown); err != nil && !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("repeated after the lane's life: got error %v, want ErrUnknown or the outcome", err)
		}
		if got := stats(t, f).Totals.Enqueued; got != 2 {
			t.Errorf("enqueued: got %d, want 2 still", got)
		}
	})
}

// TestSessionThatWasNeverToldTheTime: if the storage does not report its time the call is never sent,
// so that the error is definite.
func TestSessionThatWasNeverToldTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		silent := timeless{f}
		begun := time.Now()
		_, err := storage.NewSession(silent, time.Second).Apply(t.Context(), inserting("a"))
		var unknown *storage.UnknownError
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) || errors.As(err, &unknown) {
			t.Errorf("got %v, want an ErrUnavailable alone", err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("gave up after %v, want its patience of a second", took)
		}
		if n := len(f.sent()); n != 0 {
			t.Errorf("sent %d calls, want none", n)
		}
	})
}

// timeless is a storage that does not report its time.
type timeless struct{ *flaky }

func (s timeless) Describe(context.Context) (storage.Description, error) {
	return storage.Description{}, fmt.Errorf("%w: %w", storage.ErrUnknown, errCut)
}

// TestSessionRepeatsWhereTheStorageIsUnavailable: the session repeats for as long as its patience, and
// its last error is definite, unless an earlier try may have happened.
func TestSessionRepeatsWhereTheStorageIsUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		fates []fault
		want  error
	}{
		"from the first try on": {nil, storage.ErrUnavailable},
		"after a lost reply":    {[]fault{replyLost}, storage.ErrUnknown},
		"for a while":           {[]fault{unreached, unreached, arrives}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openFlaky(t)
				fates := c.fates
				f.next = func() fault {
					if len(fates) == 0 {
						return unreached
					}
					fate := fates[0]
					fates = fates[1:]
					return fate
				}
				_, err := storage.NewSession(f, 0).Apply(t.Context(), inserting("a"))
				if !errors.Is(err, c.want) {
					t.Fatalf("got %v, want %v", err, c.want)
				}
				if errors.Is(err, storage.ErrUnavailable) && errors.Is(err, storage.ErrUnknown) {
					t.Errorf("got %v, which is an ErrUnavailable and an ErrUnknown, want %v alone", err, c.want)
				}
				if n := len(f.sent()); n < 3 {
					t.Errorf("sent %d times, want it repeated", n)
				}
			})
		})
	}
}

// TestSessionPatienceCountsFromEntry: a call that asks for the time first, or hangs, takes
// no longer than its patience in all.
func TestSessionPatienceCountsFromEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		begun := time.Now()
		_, err := storage.NewSession(&frozen{flaky: f, free: 1}, 0).Apply(t.Context(), inserting("a"))
		if !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("got %v, want an ErrUnknown", err)
		}
		if took := time.Since(begun); took > storage.DefaultPatience {
			t.Errorf("took %v, want %v at most", took, storage.DefaultPatience)
		}
	})
}

// frozen is a storage that holds each call until its context ends.
type frozen struct {
	*flaky
	free int // how often it reports its time, each time after half of the patience
}

func (s *frozen) Describe(ctx context.Context) (storage.Description, error) {
	if s.free--; s.free < 0 {
		<-ctx.Done()
		return storage.Description{}, context.Cause(ctx)
	}
	time.Sleep(storage.DefaultPatience / 2)
	return s.flaky.Describe(ctx)
}

func (s *frozen) Apply(ctx context.Context, _ storage.Call, _ ...storage.Tx) ([]storage.Applied, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", storage.ErrUnknown, context.Cause(ctx))
}

func TestSessionLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		s := storage.NewSession(f, -1)
		send := func(id string) storage.Call {
			_, _ = s.Apply(t.Context(), inserting(id))
			calls := f.sent()
			return calls[len(calls)-1]
		}
		first := send("a")
		if next := send("b"); next.Lane != first.Lane || next.Seq != first.Seq+1 {
			t.Errorf("the second call: got %v, want the lane of %v", next, first)
		}
		f.always(replyLost)
		unknown := send("c")
		f.always(arrives)
		after := send("d")
		if after.Lane == unknown.Lane {
			t.Error("after an unknown outcome: got the same lane, want it left alone")
		}
		time.Sleep(storage.LaneLife/2 - time.Second)
		if got := send("e"); got.Lane != after.Lane {
			t.Error("before half of its life: got another lane, want the same")
		}
		time.Sleep(2 * time.Second)
		late := send("f")
		if late.Lane == after.Lane || time.Since(late.Lane.Opened) > time.Millisecond {
			t.Errorf("past half of its life: got lane %v, want one opened now", late.Lane)
		}
	})
}

// jumping is a storage whose clock jumped ahead of the time that a session computes.
type jumping struct {
	*flaky
	by time.Duration
}

func (j *jumping) Describe(ctx context.Context) (storage.Description, error) {
	d, err := j.flaky.Describe(ctx)
	d.Now = d.Now.Add(-j.by)
	return d, err
}

func TestSessionOpensAnotherLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		j := &jumping{flaky: f, by: time.Hour}
		s := storage.NewSession(j, 0)
		must(s.Now(t.Context()))(t)
		j.by = 0
		must(s.Apply(t.Context(), inserting("a")))(t)
		calls := f.sent()
		if len(calls) != 2 || calls[0].Lane == calls[1].Lane {
			t.Errorf("calls: got %v, want a second on another lane", calls)
		}
		j.by = time.Hour
		s = storage.NewSession(j, 0)
		if _, err := s.Apply(t.Context(), inserting("b")); !errors.Is(err, storage.ErrLaneExpired) {
			t.Errorf("a clock that stays wrong: got error %v, want ErrLaneExpired", err)
		}
	})
}

// TestSessionWearsNoLaneOut: a session opens a new lane after some number of calls, because the
// storage's record of a lane may grow with each call.
func TestSessionWearsNoLaneOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		s := storage.NewSession(f, 0)
		const calls, most = 3000, 1000
		used := make(map[storage.Lane]int)
		for range calls {
			must(s.Extend(t.Context(), storage.ExtendRequest{}))(t)
		}
		for _, call := range f.sent() {
			used[call.Lane]++
		}
		for lane, n := range used {
			if n > most || len(used) > calls/most+1 {
				t.Errorf("lane %v carried %d calls, one of %d lanes, want %d and few", lane, n, len(used), most)
			}
		}
	})
}

// TestSessionNeverSendsTwice: if an earlier try may have happened, an expired lane is an unknown
// outcome, and the session does not send the call on another lane.
func TestSessionNeverSendsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		j := &jumping{flaky: f, by: storage.LaneLife - time.Millisecond}
		s := storage.NewSession(j, 0)
		f.fate(replyLost, neverSent, neverSent, neverSent, neverSent, neverSent)
		_, err := s.Apply(t.Context(), inserting("a"))
		var unknown *storage.UnknownError
		if err != nil && !errors.As(err, &unknown) {
			t.Fatalf("got error %v, want an *UnknownError or the outcome", err)
		}
		lanes := map[storage.Lane]bool{}
		for _, c := range f.sent() {
			lanes[c.Lane] = true
		}
		if got := stats(t, f).Totals.Enqueued; got != 1 || len(lanes) != 1 {
			t.Errorf("got %d tasks by %d lanes, want 1 by 1", got, len(lanes))
		}
	})
}

func TestSessionNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		s := storage.NewSession(f, 0)
		first := must(s.Now(t.Context()))(t)
		time.Sleep(time.Minute)
		succeed(t, f.Close()) // the session does not ask it again
		if got := must(s.Now(t.Context()))(t).Sub(first); got != time.Minute {
			t.Errorf("a minute later: got %v, want a minute", got)
		}
		_, err := storage.NewSession(f, 0).Apply(t.Context(), inserting("a"))
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("a session that never learned the time: got error %v, want the storage's", err)
		}
		if s.Storage() != storage.Storage(f) {
			t.Error("Storage: got another, want the one it was made on")
		}
	})
}

// TestSessionConcurrentFaults: whatever requests and replies are lost, with many callers each task is
// enqueued, claimed and completed once.
func TestSessionConcurrentFaults(t *testing.T) {
	const callers, each = 20, 15
	synctest.Test(t, func(t *testing.T) {
		f := openFlaky(t)
		s := storage.NewSession(f, time.Minute)
		random := rand.New(rand.NewPCG(1, 2))
		f.next = func() fault { return []fault{arrives, arrives, neverSent, replyLost}[random.IntN(4)] }
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				for i := range each {
					live(t, s, fmt.Sprintf("t%d-%d", c, i))
				}
			})
		}
		all.Wait()
		f.next = nil
		got := stats(t, f)
		want := storage.Totals{Enqueued: callers * each, Completed: callers * each}
		if got.Totals != want || got.Live() != 0 {
			t.Errorf("got %+v, want %+v and none live", got, want)
		}
	})
}

// live enqueues a task, claims one and completes it.
func live(t *testing.T, s *storage.Session, id string) {
	a, err := s.ApplyOne(t.Context(), inserting(id))
	if err != nil || a.Inserted[0].Existing {
		t.Errorf("insert %s: got %+v, error %v", id, a, err)
		return
	}
	c, err := s.Claim(t.Context(), ask(1))
	if err != nil || len(c.Fences) != 1 {
		t.Errorf("claim: got %+v, error %v, want one task", c, err)
		return
	}
	settle := storage.Tx{Settles: []storage.Settle{{Fence: c.Fences[0], Outcome: storage.Complete}}}
	if _, err := s.ApplyOne(t.Context(), settle); err != nil {
		t.Errorf("settle: %v", err)
	}
}
