package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/open"
)

// roleArgument is the first argument of a process that this program starts. The second argument is the role
// of the process, and the third is its spec as JSON.
const roleArgument = "role"

// spec is the work of a process in a role.
type spec struct {
	URL     string
	Tasks   int  // how many tasks to drain
	History bool // whether the dashboard writes the history
}

// play plays a role until the standard input ends.
func play(role, text string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the parent process, which has the other end of the pipe
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	store, err := open.Open(ctx, s.URL)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if role == "drain" {
		return drain(ctx, store, s.Tasks)
	}
	site, err := serve(ctx, store, s.History)
	if err != nil {
		return err
	}
	fmt.Println(site.url)
	<-ctx.Done()
	return site.close()
}

// site is a dashboard that is being served.
type site struct {
	url   string
	close func() error
}

// callsPath is the path at which a dashboard reports how often it has called the storage.
const callsPath = "/measure/calls"

// serve serves a dashboard. If history is set, the dashboard also writes the history.
func serve(ctx context.Context, store storage.Storage, history bool) (*site, error) {
	calls := &counted{Storage: store}
	d, err := dashboard.Handler(calls, dashboard.Config{
		Name: "production",
		Who: func(*http.Request) (access.User, bool) {
			return access.User{Name: "local", Role: access.Admin}, true
		},
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", d)
	mux.HandleFunc("GET "+callsPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, calls.n.Load())
	})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{}, 2)
	go func() { _ = server.Serve(listener); ended <- struct{}{} }()
	if history {
		go func() { d.Run(ctx); ended <- struct{}{} }()
	} else {
		ended <- struct{}{}
	}
	return &site{"http://" + listener.Addr().String(), func() error {
		cancel()
		err := server.Close()
		<-ended
		<-ended
		return err
	}}, nil
}

// counted counts the calls to a storage.
type counted struct {
	storage.Storage

	n atomic.Int64
}

func (c *counted) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	c.n.Add(1)
	return c.Storage.Task(ctx, ref)
}

func (c *counted) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	c.n.Add(1)
	return c.Storage.Tasks(ctx, q)
}

func (c *counted) Queues(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
	c.n.Add(1)
	return c.Storage.Queues(ctx, q)
}

func (c *counted) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	c.n.Add(1)
	return c.Storage.Stats(ctx, queues...)
}

func (c *counted) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	c.n.Add(1)
	return c.Storage.Runners(ctx)
}

func (c *counted) Describe(ctx context.Context) (storage.Description, error) {
	c.n.Add(1)
	return c.Storage.Describe(ctx)
}

func (c *counted) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	c.n.Add(1)
	return c.Storage.Apply(ctx, call, txs...)
}

// nothing is the job that is drained. It does nothing.
type nothing struct{ N int }

// drainQueue is the queue of the drained tasks.
const drainQueue = "drain"

// drain runs so many jobs, and prints how long they took, in nanoseconds.
func drain(ctx context.Context, store storage.Storage, tasks int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Int64
	var took time.Duration
	began := time.Now()
	r, err := midge.NewRunner(store, midge.RunnerConfig{
		Concurrency: 100, Queues: []string{drainQueue}, Slog: slog.New(slog.DiscardHandler),
		OnEnd: []func(context.Context, midge.Ended){func(context.Context, midge.Ended) {
			if done.Add(1) == int64(tasks) {
				took = time.Since(began)
				cancel()
			}
		}},
	})
	if err != nil {
		return err
	}
	if err := midge.Handle(r, func(context.Context, nothing) error { return nil }); err != nil {
		return err
	}
	began = time.Now()
	if err := r.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Println(took.Nanoseconds())
	return nil
}

// child is a process in a role. Its answer is the first text that it prints.
type child struct {
	cmd    *exec.Cmd
	in     io.Closer
	answer string
}

// start starts this program again in a role, and waits for its answer.
func start(ctx context.Context, role string, s spec) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, roleArgument, role, string(text)) //nolint:gosec // itself
	c := &child{cmd: cmd}
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.in = in
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	var line [256]byte
	n, err := out.Read(line[:])
	if c.answer = strings.TrimSpace(string(line[:n])); c.answer == "" {
		return nil, errors.Join(fmt.Errorf("%s gives no answer", role), err, c.stop())
	}
	return c, nil
}

// stop closes the input of the process, with which it ends, and waits for its end.
func (c *child) stop() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// used returns the processor time that a process has used, to a hundredth of a second.
func used(pid int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const user, system = 11, 12 // counted from the field behind the name
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	u, err1 := strconv.Atoi(fields[user])
	k, err2 := strconv.Atoi(fields[system])
	return time.Duration(u+k) * time.Second / 100, errors.Join(err1, err2)
}
