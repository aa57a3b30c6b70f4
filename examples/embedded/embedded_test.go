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

func TestMailsOutliveTheirWorker(t *testing.T) {
	var out bytes.Buffer
	if err := tell(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &out); err != nil {
		t.Fatal(err)
	}
	if want := "killed: 30 mails are sent, 0 are left\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %s\nwant it to end with %q", out.String(), want)
	}
}
