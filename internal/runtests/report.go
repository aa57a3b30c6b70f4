package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"` // in seconds
}

// test names a test, or with an empty name the package.
type test struct{ pkg, name string }

// timed is a test and the time that it took.
type timed struct {
	test

	took time.Duration
}

// report prints the output that matters, of runs that may run side by side.
type report struct {
	out io.Writer

	mu    sync.Mutex // guards tests, and keeps the output of a test together
	tests []timed    // the tests that are no subtests
}

// read reads the events of a run, prints its output, and returns the number of skipped tests.
func (r *report) read(events io.Reader) (skipped int, err error) {
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
			r.write(e.Output)
		case e.Action == "output" && (e.Test != "" || e.Output != "PASS\n"):
			output[of] = append(output[of], e.Output)
		case e.Action == "fail" || e.Action == "skip" || e.Action == "pass":
			if e.Action == "skip" && e.Test != "" {
				skipped++
			}
			if e.Action != "pass" || e.Test == "" {
				r.write(output[of]...)
			}
			delete(output, of)
			r.note(of, e.Elapsed)
		}
	}
	for _, unfinished := range output {
		r.write(unfinished...)
	}
	return skipped, lines.Err()
}

// note remembers how long a test took.
func (r *report) note(of test, seconds float64) {
	if of.name == "" || strings.Contains(of.name, "/") {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tests = append(r.tests, timed{of, time.Duration(seconds * float64(time.Second))})
}

// slowest is how many tests close prints.
const slowest = 10

// close prints the slowest tests and the time of all.
func (r *report) close(all time.Duration) {
	slices.SortStableFunc(r.tests, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	var lines []string
	if len(r.tests) > 1 {
		lines = append(lines, "The slowest tests:\n")
	}
	for _, t := range r.tests[:min(slowest, len(r.tests))] {
		pkg := strings.TrimPrefix(t.pkg, module+"/")
		lines = append(lines, fmt.Sprintf("%7.1fs  %s %s\n", t.took.Seconds(), pkg, t.name))
	}
	lines = append(lines, fmt.Sprintf("%d tests in %v\n", len(r.tests), all.Round(time.Second)))
	r.write(lines...)
}

// write prints lines. It ignores errors, because there is nowhere else to report them.
func (r *report) write(lines ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range lines {
		_, _ = io.WriteString(r.out, line)
	}
}
