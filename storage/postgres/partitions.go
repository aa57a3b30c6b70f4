package postgres

import (
	"context"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Partitions lists a page of the partitions of a queue, by key. Next is the last key of the page.
func (s *Storage) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	if err := storage.CheckPartitions(&q); err != nil {
		return storage.PartitionsPage{}, err
	}
	var page storage.PartitionsPage
	var l engine.Line
	var starts []byte
	var now, come int64
	var operator, declared, own string
	err := s.pooled().bounded(ctx, "partitions of "+q.Queue, func(ctx context.Context) error {
		page = storage.PartitionsPage{}
		return s.ask(ctx, s.pool, query{
			text: "SELECT * FROM {schema}.partitions($1, $2, $3, $4)",
			args: []any{q.Queue, q.Key, q.After, int32(q.Limit + 1)},
			scan: each(func() error {
				l.Queue = &engine.Queue{Limit: engine.LimitOf(operator, declared, nil)}
				l.Starts = engine.UnpackStarts(starts)
				l.Own, _ = engine.OwnOf(own)
				page.Partitions = append(page.Partitions, l.Stats(now, come))
				return nil
			}, &l.Sub, &l.Size, &l.Paused, &l.Rest, &l.Running, &starts, &now, &come, &operator, &declared, &own),
		})
	})
	if len(page.Partitions) > q.Limit { // one more was asked for, to know whether there is a next page
		page.Partitions = page.Partitions[:q.Limit]
		page.Next = page.Partitions[q.Limit-1].Key
	}
	return page, err
}
