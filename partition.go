package midge

import (
	"context"
	"iter"
	"time"

	"github.com/midgehq/midge/storage"
)

// PartitionStats are the numbers of a partition: how many tasks wait in it, whether it is paused, its own
// limit, how much of its [PartitionLimit] is in use, and until when it rests after a [Throttle].
type PartitionStats = storage.PartitionStats

// QueuePartition is a handle on a partition of a queue: the tasks that share a key, such as the name
// of a tenant. [Queue.Partition] makes it.
type QueuePartition struct {
	queue *Queue
	key   string
}

// Partition returns the partition with a key; its methods refuse an invalid key before any I/O. A partition
// needs no creation, and an empty one leaves nothing behind, unless it is paused or rests, has a limit of
// its own, or its limit still counts tasks that run or starts.
func (q *Queue) Partition(key string) *QueuePartition { return &QueuePartition{queue: q, key: key} }

// Partitions lists the partitions of the queue that have waiting tasks or a limit of their own, are paused
// or rest, or whose limit counts tasks that run or starts, by key. It reads page by page, so that tasks may
// come and go meanwhile. The iteration ends after an error.
func (q *Queue) Partitions(ctx context.Context) iter.Seq2[PartitionStats, error] {
	return func(yield func(PartitionStats, error) bool) {
		if err := q.check(); err != nil {
			yield(PartitionStats{}, q.wrap("list partitions of", err))
			return
		}
		for p, err := range storage.EachPartition(ctx, q.client.store, q.name) {
			if !yield(p, q.wrap("list partitions of", err)) {
				return
			}
		}
	}
}

// Key returns the key of the partition.
func (p *QueuePartition) Key() string { return p.key }

// Pause stops runners from claiming tasks of the partition until [QueuePartition.Resume]. The other
// partitions of the queue are served, running tasks go on, and tasks can still be enqueued. A partition
// can be paused before its first task comes. It returns an [ErrNotFound] if there is no such queue; see
// [Queue.Create].
func (p *QueuePartition) Pause(ctx context.Context) error {
	return p.pause(ctx, "pause", &storage.Pause{On: true})
}

// PauseFor is [QueuePartition.Pause] for d, a millisecond at least; the pause ends by itself.
func (p *QueuePartition) PauseFor(ctx context.Context, d time.Duration) error {
	pause, err := pauseOf(d)
	if err != nil {
		return p.wrap("pause", err)
	}
	return p.pause(ctx, "pause", pause)
}

// Resume ends a pause of the partition, which is then served after the partitions that wait already. It does
// not end a rest after a [Throttle]. It returns an [ErrNotFound] if there is no such queue.
func (p *QueuePartition) Resume(ctx context.Context) error {
	return p.pause(ctx, "resume", new(storage.Pause))
}

// SetLimit sets the limit of this partition alone, in place of the [Limit.Partition] of its queue, until
// [QueuePartition.ClearLimit]: a bound or weight that l does not set is none, whatever the limit of the queue
// sets. The zero PartitionLimit lifts the limit of the queue's partitions for this one. It can be set before
// the first task comes. Jobs that run go on. It returns an [ErrNotFound] if there is no such queue; see
// [Queue.Create].
func (p *QueuePartition) SetLimit(ctx context.Context, l PartitionLimit) error {
	err := storage.CheckPartitionLimit("PartitionLimit", l)
	if err != nil {
		return p.wrap("set the limit of", err)
	}
	limit := wholeLimit(Limit{Partition: l})
	return p.limit(ctx, "set the limit of", storage.OperatorLimit{On: true, Limit: limit})
}

// ClearLimit clears the limit that SetLimit has set, so that the limit of all partitions of the queue holds
// again. It returns an [ErrNotFound] if there is no such queue.
func (p *QueuePartition) ClearLimit(ctx context.Context) error {
	return p.limit(ctx, "clear the limit of", storage.OperatorLimit{})
}

func (p *QueuePartition) limit(ctx context.Context, action string, l storage.OperatorLimit) error {
	err := p.check()
	if err == nil {
		err = p.queue.pause(ctx, storage.Settings{Partition: p.key, Limit: &l})
	}
	return p.wrap(action, err)
}

func (p *QueuePartition) pause(ctx context.Context, action string, pause *storage.Pause) error {
	err := p.check()
	if err == nil {
		err = p.queue.pause(ctx, storage.Settings{Partition: p.key, Pause: pause})
	}
	return p.wrap(action, err)
}

// Stats returns how many tasks wait in the partition, whether it is paused, its own limit, how much of its
// limit is in use, and until when it rests. A partition of which the storage has nothing has zeros.
func (p *QueuePartition) Stats(ctx context.Context) (PartitionStats, error) {
	err := p.check()
	if err == nil {
		err = p.queue.check()
	}
	if err != nil {
		return PartitionStats{}, p.wrap("read stats of", err)
	}
	stats, err := storage.PartitionOf(ctx, p.queue.client.store, p.queue.name, p.key)
	return stats, p.wrap("read stats of", err)
}

// Tasks lists the waiting tasks of the partition, in the order in which they are claimed. It reads page
// by page, so that tasks may change meanwhile. The iteration ends after an error. Tasks of a kind that
// no runner handles are not among them; [Queue.Tasks] lists these too.
func (p *QueuePartition) Tasks(ctx context.Context) iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		err := p.check()
		if err == nil {
			err = p.queue.check()
		}
		if err != nil {
			yield(Task{}, p.wrap("list tasks of", err))
			return
		}
		for t, err := range storage.EachOfPartition(ctx, p.queue.client.reader(), p.queue.name, p.key) {
			if !yield(t, p.wrap("list tasks of", err)) {
				return
			}
		}
	}
}

func (p *QueuePartition) check() error { return storage.CheckPartition(p.key) }

// wrap adds action and the names of the partition and its queue to err. It leaves them out if the key is
// invalid, which err quotes.
func (p *QueuePartition) wrap(action string, err error) error {
	if p.check() != nil {
		return about(err, action, "partition")
	}
	return p.queue.wrap(action+" partition "+p.key+" of", err)
}
