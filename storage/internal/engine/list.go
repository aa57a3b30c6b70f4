package engine

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// Mark is the place of a task in a listing: its place in its line and, if the state has several lines, that
// state and the name of the line. Row distinguishes tasks that stand at one place, which no step brings
// about.
type Mark struct {
	Place

	Row int64
	In  State // None if the state has one line
	Sub string
}

// The marks before and after all tasks that stand in the line of a state.
var (
	beginning = Mark{Place: Place{Sort: math.MinInt64, Turn: math.MinInt64}}
	ending    = Mark{Place: Place{Sort: math.MaxInt64, Turn: math.MaxInt64}, Row: math.MaxInt64}
)

// Compare orders the marks of a line.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Sort, o.Sort), cmp.Compare(m.Turn, o.Turn), cmp.Compare(m.Row, o.Row))
}

// String returns the mark as the text of TasksPage.Next.
func (m Mark) String() string {
	text := fmt.Sprintf("%d.%d.%d", m.Sort, m.Turn, m.Row)
	if m.In != None {
		text += fmt.Sprintf(".%d.%s", m.In, m.Sub)
	}
	return text
}

// ParseMark returns the mark after which a query lists tasks. It returns a *storage.InvalidError for a text
// that is not the Next of a page.
func ParseMark(query *storage.TasksQuery) (m Mark, err error) {
	text := query.After
	if text == "" {
		if query.Newest {
			return ending, nil
		}
		return beginning, nil
	}
	parts := strings.SplitN(text, ".", 5)
	if len(parts) == 5 {
		m.Sub = parts[4]
		_, err = fmt.Sscanf(parts[3], "%d", &m.In)
	}
	n, bad := fmt.Sscanf(strings.Join(parts[:min(3, len(parts))], "."), "%d.%d.%d", &m.Sort, &m.Turn, &m.Row)
	if err != nil || bad != nil || n != 3 || m.String() != text {
		return Mark{}, storage.Invalid("TasksQuery.After", text, "the Next of a page")
	}
	return m, nil
}

// List lists a page of the tasks of one state after a mark, in the order of that state. Tasks in lines with
// names come last, line after line. List leaves out records that cannot be read.
func (s *Step) List(q *Queue, query *storage.TasksQuery, after Mark) (page storage.TasksPage) {
	if query.Partition != "" {
		return s.listPartition(q, query, after)
	}
	var all []*Record
	n, compare := query.Limit+1, Mark.Compare // one more, to know whether there is a next page
	if query.Newest {
		compare = func(a, b Mark) int { return b.Compare(a) }
	}
	for _, state := range StatesOf(query.State) {
		if after.In == None && !state.HasSubs() {
			all = append(all, s.Local.Page(&Line{Queue: q, State: state}, after, query.Newest, n)...)
		}
	}
	slices.SortFunc(all, func(a, b *Record) int { return compare(s.Local.MarkOf(a), s.Local.MarkOf(b)) })
	for _, state := range StatesOf(query.State) {
		if !state.HasSubs() || q.Sizes[state] == 0 || state < after.In {
			continue
		}
		sub := ""
		if state == after.In {
			sub = after.Sub
		}
		for l := range s.linesFrom(q, state, sub, n+1) {
			if l.Size <= 0 {
				continue
			}
			from := beginning
			if state == after.In && l.Sub == after.Sub {
				from = after
			}
			if len(all) >= n {
				break
			}
			all = append(all, s.Local.Page(l, from, false, n-len(all))...)
		}
	}
	s.fill(&page, query, all)
	return page
}

// linesFrom returns the lines of a state at a name or after it, by name. It reads n lines at a time, at least
// 2: many of them may be partitions that are paused and hold no task.
func (s *Step) linesFrom(q *Queue, state State, name string, n int) iter.Seq[*Line] {
	return func(yield func(*Line) bool) {
		for first := true; ; first = false {
			lines := s.Lines.LinesFrom(q, state, name, n)
			for _, l := range lines {
				if (first || l.Sub != name) && !yield(l) {
					return
				}
			}
			if len(lines) < n {
				return
			}
			name = lines[len(lines)-1].Sub
		}
	}
}

// listPartition lists a page of the tasks in the line of a partition.
func (s *Step) listPartition(q *Queue, query *storage.TasksQuery, after Mark) (page storage.TasksPage) {
	if l := s.Lines.Partition(q, query.Partition); l != nil {
		s.fill(&page, query, s.Local.Page(l, after, false, query.Limit+1))
	}
	return page
}

// fill fills a page with the first tasks of a list, which holds one task more if there is a next page.
func (s *Step) fill(page *storage.TasksPage, query *storage.TasksQuery, all []*Record) {
	if len(all) > query.Limit {
		all = all[:query.Limit]
		page.Next = s.Local.MarkOf(all[query.Limit-1]).String()
	}
	for _, r := range all {
		if r.State != Damaged {
			page.Tasks = append(page.Tasks, s.Store.Find(r.Ref).Task())
		}
	}
}
