package show

import (
	"time"

	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// QueueLimit is the record of the limit of a queue: the limit in force, its sources, and its use.
type QueueLimit struct {
	Limit
	// Operator is the limit that an operator has set, and Declared the limit of programs, nil for none.
	Operator *Limit     `json:"operator"`
	Declared *Limit     `json:"declared"`
	Started  int64      `json:"started"` // starts that count for the rate
	Next     *time.Time `json:"next"`    // when the rate admits another start, nil for now
	Limited  bool       `json:"limited"` // the limit admits no other start now
}

// Limit is a limit of the tasks of a queue.
type Limit struct {
	Bounds
	Partition PartitionLimit `json:"partition"` // of each partition
}

// PartitionLimit is the limit of a partition. A weight of 0 is 1.
type PartitionLimit struct {
	Bounds
	Weight int `json:"weight"`
}

// Bounds are bounds of tasks. A bound of 0 is none.
type Bounds struct {
	Concurrency int     `json:"concurrency"`
	Rate        int     `json:"rate"` // starts in Per
	Per         float64 `json:"per_seconds"`
}

func limitOf(l storage.Limit) Limit {
	return Limit{boundsOf(l.Concurrency, l.Rate), partitionLimitOf(l.Partition)}
}

func partitionLimitOf(l storage.PartitionLimit) PartitionLimit {
	return PartitionLimit{boundsOf(l.Concurrency, l.Rate), l.Weight}
}

func boundsOf(concurrency int, r storage.Rate) Bounds {
	return Bounds{concurrency, r.N, r.Per.Seconds()}
}

// queueLimitOf makes the record of the limit of a queue, nil for none.
func queueLimitOf(s *storage.Stats) *QueueLimit {
	l := s.Limit
	if l == nil {
		return nil
	}
	record := &QueueLimit{
		Limit: limitOf(l.InForce()), Started: l.Started, Next: survey.Moment(l.Next), Limited: survey.AtLimit(s),
	}
	if l.Operator != nil {
		record.Operator = new(limitOf(*l.Operator))
	}
	if l.Declared != nil {
		record.Declared = new(limitOf(l.Declared.Limit))
	}
	return record
}

// RunnerLimit is the limit of a queue that a runner declares.
type RunnerLimit struct {
	Queue string `json:"queue"`
	Limit
}
