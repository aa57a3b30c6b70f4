//go:build linux || darwin

package command_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/work/command"
)

// reaper is that of all tests.
var reaper *command.Reaper

func TestMain(m *testing.M) {
	reaper = command.Main()
	if part := parts[os.Getenv(envPart)]; part != nil {
		part()
		os.Exit(0)
	}
	code := m.Run()
	if err := reaper.Close(); err != nil && code == 0 {
		code = 1
	}
	os.Exit(code)
}

// These make the test binary another program.
const (
	envPart    = "COMMAND_TEST_PART"
	partWorker = "worker"
	partMoves  = "moves"
	partStays  = "moves and stays"

	envReady = "MIDGE_TEST_READY" // the file that a part writes once it has moved
)

var parts = map[string]func(){
	partWorker: workerMain, partMoves: func() { movedMain() }, partStays: func() { movedMain(syscall.SIGTERM) },
}

// packed and plain are jobs of the two encodings.
type packed struct {
	Name  string
	Count int64
}

func (packed) Options() midge.Options {
	return midge.Options{Queue: "films", Backoff: midge.Constant(0), Keep: midge.Keep{For: time.Hour}}
}

type plain struct {
	Name  string
	Count int64
}

func (plain) Options() midge.Options {
	return midge.Options{
		Queue: "films", Backoff: midge.Constant(0), Keep: midge.Keep{For: time.Hour}, Encoding: midge.JSON,
	}
}

// rig is a runner of programs on a storage.
type rig struct {
	*testing.T

	store  storage.Storage
	client *midge.Client
	stop   func() error // ends the runner
}

// shell returns the Config of a script.
func shell(script string) command.Config {
	return command.Config{Path: "/bin/sh", Args: []string{"-c", script}, Reaper: reaper}
}

// newRig runs a program for tasks of both kinds.
func newRig(t *testing.T, cfg command.Config, edit ...func(*midge.RunnerConfig)) *rig {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // after the runner has ended
	return newRigOn(t, store, cfg, edit...)
}

func newRigOn(t *testing.T, store storage.Storage, cfg command.Config, edit ...func(*midge.RunnerConfig)) *rig {
	t.Helper()
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, store: store, client: client}
	r.start(cfg, edit...)
	return r
}

// start starts a runner.
func (r *rig) start(cfg command.Config, edit ...func(*midge.RunnerConfig)) {
	r.Helper()
	config := midge.RunnerConfig{
		Queues: []string{"films"}, Grace: midge.None, ReturnWithin: 10 * time.Second, Backoff: midge.Constant(0),
		Slog: slog.New(slog.DiscardHandler),
	}
	for _, e := range edit {
		e(&config)
	}
	runner, err := midge.NewRunner(r.store, config)
	if err != nil {
		r.Fatal(err)
	}
	for _, kind := range []string{"packed", "plain"} {
		if err := command.Handle(runner, kind, cfg); err != nil {
			r.Fatal(err)
		}
	}
	if err := runner.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
	ended := false
	r.stop = func() error {
		ended = true
		return runner.Shutdown(context.Background())
	}
	r.Cleanup(func() {
		if !ended {
			_ = runner.Shutdown(context.Background())
		}
	})
}

// add enqueues a task without retries.
func (r *rig) add(job any, opts ...midge.Option) midge.Ref {
	r.Helper()
	task, err := r.client.Enqueue(r.Context(), job, append([]midge.Option{midge.Retries(midge.None)}, opts...)...)
	if err != nil {
		r.Fatal(err)
	}
	return task.Ref
}

// dead awaits the death of a task, and returns its last error.
func (r *rig) dead(ref midge.Ref) string {
	r.Helper()
	var dead *midge.DeadError
	if err := r.client.Await(r.Context(), ref, nil); !errors.As(err, &dead) {
		r.Fatalf("the task ended with %v, want it dead", err)
	}
	task := r.task(ref)
	if task.Stack != "" { // the whole error
		return task.Stack
	}
	return task.LastError()
}

// timedOut runs a task into its timeout, and returns its last error and the timeout. If the program has not
// written the file ready by then, as it does once it has arranged how it takes a signal, another task has twice as
// long.
func (r *rig) timedOut(job any, timeout time.Duration, ready string) (text string, last time.Duration) {
	r.Helper()
	for ; timeout < time.Minute; timeout *= 2 {
		text = r.dead(r.add(job, midge.Timeout(timeout)))
		if _, err := os.Stat(ready); err == nil {
			return text, timeout
		}
	}
	r.Fatalf("the program has not written %s in %v", ready, timeout/2)
	return "", 0
}

// tasks returns all tasks of a queue.
func (r *rig) tasks(queue string) (all []midge.Task) {
	r.Helper()
	for _, state := range storage.TaskStates() {
		for task, err := range storage.Each(r.Context(), r.store, queue, state) {
			if err != nil {
				r.Fatal(err)
			}
			all = append(all, task)
		}
	}
	return all
}

// task returns a task.
func (r *rig) task(ref midge.Ref) midge.Task {
	r.Helper()
	task, err := r.client.Task(r.Context(), ref)
	if err != nil {
		r.Fatal(err)
	}
	return task
}

// until waits until a task fulfils a condition.
func (r *rig) until(what string, ref midge.Ref, holds func(t midge.Task) bool) (task midge.Task) {
	r.Helper()
	testserver.Await(r.T, what, func() bool {
		task = r.task(ref)
		return holds(task)
	})
	return task
}

// contains checks a text.
func (r *rig) contains(text string, parts ...string) {
	r.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			r.Errorf("got %q, want it to contain %q", text, part)
		}
	}
}

// awaitFile waits until a program has written a file with a line.
func awaitFile(t *testing.T, path string) (text string) {
	t.Helper()
	testserver.Await(t, "the program writes "+path, func() bool {
		b, _ := os.ReadFile(path)
		text = string(b)
		return strings.HasSuffix(text, "\n")
	})
	return strings.TrimSpace(text)
}
