package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

func TestMinutesOfAQueue(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	q := w.queue("mail")
	q.Totals = storage.Totals{Enqueued: 1000, Requeued: 5, Completed: 900} // before the first sample
	w.write(l)
	for i := range int64(5) {
		w.pass(time.Minute)
		q.Totals.Enqueued += 10 * (i + 1)
		q.Totals.Requeued++
		q.Totals.Completed += 3
		q.Totals.Failed += 2
		q.Totals.Dead += i % 2
		q.Waiting, q.Oldest = 7*i, time.Duration(i)*time.Minute
		w.write(l)
		w.write(l) // the second write of a minute adds nothing
	}
	s := w.read(noon.Add(-2*time.Minute), noon.Add(6*time.Minute), time.Minute)
	points := s.Queues["mail"]
	w.want("points", len(points), 8)
	w.want("before", points[0], Point{At: noon.Add(-2 * time.Minute)})
	w.want("the first sample", points[1], Point{At: noon.Add(-time.Minute), Known: true, Gap: true})
	for i := range int64(5) {
		w.want("a minute", points[i+2], Point{
			At: noon.Add(time.Duration(i) * time.Minute), Known: true,
			Enqueued: 10*(i+1) + 1, Done: 3, Failed: 2, Dead: i % 2, Waiting: 7 * i, Oldest: time.Duration(i) * time.Minute,
		})
	}
	w.want("to come", points[7], Point{At: noon.Add(5 * time.Minute)})
	w.want("all", s.All, points)
	w.want("in two minutes", w.read(noon, noon.Add(4*time.Minute), 2*time.Minute).All[1], Point{
		At: noon.Add(2 * time.Minute), Known: true, Enqueued: 72, Done: 6, Failed: 4, Dead: 1, Waiting: 21, Oldest: 3 * time.Minute,
	})
	w.want("of another queue", enqueued(w.read(noon, noon.Add(5*time.Minute), time.Minute, "none").All), 0)
}

func TestAGapIsAveraged(t *testing.T) {
	w := newWorld(t)
	w.write(New(w))
	w.queue("mail").Totals.Enqueued = 100
	w.pass(90 * time.Minute) // no process writes; the gap crosses an hour
	w.write(New(w))
	w.pass(time.Minute)
	w.queue("mail").Totals.Enqueued++
	w.write(New(w))
	s := w.read(noon, noon.Add(92*time.Minute), time.Minute)
	for i, p := range s.Queues["mail"] {
		switch {
		case i < 90 && (!p.Known || !p.Gap || p.Enqueued < 1 || p.Enqueued > 2):
			t.Errorf("minute %d: %+v, want 1 or 2 in a gap", i, p)
		case i == 90 && (!p.Known || p.Gap || p.Enqueued != 1):
			t.Errorf("minute %d: %+v, want 1 and no gap", i, p)
		}
	}
	w.want("enqueued", enqueued(s.Queues["mail"]), 101)
	inside := w.read(noon, noon.Add(45*time.Minute), 45*time.Minute).All[0] // the sample lies behind the span
	w.want("half of the gap", inside, Point{At: inside.At, Known: true, Gap: true, Enqueued: inside.Enqueued})
	w.want("half of it enqueued", inside.Enqueued >= 49 && inside.Enqueued <= 51, true)
}

func TestANewQueueAndOneThatWasRemoved(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	w.write(l)
	w.pass(time.Minute)
	w.queue("mail").Totals.Enqueued = 5
	w.write(l)
	w.pass(time.Minute)
	delete(w.stats, "mail")
	w.write(l)
	w.pass(time.Minute)
	w.queue("mail").Totals.Enqueued = 3
	w.write(l)
	points := w.read(noon, noon.Add(3*time.Minute), time.Minute).Queues["mail"]
	w.want("enqueued", [3]int64{points[0].Enqueued, points[1].Enqueued, points[2].Enqueued}, [3]int64{5, 0, 3})
	// A queue that comes back later with larger totals is also another queue.
	delete(w.stats, "mail")
	w.minutes(l, 2*pageMinutes, func() {})
	w.minutes(l, 1, func() { w.queue("mail").Totals.Enqueued = 7 })
	w.want("enqueued then", enqueued(w.read(noon, w.now, time.Minute).Queues["mail"]), 5+3+7)
}

// TestASampleBehindTheEndIsFound checks that a series that ends within a gap has its part of the gap, however
// far away the sample is that covers the gap.
func TestASampleBehindTheEndIsFound(t *testing.T) {
	for _, gap := range []int{2, 10, 15, 16, 30, 31, 46, 60, 61, 75, 119, 121, 200, 1000, 5000} {
		w := newWorld(t)
		w.write(New(w))
		w.queue("mail").Totals.Enqueued = int64(1000 * gap)
		w.pass(time.Duration(gap) * time.Minute)
		w.write(New(w))
		p := w.read(noon, noon.Add(time.Duration(gap/2)*time.Minute), time.Minute).All
		w.want(fmt.Sprintf("the half of %d minutes is a gap", gap), p[gap/2-1].Gap, true)
		w.want(fmt.Sprintf("enqueued in it, of %d", gap), enqueued(p), 1000*(gap/2))
	}
}

// TestTwoWritersLoseNothing has two processes write at the same moment, over hours. Now and then a process is
// restarted, and both miss minutes. The sums of all minutes and of all hours must be the number of tasks that
// were enqueued.
func TestTwoWritersLoseNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	w := newWorld(t)
	writers := []*Ledger{New(w), New(w)}
	w.write(writers[0])
	want := make(map[string]int64)
	for minute := range 400 {
		w.pass(time.Minute)
		for range random.IntN(5) {
			name, n := fmt.Sprintf("q%d", random.IntN(1+minute/10)), random.Int64N(1000)
			w.queue(name).Totals.Enqueued += n
			want[name] += n
		}
		if random.IntN(20) == 0 {
			writers[random.IntN(2)] = New(w)
		}
		var all sync.WaitGroup
		for _, l := range writers {
			if random.IntN(10) > 0 {
				all.Go(func() {
					if _, err := l.Write(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
	}
	w.pass(time.Minute)
	w.write(writers[0])
	for _, step := range []time.Duration{time.Minute, time.Hour} {
		s := w.read(noon.Add(-time.Hour), w.now, step)
		for name, n := range want {
			w.want(fmt.Sprintf("%s by %v", name, step), enqueued(s.Queues[name]), n)
		}
	}
}

// TestTheClockJumps sets the clock ahead by hours, and back. Nothing must count twice, and nothing be lost.
func TestTheClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{20 * time.Minute, 5 * time.Hour, 30 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			w := newWorld(t)
			writers := []*Ledger{New(w), New(w)}
			w.write(writers[0])
			want := int64(0)
			for minute := range 3 * 60 {
				w.pass(time.Minute)
				w.queue("mail").Totals.Enqueued += int64(minute)
				want += int64(minute)
				switch minute {
				case 30:
					w.pass(jump)
				case 33:
					w.pass(-jump)
				case 80:
					writers[0] = New(w)
				}
				w.write(writers[minute%2])
			}
			w.pass(jump)
			for range 3 {
				w.pass(time.Minute)
				w.write(writers[0])
			}
			s := w.read(noon.Add(-time.Hour), w.now, time.Minute)
			w.want("enqueued", enqueued(s.Queues["mail"]), want)
		})
	}
}

func TestDamagedPagesAreSkippedAndNamed(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	w.queue("mail").Totals.Enqueued = 10_000 // before the first sample
	one := func() { w.queue("mail").Totals.Enqueued++ }
	w.minutes(l, 3*60, one)
	day := fmt.Sprintf("h.%d.0", noon.Unix()/86400)
	damaged := pageAt(noon.Add(70*time.Minute), 0)
	w.damage(damaged)
	w.damage(day)
	s := w.read(noon, w.now, time.Minute)
	w.want("damaged", s.Damaged, []string{damaged})
	w.want("enqueued", enqueued(s.All), 3*60-pageMinutes-1) // the growth at the first sample is not known
	w.want("a point of it", s.All[70], Point{At: noon.Add(70 * time.Minute)})
	w.want("one behind it", s.All[60+pageMinutes].Enqueued, 1)
	s = w.read(noon, w.now, time.Hour)
	w.want("damaged", s.Damaged, []string{day, damaged})
	w.want("what is known of the hour", s.All[1], Point{
		At: noon.Add(time.Hour), Known: true, Gap: true, Enqueued: 60 - pageMinutes,
	})

	// A writer replaces a damaged page to which it still writes, and knows the totals of its last sample.
	w.minutes(l, 3, one)
	now := func() string { return pageAt(w.now.Add(-time.Minute), 0) }
	w.damage(now())
	w.minutes(l, 1, func() { w.queue("mail").Totals.Enqueued += 7 })
	last := w.read(w.now.Add(-time.Minute), w.now, time.Minute)
	w.want("enqueued then", enqueued(last.All), 7)
	w.want("damaged then", last.Damaged, []string(nil))
	// A writer that has just begun does not know them, and counts the present totals as old.
	w.damage(now())
	w.damage(pageAt(w.now.Add(-(1+pageMinutes)*time.Minute), 0))
	w.minutes(New(w), 1, func() { w.queue("mail").Totals.Enqueued += 7 })
	if got := enqueued(w.read(w.now.Add(-time.Minute), w.now, time.Minute).All); got > 10 {
		t.Errorf("%d enqueued in a minute: the totals of a longer time", got)
	}
}

// TestADamagedQuarterIsAGapOfItsHour checks that the other quarters of an hour are gathered without a damaged
// one, and that the hour is marked as a gap.
func TestADamagedQuarterIsAGapOfItsHour(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	one := func() { w.queue("mail").Totals.Enqueued++ }
	w.write(l)               // the sample of the minute before noon
	w.minutes(l, 60+50, one) // the first hour is gathered, and the second hour is not
	w.damage(pageAt(noon.Add(65*time.Minute), 0))
	w.minutes(l, 30, one)
	page, err := l.readParts(t.Context(), hourPages, noon.Unix()/86400)
	if err != nil {
		t.Fatal(err)
	}
	w.want("hours", page[0].count, 3) // with the hour before noon
	s := w.read(noon, noon.Add(2*time.Hour), time.Hour)
	w.want("damaged", s.Damaged, []string(nil)) // the page of the day is enough for both hours
	w.want("an hour", s.All[0], Point{At: noon, Known: true, Enqueued: 60})
	w.want("that with a damaged page", s.All[1], Point{
		At: noon.Add(time.Hour), Known: true, Gap: true, Enqueued: 60 - pageMinutes,
	})
}

// damage flips a bit in the record of a page.
func (w *world) damage(id string) {
	w.Helper()
	task, err := w.Task(w.Context(), storage.Ref{Queue: Queue, ID: id})
	if err != nil {
		w.Fatalf("%s: %v", id, err)
	}
	task.Payload[len(task.Payload)/2] ^= 1
	_, err = storage.NewSession(w.Storage, 0).ApplyOne(w.Context(), storage.Tx{Changes: []storage.Change{
		{Ref: task.Ref, Version: task.Version, Encoding: encoding, Payload: task.Payload},
	}})
	if err != nil {
		w.Fatal(err)
	}
}

func TestKinds(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	runs := func(n int, d time.Duration) (h vitals.Histogram) {
		for range n {
			h.Add(d)
		}
		return h
	}
	w.ran("r1", vitals.Kind{Name: "mail", Runs: runs(1000, time.Minute)})
	w.write(l)
	for i := range 3 {
		w.pass(time.Minute)
		h := runs(1000, time.Minute)
		fresh := runs(100*(i+1), 100*time.Millisecond)
		h.Merge(&fresh)
		w.ran("r1", vitals.Kind{Name: "mail", Runs: h, Failed: uint64(i)})
		w.ran("r2", vitals.Kind{Name: "mail", Runs: runs(10*(i+1), 100*time.Millisecond)}) // a new runner
		w.write(l)
	}
	s := w.read(noon.Add(-time.Minute), noon.Add(3*time.Minute), time.Minute)
	points := s.Kinds["mail"]
	w.want("before", [2]int64{points[0].Runs, int64(points[0].P50)}, [2]int64{0, 0})
	for i, p := range points[1:] {
		w.want("runs, failed", [2]int64{p.Runs, p.Failed}, [2]int64{110, min(int64(i), 1)})
		if p.P95 < 80*time.Millisecond || p.P95 > 120*time.Millisecond || p.Gap {
			t.Errorf("got %+v, want about 100 ms", p)
		}
	}
	longer := w.read(noon, noon.Add(3*time.Minute), 3*time.Minute).Kinds["mail"][0]
	w.want("in one step", [2]int64{longer.Runs, longer.Failed}, [2]int64{330, 2})
	w.pass(time.Minute)
	w.ran("r3", vitals.Kind{Name: "mail", Runs: runs(10, 2*time.Second)})
	w.write(l)
	// The median of all 340 runs is 100 ms. A median of medians would be wrong, so the slowest minute is shown.
	worst := w.read(noon, noon.Add(4*time.Minute), 4*time.Minute).Kinds["mail"][0]
	if worst.Runs != 340 || worst.P50 < 1600*time.Millisecond || worst.P50 > worst.P99 {
		t.Errorf("got %+v in one step, want the median of the slowest minute, 2 s", worst)
	}
}

// TestHoursOutliveMinutes checks that after 10 days all hours can be read, and that expired pages are
// deleted.
func TestHoursOutliveMinutes(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	w.write(l)
	hours := 10 * 24
	for range hours * 4 {
		w.pass(15 * time.Minute) // fewer samples than there may be, so that the test is short
		w.queue("mail").Totals.Enqueued += 100
		w.write(l)
	}
	s := w.read(noon, w.now, time.Hour)
	w.want("hours", len(s.All), hours)
	w.want("enqueued", enqueued(s.All), hours*400)
	for i, p := range s.All {
		if !p.Known || p.Enqueued < 390 || p.Enqueued > 410 {
			t.Fatalf("hour %d: %+v, want about 400", i, p)
		}
	}
	w.want("days", enqueued(w.read(noon, w.now, 24*time.Hour).All), hours*400)
	pages := func() int64 {
		stats, err := w.Storage.Stats(t.Context(), Queue)
		if err != nil {
			t.Fatal(err)
		}
		return stats[0].Scheduled
	}
	if n, minutes := pages(), keptPages; n < minutes || n > minutes+11+6 { // pages are deleted once an hour
		t.Errorf("%d pages, want %d of 7 days and 11 of days", n, minutes)
	}
	w.pass(100 * 24 * time.Hour)
	w.writeSteady(l)
	if n := pages(); n > 8+2 { // the gap is averaged over the last 7 days
		t.Errorf("%d pages after a hundred days", n)
	}
}

// TestADayOfWrites bounds the bytes that a ledger writes in a day with 100 busy queues and kinds.
func TestADayOfWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	w := newWorld(t)
	l := New(w)
	kinds := make([]vitals.Kind, 100)
	for i := range kinds {
		kinds[i].Name = fmt.Sprintf("kind_of_a_job_%03d", i)
	}
	w.write(l)
	w.written = 0
	largest := 0
	w.hook = func(txs []storage.Tx) {
		for i := range txs {
			largest = max(largest, txs[i].Bytes())
		}
	}
	for range 24 * 60 {
		w.pass(time.Minute)
		for i := range 100 {
			q := w.queue(fmt.Sprintf("a_busy_queue_%03d", i))
			n := random.Int64N(5000)
			q.Totals.Enqueued += n
			q.Totals.Completed += n - random.Int64N(n/10+1)
			q.Totals.Failed += random.Int64N(20)
			q.Totals.Dead += random.Int64N(2)
			q.Waiting, q.Oldest = random.Int64N(10000), time.Duration(random.Int64N(300))*time.Second
			for range 20 {
				kinds[i].Runs.Add(time.Duration(random.ExpFloat64() * float64(100*time.Millisecond)))
			}
			kinds[i].Failed += random.Uint64N(3)
		}
		w.ran("r1", kinds...)
		w.write(l)
	}
	t.Logf("%.1f MB a day, a page has up to %d bytes", float64(w.written)/1e6, largest)
	if w.written > 40e6 {
		t.Errorf("%.1f MB a day at 100 queues, want at most 40", float64(w.written)/1e6)
	}
	if largest > 40_000 {
		t.Errorf("a page of 100 queues and kinds has %d bytes, want at most 40,000", largest)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begun, base := time.Now(), w.now
		w.mu.Lock()
		w.now = base
		w.mu.Unlock()
		tick := func(d time.Duration) {
			for range int(d / time.Second) {
				time.Sleep(time.Second)
				w.mu.Lock()
				w.now = base.Add(time.Since(begun))
				w.mu.Unlock()
				synctest.Wait()
			}
		}
		ctx, stop := cancelled(t)
		done := make(chan struct{})
		var troubles []error
		go func() {
			defer close(done)
			New(w).Run(ctx, func(err error) { troubles = append(troubles, err) })
		}()
		tick(5 * time.Minute)
		stop()
		<-done
		points := w.read(noon.Add(-time.Minute), noon.Add(4*time.Minute), time.Minute).All
		for i, p := range points {
			w.want(fmt.Sprintf("minute %d is known", i), p.Known, true)
		}
		w.want("troubles", troubles, []error(nil))
	})
}

func TestBadSpans(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		from, to time.Time
		step     time.Duration
	}{
		{noon, noon, time.Minute},
		{noon.Add(time.Hour), noon, time.Minute},
		{noon, noon.Add(time.Hour), 0},
		{noon, noon.Add(time.Hour), time.Second},
		{noon, noon.Add(time.Hour), 90 * time.Second},
		{noon, noon.Add(time.Hour), 90 * time.Minute},
		{noon, noon.Add(time.Hour), 1 << 62},
		{noon, noon.Add(90 * 24 * time.Hour), time.Minute},
		{time.Time{}, noon, time.Hour},
	} {
		var invalid *storage.InvalidError
		if _, err := New(w).Series(t.Context(), c.from, c.to, c.step); !errors.As(err, &invalid) {
			t.Errorf("%v to %v by %v: got %v, want an InvalidError", c.from, c.to, c.step, err)
		}
	}
	if !storage.Reserved(Queue) || !storage.Reserved(AuditQueue) || storage.Reserved("mail") {
		t.Error("reserved queues")
	}
}
