package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// Judgement is the verdict that an error of a job asks for.
type Judgement struct {
	Ask       Ask
	Delay     time.Duration   // of RetryIn, Snooze and Throttle
	Until     time.Time       // the end of a Snooze, which then has no Delay; zero for a Snooze with one
	Reason    string          // of a Snooze or a Discard; "" if Beside or nothing names it
	Failure   Outcome         // the kind of failure: failed, panicked, timed out or expired
	Err       error           // as the job returned it, or the panic of one of its methods
	Cause     error           // of the end of the job's context, as the error names it; nil for none
	Beside    error           // what the job returned together with a Snooze or a Throttle; nil for nothing
	Stack     string          // of a panic
	CannotRun *CannotRunError // not nil if the job could not be run at all
}

// Ask is what a job asks for by the error that it returns.
type Ask int

// A job asks for one of these.
const (
	Retry    Ask = iota // the task fails; the backoff delays its retry
	RetryIn             // the task fails; the job chose the delay
	Snooze              // the task runs again later, without counting a retry
	Throttle            // the task goes back, without counting a retry, and its partition rests
	Discard             // the task is dead
)

// CannotRunError is the reason why a task cannot run on this runner. Another runner may be able to
// run it, for example during a deploy.
type CannotRunError struct {
	Reason string // in a few words
	Detail string // of the reason; "" for none
	Err    error
}

func (e *CannotRunError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *CannotRunError) Unwrap() error { return e.Err }

// whole returns the reason with its detail.
func (e *CannotRunError) whole() string {
	if e.Detail == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Detail
}

// The runner buries tasks for these reasons, beside those of the storage and of Jobs.
const (
	reasonDiscarded = storage.AttemptDiscarded
	reasonExpired   = "expired"
)

// judge turns the errors of jobs into the settlements of their tasks.
type judge struct {
	*shared

	mu     sync.Mutex      // guards warned
	warned map[string]bool // what was logged: kinds, and kinds with the reason
}

// finish queues the settle that the error of a job asks for, and reports an attempt whose lease was
// lost.
func (j *judge) finish(a *Attempt, err error, took time.Duration) {
	err = a.Owing(err)
	e := a.conclude()
	switch {
	case !e.settles:
		j.log.lost(a, err, took)
		if a.isLost() { // otherwise it is being given back, and that settle is still to be sent
			j.tellLost(a, err, took)
			j.slots.settled(a)
		}
	case e.joined:
		j.finishJoined(a, err, took)
	case e.ran && err == nil:
		a.shard.settler.add(settlement{attempt: a, took: took})
	default:
		sm := j.settlement(a, err, took)
		switch { // the tasks that wait after it must keep their order
		case !e.ran && sm.outcome() == storage.Release:
			j.releaseAll(j.slots.removeAllAhead(a.shard))
			j.slots.returning(a)
		case sm.as == OutcomeThrottled: // and are to rest with it
			j.slots.returning(a) // first, so that no claim asks for others before the release
			j.releaseAll(j.slots.throttle(a))
		}
		a.shard.settler.add(sm)
	}
}

// settlement returns the settlement that err asks for.
func (j *judge) settlement(a *Attempt, err error, took time.Duration) settlement {
	s, as, reported := j.verdict(a, err)
	return settlement{attempt: a, verdict: &s, as: as, err: reported, took: took}
}

// verdict returns the settle that err asks for, the outcome of the attempt, and the error to
// report.
func (j *judge) verdict(a *Attempt, err error) (s storage.Settle, as Outcome, reported error) {
	a.mu.Lock()
	cause, ran := a.cause(), a.ran
	a.mu.Unlock()
	cancelled := errors.Is(cause, ErrCancelled)
	switch {
	case !ran && cancelled:
		return storage.Settle{Outcome: storage.Cancel, Error: cause.Error()}, OutcomeCancelled, cause
	case !ran && errors.Is(cause, ErrExpired):
		return storage.Settle{Outcome: storage.Bury, As: storage.AttemptExpired, Reason: reasonExpired, Error: cause.Error()}, OutcomeExpired, cause
	case !ran:
		return storage.Settle{Outcome: storage.Release}, OutcomeReleased, cause
	}
	asked := j.jobs.Judge(err)
	as, reported = asked.Outcome(cause), asked.Err
	switch as {
	case OutcomeUndecodable:
		s = j.putOff(a, asked.CannotRun)
	case OutcomeCancelled:
		s = failure(storage.Cancel, 0, asked)
	case OutcomeSnoozed:
		if !asked.Until.IsZero() {
			asked.Delay = min(max(asked.Until.Sub(a.storageTime()), 0), storage.MaxDelay)
		}
		s, reported = snooze(asked), asked.Beside
		if a.misses(asked.Delay) {
			s, as, reported = j.expire(asked), OutcomeExpired, asked.Err
		}
	case OutcomeThrottled: // a deadline within the rest ends the task afterwards: its partition rests all the same
		reported = asked.Beside
		s = storage.Settle{Outcome: storage.Release, Delay: asked.Delay, Error: ErrorText(reported)} // for the log
	case OutcomeExpired:
		s = j.expire(asked)
	case OutcomeDiscarded:
		s = failure(storage.Bury, 0, asked)
		s.Reason = cmp.Or(asked.Reason, reasonDiscarded)
	case OutcomeReleased, OutcomeLeaseLost: // not the job's fault
		s, reported = storage.Settle{Outcome: storage.Release}, beside(cause, asked.Err)
	default:
		s = j.fail(a, asked)
	}
	if s.Attempt() != "" {
		s.As = string(as)
	}
	return s, as, reported
}

// fail fails a task, or buries it if its deadline comes before its retry, which would never start.
func (j *judge) fail(a *Attempt, asked Judgement) storage.Settle {
	delay := j.delay(a, &asked)
	if int(a.Retries) < a.MaxRetries && a.misses(delay) {
		return j.expire(asked)
	}
	return failure(storage.Fail, delay, asked)
}

// expire buries a task whose deadline is over, or comes before its next attempt.
func (*judge) expire(asked Judgement) storage.Settle {
	s := failure(storage.Bury, 0, asked)
	s.Reason = reasonExpired
	return s
}

// failure returns a settle with the text and the stack of an error.
func failure(outcome storage.Outcome, delay time.Duration, of Judgement) storage.Settle {
	return storage.Settle{Outcome: outcome, Delay: delay, Error: ErrorText(of.Err), Stack: of.Stack}
}

// snooze returns the settle of a snooze. If the snooze has no reason, that is the first line of
// what the job returned together with it. Error has the whole text for the log; a storage keeps
// only the reason.
func snooze(asked Judgement) storage.Settle {
	text, reason := ErrorText(asked.Beside), asked.Reason
	switch {
	case reason == "":
		reason, _, _ = strings.Cut(text, "\n")
	case text == "":
		text = reason
	case !strings.Contains(text, reason):
		text = reason + ": " + text
	}
	return storage.Settle{Outcome: storage.Snooze, Delay: asked.Delay, Reason: reason, Error: text}
}

// ErrorText returns err's text, even if its Error method panics.
func ErrorText(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("%T whose Error method panicked: %v", err, v)
		}
	}()
	if err == nil {
		return ""
	}
	return err.Error()
}

// longestRetry bounds the delay of a retry. A longer one comes from a formula that has overflowed.
const longestRetry = 365 * 24 * time.Hour

// delay returns how long to wait before the next retry: as the job asked, else as the backoff
// decides. For a backoff that panics and a delay below 0 it returns the default.
func (j *judge) delay(a *Attempt, asked *Judgement) time.Duration {
	d, err := asked.Delay, error(nil)
	if asked.Ask != RetryIn {
		d, err = j.jobs.Backoff(a)
	}
	switch {
	case err != nil:
		j.log.backoffFailed(a, err)
	case d >= 0:
		return min(d, longestRetry)
	case j.isNew(a.Kind + " with a delay below 0"):
		j.log.negativeDelay(a, d)
	}
	return j.jobs.DefaultBackoff(int(a.Retries) + 1)
}

// A task whose parameters do not fit is put off by a delay between these bounds, for
// Limits.DeclinedFor in all.
const (
	putOffFirst = time.Second
	putOffMost  = 30 * time.Second
)

// warnedMost bounds how many reasons are remembered and logged: the texts about damaged payloads
// may all differ.
const warnedMost = 1000

// isNew reports whether a kind, or a kind with a reason, is to be logged for the first time.
func (j *judge) isNew(key string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := !j.warned[key] && len(j.warned) < warnedMost
	if first {
		j.warned[key] = true
	}
	return first
}

// decline declines the tasks of a claim whose kind this runner does not know, and returns the other
// attempts. A declined task takes no slot. It does not delay the next claim, because it need not go
// back before the tasks that follow it.
func (j *judge) decline(of *shard, claimed []*Attempt) (known []*Attempt) {
	var declined []*Attempt
	known = slices.DeleteFunc(claimed, func(a *Attempt) bool {
		if !a.known {
			declined = append(declined, a)
		}
		return !a.known
	})
	settlements := make([]settlement, len(declined))
	for i, a := range declined {
		if j.isNew(a.Kind) {
			j.log.declined(a)
		}
		a.phase = settling // no other goroutine has it yet
		settlements[i] = settlement{attempt: a, verdict: &storage.Settle{Outcome: storage.Decline}}
	}
	if len(declined) > 0 {
		j.slots.inFlight.add(declined)
		of.settler.add(settlements...)
	}
	return known
}

// putOff postpones a task that cannot run here, or buries it when it could not run for a long time.
func (j *judge) putOff(a *Attempt, c *CannotRunError) storage.Settle {
	if j.isNew(a.Kind + " " + c.whole()) {
		j.log.cannotRun(a, c)
	}
	j.troubles.add(a, c.whole(), j.elapsed())
	if a.Snoozes > 0 && a.told.Sub(a.snoozedSince) > a.limits.Load().DeclinedFor {
		if j.wasPutOff(a, c) {
			return storage.Settle{Outcome: storage.Bury, Reason: c.Reason, Error: ErrorText(c)}
		}
		// The job itself has snoozed until now. A release ends the row of snoozes, so that the next
		// one starts another row.
		return storage.Settle{Outcome: storage.Release}
	}
	d := putOffMost
	if a.Snoozes < 5 {
		d = putOffFirst << a.Snoozes
	}
	d = d*3/4 + rand.N(d/2)
	return storage.Settle{Outcome: storage.Snooze, Delay: d, Reason: c.whole()}
}

// wasPutOff reports whether the last snooze of a task was made by putOff for the same reason, and
// not by its job. A claim does not show that. If the storage does not answer, nothing is buried.
func (j *judge) wasPutOff(a *Attempt, c *CannotRunError) bool {
	ctx, cancel := context.WithTimeout(a.shard.hard, j.lease/3)
	defer cancel()
	t, err := j.store.Task(ctx, a.Fence.Ref)
	return err == nil && strings.HasPrefix(t.Reason, c.Reason)
}
