package runner

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

// stillAfter is how long one turn of a loop may take, without its calls to the storage, before the
// loop counts as standing still. Turns take microseconds.
const stillAfter = 30 * time.Second

// health holds the state of a runner's loops and the stage of its life.
type health struct {
	mu     sync.Mutex // guards the fields below
	pulses []*pulse   // one per loop
	life   life
}

// life is the stage of a runner's life.
type life int

const (
	isNew life = iota
	isRunning
	isDraining
	isOver
)

// pulse is the state of one loop. A loop rests while it waits, and during its calls to the storage,
// which may be away; otherwise it works.
type pulse struct {
	*clock

	loop  string
	since atomic.Int64 // when the current work began, by the runner's clock; 0 while the loop rests
	ended atomic.Bool
	one   sync.Mutex // held in during
}

// pulse returns a new pulse for a loop.
func (s *shared) pulse(loop string) *pulse {
	p := &pulse{clock: &s.clock, loop: loop}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.pulses = append(s.health.pulses, p)
	return p
}

func (p *pulse) works() { p.since.Store(int64(max(p.elapsed(), 1))) }
func (p *pulse) rests() { p.since.Store(0) }
func (p *pulse) ends()  { p.ended.Store(true) }

// during calls f as work of the loop. The calls of several goroutines follow one another.
func (p *pulse) during(f func()) {
	p.one.Lock()
	defer p.one.Unlock()
	p.works()
	defer p.rests()
	f()
}

// comeTo records that the runner has reached a stage of its life.
func (h *health) comeTo(l life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life = max(h.life, l)
}

// Healthy returns nil unless a loop of the runner stands still or has ended.
func (r *Runner) Healthy() error {
	h := r.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life != isRunning {
		return nil
	}
	for _, p := range h.pulses {
		if p.ended.Load() {
			return fmt.Errorf("midge: the %s of runner %s has ended", p.loop, r.id)
		}
		since := p.since.Load()
		if still := r.elapsed() - time.Duration(since); since != 0 && still > stillAfter {
			return fmt.Errorf("midge: the %s of runner %s has stood still for %v", p.loop, r.id, rounded(still))
		}
	}
	return nil
}

// A runner is not ready for one of these reasons. The root package documents them.
var (
	errNotRunning = errors.New("midge: the runner has not been started")
	errDraining   = errors.New("midge: the runner is draining")
	errStopped    = errors.New("midge: the runner has stopped")
)

// Ready returns nil while the runner claims tasks.
func (r *Runner) Ready() error {
	r.health.mu.Lock()
	at := r.health.life
	r.health.mu.Unlock()
	switch {
	case at == isNew:
		return errNotRunning
	case at == isOver:
		return errStopped
	case at == isDraining || r.closed.Load():
		return errDraining
	case r.store.away.Load():
		return fmt.Errorf("midge: the storage does not answer: %w", storage.ErrUnavailable)
	}
	if full := r.heartbeat.full.Load(); full != nil { // it may have refused the heartbeats too
		return fmt.Errorf("midge: the storage refuses writes: %s: %w", *full, storage.ErrFull)
	}
	if silent := r.heartbeat.silent(); silent > r.lease {
		return fmt.Errorf("midge: the storage has answered no heartbeat for %v: %w", rounded(silent), storage.ErrUnavailable)
	}
	return r.Healthy()
}
