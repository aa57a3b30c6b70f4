//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// tenants is a storage in which each task that is inserted has its tenant for its partition: the part of its
// id before the dot.
type tenants struct{ storage.Storage }

// Spans passes on the optional ability of the storage.
func (s tenants) Spans(queues ...string) bool { return storage.Spans(s.Storage, queues...) }

func (s tenants) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	for i := range txs {
		for j := range txs[i].Inserts {
			in := &txs[i].Inserts[j]
			in.Partition, _, _ = strings.Cut(in.Ref.ID, ".")
		}
	}
	return s.Storage.Apply(ctx, call, txs...)
}

// tenantTest is a queue in which one tenant has thousands of tasks, beside small tenants with one task each,
// and the runners that are killed.
type tenantTest struct {
	*fleet

	runner  workerConfig
	workers []*worker
	small   map[storage.Ref]time.Time // when the enqueue of each was sent
	killed  []time.Time
}

// tenantJob is the job of all tenants.
func tenantJob() stepJob { return steps(sleep(30 * time.Millisecond)) }

// fill enqueues n tasks of the big tenant.
func (f *tenantTest) fill(n int) {
	f.t.Helper()
	for from := 0; from < n; from += 500 {
		var items []midge.Item
		for i := from; i < min(from+500, n); i++ {
			id := midge.ID(fmt.Sprintf("big.%05d", i))
			items = append(items, midge.New(tenantJob(), midge.To("q"), id, midge.CrashLimit(50)))
		}
		_, err := f.client.EnqueueMany(f.t.Context(), items)
		must(f.t, err)
	}
}

// come enqueues tasks of n new small tenants, one after the other.
func (f *tenantTest) come(n int) {
	f.t.Helper()
	for range n {
		id := fmt.Sprintf("small%d.task", len(f.small))
		sent := time.Now()
		f.small[f.enqueue("q", id, tenantJob(), midge.CrashLimit(50))] = sent
		<-time.NewTimer(50 * time.Millisecond).C
	}
}

// soon is how long the task of a small tenant may take to start while no runner is killed, and mostBefore how many
// tasks of the big tenant may start in that time: the tasks that the runners have claimed ahead, and its
// turns.
const (
	soon       = 2 * time.Second
	mostBefore = 200
)

// quiet has small tenants come while no runner is killed.
func (f *tenantTest) quiet(n int) {
	f.t.Helper()
	f.come(n)
	f.await("all small tenants have started", soon, func(h history) bool {
		return len(h.of(runStart).where(func(e *event) bool { return strings.HasPrefix(e.Ref.ID, "small") }).refs()) == n
	})
}

// waitingOf returns how many tasks of a tenant wait.
func (f *tenantTest) waitingOf(key string) int64 {
	f.t.Helper()
	page, err := f.store.Partitions(f.t.Context(), storage.PartitionsQuery{Queue: "q", Key: key})
	must(f.t, err)
	if len(page.Partitions) == 0 {
		return 0
	}
	return page.Partitions[0].Waiting
}

// started fails the test if the task of a small tenant did not start soon. A task that was held by a runner
// which was killed starts once its lease has ended. The claims of others between its insert and its claim are those
// by the storage's clock, because a busy machine may hold up the process that has claimed it.
func (f *tenantTest) started(h history, tasks map[string]storage.Task, lease time.Duration) {
	f.t.Helper()
	var slowest time.Duration
	begun, taken, others := make(map[storage.Ref]time.Time), make(map[storage.Ref]time.Time), 0
	var big []time.Time
	for _, e := range h.of(runStart) {
		if _, ok := begun[e.Ref]; !ok {
			begun[e.Ref] = e.At
		}
	}
	for _, e := range h.of(claimed) {
		if _, small := f.small[e.Ref]; !small {
			big = append(big, e.Claimed)
		} else if first, ok := taken[e.Ref]; !ok || e.Claimed.Before(first) {
			taken[e.Ref] = e.Claimed
		}
	}
	slices.SortFunc(big, time.Time.Compare)
	for ref, sent := range f.small {
		at, ok := begun[ref]
		most, took, hit := soon, at.Sub(sent), false
		for _, k := range f.killed {
			if k.After(sent) && k.Before(at) {
				most, hit = soon+lease+takeover, true
			}
		}
		slowest = max(slowest, took)
		from, _ := slices.BinarySearchFunc(big, tasks[ref.ID].Created, time.Time.Compare)
		to, _ := slices.BinarySearchFunc(big, taken[ref], time.Time.Compare)
		if others = max(others, to-from); to-from > mostBefore && !hit {
			f.t.Errorf("%s: %d tasks of the big tenant were claimed before it, want at most %d", ref, to-from, mostBefore)
		}
		if !ok || took > machine.Stretch(most, sent) {
			f.t.Errorf("%s: started %v, after %v, want it within %v beside a big tenant", ref, ok, took, most)
		}
	}
	f.t.Logf("%d small tenants, of which the slowest started after %v, and one after %d others",
		len(f.small), slowest.Round(time.Millisecond), others)
}

// onceAnAttempt fails the test unless each task has completed, and each of its runs was that of one attempt.
func onceAnAttempt(t *testing.T, h history, tasks map[string]storage.Task) {
	t.Helper()
	type run struct {
		id    string
		fence int64
	}
	attempts, runs := make(map[run]bool), make(map[run]int)
	for id, task := range tasks {
		if tenant, _, _ := strings.Cut(id, "."); task.State != storage.Completed || task.Partition != tenant {
			t.Errorf("%s is %s in partition %q, want completed in %q", task.Ref, task.State, task.Partition, tenant)
		}
		for _, a := range task.Attempts {
			attempts[run{id, a.Version}] = true
		}
	}
	for _, e := range h.of(runStart) {
		r := run{e.Ref.ID, e.Fence}
		if runs[r]++; runs[r] > 1 || !attempts[r] {
			t.Errorf("%s ran %d times under fence %d, which is an attempt: %v; want once for an attempt",
				e.Ref, runs[r], e.Fence, attempts[r])
		}
	}
}

// TestASmallTenantStartsSoon checks that the tasks of small tenants start soon while a big tenant has thousands
// that wait in the same queue, and that each task runs once for each attempt, while runners are killed.
func TestASmallTenantStartsSoon(t *testing.T) {
	eachStorage(t, func(t *testing.T, s *server) {
		const runners, each = 5, 5
		big, kills := count(2_000, 20_000), count(3, 40)
		if s.kind == oneFile { // whose leases are five times as long
			kills = count(2, 20)
		}
		f := newFleet(t, s)
		var err error
		f.client, err = midge.NewClient(tenants{newRecordingStorage(f.store, f.rec)}, midge.ClientConfig{Patience: loadPatience})
		must(t, err)
		test := &tenantTest{
			fleet: f, small: make(map[storage.Ref]time.Time),
			runner: workerConfig{Queues: []string{"q"}, Concurrency: 4, Lease: s.lease()},
		}
		test.fill(big)
		for range runners {
			test.workers = append(test.workers, f.start(test.runner))
		}
		f.awaitWhat("", runStart, 4*runners, 20*time.Second)
		test.quiet(2 * each)
		for n := range kills {
			test.come(each)
			test.killed = append(test.killed, time.Now())
			test.workers[n%runners].kill()
			test.workers[n%runners] = f.start(test.runner)
		}
		left := test.waitingOf("big")
		if t.Logf("the big tenant had %d waiting tasks when the last small one came", left); left < 200 {
			t.Error("the big tenant had too few tasks: a test that proves nothing")
		}
		awaitDrained(t, f.store, "q", 60*time.Second)
		h, tasks := f.history(), tasksOf(t, f.store, "q")
		checkRuns(t, h)
		checkTotals(t, f.store, "q", tasks)
		onceAnAttempt(t, h, tasks)
		test.started(h, tasks, s.lease())
		if want := big + len(test.small); len(tasks) != want {
			t.Errorf("tasks: got %d, want %d", len(tasks), want)
		}
	})
}
