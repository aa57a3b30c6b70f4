//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The child and a grandchild hold a pipe. Its reader sees the end when both have ended.
func TestTheEndOfTheContextKillsWhatTheChildHasStarted(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	child := exec.CommandContext(ctx, "sh", "-c", "sleep 600 & echo started; wait")
	ownGroup(child)
	child.Stdout = write
	if err := errors.Join(child.Start(), write.Close()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(read)
	if line, err := lines.ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	cancel()
	ended := child.Wait()
	if got := death(ended, "").Error(); !strings.Contains(got, "killed by signal: killed") {
		t.Errorf("got %q, want it killed by signal: killed", got)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error(err)
	}
}
