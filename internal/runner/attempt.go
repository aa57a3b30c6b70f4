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
// for less than a millisecond, and the size of an Attempt is a large part of the cost of a short
// job. The exported fields do not change after newAttempts, except Job.
type Attempt struct {
	*batch

	Fence            storage.Fence
	Payload          []byte
	Headers          map[string]string
	Partition        string
	Created          int64 // in microseconds
	Job              any   // a pointer to the decoded job, set by Jobs; nil before that
	Retries, Crashes int32
	Cost             storage.Cost

	suspect          bool
	explained        bool  // its error already names its timeout; written by the goroutine of its job
	counted, returns bool  // counted as a suspect, or as an attempt given back; guarded by slots.mu
	inSlots          bool  // runs or waits ahead; guarded by slots.mu
	inBound          bool  // counted in taken of the bound of its queue; guarded by slots.mu
	checks           bool  // its worker is counted as checking; guarded by slots.mu
	place            int32 // index in inFlight.all; guarded by inFlight.mu

	mu        sync.Mutex // guards the fields below
	phase     phase
	ran       bool
	returned  bool          // its job has returned, or is not to run
	joined    bool          // a transaction of the job is to settle it, see CompleteWith
	index     int32         // among the tasks of its claim; never changes
	startedAt time.Duration // when it began to run, by the runner's clock
	extended  moment        // when the last acknowledged extension, or the claim, was sent
	full      *fullContext  // nil until its job needs a standard context
	extras    *extras       // nil while it has none
}

// extras holds the rarely used fields of an attempt.
type extras struct {
	cause     error // of the end of its context; the first cause wins
	deadline  time.Time
	followUps []storage.Insert
	result    []byte
	durable   *durable // nil before the first step, sleep or checkpoint
	owed      *OwedError
	called    []string      // see Called
	isOver    bool          // its context was seen to have ended
	overSince time.Duration // when that was first seen
	pastDue   bool          // the log line about a job that ignores its context was written
	end       *error        // what the job returned, while its AfterRun is called; nil at other times
}

// batch holds what consecutive attempts of one claim share. Their tasks were enqueued with the same
// options.
type batch struct {
	*shared

	shard    *shard
	ctx      context.Context // parent of the jobs' contexts
	arrived  time.Time       // when the claim was answered
	told     time.Time       // the storage's time of the claim
	believed time.Time       // told, corrected by belief; deadlines are judged by it

	Kind, Encoding         string
	kind                   string // as the task names it: Kind, or an earlier kind
	known                  bool   // a job of the kind is registered here
	counter                *vitals.Counter
	MaxRetries, CrashLimit int
	Snoozes                int
	timeout, byDefault     time.Duration // of an attempt, 0 for none; and of one whose task names none
	snoozedSince           time.Time

	claimed *claimedTasks // nil if there are no hooks
}

type phase uint8

const (
	claimedAhead phase = iota
	runs
	settling // its verdict is on the way to the storage
	lost     // its lease is lost; nothing more is settled
)

// slab is how many attempts are allocated together. An attempt that runs for long keeps the memory
// of the whole slab.
const slab = 16

// newAttempts makes the attempts of a claim that was sent at the moment sent.
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
		a.Partition, a.Cost = t.Partition, t.Cost
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

// suits reports whether t shares all of b's values.
func (b *batch) suits(t *storage.Task) bool {
	return t.Kind == b.kind && t.Encoding == b.Encoding &&
		t.MaxRetries == b.MaxRetries && t.CrashLimit == b.CrashLimit && b.timeoutOf(t) == b.timeout &&
		t.Snoozes == b.Snoozes && t.SnoozedSince.Equal(b.snoozedSince)
}

// timeoutOf returns how long an attempt of t may take, 0 for any time.
func (b *batch) timeoutOf(t *storage.Task) time.Duration {
	if t.Timeout == storage.NoTimeout {
		return 0
	}
	return cmp.Or(t.Timeout, b.byDefault)
}

// with returns a batch for tasks like t.
func (b *batch) with(t *storage.Task) *batch {
	own := *b
	own.kind, own.Kind, own.Encoding = t.Kind, own.jobs.Name(t.Kind), t.Encoding
	_, own.known = slices.BinarySearch(own.jobs.Kinds(), t.Kind)
	own.counter = b.counterOf(own.Kind)
	own.MaxRetries, own.CrashLimit, own.timeout = t.MaxRetries, t.CrashLimit, b.timeoutOf(t)
	own.Snoozes, own.snoozedSince = t.Snoozes, t.SnoozedSince
	return &own
}

// Number returns the number of the attempt, 1 for the first. Only failures and crashes count.
func (a *Attempt) Number() int { return int(a.Retries+a.Crashes) + 1 }

// Due returns when the task of the attempt was due, by the storage's time. It is zero for a task
// that has run before or was delayed, if that is not known.
func (a *Attempt) Due() time.Time {
	if a.Retries > 0 || a.Crashes > 0 || a.Snoozes > 0 {
		return time.Time{}
	}
	created := time.UnixMicro(a.Created).UTC()
	if a.Headers == nil {
		return created
	}
	for _, name := range []string{storage.DueHeader, storage.TickHeader} {
		text, ok := a.Headers[name]
		if delay, err := time.ParseDuration(text); err == nil {
			return created.Add(delay)
		}
		if at, err := time.Parse(time.RFC3339Nano, text); ok {
			_ = err // the zero time for a damaged header and for an unknown moment
			return at
		}
	}
	return created
}

// extra returns the extras for writing. The mutex is held.
func (a *Attempt) extra() *extras {
	if a.extras == nil {
		a.extras = new(extras)
	}
	return a.extras
}

// cause returns what ended the context of the job, or nil. The mutex is held.
func (a *Attempt) cause() error {
	if a.extras == nil {
		return nil
	}
	return a.extras.cause
}

// result returns the result that the job has set. The job has returned, or the mutex is held.
func (a *Attempt) result() []byte {
	if a.extras == nil {
		return nil
	}
	return a.extras.result
}

// start begins the attempt and returns its context. It returns false if the attempt was lost or
// cancelled while it waited, or the contexts of all jobs have ended, or its lease was not extended in
// time: a process that was frozen must not start a task that another runner may have by now.
func (a *Attempt) start() (context.Context, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now() // under the mutex, for which the attempt may have waited
	if a.cause() == nil && a.overdue(now) {
		a.extra().cause = storage.ErrLeaseLost
	}
	if left, some := a.left(); a.cause() == nil && some && left <= 0 {
		a.extra().cause = ErrExpired
	}
	if a.cause() == nil && a.ctx.Err() != nil {
		a.extra().cause = context.Cause(a.ctx)
	}
	if a.phase == lost || a.cause() != nil {
		return nil, false
	}
	a.phase, a.ran, a.startedAt = runs, true, now.mono
	return (*jobContext)(a), true
}

// left returns the time until the deadline of the task, by the storage's time; some is false if
// the task has no deadline. The mutex is held.
func (a *Attempt) left() (d time.Duration, some bool) {
	if a.extras == nil || a.extras.deadline.IsZero() {
		return 0, false
	}
	return a.extras.deadline.Sub(a.storageTime()), true
}

// storageTime returns the storage's time as the runner believes it.
func (a *Attempt) storageTime() time.Time {
	now := a.believed.Add(time.Since(a.arrived))
	if kit, ok := a.store.Storage.(Clocked); ok { // whose clock stands still
		now = kit.Clock()
	}
	return now.UTC().Truncate(time.Microsecond)
}

// limit returns how long the job may still run, and what ends it then; 0 for no limit. The timeout counts from
// the check of the lease, so that a process that was frozen between the check and the job has less of it.
func (a *Attempt) limit() (most time.Duration, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timeout > 0 {
		most = max(a.timeout-(a.now().mono-a.startedAt), 1)
	}
	if left, some := a.left(); some && (most == 0 || left < most) {
		return max(left, 1), ErrExpired
	}
	return most, ErrTimeout
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

// isOverdue is overdue for callers without the mutex.
func (a *Attempt) isOverdue(now moment) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.overdue(now)
}

// end cancels the job's context with a cause, or prevents the start of a waiting attempt. It
// reports whether that ended a running job. Once the job has returned it does nothing, because the
// settler reads the extras without the mutex.
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

// These are the causes of an attempt that a worker held when its queue was dropped, or when the gate of its
// queue closed.
var (
	errServedNoMore = errors.New("midge: its queue is served here no more")
	errGateClosed   = errors.New("midge: the gate of its queue has closed")
)

// keepBack prevents the start of an attempt that does not run yet.
func (a *Attempt) keepBack(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == claimedAhead && a.cause() == nil {
		a.extra().cause = cause
	}
}

// lose marks the lease as lost, so that nothing is settled under it. It reports whether that is
// news: a lease that ends with its own settle, or that was handed to a transaction, is not lost.
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

// ending is the state of an attempt whose job has returned.
type ending struct {
	settles     bool // its verdict is to be settled
	ran, joined bool
}

// conclude ends the job's context, so that goroutines that the job left running notice the end, and
// moves the attempt to settling. A second call follows if a method of the job's error ended the
// goroutine before the verdict was reached.
func (a *Attempt) conclude() ending {
	a.mu.Lock()
	again := a.returned && a.phase == settling
	a.returned = true
	e := ending{settles: a.settlesLocked() || again, ran: a.ran, joined: a.joined}
	full := a.full
	a.mu.Unlock()
	if full != nil {
		full.cancel(context.Canceled)
	}
	return e
}

// settles moves a waiting or running attempt to settling and reports whether it may be settled. It
// may not if the lease is lost or something else settles it, for example a transaction of the
// job.
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

// abandon reports whether the attempt still runs, so that its task must be released while the job
// goes on.
func (a *Attempt) abandon() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return (a.phase == runs || a.phase == lost) && a.ran
}

// runningSince returns since when the job runs, and since when it has ignored the end of its context, 0 if
// it has not, both by the runner's clock. It returns false if the job does not run. A job whose lease was
// lost runs until it returns.
func (a *Attempt) runningSince() (started, over time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.extras != nil && a.extras.pastDue {
		over = max(a.extras.overSince, 1)
	}
	return a.startedAt, over, a.phase == runs || a.phase == lost && a.ran && !a.returned
}
