// Package process runs parts of the benchmark in processes of their own, and asks the
// operating system what processes cost.
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

// Role is what a child does. Its context ends when the parent has had enough or is gone;
// ready tells the parent that what was to be started has been. What it returns goes to
// the parent as JSON.
type Role func(ctx context.Context, spec []byte, ready func()) (any, error)

// childArg is the first argument of a child, its role is the second.
const childArg = "role"

// message is one line from a child.
type message struct {
	Ready  bool            `json:"ready,omitempty"`
	Report json.RawMessage `json:"report,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Serve plays a role where this process was started as a child, and reports whether it
// was.
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
	go func() { // ends with the parent, who holds the other end of the pipe
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

// Child is a process that plays a role.
type Child struct {
	role string
	cmd  *exec.Cmd
	in   io.Closer
	out  *json.Decoder
}

// Start starts this program again, in a role. It ends when ctx does. The caller calls
// Wait or Finish.
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

// Pid is the process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Ready waits until the child says that it is. Where it does not, the child is over.
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

// Finish ends the child's role and reads its report.
func (c *Child) Finish(report any) error {
	_ = c.in.Close() // where it is closed already the child is at its end
	return c.Wait(report)
}

// Wait reads the child's report, once it comes to its end by itself.
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
	_ = c.cmd.Wait() // that it was killed is known
	return err
}
