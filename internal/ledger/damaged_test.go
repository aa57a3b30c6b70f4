package ledger

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// TestTotalsThatGoBackAreNoNewQueue has a failover lose the last tasks of a queue. Its earlier totals must
// not count as growth in that minute, whose real growth is not known.
func TestTotalsThatGoBackAreNoNewQueue(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	q := w.queue("mail")
	q.Totals = storage.Totals{Enqueued: 1_000_000, Completed: 1_000_000}
	more := func(n int64) func() {
		return func() { q.Totals.Enqueued, q.Totals.Completed = q.Totals.Enqueued+n, q.Totals.Completed+n }
	}
	w.write(l)
	w.minutes(l, 3, more(20))
	w.minutes(l, 1, more(-10))
	w.minutes(New(w), 2, more(20))
	for i, p := range w.read(noon, noon.Add(6*time.Minute), time.Minute).Queues["mail"] {
		want := Point{At: p.At, Known: true, Enqueued: 20, Done: 20}
		if i == 3 {
			want = Point{At: p.At, Known: true, Gap: true}
		}
		w.want(fmt.Sprintf("minute %d", i), p, want)
	}
}

// TestAQueueThatWasSeenToBeGoneBeginsAnew checks that such a queue starts from zero, even if another process
// sees it again.
func TestAQueueThatWasSeenToBeGoneBeginsAnew(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	w.write(l)
	w.minutes(l, 1, func() { w.queue("mail").Totals.Enqueued = 5 })
	w.minutes(l, 1, func() { delete(w.stats, "mail") })
	w.minutes(New(w), 1, func() { w.queue("mail").Totals.Enqueued = 8 })
	points := w.read(noon, w.now, time.Minute).Queues["mail"]
	w.want("enqueued", [3]int64{points[0].Enqueued, points[1].Enqueued, points[2].Enqueued}, [3]int64{5, 0, 8})
}

// TestAKindThatHadNoRoomBeginsAnew checks kinds that had no room in a heartbeat, which has the kinds with the
// most runs. The earlier runs of such a kind must not count in the minute in which the heartbeat first has
// it.
func TestAKindThatHadNoRoomBeginsAnew(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	kinds := func(b uint64) (all []vitals.Kind) {
		for i := range vitals.MaxKinds - 1 {
			all = append(all, vitals.Kind{Name: fmt.Sprintf("k%03d", i), Runs: vitals.Histogram{10_000_000}})
		}
		return append(all, vitals.Kind{Name: "a", Runs: vitals.Histogram{1_000_000}}, vitals.Kind{Name: "b", Runs: vitals.Histogram{b}})
	}
	w.ran("r1", kinds(999_990)...)
	w.write(l)
	for i := range uint64(6) {
		w.pass(time.Minute)
		w.ran("r1", kinds(999_990+6*i)...)
		w.write(l)
	}
	runs := ""
	for _, p := range w.read(noon, w.now, time.Minute).Kinds["b"] {
		runs += fmt.Sprint(p.Runs, " ")
	}
	w.want("runs", runs, "0 0 0 6 6 6 ") // b overtakes a in the third minute
	// The first runs of a new kind count at once if the heartbeat has room for all kinds.
	w.ran("r2", vitals.Kind{Name: "c", Runs: vitals.Histogram{1}})
	w.minutes(l, 1, func() {})
	w.minutes(l, 1, func() {
		w.ran("r2", vitals.Kind{Name: "c", Runs: vitals.Histogram{1}}, vitals.Kind{Name: "d", Runs: vitals.Histogram{7}})
	})
	w.want("runs of a new kind", w.read(w.now.Add(-time.Minute), w.now, time.Minute).Kinds["d"][0].Runs, 7)
}

// TestARunnerThatComesBackIsNotNew checks a runner that was forgotten, after a long time or after a jump of
// the clock. Its earlier runs must not count again.
func TestARunnerThatComesBackIsNotNew(t *testing.T) {
	for _, jumps := range []bool{false, true} {
		w := newWorld(t)
		l := New(w)
		w.ran("r1", vitals.Kind{Name: "a", Runs: vitals.Histogram{1_000_000}})
		w.minutes(l, 2*forgetAfter, func() {})
		was := w.runners
		w.runners = nil
		if jumps {
			w.pass(30 * time.Hour)
			w.minutes(l, 1, func() {})
			w.pass(-30 * time.Hour)
		} else {
			w.minutes(l, forgetAfter+2, func() {})
		}
		w.runners = was
		w.minutes(l, 2, func() {})
		w.minutes(l, 1, func() { w.ran("r1", vitals.Kind{Name: "a", Runs: vitals.Histogram{1_000_005}}) })
		runs := int64(0)
		for _, p := range w.read(noon, w.now, time.Minute).Kinds["a"] {
			runs += p.Runs
		}
		w.want("runs", runs, 5)
	}
}

// TestHugeCountsDamageNoPage checks counts beyond all bounds from a runner or a record. The figures of the
// other queues must stay right, in minutes and in hours.
func TestHugeCountsDamageNoPage(t *testing.T) {
	const least, most = math.MinInt64, math.MaxInt64
	for name, tell := range map[string]func(w *world){
		"a runner": func(w *world) {
			w.ran("r1", vitals.Kind{Name: "mail", Runs: vitals.Histogram{1<<63 + 10, 1 << 63}, Failed: math.MaxUint64})
			w.ran("r2", vitals.Kind{Name: "mail", Runs: vitals.Histogram{1<<63 + 10}, Failed: math.MaxUint64})
		},
		"large totals": func(w *world) {
			for i := range 3 {
				w.queue(fmt.Sprint("q", i)).Totals = storage.Totals{Enqueued: most, Requeued: 1, Completed: most, Failed: most, Crashed: most}
			}
		},
		"negative totals": func(w *world) {
			w.queue("bad").Totals = storage.Totals{Enqueued: least, Requeued: -1, Completed: -1, Failed: least, Dead: least}
		},
		"large sizes":    func(w *world) { w.queue("bad").Waiting, w.queue("bad").Oldest = most, most },
		"negative sizes": func(w *world) { w.queue("bad").Waiting, w.queue("bad").Oldest = least, least },
	} {
		w := newWorld(t)
		l := New(w)
		w.write(l)
		w.ran("r1", vitals.Kind{Name: "mail", Runs: vitals.Histogram{1}})
		one := func() { w.queue("orders").Totals.Completed++ }
		w.minutes(l, 5, one)
		tell(w)
		w.minutes(l, 5, one)
		for _, name := range []string{"q0", "q1", "q2", "bad"} {
			*w.queue(name) = storage.Stats{Queue: name}
		}
		w.minutes(l, 125, one)
		for _, step := range []time.Duration{time.Minute, time.Hour} {
			s := w.read(noon, w.now, step)
			w.want(name+": damaged", s.Damaged, []string(nil))
			done := int64(0)
			for _, p := range s.Queues["orders"] {
				done += p.Done
			}
			w.want(name+": done", done, 135)
			for _, p := range s.All {
				if p.Enqueued < 0 || p.Done < 0 || p.Failed < 0 || p.Dead < 0 || p.Waiting < 0 || p.Oldest < 0 {
					t.Errorf("%s: a point is %+v", name, p)
				}
			}
		}
	}
}
