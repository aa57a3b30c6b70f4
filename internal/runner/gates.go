package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/contain"
)

// GateEvery is how often a runner calls the gate of a queue. A gate that has not returned by the next time counts
// as closed.
const GateEvery = 2 * time.Second

// gates is the actor that asks the gates of queues whether jobs of these queues may start. A queue is closed until
// its gate has returned true for the first time.
type gates struct {
	*shared

	all       []*gate
	answers   chan answer // has room for one answer of each gate
	heartbeat *heartbeat  // carries which queues are closed
	pulse     *pulse
}

// gate is the function of one queue. Only the loop of gates uses its fields.
type gate struct {
	queue  string
	open   func() bool
	called bool // and has not returned yet
	failed bool // the last call failed or is late, and the log has a line about it
}

type answer struct {
	of   *gate
	open bool
	err  error
}

var errGateLate = errors.New("it has not returned in time")

func newGates(s *shared, h *heartbeat, functions map[string]func() bool) *gates {
	g := &gates{shared: s, answers: make(chan answer, len(functions)), heartbeat: h}
	for _, queue := range slices.Sorted(maps.Keys(functions)) {
		g.all = append(g.all, &gate{queue: queue, open: functions[queue]})
		s.slots.shut(queue, true)
	}
	if len(g.all) > 0 {
		g.pulse = s.pulse("gates")
	}
	return g
}

// loop asks the gates until ctx ends.
func (g *gates) loop(ctx context.Context) {
	if len(g.all) == 0 {
		return
	}
	defer g.pulse.ends()
	tick := time.NewTicker(GateEvery)
	defer tick.Stop()
	g.ask()
	for {
		g.pulse.rests()
		select {
		case a := <-g.answers:
			g.pulse.works()
			g.hear(a)
		case <-tick.C:
			g.pulse.works()
			g.ask()
		case <-ctx.Done():
			return
		}
	}
}

// ask calls each gate whose last call has returned, and closes the queues of the others.
func (g *gates) ask() {
	for _, of := range g.all {
		if of.called {
			g.close(of, errGateLate)
			continue
		}
		of.called = true
		go func() { // ends when the application's function does
			a := answer{of: of}
			a.err = contain.Call(func() { a.open = of.open() }, func(value any) error {
				return fmt.Errorf("panic: %v", value)
			})
			g.answers <- a
		}()
	}
}

// hear opens or closes a queue as its gate has answered.
func (g *gates) hear(a answer) {
	a.of.called = false
	if a.err != nil || !a.open {
		g.close(a.of, a.err)
		return
	}
	a.of.failed = false
	g.shut(a.of.queue, false)
}

// close closes the queue of a gate and returns the tasks that were claimed ahead there. err is the reason for
// which the gate has not answered, nil if it has.
func (g *gates) close(of *gate, err error) {
	if err != nil && !of.failed {
		g.log.trouble("gate of queue "+of.queue, fmt.Errorf("the queue counts as closed: %w", err))
	}
	of.failed = err != nil
	g.shut(of.queue, true)
}

// shut closes or opens a queue. Once it has closed the queue, no job of the queue begins. A heartbeat
// reports each change at once.
func (g *gates) shut(queue string, closed bool) {
	changed, back := g.slots.shut(queue, closed)
	g.releaseAll(back)
	if !changed {
		return
	}
	if closed {
		for _, a := range g.slots.inFlight.snapshot(nil) { // a worker may have an attempt that has not begun
			if a.Fence.Queue == queue {
				a.keepBack(errGateClosed)
			}
		}
	}
	kick(g.heartbeat.kick)
}
