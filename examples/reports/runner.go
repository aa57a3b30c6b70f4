package main

import (
	"context"
	"errors"
	"time"

	"github.com/midgehq/midge"
)

// withRunner runs a runner while do runs.
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

// newRunner returns a runner that declares the schedules. Any number of runners may
// declare the same schedules: each tick makes only one task.
func (o *office) newRunner() (*midge.Runner, error) {
	runner, err := midge.NewRunner(o.opened, midge.RunnerConfig{Queues: []string{queue}})
	if err != nil {
		return nil, err
	}
	return runner, errors.Join(
		midge.Handle(runner, o.make),
		// A kind with several schedules must name them.
		runner.Periodic(midge.Every(time.Second), Report{About: "stock"}, midge.Named("stock"),
			midge.AllMissed(10)),
		// One task makes up for all missed ticks: this is the default.
		runner.Periodic(midge.Cron("*/2 * * * * *"), Report{About: "sales"}, midge.Named("sales")),
		// The job takes longer than its interval, so ticks are skipped while it runs.
		runner.Periodic(midge.Every(time.Second), Report{About: "audit", Takes: 1500 * time.Millisecond},
			midge.Named("audit"), midge.NoOverlap()),
		// At three at night in Paris, in summer and winter. A missed night is skipped.
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
	o.printf("report %s of %s", job.About, task.Tick.UTC().Format(time.TimeOnly)) // or of the run by hand
	return nil
}
