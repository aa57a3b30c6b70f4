package sampler

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// hour returns the range of an hour of a queue up to a moment.
func hour(end time.Time, queue string) Range {
	return Range{End: end, Length: time.Hour, Step: time.Minute, Queue: queue}
}

// TestOneSeriesOfAShapeIsKept checks that a range whose end moves on replaces the range before. An open page
// asks for a new end each minute, and a series of many queues is large.
func TestOneSeriesOfAShapeIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _, ahead := clocked(t)
		end := time.Now().Truncate(time.Minute)
		var last *ledger.Series
		for range 30 {
			*ahead += time.Minute
			end = end.Add(time.Minute)
			series, err := s.Series(t.Context(), hour(end, ""))
			if err != nil {
				t.Fatal(err)
			}
			if got := series.All[len(series.All)-1].At; !got.Equal(end.Add(-time.Minute)) || series == last {
				t.Errorf("the last step begins at %v, want %v", got, end.Add(-time.Minute))
			}
			last = series
			if again, err := s.Series(t.Context(), hour(end.Add(-time.Minute), "")); again != series || err != nil {
				t.Errorf("a viewer whose moment is a little earlier gets another series: %v", err)
			}
		}
		if n := len(s.past.shapes); n != 1 {
			t.Errorf("%d series are kept, want one", n)
		}
	})
}

// TestAStorageThatIsAwayHidesNoHistory checks that the last series of a shape is shown while reads fail, also
// for later ends, and that such a call makes no room for a series that cannot be read.
func TestAStorageThatIsAwayHidesNoHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store, ahead := clocked(t)
		end := time.Now().Truncate(time.Minute)
		read, err := s.Series(t.Context(), hour(end, ""))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.fails = true
		*ahead += 10 * time.Minute
		if _, err := s.Sample(t.Context()); err == nil && s.Last().Err == nil {
			t.Fatal("a look at a storage that is away reports no error")
		}
		for i := range 2 * mostSeries {
			if got, err := s.Series(t.Context(), hour(end.Add(time.Duration(i)*time.Minute), "")); got != read || err != nil {
				t.Fatalf("%d minutes later: got %p, %v, want the series that was read", i, got, err)
			}
			if _, err := s.Series(t.Context(), hour(end, fmt.Sprint("queue-", i))); err == nil {
				t.Fatal("a series that was never read is shown")
			}
		}
	})
}

// TestAViewerWhoWaitsGetsASeries checks that a viewer who waits for the reading of another viewer gets its
// series, also if so many other ranges are asked for meanwhile that the cache forgets the range.
func TestAViewerWhoWaitsGetsASeries(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		h := &historyCache{ledger: ledger.New(sc.Store), now: time.Now}
		of := hour(time.Now().Truncate(time.Minute), "")
		p := h.find(of.shape())
		p.turn <- struct{}{} // another viewer reads
		got := make(chan error, 1)
		go func() {
			series, err := h.read(t.Context(), of)
			if series == nil {
				err = errors.Join(err, storage.ErrNotFound)
			}
			got <- err
		}()
		synctest.Wait()
		for i := range mostSeries {
			time.Sleep(time.Millisecond)
			h.find(hour(of.End, fmt.Sprint("queue-", i)).shape())
		}
		h.mu.Lock()
		p.at, p.end, p.series = h.now(), of.End, &ledger.Series{}
		h.mu.Unlock()
		<-p.turn
		if err := <-got; err != nil {
			t.Error("the viewer who waited got no series:", err)
		}
	})
}
