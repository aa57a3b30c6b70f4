//go:build unix

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// history is a list of events, sorted by time. Nobody changes the events.
type history []*event

// of returns the events of the given kinds.
func (h history) of(what ...string) history {
	return h.where(func(e *event) bool { return slices.Contains(what, e.What) })
}

// by returns the events of a worker; "" means all workers.
func (h history) by(worker string) history {
	return h.where(func(e *event) bool { return worker == "" || e.Worker == worker })
}

// about returns the events of a task.
func (h history) about(ref storage.Ref) history {
	return h.where(func(e *event) bool { return e.Ref == ref })
}

// after returns the events after a moment.
func (h history) after(t time.Time) history {
	return h.where(func(e *event) bool { return e.At.After(t) })
}

func (h history) where(holds func(e *event) bool) history {
	var some history
	for _, e := range h {
		if holds(e) {
			some = append(some, e)
		}
	}
	return some
}

// String returns the events, one a line.
func (h history) String() string {
	var b strings.Builder
	for _, e := range h {
		fmt.Fprintf(&b, "%s %s %s fence %d, %d retries, %d crashes %s %s %s\n",
			clock(e.At), e.Worker, e.What, e.Fence, e.Retries, e.Crashes, e.Outcome, e.Step, e.Err)
	}
	return b.String()
}

// exactly reports whether the number of runs, or of lost leases, is the wanted one. It may be
// greater only if a process was starved, or the machine was so busy that the storage may have been,
// which may cost a lease.
func (h history) exactly(n, want int) bool {
	return n == want || n > want && (len(h.of(starved)) > 0 || machine.Overloaded(h[0].At))
}

// refs returns the set of tasks that the events are about.
func (h history) refs() map[storage.Ref]bool {
	refs := make(map[storage.Ref]bool)
	for _, e := range h {
		refs[e.Ref] = true
	}
	return refs
}

// enqueued returns the kind of the event that ends an enqueue.
func enqueued(err error) string {
	switch {
	case err == nil:
		return enqueueDone
	case errors.Is(err, storage.ErrUnknown):
		return enqueueUnknown
	}
	return enqueueRefused
}

// unanswered reports whether a call failed because the storage was unavailable or did not answer.
func unanswered(err error) bool {
	return errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable)
}

// slack is the most by which two readings of the host's clock may differ, one by a process and
// one by the server.
const slack = 10 * time.Millisecond

// checkRuns checks the rules that hold for every task, however many processes died: its fences
// grow, a second run starts only after the first run's lease was lost or released, at most one
// run commits, and no run commits after a later run has claimed the task.
func checkRuns(t *testing.T, h history) {
	t.Helper()
	byRef := make(map[storage.Ref]history)
	for _, e := range h {
		if e.Ref != (storage.Ref{}) {
			byRef[e.Ref] = append(byRef[e.Ref], e)
		}
	}
	for ref, events := range byRef {
		for _, fault := range faultsOf(ref, events) {
			t.Error(fault)
		}
	}
	if faults := faultyVersions(h); len(faults) > 0 {
		t.Errorf("%d versions that do not grow, such as: %s", len(faults), faults[0])
	}
}

// faultsOf returns the violations in the history of a task.
func faultsOf(ref storage.Ref, h history) []string {
	return append(faultyStarts(ref, h), faultyCommits(ref, h)...)
}

// faultyStarts returns the runs of a task that began while an earlier run had the lease, or whose
// fence is not greater than the fence of an earlier run.
func faultyStarts(ref storage.Ref, h history) []string {
	var faults []string
	starts := slices.Clone(h.of(runStart))
	slices.SortStableFunc(starts, func(a, b *event) int { return a.checkedAt().Compare(b.checkedAt()) })
	for i, later := range starts {
		for _, earlier := range starts[:i] {
			switch until := leaseEnd(h, earlier.Fence); {
			case later.Fence <= earlier.Fence:
				faults = append(faults, fmt.Sprintf("%s: the run at %v has fence %d, not more than %d of a run before",
					ref, clock(later.At), later.Fence, earlier.Fence))
			case later.At.Add(slack).Before(until):
				faults = append(faults, fmt.Sprintf("%s: %s started it at %v, and the lease of %s, which began at %v, held until %v",
					ref, later.Worker, clock(later.At), earlier.Worker, clock(earlier.At), clock(until)))
			}
		}
	}
	return faults
}

// faultyVersions returns the claims and enqueues whose fence or version is not greater than that
// of an earlier call in the same queue, although they were sent after that call had been
// answered. The versions of one task always grow, which faultyStarts checks. Versions of
// different tasks may fall back a little: PostgreSQL takes them from its clock even if that was
// set back, by less than 20 ms.
func faultyVersions(h history) []string {
	var faults []string
	byQueue := make(map[string]history)
	for _, e := range h.of(claimed, enqueueDone) {
		if e.Fence > 0 {
			byQueue[e.Ref.Queue] = append(byQueue[e.Ref.Queue], e)
		}
	}
	for _, answers := range byQueue { // in the order of their answers
		most := &event{} // the answer so far with the greatest version
		next := 0
		for _, e := range slices.SortedStableFunc(slices.Values(answers), bySent) {
			for ; next < len(answers) && answers[next].At.Before(e.From); next++ {
				if answers[next].Fence > most.Fence {
					most = answers[next]
				}
			}
			if e.Fence+slack.Microseconds() <= most.Fence {
				faults = append(faults, fmt.Sprintf("%s: %s, sent at %v, gave version %d; %s had %d at %v",
					e.Ref, e.What, clock(e.From), e.Fence, most.Ref, most.Fence, clock(most.At)))
			}
		}
	}
	return faults
}

func bySent(a, b *event) int { return a.From.Compare(b.From) }

// leaseEnd returns the moment until which the lease of a fence lasted at least: until its settle,
// else for the duration that the storage granted.
func leaseEnd(h history, fence int64) time.Time {
	var until time.Time
	for _, e := range h {
		if e.Fence != fence {
			continue
		}
		switch e.What {
		case claimed, extended:
			if end := e.From.Add(e.For); e.For > 0 && end.After(until) {
				until = end
			}
		}
	}
	for _, e := range h.of(settleDone, settleBegun) {
		// A settle whose answer was lost may have happened at any time after it was sent.
		if e.Fence == fence && e.At.Before(until) && !refused(h, e) {
			until = e.At
		}
	}
	return until
}

// refused reports whether the storage refused the settle that began with e.
func refused(h history, e *event) bool {
	return slices.ContainsFunc(h.of(settleLost), func(l *event) bool { return l.Fence == e.Fence })
}

// faultyCommits returns the settles that ended a task although another settle had ended it too,
// or although another run had claimed it.
func faultyCommits(ref storage.Ref, h history) []string {
	var faults []string
	fences := make(map[int64]bool)
	for _, e := range h.of(settleDone) {
		if !e.State.Ended() {
			continue
		}
		fences[e.Fence] = true
		for _, c := range h.of(claimed) {
			if c.Fence > e.Fence && c.At.Before(e.From) {
				faults = append(faults, fmt.Sprintf("%s: a settle under fence %d was accepted at %v, after a claim with fence %d at %v",
					ref, e.Fence, clock(e.At), c.Fence, clock(c.At)))
			}
		}
	}
	if len(fences) > 1 {
		faults = append(faults, fmt.Sprintf("%s: committed %d times, under fences %v", ref, len(fences), slices.Collect(maps.Keys(fences))))
	}
	return faults
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// tasksOf lists all tasks of a queue and checks that each is in only one state.
func tasksOf(t *testing.T, store storage.Storage, queue string) map[string]storage.Task {
	t.Helper()
	tasks := make(map[string]storage.Task)
	for _, state := range storage.States() {
		for task, err := range storage.Each(context.WithoutCancel(t.Context()), store, queue, state) {
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := tasks[task.ID]; ok {
				t.Errorf("%s is in %s and in %s", task.Ref, other.State, task.State)
			}
			tasks[task.ID] = task
		}
	}
	return tasks
}

// checkTotals checks that a queue's sizes and lifetime totals agree with each other and with the
// listed tasks.
func checkTotals(t *testing.T, store storage.Storage, queue string, tasks map[string]storage.Task) storage.Stats {
	t.Helper()
	return checkTotalsBut(t, store, queue, tasks, 0)
}

// checkTotalsBut is like checkTotals, but expects the given number of damaged records that are
// set apart.
func checkTotalsBut(
	t *testing.T, store storage.Storage, queue string, tasks map[string]storage.Task, apart int64,
) storage.Stats {
	t.Helper()
	all, err := store.Stats(context.WithoutCancel(t.Context()), queue)
	must(t, err)
	s := all[0]
	in, out := s.Totals.Enqueued+s.Totals.Requeued, s.Totals.Completed+s.Totals.Dead+s.Totals.Cancelled+s.Totals.Deleted
	if in != out+s.Live() {
		t.Errorf("queue %s: %d enqueued or requeued, but %d ended and %d live: %+v", queue, in, out, s.Live(), s)
	}
	counted := make(map[storage.State]int64)
	for _, task := range tasks {
		counted[task.State]++
	}
	sizes := map[storage.State]int64{
		storage.Waiting: s.Waiting, storage.Pending: s.Pending, storage.Scheduled: s.Scheduled, storage.Retry: s.Retry,
		storage.Completed: s.Completed, storage.Cancelled: s.Cancelled, storage.Dead: s.Dead, storage.Cursors: s.Cursors,
	}
	for state, size := range sizes {
		if counted[state] != size {
			t.Errorf("queue %s: Stats say %d are %s, and the list has %d", queue, size, state, counted[state])
		}
	}
	if s.Damaged != apart {
		t.Errorf("queue %s: %d damaged records, want %d", queue, s.Damaged, apart)
	}
	return s
}

// checkFollowUps checks that each completed task whose job enqueues a follow-up has exactly one,
// and that no other task has any. The follow-ups of two runs of a task have different ids.
func checkFollowUps(t *testing.T, tasks map[string]storage.Task, following func(id string) bool) {
	t.Helper()
	followUps := make(map[string]int)
	for id := range tasks {
		if rest, ok := strings.CutPrefix(id, followPrefix); ok {
			followUps[rest[:strings.LastIndexByte(rest, '-')]]++
		}
	}
	for id, task := range tasks {
		if strings.HasPrefix(id, followPrefix) {
			continue
		}
		want := 0
		if following(id) && task.State == storage.Completed {
			want = 1
		}
		if got := followUps[id]; got != want {
			t.Errorf("%s is %s and has %d follow-ups, want %d", task.Ref, task.State, got, want)
		}
	}
}
