package sqlite

import (
	"context"

	"github.com/midgehq/midge/storage"
)

// Partitions lists the partitions of a queue. Next is the key of the page's last partition.
func (s *Storage) Partitions(
	ctx context.Context, query storage.PartitionsQuery,
) (page storage.PartitionsPage, err error) {
	if err := storage.CheckPartitions(&query); err != nil {
		return page, err
	}
	err = s.look(ctx, func(w *work) {
		page = storage.PartitionsPage{}
		w.begin()
		if q := w.Lookup(query.Queue); q != nil {
			page = w.step.Partitions(q, &query)
		}
	})
	return page, wrap("partitions of "+query.Queue, err)
}
