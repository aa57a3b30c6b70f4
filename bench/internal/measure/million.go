package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/bench/internal/server"
)

// million measures the server's effect on others while very many tasks wait, become due
// at one instant, or are dead: the number of scripts that run for more than 5 ms, and how
// long another connection waits for a PING.
func million(ctx context.Context, r *Rig) (Values, error) {
	redis, ok := r.Server.(*server.Redis)
	if !ok {
		return nil, errors.New("the slow log is Redis's")
	}
	crowds := []struct {
		metric string
		gather func(context.Context) error
	}{{"slowlog_waiting", r.manyWaiting}, {"slowlog_due", r.manyDue}, {"slowlog_dead", r.manyDead}}
	values := Values{"slowlog": 0, "slowlog_max": 0}
	var pings []time.Duration
	for _, c := range crowds {
		if err := redis.ResetSlow(ctx); err != nil {
			return nil, err
		}
		took, err := pingWhile(ctx, redis, c.gather)
		if err != nil {
			return nil, err
		}
		pings = append(pings, took...)
		slow, err := redis.SlowScripts(ctx)
		if err != nil {
			return nil, err
		}
		values[c.metric] = float64(len(slow))
		values["slowlog"] += float64(len(slow))
		for _, d := range slow {
			values["slowlog_max"] = max(values["slowlog_max"], milliseconds(d))
		}
	}
	slices.Sort(pings)
	values["ping_p999"] = milliseconds(percentile(pings, 0.999))
	return values, nil
}

// manyWaiting fills a queue and drains it.
func (r *Rig) manyWaiting(ctx context.Context) error {
	return r.crowd(ctx, stage{Queues: []string{"waiting"}, Tasks: r.Sizes.Deep}, time.Time{}, 0, false)
}

// manyDue fills a queue with tasks that are due at one instant, and drains it from then
// on.
func (r *Rig) manyDue(ctx context.Context) error {
	lead := r.Sizes.Lead * 2
	return r.crowd(ctx, stage{Queues: []string{"due"}, Tasks: r.Sizes.Deep}, time.Now().Add(lead), 0, false)
}

// manyDead buries every task of a queue and drains another queue beside it: first with a
// runner that keeps the dead tasks, then with a runner that keeps fewer and so deletes them.
func (r *Rig) manyDead(ctx context.Context) error {
	dead := stage{Queues: []string{"dead"}, Tasks: r.Sizes.Deep}
	if err := r.crowd(ctx, dead, time.Time{}, r.Sizes.Deep, true); err != nil {
		return err
	}
	for i, keep := range []int{r.Sizes.Deep, 0} {
		s := stage{Queues: []string{fmt.Sprintf("beside%d", i)}, Tasks: r.Sizes.Tasks, Beside: dead.Queues}
		if err := r.crowd(ctx, s, time.Time{}, keep, false); err != nil {
			return err
		}
	}
	return nil
}

// crowd fills the stage's only queue and drains it.
func (r *Rig) crowd(ctx context.Context, s stage, due time.Time, keep int, discard bool) error {
	if err := r.fill(ctx, s.Queues[0], s.Tasks, due); err != nil {
		return err
	}
	to := r.target()
	to.Place.DeadMax = keep
	_, err := r.drain(ctx, drainSpec{Target: to, Stages: []stage{s}, Discard: discard})
	return err
}

// pingWhile pings the server until action has returned, and returns how long each ping took.
func pingWhile(
	ctx context.Context, redis *server.Redis, action func(context.Context) error,
) (took []time.Duration, err error) {
	done := make(chan struct{})
	var acted error
	go func() { // awaited below
		defer close(done)
		acted = action(ctx)
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return took, errors.Join(acted, err)
		case <-tick.C:
		}
		if err != nil {
			continue // until action has returned
		}
		started := time.Now()
		err = redis.Ping(ctx)
		took = append(took, time.Since(started))
	}
}
