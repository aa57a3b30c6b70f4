package storagetest

import (
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// costModel makes the random steps of the model of partitions in a queue with a rate.
func costModel(r *rig) {
	m := newRingModel(r)
	m.costs = &costLedger{rate: storage.Rate{N: 12, Per: time.Second}}
	m.limit()
	m.steps(append(m.all(),
		m.insert, m.claim, m.claim, m.settle, m.reprice, m.reprice, m.limit, m.time, m.time, m.time)...)
	m.configure(clearing())
	m.costs = nil
	m.end()
}

// cost returns a random cost, some of which are more than N.
func (m *ringModel) cost() storage.Cost {
	all := []storage.Cost{0, 0, storage.NoCost, 2, 3, 5, 12, 40}
	return all[m.random.IntN(len(all))]
}

// limit changes the limit. The starts go on counting.
func (m *ringModel) limit() {
	m.costs.rate.N = []int{12, 12, 7, 30}[m.random.IntN(4)]
	m.slots = []int{0, 0, 6}[m.random.IntN(3)]
	m.configure(limiting(storage.Limit{Concurrency: m.slots, Rate: m.costs.rate}))
}

// time lets some time pass.
func (m *ringModel) time() {
	m.pass(time.Duration(m.random.IntN(200)) * time.Millisecond)
}

// reprice replaces the cost of a task, which keeps its place.
func (m *ringModel) reprice() {
	t := m.pickTask(func(t *ringTask) bool {
		return t.state == storage.Dead || t.state.Live() && t.state != storage.Pending
	})
	if t != nil {
		t.Cost = m.cost()
		m.want("placed", m.changeNow(t.Ref.ID, repriced(t.Cost)).State, t.state)
	}
}

// full reports whether as many tasks are pending as the limit allows.
func (m *ringModel) full() bool {
	n := 0
	for _, t := range m.tasks {
		if t.state == storage.Pending {
			n++
		}
	}
	return m.slots > 0 && n >= m.slots
}

// admits reports whether the limit admits a task after n others of a claim, and notes its start. For a part
// of Per the storage may or may not admit it.
func (m *ringModel) admits(req storage.ClaimRequest, t *ringTask, c storage.Claimed, n int) bool {
	m.Helper()
	if m.costs == nil {
		return true
	}
	must, may := m.costs.admits(t.Cost, c.Now)
	took := n < len(c.Tasks) && c.Tasks[n].ID == t.Ref.ID
	if n >= req.Start || m.full() || !may || !must && !took {
		return false
	}
	m.costs.started(m.rig, t.Cost, c.Now)
	return true
}

// bounded checks the answer of a claim about the tasks that are left.
func (m *ringModel) bounded(req storage.ClaimRequest, c storage.Claimed, suspect bool) {
	m.Helper()
	var first *ringTask
	for _, key := range m.ring {
		if first = m.takes(req, key, 0, suspect); first != nil {
			break
		}
	}
	cost := storage.NoCost
	if first != nil {
		cost = first.Cost
	}
	bounded := slices.Contains(c.Bounded, mainQueue)
	closed := req.Start == 0 || m.full()
	must, may := m.costs.admits(cost, c.Now)
	if closed || must == may {
		m.want("bounded", bounded, closed || !may)
	}
	m.want("more", c.More, !bounded && first != nil)
	distant := c.NextDue.IsZero() || c.NextDue.After(c.Now.Add(time.Minute))
	switch left, may := m.costs.admits(storage.NoCost, c.Now); {
	case closed && may && !left: // NextDue is the end of a part of Per, or that has passed
	case !bounded, m.full() || req.Start == 0 && left:
		m.want("NextDue in an hour or never", distant, true)
	case left:
		m.between("NextDue", c.NextDue, m.costs.from(cost), m.costs.from(cost).Add(m.costs.late()))
	default:
		m.between("NextDue", c.NextDue, c.Now, m.costs.from(cost).Add(m.costs.late()))
	}
}

// checkCosts compares the costs that count.
func (m *ringModel) checkCosts() {
	m.Helper()
	if m.costs == nil {
		return
	}
	from := m.now()
	q := m.stats().Limit
	until, per := m.now(), m.costs.rate.Per
	sum := int64(0)
	for _, c := range q.Counts {
		sum += c.N
		if !c.Until.After(from) {
			m.Fatalf("counts: got one until %v, want none that ended before %v", c.Until, from)
		}
	}
	m.want("sum of the counts", sum, q.Started)
	if least, most := m.costs.sum(until, per), m.costs.sum(from, per+m.costs.late()); sum < least || sum > most {
		m.Fatalf("started: got %d, want %d to %d", sum, least, most)
	}
}
