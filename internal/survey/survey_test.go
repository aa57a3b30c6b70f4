package survey

import (
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestEachTotalChangesTheMark checks that a page is fetched again if only one total of a queue has changed: a
// task may crash, come back and wait again between two looks.
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

// TestAForecastLooksBackFarEnough checks that a forecast does not use sizes from a second ago, which give no
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
