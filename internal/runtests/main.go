// Command runtests runs all tests of the repository, as its plan lists them. It counts a skipped
// test as a failure, because make test installs everything that a test needs. It prints the closing
// line of every package and the output of every test that failed or was skipped, and at the end
// the time that all took and the ten slowest tests.
//
// With arguments it runs go test once with these arguments instead:
//
//	go run ./internal/runtests -race ./storage/...
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	lanes, shared, err := []lane{{{args: os.Args[1:]}}}, []run(nil), error(nil)
	start := time.Now()
	if len(os.Args) == 1 {
		lanes, shared, err = plan(ctx)
		err = errors.Join(err, compile(ctx))
	}
	if err == nil {
		err = runAll(ctx, os.Stdout, lanes, shared, start)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

// runAll runs the lanes side by side, then the shared runs in as many lanes, and reports to out. It
// returns an error if a test failed or was skipped. The time that it reports begins at start.
func runAll(ctx context.Context, out io.Writer, lanes []lane, shared []run, start time.Time) error {
	rep := report{out: out}
	rest := make(chan run, len(shared))
	for _, r := range shared {
		rest <- r
	}
	close(rest)
	err := beside(len(lanes), func(i int) (err error) {
		todo := func(r run) {
			if ctx.Err() == nil {
				err = errors.Join(err, r.do(ctx, &rep))
			}
		}
		for _, r := range lanes[i] {
			todo(r)
		}
		for r := range rest {
			todo(r)
		}
		return err
	})
	rep.close(time.Since(start))
	return errors.Join(err, context.Cause(ctx))
}

// beside calls do for each number below n in a goroutine of its own, waits for all of them, and
// joins their errors.
func beside(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// do runs go test. An interrupt reaches go test directly, because both run in the same terminal.
func (r run) do(ctx context.Context, rep *report) error {
	args := append([]string{"go", "test", "-json"}, r.args...)
	if r.nice {
		args = append([]string{"nice", "-n", "5"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return nil }
	cmd.Dir = r.dir
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	skipped, readErr := rep.read(events)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: go test %q: %w", r.dir, r.args, err)
	}
	if readErr != nil {
		return readErr
	}
	if skipped > 0 {
		return fmt.Errorf("%s: %d tests were skipped, and a skipped test is a failure", r.dir, skipped)
	}
	return nil
}
