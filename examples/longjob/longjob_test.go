package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/midgehq/midge/examples/internal/store"
)

// TestMain also runs the child, if a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		if err := childMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLongJobs(t *testing.T) {
	opened, err := store.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), opened, 5*time.Millisecond, &out); err != nil {
		t.Fatal(err, "\n", out.String())
	}
	killed := `killed by signal: killed`
	if runtime.GOOS == "windows" { // Windows has no signals
		killed = `exit status 1`
	}
	for _, want := range []string{
		`Metropolis is completed after 0 failures`,
		`Nosferatu is completed after 1 failures\n(.*\n)*?.*failed: encoder \d+.* ` + killed,
		`Faust is cancelled after 0 failures`,
		`cancelled films/\S+ at frame 50 or so; it is pending`,
		`Nosferatu: frame \d+ of 150, by process \d+`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("got no line like %s in\n%s", want, out.String())
		}
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}
