// Reports shows schedules: every second, by a cron line, and by a cron line in a time
// zone; how ticks are made up for that were missed while no runner ran; a schedule
// whose tasks must not overlap; and how to run a schedule at once, to list the
// schedules with their last and next tick, and to remove them.
//
// You will see reports for three seconds, then three seconds without a runner, then how
// each schedule makes up for its missed ticks by its own policy. It ends by itself
// after about eight seconds.
//
//	go run ./examples/reports
//	go run ./examples/reports -redis redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/storage"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "reports:", err)
		os.Exit(1)
	}
}

func start() error {
	url := store.Flag()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	opened, err := store.Open(ctx, *url)
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, opened, os.Stdout), opened.Close())
}

const queue = "reports"

// Report is the job of all schedules here.
type Report struct {
	About string
	Takes time.Duration
}

// Options names the queue.
func (Report) Options() midge.Options { return midge.Options{Queue: queue} }

// office makes reports and prints a line for each on out.
type office struct {
	opened storage.Storage
	queue  *midge.Queue

	mu  sync.Mutex // guards out
	out io.Writer
}

func run(ctx context.Context, opened storage.Storage, out io.Writer) error {
	client, err := midge.NewClient(opened, midge.ClientConfig{})
	if err != nil {
		return err
	}
	o := &office{opened: opened, queue: client.Queue(queue), out: out}
	for _, chapter := range []func(context.Context) error{o.firstRun, o.gap, o.secondRun, o.end} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// firstRun lets the schedules tick, lists them, and runs one of them by hand.
func (o *office) firstRun(ctx context.Context) error {
	return o.withRunner(ctx, func(ctx context.Context) error {
		if err := wait(ctx, 2500*time.Millisecond); err != nil {
			return err
		}
		if err := o.list(ctx); err != nil {
			return err
		}
		ref, err := o.queue.RunSchedule(ctx, "daily")
		if err != nil {
			return err
		}
		o.printf("» run now, whatever its schedule says: daily is %s", ref)
		return wait(ctx, 500*time.Millisecond)
	})
}

// gap waits without a runner: schedules stand still.
func (o *office) gap(ctx context.Context) error {
	o.printf("» no runner for three seconds")
	return wait(ctx, 3*time.Second)
}

// secondRun starts a runner again, which makes up for the missed ticks.
func (o *office) secondRun(ctx context.Context) error {
	o.printf("» a runner again: stock makes up for each missed tick, sales for all of them at once")
	return o.withRunner(ctx, func(ctx context.Context) error { return wait(ctx, 1500*time.Millisecond) })
}

// end removes the schedules. They stay removed, because no runner declares them any
// more.
func (o *office) end(ctx context.Context) error {
	if err := o.list(ctx); err != nil {
		return err
	}
	schedules, err := o.queue.Schedules(ctx)
	if err != nil {
		return err
	}
	for _, s := range schedules {
		if err := o.queue.RemoveSchedule(ctx, s.Name); err != nil {
			return err
		}
	}
	o.printf("» %d schedules removed", len(schedules))
	return o.queue.Remove(ctx)
}

// list prints the schedules with their last and next tick, each in its own zone.
func (o *office) list(ctx context.Context) error {
	schedules, err := o.queue.Schedules(ctx)
	if err != nil {
		return err
	}
	o.printf("» %-6s %-20s %-13s %-9s %-9s", "name", "schedule", "zone", "last", "next")
	for _, s := range schedules {
		zone, err := time.LoadLocation(s.Declared.Zone)
		if err != nil {
			return fmt.Errorf("zone of %s: %w", s.Name, err)
		}
		last, orphaned := "never", ""
		if !s.Cursor.Last.IsZero() {
			last = s.Cursor.Last.In(zone).Format(time.TimeOnly)
		}
		if s.Orphaned {
			orphaned = "orphaned: no runner declares it"
		}
		o.printf("» %-6s %-20s %-13s %-9s %-9s %s", s.Name, s.Declared.Spec, zone, last,
			s.Cursor.Next.In(zone).Format(time.TimeOnly), orphaned)
	}
	return nil
}

func (o *office) printf(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = fmt.Fprintf(o.out, time.Now().Format("15:04:05.000")+"  "+format+"\n", args...)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
