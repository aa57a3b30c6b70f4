package difftest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// world holds all sides under one sequence. The first side, memory, is the reference.
type world struct {
	t     testing.TB
	sides []*side
	move  func(now time.Time) // sets the clocks of all sides, which run on from there

	now     time.Time                 // time at which the step began
	moved   time.Time                 // the same, by the clock of the machine
	touched map[string]time.Time      // when a queue was last claimed from
	behind  map[string]bool           // queues in which some sides may not have promoted all due tasks
	tasks   map[string][]storage.Task // tasks of the memory storage, by queue
	log     []string                  // the steps so far
	steps   int                       // how many there were
}

// The queues. The first three are in one slot of a Cluster, and can share a Tx there.
var (
	together = []string{"q68", "q2973", "q8796"}
	apart    = []string{"b", "c"}
	queues   = slices.Concat(together, apart)
	removed  = "gone"   // a queue that is mostly empty
	unused   = "unused" // a queue that never gets a task
	all      = append(slices.Clone(queues), removed)
)

// partitions are the keys of the partitions of every queue. One of them is the name of a kind.
var partitions = []string{"a", "b.c", "k0", "é —"}

// The kinds of tasks. Most tasks have the first kind.
var kinds = []string{"k0", "k1", "k2"}

const (
	// grid is the unit of the clock: it moves by multiples of it.
	grid = 8 * time.Second
	// unlooked is how long no call may read a queue. It is less than storage.JumpAfter, so that
	// no side takes the passed time for a jump of the clock.
	unlooked = 9 * time.Minute
	// crowd is how many tasks one claim may find to maintain, less than any side maintains at once.
	crowd = 19
)

func newWorld(t testing.TB, sides []*side, move func(time.Time)) *world {
	w := &world{
		t: t, sides: sides, move: move, now: begin, touched: map[string]time.Time{}, behind: map[string]bool{},
	}
	for _, name := range all {
		w.touched[name] = begin
	}
	w.pass(0)
	w.look()
	return w
}

// pass moves the clocks of all sides.
func (w *world) pass(by time.Duration) {
	w.now = w.now.Add(by)
	w.moved = time.Now()
	w.move(w.now)
}

// late reports whether the step took so long that its outcome was not certain: a task may fall
// due three seconds after the step began.
func (w *world) late() bool { return time.Since(w.moved) > 5*time.Second/2 }

// do executes a step on all sides and returns the difference between them, or "".
func (w *world) do(st step) string {
	by := grid
	if a, ok := st.(*advance); ok {
		by = a.by
	}
	if diff := w.maintain(w.alone(by)); diff != "" {
		return diff
	}
	if j, ok := st.(*jump); ok {
		if diff := w.maintain(all); diff != "" {
			return diff
		}
		w.pass(j.by)
		if diff := w.maintain(all); diff != "" { // lets each queue find the jump
			return diff
		}
	}
	w.pass(by)
	if diff := w.maintain(w.unsure(st)); diff != "" {
		return diff
	}
	diff := w.compare(st.String(), st, func(s *side) outcome { return st.run(w.t.Context(), s) })
	switch st := st.(type) {
	case *claim:
		w.claimed(st)
	case *repeat: // some sides take it for a claim that names its kinds
		diff += w.maintain(st.reads, kinds...)
	}
	w.look()
	diff += w.maintain(w.crowded())
	diff += w.sizes()
	if w.steps++; w.steps%orderEvery == 0 {
		diff += w.order(queues[w.steps/orderEvery%len(queues)], 1+w.steps/orderEvery%4)
	}
	return diff
}

// alone returns the queues that no call has read for so long that a side might take the
// passed time for a jump of the clock.
func (w *world) alone(by time.Duration) (names []string) {
	for name, at := range w.touched {
		if w.now.Add(by).Sub(at) > unlooked {
			names = append(names, name)
		}
	}
	return names
}

// unsure returns the queues in which a step has more than one outcome by the contract until they
// are maintained.
func (w *world) unsure(st step) (names []string) {
	switch st := st.(type) {
	case *claim:
		found := 0
		for _, q := range st.req.Queues {
			found += w.found(q.Name)
		}
		if found > crowd { // not every side does so much at once
			return sortedNames(st.req.Queues)
		}
		// A side may put off a death of an unknown kind. A lazy side may put off a promotion, by which a partition
		// joins the ring.
		for _, q := range st.req.Queues {
			if w.forsaken(q, st.req.Kinds) || w.divided(q.Name) && (w.behind[q.Name] || w.due(q.Name)) {
				names = append(names, q.Name)
			}
		}
	case *repeat: // some sides maintain the queues of a claim that they repeat
		names = st.reads
	case *whole: // it shows everything
		names = st.names
	default:
		for _, name := range st.queues() {
			if w.behind[name] {
				names = append(names, name)
			}
		}
	}
	return names
}

// maintain completes the maintenance of queues, by claims that name some kinds, and returns the
// difference, or "".
func (w *world) maintain(names []string, kinds ...string) string {
	if len(kinds) == 0 {
		kinds = []string{"k9"} // a claim that names none counts as a claim that names all
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		diff := w.maintainOne(name, kinds)
		w.touched[name] = w.now
		delete(w.behind, name)
		if diff != "" {
			return diff
		}
	}
	if len(names) > 0 {
		w.look()
	}
	return ""
}

// putOff is how often a queue is maintained again if a side has put something off: a storage may do so for
// less than a second, for example if its own work in the background has locked a row.
const putOff = 50

// maintainOne completes the maintenance of a queue and returns the difference, or "".
func (w *world) maintainOne(name string, kinds []string) (diff string) {
	found := make(map[*side]*outcome)
	for _, s := range w.sides {
		found[s] = new(outcome)
	}
	for range putOff {
		diff = w.compare("maintain "+name, nil, func(s *side) outcome {
			all := append(*found[s], s.maintain(w.t, name, kinds)...)
			slices.Sort(all)
			*found[s] = all
			return slices.Clone(all)
		})
		if diff == "" {
			break
		}
		<-time.NewTimer(20 * time.Millisecond).C
	}
	return diff
}

// claimed records the queues in which a claim may have left tasks to be promoted on some sides.
func (w *world) claimed(c *claim) {
	for _, q := range c.req.Queues {
		w.touched[q.Name] = w.now
		if c.req.Most() == 0 || q.Max < 0 {
			delete(w.behind, q.Name)
		} else if w.due(q.Name) {
			w.behind[q.Name] = true
		}
	}
}

// moreMayBe reports whether a claim may answer that there is more although it could take nothing
// more. A repeated claim may, and so may a claim that leaves tasks which it may not take.
func (w *world) moreMayBe(st step) bool {
	switch st := st.(type) {
	case *repeat:
		return st.what == "claim"
	case *claim:
		all, err := w.sides[0].store.Stats(w.t.Context(), sortedNames(st.req.Queues)...)
		return err == nil && slices.ContainsFunc(all, func(s storage.Stats) bool {
			left := s.Waiting
			for _, of := range s.Declined {
				if len(st.req.Kinds) > 0 && !slices.Contains(st.req.Kinds, of.Kind) {
					left -= of.Tasks
				}
			}
			return left > 0
		})
	}
	return false
}

// lagging reports whether a step may leave due tasks unpromoted on some sides.
func (w *world) lagging(st step) bool {
	c, ok := st.(*claim)
	return ok && slices.ContainsFunc(c.req.Queues, func(q storage.ClaimQueue) bool {
		return w.behind[q.Name] || w.due(q.Name)
	})
}

// divided reports whether tasks of a queue have partitions, and some side is lazy.
func (w *world) divided(queue string) bool {
	return slices.ContainsFunc(w.sides, func(s *side) bool { return s.lazy }) &&
		slices.ContainsFunc(w.tasks[queue], func(t storage.Task) bool { return t.Partition != "" })
}

// due reports whether a task of a queue was to be promoted before the step.
func (w *world) due(queue string) bool {
	return slices.ContainsFunc(w.in([]string{queue}, storage.Scheduled, storage.Retry), func(t storage.Task) bool {
		return !t.Due.After(w.now)
	})
}

// found returns how many moments of the queue's tasks have come, which a claim has to maintain.
func (w *world) found(queue string) int {
	n := 0
	for i := range w.tasks[queue] {
		t := &w.tasks[queue][i]
		for _, at := range []time.Time{t.Due, t.Expires, t.LeaseUntil, abandoned(t)} {
			if !at.IsZero() && !at.After(w.now) {
				n++
			}
		}
	}
	return n
}

// forsaken reports whether a declined task of a queue is to die in a claim that does not name its kind.
func (w *world) forsaken(q storage.ClaimQueue, kinds []string) bool {
	return slices.ContainsFunc(w.tasks[q.Name], func(t storage.Task) bool {
		at := abandoned(&t)
		named := q.Max >= 0 && (len(kinds) == 0 || slices.Contains(kinds, t.Kind))
		return !at.IsZero() && !at.After(w.now) && !named
	})
}

// abandoned returns the earliest moment at which a declined task is dead.
func abandoned(t *storage.Task) time.Time {
	if t.Declined.IsZero() {
		return time.Time{}
	}
	return t.Declined.Add(limits.DeclinedFor)
}

// compare lets all sides action at the same time and returns the differences from memory, or "".
func (w *world) compare(what string, st step, action func(s *side) outcome) string {
	outcomes := make([]outcome, len(w.sides))
	var running sync.WaitGroup
	for i, s := range w.sides {
		running.Go(func() { outcomes[i] = action(s) })
	}
	running.Wait()
	w.log = append(w.log, what+"\n    -> "+strings.Join(outcomes[0][:min(len(outcomes[0]), 12)], "\n    -> "))
	b := &strings.Builder{}
	for i, s := range w.sides[1:] {
		want, got := outcomes[0], outcomes[i+1]
		if s.lazy && w.lagging(st) {
			want, got = want.without(nextDue), got.without(nextDue)
		}
		if r, ok := st.(*repeat); ok && r.what == "claim" && slices.Contains(got, more) {
			for _, line := range []string{bounded, held, nextDue} {
				want, got = want.without(line), got.without(line)
			}
		}
		if tookKeyed(want) { // a partition may be left that only has starts, which cease to count at some moment
			want, got = want.without(nextDue), got.without(nextDue)
		}
		if slices.Contains(want, more) && slices.Contains(got, more) { // the claim after it sees the rest
			want, got = want.without(held).without(nextDue), got.without(held).without(nextDue)
		}
		if isIdle(st) { // how far it reads along a ring is open: it sets no More
			want, got = want.without(held), got.without(held)
		}
		if !slices.Contains(want, more) && w.moreMayBe(st) {
			got = got.without(more)
		}
		if diff := differ(want, got); diff != "" {
			fmt.Fprintf(b, "%s differs from memory in: %s\n%s", s.name, what, diff)
		}
	}
	return b.String()
}

// isIdle reports whether a step is a claim that may take no task, or repeats one.
func isIdle(st step) bool {
	switch st := st.(type) {
	case *claim:
		return st.req.Most() == 0
	case *repeat:
		return st.idle
	}
	return false
}

// tookKeyed reports whether a claim took a task of a partition.
func tookKeyed(o outcome) bool {
	return slices.ContainsFunc(o, func(line string) bool {
		return strings.HasPrefix(line, "claimed ") && strings.Contains(line, " partition=")
	})
}

// sizes compares the sizes and totals of all queues.
func (w *world) sizes() string {
	lists := make([][]storage.Stats, len(w.sides))
	var running sync.WaitGroup
	for i, s := range w.sides {
		running.Go(func() {
			var err error
			if lists[i], err = s.store.Stats(w.t.Context(), all...); err != nil {
				w.t.Errorf("%s: stats: %v", s.name, err)
				lists[i] = make([]storage.Stats, len(all))
			}
		})
	}
	running.Wait()
	b := &strings.Builder{}
	for _, list := range lists {
		for j := range list {
			if w.late() { // some sides' clocks stand still, so ages differ
				list[j].Oldest = 0
			}
		}
	}
	for i, s := range w.sides[1:] {
		for j, name := range all {
			loosely := s.lazy && w.behind[name]
			want, got := stats(&lists[0][j], loosely), stats(&lists[i+1][j], loosely)
			if want != got {
				fmt.Fprintf(b, "%s differs from memory in its sizes\n  want %s\n  got  %s\n", s.name, want, got)
			}
		}
	}
	return b.String()
}

// orderEvery is the number of steps after which the order of the waiting tasks of a queue is
// compared.
const orderEvery = 4

// order compares the order in which the waiting tasks of a queue, and the tasks of one partition, are listed,
// page by page. It leaves the queue as it is, unlike whole, which completes its maintenance first.
func (w *world) order(queue string, page int) string {
	lists := make([]outcome, len(w.sides))
	var running sync.WaitGroup
	for i, s := range w.sides {
		running.Go(func() {
			query := storage.TasksQuery{Queue: queue, State: storage.Waiting, Limit: page}
			lists[i] = s.ids(w.t.Context(), query)
			query.Partition = partitions[w.steps%len(partitions)]
			lists[i] = append(lists[i], "in the line of "+query.Partition)
			lists[i] = append(lists[i], s.ids(w.t.Context(), query)...)
		})
	}
	running.Wait()
	b := &strings.Builder{}
	for i, s := range w.sides[1:] {
		if s.lazy && w.behind[queue] {
			continue
		}
		if diff := differ(lists[0], lists[i+1]); diff != "" {
			fmt.Fprintf(b, "%s differs from memory in the order of %s in pages of %d\n%s", s.name, queue, page, diff)
		}
	}
	return b.String()
}

// look reads the state of memory, from which the next step is made. If tasks are listed by a moment that several
// steps can set, look sorts them by their ids: the order of two close moments differs from run to run.
func (w *world) look() {
	w.tasks = make(map[string][]storage.Task, len(all))
	for _, name := range all {
		for _, state := range storage.States() {
			query := storage.TasksQuery{Queue: name, State: state, Limit: storage.MaxPage}
			var listed []storage.Task
			for {
				page, err := w.sides[0].store.Tasks(w.t.Context(), query)
				if err != nil {
					w.t.Fatalf("memory: tasks: %v", err)
				}
				listed = append(listed, page.Tasks...)
				if query.After = page.Next; page.Next == "" {
					break
				}
			}
			if !slices.Contains(ordered, state) {
				slices.SortFunc(listed, func(a, b storage.Task) int { return strings.Compare(a.Ref.ID, b.Ref.ID) })
			}
			w.tasks[name] = append(w.tasks[name], listed...)
		}
	}
}

// lists reports whether memory lists a queue.
func (w *world) lists(queue string) bool {
	page, err := w.sides[0].store.Queues(w.t.Context(), storage.QueuesQuery{})
	return err == nil && slices.Contains(page.Names, queue)
}

// in returns the tasks of the given queues that are in one of the given states.
func (w *world) in(names []string, states ...storage.State) []storage.Task {
	var found []storage.Task
	for _, name := range names {
		for i := range w.tasks[name] {
			if slices.Contains(states, w.tasks[name][i].State) {
				found = append(found, w.tasks[name][i])
			}
		}
	}
	return found
}

// told returns the last entries of the log.
func (w *world) told(last int) string {
	return strings.Join(w.log[max(0, len(w.log)-last):], "\n")
}
