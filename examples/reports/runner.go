package main

import (
	"context"
	"errors"
	"time"

	"github.com/midgehq/midge"
)

// withRunner has a runner while do is under way.
func (o *office) withRunner(ctx context.Context, do func(context.Context) error) error {
	runner, err := o.newRunner()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()
	err = do(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// newRunner declares the schedules. Any number of runners may declare the same ones:
// each tick makes one task.
func (o *office) newRunner() (*midge.Runner, error) {
	runner, err := midge.NewRunner(o.opened, midge.RunnerConfig{Queues: []string{queue}})
	if err != nil {
		return nil, err
	}
	return runner, errors.Join(
		midge.Handle(runner, o.make),
		// A kind with several schedules names them.
		runner.Periodic(midge.Every(time.Second), Report{About: "stock"}, midge.Named("stock"),
			midge.AllMissed(10)),
		// One task makes up for all missed ticks: this is the default.
		runner.Periodic(midge.Cron("*/2 * * * * *"), Report{About: "sales"}, midge.Named("sales")),
		// It takes longer than its interval: ticks are left out while it runs.
		runner.Periodic(midge.Every(time.Second), Report{About: "audit", Takes: 1500 * time.Millisecond},
			midge.Named("audit"), midge.NoOverlap()),
		// Three at night in Paris, summer and winter; a night that was missed is left out.
		runner.Periodic(midge.Cron("0 3 * * *"), Report{About: "daily"}, midge.Named("daily"),
			midge.Zone("Europe/Paris"), midge.SkipMissed(), midge.Retries(3)),
	)
}

// make makes a report.
func (o *office) make(ctx context.Context, job Report) error {
	if err := wait(ctx, job.Takes); err != nil {
		return err
	}
	task, _ := midge.Current(ctx)
	which := "asked for by hand"
	if !task.Tick.IsZero() {
		which = "of " + task.Tick.UTC().Format(time.TimeOnly)
	}
	o.printf("report %s %s", job.About, which)
	return nil
}
