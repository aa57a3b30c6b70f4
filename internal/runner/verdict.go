package runner

import (
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

// Judgement is what an error that a job returned asks for.
type Judgement struct {
	Ask       Ask
	Delay     time.Duration   // of RetryIn and Snooze
	Failure   Outcome         // what a failure is: failed, panicked or timed out
	Err       error           // as the job returned it, or the panic of one of its methods
	Cause     error           // what had ended the context of the job, as the error tells it; nil for nothing
	Beside    error           // what the job returned beside a Snooze, nil for nothing
	Stack     string          // of a panic
	CannotRun *CannotRunError // not nil where the job could not be run at all
}

// Ask is what to do with a task whose job returned an error.
type Ask int

// What a job may ask for.
const (
	Retry   Ask = iota // the task fails; the backoff delays its retry
	RetryIn            // the task fails; the job chose the delay
	Snooze             // the task comes back, uncharged
	Discard            // the task is dead
)

// CannotRunError says why a task cannot run on this runner. Another one may be able to: a
// deploy may be under way.
type CannotRunError struct {
	Reason string // in a word
	Detail string // of the reason, "" for none
	Err    error
}

func (e *CannotRunError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *CannotRunError) Unwrap() error { return e.Err }

// whole is the reason with its detail.
func (e *CannotRunError) whole() string {
	if e.Detail == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Detail
}

// Why the runner buries a task, beside the reasons of the storage and of Jobs.
const (
	reasonDiscarded = "discarded"
	reasonExpired   = "expired"
)

// judge turns what jobs return into the settlements of their tasks.
type judge struct {
	*shared

	mu     sync.Mutex      // guards warned
	warned map[string]bool // kinds and why they cannot run here, that were logged
}

// finish turns what a job returned into the settle of its task.
func (j *judge) finish(a *Attempt, err error, took time.Duration) {
	e := a.conclude()
	switch {
	case !e.settles:
		j.log.lost(a, took)
		if a.isLost() { // else it is being given back, and that settle is still to be sent
			j.tellLost(a, err, took)
			j.slots.settled(a)
		}
	case e.joined:
		j.finishJoined(a, err, took)
	case e.ran && err == nil:
		a.shard.settler.add(settlement{attempt: a, took: took})
	default:
		sm := j.settlement(a, err, took)
		if !e.ran && sm.outcome() == storage.Release { // the tasks that wait behind it keep their order
			j.releaseAll(j.slots.removeAllAhead(a.shard))
			j.slots.returning(a)
		}
		a.shard.settler.add(sm)
	}
}

// settlement is the settlement that err asks for.
func (j *judge) settlement(a *Attempt, err error, took time.Duration) settlement {
	s, as, reported := j.verdict(a, err)
	return settlement{attempt: a, verdict: &s, as: as, err: reported, took: took}
}

// verdict is the settle that err asks for, how that ends the attempt, and the error to report.
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
		s, reported = snooze(asked), asked.Beside
		if a.misses(asked.Delay) {
			s, as, reported = j.expire(asked), OutcomeExpired, asked.Err
		}
	case OutcomeExpired:
		s = j.expire(asked)
	case OutcomeDiscarded:
		s = failure(storage.Bury, 0, asked)
		s.Reason = reasonDiscarded
	case OutcomeReleased, OutcomeLeaseLost: // the shutdown, or a lease that could not be extended: no fault of the job's
		s, reported = storage.Settle{Outcome: storage.Release}, cause
	default:
		delay := asked.Delay
		if asked.Ask != RetryIn {
			delay = j.delay(a)
		}
		s = failure(storage.Fail, delay, asked)
		if int(a.Retries) < a.MaxRetries && a.misses(delay) { // its retry would not start
			s = j.expire(asked)
		}
	}
	if s.Attempt() != "" {
		s.As = string(as)
	}
	return s, as, reported
}

// expire buries a task whose deadline is over, or comes before its next attempt.
func (*judge) expire(asked Judgement) storage.Settle {
	s := failure(storage.Bury, 0, asked)
	s.Reason = reasonExpired
	return s
}

// failure is a settle with the text and stack of an error.
func failure(outcome storage.Outcome, delay time.Duration, of Judgement) storage.Settle {
	return storage.Settle{Outcome: outcome, Delay: delay, Error: ErrorText(of.Err), Stack: of.Stack}
}

// snooze is the settle of a job that snoozes, with the first line of what it returned beside that as the
// reason. The log has the text from Error; a storage keeps no more than the reason.
func snooze(asked Judgement) storage.Settle {
	text := ErrorText(asked.Beside)
	reason, _, _ := strings.Cut(text, "\n")
	return storage.Settle{Outcome: storage.Snooze, Delay: asked.Delay, Reason: reason, Error: text}
}

// ErrorText is err's text, even where its Error method panics.
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

// delay is how long to wait before the next retry.
func (j *judge) delay(a *Attempt) time.Duration {
	d, err := j.jobs.Backoff(a)
	if err != nil {
		j.log.backoffFailed(a, err)
	}
	return min(max(d, 0), storage.MaxDelay)
}

// A task whose parameters do not fit is tried again, uncharged, this often and this long.
const (
	putOffFirst = time.Second
	putOffMost  = 30 * time.Second
	putOffFor   = 24 * time.Hour
)

// warnedMost bounds how many reasons are remembered, and logged: texts of damaged payloads
// may all differ.
const warnedMost = 1000

// isNew reports whether a kind, or a kind and a reason, is to be warned of for the first time.
func (j *judge) isNew(key string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := !j.warned[key] && len(j.warned) < warnedMost
	if first {
		j.warned[key] = true
	}
	return first
}

// decline declines the tasks of a claim whose kind this runner does not know, and gives the other
// attempts. A declined task takes no slot, and keeps no claim waiting: it needs no place before
// the tasks behind it.
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
		a.phase = settling // nobody else has it yet
		settlements[i] = settlement{attempt: a, verdict: &storage.Settle{Outcome: storage.Decline}}
	}
	if len(declined) > 0 {
		j.slots.inFlight.add(declined)
		of.settler.add(settlements...)
	}
	return known
}

// putOff has a task come back that cannot run here, or buries it when that was so for long.
func (j *judge) putOff(a *Attempt, c *CannotRunError) storage.Settle {
	if j.isNew(a.Kind + " " + c.whole()) {
		j.log.cannotRun(a, c)
	}
	if a.Snoozes > 0 && a.told.Sub(a.snoozedSince) > putOffFor {
		if j.wasPutOff(a, c) {
			return storage.Settle{Outcome: storage.Bury, Reason: c.Reason, Error: ErrorText(c)}
		}
		// The job has snoozed until now. A release ends that row, so that the next snooze
		// begins another.
		return storage.Settle{Outcome: storage.Release}
	}
	d := putOffMost
	if a.Snoozes < 5 {
		d = putOffFirst << a.Snoozes
	}
	d = d*3/4 + rand.N(d/2)
	return storage.Settle{Outcome: storage.Snooze, Delay: d, Reason: c.whole()}
}

// wasPutOff reports whether the last snooze of a task was for the same reason, rather than
// its job's own. A claim does not tell that. Where the storage does not, nothing is buried.
func (j *judge) wasPutOff(a *Attempt, c *CannotRunError) bool {
	ctx, cancel := context.WithTimeout(a.shard.hard, j.lease/3)
	defer cancel()
	t, err := j.store.Task(ctx, a.Fence.Ref)
	return err == nil && strings.HasPrefix(t.Reason, c.Reason)
}
