package survey

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// TestEachTotalChangesTheMark checks that a page is fetched again if only one total of a queue has changed: a
// task may crash, come back and wait again between two reads.
func TestEachTotalChangesTheMark(t *testing.T) {
	before := (&Queue{}).mark()
	totals := reflect.TypeFor[storage.Totals]()
	for i := range totals.NumField() {
		var q Queue
		reflect.ValueOf(&q.Totals).Elem().Field(i).SetInt(1)
		if q.mark() == before {
			t.Errorf("the total %s does not change the mark", totals.Field(i).Name)
		}
	}
}

// flaky is a storage whose sizes, or schedules, cannot be read while err is set.
type flaky struct {
	storage.Storage

	err       error
	schedules bool
}

func (f *flaky) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	if f.err != nil && !f.schedules {
		return nil, f.err
	}
	return f.Storage.Stats(ctx, queues...)
}

func (f *flaky) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	if f.err != nil && f.schedules {
		return storage.TasksPage{}, f.err
	}
	return f.Storage.Tasks(ctx, q)
}

// TestAReadingThatFailsIsNoExcuseForOldData lets a reading fail in its sizes or its schedules, after it has read
// the queues, the runners and the description anew. The next reading shows their state of now.
func TestAReadingThatFailsIsNoExcuseForOldData(t *testing.T) {
	for _, schedules := range []bool{false, true} {
		inner, err := memory.Open(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		session := storage.NewSession(inner, 0)
		began, ahead := time.Now(), time.Duration(0)
		store := &flaky{Storage: inner, schedules: schedules}
		r := NewReader(store, Config{Now: func() time.Time { return began.Add(ahead) }})
		read := func(full string) (*Survey, error) {
			r.store = described{store, storage.Description{Full: full}}
			return r.Read(t.Context())
		}
		if _, err := read(""); err != nil {
			t.Fatal(err)
		}
		declared := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h"}
		_, err = session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref:  storage.Ref{Queue: "mail", ID: storage.CursorPrefix + "nightly"},
			Kind: "send", Encoding: "json", Payload: []byte("{}"), CrashLimit: 1,
			Cursor: &storage.Cursor{Next: time.Now().Add(time.Hour), Declaration: declared.Encode()},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{ID: "new", For: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		store.err, ahead = storage.ErrUnavailable, infoFor
		if _, err := read("no room"); !errors.Is(err, storage.ErrUnavailable) {
			t.Fatalf("got %v, want an ErrUnavailable", err)
		}
		store.err = nil
		now, err := read("no room")
		if err != nil {
			t.Fatal(err)
		}
		if len(now.Queues) != 1 || len(now.Runners) != 1 || now.Info.Full == "" {
			t.Errorf("got the queues %v, the runners %v and %+v, want one of each, and a full storage", now.Queues, now.Runners, now.Info)
		}
		_ = inner.Close()
	}
}

// TestNoCallBeginsAfterOneThatFailed checks calls of which the third fails while the others take longer.
func TestNoCallBeginsAfterOneThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		err := Concurrently(1000, func(i int) error {
			calls.Add(1)
			if i == 2 {
				return errors.New("storage: unavailable")
			}
			time.Sleep(time.Second) // virtual
			return nil
		})
		if got := calls.Load(); err == nil || got > concurrency {
			t.Errorf("%d calls, %v; want an error after at most %d calls", got, err, concurrency)
		}
	})
}

// TestTheRatesAreThoseOfTheHistory checks that crashes count as failures and requeues as enqueued, and that
// only completed tasks are done.
func TestTheRatesAreThoseOfTheHistory(t *testing.T) {
	now := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	was := &Queue{Stats: storage.Stats{Queue: "mail", Totals: storage.Totals{
		Enqueued: 4, Requeued: 1, Completed: 3, Failed: 2, Crashed: 1,
	}}, In: -1, Done: -1, Failed: -1}
	is := &Queue{Stats: storage.Stats{Queue: "mail", Totals: storage.Totals{
		Enqueued: 8, Requeued: 3, Completed: 5, Dead: 5, Cancelled: 5, Failed: 2, Crashed: 7,
	}}}
	is.measure(&Survey{At: now.Add(-2 * time.Second), byName: map[string]*Queue{"mail": was}}, now, 0)
	if is.In != 3 || is.Done != 1 || is.Failed != 3 {
		t.Errorf("got %v in, %v done and %v failed a second, want 3, 1 and 3", is.In, is.Done, is.Failed)
	}
}

// TestACrashIsAFailureAndChangesTheMark checks that a page shows a queue whose tasks only crash.
func TestACrashIsAFailureAndChangesTheMark(t *testing.T) {
	now := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	was := &Queue{Stats: storage.Stats{Queue: "mail", Totals: storage.Totals{Failed: 1, Crashed: 2}}, Failed: -1}
	is := &Queue{Stats: storage.Stats{Queue: "mail", Totals: storage.Totals{Failed: 1, Crashed: 12}}}
	before := &Survey{At: now.Add(-5 * time.Second), byName: map[string]*Queue{"mail": was}}
	if is.measure(before, now, 0); is.Failed != 2 {
		t.Errorf("got %v failures a second, want 2", is.Failed)
	}
	if is.mark() == was.mark() {
		t.Error("the mark did not change with the crashes")
	}
}

// TestAKindIsUnknownSinceItsOwnTime checks that the time is kept only as long as the queue has unknown kinds.
func TestAKindIsUnknownSinceItsOwnTime(t *testing.T) {
	s := NewReader(nil, Config{})
	long := time.Now().Add(-time.Hour)
	queue := func(since time.Time, unknown ...storage.KindSize) *Survey {
		now := &Survey{At: s.cfg.Now(), Queues: []Queue{{Stats: storage.Stats{Queue: "q"}, Unknown: unknown, UnknownSince: since}}}
		now.byName = map[string]*Queue{"q": &now.Queues[0]}
		return now
	}
	s.sinceAt = s.cfg.Now()
	for _, unknown := range [][]storage.KindSize{{{Kind: "old", Tasks: 1}}, nil} {
		now := queue(time.Time{}, unknown...)
		s.readSince(t.Context(), queue(long, storage.KindSize{Kind: "old", Tasks: 1}), now)
		if got := now.Queues[0].UnknownSince; got.IsZero() != (unknown == nil) {
			t.Errorf("with the unknown kinds %v since %v, want it kept as long as there are some", unknown, got)
		}
	}
}

// TestAForecastLooksBackFarEnough checks that a forecast does not use sizes from a second ago, which have no
// rate.
func TestAForecastLooksBackFarEnough(t *testing.T) {
	sc, s, _, ahead := mourning(t)
	bury(t, sc, "mail", "disk full", 1)
	for ; *ahead < time.Minute; *ahead += time.Second {
		now, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if *ahead <= pastFor {
			continue
		}
		if back := now.At.Sub(now.then.at); back < pastFor || back > 2*pastFor+time.Second {
			t.Errorf("after %v a forecast looks %v back, want %v or somewhat more", *ahead, back, pastFor)
		}
	}
}
