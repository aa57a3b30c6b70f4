package midge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// start starts one more runner, with random bounds.
func (m *slotsModel) start() {
	m.Helper()
	r := &slotsRunner{
		Storage: m.store, m: m, done: make(chan error, 1), served: slices.Clone(m.queues),
		limits: make(map[string]int), gates: make(map[string]*slotsGate), concurrency: 1 + m.rng.IntN(12),
		held: make(map[string]slotsClaimed), live: make(map[string]slotsClaimed),
	}
	gates := make(map[string]func() bool)
	for _, q := range m.queues {
		if m.rng.IntN(2) == 0 {
			r.limits[q] = 1 + m.rng.IntN(6)
		}
		if m.rng.IntN(3) == 0 {
			r.gates[q] = &slotsGate{m: m, mode: "open"}
			gates[q] = r.gates[q].ask
		}
	}
	cfg := midge.RunnerConfig{
		Queues: r.served, Weights: m.weights(m.queues), Concurrency: r.concurrency, QueueConcurrency: maps.Clone(r.limits),
		Gates: gates, Backoff: midge.Constant(100 * time.Millisecond), Logger: zap.NewNop(),
	}
	if m.rng.IntN(3) == 0 {
		cfg.Grace = midge.None
	}
	r.r = m.newRunner(r, cfg, r.job)
	m.mu.Lock()
	m.runners = append(m.runners, r)
	m.events += 10 // the first claims and heartbeats of a runner
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(m.ctx)
	r.stop = cancel
	go func() { r.done <- r.r.Run(ctx) }()
}

// weights returns random weights, or none for the strict order.
func (m *slotsModel) weights(queues []string) map[string]int {
	if m.rng.IntN(2) == 0 {
		return nil
	}
	w := make(map[string]int)
	for _, q := range queues {
		w[q] = 1 + m.rng.IntN(5)
	}
	return w
}

// end drains a runner.
func (m *slotsModel) end(r *slotsRunner) {
	m.Helper()
	m.mu.Lock()
	r.stopping = true
	m.mu.Unlock()
	r.stop()
	if err := <-r.done; err != nil {
		m.Errorf("run: %v", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(r.live) > 0 || len(r.held) > 0 {
		m.faultf("a drained runner keeps %d running tasks and %d others", len(r.live), len(r.held))
	}
	m.runners = slices.DeleteFunc(m.runners, func(o *slotsRunner) bool { return o == r })
}

// add enqueues up to 30 tasks.
func (m *slotsModel) add() {
	m.Helper()
	queue := m.queues[m.rng.IntN(len(m.queues))]
	takes := []time.Duration{0, 0, time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}
	items := make([]midge.Item, 1+m.rng.IntN(30))
	took := takes[m.rng.IntN(len(takes))]
	m.mu.Lock()
	for i := range items {
		id := fmt.Sprint("t", len(m.ids))
		plan := &slotsPlan{queue: queue, takes: took}
		for range m.rng.IntN(3) {
			plan.ends = append(plan.ends, []string{"fail", "snooze", "panic", "exit"}[m.rng.IntN(4)])
		}
		plan.ends = append(plan.ends, []string{"ok", "ok", "ok", "dead"}[m.rng.IntN(4)])
		m.plans[id], m.ids = plan, append(m.ids, id)
		opts := []midge.Option{midge.To(queue), midge.ID(id)}
		if m.rng.IntN(5) == 0 {
			opts = append(opts, midge.In(time.Duration(m.rng.IntN(1500))*time.Millisecond))
		}
		items[i] = midge.New(work{id}, opts...)
	}
	m.events += len(items)
	m.mu.Unlock()
	if _, err := m.client.EnqueueMany(m.ctx, items); err != nil {
		m.Fatal(err)
	}
}

// cancel cancels a random task.
func (m *slotsModel) cancel() {
	m.Helper()
	if len(m.ids) == 0 {
		return
	}
	id := m.ids[max(0, len(m.ids)-1-m.rng.IntN(40))]
	m.mu.Lock()
	plan := m.plans[id]
	plan.cancelled = true
	m.events++
	m.mu.Unlock()
	if _, err := m.client.Cancel(m.ctx, ref(plan.queue, id)); err != nil &&
		!errors.Is(err, storage.ErrNotFound) && !errors.As(err, new(*midge.DependencyError)) {
		m.Fatal(err)
	}
}

// change changes a bound of a random runner. No other goroutine runs meanwhile.
func (m *slotsModel) change() (err error) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events += 3
	r := m.runners[m.rng.IntN(len(m.runners))]
	queue := m.queues[m.rng.IntN(len(m.queues))]
	switch m.rng.IntN(5) {
	case 0, 1:
		n := 1 + m.rng.IntN(6)
		r.limits[queue] = n
		if m.rng.IntN(4) == 0 {
			n = midge.None
			delete(r.limits, queue)
		}
		return r.r.SetQueueConcurrency(queue, n)
	case 2:
		r.concurrency = 1 + m.rng.IntN(12)
		return r.r.SetConcurrency(r.concurrency)
	case 3:
		r.served = slices.DeleteFunc(slices.Clone(m.queues), func(string) bool { return m.rng.IntN(3) == 0 })
		if len(r.served) == 0 {
			r.served = []string{queue}
		}
		return r.r.SetQueues(r.served, m.weights(r.served))
	default:
		for _, g := range r.gates {
			g.mode = []string{"open", "closed", "panic", "block"}[m.rng.IntN(4)]
		}
		return nil
	}
}

// idle returns a queue that has tasks, and a slot of a runner that could run one of them.
func (m *slotsModel) idle() string {
	stats, err := m.store.Stats(m.ctx, m.queues...)
	if err != nil {
		return err.Error()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range stats {
		for _, r := range m.runners {
			gate, limit, running := r.gates[s.Queue], r.limits[s.Queue], r.running(s.Queue)
			closed := gate != nil && gate.shut() || !slices.Contains(r.served, s.Queue)
			held := r.waits(s.Queue)
			switch {
			case closed && held > 0:
				return fmt.Sprintf("queue %s is closed or not served, and %d of its tasks are claimed", s.Queue, held)
			case closed || gate != nil && !gate.open || len(r.live) >= r.concurrency:
			case held > 0, s.Waiting > 0 && (limit == 0 || running < limit):
				return fmt.Sprintf("queue %s has %d tasks and %d claimed ones; %d of %d run, %d of %d in all",
					s.Queue, s.Waiting, held, running, limit, len(r.live), r.concurrency)
			}
		}
	}
	return ""
}

// settle waits until no slot is idle beside tasks that it could run. A single runner wakes itself up at once;
// of two, each may have to find tasks that the other one leaves.
func (m *slotsModel) settle() {
	m.Helper()
	begun, idle, patience := time.Now(), "", 10*time.Millisecond
	if m.latency > 0 || len(m.runners) > 1 {
		patience = 2 * time.Second
	}
	for time.Since(begun) <= patience {
		synctest.Wait()
		if len(m.faults) > 0 {
			m.Fatal(m.faults)
		}
		if idle = m.idle(); idle == "" {
			return
		}
		time.Sleep(3 * time.Millisecond) // virtual
	}
	m.Fatalf("after %s %s", patience, idle)
}

// step makes a random step, and checks which tasks may run and how much was claimed.
func (m *slotsModel) step() {
	m.Helper()
	for range 1 + m.rng.IntN(3) {
		switch n := m.rng.IntN(20); {
		case n < 7:
			m.add()
		case n < 9:
			m.cancel()
		case n == 9:
			m.end(m.runners[m.rng.IntN(len(m.runners))])
			m.start()
		default:
			if err := m.change(); err != nil {
				m.Fatal(err)
			}
		}
	}
	m.settle()
	time.Sleep(time.Duration(m.rng.IntN(3000)) * time.Millisecond) // virtual
	synctest.Wait()
	m.settle()
}

// finish removes all bounds, and checks that each task ends once.
func (m *slotsModel) finish() {
	m.Helper()
	synctest.Wait()
	m.mu.Lock()
	for _, r := range m.runners {
		for _, g := range r.gates {
			g.mode = "open"
		}
		r.served = m.queues
		clear(r.limits)
		if err := r.r.SetQueues(m.queues, nil); err != nil {
			m.Error(err)
		}
		for _, q := range m.queues {
			if err := r.r.SetQueueConcurrency(q, midge.None); err != nil {
				m.Error(err)
			}
		}
	}
	if most := m.events + 4*int(time.Since(m.begun)/time.Second); m.claims > most {
		m.Errorf("%d claims, want at most %d", m.claims, most)
	}
	m.mu.Unlock()
	m.after(10 * time.Minute)
	for _, q := range m.queues {
		if s := m.stats(q); s.Live() > 0 {
			m.Errorf("queue %s still has %d tasks: %+v", q, s.Live(), s)
		}
	}
	for _, r := range slices.Clone(m.runners) {
		m.end(r)
	}
	for id, plan := range m.plans {
		if plan.done > 1 || plan.done == 0 && !plan.cancelled {
			m.Errorf("task %s ended %d times (cancelled: %t)", id, plan.done, plan.cancelled)
		}
	}
}

// close stops the runners that are left, and waits for gates that have not returned.
func (m *slotsModel) close() {
	m.stop()
	for _, r := range m.runners {
		if err := <-r.done; err != nil {
			m.Error(err)
		}
	}
	m.after(5 * time.Second)
}

// TestSlotsOfQueuesHoldThroughRandomSteps checks after each random step that no queue runs more jobs than it
// had slots when they were claimed, that no slot is idle, and that no task is lost.
func TestSlotsOfQueuesHoldThroughRandomSteps(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(b *bench) {
				m := &slotsModel{
					bench: b, rng: rand.New(rand.NewPCG(34, seed)), queues: []string{"a", "b", "c"},
					begun: time.Now(), plans: make(map[string]*slotsPlan),
				}
				if seed%3 == 2 {
					m.latency = 30 * time.Millisecond
				}
				defer m.close()
				for range 1 + seed%2 {
					m.start()
				}
				for range 25 {
					m.step()
				}
				m.finish()
				if len(m.faults) > 0 {
					t.Error(m.faults)
				}
			})
		})
	}
}
