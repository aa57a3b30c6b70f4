package sampler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// inBubble runs a test in virtual time, so that no read fails because a machine is slow. The clock of the
// test stands in 2030, because the audit keeps no records of the year in which virtual time begins.
func inBubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)))
		test(t)
	})
}

// failing is a storage whose counts can fail.
type failing struct {
	storage.Storage

	fails bool
	looks int
}

func (f *failing) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	if f.looks++; f.fails {
		return nil, errors.New("storage: unavailable")
	}
	return f.Storage.Stats(ctx, queues...)
}

// clocked returns a sampler of a calm scene, with a clock that a test sets.
func clocked(t *testing.T) (*Sampler, *failing, *time.Duration) {
	t.Helper()
	sc, err := scene.Open(t.Context(), "calm", 0)
	if err != nil {
		t.Fatal(err)
	}
	store, ahead, began := &failing{Storage: sc.Store}, new(time.Duration), time.Now()
	return New(store, ledger.New(store), func() time.Time { return began.Add(*ahead) }), store, ahead
}

// TestWhoPausedAQueueIsNamed checks that a person who paused a queue before or after the first read is named.
// Nobody is named if a program paused it, even if a person paused the same queue earlier.
func TestWhoPausedAQueueIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sampler, store, ahead := clocked(t)
		audit, session := ledger.NewAudit(store), storage.NewSession(store, 0)
		paused := func(queue string, pause bool) {
			t.Helper()
			if err := session.Configure(t.Context(), queue, storage.Settings{Pause: &storage.Pause{On: pause}}); err != nil {
				t.Fatal(err)
			}
		}
		action := func(who, action, queue string) {
			t.Helper()
			entry := ledger.Entry{Who: who, Role: "operator", Via: "command", Action: action, Queue: queue}
			begun, err := audit.Begin(t.Context(), entry)
			if err != nil {
				t.Fatal(err)
			}
			paused(queue, action == "pause")
			if err := begun.End(t.Context(), ledger.Ending{Count: 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		action("bo", "pause", "mail")
		action("bo", "pause", "images")
		action("bo", "resume", "images")
		paused("images", true)
		names := map[string]string{"mail": "bo", "images": ""}
		for range 2 {
			s, err := sampler.Sample(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for queue, want := range names {
				if got := s.Queue(queue).PausedBy; got != want {
					t.Errorf("%s was paused by %q, want %q", queue, got, want)
				}
			}
			action("ann", "pause", "webhooks")
			names["webhooks"] = "ann"
			*ahead += 20 * time.Second
		}
	})
}

// TestWhoPausedAQueueLongAgoIsNamed checks a pause behind 450 later records of the audit.
func TestWhoPausedAQueueLongAgoIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sampler, store, _ := clocked(t)
		audit, session := ledger.NewAudit(store), storage.NewSession(store, 0)
		for i := range 451 {
			entry := ledger.Entry{Who: "bo", Action: "pause", Queue: "mail"}
			if i > 0 {
				entry = ledger.Entry{Who: "ann", Action: "requeue", IDs: []string{"mail/a"}}
			}
			begun, err := audit.Begin(t.Context(), entry)
			if err != nil {
				t.Fatal(err)
			}
			if err := begun.End(t.Context(), ledger.Ending{Count: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := session.Configure(t.Context(), "mail", storage.Settings{Pause: &storage.Pause{On: true}}); err != nil {
			t.Fatal(err)
		}
		s, err := sampler.Sample(t.Context())
		if err != nil || s.Queue("mail").PausedBy != "bo" {
			t.Fatalf("got %+v, %v, want the pause of bo", s.Queue("mail"), err)
		}
	})
}

// TestAFailedLookIsNotRepeatedAtOnce checks that callers who waited for a read that failed do not read one
// after the other.
func TestAFailedLookIsNotRepeatedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store, ahead := clocked(t)
		look := func(after time.Duration, looks int, sampled bool) {
			t.Helper()
			*ahead += after
			before := store.looks
			got, err := s.Sample(t.Context())
			if store.looks-before != looks || (got != nil && err == nil) != sampled {
				t.Errorf("%d looks, sample %t, %v; want %d, %t", store.looks-before, got != nil, err, looks, sampled)
			}
		}
		store.fails = true
		look(0, 1, false)
		look(Period/2, 0, false)
		store.fails = false
		look(Period, 1, true)
		store.fails = true
		look(2*Period, 1, true)
		look(Period/2, 0, true)
		look(Period, 1, true)
		s.Changed() // somebody has changed something since
		look(0, 1, true)
		s.turn <- struct{}{} // somebody waits for the storage
		look(2*Period, 0, true)
	})
}

// TestAPageWaitsForNoLook checks that a page gets the last sample while another caller reads, or watches,
// unless that sample is two periods old, or an action has changed something since.
func TestAPageWaitsForNoLook(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store, ahead := clocked(t)
		now := func(ctx context.Context) (*Sample, error) {
			s.turn <- struct{}{} // another caller reads
			defer func() { <-s.turn }()
			return s.Sample(ctx)
		}
		left, leave := context.WithCancel(t.Context())
		leave() // a call that waited would return an error
		first, err := s.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		*ahead += Period + Period/2
		if got, err := now(left); got != first || err != nil || store.looks != 1 {
			t.Errorf("a sample of one and a half periods: got %p, %v after %d looks, want %p at once", got, err, store.looks, first)
		}
		s.watchers.Add(1)
		if got, err := s.Sample(t.Context()); got != first || err != nil || store.looks != 1 {
			t.Errorf("while somebody watches: got %p, %v after %d looks, want %p at once", got, err, store.looks, first)
		}
		s.watchers.Add(-1)
		s.Changed()
		if _, err := now(left); err == nil {
			t.Error("after an action, a page shows a sample from before it")
		}
		if _, err := s.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		*ahead += 2 * Period
		if _, err := now(left); err == nil {
			t.Error("a page shows a sample that is two periods old")
		}
	})
}

// TestAnActionWaitsForNoLook checks that an action does not wait for a read in progress, and that the next
// page does not show the results of that read.
func TestAnActionWaitsForNoLook(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store, _ := clocked(t)
		if _, err := s.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.turn <- struct{}{} // somebody waits for the storage
		s.Changed()
		<-s.turn
		before := store.looks
		for range 2 {
			if _, err := s.Sample(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if store.looks-before != 1 {
			t.Errorf("%d looks after an action, want one", store.looks-before)
		}
	})
}

// TestTheSampleBeforeIsOfTheStoragesTime checks a process whose clock is an hour behind.
func TestTheSampleBeforeIsOfTheStoragesTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store, ahead := clocked(t)
		var last *Sample
		for _, *ahead = range []time.Duration{-time.Hour, -time.Hour + 11*time.Second} {
			var err error
			if last, err = s.Sample(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		now, err := store.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := last.Before(last.Queues[0].Queue)
		if len(before) != 1 || now.Now.Sub(before[0].At).Abs() > time.Minute {
			t.Errorf("the sample before is %+v, want one of about %v", before, now.Now)
		}
	})
}

// slowly is a storage whose counts wait if a test wants that.
type slowly struct {
	storage.Storage

	wait chan struct{} // if it is nil, they do not wait
}

func (s *slowly) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	if s.wait != nil {
		<-s.wait
	}
	return s.Storage.Stats(ctx, queues...)
}

// TestAPageBehindAnActionAwaitsTheLookBehindIt checks that the page after an action waits for the read after
// it, even if another caller began that read.
func TestAPageBehindAnActionAwaitsTheLookBehindIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		store := &slowly{Storage: sc.Store}
		s := New(store, ledger.New(store), time.Now)
		before, err := s.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		store.wait = make(chan struct{})
		s.Changed()
		go func() { _, _ = s.Sample(t.Context()) }() // for another viewer
		synctest.Wait()
		var got *Sample
		go func() { got, _ = s.Sample(t.Context()) }()
		synctest.Wait()
		close(store.wait)
		synctest.Wait()
		if got == before {
			t.Error("the page behind an action shows the look before it")
		}
	})
}

// TestAPauseIsNoOlderThanWhatResumedTheQueue checks a queue that a program paused, without the audit, after a
// person resumed it.
func TestAPauseIsNoOlderThanWhatResumedTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "night", 0)
		if err != nil {
			t.Fatal(err)
		}
		since := func() time.Time {
			t.Helper()
			now, err := New(sc.Store, ledger.New(sc.Store), time.Now).Sample(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return now.Queue("payments").PausedSince
		}
		if since().IsZero() {
			t.Error("the audit does not tell since when the queue is paused")
		}
		action, err := ledger.NewAudit(sc.Store).Begin(t.Context(), ledger.Entry{Who: "bo", Action: "resume", Queue: "payments"})
		if err != nil {
			t.Fatal(err)
		}
		if err := action.End(t.Context(), ledger.Ending{Count: 1}); err != nil {
			t.Fatal(err)
		}
		if at := since(); !at.IsZero() {
			t.Errorf("the queue is said to be paused since %v, but was resumed then", at)
		}
	})
}

// forgetful is a storage whose history cannot be read.
type forgetful struct {
	storage.Storage

	fails, hangs bool
}

func (f *forgetful) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if f.hangs && ref.Queue == ledger.Queue {
		<-ctx.Done()
		return storage.Task{}, ctx.Err()
	}
	if f.fails && ref.Queue == ledger.Queue {
		return storage.Task{}, errors.New("storage: unavailable")
	}
	return f.Storage.Task(ctx, ref)
}

// TestChartsOutliveAReadingOfTheHistoryThatFails checks that charts keep the part that was read of the
// history until it can be read again.
func TestChartsOutliveAReadingOfTheHistoryThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		store, ahead, began := &forgetful{Storage: sc.Store}, time.Duration(0), time.Now()
		s := New(store, ledger.New(store), func() time.Time { return began.Add(ahead) })
		for _, store.fails = range []bool{false, true} {
			now, err := s.Sample(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if now.KnownMinutes() == 0 {
				t.Errorf("where the history cannot be read, %t, nothing is known of the hour", store.fails)
			}
			ahead += historyFor + time.Second
		}
	})
}

// TestALookOutlivesAHistoryThatHangs checks that the history takes only a part of the time of a read, and
// leaves the rest to the other reads.
func TestALookOutlivesAHistoryThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		store := &forgetful{Storage: sc.Store, hangs: true}
		now, err := New(store, ledger.New(store), time.Now).Sample(t.Context())
		if err != nil || len(now.Queues) == 0 || len(now.Schedules) == 0 {
			t.Errorf("without a history the look found %+v, %v", now, err)
		}
	})
}
