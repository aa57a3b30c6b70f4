//go:build unix

package faulttest

import (
	"context"
	"strings"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// check checks the outcome of every task and that the storm was severe enough to prove
// something.
func (s *storm) check() {
	t := s.t
	h := s.history()
	s.checkRunsAroundFailovers(h)
	between := checkStarts(t, h)
	states := make(map[string]storage.State)
	for _, g := range stormJobs {
		states[g.name] = g.state
	}
	acknowledged := h.of(enqueueDone).refs()
	enqueuedAt := make(map[storage.Ref]time.Time)
	for _, e := range h.of(enqueueDone) {
		enqueuedAt[e.Ref] = e.At
	}
	started := runsOf(h)
	ticks := make(map[string]storage.Task)
	crashes, unfounded := 0, 0
	for _, q := range s.queues {
		tasks := tasksOf(t, s.store, q)
		checkTotalsBut(t, s.store, q, tasks, s.checkDamagedTasks(h, q, tasks))
		checkFollowUps(t, tasks, func(id string) bool {
			return tasks[id].Kind != "tick" && !isDamaged(id) && !strings.HasPrefix(id, "cancelled-")
		})
		for id, task := range tasks {
			crashes += task.Crashes
			unfounded += max(task.Crashes-started[task.Ref], 0)
			name, _, _ := strings.Cut(id, "-")
			switch want := states[name]; {
			case task.Kind == "tick":
				ticks[id] = task
			case isDamaged(id):
			case strings.HasPrefix(id, followPrefix):
				if task.State != storage.Completed {
					t.Errorf("%s is %s (%s), want completed", task.Ref, task.State, task.Reason)
				}
			case want == storage.Cancelled && !acknowledged[task.Ref]: // nobody cancelled it
			case want == storage.Cancelled && s.undone(q, enqueuedAt[task.Ref]): // or a failover lost the cancel
			case task.State != want:
				t.Errorf("%s is %s (%s), want %s", task.Ref, task.State, task.Reason, want)
			}
		}
		for ref := range acknowledged {
			_, found := tasks[ref.ID]
			switch at := enqueuedAt[ref]; {
			case found || ref.Queue != q || isDamaged(ref.ID):
			case s.undone(q, at):
				t.Logf("%s was acknowledged at %v and is lost in the failover", ref, clock(at))
			default:
				t.Errorf("%s was acknowledged at %v and is lost", ref, clock(at))
			}
		}
	}
	t.Logf("%d enqueued, %d unknown, %d runs, %d crashes charged (%d more than there were runs), %d settles too late, %d ticks",
		len(acknowledged), len(h.of(enqueueUnknown).refs()), len(h.of(runStart)), crashes, unfounded, len(h.of(settleLost)),
		checkTicks(t, ticks))
	t.Logf("%d starts in which the lease ran out between the check of it and the start", between)
	s.checkKeysAreFree(acknowledged)
	s.checkStandstills(h)
	s.checkHappened(h, crashes)
}

// checkHappened checks that the planned faults happened and had effects. A run in which they
// did not proves nothing.
func (s *storm) checkHappened(h history, crashes int) {
	s.t.Helper()
	done := 0
	for name, times := range s.plan {
		if name == jobs {
			continue
		}
		done += s.done[name]
		if times > 0 && s.done[name] == 0 {
			s.t.Errorf("an invalid run: no %s of %d happened", name, times)
		}
	}
	if planned := s.planned(); done*100 < planned*95 {
		s.t.Errorf("an invalid run: of %d faults %d happened: %v of %v", planned, done, s.done, s.plan)
	}
	if crashes == 0 {
		s.t.Error("an invalid run: no task lost its runner")
	}
	declined := h.of(settleDone).where(func(e *event) bool { return e.Outcome == storage.Decline })
	s.t.Logf("%d declines, of %d tasks, by %d runners", len(declined), len(declined.refs()), len(workersOf(declined)))
	if full && len(declined) == 0 { // a short storm may do without
		s.t.Error("an invalid run: no task was declined")
	}
	if lost := len(h.of(settleLost, extendLost)); full && lost == 0 { // a short storm may do without
		s.t.Error("an invalid run: no lease was lost")
	}
	if unknown := len(h.of(enqueueUnknown, settleUnknown)); full && unknown == 0 {
		s.t.Error("an invalid run: no outcome was unknown")
	}
}

// workersOf returns the number of events of each worker.
func workersOf(h history) map[string]int {
	all := make(map[string]int)
	for _, e := range h {
		all[e.Worker]++
	}
	return all
}

// isDamaged reports whether a task was enqueued to be damaged.
func isDamaged(id string) bool { return strings.HasPrefix(id, damagedPrefix) }

// checkDamagedTasks checks that each damaged task of a queue either is set apart, or was completed
// in spite of the damage by the runner that had it. It returns the number of tasks that are
// set apart. A task that is gone after a settle of unknown outcome may be either.
func (s *storm) checkDamagedTasks(h history, queue string, tasks map[string]storage.Task) (apart int64) {
	s.t.Helper()
	outcomes, doubtful := make(map[string]int), int64(0)
	begun := h.of(settleBegun).where(func(e *event) bool { return e.Outcome == storage.Complete }).refs()
	completed := h.of(settleDone).where(func(e *event) bool { return e.State == storage.Completed }).refs()
	for _, d := range s.damagedTasks {
		if d.ref.Queue != queue {
			continue
		}
		task, found := tasks[d.ref.ID]
		switch {
		case !found && completed[d.ref]:
			outcomes[d.how+" is completed, and gone"]++
		case !found:
			if begun[d.ref] {
				doubtful++
			}
			apart++
			outcomes[d.how+" is set apart"]++
		case task.State.Ended():
			outcomes[d.how+" is "+string(task.State)]++
		default:
			s.t.Errorf("%s, %s damaged, is still %s", d.ref, d.how, task.State)
		}
	}
	if len(outcomes) > 0 {
		s.t.Logf("queue %s: %v", queue, outcomes)
	}
	if doubtful > 0 {
		all, err := s.store.Stats(context.WithoutCancel(s.t.Context()), queue)
		must(s.t, err)
		apart -= min(max(apart-all[0].Damaged, 0), doubtful)
	}
	return apart
}

// checkKeysAreFree checks that no unique key outlived the task that held it.
func (s *storm) checkKeysAreFree(acknowledged map[storage.Ref]bool) {
	for ref := range acknowledged {
		if !strings.HasPrefix(ref.ID, "unique-") {
			continue
		}
		ctx := context.WithoutCancel(s.t.Context())
		task, err := s.client.Enqueue(ctx, stormJob{}, midge.To(ref.Queue), midge.Unique{Key: ref.ID})
		if err != nil || task.Existing {
			s.t.Errorf("the unique key of %s: %v, existing %t; want it free", ref, err, task.Existing)
		}
	}
}

// checkWaits checks that every task that has not ended, though the storm is over, waits for
// a moment that was computed while the clock was further ahead than it is now.
func (s *storm) checkWaits() {
	s.t.Helper()
	description, err := s.store.Describe(s.t.Context())
	must(s.t, err)
	n := 0
	for _, q := range s.queues {
		for _, state := range []storage.State{storage.Scheduled, storage.Retry, storage.Pending} {
			for task, err := range storage.Each(s.t.Context(), s.store, q, state) {
				must(s.t, err)
				n++
				if strings.HasPrefix(task.ID, "cancelled-") { // nobody cancelled it, and it is due in an hour
					continue
				}
				moment, most := task.Due, stormLease+time.Second
				if state == storage.Pending {
					moment = task.LeaseUntil
				}
				if strings.HasPrefix(task.ID, damagedPrefix) { // it moved on before it could be damaged
					most = 4*damageTime + time.Second
				}
				if !s.fromEarlierOffset(moment, most) {
					s.t.Errorf("%s is %s until %v, at %v by the clock, for no known reason", task.Ref, state, clock(moment), clock(description.Now))
				}
			}
		}
	}
	s.t.Logf("%d tasks wait for moments that were computed while the clock was ahead of what it is now", n)
}

// fromEarlierOffset reports whether a moment can have been computed from the clock under one of its
// earlier offsets. most is how far ahead a computed moment may lie.
func (s *storm) fromEarlierOffset(moment time.Time, most time.Duration) bool {
	for i, o := range s.offsets {
		over := time.Now()
		if i+1 < len(s.offsets) {
			over = s.offsets[i+1].at
		}
		if at := moment.Add(-o.ahead); at.After(o.at.Add(-slack)) && at.Before(over.Add(most)) {
			return true
		}
	}
	return false
}
