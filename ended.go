package midge

import (
	"context"
	"time"

	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// Outcome is how an attempt ended, or a task that no attempt ended. Its values are lower-case words
// that suit the label of a metric.
type Outcome string

// The outcomes. Those that end a task for good say so; with the others it depends, and Ended.Final
// tells.
const (
	// OutcomeSucceeded: the job returned nil, or its transaction completed the task. Final.
	OutcomeSucceeded = Outcome(runner.OutcomeSucceeded)
	// OutcomeFailed: the job returned an error. Final where no retry is left.
	OutcomeFailed = Outcome(runner.OutcomeFailed)
	// OutcomeTimedOut: the job returned an error after its timeout had ended its context. It
	// counts as a failure.
	OutcomeTimedOut = Outcome(runner.OutcomeTimedOut)
	// OutcomePanicked: the job panicked. It counts as a failure.
	OutcomePanicked = Outcome(runner.OutcomePanicked)
	// OutcomeDiscarded: the job returned a [Discard]. Final.
	OutcomeDiscarded = Outcome(runner.OutcomeDiscarded)
	// OutcomeSnoozed: the job returned a [Snooze].
	OutcomeSnoozed = Outcome(runner.OutcomeSnoozed)
	// OutcomeReleased: the runner stopped, and gave the task of a running job back, uncharged.
	OutcomeReleased = Outcome(runner.OutcomeReleased)
	// OutcomeCancelled: the task was cancelled, while it ran or before its job began. Final.
	OutcomeCancelled = Outcome(runner.OutcomeCancelled)
	// OutcomeExpired: the [Deadline] of the task was over before its job began or returned, or comes
	// before the end of a snooze. Final. A job that fails for another reason and has no time for
	// its retry has failed; its task is dead, reason "expired".
	OutcomeExpired = Outcome(runner.OutcomeExpired)
	// OutcomeLeaseLost: the runner was cut off from the storage for so long that another one may
	// have the task, or had ended its job for fear of that. What the job returned changed nothing.
	OutcomeLeaseLost = Outcome(runner.OutcomeLeaseLost)
	// OutcomeUndecodable: the parameters of the task do not fit the job's type. The task is put
	// off, uncharged, and dead where that was so for 24 hours.
	OutcomeUndecodable = Outcome(runner.OutcomeUndecodable)
	// OutcomeUnknownKind: no runner of the queue has known the kind of the task for 24 hours. No
	// attempt was made. Final. A runner that declines a task of a kind that it does not know
	// reports nothing: another runner may know it.
	OutcomeUnknownKind = Outcome(runner.OutcomeUnknownKind)
	// OutcomeCrashed: the process of a runner died with the job, or was cut off from the storage.
	// The runner that starts the task again reports it, or the one whose claim found that the task
	// had crashed too often, which is final.
	OutcomeCrashed = Outcome(runner.OutcomeCrashed)
)

// Ended is what the functions of [RunnerConfig].OnEnd are told of an attempt, or of a task that no
// attempt ended.
type Ended struct {
	// Task is the task as it was claimed, with the State, Version, Retries, Snoozes, Reason and
	// Result that the end left. Its history, stack, progress and checkpoint are left out. Where the
	// storage ended the task by itself, only Ref, Kind, State and Reason are known; where the
	// outcome is OutcomeCrashed and not final, Task is all that the storage keeps.
	Task    storage.Task
	Outcome Outcome
	// Final says that the task has ended: it is completed, cancelled or dead, as Task.State says.
	Final bool
	// Err is what the job returned, or why the attempt ended otherwise; nil for a success, and
	// where the storage ended the task.
	Err error
	// RetryIn is how long the task waits for its next attempt: after a failure or a snooze; 0
	// where there is none, or it may start at once.
	RetryIn time.Duration
	// Wait is how long the task had been due when its job began; 0 where that is not known, which
	// is so behind the first attempt. A requeued task counts from the moment it was enqueued for.
	Wait time.Duration
	// Took is how long the job ran; 0 where no job ran here.
	Took time.Duration
	// Runner is the id of the runner that made the attempt, "" where that is not known.
	Runner string
}

// OutcomeOf tells a [Middleware] how the attempt ends whose job returned err to it: OutcomeSucceeded
// for nil. What the attempt comes to in the end is known once the storage has acknowledged it;
// see [RunnerConfig].OnEnd. The outcomes that no job sees are never given.
func OutcomeOf(err error) Outcome {
	j := judge(err)
	return Outcome(j.Outcome(j.Cause))
}

// tellers call the hooks of a runner. A panic is an error.
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
