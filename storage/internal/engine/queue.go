package engine

import (
	"time"

	"github.com/midgehq/midge/storage"
)

// Queue is a named set of records, with its counts and settings. A Store that needs only the changes
// of the counts hands out queues whose counts begin at zero.
type Queue struct {
	Name   string
	Sizes  [States]int64 // the records in each line
	Totals storage.Totals

	Paused      bool
	PausedUntil int64 // 0: until it is resumed

	Limit *Limit // nil if the queue never had one

	// Turn is the turn of the tasks without a partition among the ready partitions. TurnChanged is set if it
	// changed, for a Store that writes it.
	Turn        int64
	TurnChanged bool

	// Rest is until when the tasks without a partition rest, because one of them was throttled; 0 for no rest,
	// or a moment that has passed since the last claim. RestChanged is set if it changed, for a Store that
	// writes it.
	Rest        int64
	RestChanged bool

	Touched int64 // when a record was last removed, or the settings changed; see IsAbandoned

	Own any // for the Store's own use
}

// IsPaused reports whether no task of the queue may be claimed now.
func (q *Queue) IsPaused(now int64) bool {
	return q.Paused && (q.PausedUntil == 0 || now < q.PausedUntil)
}

// Set changes the settings that a caller names.
func (q *Queue) Set(named *storage.Settings, now int64) {
	q.Touched = now
	if p := named.Pause; p != nil {
		q.Paused, q.PausedUntil = p.On, 0
		if p.For > 0 {
			q.PausedUntil = now + p.For.Microseconds()
		}
	}
	q.Limit = q.Limit.with(named)
}

// IsEmpty reports whether the queue has no records.
func (q *Queue) IsEmpty() bool { return q.Sizes == [States]int64{} }

// QueueLife is how long a queue outlives its last record and setting.
const QueueLife = 24 * time.Hour

// IsAbandoned reports whether the queue was empty, without settings and untouched for QueueLife. A unique
// window keeps its queue too, since it must hold for exactly as long as was asked: the Store knows these.
func (q *Queue) IsAbandoned(now int64) bool {
	return q.IsEmpty() && !q.IsPaused(now) && q.Limit == nil && now >= q.Touched+QueueLife.Microseconds()
}

// Stats returns the sizes and totals of the queue.
func (q *Queue) Stats() storage.Stats {
	st := storage.Stats{Queue: q.Name, Damaged: q.Sizes[Damaged], Partitioned: q.Sizes[Keyed], Totals: q.Totals}
	if q.Limit != nil && q.Limit.Damaged {
		st.Damaged++
	}
	for s, n := range q.Sizes {
		name := State(s).Public()
		st.SetSize(name, st.Size(name)+n)
	}
	return st
}

// Counts returns the sizes and totals of a queue, indexed by their numbers.
func (q *Queue) Counts() (counts [Counters]int64) {
	copy(counts[:], q.Sizes[:])
	for i, n := range q.totals() {
		counts[CountEnqueued+i] = *n
	}
	return counts
}

// SetCounts sets the sizes and totals from the result of Counts.
func (q *Queue) SetCounts(counts []int64) {
	copy(q.Sizes[:], counts)
	for i, n := range q.totals() {
		*n = counts[CountEnqueued+i]
	}
}

// totals returns pointers to the totals, in the order of their numbers.
func (q *Queue) totals() [Counters - CountEnqueued]*int64 {
	t := &q.Totals
	return [...]*int64{
		&t.Enqueued, &t.Requeued, &t.Completed, &t.Dead, &t.Cancelled, &t.Deleted, &t.Failed, &t.Crashed,
		&t.Evicted,
	}
}
