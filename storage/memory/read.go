package memory

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Task reads one task. It returns [storage.ErrNotFound] where there is no such task.
func (s *Storage) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if err := storage.CheckRef(ref); err != nil {
		return storage.Task{}, err
	}
	if err := s.look(ctx); err != nil {
		return storage.Task{}, fmt.Errorf("memory: task %s: %w", ref, err)
	}
	defer s.mu.Unlock()
	r := (*records)(s).Find(ref)
	if r == nil {
		return storage.Task{}, fmt.Errorf("memory: task %s: %w", ref, storage.ErrNotFound)
	}
	return whole(r), nil
}

// Tasks lists a page of the tasks of one state, in the order of that state. Next is
// the place of the page's last task.
func (s *Storage) Tasks(ctx context.Context, query storage.TasksQuery) (storage.TasksPage, error) {
	if err := storage.CheckTasks(&query); err != nil {
		return storage.TasksPage{}, err
	}
	after, err := parseMark(query.After)
	if err != nil {
		return storage.TasksPage{}, err
	}
	if query.Newest && query.After == "" {
		after = mark{place: place{Sort: math.MaxInt64, Turn: math.MaxInt64}}
	}
	if err := s.look(ctx); err != nil {
		return storage.TasksPage{}, fmt.Errorf("memory: tasks of %s: %w", query.Queue, err)
	}
	defer s.mu.Unlock()
	var page storage.TasksPage
	q := s.queues[query.Queue]
	if q == nil {
		return page, nil
	}
	list := q.list
	if query.Newest {
		list = q.listNewest
	}
	found := list(query.State, after, query.Limit+1)
	if len(found) > query.Limit { // one more was asked for, to know whether there is a next page
		found = found[:query.Limit]
		page.Next = markOf(found[query.Limit-1]).String()
	}
	page.Tasks = make([]storage.Task, len(found))
	for i := range found {
		page.Tasks[i] = found[i].value.Task()
	}
	return page, nil
}

// list returns up to n tasks of a state that come after a mark, in order. The declined tasks come
// last, kind after kind.
func (q *queue) list(state storage.State, after mark, n int) []entry[*engine.Record] {
	var found []entry[*engine.Record]
	if after.kind == "" {
		for _, line := range engine.StatesOf(state) {
			found = q.lines[line].after(after.place, n, found)
		}
		sort.Slice(found, func(i, j int) bool { return found[i].Before(found[j].place) })
		found = found[:min(n, len(found))]
	}
	if state == storage.Waiting {
		for i, known := q.sub(after.kind); i < len(q.subs) && len(found) < n; i++ {
			from := after.place
			if !known {
				from = place{Sort: math.MinInt64}
			}
			known = false // later kinds are listed from their beginnings
			found = q.subs[i].after(from, n-len(found), found)
		}
	}
	return found
}

// listNewest returns up to n tasks of an ended state that come before a mark, in reverse order.
func (q *queue) listNewest(state storage.State, before mark, n int) (found []entry[*engine.Record]) {
	for _, line := range engine.StatesOf(state) { // an ended state has one line
		found = q.lines[line].before(before.place, n, found)
	}
	return found
}

// mark is the place at which a page ends: in the line of a state or, where kind is set, in the line
// of that kind.
type mark struct {
	place

	kind string
}

func markOf(e entry[*engine.Record]) mark {
	m := mark{place: e.place}
	if e.value.State == engine.Declined {
		m.kind = e.value.Kind
	}
	return m
}

// String returns the mark as the text of TasksPage.Next.
func (m mark) String() string {
	text := fmt.Sprintf("%d.%d", m.Sort, m.Turn)
	if m.kind != "" {
		text += "." + m.kind
	}
	return text
}

// parseMark reads a mark from its text. The empty text gives a mark before all tasks.
func parseMark(text string) (mark, error) {
	if text == "" {
		return mark{place: place{Sort: math.MinInt64, Turn: math.MinInt64}}, nil
	}
	var m mark
	parts := strings.SplitN(text, ".", 3)
	if len(parts) == 3 {
		m.kind = parts[2]
	}
	n, err := fmt.Sscanf(strings.Join(parts[:min(2, len(parts))], "."), "%d.%d", &m.Sort, &m.Turn)
	if err != nil || n != 2 || m.String() != text {
		return mark{}, storage.Invalid("TasksQuery.After", text, "the Next of a page")
	}
	return m, nil
}

// Queues lists names of queues, sorted. Next is the last name of the page.
func (s *Storage) Queues(ctx context.Context, query storage.QueuesQuery) (storage.QueuesPage, error) {
	if err := storage.CheckQueues(&query); err != nil {
		return storage.QueuesPage{}, err
	}
	if err := s.look(ctx); err != nil {
		return storage.QueuesPage{}, fmt.Errorf("memory: queues: %w", err)
	}
	defer s.mu.Unlock()
	var page storage.QueuesPage
	i, found := slices.BinarySearch(s.names, max(query.After, query.Prefix))
	if found && query.After != "" && s.names[i] == query.After {
		i++
	}
	for ; i < len(s.names) && strings.HasPrefix(s.names[i], query.Prefix); i++ {
		if s.queues[s.names[i]].isAbandoned(s.step.Now) {
			continue // inspectQueue removes it when its turn comes
		}
		if len(page.Names) == query.Limit {
			page.Next = page.Names[query.Limit-1]
			break
		}
		page.Names = append(page.Names, s.names[i])
	}
	return page, nil
}

// Stats returns the sizes and totals of queues, all at one moment.
func (s *Storage) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	for _, name := range queues {
		if err := storage.CheckName("queue name", name); err != nil {
			return nil, err
		}
	}
	if err := s.look(ctx); err != nil {
		return nil, fmt.Errorf("memory: stats: %w", err)
	}
	defer s.mu.Unlock()
	stats := make([]storage.Stats, len(queues))
	for i, name := range queues {
		stats[i] = storage.Stats{Queue: name}
		if q := s.queues[name]; q != nil {
			stats[i] = s.step.Stats(&q.Queue)
		}
	}
	return stats, nil
}
