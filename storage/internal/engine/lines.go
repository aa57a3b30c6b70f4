package engine

import (
	"slices"

	"github.com/midgehq/midge/storage"
)

// Line is one of the lines of a state that has several in a queue, which Sub distinguishes: declined tasks
// have a line for each kind, and tasks with a partition one for each partition. A line begins with its
// first task and goes with its last, but a partition stays while it is paused, rests, runs, has starts that
// count or a limit of its own.
type Line struct {
	Queue *Queue
	State State
	Sub   string
	Size  int64
	Tasks Tasks

	// Named is when a claim last named the kind, or the line began. It may be up to a twenty-fourth of
	// DeclinedFor too early.
	Named int64
	Look  int64 // when the line is searched next for tasks that waited too long
	From  Place // where that search begins
	// Ring is the place of a partition in the ring of its queue. Ready partitions have the Sort 0, and the Turn
	// orders them. The others have as their Sort the moment from which they may be ready, or Never: see Arrange.
	Ring Place
	// Left is how many tasks are left of a turn of a partition that claims have begun and not ended, 0 for none.
	Left int64
	// Paused is when the pause of a partition ends, Never if a resume ends it. Rest is when the rest ends that a
	// throttled task began. Both are 0 for none.
	Paused, Rest int64
	// Running is how many pending tasks of a partition are Counted, and Starts are the starts that count
	// for its rate.
	Running int64
	Starts  Starts
	// Own is the limit of this partition alone, nil if it has none.
	Own *storage.PartitionLimit
	// Changed is set by each change, for a Store that writes them.
	Changed bool
}

// Limit returns the limit that holds for a partition: its own if it has one, else that of all partitions of
// the queue.
func (l *Line) Limit() storage.PartitionLimit {
	if l.Own != nil {
		return *l.Own
	}
	return l.Queue.Limit.InForce().Partition
}

// IsReady reports whether the line is that of a partition among the ready ones of its ring.
func (l *Line) IsReady() bool { return l.Ring.Sort == 0 }

// IsSpare reports whether nothing is left of a line.
func (l *Line) IsSpare() bool {
	return l.Size <= 0 && l.Running <= 0 && l.Paused == 0 && l.Rest == 0 && len(l.Starts) == 0 && l.Own == nil
}

// Tasks finds the tasks of a line.
type Tasks interface {
	// Range returns up to n tasks, in order, that stand at a place or after it and have none of the flags
	// without.
	Range(from Place, without Flags, n int) []*Record
}

// HasSubs reports whether the records of a state stand in several lines of a queue.
func (s State) HasSubs() bool { return s == Declined || s == Keyed }

// Join counts a task that joins a line, which it begins if there is none.
func (s *Step) Join(q *Queue, state State, sub string) {
	if s.Local == nil {
		return
	}
	l := s.Local.Line(q, state, sub)
	if l == nil {
		l = s.begin(q, state, sub)
	}
	l.Size++
	l.Changed = true
	if l.Size == 1 && !l.IsReady() && l.Paused == 0 && l.Rest == 0 { // it was kept for running tasks or starts
		s.Arrange(l)
	}
}

// begin begins a line.
func (s *Step) begin(q *Queue, state State, sub string) *Line {
	l := Line{Queue: q, State: state, Sub: sub}
	if state == Keyed {
		l.Ring.Turn = s.turn()
	} else {
		l.From, l.Named, l.Look = FirstLook, s.Now, s.after(s.Limits.DeclinedFor)
	}
	return s.Local.InsertLine(l)
}

// Leave counts a task that leaves a line, which ends if the task is its last.
func (s *Step) Leave(q *Queue, state State, sub string) {
	if s.Local == nil || !state.HasSubs() {
		return
	}
	if l := s.Local.Line(q, state, sub); l != nil {
		l.Size--
		l.Changed = true
		switch {
		case l.Size > 0:
		case state == Keyed:
			s.Arrange(l)
		default:
			s.Local.DeleteLine(l)
		}
	}
}

// first returns the first task that has none of the flags without, nil if there is none.
func (l *Line) first(without Flags) *Record {
	if l.Size > 0 {
		for _, r := range l.Tasks.Range(beginning.Place, without, 1) {
			return r
		}
	}
	return nil
}

// passed is how far a claim has come in the line of a kind: behind so many tasks whose partitions do not
// admit them, and never do later in the claim.
type passed struct {
	from Place
	n    int
}

// mostPassed is how many declined tasks of a line a claim passes over because their partitions are not
// served. It reads readPassed of them together.
const mostPassed, readPassed = 1000, 100

// firstServed returns the first task of the n-th line of kinds that has none of the flags without and whose
// partition can be served. The claim passes over mostPassed tasks at most.
func (c *Claim) firstServed(i, n int, without Flags) *Record {
	l, p := c.declined[i].lines[n], &c.declined[i].passed[n]
	for some := 1; l.Size > 0 && p.n < mostPassed; some = readPassed {
		all := l.Tasks.Range(p.from, without, some)
		for _, r := range all {
			if c.serves(i, c.step.partition(r), r, without) {
				return r
			}
			p.from = Place{r.Sort, r.Turn + 1}
			p.n++
		}
		if len(all) < some {
			break
		}
	}
	return nil
}

// partition returns the partition of a task, nil if the storage has nothing of it.
func (s *Step) partition(r *Record) *Line {
	if r.Partition == "" {
		return nil
	}
	return s.Lines.Partition(r.Queue, r.Partition)
}

// among returns the lines of these kinds, or up to most of the first lines of all kinds if kinds is
// empty.
func (s *Step) among(q *Queue, kinds []string, most int) []*Line {
	if s.Local != nil && q.Sizes[Declined] == 0 {
		return nil
	}
	if len(kinds) == 0 {
		return s.Lines.LinesFrom(q, Declined, "", most)
	}
	return s.Lines.LinesNamed(q, slices.Compact(slices.Sorted(slices.Values(kinds))))
}

// nameKinds notes that a claim names kinds. It does so at most once in a twenty-fourth of DeclinedFor.
func (s *Step) nameKinds(q *Queue, kinds []string) {
	for _, l := range s.among(q, kinds, storage.MaxKinds) {
		if s.Now-l.Named >= s.Limits.DeclinedFor.Microseconds()/24 {
			l.Named, l.Changed = s.Now, true
		}
	}
}

// abandonKinds ends declined tasks that waited for DeclinedFor while no claim named their kind. It reports
// whether some of this work remains for the next claim.
func (s *Step) abandonKinds(q *Queue, most int) (ended []storage.Ended, left bool) {
	if s.Come == 0 || q.Sizes[Declined] == 0 || q.IsPaused(s.Now) {
		return nil, false
	}
	long := s.Limits.DeclinedFor.Microseconds()
	for _, l := range s.Local.LinesByLook(q, true, s.Come+long, most) { // a clock that was ahead stamped these
		l.Named, l.Look, l.Changed = s.Come, s.Come+long, true
	}
	lines := s.Local.LinesByLook(q, false, s.Come, most)
	look := search{step: s, moment: s.Come - long, room: most}
	for _, l := range lines {
		if l.Named+long <= s.Come && !look.along(l) {
			break // the next claim searches the line again
		}
		l.Look, l.Changed = max(l.Named+long, s.Come+long/24), true
	}
	left = len(lines) > 0 && len(s.Local.LinesByLook(q, false, s.Come, 1)) > 0
	return s.Abandon(s.whole(look.found)), left
}

// Abandon ends declined tasks that waited too long while no claim named their kind. It returns them.
func (s *Step) Abandon(unknown []*Record) (ended []storage.Ended) {
	for _, r := range unknown {
		s.grow(r)
		r.Reason = storage.ReasonKind
		s.end(r, Dead)
		ended = append(ended, storage.Ended{Ref: r.Ref, Kind: r.Kind, State: storage.Dead, Reason: r.Reason})
	}
	return ended
}

// search is a search in the lines of kinds for tasks that were declined at a moment or before.
type search struct {
	step   *Step
	moment int64
	room   int // how many more tasks the search may read
	found  []*Record
}

// FirstLook is the place at which a search begins in the line of a kind.
var FirstLook = DeclinedBand(storage.MaxPriority)

// along searches a line, and notes from which place the next search goes on, once the found tasks have left
// the line. It reports whether it came to the end of the line. In each priority the tasks stand in the
// order in which they were declined, except that a clock which was ahead stamped some of them with moments
// after now: the search passes over these.
func (k *search) along(l *Line) (over bool) {
	found, from := len(k.found), l.From
	for k.room > 0 {
		all := l.Tasks.Range(from, 0, k.room)
		if len(all) == 0 {
			l.From, l.Changed = FirstLook, true
			return true
		}
		for _, r := range all {
			k.room--
			from = Place{r.Sort, r.Turn + 1}
			if r.Turn <= k.moment {
				k.found = append(k.found, r)
			} else if r.Turn <= k.step.Come { // tasks after r in its priority were declined even later
				from = Place{Sort: (r.Sort+beforeHead)>>56<<56 + beforeHead}
				break
			}
		}
		if len(k.found) == found { // if this step is rolled back, the found tasks are still in the line
			l.From, l.Changed = from, true
		}
	}
	return false
}
