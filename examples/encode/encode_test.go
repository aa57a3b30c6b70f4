//go:build linux || darwin

package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/work/command"
)

var reaper *command.Reaper

// TestMain also runs the program that compresses, as the worker starts it.
func TestMain(m *testing.M) {
	reaper = command.Main()
	if len(os.Args) == 2 && os.Args[1] == "compress" {
		err := compress(os.Stdin, os.NewFile(3, "reports"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitCode(err))
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAFolderIsCompressed(t *testing.T) {
	opened, err := store.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), opened, reaper, 100*time.Millisecond, &out); err != nil {
		t.Fatal(err, "\n", out.String())
	}
	for _, want := range []string{
		`chapter-1.txt: {"done":\d+,"of":10}`,
		`chapter-1.txt is compressed to [1-9]\d+ bytes`,
		`chapter-7.txt is compressed to [1-9]\d+ bytes`,
		`chapter-8.txt is dead, discarded: exit status 65: .*chapter-8.txt: it is not UTF-8`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("got no line like %s in\n%s", want, out.String())
		}
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}
