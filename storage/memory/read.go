package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Task reads one task. It returns [storage.ErrNotFound] if there is no such task.
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
	after, err := engine.ParseMark(&query)
	if err != nil {
		return storage.TasksPage{}, err
	}
	if err := s.look(ctx); err != nil {
		return storage.TasksPage{}, fmt.Errorf("memory: tasks of %s: %w", query.Queue, err)
	}
	defer s.mu.Unlock()
	q := s.queues[query.Queue]
	if q == nil {
		return storage.TasksPage{}, nil
	}
	return s.step.List(&q.Queue, &query, after), nil
}

// Partitions lists the partitions of a queue that have waiting tasks or a limit of their own, are paused or
// rest, or whose limit counts running tasks or starts. Next is the key of the page's last partition.
func (s *Storage) Partitions(
	ctx context.Context, query storage.PartitionsQuery,
) (storage.PartitionsPage, error) {
	if err := storage.CheckPartitions(&query); err != nil {
		return storage.PartitionsPage{}, err
	}
	if err := s.look(ctx); err != nil {
		return storage.PartitionsPage{}, fmt.Errorf("memory: partitions of %s: %w", query.Queue, err)
	}
	defer s.mu.Unlock()
	q := s.queues[query.Queue]
	if q == nil {
		return storage.PartitionsPage{}, nil
	}
	return s.step.Partitions(&q.Queue, &query), nil
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
