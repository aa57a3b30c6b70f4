package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// model is a small model of the contract: the state of each task of a queue, the order in
// which waiting tasks are claimed, and the totals.
type model struct {
	*rig
	random  *rand.Rand
	state   map[string]storage.State
	job     map[string]storage.Insert
	retries map[string]int
	waiting map[int][]string // by priority, in order
	fences  map[string]held
	totals  storage.Totals
	next    int
}

// statsModel applies random steps to a storage and to its model.
func statsModel(r *rig) {
	seed := uint64(time.Now().UnixNano())
	if r.virtual {
		seed = 1
	}
	r.Logf("seed %d", seed)
	m := &model{
		rig: r, random: rand.New(rand.NewPCG(seed, 7)),
		state: map[string]storage.State{}, job: map[string]storage.Insert{}, retries: map[string]int{},
		waiting: map[int][]string{}, fences: map[string]held{},
	}
	steps := []func(){
		m.insert, m.insert, m.insert, m.claim, m.claim, m.settle, m.settle, m.settle,
		m.cancel, m.requeue, m.delete, m.extend,
	}
	for range 8 {
		for range 50 {
			steps[m.random.IntN(len(steps))]()
		}
		m.check()
	}
}

// pick returns a random task in a state for which is returns true, or "" if there is none.
func (m *model) pick(is func(storage.State) bool) string {
	var ids []string
	for id, s := range m.state {
		if is(s) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return ids[m.random.IntN(len(ids))]
}

func pending(s storage.State) bool { return s == storage.Pending }

// enter puts a task into a state; leave takes it out of its state.
func (m *model) enter(id string, s storage.State, head bool) {
	m.leave(id)
	m.state[id] = s
	p := m.job[id].Priority
	switch {
	case s == storage.Waiting && head:
		m.waiting[p] = slices.Insert(m.waiting[p], 0, id)
	case s == storage.Waiting:
		m.waiting[p] = append(m.waiting[p], id)
	case s.Ended() && s != storage.Dead && m.job[id].Keep.For == 0:
		m.leave(id)
	}
}

func (m *model) leave(id string) {
	p := m.job[id].Priority
	m.waiting[p] = slices.DeleteFunc(m.waiting[p], func(other string) bool { return other == id })
	delete(m.state, id)
	delete(m.fences, id)
}

func (m *model) insert() {
	j := job(fmt.Sprintf("t%04d", m.next))
	m.next++
	j.Priority, j.MaxRetries = m.random.IntN(3)-1, m.random.IntN(3)
	j.Keep.For = time.Duration(m.random.IntN(2)) * time.Hour
	want := storage.Waiting
	if m.random.IntN(4) == 0 {
		j.Delay, want = time.Hour, storage.Scheduled
	}
	m.want("placed", m.rig.insert(j)[0].State, want)
	m.job[j.Ref.ID] = j
	m.totals.Enqueued++
	m.enter(j.Ref.ID, want, false)
}

func (m *model) claim() {
	n := 1 + m.random.IntN(5)
	var want []string
	for p := storage.MaxPriority; p >= -storage.MaxPriority && len(want) < n; p-- {
		want = append(want, m.waiting[p][:min(n-len(want), len(m.waiting[p]))]...)
	}
	req := ask(n)
	req.Lease = time.Hour // no step relies on calls that are fast
	got := m.hold(req, len(want))
	for i, h := range got {
		m.rig.want("claimed", h.ID, want[i])
		m.rig.want("retries", h.Retries, m.retries[h.ID])
		m.enter(h.ID, storage.Pending, false)
		m.fences[h.ID] = h
	}
}

func (m *model) settle() {
	id := m.pick(pending)
	if id == "" {
		return
	}
	h := m.fences[id]
	s := storage.Settle{Outcome: []storage.Outcome{
		storage.Complete, storage.Fail, storage.Fail, storage.Snooze, storage.Release, storage.Bury, storage.Cancel,
	}[m.random.IntN(7)]}
	if s.Outcome == storage.Fail || s.Outcome == storage.Snooze {
		s.Delay = time.Hour
	}
	want := storage.SettledState(s.Outcome, h.CancelAsked, m.retries[id], m.job[id].MaxRetries)
	m.want("placed", m.rig.settle(h, s).State, want)
	if s.Outcome == storage.Fail {
		m.retries[id]++
		m.totals.Failed++
	}
	m.ended(want)
	m.enter(id, want, s.Outcome == storage.Release)
}

// ended counts the task if s is an ended state.
func (m *model) ended(s storage.State) {
	switch s {
	case storage.Completed:
		m.totals.Completed++
	case storage.Dead:
		m.totals.Dead++
	case storage.Cancelled:
		m.totals.Cancelled++
	default: // the task has not ended
	}
}

func (m *model) cancel() {
	id := m.pick(storage.State.Live)
	if id == "" {
		return
	}
	p := m.rig.cancel(id)
	if h, ok := m.fences[id]; ok {
		m.want("placed", p.State, storage.Pending)
		h.CancelAsked = true
		m.fences[id] = h
		return
	}
	m.want("placed", p.State, storage.Cancelled)
	m.ended(storage.Cancelled)
	m.enter(id, storage.Cancelled, false)
}

func (m *model) requeue() {
	id := m.pick(func(s storage.State) bool { return s != storage.Waiting && s != storage.Pending })
	if id == "" {
		return
	}
	ch := storage.Change{Now: true, Requeue: m.state[id].Ended()}
	m.want("placed", m.changeNow(id, ch).State, storage.Waiting)
	if ch.Requeue {
		m.retries[id] = 0
		m.totals.Requeued++
	}
	m.enter(id, storage.Waiting, false)
}

func (m *model) delete() {
	id := m.pick(func(s storage.State) bool { return s != storage.Pending })
	if id == "" {
		return
	}
	m.rig.delete(id)
	if !m.state[id].Ended() {
		m.totals.Deleted++
	}
	m.leave(id)
}

func (m *model) extend() {
	id := m.pick(pending)
	if id == "" {
		return
	}
	x := m.rig.extend(storage.Extension{Fence: m.fences[id].Fence, For: time.Hour})
	m.want("lost, cancels", [2]any{len(x.Lost), len(x.CancelAsked) > 0}, [2]any{0, m.fences[id].CancelAsked})
}

// check compares the storage with the model.
func (m *model) check() {
	m.Helper()
	sizes := map[storage.State][]string{}
	for id, s := range m.state {
		sizes[s] = append(sizes[s], id)
	}
	want := storage.Stats{Queue: mainQueue, Totals: m.totals}
	for _, s := range storage.States() {
		got := ids(m.list(s))
		slices.Sort(got)
		slices.Sort(sizes[s])
		if !slices.Equal(got, sizes[s]) {
			m.Fatalf("listed as %s: got %v, want %v", s, got, sizes[s])
		}
		want.SetSize(s, int64(len(got)))
	}
	s := m.stats()
	s.Totals.Failed = m.totals.Failed // other rules compare it
	m.want("stats", s, want)
	m.balanced(s)
}
