package dashboard

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// sampled is the storage for a page: what the last look read of queues, runners and the storage itself is not
// asked for again.
type sampled struct {
	storage.Storage

	sample *sample
	now    time.Time     // by the storage's clock
	task   *storage.Task // that the page has read; nil for none
}

// sampled gives the storage as the page of a view reads it.
func (v *view) sampled() *sampled {
	return &sampled{Storage: v.server.store, sample: v.Sample, now: v.Now}
}

// Task gives the task that the page has read.
func (s *sampled) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if s.task != nil && s.task.Ref == ref {
		return *s.task, nil
	}
	return s.Storage.Task(ctx, ref)
}

// Describe tells what the look found, and the time.
func (s *sampled) Describe(context.Context) (storage.Description, error) {
	d := s.sample.info
	d.Now = s.now
	return d, nil
}

// Runners are those that the look found.
func (s *sampled) Runners(context.Context) ([]storage.RunnerInfo, error) {
	return s.sample.runners, nil
}

// Stats are those of the look. Queues that it did not find are asked for.
func (s *sampled) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	all := make([]storage.Stats, 0, len(queues))
	for _, name := range queues {
		q := s.sample.byName[name]
		if q == nil {
			return s.Storage.Stats(ctx, queues...)
		}
		all = append(all, q.Stats)
	}
	return all, nil
}

// Queues lists those of the look. Midge's own are not among them, and are asked for.
func (s *sampled) Queues(ctx context.Context, query storage.QueuesQuery) (storage.QueuesPage, error) {
	_, own := strings.CutPrefix(query.Prefix, storage.ReservedQueues)
	for i := 1; i < len(storage.ReservedQueues) && !own; i++ { // or a part of that prefix
		own = query.Prefix == storage.ReservedQueues[:i]
	}
	page := cmp.Or(query.Limit, storage.MaxNames)
	if own || query.After != "" || len(s.sample.queues) > page {
		return s.Storage.Queues(ctx, query)
	}
	var names storage.QueuesPage
	for i := range s.sample.queues {
		if name := s.sample.queues[i].Queue; strings.HasPrefix(name, query.Prefix) {
			names.Names = append(names.Names, name)
		}
	}
	return names, nil
}
