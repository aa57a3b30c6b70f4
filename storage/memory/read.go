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

// Task reads one task. [storage.ErrNotFound] where there is none.
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
	after, err := parsePlace(query.After)
	if err != nil {
		return storage.TasksPage{}, err
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
	found := q.list(query.State, after, query.Limit+1)
	if len(found) > query.Limit { // one more was asked for, to know whether there is a next page
		found = found[:query.Limit]
		page.Next = showPlace(last(found))
	}
	page.Tasks = make([]storage.Task, len(found))
	for i := range found {
		page.Tasks[i] = listed(found[i].value)
	}
	return page, nil
}

// list gives up to n tasks of a state that come after a place, in order.
func (q *queue) list(state storage.State, after place, n int) []entry[*engine.Record] {
	var found []entry[*engine.Record]
	for _, line := range engine.StatesOf(state) {
		found = q.lines[line].after(after, n, found)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Before(found[j].place) })
	return found[:min(n, len(found))]
}

// showPlace gives a place as a caller carries it from page to page.
func showPlace(p place) string { return fmt.Sprintf("%d.%d", p.Sort, p.Turn) }

// parsePlace reads a place back. The empty one is before all others.
func parsePlace(text string) (place, error) {
	if text == "" {
		return place{Sort: math.MinInt64, Turn: math.MinInt64}, nil
	}
	var p place
	if n, err := fmt.Sscanf(text, "%d.%d", &p.Sort, &p.Turn); err != nil || n != 2 || showPlace(p) != text {
		return place{}, storage.Invalid("TasksQuery.After", text, "the Next of a page")
	}
	return p, nil
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
			continue // to be removed when it is next inspected
		}
		if len(page.Names) == query.Limit {
			page.Next = page.Names[query.Limit-1]
			break
		}
		page.Names = append(page.Names, s.names[i])
	}
	return page, nil
}

// Stats gives the sizes and totals of queues, all at one moment.
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
			stats[i] = q.Stats()
			if q.IsPaused(s.step.Now) {
				stats[i].Paused, stats[i].PausedUntil = true, engine.Time(q.PausedUntil)
			}
		}
	}
	return stats, nil
}
