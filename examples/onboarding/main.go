// Onboarding is one job of several steps, with a wait between them. It enqueues the job in an SQLite
// file, and starts itself again as a worker. It kills the worker once the first step is stored, and
// the next worker once the job sleeps. A third one ends the job. No worker repeats a step that another
// one has finished.
//
// You will see a line for each step, with the process that does it, the two kills, and at the end the
// steps as they are stored with the task. The example is a module of its own, because it needs a driver
// for SQLite:
//
//	go run -C examples/onboarding .
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// Onboard is the job.
type Onboard struct{ Customer string }

// Options keep the task for a while, so that its steps can be shown.
func (Onboard) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: time.Hour}}
}

const (
	takes    = 200 * time.Millisecond // to do a step
	thinking = time.Second            // for the customer; in real life two weeks
	lease    = 2 * time.Second        // after which the task of a killed worker runs again
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "onboarding:", err)
		os.Exit(1)
	}
}

func start() error {
	path := flag.String("path", "", "the `file` of the tasks, made where there is none; empty is a temporary")
	worker := flag.Bool("worker", false, "work, until the process is killed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	action := tell
	if *worker {
		action = work
	}
	return action(ctx, *path, os.Stdout)
}

// open opens the file. Its processes are alone with it, so that their leases may be short.
func open(ctx context.Context, path string) (*sqlite.Storage, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: path, Driver: modernc.Driver, MinLease: lease})
}

// work runs jobs until ctx ends.
func work(ctx context.Context, path string, out io.Writer) error {
	store, err := open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Lease: lease, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	err = midge.Handle(runner, func(ctx context.Context, job Onboard) error {
		return onboard(ctx, job, func(format string, args ...any) {
			time.Sleep(takes)
			_, _ = fmt.Fprintf(out, "  process %d "+format+"\n", append([]any{os.Getpid()}, args...)...)
		})
	})
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

// onboard does the steps of the job that no attempt has finished yet.
func onboard(ctx context.Context, job Onboard, do func(format string, args ...any)) error {
	account, err := midge.Step(ctx, "account", func(context.Context) (int, error) {
		do("makes an account for %s", job.Customer)
		return 7, nil
	})
	if err != nil {
		return err
	}
	contract, err := midge.Step(ctx, "contract", func(context.Context) (string, error) {
		do("draws up the contract of account %d", account)
		return fmt.Sprintf("contract-%d.pdf", account), nil
	})
	if err != nil {
		return err
	}
	if err := midge.Sleep(ctx, "time to think", thinking); err != nil {
		return err
	}
	_, err = midge.Step(ctx, "reminder", func(context.Context) (struct{}, error) {
		do("reminds %s of %s", job.Customer, contract)
		return struct{}{}, nil
	})
	return err
}

// tell enqueues the job, and kills two workers on its way.
func tell(ctx context.Context, path string, out io.Writer) error {
	if path == "" {
		folder, err := os.MkdirTemp("", "midge")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		path = filepath.Join(folder, "jobs.db")
	}
	store, err := open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		return err
	}
	task, err := client.Enqueue(ctx, Onboard{Customer: "ann"})
	if err != nil {
		return err
	}
	for _, until := range []struct {
		when  string
		holds func(t midge.Task, steps []midge.StepInfo) bool
	}{
		{"the account is made", func(_ midge.Task, steps []midge.StepInfo) bool { return len(steps) > 0 }},
		{"the job sleeps", func(_ midge.Task, steps []midge.StepInfo) bool { return len(steps) > 2 }},
		{"the job has ended", func(t midge.Task, _ []midge.StepInfo) bool { return t.State.Ended() }},
	} {
		err := withWorker(ctx, path, out, func() (bool, error) {
			t, err := client.Task(ctx, task.Ref)
			if err != nil {
				return false, err
			}
			steps, err := midge.StepsOf(t)
			return until.holds(t, steps), err
		})
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "» the worker was killed: %s\n", until.when)
	}
	return show(ctx, client, task.Ref, out)
}

// show prints the steps of a task.
func show(ctx context.Context, client *midge.Client, ref midge.Ref, out io.Writer) error {
	task, err := client.Task(ctx, ref)
	if err != nil {
		return err
	}
	steps, err := midge.StepsOf(task)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "» %s after %d crashes\n", task.State, task.Crashes)
	for _, s := range steps {
		_, _ = fmt.Fprintf(out, "  %s, at %s\n", s.Name, s.Ended.Format("15:04:05.000"))
	}
	return nil
}

// withWorker starts a worker, and kills it when enough reports true.
func withWorker(ctx context.Context, path string, out io.Writer, enough func() (bool, error)) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "-worker", "-path", path) //nolint:gosec // this program itself
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "» process %d works\n", cmd.Process.Pid)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := enough()
		if ok || err != nil || ctx.Err() != nil {
			err = errors.Join(err, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
			return errors.Join(err, ctx.Err())
		}
		<-tick.C
	}
}
