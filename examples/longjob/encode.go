package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/midgehq/midge"
)

const queue = "films"

// Encode is the long job.
type Encode struct {
	Film   string
	Frames int
	Pace   time.Duration // time per frame
	DieAt  int           // frame at which the first child dies; 0 means never
}

// Options sets no timeout: the job may take as long as it needs.
func (Encode) Options() midge.Options {
	return midge.Options{
		Queue: queue, Retries: 3, Backoff: midge.Constant(500 * time.Millisecond),
		Keep: midge.Keep{For: time.Minute},
	}
}

// progress is the state of a running job that others can read.
type progress struct {
	Frame int `json:"frame"`
	Of    int `json:"of"`
	Child int `json:"child"` // its process id
}

// encode encodes one film in a child process, beginning at the last checkpoint. When
// ctx ends, because the task was cancelled, the lease was lost or the runner stops, the
// child is killed.
func encode(ctx context.Context, job Encode) error {
	var from int
	if _, err := midge.LoadCheckpoint(ctx, &from); err != nil {
		return err
	}
	task, _ := midge.Current(ctx)
	if task.Retries > 0 {
		job.DieAt = 0
	}
	self, err := os.Executable()
	if err != nil {
		return midge.Discard(fmt.Errorf("find the encoder: %w", err))
	}
	child := exec.CommandContext(ctx, self) //nolint:gosec // this program itself
	ownGroup(child)
	child.Env = append(os.Environ(),
		fmt.Sprintf("%s=%d %d %d %d", envChild, from, job.Frames, job.Pace, job.DieAt))
	child.WaitDelay = time.Second // in case a process outlives it and holds its pipes
	var complaints strings.Builder
	child.Stderr = &complaints
	frames, err := child.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the encoder: %w", err)
	}
	lifeline, err := child.StdinPipe() // closed when this process dies, however it dies
	if err != nil {
		return fmt.Errorf("start the encoder: %w", err)
	}
	defer func() { _ = lifeline.Close() }()
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the encoder: %w", err)
	}
	told := follow(ctx, frames, progress{Frame: from, Of: job.Frames, Child: child.Process.Pid})
	ended := child.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ended != nil:
		return death(ended, complaints.String())
	}
	return told
}

// follow stores the progress that the child reports, until its output ends.
func follow(ctx context.Context, frames io.Reader, at progress) (err error) {
	for lines := bufio.NewScanner(frames); lines.Scan(); {
		if _, scanned := fmt.Sscanf(lines.Text(), "frame %d", &at.Frame); scanned != nil {
			continue
		}
		if told := midge.Progress(ctx, at); told != nil {
			err = told
		}
		if at.Frame%10 == 0 {
			err = errors.Join(err, midge.Checkpoint(ctx, at.Frame))
		}
	}
	return err
}

// death returns an error that describes how a child died: by a signal, or with an exit
// status and its last output.
func death(ended error, complaints string) error {
	var exit *exec.ExitError
	if !errors.As(ended, &exit) {
		return fmt.Errorf("wait for the encoder: %w", ended)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Errorf("encoder %d killed by signal: %v", exit.Pid(), status.Signal())
	}
	return fmt.Errorf("encoder %d: %w: %s", exit.Pid(), ended, strings.TrimSpace(complaints))
}
