package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// shareSteps makes random steps on a queue whose limit bounds partitions, and counts beside the storage which
// tasks of each partition run and when tasks of it have started.
type shareSteps struct {
	*rig
	random *rand.Rand
	fences map[string]held
	shares map[string]bool         // the tasks that run and were claimed under a Concurrency of partitions
	starts map[string][]shareStart // of each partition since the queue had its rate
	rests  map[string]time.Time    // until when each partition rests, by the answers of its releases
	limit  storage.PartitionLimit  // in force
	most   map[string]int          // how many tasks of each partition ran after the last step
	paused map[string]bool         // partitions paused until they are resumed
	next   int                     // numbers tasks
}

// shareStart is one start of a task in a partition.
type shareStart struct {
	at   time.Time
	cost int64
}

const sharePer = 2 * time.Second

var shareKeys = []string{"a", "b", "c", "d"}

// shareModel checks after each random step that the sizes of the partitions equal the outside count, that no
// partition is over its limits, that each line was served in its order, and that something that is in the
// stats holds back each task that waits.
func shareModel(r *rig) {
	seed := uint64(time.Now().UnixNano())
	if r.virtual {
		seed = 1
	}
	r.Logf("seed %d", seed)
	r.pace.last = true // no step relies on calls that are fast
	m := &shareSteps{
		rig: r, random: rand.New(rand.NewPCG(seed, 23)), fences: map[string]held{}, shares: map[string]bool{},
		starts: map[string][]shareStart{}, rests: map[string]time.Time{}, most: map[string]int{},
		paused: map[string]bool{},
	}
	m.change()
	steps := []func(){
		m.insert, m.insert, m.insert, m.insert, m.claim, m.claim, m.claim, m.claim, m.claim, m.settle, m.settle,
		m.settle, m.throttle, m.cancel, m.delete, m.back, m.rekey, m.pause, m.resume, m.change, m.time, m.move,
		m.repeat,
	}
	n := 150
	if r.virtual {
		n = 800
	}
	for range n {
		steps[m.random.IntN(len(steps))]()
		m.check()
	}
	m.end()
}

func (m *shareSteps) key() string { return shareKeys[m.random.IntN(len(shareKeys))] }

func (m *shareSteps) insert() {
	m.next++
	j := job(fmt.Sprintf("t%04d", m.next))
	if m.random.IntN(5) > 0 {
		j.Partition = m.key()
	}
	j.Kind = []string{"job", "job", "mail"}[m.random.IntN(3)]
	j.Priority, j.Cost = m.random.IntN(3)-1, []storage.Cost{0, 0, 2, 9, storage.NoCost}[m.random.IntN(5)]
	j.CrashLimit = 2 + m.random.IntN(2)
	j.Keep.For = time.Duration(m.random.IntN(2)) * time.Hour
	if m.random.IntN(6) == 0 {
		j.Delay = time.Duration(m.random.IntN(3)) * time.Second
	}
	m.rig.insert(j)
}

// claim claims tasks, after a claim that maintains the queue: so the claim takes them as they are listed.
func (m *shareSteps) claim() {
	m.claimed(m.request())
}

// repeat makes a claim, and the same call again. The repeat maintains the queue too, and takes nothing: it
// returns the tasks whose leases have not been recovered.
func (m *shareSteps) repeat() {
	req := m.request()
	c := m.claimed(req)
	before := m.all()
	again, err := m.store.Claim(m.ctx, req)
	m.must("repeated claim", err)
	want := []string{}
	for i, t := range c.Tasks {
		switch {
		case m.holds(held{t, c.Fences[i]}):
			want = append(want, t.ID)
		case again.Now.Before(t.LeaseUntil):
			m.Fatalf("repeated at %v: %s is not under its lease, which ends at %v", again.Now, t.ID, t.LeaseUntil)
		}
	}
	m.want("repeated", ids(again.Tasks), want)
	m.stuck(req, again, before)
}

func (m *shareSteps) request() storage.ClaimRequest {
	req := ask(m.random.IntN(7))
	req.Suspect, req.Lease = m.random.IntN(2) == 0, 2*time.Hour
	if m.random.IntN(3) == 0 {
		req.Ahead = m.random.IntN(3)
	}
	if m.random.IntN(5) == 0 {
		req.Lease = storage.MinLease
	}
	req.Call, req.Token = m.first(), storage.NewToken()
	return req
}

// all returns all partitions by their keys.
func (m *shareSteps) all() map[string]storage.PartitionStats {
	m.Helper()
	all := map[string]storage.PartitionStats{}
	for _, key := range shareKeys {
		all[key] = m.partition(key)
	}
	return all
}

func (m *shareSteps) claimed(req storage.ClaimRequest) storage.Claimed {
	m.Helper()
	m.maintain()
	lines, before := m.lines(), m.all()
	c, err := m.store.Claim(m.ctx, req)
	m.must("claim", err)
	at := map[string]int{}
	for i, t := range c.Tasks {
		if !m.limit.IsZero() && !t.Started {
			m.Fatalf("claimed ahead: got %s under the limit %+v, want none", t.ID, m.limit)
		}
		m.fences[t.ID] = held{t, c.Fences[i]}
		m.started(t)
		if line := ids(lines[t.Partition]); slices.Contains(line, t.ID) {
			if want := line[at[t.Partition]]; t.ID != want {
				m.Fatalf("claimed of partition %q: got %s, want %s, the first of its line", t.Partition, t.ID, want)
			}
			at[t.Partition]++
		}
		if until := m.rests[t.Partition]; t.Partition != "" && c.Now.Before(until) {
			m.Fatalf("claimed of partition %q at %v: got %s, want none until %v", t.Partition, c.Now, t.ID, until)
		}
		if m.paused[t.Partition] {
			m.Fatalf("claimed of partition %q: got %s, want none of a paused partition", t.Partition, t.ID)
		}
	}
	m.stuck(req, c, before)
	return c
}

// started counts the start of a task.
func (m *shareSteps) started(t storage.Task) {
	if t.Partition == "" {
		return
	}
	m.shares[t.ID] = m.limit.Concurrency > 0
	if m.limit.Rate.N > 0 {
		cost := int64(min(t.Cost.N(), m.limit.Rate.N))
		m.starts[t.Partition] = append(m.starts[t.Partition], shareStart{t.Claimed, cost})
	}
}

// lines returns the ordinary waiting tasks of each partition in their order.
func (m *shareSteps) lines() map[string][]storage.Task {
	lines := map[string][]storage.Task{}
	for _, t := range m.list(storage.Waiting) {
		if t.Declined.IsZero() && t.PassedOver == "" {
			lines[t.Partition] = append(lines[t.Partition], t)
		}
	}
	return lines
}

// stuck fails the rule if an ordinary task of a partition waits after a claim that had room for it, though
// neither a pause or a rest, nor a start that counts, nor the Concurrency holds it back. before are the
// partitions before the claim: a rest that held then may have ended since.
func (m *shareSteps) stuck(
	req storage.ClaimRequest, c storage.Claimed, before map[string]storage.PartitionStats,
) {
	m.Helper()
	if len(c.Tasks) >= req.Start || c.More {
		return
	}
	held := false
	lines := m.lines()
	for _, key := range shareKeys {
		was, p := before[key], m.partition(key)
		full := m.limit.Concurrency > 0 && p.Running >= int64(m.limit.Concurrency)
		took := slices.ContainsFunc(c.Tasks, func(t storage.Task) bool { return t.Partition == key })
		spent := m.limit.Rate.N > 0 && (took || len(was.Counts)+len(p.Counts) > 0)
		switch {
		case len(lines[key]) == 0, p.Paused, !was.Rests.IsZero(), spent:
		case full:
			held = true
		default:
			m.Fatalf("claimed: got %v and no More, want also %s of partition %+v under the limit %+v",
				ids(c.Tasks), lines[key][0].ID, p, m.limit)
		}
	}
	if held {
		m.want("held", c.Held, []string{mainQueue})
	}
}

// one returns a task in one of these states, nil if there is none.
func (m *shareSteps) one(states ...storage.State) *storage.Task {
	all := make([]storage.Task, 0, len(states))
	for _, s := range states {
		all = append(all, m.list(s)...)
	}
	if len(all) == 0 {
		return nil
	}
	return &all[m.random.IntN(len(all))]
}

// running returns a task that runs under its lease, nil if there is none.
func (m *shareSteps) running() *held {
	t := m.one(storage.Pending)
	if t == nil {
		return nil
	}
	h := m.fences[t.ID]
	return &h
}

func (m *shareSteps) settle() {
	if h := m.running(); h != nil {
		s := storage.Settle{Outcome: outcomes()[m.random.IntN(len(outcomes()))]}
		if s.Outcome == storage.Fail || s.Outcome == storage.Snooze {
			s.Delay = time.Duration(m.random.IntN(3)) * time.Second
		}
		m.rig.settle(*h, s)
	}
}

func (m *shareSteps) throttle() {
	h := m.running()
	if h == nil {
		return
	}
	d := time.Duration(1+m.random.IntN(3)) * 700 * time.Millisecond
	asked, from := m.read(h.Task.ID).CancelAsked, m.now()
	m.rig.settle(*h, storage.Settle{Outcome: storage.Release, Delay: d})
	if until := from.Add(d); !asked && until.After(m.rests[h.Partition]) {
		m.rests[h.Partition] = until
	}
}

func (m *shareSteps) cancel() {
	if t := m.one(storage.Waiting, storage.Pending, storage.Scheduled); t != nil {
		m.rig.cancel(t.ID)
	}
}

func (m *shareSteps) delete() {
	if t := m.one(storage.Waiting, storage.Dead, storage.Retry); t != nil {
		m.rig.delete(t.ID)
	}
}

func (m *shareSteps) back() {
	t := m.one(storage.Dead, storage.Completed, storage.Cancelled, storage.Scheduled, storage.Retry)
	if t != nil {
		m.changeNow(t.ID, storage.Change{Requeue: t.State.Ended(), Now: !t.State.Ended()})
	}
}

func (m *shareSteps) rekey() {
	if t := m.one(storage.Waiting, storage.Scheduled, storage.Dead); t != nil {
		m.changeNow(t.ID, rekeyed([]string{"", m.key()}[m.random.IntN(2)]))
	}
}

func (m *shareSteps) move() {
	t := m.one(storage.Waiting, storage.Scheduled, storage.Retry)
	if t == nil || !storage.Spans(m.store, mainQueue, sideQueue) {
		return
	}
	p := m.changeNow(t.ID, storage.Change{Queue: sideQueue})
	m.rig.change(storage.Change{Ref: p.Ref, Version: p.Version, Queue: mainQueue})
}

func (m *shareSteps) pause() {
	key := m.key()
	m.configure(pausingOf(key, 0))
	m.paused[key] = true
}

func (m *shareSteps) resume() {
	key := m.key()
	m.configure(resumingOf(key))
	delete(m.paused, key)
}

// change sets another limit. The ledger of starts begins anew when the queue had none for a while.
func (m *shareSteps) change() {
	rate := storage.Rate{N: 4, Per: sharePer}
	l := []storage.PartitionLimit{
		{Concurrency: 1}, {Concurrency: 3}, {Rate: rate}, {Concurrency: 2, Rate: rate}, {},
	}[m.random.IntN(5)]
	if l.Rate != m.limit.Rate {
		m.starts = map[string][]shareStart{}
	}
	m.configure(limiting(storage.Limit{Partition: l}))
	m.limit = l
}

// time lets some leases, rests and starts come to their ends.
func (m *shareSteps) time() {
	m.pass(time.Duration(m.random.IntN(3)) * 600 * time.Millisecond)
	m.maintain()
}

// check counts the tasks of each partition and compares them with the counts of the storage.
func (m *shareSteps) check() {
	m.Helper()
	running, waiting := map[string]int64{}, map[string]int64{}
	pending := map[string]bool{}
	for _, t := range m.list(storage.Pending) {
		pending[t.ID] = m.fences[t.ID].Version == t.Version
		if m.shares[t.ID] && pending[t.ID] {
			running[t.Partition]++
		}
	}
	for id := range m.shares {
		if !pending[id] {
			delete(m.shares, id)
		}
	}
	for _, t := range m.list(storage.Waiting) {
		if t.Declined.IsZero() {
			waiting[t.Partition]++
		}
	}
	for _, p := range m.partitions(storage.PartitionsQuery{}).Partitions {
		m.want("an empty partition is listed: "+p.Key, p.IsZero(), false)
	}
	for _, key := range shareKeys {
		p := m.partition(key)
		m.want("running, waiting, paused of "+key, [3]any{p.Running, p.Waiting, p.Paused},
			[3]any{running[key], waiting[key], m.paused[key]})
		m.within(key, int(running[key]))
		m.spent(key, p)
	}
	m.balanced(m.stats())
}

// within fails the rule if more tasks of a partition run than its Concurrency admits, unless they ran before.
func (m *shareSteps) within(key string, running int) {
	m.Helper()
	if most := max(m.most[key], m.limit.Concurrency); running > most {
		m.Fatalf("running of %s: got %d, want at most %d", key, running, most)
	}
	m.most[key] = running
}

// spent fails the rule if the starts of a partition are over its rate, or not all are counted.
func (m *shareSteps) spent(key string, p storage.PartitionStats) {
	m.Helper()
	n := int64(m.limit.Rate.N)
	if n == 0 {
		return
	}
	starts, sum, from := m.starts[key], int64(0), 0
	for _, s := range starts {
		sum += s.cost
		for s.at.Sub(starts[from].at) >= sharePer {
			sum -= starts[from].cost
			from++
		}
		if sum > n {
			m.Fatalf("starts of %s: got costs of %d within %v, want at most %d", key, sum, sharePer, n)
		}
	}
	now, least := m.now(), int64(0)
	for _, s := range starts {
		if now.Sub(s.at) < sharePer {
			least += s.cost
		}
	}
	if got := storage.Started(p.Counts); got < least {
		m.Fatalf("starts of %s that count: got %d, want at least %d", key, got, least)
	}
}

// end ends all pauses, rests and leases, completes all tasks, and finds no partition left.
func (m *shareSteps) end() {
	m.Helper()
	for _, key := range shareKeys {
		m.configure(resumingOf(key))
	}
	m.configure(clearing())
	m.limit, m.paused = storage.PartitionLimit{}, map[string]bool{}
	for _, t := range m.list(storage.Pending) {
		m.rig.settle(m.fences[t.ID], storage.Settle{Outcome: storage.Complete})
	}
	for _, s := range []storage.State{storage.Scheduled, storage.Retry} {
		for _, t := range m.list(s) {
			m.changeNow(t.ID, storage.Change{Now: true})
		}
	}
	m.pass(sharePer + sharePer/storage.RateParts + 200*time.Millisecond)
	for range 5 * m.next {
		c := m.rig.claim(asking(storage.MaxClaim))
		if len(c.Tasks) == 0 && !c.More {
			break
		}
		for i, t := range c.Tasks {
			m.rig.settle(held{t, c.Fences[i]}, storage.Settle{Outcome: storage.Complete})
		}
	}
	m.want("waiting, pending at the end", [2]int64{m.stats().Waiting, m.stats().Pending}, [2]int64{0, 0})
	m.maintain()
	m.want("partitions at the end", m.keys(), []string{})
	m.want("next due at the end", m.maintain().NextDue.IsZero(), true)
}
