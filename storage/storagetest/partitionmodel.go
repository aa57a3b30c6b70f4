package storagetest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// ringTask is a task as the model knows it.
type ringTask struct {
	storage.Insert

	state     storage.State
	crashes   int
	startOnly bool
	declined  int // the number of its decline, 0 if it stands in the line of its partition
	place     int // in its line: the lowest waits first
}

func (t *ringTask) suspect() bool { return t.crashes > 0 && t.crashes == t.CrashLimit-1 }

// line is the key of the partition whose turn the task takes.
func (t *ringTask) line() string {
	if t.declined > 0 {
		return ""
	}
	return t.Partition
}

// ringModel is a model of the partitions of a queue: their lines, the ring, and the pauses.
type ringModel struct {
	*rig
	random *rand.Rand
	tasks  map[string]*ringTask
	fences map[string]held
	ring   []string // the keys in the order of the turns; "" is always there
	paused map[string]bool
	next   int // numbers tasks and places at the tail
	head   int // numbers places at the head

	// costs is set if the queue has a limit, and slots are the tasks that may be pending then, 0 for any number.
	costs *costLedger
	slots int
}

var (
	ringKeys  = []string{"", "", "a", "a", "b", "c", "d", "e"}
	ringKinds = []string{"job", "job", "mail", "news"}
)

// partitionModel makes random steps. It compares every line, every size and every pause after each of them,
// and every claim, whose order shows the turns.
func partitionModel(r *rig) {
	m := newRingModel(r)
	m.steps(m.all()...)
	m.end()
}

func newRingModel(r *rig) *ringModel {
	r.Helper()
	seed := uint64(time.Now().UnixNano())
	if r.virtual {
		seed = 1
	}
	r.Logf("seed %d", seed)
	r.pace.last = true // no step relies on calls that are fast
	return &ringModel{
		rig: r, random: rand.New(rand.NewPCG(seed, 17)), tasks: map[string]*ringTask{}, fences: map[string]held{},
		ring: []string{""}, paused: map[string]bool{},
	}
}

// all returns the steps, the frequent ones more than once.
func (m *ringModel) all() []func() {
	return []func(){
		m.insert, m.insert, m.insert, m.claim, m.claim, m.claim, m.claim, m.settle, m.settle, m.settle,
		m.cancel, m.delete, m.change, m.change, m.move, m.pause, m.resume, m.resume, m.late, m.crash, m.rest,
	}
}

// steps makes random steps.
func (m *ringModel) steps(all ...func()) {
	m.Helper()
	n := 150
	if m.virtual {
		n = 600
	}
	for range n {
		all[m.random.IntN(len(all))]()
		m.check()
	}
}

// end ends all pauses and claims all tasks that are left.
func (m *ringModel) end() {
	m.Helper()
	for _, key := range slices.Sorted(maps.Keys(m.paused)) {
		m.resumes(key)
	}
	for m.claimed(asking(storage.MaxClaim)) > 0 {
		m.check()
	}
}

// pickTask returns a random task for which is returns true, or nil.
func (m *ringModel) pickTask(is func(*ringTask) bool) *ringTask {
	var all []string
	for id, t := range m.tasks {
		if is(t) {
			all = append(all, id)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return m.tasks[all[m.random.IntN(len(all))]]
}

// waiting returns the waiting tasks of a line in its order, and of the line of "" the declined tasks too.
func (m *ringModel) waiting(key string) []*ringTask {
	var line []*ringTask
	for _, t := range m.tasks {
		if t.state == storage.Waiting && t.line() == key {
			line = append(line, t)
		}
	}
	slices.SortFunc(line, func(a, b *ringTask) int {
		switch {
		case a.Priority != b.Priority:
			return b.Priority - a.Priority
		case a.declined > 0 && b.declined > 0:
			return a.declined - b.declined
		case a.declined > 0:
			return -1
		case b.declined > 0:
			return 1
		}
		return cmp.Compare(a.place, b.place)
	})
	return line
}

// enter puts a task into a state, at the tail of its line or at the head.
func (m *ringModel) enter(t *ringTask, s storage.State, head bool) {
	m.leave(t)
	t.state, t.declined = s, 0
	delete(m.fences, t.Ref.ID)
	m.next++
	t.place = m.next
	if head {
		m.head--
		t.place = m.head
	}
	if s.Ended() && s != storage.Dead && t.Keep.For == 0 {
		delete(m.tasks, t.Ref.ID)
	}
	m.turn(t.Partition)
}

// leave takes a task out of its line. A partition of which it was the only waiting task leaves the ring, and
// joins its end if the task returns.
func (m *ringModel) leave(t *ringTask) {
	from := t.line()
	t.state = ""
	m.turn(from)
}

// turn puts a partition into the ring, or out of it.
func (m *ringModel) turn(key string) {
	at := slices.Index(m.ring, key)
	in := key == "" || len(m.waiting(key)) > 0 && !m.paused[key]
	switch {
	case in && at < 0:
		m.ring = append(m.ring, key)
	case !in && at >= 0:
		m.ring = slices.Delete(m.ring, at, at+1)
	}
}

func (m *ringModel) insert() {
	m.next++
	t := &ringTask{Insert: job(fmt.Sprintf("t%04d", m.next)), state: storage.Waiting}
	t.Partition, t.Kind = ringKeys[m.random.IntN(len(ringKeys))], ringKinds[m.random.IntN(len(ringKinds))]
	t.Priority, t.CrashLimit = m.random.IntN(3)-1, 2+m.random.IntN(2)
	t.Keep.For = time.Duration(m.random.IntN(2)) * time.Hour
	if m.random.IntN(5) == 0 {
		t.Delay, t.state = time.Hour, storage.Scheduled
	}
	if m.costs != nil {
		t.Cost = m.cost()
	}
	m.want("placed", m.rig.insert(t.Insert)[0].State, t.state)
	m.tasks[t.Ref.ID] = t
	m.enter(t, t.state, false)
}

// takes returns the task that a claim takes next from a line, or nil. n is how many it has taken before.
func (m *ringModel) takes(req storage.ClaimRequest, key string, n int, suspect bool) *ringTask {
	for _, t := range m.waiting(key) {
		switch {
		case t.declined > 0 && (m.paused[t.Partition] || len(req.Kinds) > 0 && !slices.Contains(req.Kinds, t.Kind)),
			t.suspect() && (suspect || !req.Suspect || n >= req.Start),
			t.startOnly && n >= req.Start:
			continue
		}
		return t
	}
	return nil
}

// claimed makes a claim, compares it with the model and returns how many tasks it took.
func (m *ringModel) claimed(req storage.ClaimRequest) int {
	m.Helper()
	c := m.rig.claim(req)
	var want []string
	suspect := false
	for at := 0; at < len(m.ring) && len(want) < req.Most(); {
		key := m.ring[at]
		t := m.takes(req, key, len(want), suspect)
		if t == nil {
			at++
			continue
		}
		if !m.admits(req, t, c, len(want)) {
			break
		}
		suspect = suspect || t.suspect()
		want = append(want, t.Ref.ID)
		m.ring = append(slices.Delete(m.ring, at, at+1), key)
		m.enter(t, storage.Pending, false)
	}
	if got := ids(c.Tasks); !slices.Equal(got, want) {
		m.Fatalf("claimed with %+v: got %v, want %v", req, got, want)
	}
	for i, t := range c.Tasks {
		m.fences[t.ID] = held{t, c.Fences[i]}
		known := m.tasks[t.ID]
		m.want("partition, priority, cost, crashes of "+t.ID, [4]any{t.Partition, t.Priority, t.Cost, t.Crashes},
			[4]any{known.Partition, known.Priority, known.Cost, known.crashes})
	}
	if m.costs != nil {
		m.bounded(req, c, suspect)
		return len(want)
	}
	if req.Start > 0 {
		more := slices.ContainsFunc(m.ring, func(key string) bool { return m.takes(req, key, 0, suspect) != nil })
		m.want("more", c.More, more)
	}
	distant := c.NextDue.IsZero() || c.NextDue.After(c.Now.Add(time.Minute))
	m.want("NextDue in an hour or never", distant, true)
	return len(want)
}

func (m *ringModel) claim() {
	req := ask(m.random.IntN(6))
	req.Ahead, req.Suspect, req.Lease = m.random.IntN(3), m.random.IntN(2) == 0, time.Hour
	switch m.random.IntN(4) {
	case 0:
		req.Kinds = []string{"mail"}
	case 1:
		req.Kinds = []string{"none"}
	}
	m.claimed(req)
}

// held returns a task that is pending, or nil.
func (m *ringModel) held() *ringTask {
	return m.pickTask(func(t *ringTask) bool { return t.state == storage.Pending })
}

func (m *ringModel) settle() {
	t := m.held()
	if t == nil {
		return
	}
	outcome := append(outcomes(), storage.Release, storage.Decline)[m.random.IntN(len(outcomes())+2)]
	if t.startOnly { // whether it remains so is another rule
		outcome = storage.Complete
	}
	m.settled(t, storage.Settle{Outcome: outcome, Delay: settleDelay(outcome)})
}

func (m *ringModel) settled(t *ringTask, s storage.Settle) {
	p := m.rig.settle(m.fences[t.Ref.ID], s)
	m.enter(t, p.State, s.Outcome == storage.Release)
	if s.Outcome == storage.Decline {
		m.next++
		t.declined = m.next
		m.turn(t.Partition)
	}
}

func (m *ringModel) cancel() {
	stands := func(t *ringTask) bool { return t.state.Live() && t.state != storage.Pending }
	if t := m.pickTask(stands); t != nil {
		m.rig.cancel(t.Ref.ID)
		m.enter(t, storage.Cancelled, false)
	}
}

func (m *ringModel) delete() {
	if t := m.pickTask(func(t *ringTask) bool { return t.state != storage.Pending }); t != nil {
		m.rig.delete(t.Ref.ID)
		delete(m.tasks, t.Ref.ID)
		m.turn(t.Partition)
	}
}

func (m *ringModel) change() {
	t := m.pickTask(func(t *ringTask) bool { return t.state != storage.Pending })
	if t == nil {
		return
	}
	var ch storage.Change
	again := t.state.Ended() && (t.state != storage.Dead || m.random.IntN(2) == 0)
	switch n := m.random.IntN(3); {
	case again:
		ch.Requeue = true
	case n == 0 && t.state != storage.Dead:
		ch.Now = true
	case n == 1 && t.state != storage.Dead:
		ch.Delay = time.Hour
	}
	was, joins := t.state, again || ch.Now && (t.state != storage.Waiting || t.declined > 0) || ch.Delay > 0
	if m.random.IntN(2) == 0 || ch.Delay == 0 && !ch.Now && !again {
		key := ringKeys[m.random.IntN(len(ringKeys))]
		ch.Partition = &key
		joins = true
	}
	if m.random.IntN(3) == 0 {
		p := m.random.IntN(3) - 1
		ch.Priority = &p
		joins = true
	}
	if m.costs != nil && m.random.IntN(3) == 0 {
		t.Cost = m.cost()
		ch.Cost = &t.Cost
	}
	p := m.changeNow(t.Ref.ID, ch)
	if again {
		t.crashes, t.startOnly = 0, false
	}
	m.changed(t, ch, p.State, joins || p.State != was)
}

// changed notes a change, after which the task has joined a line or stands where it stood.
func (m *ringModel) changed(t *ringTask, ch storage.Change, s storage.State, joins bool) {
	if !joins {
		return
	}
	m.leave(t)
	if ch.Partition != nil {
		t.Partition = *ch.Partition
	}
	if ch.Priority != nil {
		t.Priority = *ch.Priority
	}
	m.enter(t, s, false)
}

// move moves a task to another queue and back, where it joins the tail of its line.
func (m *ringModel) move() {
	t := m.pickTask(func(t *ringTask) bool { return t.state == storage.Waiting || t.state == storage.Scheduled })
	if t == nil || !storage.Spans(m.store, mainQueue, sideQueue) {
		return
	}
	p := m.changeNow(t.Ref.ID, storage.Change{Queue: sideQueue})
	delete(m.tasks, t.Ref.ID)
	m.turn(t.Partition)
	m.rig.change(storage.Change{Ref: p.Ref, Version: p.Version, Queue: mainQueue})
	m.tasks[t.Ref.ID] = t
	m.enter(t, t.state, false)
}

func (m *ringModel) pause() {
	key := ringKeys[2+m.random.IntN(len(ringKeys)-2)]
	m.configure(pausingOf(key, time.Duration(m.random.IntN(2))*time.Hour))
	m.paused[key] = true
	m.turn(key)
}

func (m *ringModel) resume() {
	keys := slices.Sorted(maps.Keys(m.paused))
	if len(keys) == 0 || m.random.IntN(4) == 0 {
		keys = ringKeys[2:] // also partitions that are not paused
	}
	m.resumes(keys[m.random.IntN(len(keys))])
}

func (m *ringModel) resumes(key string) {
	m.configure(resumingOf(key))
	delete(m.paused, key)
	m.turn(key)
}

// late has a task promoted.
func (m *ringModel) late() {
	const delay = 20 * time.Millisecond
	if t := m.held(); t != nil && !t.startOnly && m.random.IntN(2) == 0 {
		m.settled(t, storage.Settle{Outcome: storage.Snooze, Delay: delay})
		m.passTo(m.read(t.Ref.ID).Due)
		m.maintain()
		m.enter(t, storage.Waiting, false)
	} else if t = m.pickTask(func(t *ringTask) bool { return t.state == storage.Scheduled }); t != nil {
		m.changeNow(t.Ref.ID, storage.Change{Delay: delay})
		m.passTo(m.read(t.Ref.ID).Due)
		m.maintain()
		m.enter(t, storage.Waiting, false)
	}
}

// crash claims a task, started or ahead, and lets its lease expire.
func (m *ringModel) crash() {
	req := asking(1)
	if m.random.IntN(3) == 0 {
		req.Start, req.Ahead = 0, 1
	}
	req.Lease, req.Kinds = storage.MinLease, []string{"job"}
	if !m.virtual && m.random.IntN(5) > 0 || m.claimed(req) == 0 {
		return
	}
	t := m.pickTask(func(t *ringTask) bool {
		h, ok := m.fences[t.Ref.ID]
		return ok && h.LeaseUntil.Before(m.now().Add(time.Minute))
	})
	m.expire(m.fences[t.Ref.ID])
	if req.Start == 0 {
		t.startOnly = true
	} else if t.crashes++; t.crashes == t.CrashLimit {
		m.enter(t, storage.Dead, false)
		return
	}
	m.enter(t, storage.Waiting, true)
}

// rest pauses a partition for a short time.
func (m *ringModel) rest() {
	key := ringKeys[2+m.random.IntN(len(ringKeys)-2)]
	m.configure(pausingOf(key, 20*time.Millisecond))
	m.paused[key] = true
	m.turn(key)
	m.pass(25 * time.Millisecond)
	m.maintain()
	delete(m.paused, key)
	m.turn(key)
}

// check compares the lines, the sizes and the pauses.
func (m *ringModel) check() {
	m.Helper()
	var want []string
	for _, t := range m.waiting("") {
		if t.declined == 0 {
			want = append(want, t.Ref.ID)
		}
	}
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(ringKinds))) {
		for _, t := range m.waiting("") {
			if t.declined > 0 && t.Kind == kind {
				want = append(want, t.Ref.ID)
			}
		}
	}
	var parts []storage.PartitionStats
	var partitioned int64
	for _, key := range slices.Compact(slices.Sorted(slices.Values(ringKeys)))[1:] {
		line := m.waiting(key)
		for _, t := range line {
			want = append(want, t.Ref.ID)
		}
		partitioned += int64(len(line))
		if len(line) > 0 || m.paused[key] {
			parts = append(parts, storage.PartitionStats{Key: key, Waiting: int64(len(line)), Paused: m.paused[key]})
		}
	}
	if got := ids(m.list(storage.Waiting)); !slices.Equal(got, want) {
		m.Fatalf("listed: got %v, want %v", got, want)
	}
	got := m.partitions(storage.PartitionsQuery{}).Partitions
	for i := range got {
		got[i].PausedUntil = time.Time{}
	}
	if len(got)+len(parts) > 0 {
		m.want("partitions", got, parts)
	}
	s := m.stats()
	m.want("waiting, partitioned", [2]int64{s.Waiting, s.Partitioned}, [2]int64{int64(len(want)), partitioned})
	m.balanced(s)
	m.checkCosts()
}
