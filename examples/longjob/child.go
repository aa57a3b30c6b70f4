package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// envChild tells this program that it is the child: the first frame, the number of
// frames, the time of one and the frame to die at.
const envChild = "LONGJOB_CHILD"

// childMain encodes, and says each frame on say. It ends when hear does, which is when
// its parent has died.
func childMain(hear io.Reader, say io.Writer) error {
	var from, frames, dieAt int
	var pace time.Duration
	if _, err := fmt.Sscan(os.Getenv(envChild), &from, &frames, (*int64)(&pace), &dieAt); err != nil {
		return fmt.Errorf("read %s: %w", envChild, err)
	}
	orphaned := make(chan struct{})
	go func() { // ends with the process at the latest
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

// killSelf does what the kernel does to a process that takes too much memory.
func killSelf() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return fmt.Errorf("find my process: %w", err)
	}
	return self.Kill()
}
