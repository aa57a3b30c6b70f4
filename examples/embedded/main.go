// Embedded keeps its tasks in an SQLite file, and shows that they outlive its processes. It
// enqueues mails, and starts itself again as a worker. It kills the worker in the middle of its
// work and starts another one. Mails that the first worker was writing are written again ten
// seconds later, when their leases have expired. No mail is lost.
//
// You will see a line for each mail, the kill, and at the end how many mails were sent. The
// example is a module of its own, because it needs a driver for SQLite:
//
//	go run -C examples/embedded . -path jobs.db
//	sqlite3 examples/embedded/jobs.db 'SELECT id, kind, state FROM midge_jobs'
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
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// Mail is the job.
type Mail struct{ To int }

const (
	mails = 30
	takes = 100 * time.Millisecond // to write a mail
	lease = 10 * time.Second       // the shortest on SQLite
	queue = "mail"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
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

// work runs jobs until ctx ends.
func work(ctx context.Context, path string, out io.Writer) error {
	store, err := modernc.Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	runner, err := midge.NewRunner(store, midge.RunnerConfig{
		Queues: []string{queue}, Concurrency: 2, Lease: lease, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	err = midge.Handle(runner, func(_ context.Context, mail Mail) error {
		time.Sleep(takes)
		_, _ = fmt.Fprintf(out, "  process %d sent mail %d\n", os.Getpid(), mail.To)
		return nil
	})
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

// tell enqueues mails, kills a worker in the middle of them, and lets another one send the
// rest.
func tell(ctx context.Context, path string, out io.Writer) error {
	if path == "" {
		folder, err := os.MkdirTemp("", "midge")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		path = filepath.Join(folder, "jobs.db")
	}
	store, err := modernc.Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		return err
	}
	items := make([]midge.Item, mails)
	for i := range items {
		items[i] = midge.New(Mail{To: i}, midge.To(queue))
	}
	if _, err := client.EnqueueMany(ctx, items); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "» %d mails wait in %s\n", mails, path)

	done := func() (sent, left int64, err error) {
		stats, err := store.Stats(ctx, queue)
		if err != nil {
			return 0, 0, err
		}
		return stats[0].Totals.Completed, stats[0].Live(), nil
	}
	before, _, err := done()
	if err != nil {
		return err
	}
	half := func(sent, _ int64) bool { return sent-before >= mails/3 }
	none := func(_, left int64) bool { return left == 0 }
	for _, until := range []func(sent, left int64) bool{half, none} {
		if err := withWorker(ctx, path, out, func() (bool, error) {
			sent, left, err := done()
			return until(sent, left), err
		}); err != nil {
			return err
		}
		sent, left, err := done()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "» the worker was killed: %d mails are sent, %d are left\n", sent-before, left)
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
