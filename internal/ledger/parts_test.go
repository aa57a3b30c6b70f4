package ledger

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestManyQueuesAreSplit(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	for i := range 1200 {
		w.queue(fmt.Sprintf("q%04d", i))
	}
	w.write(l)
	w.pass(time.Minute)
	for _, q := range w.stats {
		q.Totals.Enqueued = 2
	}
	w.write(New(w))
	s := w.read(noon, noon.Add(time.Minute), time.Minute)
	w.want("queues, enqueued", [2]int64{int64(len(s.Queues)), enqueued(s.All)}, [2]int64{1200, 2400})
	w.want("known", [2]bool{s.All[0].Known, s.All[0].Gap}, [2]bool{true, false})
	stats, err := w.Storage.Stats(t.Context(), Queue)
	if err != nil {
		t.Fatal(err)
	}
	w.want("pages", stats[0].Scheduled, 3+3+3) // two quarters of an hour, and their day
	// Without a part, the figures of its queues are not known, and the figures of the other queues are known.
	w.damage(pageAt(noon, 1))
	s = w.read(noon, noon.Add(time.Minute), time.Minute)
	w.want("damaged", s.Damaged, []string{pageAt(noon, 1)})
	w.want("known and a gap", [2]bool{s.All[0].Known, s.All[0].Gap}, [2]bool{true, true})
	s = w.read(noon, noon.Add(time.Minute), time.Minute, "q0000", "q0001", "q0002", "q0003", "q0004")
	for name, points := range s.Queues {
		w.want(name+" is known", points[0].Known, part(name, 3) != 1)
	}
}

// TestSmallPayloads checks that pages have more parts if payloads are bounded by 16 KiB. The error names a
// page that has outgrown the bound, and the other pages are written.
func TestSmallPayloads(t *testing.T) {
	w := newWorld(t)
	w.limits(storage.Limits{MaxPayload: 16 << 10})
	l := New(w)
	busy := func(queues int) {
		for i := range queues {
			q := w.queue(fmt.Sprintf("a_busy_queue_%04d", i))
			q.Totals.Enqueued += 5000
			q.Totals.Completed += int64(4000 + i)
			q.Waiting += int64(i%7) * 100
		}
	}
	busy(100)
	w.write(l)
	const minutes = 95 // the last page of minutes has begun, and is not full
	w.minutes(l, minutes, func() { busy(100) })
	w.want("enqueued", enqueued(w.read(noon.Add(-time.Minute), w.now, time.Minute).All), minutes*100*5000)
	busy(8000) // 80 times as many queues as existed when the page was begun
	w.pass(time.Minute)
	_, err := l.Write(t.Context())
	if !errors.Is(err, errLarge) {
		t.Errorf("got %v, want that a page is too large", err)
	}
	w.pass(30 * time.Minute) // the next page of minutes has room for all queues, and the page of the day has not
	if _, err := l.Write(t.Context()); !errors.Is(err, errLarge) {
		t.Errorf("got %v, want that the page of the day is too large", err)
	}
	s := w.read(noon.Add(-time.Minute), w.now, time.Minute)
	w.want("enqueued in all", enqueued(s.All), minutes*100*5000+8000*5000)
}

// TestPagesOfAnHourMayDifferInParts adds queues in the second quarter of an hour, so that later pages have
// more parts. The hour must have all figures of its minutes, and no gap.
func TestPagesOfAnHourMayDifferInParts(t *testing.T) {
	w := newWorld(t)
	w.limits(storage.Limits{MaxPayload: 16 << 10})
	l := New(w)
	queues := 10
	work := func() {
		for i := range queues {
			w.queue(fmt.Sprintf("q%03d", i)).Totals.Enqueued += int64(i + 1)
		}
	}
	w.write(l)
	w.minutes(l, 60, func() {
		if w.now.Sub(noon) == 20*time.Minute {
			queues = 100
		}
		work()
	})
	parts := make(map[int]bool)
	for i := range 4 {
		pages, err := l.readParts(t.Context(), minutePages, noon.Unix()/60/pageMinutes+int64(i))
		if err != nil {
			t.Fatal(err)
		}
		w.want("parts that were read", len(pages), pages[0].parts)
		parts[pages[0].parts] = true
	}
	w.want("numbers of parts", len(parts), 2)
	minutes := w.read(noon, noon.Add(time.Hour), time.Minute)
	hour := w.read(noon, noon.Add(time.Hour), time.Hour)
	w.want("queues", [2]int{len(minutes.Queues), len(hour.Queues)}, [2]int{100, 100})
	for i := range 100 {
		name, want := fmt.Sprintf("q%03d", i), int64(60*(i+1))
		if i >= 10 {
			want = int64(41 * (i + 1)) // from minute 20 to minute 60
		}
		w.want(name+" in minutes", enqueued(minutes.Queues[name]), want)
		w.want(name+" in the hour", hour.Queues[name][0], Point{At: noon, Known: true, Enqueued: want})
	}
}

// TestAProcessThatBeginsReadsPagesSideBySide bounds the reads and the time of a process that begins, also if
// no process has written for days, or ever.
func TestAProcessThatBeginsReadsPagesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const each = time.Millisecond
		w.reading = func() { time.Sleep(each) }
		w.queue("mail").Totals.Enqueued = 1
		cost := func(what string, reads int, within time.Duration, do func()) {
			t.Helper()
			w.reads = 0
			begun := time.Now()
			do()
			if took := time.Since(begun); w.reads > reads || took > within {
				t.Errorf("%s reads %d pages in %v, want at most %d in %v", what, w.reads, took, reads, within)
			}
		}
		l := New(w)
		week := int(keptPages)
		// A process that begins reads pages twice: to find the last sample, and to gather hours.
		twice := func(pages int) time.Duration { return 2*time.Duration(pages/readers)*each + 30*each }
		cost("a first start", 2*week+30, twice(week), func() { w.write(l) })
		w.pass(time.Minute)
		cost("a minute", 3, 3*each, func() { w.write(l) })
		w.pass(time.Minute)
		cost("another process", 2*readers, 6*each, func() { w.write(New(w)) })
		w.pass(3 * 24 * time.Hour)
		days := 3 * 24 * 60 / pageMinutes
		cost("one after three days", 2*days+30, twice(days), func() { w.write(New(w)) })
		cost("a chart of a day", 24*60/pageMinutes+3, 14*each, func() {
			if _, err := New(w).Series(t.Context(), w.now.Add(-24*time.Hour), w.now, time.Minute); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestPagesOfAnotherLengthAreNotRead checks that a page of another length has another id, is not read, and is
// deleted when it expires.
func TestPagesOfAnotherLengthAreNotRead(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	long := stored{of: minutePages, number: noon.Unix() / 3600} // a page with the minutes of an hour
	long.page = &page{start: noon.Unix() / 60, step: 1, parts: 1, last: -1}
	for slot := range 60 {
		long.append(&sample{slot: slot, span: 1})
	}
	_, err := storage.NewSession(w.Storage, 0).ApplyOne(t.Context(), long.tx())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(long.encode()); !errors.Is(err, errDamaged) {
		t.Errorf("a page of an hour of minutes: got %v, want that it is damaged", err)
	}
	s := w.read(noon, noon.Add(time.Hour), time.Minute)
	w.want("damaged", s.Damaged, []string(nil))
	w.want("a point of it", s.All[30].Known, false)
	w.write(l)
	w.pass(MinutesKept + 2*time.Hour)
	w.writeSteady(l)
	_, err = w.Task(t.Context(), storage.Ref{Queue: Queue, ID: long.id()})
	if !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("got %v, want that it is gone", err)
	}
}
