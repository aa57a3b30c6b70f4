//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/midgehq/midge/storage"
)

// hooked is a storage whose calls can be stopped before they reach the storage, or
// whose answers can be replaced by an error. It counts the calls from 1.
type hooked struct {
	storage.Storage
	calls atomic.Int64
	// before is called before call n. If it returns an error, the call does not happen and
	// returns that error.
	before func(n int64, verb string) error
	// after is called after call n has happened. If it returns an error, that error
	// replaces the answer.
	after func(n int64, verb string) error
}

// around makes a call between its hooks.
func around[T any](h *hooked, verb string, call func() (T, error)) (T, error) {
	n := h.calls.Add(1)
	var nothing T
	if h.before != nil {
		if err := h.before(n, verb); err != nil {
			return nothing, err
		}
	}
	answer, err := call()
	if h.after != nil {
		if spoiled := h.after(n, verb); spoiled != nil {
			return nothing, spoiled
		}
	}
	return answer, err
}

// Spans passes on the optional ability of the storage.
func (h *hooked) Spans(queues ...string) bool { return storage.Spans(h.Storage, queues...) }

func (h *hooked) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	return around(h, "apply", func() ([]storage.Applied, error) { return h.Storage.Apply(ctx, call, txs...) })
}

func (h *hooked) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	return around(h, "claim", func() (storage.Claimed, error) { return h.Storage.Claim(ctx, req) })
}

func (h *hooked) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	verb := "extend"
	if slices.ContainsFunc(req.Leases, func(e storage.Extension) bool { return e.Checkpoint != nil }) {
		verb = "checkpoint"
	}
	return around(h, verb, func() (storage.Extended, error) { return h.Storage.Extend(ctx, req) })
}

func (h *hooked) Wait(ctx context.Context, req storage.WaitRequest) error {
	_, err := around(h, "wait", func() (struct{}, error) { return struct{}{}, h.Storage.Wait(ctx, req) })
	return err
}

func (h *hooked) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	return around(h, "task", func() (storage.Task, error) { return h.Storage.Task(ctx, ref) })
}

func (h *hooked) Tasks(ctx context.Context, query storage.TasksQuery) (storage.TasksPage, error) {
	return around(h, "tasks", func() (storage.TasksPage, error) { return h.Storage.Tasks(ctx, query) })
}

func (h *hooked) Queues(ctx context.Context, query storage.QueuesQuery) (storage.QueuesPage, error) {
	return around(h, "queues", func() (storage.QueuesPage, error) { return h.Storage.Queues(ctx, query) })
}

func (h *hooked) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	return around(h, "stats", func() ([]storage.Stats, error) { return h.Storage.Stats(ctx, queues...) })
}

func (h *hooked) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	return around(h, "runners", func() ([]storage.RunnerInfo, error) { return h.Storage.Runners(ctx) })
}

func (h *hooked) Configure(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
	_, err := around(h, "configure", func() (struct{}, error) {
		return struct{}{}, h.Storage.Configure(ctx, call, queue, s)
	})
	return err
}

func (h *hooked) Describe(ctx context.Context) (storage.Description, error) {
	return around(h, "describe", func() (storage.Description, error) { return h.Storage.Describe(ctx) })
}

// lost returns the error of a call whose request or reply was lost. The caller cannot distinguish the two.
func lost(n int64, verb string) error {
	return fmt.Errorf("faulttest: call %d, %s: %w", n, verb, storage.ErrUnknown)
}

// killPoint names the storage call at which a process kills itself: just before the call,
// or just after the storage has executed it. The zero killPoint never happens.
type killPoint struct {
	Call  int64
	After bool
	// Durable counts only the calls of steps and checkpoints: reads of tasks, and writes of checkpoints.
	Durable bool
}

// of returns a storage in which the chosen call is the last of the process.
func (d killPoint) of(store storage.Storage) storage.Storage {
	if d.Call == 0 {
		return store
	}
	var durable atomic.Int64
	die := func(n int64, verb string) error {
		if d.Durable {
			n = 0
			if verb == "task" || verb == "checkpoint" {
				n = durable.Add(1)
			}
		}
		if n == d.Call {
			killSelf()
		}
		return nil
	}
	h := &hooked{Storage: store, before: die}
	if d.After {
		h.before, h.after = nil, die
	}
	return h
}

// killSelf ends the process as a SIGKILL from outside would. It does not return.
func killSelf() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}
