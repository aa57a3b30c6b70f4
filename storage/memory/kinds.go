package memory

import (
	"math"
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// kindLines holds the lines in which the declined tasks of a queue wait, one for each kind that
// has any.
type kindLines struct {
	lines map[string]*kindLine
	names []string          // the kinds of all lines, sorted
	looks sorted[*kindLine] // by the moment at which each is searched for tasks that waited too long
}

// kindLine is the line of one kind.
type kindLine struct {
	sorted[*engine.Record]

	// named is when a claim last named the kind, or the line began. It may be up to a twenty-fourth of
	// DeclinedFor too early.
	named int64
	look  place // in kindLines.looks
	from  place // where the next search for tasks that waited too long begins
}

// joinKind puts a declined task into the line of its kind, which it makes where there is none.
func (s *Storage) joinKind(q *queue, r *engine.Record, at place) {
	k := &q.kinds
	l := k.lines[r.Kind]
	if l == nil {
		if k.lines == nil {
			k.lines = make(map[string]*kindLine)
		}
		l = &kindLine{named: s.step.Now, from: engine.FirstLook()}
		k.lines[r.Kind] = l
		i, _ := slices.BinarySearch(k.names, r.Kind)
		k.names = slices.Insert(k.names, i, r.Kind)
		k.lookAt(l, s.at(l.named+s.step.Limits.DeclinedFor.Microseconds()))
	}
	l.insert(at, r)
}

// lookAt sets when a line is searched next.
func (k *kindLines) lookAt(l *kindLine, at place) {
	k.looks.remove(l.look)
	l.look = at
	k.looks.insert(at, l)
}

// leave removes a task from its line, and the line when it is empty.
func (k *kindLines) leave(r *engine.Record) {
	l := k.lines[r.Kind]
	l.remove(r.Place)
	if l.size > 0 {
		return
	}
	k.looks.remove(l.look)
	delete(k.lines, r.Kind)
	i, _ := slices.BinarySearch(k.names, r.Kind)
	k.names = slices.Delete(k.names, i, i+1)
}

// among returns those of the given kinds that have a line, each once. Where kinds is empty it returns the
// first MaxKinds kinds that have a line.
func (k *kindLines) among(kinds []string) []string {
	if len(k.names) == 0 || len(kinds) == 0 {
		return slices.Clone(k.names[:min(len(k.names), storage.MaxKinds)])
	}
	var found []string
	for _, kind := range kinds {
		if k.lines[kind] != nil && !slices.Contains(found, kind) {
			found = append(found, kind)
		}
	}
	return found
}

// first returns the first task in the line of a kind, from a place on, that has none of the flags
// without; nil where there is none.
func (k *kindLines) first(kind string, from place, without engine.Flags) *engine.Record {
	l := k.lines[kind]
	if l == nil {
		return nil
	}
	for _, c := range l.chunks[l.chunk(from):] {
		for _, e := range c[search(c, from):] {
			if e.value.Flags&without == 0 {
				return e.value
			}
		}
	}
	return nil
}

// list appends to found the tasks after a place in the line of a kind, and the tasks of all later
// kinds, until found has n tasks.
func (k *kindLines) list(
	kind string, after place, n int, found []entry[*engine.Record],
) []entry[*engine.Record] {
	i, known := slices.BinarySearch(k.names, kind)
	for ; i < len(k.names) && len(found) < n; i++ {
		from := after
		if !known || k.names[i] != kind {
			from = place{Sort: math.MinInt64}
		}
		found = k.lines[k.names[i]].after(from, n-len(found), found)
	}
	return found
}

// sizes returns the first MaxStatsKinds kinds and how many tasks of each wait here.
func (k *kindLines) sizes() []storage.KindSize {
	if len(k.names) == 0 {
		return nil
	}
	n := min(len(k.names), storage.MaxStatsKinds)
	all := make([]storage.KindSize, 0, n)
	for _, kind := range k.names[:n] {
		all = append(all, storage.KindSize{Kind: kind, Tasks: int64(k.lines[kind].size)})
	}
	return all
}

// nameKinds notes that a claim names kinds. It does so at most once in a twenty-fourth of DeclinedFor.
func (s *Storage) nameKinds(q *queue, kinds []string) {
	k, long := &q.kinds, s.step.Limits.DeclinedFor.Microseconds()
	for _, kind := range k.among(kinds) {
		if l := k.lines[kind]; s.step.Now-l.named >= long/24 {
			l.named = s.step.Now
		}
	}
}

// abandon ends declined tasks that waited for DeclinedFor while no claim named their kind. It reports
// whether some of this work remains for the next claim.
func (s *Storage) abandon(q *queue, most int) (ended []storage.Ended, left bool) {
	k, long := &q.kinds, s.step.Limits.DeclinedFor.Microseconds()
	if s.step.Come == 0 || q.IsPaused(s.step.Now) {
		return nil, false
	}
	l := k.last()
	for n := 0; n < most && l != nil && l.look.Sort > s.step.Come+long; n++ {
		l.named = s.step.Come // a clock that was ahead stamped the line
		k.lookAt(l, s.at(l.named+long))
		l = k.last()
	}
	look := engine.Look{Step: &s.step, Moment: s.step.Come - long, Room: most}
	for _, l := range k.looks.until(s.step.Come, most) {
		over := true
		if l.named+long <= s.step.Come {
			l.from, over = look.Along(l.from, l.next)
		}
		if !over {
			break // the next claim searches the line again
		}
		k.lookAt(l, s.at(max(l.named+long, s.step.Come+long/24)))
	}
	first, _, some := k.looks.head()
	return s.step.Abandon(look.Found), some && first.Sort <= s.step.Come
}

// last returns the line that is to be searched last, nil where there is none.
func (k *kindLines) last() *kindLine {
	if k.looks.size == 0 {
		return nil
	}
	c := k.looks.chunks[len(k.looks.chunks)-1]
	return c[len(c)-1].value
}

// next returns up to n tasks at a place or after it.
func (l *kindLine) next(from place, n int) []*engine.Record {
	from.Turn--
	all := l.after(from, n, nil)
	found := make([]*engine.Record, len(all))
	for i := range all {
		found[i] = all[i].value
	}
	return found
}
