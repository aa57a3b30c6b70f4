package midge

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// These errors come from the storage; callers test for them with errors.Is. Package storage
// declares further errors.
var (
	// ErrUnknown means that the reply to a call was lost, so that the call may have
	// taken effect or not. [Client.Repeat] returns its outcome or carries it out.
	ErrUnknown = storage.ErrUnknown
	// ErrUnavailable means that the storage could not be reached in the time that the call had.
	// Nothing was sent, so nothing happened. It does not wrap ErrUnknown.
	ErrUnavailable = storage.ErrUnavailable
	// ErrLeaseLost means that another runner may have the task. The write under the lost lease was
	// not made.
	ErrLeaseLost = storage.ErrLeaseLost
	// ErrNotFound means that there is no such task, schedule, or queue. A task that has ended and
	// is not kept is not found either.
	ErrNotFound = storage.ErrNotFound
	// ErrDamaged means that the record of the task cannot be read.
	ErrDamaged = storage.ErrDamaged
	// ErrFull means that the storage has no room; nothing was enqueued.
	ErrFull = storage.ErrFull
	// ErrNotEmpty means that the queue to be removed has a running task, or received new tasks
	// meanwhile.
	ErrNotEmpty = storage.ErrNotEmpty
)

// These errors come from the client.
var (
	// ErrExists means that the requested id belongs to a dead or cancelled task of the same job, so
	// that nothing was enqueued and nothing will run. The call returns that task; [Client.Requeue]
	// makes it run, and [Client.Delete] frees its id. [Queue.SetSchedule] returns it if a program
	// has declared a schedule of the name.
	ErrExists = errors.New("midge: the task of this id will not run")
	// ErrCancelled means that the task was cancelled. [Client.Await] returns it.
	ErrCancelled = runner.ErrCancelled
	// ErrNoResult means that the task completed without a result. [Client.Await] returns it if a
	// result was asked for. [DecodeResult], [DecodeProgress] and [DecodeCheckpoint] return it if
	// the job has stored no such value, or none yet.
	ErrNoResult = errors.New("midge: task completed without a result")
	// ErrNotKept means that the task has ended and was not kept, so that its outcome is not known.
	// [Client.Await] returns it if it had seen the task alive; see [KeepFor].
	ErrNotKept = errors.New("midge: the task has ended and was not kept")
	// ErrSkipped means that an [EnqueueMiddleware] of the client did not pass the task on, so that
	// nothing was enqueued. A [FollowUp] never returns it.
	ErrSkipped = errors.New("midge: left out by a middleware")
	// ErrNotSent means that an earlier part of a [Client.EnqueueMany] failed, so that this item was
	// never sent. It is safe to enqueue it again.
	ErrNotSent = errors.New("midge: not sent")
)

// wrap adds to err action, the action that has failed, and returns nil for a nil err. The last word of action
// names the subject. The text of err then repeats neither the subject nor the prefixes "midge: "
// and "storage: ".
func wrap(err error, action string, args ...any) error {
	if err == nil {
		return nil
	}
	return &actionError{fmt.Sprintf(action, args...), err}
}

type actionError struct {
	action string
	err    error
}

func (e *actionError) Error() string {
	text := ": " + runner.ErrorText(e.err)
	for _, speaker := range []string{"midge: ", "storage: "} {
		text = strings.ReplaceAll(text, ": "+speaker, ": ")
	}
	subject := ": " + e.action[strings.LastIndexByte(e.action, ' ')+1:]
	if rest, found := strings.CutPrefix(text, subject+": "); found {
		text = ": " + rest
	}
	return "midge: " + e.action + text
}

func (e *actionError) Unwrap() error { return e.err }

// about is wrap with a subject that may be "".
func about(err error, action, subject string) error {
	return wrap(err, "%s", strings.TrimSuffix(action+" "+subject, " "))
}

// ofTask is wrap for an action on a task. It names the task if ref is valid.
func ofTask(err error, action string, ref Ref) error {
	if dep := (*DependencyError)(nil); errors.Is(err, ErrNotFound) && !errors.As(err, &dep) {
		err = ErrNotFound // without the storage's text
	}
	if storage.CheckRef(ref) != nil { // err already quotes the invalid ref
		return about(err, action, "")
	}
	return about(err, action, ref.String())
}

// notFoundError is an [ErrNotFound] with a text of its own.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }
func (e *notFoundError) Unwrap() error { return ErrNotFound }

// existsError is an [ErrExists] with a text of its own.
type existsError struct{ text string }

func (e *existsError) Error() string { return e.text }
func (e *existsError) Unwrap() error { return ErrExists }

var errNoTask = &notFoundError{
	"there is no such task: it never was, or has ended and is not kept, see KeepFor and UntilRead",
}

// InvalidError reports bad input, found before any I/O. It names the value and the valid values.
type InvalidError = storage.InvalidError

// DependencyError is the reason why a step was refused. It lists everything that is missing, stale
// or colliding at once.
type DependencyError = storage.DependencyError

// UnknownError is an [ErrUnknown] that carries its call, for [Client.Repeat].
type UnknownError = storage.UnknownError

// DeadError is the error of [Client.Await] for a dead task.
type DeadError struct {
	Ref Ref
	// Reason is a short text about the cause of death: "out of retries", "crash loop", "discarded"
	// …
	Reason string
	// Last is the text of the last attempt's error, "" if there was none.
	Last string
}

// Error names the task, the reason, and the last error.
func (e *DeadError) Error() string {
	text := fmt.Sprintf("midge: %s is dead: %s", e.Ref, storage.PrintableText(e.Reason, storage.MaxReason))
	if e.Last == "" {
		return text
	}
	return text + ": " + storage.PrintableText(e.Last, storage.MaxAttemptError)
}

// Discard makes a job's error final: the task is dead at once, however many retries are left.
// Discard(nil) is nil, which completes the task.
func Discard(err error) error {
	if err == nil {
		return nil
	}
	return &discardError{err}
}

// RetryIn makes a job's error choose the delay of its retry, by the rules of [Backoff]: 0 retries at
// once, and a negative d means the default delay. The retry counts as any other. RetryIn(d, nil) is
// nil, which completes the task.
func RetryIn(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryInError{delay: d, err: err}
}

// Snooze makes a job run again after d without counting a retry: the job did not fail, it was only
// too early. A d of 0 or less means one second, because a job that costs no retry must not spin. An
// error that the job returns together with the Snooze, by errors.Join or wrapping, is the reason:
// its first line is Task.Reason until the job runs again.
func Snooze(d time.Duration) error { return &snoozeError{d} }

// Throttle puts the task of a job back, without counting a retry, because a service has refused a call: the
// task goes to the head of its line, and its [Partition] rests for d, on all runners. No task of the
// partition is claimed meanwhile, while the other partitions of the queue are served. If the task has no
// partition, all tasks of the queue without one rest. Running jobs go on, and tasks that another runner has
// claimed ahead still start; of two rests of a partition the later one holds, and neither a resume nor a
// change of a limit ends a rest.
//
// d is the time that the service asks for, a millisecond to 100 years. For any other d Throttle
// returns an [*InvalidError], with which the job fails. An error that the job returns together with
// the Throttle, by errors.Join or wrapping, is in the line of the log and in [Ended].
func Throttle(d time.Duration) error {
	if d < storage.MinSpan || d > storage.MaxDelay {
		return storage.Invalid("Throttle", d, "%v to "+longest, storage.MinSpan)
	}
	return &throttleError{d}
}

type discardError struct{ err error }

func (e *discardError) Error() string { return e.err.Error() }
func (e *discardError) Unwrap() error { return e.err }

type retryInError struct {
	delay time.Duration
	err   error
}

func (e *retryInError) Error() string { return e.err.Error() }
func (e *retryInError) Unwrap() error { return e.err }

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("snoozed for %v", e.delay) }

type throttleError struct{ delay time.Duration }

func (e *throttleError) Error() string { return fmt.Sprintf("throttled for %v", e.delay) }

// beside returns the error that a job returned together with a Snooze or a Throttle: the other errors that
// were joined to it, or the error that wraps it; nil if there is none. It does not change what happens to the
// task.
func beside(err error) error {
	switch err.(type) { //nolint:errorlint // this one, not one within
	case *snoozeError, *throttleError, *runner.OwedError:
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	rest := make([]error, 0, 1)
	for _, e := range joined.Unwrap() {
		rest = append(rest, beside(e))
	}
	return errors.Join(rest...)
}

// verdictOf reads what a job returned, through wrapping and errors.Join. If several verdicts are
// joined, the gravest one holds: Discard before RetryIn before Throttle before Snooze.
func verdictOf(err error) runner.Judgement {
	var (
		caused   *runner.CausedError
		cannot   *runner.CannotRunError
		owed     *runner.OwedError
		discard  *discardError
		retry    *retryInError
		throttle *throttleError
		snooze   *snoozeError
		panics   *PanicError
	)
	j := runner.Judgement{Err: err, Failure: runner.OutcomeFailed}
	if errors.As(err, &caused) {
		j.Cause = caused.Cause
		if c, ok := err.(*runner.CausedError); ok { //nolint:errorlint // this one, not one within
			j.Err, err = c.Err, c.Err
		}
	}
	switch {
	case errors.As(err, &panics):
		j.Stack, j.Failure = string(panics.Stack), runner.OutcomePanicked
	case errors.Is(err, ErrTimeout):
		j.Failure = runner.OutcomeTimedOut
	case errors.Is(err, ErrExpired):
		j.Failure = runner.OutcomeExpired
	}
	switch {
	case errors.As(err, &cannot):
		j.CannotRun = cannot
	case errors.As(err, &owed) && owed.Ask != runner.Retry:
		j.Ask, j.Until, j.Reason = owed.Ask, owed.Until, owed.Reason
		if owed.Ask == runner.Snooze {
			j.Beside = beside(err)
		}
	case errors.As(err, &discard):
		j.Ask = runner.Discard
	case errors.As(err, &retry):
		j.Ask, j.Delay = runner.RetryIn, retry.delay
	case errors.As(err, &throttle):
		j.Ask, j.Delay, j.Beside = runner.Throttle, throttle.delay, beside(err)
	case errors.As(err, &snooze):
		j.Ask, j.Delay, j.Beside = runner.Snooze, clampDelay(snooze.delay, storage.MaxDelay), beside(err)
		if snooze.delay <= 0 {
			j.Delay = time.Second
		}
	}
	return j
}
