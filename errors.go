package midge

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// Errors of the storage that callers test for with errors.Is. Those not listed
// here are in package storage.
var (
	// ErrUnknown: whether a call happened is not known, because its reply was
	// lost. [Client.Repeat] learns its outcome or carries it out.
	ErrUnknown = storage.ErrUnknown
	// ErrUnavailable: the storage could not be reached for as long as the call was
	// tried. Nothing was sent, so nothing happened. It is no ErrUnknown.
	ErrUnavailable = storage.ErrUnavailable
	// ErrLeaseLost: another runner may have the task; what was to be written
	// under its lease was not.
	ErrLeaseLost = storage.ErrLeaseLost
	// ErrNotFound: there is no such task, schedule, or queue. A task that ended and is not
	// kept is gone.
	ErrNotFound = storage.ErrNotFound
	// ErrDamaged: the record of the task cannot be read.
	ErrDamaged = storage.ErrDamaged
	// ErrFull: the storage has no room; nothing was enqueued.
	ErrFull = storage.ErrFull
	// ErrNotEmpty: the queue to be removed has a running task, or new ones came.
	ErrNotEmpty = storage.ErrNotEmpty
)

// Errors of the client.
var (
	// ErrExists: the id to enqueue under has a task of the same job that is dead or
	// cancelled, so that nothing was enqueued and nothing will run. The call gives that
	// task; [Client.Requeue] lets it run, [Client.Delete] frees its id.
	ErrExists = errors.New("midge: the task of this id will not run")
	// ErrCancelled: the task was cancelled. [Client.Await] returns it.
	ErrCancelled = runner.ErrCancelled
	// ErrNoResult: the task completed without a result. [Client.Await] returns it
	// where a result was asked for. [DecodeResult], [DecodeProgress] and [DecodeCheckpoint] return
	// it for what a job has not stored, or not yet.
	ErrNoResult = errors.New("midge: task completed without a result")
	// ErrNotKept: the task has ended and was not kept, so that nothing tells how.
	// [Client.Await] returns it where it had seen the task alive; see [KeepFor].
	ErrNotKept = errors.New("midge: the task has ended and was not kept")
	// ErrSkipped: an [EnqueueMiddleware] of the client did not pass the task on, so that nothing
	// was enqueued. A [FollowUp] never returns it.
	ErrSkipped = errors.New("midge: left out by a middleware")
	// ErrNotSent: an earlier part of a [Client.EnqueueMany] went wrong, so that
	// this item was never sent. It is safe to enqueue it again.
	ErrNotSent = errors.New("midge: not sent")
)

// wrap says what midge was about when err came, and gives nil for nil. What act names last is its
// subject, and the text of err neither names that again nor who speaks.
func wrap(err error, act string, args ...any) error {
	if err == nil {
		return nil
	}
	return &actError{fmt.Sprintf(act, args...), err}
}

type actError struct {
	act string
	err error
}

func (e *actError) Error() string {
	text := ": " + runner.ErrorText(e.err)
	for _, speaker := range []string{"midge: ", "storage: "} {
		text = strings.ReplaceAll(text, ": "+speaker, ": ")
	}
	subject := ": " + e.act[strings.LastIndexByte(e.act, ' ')+1:]
	if rest, found := strings.CutPrefix(text, subject+": "); found {
		text = ": " + rest
	}
	return "midge: " + e.act + text
}

func (e *actError) Unwrap() error { return e.err }

// about is wrap of an act that may have no subject, "".
func about(err error, act, subject string) error {
	return wrap(err, "%s", strings.TrimSuffix(act+" "+subject, " "))
}

// ofTask says what was to be done to a task when err came, in words of who named the task.
func ofTask(err error, act string, ref Ref) error {
	if dep := (*DependencyError)(nil); errors.Is(err, ErrNotFound) && !errors.As(err, &dep) {
		err = ErrNotFound // without the storage's words
	}
	if storage.CheckRef(ref) != nil { // err quotes what is wrong with it
		return about(err, act, "")
	}
	return about(err, act, ref.String())
}

// notFoundError is an [ErrNotFound] in words of its own.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }
func (e *notFoundError) Unwrap() error { return ErrNotFound }

// InvalidError is bad input, found before any I/O: what was given and what is
// wanted.
type InvalidError = storage.InvalidError

// DependencyError says why a step was refused: everything missing, stale or
// colliding at once.
type DependencyError = storage.DependencyError

// UnknownError is an [ErrUnknown] that remembers its call for [Client.Repeat].
type UnknownError = storage.UnknownError

// DeadError tells [Client.Await] that the task is dead.
type DeadError struct {
	Ref Ref
	// Reason is why, in a word: "out of retries", "crash loop", "discarded" …
	Reason string
	// Last is the text of the last attempt's error, "" if there was none.
	Last string
}

// Error says which task, why, and the last error.
func (e *DeadError) Error() string {
	text := fmt.Sprintf("midge: %s is dead: %s", e.Ref, storage.PrintableText(e.Reason, storage.MaxReason))
	if e.Last == "" {
		return text
	}
	return text + ": " + storage.PrintableText(e.Last, storage.MaxAttemptError)
}

// Discard makes a job's error final: the task is dead at once, whatever retries
// are left. Discard(nil) is nil, which completes.
func Discard(err error) error {
	if err == nil {
		return nil
	}
	return &discardError{err}
}

// RetryIn makes a job's error choose the delay of its retry, which counts as any
// other. RetryIn(d, nil) is nil, which completes.
func RetryIn(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryInError{delay: d, err: err}
}

// Snooze makes a job come back after d without being charged a retry: it did not
// fail, its moment has not come. For d of 0 or less it comes back after a second: what
// costs no retry must not spin. What a job returns with it, by errors.Join or wrapping, says why: its first
// line is Task.Reason until the task comes back.
func Snooze(d time.Duration) error { return &snoozeError{d} }

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

// beside is what was returned together with a Snooze, nil for nothing: the task goes on
// without it.
func beside(err error) error {
	if _, ok := err.(*snoozeError); ok { //nolint:errorlint // this one, not one within
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

// verdictOf reads what a job returned, through wrapping and errors.Join. Where
// several verdicts are joined the gravest holds: Discard before RetryIn before
// Snooze.
func verdictOf(err error) runner.Judgement {
	var (
		caused  *runner.CausedError
		cannot  *runner.CannotRunError
		discard *discardError
		retry   *retryInError
		snooze  *snoozeError
		panics  *PanicError
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
	case errors.As(err, &discard):
		j.Ask = runner.Discard
	case errors.As(err, &retry):
		j.Ask, j.Delay = runner.RetryIn, clampDelay(retry.delay, storage.MaxDelay)
	case errors.As(err, &snooze):
		j.Ask, j.Delay, j.Beside = runner.Snooze, clampDelay(snooze.delay, storage.MaxDelay), beside(err)
		if snooze.delay <= 0 {
			j.Delay = time.Second
		}
	}
	return j
}
