//go:build unix

package faulttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// stepJob is the job of these tests. It does its steps one after another.
type stepJob struct {
	Steps []step
}

// step is one thing that a job does.
type step struct {
	Do  string
	Arg string
	For time.Duration
	N   int
}

// tick is the job of the schedules.
type tick struct{}

// Options keeps ticks, so that they can be counted.
func (tick) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: keepForever}, Timeout: noTimeout}
}

// noTimeout is the timeout of the jobs, longer than any test. It serves to find out when
// a run began: a job's deadline counts from the runner's last check of the lease, which
// comes right before the timeout is set.
const noTimeout = 6 * time.Hour

// Options keeps a completed task, so that it can be counted.
func (stepJob) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: keepForever}, Retries: 5, Timeout: noTimeout}
}

// do returns a job of steps without arguments.
func do(names ...string) stepJob {
	var job stepJob
	for _, name := range names {
		job.Steps = append(job.Steps, step{Do: name})
	}
	return job
}

// gate returns a step that waits until the test opens a gate or the context ends. hold
// returns a step that waits for the gate even after the context has ended.
func gate(name string) step { return step{Do: "gate", Arg: name} }
func hold(name string) step { return step{Do: "hold", Arg: name} }

// sleep returns a step that takes d, or less if the context ends.
func sleep(d time.Duration) step { return step{Do: "sleep", For: d} }

// steps returns a job of the given steps.
func steps(s ...step) stepJob { return stepJob{Steps: s} }

// again is the delay after which a task that fails or snoozes runs again, if its step has no delay.
const again = 50 * time.Millisecond

var errAsked = errors.New("as the step asks")

// runSteps runs a job in this worker.
func (w *workerProcess) runSteps(ctx context.Context, job stepJob) error {
	info, _ := midge.Current(ctx)
	for _, s := range job.Steps {
		done, err := w.step(ctx, info, s)
		if done || err != nil {
			return err
		}
	}
	return nil
}

// step does one step. If it returns done or an error, the job ends.
func (w *workerProcess) step(ctx context.Context, info midge.RunInfo, s step) (done bool, err error) {
	switch s.Do {
	case "gate":
		select {
		case <-w.gates.at(s.Arg):
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	case "hold":
		<-w.gates.at(s.Arg)
	case "sleep":
		timer := time.NewTimer(s.For)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	case "compute":
		for begun := time.Now(); time.Since(begun) < s.For; { //nolint:revive // reading the clock is the computation
		}
	case "announce":
		w.gates.open(s.Arg)
	case "kill": // as soon as s.N other runs are under way
		poll(s.For, func() bool { return w.runs.Load() > int64(s.N) })
		killSelf()
	case "until ended": // in one worker only
		if s.Arg == w.cfg.Name {
			<-ctx.Done()
		}
	case "fail":
		return true, errAsked
	case "fail once":
		if info.Retries == 0 {
			return true, midge.RetryIn(cmp.Or(s.For, again), errAsked)
		}
	case "discard":
		return true, midge.Discard(errAsked)
	case "durable":
		return true, w.runDurable(ctx, durableJob{})
	case "snooze once":
		return w.snoozeOnce(ctx, cmp.Or(s.For, again))
	default:
		w.write(ctx, info, s)
	}
	return false, nil
}

// write does a step that writes under the lease, and records its outcome.
func (w *workerProcess) write(ctx context.Context, info midge.RunInfo, s step) {
	var err error
	switch s.Do {
	case "progress":
		err = midge.Progress(ctx, s.Arg)
	case "checkpoint":
		err = midge.Checkpoint(ctx, s.Arg)
	case "result":
		err = midge.SetResult(ctx, info.Fence)
	case "follow":
		// The follow-up of another run has another id, so that two committed runs would leave
		// two follow-ups.
		id := fmt.Sprintf("%s%s-%d", followPrefix, info.Ref.ID, info.Fence)
		err = midge.FollowUp(ctx, stormJob{}, midge.To(info.Ref.Queue), midge.ID(id))
	case "stale": // in one worker only
		if s.Arg == w.cfg.Name {
			w.stale(ctx, info)
		}
		return
	default:
		err = fmt.Errorf("faulttest: no step %q", s.Do)
	}
	w.rec.record(event{What: stepDone, Ref: info.Ref, Fence: info.Fence, Step: s.Do, Err: text(err)})
}

// followPrefix is the prefix of the ids of follow-ups.
const followPrefix = "follow-"

// snoozeOnce snoozes in the first run and continues in the next one. A checkpoint distinguishes the runs.
func (w *workerProcess) snoozeOnce(ctx context.Context, d time.Duration) (done bool, err error) {
	var before string
	var found bool
	err = retry(func() (err error) {
		found, err = midge.LoadCheckpoint(ctx, &before)
		return err
	})
	if found || err != nil {
		return false, err
	}
	if err := retry(func() error { return midge.Checkpoint(ctx, "snoozed") }); err != nil {
		return true, err
	}
	return true, midge.Snooze(d)
}

// retry repeats a call, which must be safe to repeat, up to ten times. It stops at
// success or a lost lease.
func retry(call func() error) (err error) {
	for range 10 {
		if err = call(); err == nil || errors.Is(err, storage.ErrLeaseLost) {
			return err
		}
	}
	return err
}

// stale tries everything that a run can write, under the fence of this run. It calls the
// storage directly, so the runner's own knowledge of the lease does not stop it.
func (w *workerProcess) stale(ctx context.Context, info midge.RunInfo) {
	ctx = context.WithoutCancel(ctx)
	fence := w.store.fence(info.Ref)
	session := storage.NewSession(w.store, 0)
	try := func(name string, err error) {
		w.rec.record(event{What: stepDone, Ref: info.Ref, Fence: info.Fence, Step: "stale " + name, Err: text(err)})
	}
	extension := func(name string, e storage.Extension) {
		e.Fence = fence
		extended, err := session.Extend(ctx, storage.ExtendRequest{Leases: []storage.Extension{e}})
		if err == nil && len(extended.Lost) > 0 {
			err = storage.ErrLeaseLost
		}
		try(name, err)
	}
	extension("extend", storage.Extension{For: time.Minute, Started: true})
	extension("progress", storage.Extension{Progress: []byte(`"stale"`)})
	extension("checkpoint", storage.Extension{Checkpoint: []byte(`"stale"`)})
	outcomes := []storage.Outcome{
		storage.Fail, storage.Snooze, storage.Release, storage.Bury, storage.Cancel, storage.Complete,
	}
	for _, outcome := range outcomes {
		_, err := session.ApplyOne(ctx, storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: outcome}}})
		try(string(outcome), err)
	}
	follow := storage.Insert{
		Ref:  storage.Ref{Queue: info.Ref.Queue, ID: fmt.Sprintf("%s%s-%d", followPrefix, info.Ref.ID, info.Fence)},
		Kind: "step_job", Encoding: "msgpack", CrashLimit: 3,
	}
	_, err := session.ApplyOne(ctx, storage.Tx{
		Inserts: []storage.Insert{follow},
		Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete, Result: []byte(`"stale"`)}},
	})
	try("follow", err)
}
