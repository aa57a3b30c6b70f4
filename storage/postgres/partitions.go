package postgres

import (
	"context"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Partitions lists a page of the partitions of a queue that have waiting tasks or are paused, by key.
// Next is the last key of the page.
func (s *Storage) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	if err := storage.CheckPartitions(&q); err != nil {
		return storage.PartitionsPage{}, err
	}
	var page storage.PartitionsPage
	var key string
	var tasks, until, now int64
	err := s.pooled().bounded(ctx, "partitions of "+q.Queue, func(ctx context.Context) error {
		page = storage.PartitionsPage{}
		return s.ask(ctx, s.pool, query{
			text: "SELECT * FROM {schema}.partitions($1, $2, $3, $4)",
			args: []any{q.Queue, q.Key, q.After, int32(q.Limit + 1)},
			scan: each(func() error {
				st := storage.PartitionStats{Key: key, Waiting: tasks, Paused: until > now}
				if st.Paused && until != engine.Never {
					st.PausedUntil = engine.Time(until)
				}
				page.Partitions = append(page.Partitions, st)
				return nil
			}, &key, &tasks, &until, &now),
		})
	})
	if len(page.Partitions) > q.Limit { // one more was asked for, to know whether there is a next page
		page.Partitions = page.Partitions[:q.Limit]
		page.Next = page.Partitions[q.Limit-1].Key
	}
	return page, err
}
