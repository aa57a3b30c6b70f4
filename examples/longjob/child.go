package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// envChild is the environment variable that makes this program the child. It holds the
// first frame, the number of frames, the time per frame, and the frame at which the
// child dies.
const envChild = "LONGJOB_CHILD"

// childMain encodes, and prints a line for each frame on say. It ends when hear ends,
// which means that its parent has died.
func childMain(hear io.Reader, say io.Writer) error {
	var from, frames, dieAt int
	var pace time.Duration
	if _, err := fmt.Sscan(os.Getenv(envChild), &from, &frames, (*int64)(&pace), &dieAt); err != nil {
		return fmt.Errorf("read %s: %w", envChild, err)
	}
	orphaned := make(chan struct{})
	go func() { // ends at the latest with the process
		_, _ = io.Copy(io.Discard, hear)
		close(orphaned)
	}()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for frame := from + 1; frame <= frames; frame++ {
		select {
		case <-tick.C:
		case <-orphaned:
			return io.ErrUnexpectedEOF
		}
		if frame == dieAt {
			if err := killSelf(); err != nil {
				return err
			}
			<-orphaned
		}
		if _, err := fmt.Fprintln(say, "frame", frame); err != nil {
			return fmt.Errorf("say frame %d: %w", frame, err)
		}
	}
	return nil
}

// killSelf kills this process, as the kernel kills a process that takes too much
// memory.
func killSelf() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return fmt.Errorf("find my process: %w", err)
	}
	return self.Kill()
}
