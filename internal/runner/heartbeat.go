package runner

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

// heartbeat is the actor that reports to the storage, every third of the lease, that the runner
// lives and what it does. It learns the storage's time from the answers.
type heartbeat struct {
	*shared

	queues    *queues
	schedules *schedules
	version   string        // of the program
	kick      chan struct{} // capacity 1; signals that the information has changed
	pulse     *pulse

	full atomic.Pointer[string] // why the storage refuses writes as full, nil if it does not

	count int // of acknowledged heartbeats; used by the start and then only by the loop

	mu    sync.Mutex // guards the fields below
	local moment     // when the storage's clock showed base
	base  time.Time
	born  time.Time // by the storage's clock
}

// vitalsEvery and declareEvery are how many heartbeats there are for each one that carries vitals, and for
// each one that carries the schedules: a hundred thousand schedules take megabytes.
const (
	vitalsEvery  = 3
	declareEvery = 30
)

// heartbeatPatience bounds how long one heartbeat is repeated.
const heartbeatPatience = 15 * time.Second

// loop sends heartbeats until ctx ends.
func (h *heartbeat) loop(ctx context.Context) {
	defer h.pulse.ends()
	next := h.lease / 3 // the start has sent the first one
	for h.wait(ctx, next) {
		if next = h.lease / 3; !h.beat(ctx) {
			next = min(next, jitter(slowScan))
		} else if h.count%vitalsEvery == 0 || h.full.Load() != nil {
			h.describe(ctx)
		}
	}
}

// wait waits for d or for a kick. It returns false if ctx ended.
func (h *heartbeat) wait(ctx context.Context, d time.Duration) bool {
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

// beat sends a heartbeat and reports whether it was acknowledged. watched logs outages, for all
// calls.
func (h *heartbeat) beat(ctx context.Context) bool {
	err := h.send(ctx, h.beats)
	if err != nil && ctx.Err() == nil {
		h.log.trouble("heartbeat", err)
	}
	if errors.Is(err, storage.ErrFull) {
		why := err.Error()
		h.full.Store(&why)
	}
	return err == nil
}

// describe asks the storage whether it is full, for Ready.
func (h *heartbeat) describe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.lease/6)
	defer cancel()
	d, err := h.store.Describe(ctx)
	switch {
	case err != nil: // it is known from the heartbeats that the storage is away
	case d.Full == "":
		h.full.Store(nil)
	default:
		h.full.Store(&d.Full)
	}
}

// send sends a heartbeat on a session.
func (h *heartbeat) send(ctx context.Context, on *storage.Session) error {
	h.pulse.works()
	info := h.info(h.storageTime(h.now()))
	h.pulse.rests()
	extended, err := on.Extend(ctx, storage.ExtendRequest{Runner: info})
	if err != nil {
		if info.Schedules != nil {
			h.schedules.stores.Store(true)
		}
		return err
	}
	h.count++
	if h.sawTime(extended.Now) && info.Schedules == nil {
		h.count = 0 // the storage may have forgotten the runner: the next heartbeat carries all, at once
		kick(h.kick)
	}
	return nil
}

// info returns the content of a heartbeat.
func (h *heartbeat) info(now time.Time) storage.RunnerInfo {
	host, _ := os.Hostname() // an unnamed host is listed without a name
	running, busy := h.slots.running(now, h.elapsed())
	queues := h.queues.list()
	info := storage.RunnerInfo{
		ID: h.id, Host: host, PID: os.Getpid(), Version: h.version, Queues: queues, Slots: h.slots.bounded(queues),
		Kinds: h.jobs.Kinds(), Limits: h.declaredLimits, Concurrency: h.slots.limitNow(), Started: h.started(now),
		Running: running, Busy: busy,
		Undecodable: h.troubles.list(h.elapsed()), For: h.lease,
	}
	// A storage that has lost a schedule, which was stored again, has lost the list of them too.
	if h.schedules.stores.Swap(false) || h.count%declareEvery == 0 {
		info.Schedules = h.schedules.declared()
	}
	if h.count%vitalsEvery == 0 {
		v := h.counters.Read()
		info.Vitals = v.Encode()
	}
	return info
}

// leave reports to the storage that the runner is gone.
func (h *heartbeat) leave(base context.Context) {
	ctx, cancel := context.WithTimeout(base, shutdownTail/4)
	defer cancel()
	// If this call fails, the entry of the runner expires.
	_, _ = h.beats.Extend(ctx, storage.ExtendRequest{Runner: storage.RunnerInfo{ID: h.id, Leaving: true}})
}

// sawTime learns the storage's time from an answer. It reports whether the storage counted the runner as dead
// before.
func (h *heartbeat) sawTime(now time.Time) (expired bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	expired = !h.base.IsZero() && now.Sub(h.base) >= h.lease
	h.local, h.base = h.now(), now
	if h.born.IsZero() {
		h.born = now
	}
	return expired
}

// silent returns how long ago the last heartbeat was acknowledged.
func (h *heartbeat) silent() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.elapsed() - h.local.mono
}

// storageTime returns the storage's time at a local moment, as reckoned from the last heartbeat, or
// the local time before the first heartbeat.
func (h *heartbeat) storageTime(at moment) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.base.IsZero() {
		return h.made.Add(at.wall)
	}
	return h.base.Add(at.since(h.local))
}

// started returns when the runner started, by the storage's clock.
func (h *heartbeat) started(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.born.IsZero() {
		return now
	}
	return h.born
}
