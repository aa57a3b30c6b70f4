package runner

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// Attempt is one claimed task on its way through a runner. Thousands may be in flight, most of them
// for less than a millisecond: the size of an attempt is a good part of the cost of a short job.
// The exported fields do not change.
type Attempt struct {
	*batch

	Fence            storage.Fence
	Payload          []byte
	Headers          map[string]string
	Created          int64 // in microseconds
	Job              any   // a pointer to the decoded job, nil before it was decoded; set by Jobs
	Retries, Crashes int32

	suspect          bool
	explained        bool  // its error tells of its timeout; written by the goroutine of its job
	counted, returns bool  // among the suspects, or among the attempts given back; guarded by slots.mu
	place            int32 // among the attempts in flight; guarded by inFlight.mu

	mu        sync.Mutex // guards what follows
	phase     phase
	ran       bool
	returned  bool          // its job has, or is not to run
	joined    bool          // a transaction of the job's is to settle it, see CompleteWith
	index     int32         // among the tasks of its claim; does not change
	startedAt time.Duration // when it began to run, by the runner's clock
	extended  moment        // when the last extension that went through, or the claim, was sent
	full      *fullContext  // nil until its job asks for what only that can tell
	extras    *extras       // nil while there are none
}

// extras are what few attempts have.
type extras struct {
	cause     error // what ended its context; the first cause wins
	deadline  time.Time
	followUps []storage.Insert
	result    []byte
	isOver    bool          // its context was seen to have ended
	overSince time.Duration // when that was first
	pastDue   bool          // a line about its running on was logged
}

// batch is what attempts have in common that one claim brought one behind the other, of
// tasks that were enqueued alike.
type batch struct {
	*shared

	shard    *shard
	ctx      context.Context // the contexts of jobs end with it
	arrived  time.Time       // when the claim was answered
	told     time.Time       // the storage's time of the claim
	believed time.Time       // the same, by which deadlines are judged; see belief

	Kind, Encoding         string
	kind                   string // as the task has it: Kind, or an earlier name of that
	known                  bool   // a job of the kind is registered here
	counter                *vitals.Counter
	MaxRetries, CrashLimit int
	Snoozes                int
	timeout, byDefault     time.Duration // of an attempt, and of one whose task has none
	snoozedSince           time.Time

	claimed *claimedTasks // nil where nobody wants to hear of ends
}

type phase uint8

const (
	claimedAhead phase = iota
	runs
	settling // its verdict is on the way to the storage
	lost     // its lease is lost; nothing more is settled
)

// slab is how many attempts are allocated together. One that runs for long keeps the
// memory of so many.
const slab = 16

// newAttempts makes attempts of the tasks of a claim, which was sent at a moment.
func (w *workers) newAttempts(of *shard, claimed *storage.Claimed, sent moment) []*Attempt {
	attempts := make([]*Attempt, len(claimed.Tasks))
	from := &batch{shared: w.shared, shard: of, ctx: w.context(), arrived: time.Now(), told: claimed.Now}
	from.believed = of.belief.time(claimed.Now, w.now())
	from.byDefault = w.timeout
	if w.ends != nil {
		from.claimed = keep(claimed)
	}
	var room []Attempt
	for i := range claimed.Tasks {
		if len(room) == 0 {
			room = make([]Attempt, min(slab, len(claimed.Tasks)-i))
		}
		a, t := &room[0], &claimed.Tasks[i]
		room = room[1:]
		if !from.suits(t) {
			from = from.with(t)
		}
		a.batch, a.Fence, a.extended, a.index = from, claimed.Fences[i], sent, int32(i)
		a.Payload, a.Headers, a.Created = t.Payload, t.Headers, t.Created.UnixMicro()
		a.Retries, a.Crashes = int32(t.Retries), int32(t.Crashes)
		a.suspect = storage.Suspect(t.Crashes, t.CrashLimit)
		if len(t.Headers) > 0 {
			if d := t.Deadline(); !d.IsZero() {
				a.extra().deadline = d
			}
		}
		attempts[i] = a
	}
	return attempts
}

// suits reports whether t has all in common with the tasks before it.
func (b *batch) suits(t *storage.Task) bool {
	return t.Kind == b.kind && t.Encoding == b.Encoding &&
		t.MaxRetries == b.MaxRetries && t.CrashLimit == b.CrashLimit && cmp.Or(t.Timeout, b.byDefault) == b.timeout &&
		t.Snoozes == b.Snoozes && t.SnoozedSince.Equal(b.snoozedSince)
}

// with gives the batch of tasks like t.
func (b *batch) with(t *storage.Task) *batch {
	own := *b
	own.kind, own.Kind, own.Encoding = t.Kind, own.jobs.Name(t.Kind), t.Encoding
	_, own.known = slices.BinarySearch(own.jobs.Kinds(), t.Kind)
	own.counter = b.counterOf(own.Kind)
	own.MaxRetries, own.CrashLimit, own.timeout = t.MaxRetries, t.CrashLimit, cmp.Or(t.Timeout, b.byDefault)
	own.Snoozes, own.snoozedSince = t.Snoozes, t.SnoozedSince
	return &own
}

// Number is which attempt of its task it is, 1 for the first. Only what was charged counts.
func (a *Attempt) Number() int { return int(a.Retries+a.Crashes) + 1 }

// Due is when the task of the attempt was due, by the storage's time; zero where that is not known:
// for a task that has run before.
func (a *Attempt) Due() time.Time {
	if a.Retries > 0 || a.Crashes > 0 || a.Snoozes > 0 {
		return time.Time{}
	}
	created := time.UnixMicro(a.Created).UTC()
	if a.Headers == nil {
		return created
	}
	for _, name := range []string{storage.TickHeader, storage.DueHeader} {
		text, ok := a.Headers[name]
		if delay, err := time.ParseDuration(text); err == nil {
			return created.Add(delay)
		}
		if at, err := time.Parse(time.RFC3339Nano, text); ok {
			_ = err // of a damaged header: the zero time
			return at
		}
	}
	return created
}

// extra gives the extras, for writing. The mutex is held.
func (a *Attempt) extra() *extras {
	if a.extras == nil {
		a.extras = new(extras)
	}
	return a.extras
}

// cause is what ended the context of the job, nil for nothing. The mutex is held.
func (a *Attempt) cause() error {
	if a.extras == nil {
		return nil
	}
	return a.extras.cause
}

// result is what the job set, once it has returned or under the mutex.
func (a *Attempt) result() []byte {
	if a.extras == nil {
		return nil
	}
	return a.extras.result
}

// start makes the attempt run and gives its context, or false where it was lost or
// cancelled while it waited, or was not extended in time: a process that was frozen must not
// start a task that another runner may have by now.
func (a *Attempt) start() (context.Context, bool) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause() == nil && a.overdue(now) {
		a.extra().cause = storage.ErrLeaseLost
	}
	if left, some := a.left(); a.cause() == nil && some && left <= 0 {
		a.extra().cause = ErrExpired
	}
	if a.phase == lost || a.cause() != nil {
		return nil, false
	}
	a.phase, a.ran, a.startedAt = runs, true, now.mono
	return (*jobContext)(a), true
}

// left is how long it is until the deadline of the task, by the storage's time; some is false where it
// has none. The mutex is held.
func (a *Attempt) left() (d time.Duration, some bool) {
	if a.extras == nil || a.extras.deadline.IsZero() {
		return 0, false
	}
	return a.extras.deadline.Sub(a.believed) - time.Since(a.arrived), true
}

// limit is how long the job may run and what ends it then; 0 for as long as it likes.
func (a *Attempt) limit() (most time.Duration, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if left, some := a.left(); some && (a.timeout == 0 || left < a.timeout) {
		return max(left, 1), ErrExpired
	}
	return a.timeout, ErrTimeout
}

// misses reports whether the deadline of the task is over after a delay.
func (a *Attempt) misses(delay time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	left, some := a.left()
	return some && left <= delay
}

// overdue reports whether the lease was not extended in time. The mutex is held.
func (a *Attempt) overdue(now moment) bool { return now.since(a.extended) > safe(a.lease) }

// isOverdue is overdue, for the guard.
func (a *Attempt) isOverdue(now moment) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.overdue(now)
}

// end cancels the job's context with a cause, or keeps one that waits from running. It reports
// whether that ended a job which ran. Once the job has returned there is nothing to end, and the settler
// reads the extras without the mutex.
func (a *Attempt) end(cause error) bool {
	a.mu.Lock()
	first := a.cause() == nil && !a.returned
	if first {
		a.extra().cause = cause
	}
	ended := first && a.phase == runs
	full := a.full
	a.mu.Unlock()
	if full != nil {
		full.cancel(cause)
	}
	return ended
}

// errServedNoMore is why a task is given back that a worker had taken when its queue was dropped.
var errServedNoMore = errors.New("midge: its queue is served here no more")

// keepBack keeps the attempt from running, unless it runs already.
func (a *Attempt) keepBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == claimedAhead && a.cause() == nil {
		a.extra().cause = errServedNoMore
	}
}

// lose marks the lease as lost, so that nothing is settled under it, and reports
// whether that is news: a lease that ends by its own settle is not lost, nor one that was
// handed to a transaction.
func (a *Attempt) lose() bool {
	a.mu.Lock()
	news := (a.phase == claimedAhead || a.phase == runs) && !a.joined
	if news {
		a.phase = lost
	}
	a.mu.Unlock()
	if news {
		a.end(storage.ErrLeaseLost)
	}
	return news
}

func (a *Attempt) hasRun() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ran
}

func (a *Attempt) isLost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == lost
}

// ending tells how an attempt stands when its job has returned.
type ending struct {
	settles     bool // its verdict is to be settled
	ran, joined bool
}

// conclude ends the job's context, so that goroutines that the job left running learn that it is over,
// and moves the attempt to settling.
func (a *Attempt) conclude() ending {
	a.mu.Lock()
	a.returned = true
	e := ending{settles: a.settlesLocked(), ran: a.ran, joined: a.joined}
	full := a.full
	a.mu.Unlock()
	if full != nil {
		full.cancel(context.Canceled)
	}
	return e
}

// settles moves a from waiting or running to settling and reports whether it may:
// false where the lease is lost, or somebody else settles it, such as a transaction of the job's.
func (a *Attempt) settles() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.joined && a.settlesLocked()
}

func (a *Attempt) settlesLocked() bool {
	if a.phase == lost || a.phase == settling {
		return false
	}
	a.phase = settling
	return true
}

// abandon reports whether a still runs, so that its task has to be released under
// its job's feet.
func (a *Attempt) abandon() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return (a.phase == runs || a.phase == lost) && a.ran
}

func (a *Attempt) runningSince() (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.startedAt, a.phase == runs
}
