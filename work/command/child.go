package command

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// child is the process of a task.
type child struct {
	cmd    *exec.Cmd
	reaper *Reaper
	over   chan struct{} // closed when the writers of the output had writersAfter since the end of the group
	ended  chan struct{} // closed when the process and its group have ended, and its output is read

	mu   sync.Mutex
	gone bool // the number of the process may belong to another one by now
}

// start starts the process, unless ctx has ended. The goroutine that started it keeps its thread until the
// process has ended, because Linux ends the process together with the thread that started it.
func (c *child) start(ctx context.Context) error {
	task, mark, err := c.reaper.begin()
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // begin may have waited, and the task may run elsewhere by now
		c.reaper.end(task)
		return context.Cause(ctx)
	}
	c.cmd.Env = append(c.cmd.Env, mark)
	c.over, c.ended = make(chan struct{}), make(chan struct{})
	started := make(chan error, 1)
	go func() { // ends with the process
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.ended)
		err := c.cmd.Start()
		if err == nil {
			c.reaper.began(task, c.cmd.Process.Pid)
		}
		started <- err
		if err != nil {
			c.reaper.end(task)
			return
		}
		c.await(task)
	}()
	if err = <-started; err != nil {
		<-c.ended
	}
	return err
}

// await waits for the end of the process, and kills the rest of its group. Until Wait, the number of the
// process, which is the number of the group, cannot be given to another process.
func (c *child) await(task int64) {
	awaitEnd(c.cmd.Process.Pid)
	if hasGroups {
		c.mu.Lock()
		c.gone = true
		killGroup(c.cmd.Process.Pid)
		c.mu.Unlock()
		late := time.AfterFunc(writersAfter, func() { close(c.over) })
		defer late.Stop()
	}
	c.reaper.end(task)
	_ = c.cmd.Wait() // the state of the process holds everything
}

// limiterName is the name under which this program is started to bound its own memory, before it is replaced
// by the program of a task. A bound that is set from outside comes later than the first children of a
// program.
const limiterName = "midge-limiter"

// bound bounds the memory of a command that was not started yet.
func bound(cmd *exec.Cmd, most int64) error {
	self, err := executable()
	cmd.Path, cmd.Args = self, append([]string{limiterName, strconv.FormatInt(most, 10), cmd.Path}, cmd.Args...)
	return err
}

// limiterMain becomes the program of a task. It returns why that is impossible.
func limiterMain(args []string) error {
	most, err := strconv.ParseUint(args[1], 10, 64)
	if err == nil {
		err = become(args[2], args[3:], most)
	}
	return fmt.Errorf("the program %s cannot be started: %w", args[2], err)
}

// terminate asks the group to end.
func (c *child) terminate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		terminateGroup(c.cmd.Process)
	}
}

// kill kills the group.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		killProcess(c.cmd.Process)
	}
}
