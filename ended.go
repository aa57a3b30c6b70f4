package midge

import (
	"context"
	"time"

	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// Outcome is the way in which an attempt ended, or in which a task ended without an attempt. Its values are
// lower-case words that suit the label of a metric.
type Outcome string

// The outcomes that always end a task are marked as final below. With the others, Ended.Final reports
// whether the task has ended.
const (
	// OutcomeSucceeded means that the job returned nil, or that its transaction completed the task.
	// Final.
	OutcomeSucceeded = Outcome(runner.OutcomeSucceeded)
	// OutcomeFailed means that the job returned an error. Final if no retry is left.
	OutcomeFailed = Outcome(runner.OutcomeFailed)
	// OutcomeTimedOut means that the job returned an error after its timeout had ended its context.
	// It counts as a failure.
	OutcomeTimedOut = Outcome(runner.OutcomeTimedOut)
	// OutcomePanicked means that the job panicked. It counts as a failure.
	OutcomePanicked = Outcome(runner.OutcomePanicked)
	// OutcomeDiscarded means that the job returned a [Discard]. Final.
	OutcomeDiscarded = Outcome(runner.OutcomeDiscarded)
	// OutcomeSnoozed means that the job returned a [Snooze].
	OutcomeSnoozed = Outcome(runner.OutcomeSnoozed)
	// OutcomeThrottled means that the job returned a [Throttle].
	OutcomeThrottled = Outcome(runner.OutcomeThrottled)
	// OutcomeReleased means that the runner stopped, and released the task of a running job without
	// counting a retry.
	OutcomeReleased = Outcome(runner.OutcomeReleased)
	// OutcomeCancelled means that the task was cancelled, while it ran or before its job began.
	// Final.
	OutcomeCancelled = Outcome(runner.OutcomeCancelled)
	// OutcomeExpired means that the [Deadline] of the task was over before its job began or
	// returned, or comes before the end of a snooze. Final. A job that fails for another reason
	// when no time is left for its retry has failed; its task is dead, with reason "expired".
	OutcomeExpired = Outcome(runner.OutcomeExpired)
	// OutcomeLeaseLost means that the runner was cut off from the storage for so long that another
	// runner may have the task, or that it ended the job to prevent that. The return value of the job
	// changed nothing.
	OutcomeLeaseLost = Outcome(runner.OutcomeLeaseLost)
	// OutcomeUndecodable means that the parameters of the task do not fit the job's type. The task
	// is put off without counting a retry. After Limits.DeclinedFor in this state,
	// 24 hours by default, it is dead.
	OutcomeUndecodable = Outcome(runner.OutcomeUndecodable)
	// OutcomeUnknownKind means that no runner of the queue has known the kind of the task for 24
	// hours. No attempt was made. Final. A runner that declines a task of an unknown kind reports
	// nothing, because another runner may handle the kind.
	OutcomeUnknownKind = Outcome(runner.OutcomeUnknownKind)
	// OutcomeCrashed means that the process of a runner died while the job ran, or was cut off from
	// the storage. The runner that starts the task again reports it, or the runner whose claim
	// found that the task had crashed too often; in the latter case it is final.
	OutcomeCrashed = Outcome(runner.OutcomeCrashed)
)

// Ended is the end of an attempt, or of a task that ended without an attempt. The functions of
// [RunnerConfig].OnEnd receive it.
type Ended struct {
	// Task is the task as it was claimed, with the State, Version, Retries, Snoozes, Reason and
	// Result after the end. Its history, stack, progress and checkpoint are left out. If the
	// storage ended the task by itself, only Ref, Kind, State and Reason are known. If the
	// outcome is OutcomeCrashed and not final, Task has all that the storage keeps.
	Task    storage.Task
	Outcome Outcome
	// Final means that the task has ended: it is completed, cancelled or dead, see Task.State.
	Final bool
	// Err is the error that the job returned, or the reason why the attempt ended otherwise. It is
	// nil for a success, and if the storage ended the task.
	Err error
	// RetryIn is how long the task waits for its next attempt after a failure or a snooze, and how
	// long its partition rests after a throttle. It is 0 if there is no next attempt, or if it
	// may start at once.
	RetryIn time.Duration
	// Wait is how long the task had been due when its job began. It is 0 if that is not known,
	// as is usual after the first attempt. A requeued task counts from the moment for which it was
	// enqueued.
	Wait time.Duration
	// Took is how long the job ran, or 0 if no job ran on this runner.
	Took time.Duration
	// Runner is the id of the runner that made the attempt, or "" if that is not known.
	Runner string
}

// OutcomeOf returns, for a [Middleware], the outcome of an attempt whose job returned err:
// OutcomeSucceeded for nil. The final outcome is known only after the storage has acknowledged it; see
// [RunnerConfig].OnEnd. OutcomeOf never returns an outcome that no job sees.
func OutcomeOf(err error) Outcome {
	j := judge(err)
	return Outcome(j.Outcome(j.Cause))
}

// tellers adapts the hooks of a runner. A panic of a hook becomes its error.
func tellers(hooks []func(context.Context, Ended)) []func(context.Context, *runner.Ended) error {
	all := make([]func(context.Context, *runner.Ended) error, len(hooks))
	for i, hook := range hooks {
		all[i] = func(ctx context.Context, e *runner.Ended) (err error) {
			defer recovered(&err)
			hook(ctx, Ended{
				Task: *e.Task, Outcome: Outcome(e.Outcome), Final: e.Final, Err: e.Err,
				RetryIn: e.RetryIn, Wait: e.Wait, Took: e.Took, Runner: e.Runner,
			})
			return nil
		}
	}
	return all
}
