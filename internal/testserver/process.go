package testserver

import (
	"os"
	"os/exec"
	"runtime"
)

// process is a running program. One goroutine owns it: the goroutine starts the
// program, waits for it and ends with it.
type process struct {
	pid  int
	os   *os.Process
	done chan struct{} // closed when the program has ended and was waited for
	how  error         // how it ended, such as "signal: killed"; valid once done is closed
}

// startProcess starts a program whose output replaces the file at logPath. env are
// environment variables beside the variables of this process.
func startProcess(logPath string, env []string, name string, args ...string) (*process, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	tieToParent(cmd)
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go p.own(cmd, log, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// own starts the program and waits for it. It keeps its thread locked until then,
// because Linux sends the parent-death signal when the thread that started the child
// ends.
func (p *process) own(cmd *exec.Cmd, log *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() { _ = log.Close() }()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid, p.os = cmd.Process.Pid, cmd.Process
	release := watchParent(p.pid)
	started <- nil
	p.how = cmd.Wait()
	release()
	close(p.done)
}

// ended reports whether the program has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) kill() error { return p.os.Kill() }
