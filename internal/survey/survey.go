// Package survey reads a storage and judges what it found. A [Reader] reads the queues, runners, schedules and
// causes of death, and keeps what rarely changes from one reading to the next. [Survey.Findings] lists what
// needs attention. The command, the dashboard and the metrics use both, so that they report the same.
//
//	survey.go    a Survey, and the sums and forecasts that follow from it
//	reader.go    the Reader: sizes, runners, description, rates
//	causes.go    the dead tasks by cause
//	schedules.go the schedules, and which of them are orphaned
//	since.go     who paused a queue, and since when a finding has held
//	serving.go   what the runners of a queue can run
//	loads.go     which queues hold nothing but records of loads and imports
//	unserved.go  what needs a runner, in words
//	finding.go   a Finding: its level, order, words
//	judge.go     the judge
//	limit.go     the limits of queues: words and findings
//	accept.go    findings that somebody knows of
package survey

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// Survey is the result of one reading of a storage. Nobody changes a survey once its reader has returned it.
type Survey struct {
	At        time.Time            // of the reading, by this process's clock
	RoundTrip time.Duration        // how long the storage took to return the sizes of the queues
	Info      storage.Description  // of the storage
	Queues    []Queue              // by name, without midge's own queues
	Runners   []storage.RunnerInfo // the live runners
	Kinds     []string             // the kinds that live runners know, sorted
	Schedules []Schedule           // of all queues, the next to tick first; 2,000, and those with a finding
	Dead      *Causes
	Mark      uint64        // changes with the marks of the queues, and with the runners
	Skew      time.Duration // how far the storage's clock was ahead of this process's clock

	byName  map[string]*Queue
	serving map[string]Serving // by queue
	// runnersRead counts how often the runners were read.
	runnersRead int
	// then has the sizes of the queues some seconds before, for forecasts. later replaces it in a later survey.
	// Both are nil if they are not known.
	then, later *past
}

// Queue is a queue as a survey found it.
type Queue struct {
	storage.Stats

	// In counts the tasks that joined the queue, and Done and Failed the attempts that ended so, a second,
	// averaged over the last seconds; -1 if they are not known yet.
	In, Done, Failed float64
	// Runners is how many live runners serve the queue.
	Runners int
	// Unknown are the declined kinds that no live runner of the queue knows, none if no runner serves it.
	Unknown []storage.KindSize
	// PausedSince is when the pause began by the storage's clock, as this process saw it or the audit has it;
	// zero if that is not known.
	PausedSince time.Time
	// PausedBy is who paused the queue, as the audit has it; "" if that is not known.
	PausedBy string
	// Mark changes with the sizes, the totals, the pause, the limit, and the numbers of unknown kinds and of runners of the
	// queue. It is the same in all processes.
	Mark uint64
	// Undecodable are the kinds of which live runners of the queue could lately not decode tasks.
	Undecodable []storage.KindTrouble
	// UnknownSince is since when a task of an unknown kind has waited; zero if that is not known.
	UnknownSince time.Time
	// OnlyLoads means that all live tasks of the queue are records of loads and imports, which never run. It is
	// read while no runner is alive.
	OnlyLoads bool
	// UnreadSchedules is how many schedules of the queue the survey does not judge.
	UnreadSchedules int64
}

// QueueOf returns a queue with the runners that serve it, without what follows from an earlier reading.
func QueueOf(s storage.Stats, of Serving) Queue {
	return Queue{
		Stats: s, Runners: len(of), Unknown: of.Unknown(s.Declined), Undecodable: of.Undecodable(s.Queue),
		In: -1, Done: -1, Failed: -1,
	}
}

// Idle reports whether tasks wait although no live runner serves the queue, which is not paused.
func (q *Queue) Idle() bool { return !q.Paused && q.Waiting > 0 && q.Runners == 0 }

// Trouble is the code of the worst finding about the queue itself, "" for none.
func (q *Queue) Trouble() string {
	switch {
	case q.Paused:
		return "paused"
	case q.Idle():
		return "no-runner"
	case len(q.Unknown) > 0:
		return "unknown-kind"
	case len(q.Undecodable) > 0:
		return "undecodable"
	case q.Damaged > 0:
		return "damaged"
	}
	return ""
}

// Flow returns what happened to the tasks of the queue over its lifetime.
func (q *Queue) Flow() ledger.Flow { return ledger.FlowOf(&q.Totals) }

// mark computes the mark of a queue.
func (q *Queue) mark() uint64 {
	h := fnv.New64a()
	var paused int64
	if q.Paused {
		paused = 1
	}
	var b [8]byte
	write := func(numbers ...int64) {
		for _, n := range numbers {
			binary.LittleEndian.PutUint64(b[:], uint64(n))
			_, _ = h.Write(b[:])
		}
	}
	for _, state := range storage.States() {
		write(q.Size(state))
	}
	t := &q.Totals
	write(q.Damaged, q.Partitioned, t.Enqueued, t.Requeued, t.Completed, t.Dead, t.Cancelled, t.Deleted)
	write(t.Failed, t.Crashed, t.Evicted, paused, q.PausedUntil.UnixMicro(), int64(len(q.Unknown)),
		int64(len(q.Undecodable)), int64(q.Runners))
	if l := q.Limit; l != nil {
		_, _ = fmt.Fprintln(h, l.Operator, l.Declared, l.Started, l.Next.UnixMicro())
	}
	return h.Sum64()
}

// mark computes the marks of the queues and of the survey.
func (s *Survey) mark() {
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

// Schedule is a schedule as a survey found it.
type Schedule struct {
	storage.Task

	Declaration storage.Declaration
	Damaged     bool // the declaration cannot be read
	Orphaned    bool // no live runner ticks it, and it is neither paused nor damaged
	Clashes     bool // it is kept, and a live runner declares another one under its name
}

// Name is the schedule's name, as its declaration has it.
func (c *Schedule) Name() string { return strings.TrimPrefix(c.ID, storage.CursorPrefix) }

// Queue returns a queue by its name, nil if there is none.
func (s *Survey) Queue(name string) *Queue { return s.byName[name] }

// Sum adds up a number over all queues.
func (s *Survey) Sum(of func(*Queue) int64) (sum int64) {
	for i := range s.Queues {
		sum += of(&s.Queues[i])
	}
	return sum
}

// Rates returns the rates of all queues together, -1 if they are not known yet.
func (s *Survey) Rates() (done, failed float64) {
	if len(s.Queues) > 0 && s.Queues[0].Done < 0 {
		return -1, -1
	}
	for i := range s.Queues {
		done, failed = done+max(0, s.Queues[i].Done), failed+max(0, s.Queues[i].Failed)
	}
	return done, failed
}

// Oldest is how long the oldest task of all queues has waited, zero if nothing waits.
func (s *Survey) Oldest() (oldest time.Duration) {
	for i := range s.Queues {
		oldest = max(oldest, s.Queues[i].Oldest)
	}
	return oldest
}

// OldestQueue is the queue whose oldest task has waited for the longest, "" if nothing waits.
func (s *Survey) OldestQueue() (queue string) {
	var oldest time.Duration
	for i := range s.Queues {
		if q := &s.Queues[i]; q.Oldest > oldest {
			queue, oldest = q.Queue, q.Oldest
		}
	}
	return queue
}

// Slots returns how many slots of all live runners are in use, and how many slots they have.
func (s *Survey) Slots() (used, slots int64) {
	for i := range s.Runners {
		used, slots = used+int64(s.Runners[i].InUse()), slots+int64(s.Runners[i].Concurrency)
	}
	return used, slots
}

// KindsFor returns the kinds that are known for a queue: kinds that its runners know, and kinds of waiting
// tasks that its runners declined.
func (s *Survey) KindsFor(queue string) []string {
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
func (s *Survey) Knows(queue, kind string) bool {
	return s.serving[queue].Knows(kind)
}

// Empty reports whether there is no queue at all.
func (s *Survey) Empty() bool { return len(s.Queues) == 0 }

// past has the sizes of the queues at a moment.
type past struct {
	at     time.Time // by this process's clock
	queues map[string]storage.Stats
}

// pastFor is the least past time that a forecast covers.
const pastFor = 10 * time.Second

// remember passes to the survey that follows this one the sizes of the queues from pastFor or more before it.
// Until the reader has read for so long, these are the sizes from its first reading.
func (s *Survey) remember(fresh *Survey) {
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

// past returns the sizes of the queues in this survey.
func (s *Survey) past() *past {
	p := &past{at: s.At, queues: make(map[string]storage.Stats, len(s.Queues))}
	for i := range s.Queues {
		p.queues[s.Queues[i].Queue] = s.Queues[i].Stats
	}
	return p
}

// Before returns the sizes of a queue some seconds before the survey, by the storage's clock; nil if they are
// not known.
func (s *Survey) Before(queue string) []storage.Sample {
	if s.then == nil {
		return nil
	}
	stats, ok := s.then.queues[queue]
	if !ok {
		return nil
	}
	return []storage.Sample{{At: s.then.at.Add(s.Skew), Stats: stats}}
}

// Outlook forecasts when the backlog of a queue will be gone.
func (s *Survey) Outlook(q *Queue) storage.Outlook {
	var before storage.Sample // without earlier sizes, no rate is known
	if known := s.Before(q.Queue); known != nil {
		before = known[0]
	}
	return storage.Forecast(before, storage.Sample{At: s.At.Add(s.Skew), Stats: q.Stats})
}
