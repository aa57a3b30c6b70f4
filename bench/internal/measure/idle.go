package measure

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/midgehq/midge/bench/internal/process"
	"github.com/midgehq/midge/bench/internal/server"
)

// settleDown is the time that the server, and a worker after its start, get to become
// idle.
const settleDown = 1500 * time.Millisecond

// idle measures the cost of a worker without work: the commands that it sends, and the
// processor time of its process and of the server, less what the server uses without a
// worker.
func idle(ctx context.Context, r *Rig) (Values, error) {
	if err := until(ctx, time.Now().Add(settleDown)); err != nil {
		return nil, err
	}
	alone, err := watch(ctx, r.Sizes.Idle/2, r.Server.Pid())
	if err != nil {
		return nil, err
	}
	to := r.target()
	relay, err := server.StartRelay(ctx, to.Place.Addr, 0)
	if err != nil {
		return nil, err
	}
	to.Place.Addr = relay.Addr()
	values, err := r.idleAt(ctx, to, relay, alone)
	return values, errors.Join(err, relay.Close())
}

func (r *Rig) idleAt(ctx context.Context, at target, relay *server.Relay, alone float64) (Values, error) {
	worker, err := process.Start(ctx, "idle", at)
	if err != nil {
		return nil, err
	}
	if err := worker.Ready(); err != nil {
		return nil, err
	}
	err = until(ctx, time.Now().Add(settleDown))
	before := relay.Traffic()
	share, watchErr := watch(ctx, r.Sizes.Idle, r.Server.Pid(), worker.Pid())
	sent := relay.Traffic().Minus(before)
	var nothing struct{}
	if err := errors.Join(err, watchErr, worker.Finish(&nothing)); err != nil {
		return nil, err
	}
	return Values{
		"idle_cmds": float64(sent.Commands) / r.Sizes.Idle.Seconds(),
		"idle_cpu":  100 * max(share-alone, 0),
	}, nil
}

// watch returns the share of a processor that the processes use together during a time.
func watch(ctx context.Context, long time.Duration, pids ...int) (float64, error) {
	sum := func() (total time.Duration, err error) {
		for _, pid := range pids {
			cpu, cpuErr := process.CPU(pid)
			total, err = total+cpu, errors.Join(err, cpuErr)
		}
		return total, err
	}
	started := time.Now()
	before, err := sum()
	if err != nil {
		return 0, err
	}
	if err := until(ctx, started.Add(long)); err != nil {
		return 0, err
	}
	after, err := sum()
	return (after - before).Seconds() / time.Since(started).Seconds(), err
}

// idleRole is a worker that runs one job, so that all its one-time work is done, and
// then nothing until the parent ends it.
func idleRole(ctx context.Context, text []byte, ready func()) (any, error) {
	var at target
	if err := json.Unmarshal(text, &at); err != nil {
		return nil, err
	}
	base := context.WithoutCancel(ctx) // ctx ends when the parent has measured enough
	instance, err := at.open(base)
	if err != nil {
		return nil, err
	}
	crew := newCrew(instance, instance, 1, defaultQueue)
	err = crew.during(base, concurrency, nil, func(working context.Context) error {
		if err := instance.Enqueue(working, defaultQueue, payload(), time.Time{}); err != nil {
			return err
		}
		if err := crew.settled(working); err != nil {
			return err
		}
		ready()
		select {
		case <-ctx.Done():
			return nil
		case <-working.Done():
			return context.Cause(working)
		}
	})
	if err == nil {
		err = crew.check(base)
	}
	return struct{}{}, errors.Join(err, instance.Close())
}
