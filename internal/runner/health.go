package runner

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

// stillAfter is how long a loop may be at one turn, outside of calls of the storage, before it counts
// as standing still: turns take microseconds.
const stillAfter = 30 * time.Second

// health is what a runner knows of its loops and of its life.
type health struct {
	mu     sync.Mutex // guards what follows
	pulses []*pulse   // of the loops
	life   life
}

// life is how far a runner has come.
type life int

const (
	isNew life = iota
	isRunning
	isDraining
	isOver
)

// pulse is what one loop tells of itself. A loop rests while it waits, and while it has called the
// storage, which may be away: else it works.
type pulse struct {
	*clock

	loop  string
	since atomic.Int64 // since when it works, by the runner's clock; 0 while it rests
	ended atomic.Bool
}

// pulse makes the pulse of a loop.
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

// comeTo notes how far the runner has come.
func (h *health) comeTo(l life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life = max(h.life, l)
}

// Healthy is nil unless a loop of the runner stands still.
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

// Why a runner is not ready. The root package documents them.
var (
	errNotRunning = errors.New("midge: the runner has not been started")
	errDraining   = errors.New("midge: the runner is draining")
	errStopped    = errors.New("midge: the runner has stopped")
)

// Ready is nil while the runner claims tasks.
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
	if silent := r.heartbeat.silent(); silent > r.lease {
		return fmt.Errorf("midge: the storage has answered no heartbeat for %v: %w", rounded(silent), storage.ErrUnavailable)
	}
	return r.Healthy()
}
