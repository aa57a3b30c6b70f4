// Command runtests runs go test with the given arguments and counts a skipped test as a
// failure, because the test command installs everything that a test needs. It prints
// the closing line of every package and the output of every test that failed or was
// skipped. It prints nothing of tests that passed.
//
//	go run ./internal/runtests -race ./...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

// run runs go test and reports to out. It returns an error if a test failed or was
// skipped. An interrupt reaches go test directly, because both run in the same
// terminal.
func run(ctx context.Context, out io.Writer, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return nil }
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	skipped, reportErr := report(out, events)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	if reportErr != nil {
		return reportErr
	}
	if skipped > 0 {
		return fmt.Errorf("%d tests were skipped, and a skipped test is a failure", skipped)
	}
	return nil
}

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action  string `json:"Action"`
	Package string `json:"Package"`
	Test    string `json:"Test"`
	Output  string `json:"Output"`
}

// report prints the output that matters and returns the number of skipped tests.
func report(out io.Writer, events io.Reader) (skipped int, err error) {
	type test struct{ pkg, name string }
	output := map[test][]string{} // output of the running tests
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return skipped, fmt.Errorf("go test -json printed %q: %w", lines.Text(), err)
		}
		of := test{e.Package, e.Test}
		switch {
		case e.Action == "build-output":
			write(out, e.Output)
		case e.Action == "output" && (e.Test != "" || e.Output != "PASS\n"):
			output[of] = append(output[of], e.Output)
		case e.Action == "skip" && e.Test != "":
			skipped++
			write(out, output[of]...)
			delete(output, of)
		case e.Action == "fail" || e.Action == "skip" || e.Action == "pass" && e.Test == "":
			write(out, output[of]...)
			delete(output, of)
		case e.Action == "pass":
			delete(output, of)
		}
	}
	for _, unfinished := range output {
		write(out, unfinished...)
	}
	return skipped, lines.Err()
}

// write prints lines. It ignores errors, because there is nowhere else to report them.
func write(out io.Writer, lines ...string) {
	for _, line := range lines {
		_, _ = io.WriteString(out, line)
	}
}
