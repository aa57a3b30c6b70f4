package redis

import (
	"context"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Partitions lists the partitions of a queue of which the storage has something, in one script call. Next
// is the key of the last partition that the call has read.
func (s *Storage) Partitions(
	ctx context.Context, query storage.PartitionsQuery,
) (storage.PartitionsPage, error) {
	var page storage.PartitionsPage
	if err := storage.CheckPartitions(&query); err != nil {
		return page, err
	}
	action := "partitions of " + query.Queue
	if err := s.mayRead(); err != nil {
		return page, wrap(action, err)
	}
	list, err := s.scripts.partitions.list(ctx, s.client, s.keys.of(query.Queue, nil),
		query.Key, query.After, query.Limit)
	if err != nil {
		return page, wrap(action, err)
	}
	v := values(list)
	now, next, come := v.number(), v.text(), int64(0)
	if v.number() == 0 {
		come = now
	}
	q := &engine.Queue{Limit: engine.LimitOf(v.text(), v.text(), nil)}
	for len(v.list) > 0 && !v.bad {
		l := engine.Line{Queue: q, Sub: v.text(), Size: v.number()}
		l.Unpack([]byte(v.text())) // damaged bytes count as none
		if l.Paused == never {
			l.Paused = engine.Never
		}
		page.Partitions = append(page.Partitions, l.Stats(now, come))
	}
	if v.bad {
		return storage.PartitionsPage{}, wrap(action, errReply)
	}
	page.Next = next
	return page, nil
}
