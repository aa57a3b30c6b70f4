package sampler

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// Cached is a storage for a page that reads tasks itself. The sample answers for queues, runners, and the
// description of the storage.
type Cached struct {
	storage.Storage

	sample *Sample
	now    time.Time      // by the storage's clock
	tasks  []storage.Task // the tasks that the page has read
}

// Cached returns a storage for which the sample answers as far as it can. tasks are the tasks that a page has
// read already. now is the storage's time.
func (s *Sample) Cached(store storage.Storage, now time.Time, tasks ...storage.Task) *Cached {
	return &Cached{Storage: store, sample: s, now: now, tasks: tasks}
}

// Task returns a task, from the storage if the page has not read it yet.
func (c *Cached) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	for i := range c.tasks {
		if c.tasks[i].Ref == ref {
			return c.tasks[i], nil
		}
	}
	return c.Storage.Task(ctx, ref)
}

// Describe returns the description in the sample, with the time of the page.
func (c *Cached) Describe(context.Context) (storage.Description, error) {
	d := c.sample.Info
	d.Now = c.now
	return d, nil
}

// Runners returns the runners of the sample.
func (c *Cached) Runners(context.Context) ([]storage.RunnerInfo, error) {
	return c.sample.Runners, nil
}

// Stats returns the sizes in the sample. It asks the storage if the sample lacks one of the queues.
func (c *Cached) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	all := make([]storage.Stats, 0, len(queues))
	for _, name := range queues {
		q := c.sample.Queue(name)
		if q == nil {
			return c.Storage.Stats(ctx, queues...)
		}
		all = append(all, q.Stats)
	}
	return all, nil
}

// Queues lists the queues of the sample. It asks the storage for a list of several pages, and if midge's own
// queues, which the sample lacks, have the prefix. A list of one page for the empty prefix leaves them out.
func (c *Cached) Queues(ctx context.Context, query storage.QueuesQuery) (storage.QueuesPage, error) {
	_, own := strings.CutPrefix(query.Prefix, storage.ReservedQueues)
	for i := 1; i < len(storage.ReservedQueues) && !own; i++ { // a shorter prefix matches these queues, too
		own = query.Prefix == storage.ReservedQueues[:i]
	}
	page := cmp.Or(query.Limit, storage.MaxNames)
	if own || query.After != "" || len(c.sample.Queues) > page {
		return c.Storage.Queues(ctx, query)
	}
	var names storage.QueuesPage
	for i := range c.sample.Queues {
		if name := c.sample.Queues[i].Queue; strings.HasPrefix(name, query.Prefix) {
			names.Names = append(names.Names, name)
		}
	}
	return names, nil
}
