// Package process runs parts of the benchmark in processes of their own, and asks the
// operating system how much processor time and memory processes use.
package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Role is the function of a child process. Its context ends when the parent closes the
// child's input or has ended. ready reports to the parent that the child has started
// everything. The parent receives the returned value as JSON.
type Role func(ctx context.Context, spec []byte, ready func()) (any, error)

// childArg is the first argument of a child. Its second argument is the role.
const childArg = "role"

// message is one line from a child.
type message struct {
	Ready  bool            `json:"ready,omitempty"`
	Report json.RawMessage `json:"report,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Serve runs a role if this process was started as a child, and reports whether it was.
func Serve(ctx context.Context, args []string, roles map[string]Role) (served bool, err error) {
	if len(args) != 3 || args[1] != childArg {
		return false, nil
	}
	role, ok := roles[args[2]]
	if !ok {
		return true, fmt.Errorf("no role is named %q", args[2])
	}
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	spec, err := in.ReadBytes('\n')
	if err != nil {
		return true, fmt.Errorf("read what to do: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the parent, which holds the other end of the pipe
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	ready := func() { _, _ = io.WriteString(os.Stdout, `{"ready":true}`+"\n") }
	report, err := role(ctx, spec, ready)
	if err != nil {
		return true, out.Encode(message{Error: err.Error()})
	}
	text, err := json.Marshal(report)
	if err != nil {
		return true, err
	}
	return true, out.Encode(message{Report: text})
}

// Child is a process that runs a role.
type Child struct {
	role string
	cmd  *exec.Cmd
	in   io.Closer
	out  *json.Decoder
}

// Start starts this program again, in a role. The process ends when ctx does. The
// caller must call Wait or Finish.
func Start(ctx context.Context, role string, spec any) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, childArg, role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	child := &Child{role: role, cmd: cmd, in: in, out: json.NewDecoder(out)}
	if _, err := in.Write(append(text, '\n')); err != nil {
		return nil, errors.Join(fmt.Errorf("tell a process what to do: %w", err), child.kill())
	}
	return child, nil
}

// Pid returns the process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Ready waits until the child reports that it is ready. If it returns an error, the child
// has ended.
func (c *Child) Ready() error {
	var m message
	err := c.out.Decode(&m)
	switch {
	case err != nil:
	case m.Error != "":
		err = errors.New(m.Error)
	case !m.Ready:
		err = errors.New("it ended before it was ready")
	default:
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w", c.role, err), c.kill())
}

// Finish makes the child end and reads its report.
func (c *Child) Finish(report any) error {
	_ = c.in.Close() // an error means that the child has ended already
	return c.Wait(report)
}

// Wait reads the child's report when the child ends by itself.
func (c *Child) Wait(report any) error {
	err := c.read(report)
	_ = c.in.Close()
	if ended := c.cmd.Wait(); err == nil {
		err = ended
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.role, err)
	}
	return nil
}

func (c *Child) read(report any) error {
	for {
		var m message
		if err := c.out.Decode(&m); err != nil {
			return err
		}
		switch {
		case m.Error != "":
			return errors.New(m.Error)
		case m.Report != nil:
			return json.Unmarshal(m.Report, report)
		}
	}
}

func (c *Child) kill() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait() // the error only means that it was killed
	return err
}
