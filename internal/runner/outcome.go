package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/midgehq/midge/storage"
)

// Outcome is how an attempt ended. The root package documents the outcomes.
type Outcome string

// An attempt, or a task without an attempt, ends with one of these outcomes.
const (
	OutcomeSucceeded   Outcome = storage.AttemptSucceeded
	OutcomeFailed      Outcome = storage.AttemptFailed
	OutcomeTimedOut    Outcome = storage.AttemptTimedOut
	OutcomePanicked    Outcome = storage.AttemptPanicked
	OutcomeDiscarded   Outcome = storage.AttemptDiscarded
	OutcomeSnoozed     Outcome = "snoozed"
	OutcomeThrottled   Outcome = "throttled"
	OutcomeReleased    Outcome = "released"
	OutcomeCancelled   Outcome = storage.AttemptCancelled
	OutcomeExpired     Outcome = storage.AttemptExpired
	OutcomeLeaseLost   Outcome = storage.AttemptLeaseLost
	OutcomeUndecodable Outcome = storage.AttemptUndecodable
	OutcomeUnknownKind Outcome = "unknown-kind"
	OutcomeCrashed     Outcome = storage.AttemptCrashed
)

// fails reports whether a run with the outcome counts as a failure of its kind.
func (o Outcome) fails() bool {
	switch o {
	case OutcomeFailed, OutcomeTimedOut, OutcomePanicked, OutcomeDiscarded, OutcomeExpired:
		return true
	default:
		return false
	}
}

// Outcome returns the outcome of an attempt whose job returned the judged error. cause is what had
// ended the job's context, nil for nothing.
func (j *Judgement) Outcome(cause error) Outcome {
	switch {
	case j.Err == nil:
		return OutcomeSucceeded
	case j.CannotRun != nil:
		return OutcomeUndecodable
	case errors.Is(cause, ErrCancelled):
		return OutcomeCancelled
	case j.Ask == Snooze:
		return OutcomeSnoozed
	case j.Ask == Throttle:
		return OutcomeThrottled
	case j.Ask == Discard:
		return OutcomeDiscarded
	case j.Ask == RetryIn || cause == nil:
		return j.Failure
	case errors.Is(cause, storage.ErrLeaseLost):
		return OutcomeLeaseLost
	}
	return OutcomeReleased
}

// CausedError is an error that a job returned after its context had ended, with the cause of that
// end. [Attempt.Explain] makes it. Its text is that of the job's error.
type CausedError struct{ Cause, Err error }

func (e *CausedError) Error() string { return e.Err.Error() }

// Unwrap returns the job's error and the cause.
func (e *CausedError) Unwrap() []error { return []error{e.Err, e.Cause} }

// beside returns the cause that had ended the context of a job, with the error that the job returned then unless
// that is the end of its context.
func beside(cause, err error) error {
	if caused, ok := errors.AsType[*CausedError](err); ok {
		err = caused.Err
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, cause) {
		return cause
	}
	return &CausedError{cause, err}
}

// Explain adds to a job's error what had ended the job's context, for the middleware and the
// verdict. ctx is the context of the job.
func (a *Attempt) Explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := a.endedBy(); cause != nil {
		return &CausedError{cause, err}
	}
	return a.tooLate(ctx, err)
}

// tooLate adds to the error of an attempt that its timeout or deadline has ended its context, if
// one has.
func (a *Attempt) tooLate(ctx context.Context, err error) error {
	if err == nil || a.explained {
		return err
	}
	if most, _ := a.limit(); most == 0 {
		return err
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrTimeout):
		a.explained = true
		return explained(ErrTimeout, fmt.Sprintf("%v after %v", ErrTimeout, a.timeout), err)
	case errors.Is(cause, ErrExpired):
		a.explained = true
		return explained(ErrExpired, ErrExpired.Error(), err)
	}
	return err
}

// lateError is an error that a job returned after its timeout or deadline had ended its context.
type lateError struct {
	text       string
	cause, err error
}

func (e *lateError) Error() string { return e.text }

// Unwrap returns the cause and the job's error.
func (e *lateError) Unwrap() []error { return []error{e.cause, e.err} }

// explained adds the cause to an error, as a text that explains more than the cause itself. The
// text takes the place of the cause if the job has returned it, and else precedes the error.
func explained(cause error, said string, err error) error {
	text := ErrorText(err)
	if strings.Contains(text, cause.Error()) {
		text = strings.Replace(text, cause.Error(), said, 1)
	} else {
		text = said + ": " + text
	}
	return &lateError{text, cause, err}
}

// endedBy returns what ended the attempt before its timeout, or nil.
func (a *Attempt) endedBy() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endedByLocked()
}

func (a *Attempt) endedByLocked() error {
	if cause := a.cause(); cause != nil || a.ctx.Err() == nil {
		return cause
	}
	return context.Cause(a.ctx)
}
