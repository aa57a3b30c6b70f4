package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/midgehq/midge/bench/internal/system"
)

// perPartition is the number of jobs in each partition.
const perPartition = 10

// drainPartitions measures a drain in a queue whose jobs stand in many partitions, which are served in turn.
func drainPartitions(ctx context.Context, r *Rig) (Values, error) {
	return r.drainBeside(ctx, "drain_partitions", stage{Partitions: r.Sizes.Tasks / perPartition})
}

// drainOneEach measures such a drain in which one job of each partition may run at once.
func drainOneEach(metric string, each int) func(context.Context, *Rig) (Values, error) {
	return func(ctx context.Context, r *Rig) (Values, error) {
		s := stage{Partitions: r.Sizes.Tasks / each, Bounds: system.Bounds{Each: 1}}
		return r.drainBeside(ctx, metric, s)
	}
}

// partitionMemory measures how many bytes of the server's memory a job takes more if it stands in a
// partition, and how many each partition takes beside its jobs. The same jobs wait without partitions, in
// one, and in many.
func partitionMemory(ctx context.Context, r *Rig) (Values, error) {
	many := r.Sizes.Tasks / perPartition
	var bytes [3]int64
	for i, partitions := range []int{0, 1, many} {
		if err := r.Server.Reset(ctx); err != nil {
			return nil, err
		}
		var err error
		s := stage{Queues: []string{defaultQueue}, Tasks: r.Sizes.Tasks, Partitions: partitions}
		if bytes[i], err = r.memoryOf(ctx, s); err != nil {
			return nil, err
		}
	}
	return Values{
		"mem_in_partition":  float64(bytes[1]-bytes[0]) / float64(r.Sizes.Tasks),
		"mem_per_partition": float64(bytes[2]-bytes[1]) / float64(many-1),
	}, nil
}

// memoryOf returns how many bytes of the server's memory the waiting jobs of a stage take.
func (r *Rig) memoryOf(ctx context.Context, s stage) (bytes int64, err error) {
	if err := r.once(ctx); err != nil { // memory that is allocated only once does not count
		return 0, err
	}
	before, err := r.Server.Memory(ctx)
	if err != nil {
		return 0, err
	}
	instance, err := r.target().open(ctx)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(s.fill(ctx, instance), instance.Close()); err != nil {
		return 0, err
	}
	after, err := r.Server.Memory(ctx)
	if err == nil {
		err = r.holds(ctx, defaultQueue, system.Totals{Waiting: int64(s.Tasks)})
	}
	return after - before, err
}

// partitioner is an instance whose jobs can stand in partitions. It is declared here, so that the guard can
// measure a reference without partitions.
type partitioner interface {
	// EnqueuePartitioned enqueues jobs in one call, each in the partition whose key has its index.
	EnqueuePartitioned(ctx context.Context, queue string, payloads [][]byte, keys []string) error
}

// fillPartitions enqueues jobs in calls of a thousand, one after the other in each partition of a queue.
func fillPartitions(ctx context.Context, instance system.Instance, queue string, jobs, partitions int) error {
	own, ok := instance.(partitioner)
	if !ok {
		return errors.New("the system has no partitions")
	}
	for from := 0; from < jobs; from += bulkItems {
		payloads := make([][]byte, min(bulkItems, jobs-from))
		keys := make([]string, len(payloads))
		for i := range payloads {
			payloads[i], keys[i] = payload(), fmt.Sprintf("customer-%06d", (from+i)%partitions)
		}
		if err := own.EnqueuePartitioned(ctx, queue, payloads, keys); err != nil {
			return err
		}
	}
	return nil
}
