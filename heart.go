package midge

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// heart is the actor that tells the storage, every third of the lease, that the runner
// lives and what it does, and learns the storage's time.
type heart struct {
	r    *Runner
	kick chan struct{} // capacity 1: what it tells has changed

	mu    sync.Mutex // guards what follows
	local moment     // at which the storage's clock showed base
	base  time.Time
	born  time.Time // by the storage's clock
}

// loop beats until ctx ends.
func (h *heart) loop(ctx context.Context) {
	next := h.r.cfg.Lease / 3 // the first was sent when the runner started
	for h.rest(ctx, next) {
		if next = h.r.cfg.Lease / 3; !h.beat(ctx) {
			next = min(next, jitter(slowScan))
		}
	}
}

// rest waits for d, or a change, and reports false where ctx ended.
func (h *heart) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.kick:
	case <-ctx.Done():
		return false
	}
	return true
}

// beat reports whether it went through. The storage's weather is logged where all calls
// pass.
func (h *heart) beat(ctx context.Context) bool {
	err := h.send(ctx)
	if err != nil && ctx.Err() == nil {
		h.r.log.trouble("heartbeat", err)
	}
	return err == nil
}

// send sends a heartbeat.
func (h *heart) send(ctx context.Context) error {
	extended, err := h.r.beats.Extend(ctx, storage.ExtendRequest{Runner: h.info(h.storageNow(h.r.now()))})
	if err == nil {
		h.sawTime(extended.Now)
	}
	return err
}

// info is what a heartbeat tells.
func (h *heart) info(now time.Time) storage.RunnerInfo {
	host, _ := os.Hostname() // an unnamed host is listed without a name
	r := h.r
	return storage.RunnerInfo{
		ID: r.id, Host: host, PID: os.Getpid(), Version: Version, Queues: r.queueNames(),
		Concurrency: r.slots.limitNow(), Started: h.started(now),
		Running: r.slots.running(now), Schedules: r.schedules.declared(),
		For: r.cfg.Lease,
	}
}

// leave tells the storage that the runner is gone.
func (h *heart) leave(base context.Context) {
	ctx, cancel := context.WithTimeout(base, shutdownTail/4)
	defer cancel()
	// One that could not be told expires.
	_, _ = h.r.beats.Extend(ctx, storage.ExtendRequest{Runner: storage.RunnerInfo{ID: h.r.id, Leaving: true}})
}

func (h *heart) sawTime(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.local, h.base = h.r.now(), now
	if h.born.IsZero() {
		h.born = now
	}
}

// storageNow is the storage's time at a local moment, as the last heartbeat told it;
// before the first it is the local time.
func (h *heart) storageNow(at moment) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.base.IsZero() {
		return h.r.made.Add(at.wall)
	}
	return h.base.Add(at.since(h.local))
}

// started is when the runner started, by the storage's clock.
func (h *heart) started(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.born.IsZero() {
		return now
	}
	return h.born
}
