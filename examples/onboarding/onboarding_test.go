package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain also runs the worker, which the example starts as a process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-worker" {
		main()
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

func TestNoFinishedStepIsRepeated(t *testing.T) {
	var out bytes.Buffer
	if err := tell(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &out); err != nil {
		t.Fatal(err)
	}
	// A worker is killed once this step is stored. Later steps may be repeated, if this machine is so slow
	// that a kill comes late.
	const once = "makes an account for ann"
	if n := strings.Count(out.String(), once); n != 1 {
		t.Errorf("%q stands %d times in\n%s", once, n, out.String())
	}
	for _, want := range []string{"reminds ann of contract-7.pdf", "» completed after"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not stand in\n%s", want, out.String())
		}
	}
}
