package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

// inPartitions makes a Configure that alters the limit of partitions in each limit that it sets.
func inPartitions(edit func(*storage.PartitionLimit)) func(configureFunc) configureFunc {
	return limits(func(l *storage.Limit) {
		if !l.Partition.IsZero() {
			edit(&l.Partition)
		}
	})
}

// restings makes an Apply that alters each release that puts a partition to rest.
func restings(edit func(*storage.Settle)) func(applyFunc) applyFunc {
	return settles(func(s *storage.Settle) {
		if s.Outcome == storage.Release && s.Delay > 0 {
			edit(s)
		}
	})
}

func shareMutants() []mutant {
	return []mutant{
		breaks("limits of partitions ignored", fault{configure: limits(func(l *storage.Limit) {
			l.Partition = storage.PartitionLimit{}
		})}, "share/concurrency", "share/every end", "share/rate", "share/empty", "share/declined", "share/loosened"),
		breaks("one task too many in a partition", fault{configure: inPartitions(func(l *storage.PartitionLimit) {
			if l.Concurrency > 0 {
				l.Concurrency++
			}
		})}, "share/concurrency", "share/every end", "share/empty", "share/declined", "share/loosened"),
		breaks("one start too many in a partition", fault{configure: inPartitions(func(l *storage.PartitionLimit) {
			if l.Rate.N > 0 {
				l.Rate.N++
			}
		})}, "share/rate", "share/empty", "share/loosened"),
		breaks("the limit of partitions is that of the queue", fault{configure: limits(func(l *storage.Limit) {
			l.Concurrency, l.Rate, l.Partition = l.Partition.Concurrency, l.Partition.Rate, storage.PartitionLimit{}
		})}, "share/concurrency", "share/rate", "share/declined"),
		breaks("slots of partitions do not come back", fault{configure: inPartitions(func(l *storage.PartitionLimit) {
			if l.Concurrency > 0 {
				l.Rate, l.Concurrency = storage.Rate{N: l.Concurrency, Per: time.Hour}, 0
			}
		})}, "share/every end", "share/concurrency"),
		breaks("queues with full partitions unnamed", fault{claim: given(
			func(_ storage.ClaimRequest, c *storage.Claimed) { c.Held = nil },
		)}, "share/concurrency", "share/declined"),
		breaks("nothing rests", fault{apply: restings(func(s *storage.Settle) { s.Delay = 0 })},
			"share/throttle", "share/rest of an empty partition", "share/throttle without a partition"),
		breaks("rests last too long", fault{apply: restings(func(s *storage.Settle) { s.Delay += s.Delay / 2 })},
			"share/throttle", "share/rest of an empty partition", "share/throttle without a partition"),
		breaks("NextDue without rests", fault{claim: given(func(_ storage.ClaimRequest, c *storage.Claimed) {
			c.NextDue = time.Time{}
		})}, "share/rate", "share/throttle", "share/throttle without a partition"),
	}
}
