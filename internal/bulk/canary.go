package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// CanaryRate is the rate of a requeue with a canary if nobody chooses another one: without a rate the other
// tasks would all be requeued before the first of them can fail.
const CanaryRate = 50

const (
	// canaryStart is how long the canary may wait for a runner.
	canaryStart = 10 * time.Minute
	// canaryProof is how much longer the canary has to run than each of its earlier attempts that failed took,
	// before it counts as alive. A job that hangs until its timeout has to outlive that timeout, and a job that
	// never failed before a minute: most causes, such as a server that refuses a connection, show within seconds.
	canaryProof = time.Minute
	// canaryPoll is the time between two reads of the canary.
	canaryPoll = 500 * time.Millisecond
	// lateLease is how long after its end a lease counts as lost although no runner has recovered the task, as
	// after a crash of the only runner. midge promises that a live runner recovers it by then.
	lateLease = 5 * time.Second
)

// The rule for the tasks after the canary: the run stops once more than a tenth of the last first attempts
// failed.
const (
	lastFirsts = 20
	mostFailed = lastFirsts / 10
	// mostFollowed bounds the tasks whose first attempts are followed at the same time. Later tasks are followed
	// as earlier ones end.
	mostFollowed = 200
	followEach   = time.Second
)

// CanaryError ends a requeue with a canary, because its first attempts do not show that the cause of the
// failures is mended.
type CanaryError struct {
	// Ref is the canary or, of the tasks after it, the task whose first attempt failed last.
	Ref storage.Ref
	// Waits is set if the canary has not started in time.
	Waits bool
	// Detail is the error of the job, or the reason why the canary has not started. It may repeat parameters, so
	// that only people who may see the errors of tasks may see it. "" if nothing more is known.
	Detail string

	text string
}

// Error returns the reason without the error of the job.
func (e *CanaryError) Error() string { return e.text }

// fate is what became of the first attempt of a requeued task.
type fate int

const (
	unstarted fate = iota
	running
	survived // it completed, or snoozed
	failed
	cancelled
	gone // there is no such task any more
)

// first is the first attempt of a requeued task.
type first struct {
	ref     storage.Ref
	version int64 // of the task before the requeue: each later claim has a higher one
}

// endings has the words for each way in which an attempt fails.
var endings = map[string]string{
	storage.AttemptFailed:      "failed",
	storage.AttemptTimedOut:    "timed out",
	storage.AttemptPanicked:    "panicked",
	storage.AttemptDiscarded:   "was discarded by its job",
	storage.AttemptExpired:     "is past its deadline",
	storage.AttemptUndecodable: "has parameters that its job cannot decode",
	storage.AttemptCrashed:     "crashed",
}

// of returns what became of the attempt, as the record of the task shows. how is the word for a failure.
func (f *first) of(t *storage.Task) (is fate, how, detail string) {
	for _, a := range t.Attempts {
		switch {
		case a.Version <= f.version, a.Outcome == storage.AttemptLeaseLost:
		case a.Outcome == storage.AttemptSucceeded:
			return survived, "", ""
		case a.Outcome == storage.AttemptCancelled:
			return cancelled, "was cancelled", ""
		default:
			return failed, cmp.Or(endings[a.Outcome], "ended as "+a.Outcome), a.Error
		}
	}
	switch {
	case t.State == storage.Completed:
		return survived, "", ""
	case t.State == storage.Cancelled:
		return cancelled, "was cancelled", ""
	case t.State == storage.Dead:
		return failed, "is dead", t.Reason
	case t.State == storage.Pending && t.Started:
		return running, "", ""
	case t.State == storage.Scheduled && storage.Undecodable(t.Reason):
		return failed, endings[storage.AttemptUndecodable], t.Reason
	case t.State == storage.Scheduled && t.Snoozes > 0:
		return survived, "", ""
	}
	return unstarted, "", ""
}

// canary follows the first attempts of the tasks of a requeue.
type canary struct {
	session *storage.Session
	open    []first // attempts of tasks after the canary that have not ended
	read    time.Time
	last    []bool // whether the last first attempts failed, the newest at the end
}

// look reads the fate of an attempt. t is the task, if it is there.
func (c *canary) look(ctx context.Context, f *first) (is fate, t storage.Task, stop *CanaryError, err error) {
	t, err = c.session.Storage().Task(ctx, f.ref)
	stop = &CanaryError{Ref: f.ref}
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return gone, t, stop, nil
	case errors.Is(err, storage.ErrDamaged):
		stop.text = "has a damaged record"
		return failed, t, stop, nil
	case err != nil:
		return unstarted, t, nil, fmt.Errorf("read %s: %w", f.ref, err)
	}
	is, stop.text, stop.Detail = f.of(&t)
	if is == running {
		var lost bool
		if lost, err = c.lost(ctx, &t); lost {
			is, stop.text = failed, "crashed"
			stop.Detail = "the lease of runner " + t.Runner + " ended, and nobody has recovered the task"
		}
	}
	return is, t, stop, err
}

// lost reports whether the lease of a running task ended a while ago. It asks the storage for its time only if
// the lease seems to have ended, because its clock may have jumped since it was last asked.
func (c *canary) lost(ctx context.Context, t *storage.Task) (bool, error) {
	end := t.LeaseUntil.Add(lateLease)
	if now, err := c.session.Now(ctx); err != nil || now.Before(end) {
		return false, err
	}
	d, err := c.session.Storage().Describe(ctx)
	return err == nil && !d.Now.Before(end), err
}

// await waits until the first attempt of the canary t has ended, or is known to live. It returns a
// *CanaryError if the other tasks must not follow. completed is how many tasks the queue had completed before
// the canary was requeued. tell is called again and again meanwhile.
func (c *canary) await(ctx context.Context, t *storage.Task, completed int64, tell func()) error {
	f, proof := first{t.Ref, t.Version}, canaryProof
	for _, a := range t.Attempts {
		if a.Outcome != storage.AttemptSucceeded {
			proof = max(proof, canaryProof+a.Took())
		}
	}
	waits := time.Now()             // since when the canary does not run
	var claim int64                 // the version of the claim under which it runs
	var ran, lease, until time.Time // since when it runs, and the end of its lease: before the proof, and last
	for {
		is, t, stop, err := c.look(ctx, &f)
		if err != nil {
			return err
		}
		switch is {
		case survived:
			return nil
		case failed, cancelled:
			stop.text = "the canary " + f.ref.String() + " " + stop.text
			return stop
		case gone:
			return c.vanished(ctx, stop, completed, until)
		case unstarted:
			if time.Since(waits) >= canaryStart {
				if err := c.stuck(ctx, stop); err != nil {
					return err
				}
			}
		case running:
			if waits = time.Now(); t.Version != claim {
				claim, ran = t.Version, waits
			}
			if until = t.LeaseUntil; time.Since(ran) < proof {
				lease = until
			} else if until.After(lease) { // its runner has renewed the lease since, so it lives
				return nil
			}
		}
		if tell(); !sleep.For(ctx, canaryPoll) {
			return ctx.Err()
		}
	}
}

// vanished decides about a canary that is gone. A task that is not kept is gone once it has completed, and so
// is a task that was deleted, moved or cancelled: then its queue may have completed no task meanwhile. If the
// lease that ended at until was not renewed, the first attempt crashed and another one ended the task.
func (c *canary) vanished(ctx context.Context, stop *CanaryError, completed int64, until time.Time) error {
	d, err := c.session.Storage().Describe(ctx)
	if err != nil {
		return fmt.Errorf("ask for the time: %w", err)
	}
	of, err := completedOf(ctx, c.session.Storage(), stop.Ref.Queue)
	switch {
	case err != nil:
		return err
	case !until.IsZero() && !d.Now.Before(until):
		stop.text = "the canary " + stop.Ref.String() + " crashed"
	case of <= completed:
		stop.text = "the canary " + stop.Ref.String() + " is gone, and its queue has completed no task since: " +
			"it was deleted, moved or cancelled"
	default:
		return nil
	}
	return stop
}

// completedOf returns how many tasks a queue has completed.
func completedOf(ctx context.Context, store storage.Storage, queue string) (int64, error) {
	stats, err := store.Stats(ctx, queue)
	if err != nil {
		return 0, fmt.Errorf("read the totals of %s: %w", queue, err)
	}
	return stats[0].Totals.Completed, nil
}

// stuck returns the reason why the canary has not started. It returns nil if the canary started at the last
// moment.
func (c *canary) stuck(ctx context.Context, stop *CanaryError) error {
	v, err := storage.Why(ctx, c.session.Storage(), stop.Ref)
	switch {
	case errors.Is(err, storage.ErrNotFound), v.Cause == storage.CauseEnded, v.Cause == storage.CauseRunning:
		return nil
	case err != nil:
		return err
	}
	stop.text = fmt.Sprintf("the canary %s has not started within %d minutes (%s)", stop.Ref,
		int(canaryStart.Minutes()), v.Cause)
	stop.Detail, stop.Waits = v.String(), true
	return stop
}

// follow adds a task that was requeued after the canary.
func (c *canary) follow(t *storage.Task) {
	if len(c.open) < mostFollowed {
		c.open = append(c.open, first{t.Ref, t.Version})
	}
}

// check reads the attempts that have not ended, once a second at most. It returns a *CanaryError if more than
// a tenth of the last twenty attempts failed.
func (c *canary) check(ctx context.Context) error {
	if time.Since(c.read) < followEach {
		return nil
	}
	c.read = time.Now()
	var open []first
	for _, f := range c.open {
		is, _, stop, err := c.look(ctx, &f)
		switch {
		case err != nil:
			return err
		case is == unstarted || is == running:
			open = append(open, f)
		case is != cancelled: // a task that is gone counts as completed, because most tasks are not kept
			c.last = append(c.last, is == failed)
			c.last = c.last[max(0, len(c.last)-lastFirsts):]
			if n := c.failures(); n > mostFailed {
				stop.text = fmt.Sprintf("%d of the last %d first attempts failed, the last one of %s", n,
					len(c.last), f.ref)
				return stop
			}
		}
	}
	c.open = open
	return nil
}

// failures returns how many of the last first attempts failed.
func (c *canary) failures() (n int) {
	for _, failed := range c.last {
		if failed {
			n++
		}
	}
	return n
}
