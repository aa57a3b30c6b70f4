//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// liveRun is the time in which a task surely ran under a live lease, as its process knew it.
type liveRun struct {
	ref      storage.Ref
	from, to time.Time
}

// liveSpans returns for each run the time from its start to its end, or to the last moment at which its lease
// surely held: the lease began no earlier than its call was sent.
func liveSpans(h history) []liveRun {
	type run struct {
		ref   storage.Ref
		fence int64
	}
	held, ends := make(map[run]time.Time), make(map[run]time.Time)
	for _, e := range h {
		key := run{e.Ref, e.Fence}
		switch e.What {
		case claimed, extended:
			if until := e.From.Add(e.For); until.After(held[key]) {
				held[key] = until
			}
		case settleBegun:
			if ends[key].IsZero() {
				ends[key] = e.At
			}
		}
	}
	var spans []liveRun
	for _, e := range h.of(runStart) {
		key := run{e.Ref, e.Fence}
		to := held[key]
		if end := ends[key]; !end.IsZero() && end.Before(to) {
			to = end
		}
		if to.After(e.At) {
			spans = append(spans, liveRun{e.Ref, e.At, to})
		}
	}
	return spans
}

// mostAtOnce returns how many of the spans overlap at most, and since when.
func mostAtOnce(spans []liveRun) (most int, at time.Time) {
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for _, s := range spans {
		edges = append(edges, edge{s.from, 1}, edge{s.to, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if order := a.at.Compare(b.at); order != 0 {
			return order
		}
		return a.by - b.by
	})
	n := 0
	for _, e := range edges {
		if n += e.by; n > most {
			most, at = n, e.at
		}
	}
	return most, at
}

// TestMostAtOnce checks the outside ledger itself: spans that touch do not overlap.
func TestMostAtOnce(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	spans := []liveRun{{from: at(0), to: at(5)}, {from: at(5), to: at(9)}, {from: at(3), to: at(6)}, {from: at(4), to: at(5)}}
	if most, since := mostAtOnce(spans); most != 3 || !since.Equal(at(4)) {
		t.Errorf("at once: got %d since %v, want 3 since %v", most, since, at(4))
	}
}

// limited sets the limit of the queue q.
func limited(t *testing.T, f *fleet, l storage.Limit) {
	t.Helper()
	must(t, storage.NewSession(f.store, loadPatience).Configure(t.Context(), "q",
		storage.Settings{Limit: &storage.OperatorLimit{On: true, Limit: l}}))
}

// backlog enqueues jobs into q, in calls of a hundred.
func backlog(t *testing.T, f *fleet, n int, job stepJob) {
	t.Helper()
	for from := 0; from < n; from += 100 {
		var items []midge.Item
		for i := from; i < min(from+100, n); i++ {
			items = append(items, midge.New(job, midge.To("q"), midge.ID(fmt.Sprintf("t%05d", i)), midge.CrashLimit(50), midge.KeepFor(time.Hour)))
		}
		_, err := f.client.EnqueueMany(t.Context(), items)
		must(t, err)
	}
}

// price sets these costs of the waiting tasks of q, in turn.
func price(t *testing.T, f *fleet, costs ...storage.Cost) {
	t.Helper()
	var txs []storage.Tx
	for task, err := range storage.Each(t.Context(), f.store, "q", storage.Waiting) {
		must(t, err)
		txs = append(txs, storage.Tx{Changes: []storage.Change{
			{Ref: task.Ref, Version: task.Version, Cost: &costs[len(txs)%len(costs)]},
		}})
	}
	for some := range slices.Chunk(txs, 100) {
		applied, err := storage.NewSession(f.store, loadPatience).Apply(t.Context(), some...)
		must(t, err)
		for _, a := range applied {
			must(t, a.Err)
		}
	}
}

// pendingIn returns how many tasks of q are pending.
func pendingIn(t *testing.T, f *fleet) int64 {
	t.Helper()
	stats, err := f.store.Stats(context.WithoutCancel(t.Context()), "q")
	must(t, err)
	return stats[0].Pending
}

// limitTest is a queue at its limit, or one of its partitions, and the runners that are killed and frozen.
type limitTest struct {
	*fleet

	limit   int
	options []midge.Option // of all tasks
	runner  workerConfig
	workers []*worker
	jobs    int
}

// more enqueues jobs, so that the queue never runs empty.
func (l *limitTest) more() {
	l.t.Helper()
	stats, err := l.store.Stats(l.t.Context(), "q")
	must(l.t, err)
	if stats[0].Waiting >= int64(10*l.limit) {
		return
	}
	for range 20 * l.limit {
		l.enqueue("q", fmt.Sprintf("t%06d", l.jobs), steps(sleep(50*time.Millisecond)), l.options...)
		l.jobs++
	}
}

// replace kills a runner and starts another one.
func (l *limitTest) replace(i int) {
	l.t.Helper()
	l.workers[i].kill()
	l.workers[i] = l.start(l.runner)
}

// thaw freezes a runner for longer than its leases.
func (l *limitTest) thaw(w *worker) {
	l.t.Helper()
	freezeIdle(l.t, l.fleet, w)
	<-time.NewTimer(l.runner.Lease + l.runner.Lease/2).C
	w.resume()
}

// slotsComeBack kills all runners and checks that a new one soon runs as many jobs as the limit allows.
func (l *limitTest) slotsComeBack() {
	l.t.Helper()
	for _, w := range l.workers {
		w.kill()
	}
	killed := time.Now()
	for i := range l.limit {
		l.enqueue("q", fmt.Sprint("last-", i), steps(gate("end")), append(l.options, midge.Priority(9))...)
	}
	l.start(l.runner)
	l.await("all slots are back", l.runner.Lease+takeover, func(h history) bool {
		last := h.of(runStart).where(func(e *event) bool { return strings.HasPrefix(e.Ref.ID, "last-") })
		return len(last.refs()) == l.limit // some may have started twice
	})
	l.t.Logf("all %d slots were back after %v", l.limit, time.Since(killed).Round(time.Millisecond))
	l.openGate("end")
}

// TestALimitOutlivesKills checks that never more tasks of a queue run at once under live leases than its limit
// allows, while runners are killed and frozen, and that all slots are free soon after.
func TestALimitOutlivesKills(t *testing.T) {
	limitOutlivesKills(t, storage.Limit{Concurrency: limitOfKills}, count(10, 100), count(5, 50), midge.CrashLimit(50))
}

// TestALimitOfPartitionsOutlivesKills checks the same of a partition, and that no slot of it leaks.
func TestALimitOfPartitionsOutlivesKills(t *testing.T) {
	l := storage.Limit{Partition: storage.PartitionLimit{Concurrency: limitOfKills}}
	limitOutlivesKills(t, l, count(4, 100), count(2, 50), midge.CrashLimit(50), midge.Partition("acme"))
}

// limitOfKills is the limit of these tests.
const limitOfKills = 10

func limitOutlivesKills(t *testing.T, bound storage.Limit, kills, freezes int, options ...midge.Option) {
	eachStorage(t, func(t *testing.T, s *server) {
		const limit, runners = limitOfKills, 3
		if s.kind == oneFile { // whose leases, and so the freezes, are five times as long
			freezes = count(min(freezes, 2), freezes)
		}
		f := newFleet(t, s)
		limited(t, f, bound)
		l := &limitTest{
			fleet: f, limit: limit, options: slices.Clip(options),
			runner: workerConfig{Queues: []string{"q"}, Concurrency: 2 * limit, Lease: s.lease()},
		}
		l.more()
		for range runners {
			l.workers = append(l.workers, l.start(l.runner))
		}
		l.awaitWhat("", runStart, limit, 10*time.Second)
		for n := range kills {
			l.more()
			l.replace(n % runners)
			if n < freezes {
				l.thaw(l.workers[(n+1)%runners])
			}
			<-time.NewTimer(100 * time.Millisecond).C
			if n := pendingIn(t, f); n > limit {
				t.Fatalf("pending: got %d, want at most %d", n, limit)
			}
		}
		l.slotsComeBack()
		awaitDrained(t, f.store, "q", 2*time.Minute)
		if n := pendingIn(t, f); n != 0 {
			t.Errorf("pending at the end: got %d, want none", n)
		}
		page, err := f.store.Partitions(t.Context(), storage.PartitionsQuery{Queue: "q"})
		must(t, err)
		if len(page.Partitions) > 0 {
			t.Errorf("partitions at the end: got %+v, want none", page.Partitions)
		}
		most, at := mostAtOnce(liveSpans(f.history()))
		t.Logf("%d kills, %d freezes, %d jobs: %d at once at most", kills, freezes, l.jobs+limit, most)
		if most != limit {
			t.Errorf("at once: got at most %d, at %v, want all %d slots in use and no more", most, at, limit)
		}
	})
}

// TestARateOutlivesKills checks by the storage's moments of all claims that in any span of a rate the starts cost
// no more than it allows, and nearly as much under a backlog, while runners are killed.
func TestARateOutlivesKills(t *testing.T) {
	eachStorage(t, func(t *testing.T, s *server) {
		const n, runners = 100, 3
		per, kills, spans := time.Duration(count(5, 60))*time.Second, count(4, 30), count(4, 3)
		f := newFleet(t, s)
		limited(t, f, storage.Limit{Rate: storage.Rate{N: n, Per: per}})
		backlog(t, f, n*(spans+kills+3), steps())
		price(t, f, 0, storage.NoCost, maxPrice, 0, 2, 0)
		runner := workerConfig{Queues: []string{"q"}, Concurrency: 20, Lease: s.lease()}
		var workers []*worker
		for range runners {
			workers = append(workers, f.start(runner))
		}
		begun := time.Now()
		pause := time.Duration(spans) * per / time.Duration(kills)
		for k := range kills {
			<-time.NewTimer(pause).C
			i := k % runners
			workers[i].kill()
			workers[i] = f.start(runner)
		}
		took := time.Since(begun)
		for _, w := range workers {
			w.terminate()
		}
		for _, w := range workers {
			w.ended(t, 20*time.Second)
		}
		checkRate(t, allStarts(t, f), n, per, begun, took)
	})
}

// maxPrice is the most that a start costs in TestARateOutlivesKills.
const maxPrice = 3

// pricedStart is a claim of a task of some cost.
type pricedStart struct {
	at   time.Time // the storage's moment
	cost int
}

// costOf returns the cost of starts together.
func costOf(starts []pricedStart) (sum int) {
	for _, s := range starts {
		sum += s.cost
	}
	return sum
}

// allStarts returns all claims of q in order: the claims that the runners recorded, and the claims of runners
// that were killed before they could, as the storage remembers them.
func allStarts(t *testing.T, f *fleet) []pricedStart {
	t.Helper()
	type start struct {
		id      string
		version int64
	}
	found := make(map[start]pricedStart)
	tasks := tasksOf(t, f.store, "q")
	note := func(id string, version int64, at time.Time) {
		found[start{id, version}] = pricedStart{at, tasks[id].Cost.N()}
	}
	for _, e := range f.history().of(claimed) {
		if e.Ref.Queue != "q" {
			continue
		}
		if e.Ahead {
			t.Errorf("%s: claimed ahead, want every task of a queue with a limit started", e.Ref)
		}
		note(e.Ref.ID, e.Fence, e.Claimed)
	}
	for id, task := range tasks {
		if task.State == storage.Pending {
			note(id, task.Version, task.Claimed)
		}
		for _, a := range task.Attempts {
			note(id, a.Version, a.Claimed)
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b pricedStart) int { return a.at.Compare(b.at) })
}

// checkRate checks the costs and the moments of all claims, of runners that began at a moment. A full span begins
// with the first start after the span before.
func checkRate(t *testing.T, starts []pricedStart, n int, per time.Duration, begun time.Time, took time.Duration) {
	t.Helper()
	if len(starts) == 0 {
		t.Fatal("starts: got none")
	}
	for end, first := 0, 0; end < len(starts); end++ {
		for starts[end].at.Sub(starts[first].at) >= per {
			first++
		}
		if cost := costOf(starts[first : end+1]); cost > n {
			t.Errorf("starts from %v to %v: got a cost of %d, want at most %d in %v", starts[first].at, starts[end].at,
				cost, n, per)
		}
	}
	// least is the cost of each full span, and late is how late the next may begin.
	least, late := n-5-maxPrice, time.Second
	last := starts[0].at.Add(took)
	for first := 0; first < len(starts) && !starts[first].at.Add(per).After(last); {
		from := starts[first].at
		end, _ := slices.BinarySearchFunc(starts, from.Add(per), func(s pricedStart, at time.Time) int {
			return s.at.Compare(at)
		})
		if cost := costOf(starts[first:end]); cost < least {
			t.Errorf("starts from %v on: got a cost of %d in %v, want at least %d", from, cost, per, least)
		}
		if bound := machine.Stretch(late, begun); end < len(starts) && starts[end].at.Sub(from) > per+bound {
			t.Errorf("starts after %v: got the next at %v, want it within %v", from.Add(per), starts[end].at, bound)
		}
		first = end
	}
	t.Logf("%d starts, which cost %d, in %v", len(starts), costOf(starts), took.Round(time.Millisecond))
}
