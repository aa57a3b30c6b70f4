package faulttest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// jump is a jump of a server's clock to an offset from the host's clock. If the clock does not
// stay there, it goes back after a second and a half.
type jump struct {
	name  string
	to    time.Duration
	stays bool
}

const (
	jumpFor   = 1500 * time.Millisecond
	jumpLease = 2 * time.Second
	jumpDelay = 2 * time.Second
	jumpBound = jumpLease + 10*time.Second // within which work must go on
)

// TestAJumpOfTheServersClock lets the clock of the server jump while runners work. Tasks that are
// due, fail, snooze, tick or lose their runner must go on within the lease and ten seconds.
// Nothing may expire, be promoted or be recovered too early, and fences and versions must grow.
func TestAJumpOfTheServersClock(t *testing.T) {
	require(t)
	t.Parallel()
	for name, jumps := range map[string][]jump{
		"ahead for a moment, then behind": {{"ahead", 2 * time.Hour, false}, {"behind", -time.Hour, true}},
		"ahead for good":                  {{"ahead", time.Hour, true}},
	} {
		for _, k := range []kind{oneRedis, aCluster, onePostgres} {
			t.Run(string(k)+" "+name, func(t *testing.T) {
				testserver.Parallel(t)
				c, s := underClock(t, k)
				rig := &jumpRig{fleet: newFleet(t, s), clock: c}
				rig.begin()
				for _, j := range jumps {
					rig.jumpOnce(j)
				}
				rig.check()
			})
		}
	}
}

// underClock starts a server for only one test, under a clock that the test moves.
func underClock(t *testing.T, k kind, config ...string) (*testserver.Clock, *server) {
	t.Helper()
	c, err := testserver.StartClock()
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	if k == aCluster { // its nodes would take a jump for a silence
		config = append(config, "cluster-node-timeout 86400000")
	}
	return c, ownServer(t, k, testserver.Options{Config: config, Env: c.Env()})
}

// jumpRig is a fleet under a clock that jumps. Each runner has a queue of its own besides the
// common one, so that the test knows which runner runs which jobs.
type jumpRig struct {
	*fleet
	clock   *testserver.Clock
	runners map[string]*worker
	gaps    int // allowed gaps in the ticks
}

func (r *jumpRig) begin() {
	r.runners = make(map[string]*worker)
	for _, name := range []string{"early", "late", "never"} { // when they are killed
		r.add(name)
	}
	r.awaitWhat("", workerReady, len(r.runners), 20*time.Second)
	r.await("a tick", 20*time.Second, func(h history) bool { return len(ticksOf(h)) > 0 })
}

func (r *jumpRig) add(name string) {
	r.runners[name] = r.start(workerConfig{Queues: []string{"q", name}, Concurrency: 20, Lease: jumpLease, Every: tickEvery})
}

// jumpOnce lets the clock jump once, while work of all kinds is under way.
func (r *jumpRig) jumpOnce(j jump) {
	r.t.Helper()
	before := r.clock.Ahead()
	forward := j.to > before
	long := r.longJobs(j)
	delayed := r.delayed(j.name+"-before", forward)
	kept := r.kept(j, before)
	if forward { // its leases end by the server's clock, which makes that no later
		r.runners["early"].kill()
	}
	r.clock.Set(j.to)
	jumped := time.Now()
	var during []storage.Ref
	for i := range 10 {
		during = append(during, r.enqueue("q", fmt.Sprint(j.name, "-during-", i), do("follow")))
	}
	if !j.stays {
		<-time.NewTimer(jumpFor - time.Since(jumped)).C
		r.clock.Set(before)
	}
	over := time.Now()
	r.goesOn(j, "what came during the jump", over, during)
	if forward {
		if j.stays {
			r.gaps++ // a schedule makes up for at most a hundred ticks
		}
		r.add("early")
		r.goesOn(j, "what was delayed before the jump", over, delayed)
		r.checkNoneEarly(j, delayed)
	}
	delayed = r.delayed(j.name+"-after", true)
	r.goesOn(j, "what was delayed after the jump", time.Now(), delayed)
	r.checkNoneEarly(j, delayed)
	r.checkWarned(j)
	if forward {
		r.goesOnAfter(j, "the schedule", over, func(h history) bool { return len(ticksOf(h.after(over))) > 0 })
		r.takenOver(j, "early", long["early"], over)
	}
	late := r.runners["late"]
	r.await("the late runner extends its leases", 10*time.Second, func(h history) bool {
		return len(h.of(extended).by(late.name).after(over).refs()) >= len(long["late"])
	})
	late.kill()
	killed := time.Now()
	r.add("late")
	r.takenOver(j, "late", long["late"], killed)
	r.openGate("end of " + j.name)
	r.checkKept(j, kept)
	r.checkLong(j, long)
}

// longJobs starts three jobs on each runner that run until the test has finished with the jump.
func (r *jumpRig) longJobs(j jump) map[string][]storage.Ref {
	long := make(map[string][]storage.Ref)
	for name := range r.runners {
		for i := range 3 {
			id := fmt.Sprint(j.name, "-long-", i)
			long[name] = append(long[name], r.enqueue(name, id, steps(gate("end of "+j.name), step{Do: "follow"})))
		}
		r.await("the long jobs run", 10*time.Second, func(h history) bool {
			return len(h.of(runStart).where(among(long[name])).refs()) == len(long[name])
		})
	}
	return long
}

// delayed enqueues tasks that are due in two seconds, and tasks that fail or snooze and come back
// after two seconds. It waits until the storage has their delays.
func (r *jumpRig) delayed(name string, due bool) []storage.Ref {
	if !due {
		return nil // the clock goes back, and a task keeps its due moment
	}
	var refs []storage.Ref
	for i := range 5 {
		id := fmt.Sprint(name, "-", i)
		refs = append(refs,
			r.enqueue("q", "in-"+id, do("follow"), midge.In(jumpDelay)),
			r.enqueue("q", "retried-"+id, steps(step{Do: "fail once", For: jumpDelay}, step{Do: "follow"})),
			r.enqueue("q", "snoozed-"+id, steps(step{Do: "snooze once", For: jumpDelay}, step{Do: "follow"})))
	}
	r.await("what fails and snoozes has", jumpBound, func(h history) bool {
		return len(h.of(settleDone).where(among(refs)).refs()) >= len(refs)*2/3
	})
	return refs
}

// kept enqueues a delayed task, a task that is kept after its end, a unique key and a pause,
// which must all outlast the jump. It returns for how long they hold: half an hour, and longer by
// the jump if the clock stays ahead.
func (r *jumpRig) kept(j jump, before time.Duration) time.Duration {
	span := 30 * time.Minute
	if j.stays {
		span += max(j.to-before, 0)
	}
	r.enqueue("q", j.name+"-far", stepJob{}, midge.In(span))
	short := r.enqueue("q", j.name+"-kept", stepJob{}, midge.KeepFor(span))
	_, err := r.client.Enqueue(r.t.Context(), stepJob{}, midge.To("q"), midge.ID(j.name+"-window"),
		midge.Unique{Key: j.name, For: span})
	must(r.t, err)
	must(r.t, r.client.Queue("paused").Create(r.t.Context()))
	must(r.t, r.client.Queue("paused").PauseFor(r.t.Context(), span))
	r.enqueue("paused", j.name+"-paused", stepJob{})
	r.await("what is kept has ended", 10*time.Second, func(h history) bool {
		return len(h.of(settleDone).about(short)) > 0
	})
	return span
}

// checkWarned checks that Describe warns that the clock was ahead of its present time, if it was.
func (r *jumpRig) checkWarned(j jump) {
	r.t.Helper()
	description, err := r.store.Describe(r.t.Context())
	must(r.t, err)
	wasAhead := j.to <= 0 || !j.stays
	if warned := strings.Contains(strings.Join(description.Warnings, "\n"), "clock"); warned != wasAhead {
		r.t.Errorf("%s: a warning of the clock: %t, want %t; the warnings are %q", j.name, warned, wasAhead, description.Warnings)
	}
}

func (r *jumpRig) checkKept(j jump, span time.Duration) {
	r.t.Helper()
	ctx := r.t.Context()
	want := map[string]storage.State{"far": storage.Scheduled, "kept": storage.Completed}
	for name, state := range want {
		task, err := r.store.Task(ctx, storage.Ref{Queue: "q", ID: j.name + "-" + name})
		if err != nil || task.State != state {
			r.t.Errorf("%s: what was %s for %v is %s, %v; want it %s", j.name, name, span, task.State, err, state)
		}
	}
	again, err := r.client.Enqueue(ctx, stepJob{}, midge.To("q"), midge.Unique{Key: j.name, For: span})
	if err != nil || !again.Existing {
		r.t.Errorf("%s: a unique key held for %v: existing %t, %v; want it held", j.name, span, again.Existing, err)
	}
	stats, err := r.client.Queue("paused").Stats(ctx)
	if err != nil || !stats.Paused {
		r.t.Errorf("%s: a queue paused for %v: paused %t, %v; want it paused", j.name, span, stats.Paused, err)
	}
}

// takenOver checks that the long jobs of a killed runner run again, each charged with one crash.
func (r *jumpRig) takenOver(j jump, name string, long []storage.Ref, since time.Time) {
	r.t.Helper()
	r.goesOnAfter(j, "the jobs of the runner that was killed "+name, since, func(h history) bool {
		crashed := h.of(runStart).where(func(e *event) bool { return e.Crashes == 1 })
		return len(crashed.where(among(long)).refs()) == len(long)
	})
}

// checkLong checks how often the long jobs were started.
func (r *jumpRig) checkLong(j jump, long map[string][]storage.Ref) {
	r.t.Helper()
	h := r.history()
	for name, refs := range long {
		want := 2
		if name == "never" || name == "early" && j.to < 0 {
			want = 1
		}
		for _, ref := range refs {
			if runs := h.of(runStart).about(ref); !h.exactly(len(runs), want) {
				r.t.Errorf("%s: %s was started %d times, want %d:\n%v", j.name, ref, len(runs), want, runs)
			}
		}
	}
}

// goesOn waits until each of the tasks has completed, within jumpBound after the given moment.
func (r *jumpRig) goesOn(j jump, what string, since time.Time, refs []storage.Ref) {
	r.t.Helper()
	var left []string
	r.goesOnAfter(j, what, since, func(h history) bool {
		left = r.unended(h, refs)
		return len(left) == 0
	})
	if len(left) > 0 {
		r.t.Errorf("%s: %s: these tasks did not end: %v", j.name, what, left)
	}
}

// unended returns the tasks that have not completed, with their states. A killed runner may have
// completed a task and died before it recorded that, so the storage is asked too.
func (r *jumpRig) unended(h history, refs []storage.Ref) (left []string) {
	r.t.Helper()
	ended := h.of(settleDone).where(func(e *event) bool { return e.State == storage.Completed }).refs()
	for _, ref := range refs {
		if ended[ref] {
			continue
		}
		task, err := r.store.Task(r.t.Context(), ref)
		if err != nil {
			again, later := r.store.Task(r.t.Context(), ref)
			r.t.Fatalf("%v; read again it is %s, %v; its events:\n%v", err, again.State, later, r.history().about(ref))
		}
		if task.State != storage.Completed {
			left = append(left, fmt.Sprintf("%s is %s", ref, task.State))
		}
	}
	return left
}

// checkNoneEarly checks that delayed tasks did not complete before their delay had passed. The
// server's clock decides when a task is due, but a short jump must not count as passed time.
func (r *jumpRig) checkNoneEarly(j jump, refs []storage.Ref) {
	r.t.Helper()
	h := r.history().where(among(refs))
	for _, ref := range refs {
		own := h.about(ref)
		for _, e := range own.of(settleDone) {
			if took := e.At.Sub(own[0].At); e.State == storage.Completed && took < jumpDelay {
				r.t.Errorf("%s: %s ended after %v, want %v at least", j.name, ref, took, jumpDelay)
			}
		}
	}
}

func (r *jumpRig) goesOnAfter(j jump, what string, since time.Time, holds func(h history) bool) {
	r.t.Helper()
	if !poll(time.Until(since.Add(jumpBound)), func() bool { return holds(r.history()) }) {
		r.t.Errorf("%s: %s stood still for %v", j.name, what, time.Since(since).Round(time.Millisecond))
		return
	}
	r.t.Logf("%s: %s went on within %v", j.name, what, time.Since(since).Round(time.Millisecond))
}

func (r *jumpRig) check() {
	r.t.Helper()
	for _, q := range []string{"q", "early", "late", "never"} {
		awaitDrained(r.t, r.store, q, 30*time.Second)
	}
	for _, w := range r.runners { // no schedule may tick while the tasks are counted
		w.terminate()
		w.ended(r.t, 30*time.Second)
	}
	checkRuns(r.t, r.history())
	tasks := tasksOf(r.t, r.store, "q")
	checkTotals(r.t, r.store, "q", tasks)
	r.t.Logf("%d ticks, each with one task", checkTicksBut(r.t, tasks, r.gaps))
}

// among returns a function that matches the events of some tasks.
func among(refs []storage.Ref) func(e *event) bool {
	in := make(map[storage.Ref]bool, len(refs))
	for _, ref := range refs {
		in[ref] = true
	}
	return func(e *event) bool { return in[e.Ref] }
}
