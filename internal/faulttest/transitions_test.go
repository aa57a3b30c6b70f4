//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// fault describes which storage calls fail, and how.
type fault struct {
	name  string
	after bool  // the call happens, but its reply is lost
	err   error // nil for an unknown outcome
	hits  func(n int64) bool
}

func (f fault) on(store storage.Storage) *hooked {
	h := &hooked{Storage: store}
	fail := func(n int64, verb string) error {
		switch {
		case f.hits == nil || !f.hits(n):
			return nil
		case f.err != nil:
			return fmt.Errorf("faulttest: call %d, %s: %w", n, verb, f.err)
		}
		return lost(n, verb)
	}
	if f.after {
		h.after = fail
	} else {
		h.before = fail
	}
	return h
}

func only(n int64) func(int64) bool  { return func(m int64) bool { return m == n } }
func every(k int64) func(int64) bool { return func(m int64) bool { return m%k == 0 } }

// TestEveryTransitionIsOneStep checks, in process and in virtual time, that no storage call that
// fails leaves a task between two states. Each storage call of a client and a runner fails
// once, before it happens and after, and then every second, third and fifth of them.
func TestEveryTransitionIsOneStep(t *testing.T) {
	testserver.Parallel(t)
	calls := transitionsInBubble(t, fault{name: "none"})
	t.Logf("a run without faults makes %d storage calls", calls)
	for n := range calls {
		for _, after := range []bool{false, true} {
			transitionsInBubble(t, fault{name: fmt.Sprintf("call %d", n+1), after: after, hits: only(n + 1)})
		}
	}
	for _, k := range []int64{2, 3, 5} {
		for _, after := range []bool{false, true} {
			transitionsInBubble(t, fault{name: fmt.Sprintf("every %d", k), after: after, hits: every(k)})
		}
		transitionsInBubble(t, fault{name: fmt.Sprintf("every %d refused", k), err: storage.ErrRefused, hits: every(k)})
	}
}

// transitionsInBubble drives all verbs on the memory storage under a fault, and returns the
// number of storage calls.
func transitionsInBubble(t *testing.T, f fault) (calls int64) {
	t.Helper()
	name := f.name
	if f.after {
		name += ", after it happened"
	}
	t.Run(name, func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			store, err := memory.Open(memory.Config{})
			must(t, err)
			calls = driveTransitions(t, store, "q", dir, 3*time.Second, f)
			must(t, store.Close())
		})
	})
	return calls
}

// TestEveryTransitionIsOneStepOnServers is the same test on real servers, with every second and
// third call failing.
func TestEveryTransitionIsOneStepOnServers(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		transitionsInTime(t, func(t *testing.T) dialing { return s.place(t) })
	})
}

// TestEveryTransitionIsOneStepOnMiniredis is the same test on miniredis, which needs no server.
func TestEveryTransitionIsOneStepOnMiniredis(t *testing.T) {
	t.Parallel()
	transitionsInTime(t, func(t *testing.T) dialing { return dialing{Addrs: []string{miniredis.RunT(t).Addr()}} })
}

// transitionsInTime drives all verbs in real time, with every second and third call failing. No
// process dies here, so no lease has to run out: the lease is longer than any delay by a
// busy machine.
func transitionsInTime(t *testing.T, where func(t *testing.T) dialing) {
	t.Helper()
	for _, k := range []int64{2, 3} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("every-%d-after-%t", k, after), func(t *testing.T) {
				testserver.Parallel(t)
				store, err := where(t).open(t.Context())
				must(t, err)
				driveTransitions(t, store, "q", t.TempDir(), time.Minute, fault{after: after, hits: every(k)})
				must(t, store.Close())
			})
		}
	}
}

// driveTransitions drives all verbs on a storage whose calls fail, and checks the outcome of each
// task. It returns the number of storage calls.
func driveTransitions(t *testing.T, store storage.Storage, queue, dir string, lease time.Duration, f fault) (calls int64) {
	t.Helper()
	path := filepath.Join(dir, "events.jsonl")
	rec, err := newRecorder("both", path)
	must(t, err)
	faulty := f.on(store)
	w := &workerProcess{
		cfg: workerConfig{Queues: []string{queue}, Concurrency: 4, Lease: lease, Grace: time.Second, Every: tickEvery},
		rec: rec, store: newRecordingStorage(faulty, rec), gates: newGates(),
	}
	client := &workerProcess{cfg: w.cfg, rec: rec, store: w.store, gates: w.gates}
	if f.err != nil { // users handle refusals themselves, so only the runner's calls are refused
		client.store = newRecordingStorage(store, rec)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := w.runRunner(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	})
	if err := driveVerbs(ctx, client); err != nil {
		t.Errorf("drive: %v", err)
	} else {
		w.awaitIdle(ctx, store)
	}
	stop()
	running.Wait()
	must(t, rec.close())
	events := &record{path: path}
	defer events.close()
	h, err := events.read()
	must(t, err)
	checkTransitions(t, store, queue, h, f.err != nil)
	if f.err == nil { // repeated refusals of extensions and settles can cost leases
		checkExactRuns(t, h)
	}
	return faulty.calls.Load()
}

// checkTransitions checks that every task of driveVerbs is in its expected state, committed
// once. refused is true if calls were refused, which nobody repeats.
func checkTransitions(t *testing.T, store storage.Storage, queue string, h history, refused bool) {
	t.Helper()
	checkRuns(t, h)
	tasks := tasksOf(t, store, queue)
	checkTotals(t, store, queue, tasks)
	checkFollowUps(t, tasks, func(id string) bool { return expected[id].follows })
	acknowledged := h.of(enqueueDone).refs()
	for id, want := range expected {
		task, found := tasks[id]
		switch {
		case !acknowledged[storage.Ref{Queue: queue, ID: id}] && !found:
		case id == "stepped" && refused: // its last steps need more calls in a row than are accepted
		case !found && want.state != "":
			t.Errorf("%s/%s is lost, want it %s", queue, id, want.state)
		case found && task.State != want.state:
			t.Errorf("%s is %s (%s), want %q", task.Ref, task.State, task.Reason, want.state)
		}
	}
	checkTicks(t, tasks)
}

// checkExactRuns checks that each task ran exactly as often as expected.
func checkExactRuns(t *testing.T, h history) {
	t.Helper()
	for id, want := range expected {
		starts := h.of(runStart).where(func(e *event) bool { return e.Ref.ID == id })
		runs := want.runs
		if id == "stepped" && overslept(h) {
			runs--
		}
		if len(starts) != runs {
			t.Errorf("%s ran %d times, want %d", id, len(starts), runs)
		}
	}
}

// overslept reports whether the nap of the task "stepped" was over once it was stored, as on a busy machine. The
// attempt that stored it then goes on, and needs no second one.
func overslept(h history) bool {
	after := make(map[int64]time.Time) // by fence, the end of step "a", behind which the nap begins
	for _, e := range h.of(stepDone) {
		switch from, found := after[e.Fence]; {
		case e.Ref.ID != "stepped":
		case e.Step == "a":
			after[e.Fence] = e.At
		case e.Step == "b" && found && e.At.Sub(from) > napLength-slack:
			return true
		}
	}
	return false
}

// tickEvery is the interval of the schedules of these tests.
const tickEvery = time.Second

// checkTicks checks that there is exactly one task for each tick between the first and the
// last, and returns the number of ticks.
func checkTicks(t *testing.T, tasks map[string]storage.Task) int {
	t.Helper()
	return checkTicksBut(t, tasks, 0)
}

// checkTicksBut is like checkTicks, but allows the given number of gaps.
func checkTicksBut(t *testing.T, tasks map[string]storage.Task, gaps int) int {
	t.Helper()
	ticks := make(map[time.Time]int)
	for _, task := range tasks {
		if task.Kind != "tick" || task.State == storage.Cursors {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, task.Headers["midge.tick"])
		must(t, err)
		ticks[at]++
	}
	moments := slices.SortedFunc(maps.Keys(ticks), time.Time.Compare)
	for i, at := range moments {
		if n := ticks[at]; n != 1 {
			t.Errorf("the tick of %v has %d tasks, want 1", clock(at), n)
		}
		if i == 0 {
			continue
		}
		switch since := at.Sub(moments[i-1]); {
		case since%tickEvery != 0:
			t.Errorf("a task for %v, which is no tick", at)
		case since == tickEvery:
		case gaps > 0:
			gaps--
		default:
			t.Errorf("the ticks between %v and %v have no task", clock(moments[i-1]), clock(at))
		}
	}
	return len(moments)
}

// TestDeathAtEveryStorageCall is the same test with processes: each is killed at another
// storage call, before or after the call happens, while it enqueues, runs and ticks. One
// survivor then takes over everything that they left behind.
func TestDeathAtEveryStorageCall(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		f := newFleet(t, s)
		const most = 60 // more than any call of a runner's or client's first two seconds
		step := int64(1)
		if s.kind == onePostgres { // whose processes and connections take longer to begin
			step = int64(count(4, 1))
		}
		var queues []string
		var victims []*worker
		atOnce := make(chan struct{}, 4)
		for call := int64(1); call <= most; call += step {
			for _, after := range []bool{false, true} {
				queue := fmt.Sprintf("q-%d-%t", call, after)
				queues = append(queues, queue)
				atOnce <- struct{}{}
				v := f.start(workerConfig{
					Name: queue, Queues: []string{queue}, Concurrency: 4, Lease: time.Second, Grace: time.Second,
					Every: tickEvery, KillAt: killPoint{Call: call, After: after}, Client: "verbs", IdleExit: true,
				})
				victims = append(victims, v)
				go func() { <-v.done; <-atOnce }()
			}
		}
		for _, v := range victims {
			v.ended(t, time.Minute)
		}
		killed := 0
		for _, v := range victims {
			if v.state.ExitCode() == -1 {
				killed++
			}
		}
		t.Logf("%d of %d processes died at their call", killed, len(victims))
		if least := len(victims) / 2; killed < least {
			t.Errorf("%d processes died at a storage call, want at least %d", killed, least)
		}
		begun := time.Now()
		survivor := f.start(workerConfig{
			Name: "survivor", Queues: queues, Concurrency: 20, Lease: 2 * time.Second, Grace: time.Second,
		})
		f.openGate("never opened") // the gate of tasks that nobody cancels any more
		for _, queue := range queues {
			awaitDrained(t, f.store, queue, 30*time.Second)
		}
		t.Logf("drained %v after the survivor's start", time.Since(begun).Round(time.Millisecond))
		survivor.terminate()
		survivor.ended(t, 5*time.Second)
		h := f.history()
		again := h.of(runStart).by("survivor").where(func(e *event) bool { return e.Crashes > 0 })
		t.Logf("%d tasks had been acknowledged; %d that were running were run again", len(h.of(enqueueDone).refs()), len(again.refs()))
		if len(again) == 0 {
			t.Error("no task was running when its process died, which proves nothing")
		}
		for _, queue := range queues {
			checkSurvived(t, f.store, queue, h.where(func(e *event) bool { return e.Ref.Queue == queue }))
		}
	})
}

// checkSurvived checks the outcomes of the tasks of a process that was killed. Cancels,
// requeues and deletes that the process did not reach may be missing.
func checkSurvived(t *testing.T, store storage.Storage, queue string, h history) {
	t.Helper()
	checkRuns(t, h)
	tasks := tasksOf(t, store, queue)
	checkTotals(t, store, queue, tasks)
	checkFollowUps(t, tasks, func(id string) bool { return expected[id].follows })
	acknowledged := h.of(enqueueDone).refs()
	for ref := range acknowledged {
		want := expected[ref.ID].state
		task, found := tasks[ref.ID]
		switch {
		case strings.HasPrefix(ref.ID, followPrefix):
		case !found && want != "":
			t.Errorf("%s is lost, want it %s", ref, want)
		case found && task.State == storage.Scheduled && task.Due.After(time.Now().Add(time.Minute)): // far
		case found && ref.ID == "stopped" && task.State == storage.Completed: // nobody cancelled it
		case found && task.State != want:
			t.Errorf("%s is %s (%s), want %q", ref, task.State, task.Reason, want)
		}
	}
	checkTicks(t, tasks)
}

// awaitDrained waits until a queue has no live tasks, except tasks that wait for a moment
// more than a minute away. It counts the tasks before and after it lists them, so that no task
// moves unseen between two lists.
func awaitDrained(t *testing.T, store storage.Storage, queue string, limit time.Duration) {
	t.Helper()
	awaitDrainedBut(t, store, queue, limit, 0)
}

// awaitDrainedBut is like awaitDrained, but allows the given number of live tasks that
// cannot be listed.
func awaitDrainedBut(t *testing.T, store storage.Storage, queue string, limit time.Duration, unlisted int64) {
	t.Helper()
	var last storage.Stats
	drained := poll(limit, func() bool {
		is, now, err := isDrained(t.Context(), store, queue, unlisted)
		if unanswered(err) {
			return false
		}
		must(t, err)
		last = now
		return is
	})
	if !drained {
		t.Fatalf("queue %s is not drained after %v: %+v", queue, limit, last)
	}
}

// isDrained reports whether a queue has no live tasks except for the tasks that awaitDrainedBut allows, and
// returns the sizes and totals of the queue.
func isDrained(ctx context.Context, store storage.Storage, queue string, unlisted int64) (bool, storage.Stats, error) {
	description, err := store.Describe(ctx)
	if err != nil {
		return false, storage.Stats{}, err
	}
	soon := description.Now.Add(time.Minute)
	before, err := store.Stats(ctx, queue)
	if err != nil {
		return false, storage.Stats{}, err
	}
	later := int64(0)
	for _, state := range []storage.State{storage.Waiting, storage.Scheduled, storage.Retry, storage.Pending} {
		for task, err := range storage.Each(ctx, store, queue, state) {
			if err != nil {
				return false, before[0], err
			}
			if state == storage.Waiting && isDamaged(task.ID) { // an unlisted task that was listed again
				continue
			}
			if task.Due.Before(soon) && task.LeaseUntil.Before(soon) {
				return false, before[0], nil
			}
			later++
		}
	}
	stats, err := store.Stats(ctx, queue)
	if err != nil {
		return false, before[0], err
	}
	last := stats[0]
	moved := slices.ContainsFunc(storage.TaskStates(), func(s storage.State) bool { return last.Size(s) != before[0].Size(s) })
	return last.Live() <= later+unlisted && last.Totals == before[0].Totals && !moved, last, nil
}
