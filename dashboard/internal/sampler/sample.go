package sampler

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/queues"
	"github.com/midgehq/midge/storage"
)

// Sample is the result of a look at the storage. Nobody changes a sample once it is made.
type Sample struct {
	At        time.Time            // of the look, by this process's clock
	RoundTrip time.Duration        // how long the storage took to return the sizes of the queues
	Info      storage.Description  // of the storage
	Queues    []Queue              // by name, without midge's own queues
	Runners   []storage.RunnerInfo // the live runners
	Kinds     []string             // the kinds that live runners know, sorted
	Schedules []Schedule           // of all queues, the next to tick first
	Dead      *Causes
	Hour      *ledger.Series // the last hour as the history was last read, nil if it never was
	Mark      uint64         // changes with the marks of the queues, and with the runners
	// Err is the error of the storage, nil if it answered. Lost is the time of the first look that failed. The
	// other fields are from the last look that did not fail.
	Err  error
	Lost time.Time

	acts    int64         // the acts in this process before the look
	skew    time.Duration // how far the storage's clock was ahead of this process's clock
	byName  map[string]*Queue
	serving map[string]queues.Serving // by queue
	// runnersRead counts how often the runners were read.
	runnersRead int
	// then has the sizes of the queues some seconds before, for forecasts. later replaces it in a later sample.
	// Both are nil if they are not known.
	then, later *past
}

// Queue is a queue as a sample found it.
type Queue struct {
	storage.Stats

	// Done and Failed are attempts a second, averaged over the last seconds; -1 if they are not known yet.
	Done, Failed float64
	// Runners is how many live runners serve the queue.
	Runners int
	// Unknown are the declined kinds that no live runner of the queue knows, none if no runner serves it.
	Unknown []storage.KindSize
	// PausedSince is when the pause began by the storage's clock, as this process saw it or the audit has it;
	// zero if that is not known.
	PausedSince time.Time
	// PausedBy is who paused the queue, as the audit has it; "" if that is not known.
	PausedBy string
	// Mark changes with the sizes, the totals, the pause, and the numbers of unknown kinds and of runners of the
	// queue. It is the same in all processes.
	Mark uint64
	// UnknownSince is since when a task of an unknown kind has waited; zero if that is not known.
	UnknownSince time.Time
}

// failures returns how many attempts of the queue failed or crashed.
func (q *Queue) failures() int64 { return q.Totals.Failed + q.Totals.Crashed }

// mark computes the mark of a queue.
func (q *Queue) mark() uint64 {
	h := fnv.New64a()
	var paused int64
	if q.Paused {
		paused = 1
	}
	var b [8]byte
	for _, n := range []int64{
		q.Waiting, q.Pending, q.Scheduled, q.Retry, q.Completed, q.Cancelled, q.Dead, q.Cursors, q.Damaged,
		q.Totals.Enqueued, q.Totals.Requeued, q.Totals.Completed, q.Totals.Dead, q.Totals.Cancelled,
		q.Totals.Deleted, q.Totals.Failed, q.Totals.Crashed,
		paused, q.PausedUntil.UnixMicro(), int64(len(q.Unknown)), int64(q.Runners),
	} {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		_, _ = h.Write(b[:])
	}
	return h.Sum64()
}

// mark computes the marks of the queues and of the sample.
func (s *Sample) mark() {
	h := fnv.New64a()
	var b [8]byte
	for i := range s.Queues {
		q := &s.Queues[i]
		q.Mark = q.mark()
		binary.LittleEndian.PutUint64(b[:], q.Mark)
		_, _ = h.Write(b[:])
	}
	for i := range s.Runners {
		_, _ = h.Write([]byte(s.Runners[i].ID))
	}
	s.Mark = h.Sum64()
}

// Schedule is a schedule as a sample found it.
type Schedule struct {
	storage.Task

	Declaration storage.Declaration
	Damaged     bool // the declaration cannot be read
	Orphaned    bool // no live runner declares it
}

// Name is the schedule's name, as its declaration has it.
func (c *Schedule) Name() string { return strings.TrimPrefix(c.ID, storage.CursorPrefix) }

// Queue returns a queue by its name, nil if there is none.
func (s *Sample) Queue(name string) *Queue { return s.byName[name] }

// Sum adds up a number over all queues.
func (s *Sample) Sum(of func(*Queue) int64) (sum int64) {
	for i := range s.Queues {
		sum += of(&s.Queues[i])
	}
	return sum
}

// Rates returns the rates of all queues together, -1 if they are not known yet.
func (s *Sample) Rates() (done, failed float64) {
	if len(s.Queues) > 0 && s.Queues[0].Done < 0 {
		return -1, -1
	}
	for i := range s.Queues {
		done, failed = done+max(0, s.Queues[i].Done), failed+max(0, s.Queues[i].Failed)
	}
	return done, failed
}

// Oldest is how long the oldest task of all queues has waited, zero if nothing waits.
func (s *Sample) Oldest() (oldest time.Duration) {
	for i := range s.Queues {
		oldest = max(oldest, s.Queues[i].Oldest)
	}
	return oldest
}

// OldestQueue is the queue whose oldest task has waited for the longest, "" if nothing waits.
func (s *Sample) OldestQueue() (queue string) {
	var oldest time.Duration
	for i := range s.Queues {
		if q := &s.Queues[i]; q.Oldest > oldest {
			queue, oldest = q.Queue, q.Oldest
		}
	}
	return queue
}

// Slots returns how many slots of all live runners are in use, and how many slots they have.
func (s *Sample) Slots() (used, slots int64) {
	for i := range s.Runners {
		used, slots = used+int64(len(s.Runners[i].Running)), slots+int64(s.Runners[i].Concurrency)
	}
	return used, slots
}

// KindsFor returns the kinds that are known for a queue: kinds that its runners know, and kinds of waiting
// tasks that its runners declined.
func (s *Sample) KindsFor(queue string) []string {
	var serving []storage.RunnerInfo
	for i := range s.Runners {
		if slices.Contains(s.Runners[i].Queues, queue) {
			serving = append(serving, s.Runners[i])
		}
	}
	kinds := kindsOf(serving)
	if q := s.byName[queue]; q != nil {
		for _, k := range q.Declined {
			kinds = append(kinds, k.Kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Knows reports whether a live runner of a queue knows a kind.
func (s *Sample) Knows(queue, kind string) bool {
	return s.serving[queue].Knows(kind)
}

// Empty reports whether there is no queue at all.
func (s *Sample) Empty() bool { return len(s.Queues) == 0 }

// past has the sizes of the queues at a moment.
type past struct {
	at     time.Time // by this process's clock
	queues map[string]storage.Stats
}

// pastFor is the least time over which a forecast looks back.
const pastFor = 10 * time.Second

// remember gives the sample that follows this one the sizes of the queues from pastFor or more before it.
// Until this process has looked for so long, these are the sizes from its first look.
func (s *Sample) remember(fresh *Sample) {
	switch {
	case s == nil:
	case s.later == nil:
		fresh.later = s.past()
		fresh.then = fresh.later
	case fresh.At.Sub(s.later.at) < pastFor:
		fresh.then, fresh.later = s.then, s.later
	default:
		fresh.then, fresh.later = s.later, s.past()
	}
}

// past returns the sizes of the queues in this sample.
func (s *Sample) past() *past {
	p := &past{at: s.At, queues: make(map[string]storage.Stats, len(s.Queues))}
	for i := range s.Queues {
		p.queues[s.Queues[i].Queue] = s.Queues[i].Stats
	}
	return p
}

// Before returns the sizes of a queue some seconds before the sample, by the storage's clock; nil if they are
// not known.
func (s *Sample) Before(queue string) []storage.Sample {
	if s.then == nil {
		return nil
	}
	stats, ok := s.then.queues[queue]
	if !ok {
		return nil
	}
	return []storage.Sample{{At: s.then.at.Add(s.skew), Stats: stats}}
}

// Outlook forecasts when the backlog of a queue will be gone.
func (s *Sample) Outlook(q *Queue) storage.Outlook {
	var before storage.Sample // without earlier sizes, no rate is known
	if known := s.Before(q.Queue); known != nil {
		before = known[0]
	}
	return storage.Forecast(before, storage.Sample{At: s.At.Add(s.skew), Stats: q.Stats})
}

// KnownMinutes is how many minutes of the last hour the history knows.
func (s *Sample) KnownMinutes() (n int) {
	if s.Hour == nil {
		return 0
	}
	for _, p := range s.Hour.All {
		if p.Known {
			n++
		}
	}
	return n
}

// Recall overwrites points with the minutes of the queue that the history knows. The points have a minute
// each, and the first begins at from.
func (s *Sample) Recall(queue string, from time.Time, points []Point) {
	if s.Hour == nil {
		return
	}
	for i, all := range s.Hour.All {
		at := int(all.At.Sub(from) / time.Minute)
		// The last point is a minute that is not over, of which the history knows nothing.
		if !all.Known || all.At.Before(from) || at >= len(points)-1 {
			continue
		}
		p := all
		if queue != "" {
			p = ledger.Point{} // the queue was idle
			if steps := s.Hour.Queues[queue]; i < len(steps) {
				p = steps[i]
			}
		}
		points[at] = Point{Done: float64(p.Done), Failed: float64(p.Failed), Seen: true, Gap: all.Gap}
	}
}
