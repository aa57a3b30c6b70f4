package survey

import (
	"context"

	"github.com/midgehq/midge/storage"
)

// readLoads finds the queues that need no runner, because they hold nothing but records of loads and
// imports. It reads them only while no runner is alive, and only if the queue has changed.
func (r *Reader) readLoads(ctx context.Context, before, fresh *Survey) error {
	var read []*Queue
	for i := range fresh.Queues {
		q := &fresh.Queues[i]
		if len(fresh.Runners) > 0 || q.Scheduled == 0 || q.Live() > q.Scheduled || q.Cursors > 0 {
			continue
		}
		if before != nil && len(before.Runners) == 0 {
			if was := before.byName[q.Queue]; was != nil && was.Mark == q.Mark {
				q.OnlyLoads = was.OnlyLoads
				continue
			}
		}
		read = append(read, q)
	}
	return Concurrently(len(read), func(i int) error {
		page, err := r.store.Tasks(ctx, storage.TasksQuery{
			Queue: read[i].Queue, State: storage.Scheduled, Limit: 1,
		})
		if err != nil {
			return err
		}
		// Such records are never due. So if the first task to be due is one, all others are, too.
		read[i].OnlyLoads = len(page.Tasks) == 1 && storage.RecordKind(page.Tasks[0].Kind)
		return nil
	})
}
