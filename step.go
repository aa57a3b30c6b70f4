package midge

import (
	"context"
	"reflect"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// StepInfo describes a finished step of a task, or a sleep that has begun; see [StepsOf].
type StepInfo struct {
	Name string
	// Ended is when the step was finished, or the sleep began, by the storage's clock.
	Ended time.Time
	// Took is how long the function of the step took. It is 0 for a sleep.
	Took time.Duration
	// Until is the end of a sleep. It is zero for a step.
	Until time.Time

	kind, encoding string
	result         []byte
}

// Step calls f and stores its result with the task, at once and under the lease. In a later attempt
// of the task, whoever runs it, Step returns the stored result and does not call f. So a job that
// fails, or whose process dies, goes on with the step that it had not finished.
//
// A step is finished once its result is stored. If the process is killed between the return of f
// and that moment, a later attempt calls f again. The IdempotencyKey of [Current], together with the
// name of the step, makes that harmless if the other side takes such a key.
//
// The name is 1 to 128 bytes of printable UTF-8, and differs from those of all other steps and sleeps
// of the job; a name that is used twice in one attempt is an *[InvalidError]. Steps may run
// concurrently, and within each other. A job must wait for its steps before it returns. Call [FollowUp]
// and [SetResult] outside of f: with the context of f they return an *[InvalidError], because a later
// attempt, which does not call f, would complete the task without them.
//
// Once the context has ended, no step begins, and Step returns the cause; the result of a function that runs
// then is still stored if the function returns nil.
//
// Step returns the result as it is stored: a value that would not come back as it was is an
// *[InvalidError], as [Encoding] describes. An error of f is returned as it is. Nothing is stored then, and
// the job usually returns the error, so that the attempt fails.
//
// If the steps cannot be read, or f was called and its result is not stored, a job that returns nil has
// failed all the same:
//   - With [ErrUnknown], [ErrUnavailable], [ErrDamaged] and other errors of the storage the attempt has
//     failed. All further steps and sleeps of the attempt return the error.
//   - With a result that cannot be encoded, or that does not fit into Limits.MaxPayload together with
//     the other steps and the checkpoint, the task is dead, and its reason names the step. A retry would
//     only repeat the step. The same holds for the 257th step or sleep of a task, whose f is not called.
//
// An invalid name, a nil f, and a type T whose values cannot be encoded or decoded, such as a channel, are
// found before f is called. A job that returns their *[InvalidError] is retried as after any error, so that a
// corrected program can go on with the task.
//
// The steps are kept as long as the task; see [StepsOf].
func Step[T any](ctx context.Context, name string, f func(ctx context.Context) (T, error)) (T, error) {
	var result, none T
	var call func(ctx context.Context) (any, error)
	if f != nil {
		call = func(ctx context.Context) (any, error) { return f(ctx) }
	}
	if err := step(ctx, name, call, &result); err != nil {
		return none, err
	}
	return result, nil
}

// step calls call once and decodes its stored result into result, a pointer.
func step(
	ctx context.Context, name string, call func(ctx context.Context) (any, error), result any,
) error {
	var failed error // of call
	err := inStep(ctx, "step", name, func(a *runner.Attempt) error {
		if call == nil {
			return storage.Invalid("function", "nil", "a function that does the step")
		}
		if err := codec.CheckEncoding("encoding of the task", a.Encoding); err != nil { // of a RawJob
			return err
		}
		if err := codec.CheckType(a.Encoding, reflect.TypeOf(result).Elem()); err != nil {
			return err
		}
		called := false
		stored, err := a.Step(ctx, name, func() (stored []byte, err error) {
			called = true
			v, err := call(context.WithValue(ctx, withinStep{a}, name))
			if failed = err; err != nil {
				return nil, err
			}
			if stored, err = encodeFor(a, v); err == nil {
				err = codec.Decode(a.Encoding, stored, result)
			}
			if err != nil {
				err = a.Unstorable(name, err)
			}
			return stored, err
		})
		if err != nil || called {
			return err
		}
		if err := codec.Decode(a.Encoding, stored, result); err != nil {
			return &resultError{kind: a.Kind, step: name, into: result, cause: err}
		}
		return nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// withinStep is the key under which the context of a step's function has the name of the step.
type withinStep struct{ *runner.Attempt }

// outsideStep refuses a call with the context of a step's function. Its effect would be gone with an attempt
// that fails, and a later attempt does not call the function.
func outsideStep(ctx context.Context, a *runner.Attempt, call string) error {
	if name, within := ctx.Value(withinStep{a}).(string); within {
		return storage.Invalid(call, "within step "+name, "a call outside the step")
	}
	return nil
}

// Sleep lets the job wait for d without a slot and without a process. The first Sleep of a name stores
// its end with the task and returns an error, which the job returns. The task is then snoozed until that
// end, as [Snooze] does it. In later attempts Sleep returns nil once the end has come. The end is by the
// storage's clock.
//
// A job that ignores the error is snoozed all the same, whatever it returns, and its further steps and sleeps
// return that error. Only a concurrent step that is not stored outranks the sleep: the attempt fails, and the
// next one snoozes for the rest. A d of 0 or less is over at once. The end is stored once: a later attempt
// with another d does not move it, and an attempt that begins before the end, for example because of a
// [Client.Requeue], snoozes for the rest.
//
// The timeout of an attempt begins anew after a sleep. A [Deadline], retries and crashes count for the
// whole job: a Sleep that would last beyond the deadline ends the task as expired at once.
//
// The rules for names, the number of steps, and errors of the storage are those of [Step].
func Sleep(ctx context.Context, name string, d time.Duration) error {
	return inStep(ctx, "sleep", name, func(a *runner.Attempt) error {
		if d > storage.MaxDelay {
			return storage.Invalid("duration", d, "at most %v", storage.MaxDelay)
		}
		return a.Sleep(ctx, name, d)
	})
}

// inStep is inJob for a step or a sleep of a name.
func inStep(ctx context.Context, action, name string, do func(a *runner.Attempt) error) error {
	if err := steps.CheckName(name); err != nil {
		return wrap(err, "%s", action)
	}
	a := runner.FromContext(ctx)
	if a == nil {
		return wrap(ErrNotInJob, "%s %q", action, name)
	}
	err := a.MayAdd()
	if err == nil {
		err = do(a)
	}
	return wrap(err, "%s %q of %s", action, name, a.Fence.Ref)
}

// StepsOf returns the finished steps of a task that [Client.Task] returned, and its sleeps, in the order
// in which they were stored. There are none if the task was listed without them. The error is an
// [ErrDamaged].
func StepsOf(t Task) ([]StepInfo, error) {
	kept, err := steps.Decode(t.Checkpoint)
	if err != nil {
		return nil, wrap(err, "steps of %s", t.Ref)
	}
	all := make([]StepInfo, len(kept.Steps))
	for i, s := range kept.Steps {
		all[i] = StepInfo{s.Name, s.Ended, s.Took, s.Until, t.Kind, t.Encoding, s.Result}
	}
	return all, nil
}

// Decode decodes the result of the step into v, a pointer. It returns [ErrNoResult] for a sleep.
func (s StepInfo) Decode(v any) error {
	err := checkPointer(v)
	switch {
	case err != nil:
	case len(s.result) == 0:
		err = errNoneStored
	default:
		if err = codec.Decode(s.encoding, s.result, v); err != nil {
			err = &resultError{kind: s.kind, step: s.Name, into: v, cause: err}
		}
	}
	return wrap(err, "decode step %q", s.Name)
}
