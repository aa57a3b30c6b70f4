package memory

import (
	"math"
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// kindLines are the lines in which the declined tasks of a queue wait, one for each kind that has
// any.
type kindLines struct {
	lines map[string]*kindLine
	names []string          // of all lines, sorted
	looks sorted[*kindLine] // by when each is looked at for tasks that waited too long
}

// kindLine is the line of one kind.
type kindLine struct {
	sorted[*engine.Record]

	named int64 // when a claim last named the kind, or the line began, to a twenty-fourth of DeclinedFor
	look  place // in kindLines.looks
	from  place // where the next look for tasks that waited too long begins
}

// joinKind puts a task that is declined into the line of its kind.
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

// lookAt sets when a line is looked at next.
func (k *kindLines) lookAt(l *kindLine, at place) {
	k.looks.remove(l.look)
	l.look = at
	k.looks.insert(at, l)
}

// leave takes a task out of its line.
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

// among gives those of some kinds that have a line, or the first of all where none is named.
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

// first gives the first task in the line of a kind from a place on that has none of some flags.
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

// list appends the tasks that come after a place in the line of a kind, and those of all kinds
// behind it, up to n of them.
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

// sizes gives the first kinds and how many tasks of each wait here.
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

// nameKinds notes that a claim names kinds.
func (s *Storage) nameKinds(q *queue, kinds []string) {
	k, long := &q.kinds, s.step.Limits.DeclinedFor.Microseconds()
	for _, kind := range k.among(kinds) {
		if l := k.lines[kind]; s.step.Now-l.named >= long/24 {
			l.named = s.step.Now
		}
	}
}

// abandon ends tasks whose kind no claim has named for long, and reports whether a part of that was left
// over.
func (s *Storage) abandon(q *queue, most int) (ended []storage.Ended, left bool) {
	k, long := &q.kinds, s.step.Limits.DeclinedFor.Microseconds()
	if s.step.Come == 0 || q.IsPaused(s.step.Now) {
		return nil, false
	}
	l := k.last()
	for n := 0; n < most && l != nil && l.look.Sort > s.step.Come+long; n++ {
		l.named = s.step.Come // a clock that was ahead has stamped it
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
			break // the line is looked at again by the next claim
		}
		k.lookAt(l, s.at(max(l.named+long, s.step.Come+long/24)))
	}
	first, _, some := k.looks.head()
	return s.step.Abandon(look.Found), some && first.Sort <= s.step.Come
}

// last gives the line that is looked at last, nil where there is none.
func (k *kindLines) last() *kindLine {
	if k.looks.size == 0 {
		return nil
	}
	c := k.looks.chunks[len(k.looks.chunks)-1]
	return c[len(c)-1].value
}

// next gives up to n tasks at or behind a place.
func (l *kindLine) next(from place, n int) []*engine.Record {
	from.Turn--
	all := l.after(from, n, nil)
	found := make([]*engine.Record, len(all))
	for i := range all {
		found[i] = all[i].value
	}
	return found
}
