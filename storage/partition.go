package storage

import (
	"context"
	"fmt"
	"time"
)

// CheckPartition returns an *InvalidError for a text that is not the key of a partition: 1 to MaxPartition
// bytes of printable UTF-8.
func CheckPartition(key string) error {
	if n := len(key); n == 0 || n > MaxPartition {
		return Invalid("partition", fmt.Sprintf("of %d bytes", n), "1 to %d bytes", MaxPartition)
	}
	if key != PrintableText(key, MaxPartition) {
		return Invalid("partition", key, "printable UTF-8")
	}
	return nil
}

// PartitionsQuery asks for a page of the partitions of a queue.
type PartitionsQuery struct {
	Queue string
	// Key asks for one partition alone, "" for all.
	Key string
	// After is the Next of the page before, "" for the first page.
	After string
	// Limit is the page's size: 1 to 1,000, 0 means 1,000.
	Limit int
}

// PartitionsPage is a page of partitions. Next is "" on the last page alone. A page before it may have fewer
// partitions than were asked for, or none.
type PartitionsPage struct {
	Partitions []PartitionStats
	Next       string
}

// PartitionStats describe a partition.
type PartitionStats struct {
	Key string
	// Limit is the limit that an operator has set for this partition, nil if none has. It stands in the place of
	// the limit of partitions of the queue: see InForce.
	Limit *PartitionLimit
	// Waiting counts the tasks in the line of the partition. Declined tasks do not count: they stand in the
	// line of their kind.
	Waiting int64
	// Running counts the pending tasks that count for the Concurrency of the limit of partitions.
	Running int64
	// Counts are the starts that count for the Rate of the limit of partitions now, the oldest first, and Next
	// is the moment from which that Rate admits another start of cost 1, zero if it admits one now.
	Counts []RateCount
	Next   time.Time
	// Rests is when the rest ends that a throttled task began, zero if there is none.
	Rests time.Time
	// Paused means that the partition is paused, and PausedUntil is when the pause ends; a zero PausedUntil
	// means that it ends when the partition is resumed.
	Paused      bool
	PausedUntil time.Time
}

// IsZero reports whether the storage has nothing of the partition.
func (s *PartitionStats) IsZero() bool {
	return s.Waiting == 0 && s.Running == 0 && len(s.Counts) == 0 && s.Rests.IsZero() && !s.Paused &&
		s.Limit == nil
}

// InForce returns the limit that holds for the partition: its own if it has one, else that of all
// partitions of the queue.
func (s *PartitionStats) InForce(all PartitionLimit) PartitionLimit {
	if s.Limit != nil {
		return *s.Limit
	}
	return all
}

// AtLimit reports whether the limit of the partition admits no other start of it now: full if as many of
// its tasks count as the Concurrency admits, and spent if the Rate admits the next start at Next. all is
// the limit of all partitions of the queue.
func (s *PartitionStats) AtLimit(all PartitionLimit) (full, spent bool) {
	l := s.InForce(all)
	return l.Concurrency > 0 && s.Running >= int64(l.Concurrency), l.Rate.N > 0 && !s.Next.IsZero()
}

// PartitionOf returns the stats of one partition, with zeros if the storage has nothing of it.
func PartitionOf(ctx context.Context, store Storage, queue, key string) (PartitionStats, error) {
	if err := CheckPartition(key); err != nil {
		return PartitionStats{}, err
	}
	page, err := store.Partitions(ctx, PartitionsQuery{Queue: queue, Key: key})
	if err != nil || len(page.Partitions) == 0 {
		return PartitionStats{Key: key}, err
	}
	return page.Partitions[0], nil
}

// CheckPartitions checks a query and fills its Limit.
func CheckPartitions(q *PartitionsQuery) error {
	if err := CheckName("queue name", q.Queue); err != nil {
		return err
	}
	if q.Limit == 0 {
		q.Limit = MaxNames
	}
	for _, key := range []string{q.Key, q.After} {
		if key == "" {
			continue
		}
		if err := CheckPartition(key); err != nil {
			return err
		}
	}
	return checkRange("PartitionsQuery.Limit", q.Limit, 1, MaxNames)
}
