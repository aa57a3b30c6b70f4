package measure

import (
	"context"
	"errors"
	"time"

	"github.com/midgehq/midge/bench/internal/server"
)

// behind runs action on a target that reaches the server through a relay.
func (r *Rig) behind(
	ctx context.Context, delay time.Duration, action func(target, *server.Relay) error,
) error {
	to := r.target()
	relay, err := server.StartRelay(ctx, to.Place.Addr, delay)
	if err != nil {
		return err
	}
	to.Place.Addr = relay.Addr()
	return errors.Join(action(to, relay), relay.Close())
}

// drainFarAway measures the drain if a round trip takes a millisecond longer.
func drainFarAway(ctx context.Context, r *Rig) (Values, error) {
	tasks := r.Sizes.Far
	if !r.System.Own {
		tasks = max(tasks/20, 1) // a system with a round trip for each job needs as long for these
	}
	if err := r.fill(ctx, defaultQueue, tasks, time.Time{}); err != nil {
		return nil, err
	}
	values := Values{}
	return values, r.behind(ctx, time.Millisecond, func(to target, _ *server.Relay) error {
		d, err := r.drain(ctx, drainSpec{Target: to, Stages: oneQueue(tasks)})
		if err == nil {
			values["drain_c100_net1ms"] = perSecond(tasks, d.Took[0])
		}
		return err
	})
}

// traffic counts the commands and round trips of the client for each job: enqueued one
// by one by one producer, then drained.
func traffic(ctx context.Context, r *Rig) (Values, error) {
	values, tasks := Values{}, r.Sizes.Counted
	return values, r.behind(ctx, 0, func(to target, relay *server.Relay) error {
		note := func(name string, before server.Traffic) {
			sent := relay.Traffic().Minus(before)
			values[name+"_cmds"] = float64(sent.Commands) / float64(tasks)
			values[name+"_trips"] = float64(sent.Trips) / float64(tasks)
		}
		var e enqueued
		if err := play(ctx, "enqueue", enqueueSpec{Target: to, Producers: 1, Tasks: tasks}, &e); err != nil {
			return err
		}
		note("enqueue_p1", server.Traffic{})
		before := relay.Traffic()
		if _, err := r.drain(ctx, drainSpec{Target: to, Stages: oneQueue(tasks)}); err != nil {
			return err
		}
		note("drain_c100", before)
		return nil
	})
}
