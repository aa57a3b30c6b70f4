package midge

import (
	"context"
	"time"

	"github.com/midgehq/midge/storage"
)

// Limit bounds the jobs of a queue over all runners: RunnerConfig.QueueLimits declares it, and
// [Queue.SetLimit] sets it while programs run. The zero Limit sets no bound.
type Limit = storage.Limit

// PartitionLimit is the part of a [Limit] that bounds the jobs of each partition of the queue, over all
// runners: how many jobs of a customer run at once, for example, how many start in a span of time, and how
// many are taken in one turn. It bounds no job without a partition; see [Partition].
// [QueuePartition.SetLimit] sets the limit of one partition. The zero PartitionLimit sets no bound.
type PartitionLimit = storage.PartitionLimit

// Rate allows N jobs to start in any span of Per, by the storage's clock, or as many as have costs that
// sum up to N: see [Cost].
type Rate = storage.Rate

// SetLimit sets the limit of the queue in place of the limit that programs declare, until
// [Queue.ClearLimit]: a bound that l does not set is none, whatever is declared, also a bound of each
// partition. The zero Limit lifts the declared one. Jobs that run go on. It returns an [ErrNotFound] if there
// is no such queue; see [Queue.Create].
func (q *Queue) SetLimit(ctx context.Context, l Limit) error {
	l = wholeLimit(l)
	err := q.checkOwn()
	if err == nil {
		err = storage.CheckLimit("Limit", l)
	}
	if err == nil {
		err = q.client.session.SetLimit(ctx, q.name, l)
	}
	return q.wrap("set the limit of", err)
}

// ClearLimit clears the limit that SetLimit has set, so that the declared limit holds again. If none
// was set, it removes a declared limit that no live runner declares any more. It returns an
// [ErrNotFound] if there is no such queue.
func (q *Queue) ClearLimit(ctx context.Context) error {
	err := q.checkOwn()
	if err == nil {
		err = q.client.session.ClearLimit(ctx, q.name)
	}
	return q.wrap("clear the limit of", err)
}

// wholeLimit rounds each Per of a limit down to whole microseconds, as storages store it.
func wholeLimit(l Limit) Limit {
	l.Rate.Per = l.Rate.Per.Truncate(time.Microsecond)
	l.Partition.Rate.Per = l.Partition.Rate.Per.Truncate(time.Microsecond)
	return l
}
