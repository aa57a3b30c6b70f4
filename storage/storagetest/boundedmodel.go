package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// boundedSteps makes random steps on a queue with limits, and counts starts and pending tasks beside the
// storage.
type boundedSteps struct {
	*rig
	random  *rand.Rand
	fences  map[string]held
	starts  []time.Time // all starts since the queue had its rate
	limit   storage.Limit
	allowed int // how many tasks may be pending: as many as the limit allows, or ran when it was lowered
	next    int
}

// boundedModel checks after each random step that the pending tasks, counted by a listing, are within the
// limit, and the starts within the rate.
func boundedModel(r *rig) {
	seed := uint64(time.Now().UnixNano())
	if r.virtual {
		seed = 1
	}
	r.Logf("seed %d", seed)
	m := &boundedSteps{rig: r, random: rand.New(rand.NewPCG(seed, 11)), fences: map[string]held{}}
	m.change()
	steps := []func(){
		m.insert, m.insert, m.insert, m.claim, m.claim, m.claim, m.settle, m.settle, m.cancel, m.back, m.prompt,
		m.move, m.pause, m.change, m.lapse,
	}
	for range 400 {
		steps[m.random.IntN(len(steps))]()
		m.check()
	}
}

func (m *boundedSteps) insert() {
	j := job(fmt.Sprintf("t%04d", m.next))
	m.next++
	j.Priority, j.Kind = m.random.IntN(3)-1, []string{"job", "mail"}[m.random.IntN(2)]
	j.Keep.For = time.Duration(m.random.IntN(2)) * time.Hour
	j.CrashLimit = 2 + m.random.IntN(2)
	m.rig.insert(j)
}

func (m *boundedSteps) claim() {
	req := ask(m.random.IntN(6))
	req.Ahead, req.Suspect = m.random.IntN(3), m.random.IntN(2) == 0
	if m.random.IntN(4) == 0 {
		req.Lease = storage.MinLease
	}
	if m.random.IntN(3) == 0 {
		req.Kinds = []string{"mail"}
	}
	c := m.rig.claim(req)
	slots := m.limit.Concurrency
	ahead := m.limit.Rate.N == 0 && len(m.list(storage.Pending)) <= slots/2 || m.limit.IsZero()
	for i, t := range c.Tasks {
		if !t.Started && !ahead {
			m.Fatalf("claimed ahead: got %s under the limit %v, which admits none", t.ID, m.limit)
		}
		m.fences[t.ID] = held{t, c.Fences[i]}
		m.starts = append(m.starts, t.Claimed)
	}
	if slices.Contains(c.Bounded, mainQueue) && m.limit.IsZero() {
		m.Fatalf("bounded: got %v of a queue without a limit", c.Bounded)
	}
}

// held returns one of the tasks that were claimed and are still under their lease.
func (m *boundedSteps) held() (held, bool) {
	var all []string
	for id, h := range m.fences {
		if m.holds(h) {
			all = append(all, id)
		} else {
			delete(m.fences, id)
		}
	}
	if len(all) == 0 {
		return held{}, false
	}
	slices.Sort(all)
	return m.fences[all[m.random.IntN(len(all))]], true
}

// one returns a task in one of these states.
func (m *boundedSteps) one(states ...storage.State) (storage.Task, bool) {
	all := make([]storage.Task, 0, len(states))
	for _, s := range states {
		all = append(all, m.list(s)...)
	}
	if len(all) == 0 {
		return storage.Task{}, false
	}
	return all[m.random.IntN(len(all))], true
}

func (m *boundedSteps) settle() {
	if h, ok := m.held(); ok {
		s := storage.Settle{Fence: h.Fence, Outcome: outcomes()[m.random.IntN(len(outcomes()))]}
		if m.random.IntN(2) == 0 {
			s.Delay = settleDelay(s.Outcome)
		}
		_, err := m.session.ApplyOne(m.ctx, storage.Tx{Settles: []storage.Settle{s}})
		m.must("settle "+string(s.Outcome), err)
		delete(m.fences, h.ID)
	}
}

func (m *boundedSteps) cancel() {
	if t, ok := m.one(storage.Waiting, storage.Pending, storage.Scheduled); ok {
		m.rig.cancel(t.ID)
	}
}

func (m *boundedSteps) back() {
	if t, ok := m.one(storage.Dead, storage.Completed, storage.Cancelled); ok {
		m.changeNow(t.ID, storage.Change{Requeue: true})
	}
}

func (m *boundedSteps) prompt() {
	if t, ok := m.one(storage.Scheduled, storage.Retry); ok {
		m.changeNow(t.ID, storage.Change{Now: true})
	}
}

func (m *boundedSteps) move() {
	t, ok := m.one(storage.Waiting, storage.Scheduled)
	if !ok || !storage.Spans(m.store, mainQueue, sideQueue) {
		return
	}
	p := m.changeNow(t.ID, storage.Change{Queue: sideQueue})
	if m.random.IntN(2) == 0 {
		m.rig.change(storage.Change{Ref: p.Ref, Version: p.Version, Queue: mainQueue})
	}
}

func (m *boundedSteps) pause() {
	m.configure(pausing(0))
	m.rig.want("claimed while paused", len(m.rig.claim(ask(3)).Tasks), 0)
	m.configure(resuming())
}

func (m *boundedSteps) change() {
	l := []storage.Limit{
		slotsOf(1), slotsOf(4), starting(4, storage.MaxPer),
		{},
		{Concurrency: 2, Rate: storage.Rate{N: 5, Per: time.Second}},
	}[m.random.IntN(5)]
	if l.Rate != m.limit.Rate { // the ledger begins anew, with a rate that counts no start before
		m.configure(limiting(storage.Limit{Concurrency: l.Concurrency}))
		m.starts = nil
	}
	m.configure(limiting(l))
	m.limit, m.allowed = l, len(m.list(storage.Pending))
}

// lapse lets the shortest leases run out.
func (m *boundedSteps) lapse() {
	m.pass(storage.MinLease / 2)
	m.maintain()
}

func (m *boundedSteps) check() {
	m.Helper()
	pending := len(m.list(storage.Pending))
	m.rig.want("pending by Stats", m.stats().Pending, int64(pending))
	if n := m.limit.Concurrency; n > 0 {
		m.allowed = max(min(m.allowed, pending), n)
		if pending > m.allowed {
			m.Fatalf("pending: got %d, want at most %d under the limit %v", pending, m.allowed, m.limit)
		}
	}
	if n := m.limit.Rate.N; n > 0 {
		for i := n; i < len(m.starts); i++ {
			if span := m.starts[i].Sub(m.starts[i-n]); span < m.limit.Rate.Per {
				m.Fatalf("starts: got %d in %v, want at most %v", n+1, span, m.limit.Rate)
			}
		}
	}
}
