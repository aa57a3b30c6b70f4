package redis

import (
	"context"

	"github.com/midgehq/midge/storage"
)

// Partitions lists the partitions of a queue that have waiting tasks or are paused, in one script call. Next
// is the key of the page's last partition.
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
	v.number() // the time of the call
	more := v.number() > 0
	for len(v.list) > 0 && !v.bad {
		p := storage.PartitionStats{Key: v.text(), Waiting: v.number()}
		until := v.number()
		p.Paused = until != 0
		if until > 0 {
			p.PausedUntil = moment(until)
		}
		page.Partitions = append(page.Partitions, p)
	}
	if v.bad {
		return storage.PartitionsPage{}, wrap(action, errReply)
	}
	if more {
		page.Next = page.Partitions[len(page.Partitions)-1].Key
	}
	return page, nil
}
