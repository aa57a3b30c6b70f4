package memory

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// consistent fails the test unless every record of the storage stands in exactly the orders
// that fit its state, the unique keys are held by the right tasks, and the totals add up.
func (h *harness) consistent() {
	h.Helper()
	s := h.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.IsSorted(s.names) || len(s.names) != len(s.queues) {
		h.Errorf("names: got %d, sorted %v, want %d sorted", len(s.names), slices.IsSorted(s.names), len(s.queues))
	}
	for _, q := range s.queues {
		if err := q.consistent(s); err != nil {
			h.Errorf("queue %s: %v", q.Name, err)
		}
	}
}

func (q *queue) consistent(s *Storage) error {
	stand, held := 0, 0
	sizes := [engine.States]int64{}
	for state := range q.lines {
		order := &q.lines[state]
		if n := len(order.after(first, order.size+1, nil)); n != order.size {
			return fmt.Errorf("an order of %d holds %d", order.size, n)
		}
		stand += order.size
	}
	named, err := q.namedStand()
	if err != nil {
		return err
	}
	stand += named
	for id, r := range q.records {
		if r.ID != id || r.Queue != &q.Queue || r.Ref.Queue != q.Name {
			return fmt.Errorf("%s stands here as %s", r.Ref, id)
		}
		line := q.line(r.State, r)
		if !slices.ContainsFunc(line.after(first, line.size, nil), isAt(r)) {
			return fmt.Errorf("%s is %s and not where those are", r.Ref, r.State.Public())
		}
		sizes[r.State]++
		state := r.State.Public()
		if state != storage.Cursors && !state.Ended() && r.Unique.Mode == storage.UniqueLife {
			held++
			if hold := q.keys[r.Unique.Key]; hold == nil || hold.ID != r.ID {
				return fmt.Errorf("%s does not hold its key", r.Ref)
			}
		}
	}
	st := q.Stats()
	in := st.Totals.Enqueued + st.Totals.Requeued
	out := st.Totals.Completed + st.Totals.Dead + st.Totals.Cancelled + st.Totals.Deleted
	switch {
	case stand != len(q.records):
		return fmt.Errorf("%d stand in orders, of %d tasks", stand, len(q.records))
	case sizes != q.Sizes:
		return fmt.Errorf("sizes %v, counted %v", sizes, q.Sizes)
	case len(q.keys) != held+q.windows.size:
		return fmt.Errorf("%d keys of %d lives and %d windows", len(q.keys), held, q.windows.size)
	case st.Dead > int64(s.step.Limits.DeadMax):
		return fmt.Errorf("%d dead, at most %d", st.Dead, s.step.Limits.DeadMax)
	case in != out+st.Live():
		return fmt.Errorf("%+v do not add up with %d live", st.Totals, st.Live())
	}
	return nil
}

// first is before every place.
var first = place{Sort: math.MinInt64}

func isAt(r *engine.Record) func(entry[*engine.Record]) bool {
	return func(e entry[*engine.Record]) bool { return e.value == r && e.place == r.Place }
}

// chaos carries out random operations on a few tasks of two queues and their partitions.
type chaos struct {
	*harness
	*caller

	random *rand.Rand
	fences []storage.Fence
}

func (h *harness) chaos(seed uint64) *chaos {
	return &chaos{harness: h, caller: h.caller(), random: rand.New(rand.NewPCG(seed, 0))}
}

func (c *chaos) ref() storage.Ref {
	return storage.Ref{Queue: c.pick("a", "b"), ID: fmt.Sprintf("t%d", c.random.IntN(40))}
}

func (c *chaos) pick(from ...string) string { return from[c.random.IntN(len(from))] }

func (c *chaos) delay() time.Duration { return time.Duration(c.random.IntN(4)) * time.Second }

func (c *chaos) step() {
	switch c.random.IntN(33) {
	case 0:
		c.configure()
	case 1, 2, 3, 4, 5, 6, 7, 8:
		c.claim()
	case 9, 10, 11, 12:
		c.extend()
	default:
		tx := storage.Tx{}
		for range 1 + c.random.IntN(3) {
			c.addTo(&tx)
		}
		c.try(tx)
	}
}

// try applies a Tx that may be refused as a whole, or be invalid because it names a task twice.
func (c *chaos) try(tx storage.Tx) {
	applied, err := c.store.Apply(c.Context(), c.next(), tx)
	if _, ok := errors.AsType[*storage.InvalidError](err); ok {
		return
	}
	if err != nil {
		c.Error(err)
		return
	}
	var refused *storage.DependencyError
	if err := applied[0].Err; err != nil && (!errors.As(err, &refused) || reflect.DeepEqual(refused, new(storage.DependencyError))) {
		c.Errorf("a refusal: got %v, want a reason", err)
	}
}

func (c *chaos) addTo(tx *storage.Tx) {
	switch c.random.IntN(5) {
	case 0, 1:
		in := storage.Insert{
			Ref: c.ref(), Kind: c.pick("x", "y", "z"), Encoding: "raw", Delay: c.delay(), MaxRetries: c.random.IntN(2),
			CrashLimit: 1 + c.random.IntN(3), Priority: c.random.IntN(3),
			Keep: storage.Keep{For: c.delay()}, OnConflict: storage.Conflict(c.pick("skip", "refuse")),
			Partition: c.pick("", "p", "p", "r"),
		}
		switch c.random.IntN(3) {
		case 0:
			in.Unique = storage.Unique{Key: c.pick("k", "l", "m"), Mode: storage.UniqueLife}
		case 1:
			in.Unique = storage.Unique{Key: c.pick("k", "l", "m"), Mode: storage.UniqueWindow, For: time.Second}
		}
		tx.Inserts = append(tx.Inserts, in)
	case 2:
		ch := storage.Change{Ref: c.ref()}
		ch.Version = c.version(ch.Ref)
		if c.random.IntN(4) == 0 {
			key := c.pick("", "p", "r")
			ch.Partition = &key
		}
		switch c.random.IntN(4) {
		case 0:
			ch.Now = true
		case 1:
			ch.Delay = c.delay()
		case 2:
			ch.Cancel = true
		default:
			ch.Queue = c.pick("a", "b")
		}
		tx.Changes = append(tx.Changes, ch)
	case 3:
		ref := c.ref()
		tx.Deletes = append(tx.Deletes, storage.Delete{Ref: ref, Version: c.version(ref)})
	case 4:
		if len(c.fences) == 0 {
			return
		}
		i := c.random.IntN(len(c.fences))
		outcome := storage.Outcome(c.pick("complete", "fail", "snooze", "release", "bury", "cancel", "decline", "decline"))
		se := storage.Settle{Fence: c.fences[i], Outcome: outcome}
		if outcome == storage.Fail || outcome == storage.Snooze || outcome == storage.Release {
			se.Delay = c.delay()
		}
		tx.Settles = append(tx.Settles, se)
		if c.random.IntN(4) > 0 { // else the fence is used again
			c.fences = slices.Delete(c.fences, i, i+1)
		}
	}
}

// version reads a task's version, 1 if there is none.
func (c *chaos) version(ref storage.Ref) int64 {
	t, err := c.store.Task(c.Context(), ref)
	if err != nil {
		return 1
	}
	return t.Version
}

func (c *chaos) claim() {
	n := c.random.IntN(4)
	claimed, err := c.store.Claim(c.Context(), storage.ClaimRequest{
		Call: c.next(), Token: storage.NewToken(), Runner: "runner", Start: n, Ahead: c.random.IntN(4),
		Queues: []storage.ClaimQueue{{Name: "a"}, {Name: "b"}}, Lease: time.Second + c.delay(),
		Suspect: c.random.IntN(2) == 0, Kinds: []string{"x", "y"}[:min(c.random.IntN(40), 2)],
	})
	if err != nil {
		c.Error(err)
	}
	c.fences = append(c.fences, claimed.Fences...)
}

// configure bounds the partitions of a queue, or pauses or resumes one of them.
func (c *chaos) configure() {
	s := storage.Settings{Limit: new(storage.OperatorLimit)}
	switch s.Limit.On = true; c.random.IntN(6) {
	case 0:
		s.Limit.On = false
	case 1:
		s.Limit.Limit.Partition.Rate = storage.Rate{N: 2, Per: 3 * time.Second}
	case 2:
		s.Limit.Limit.Partition = storage.PartitionLimit{Concurrency: 2, Rate: storage.Rate{N: 5, Per: 9 * time.Second}}
	case 3:
		s = storage.Settings{Partition: c.pick("p", "r"), Pause: &storage.Pause{On: true, For: c.delay()}}
	case 4:
		s = storage.Settings{Partition: c.pick("p", "r"), Pause: new(storage.Pause)}
	default:
		s.Limit.Limit.Partition.Concurrency = 1
	}
	if err := c.store.Configure(c.Context(), c.next(), c.pick("a", "b"), s); err != nil {
		c.Error(err)
	}
}

func (c *chaos) extend() {
	var req storage.ExtendRequest
	req.Call = c.next()
	for i := range min(2, len(c.fences)) {
		req.Leases = append(req.Leases, storage.Extension{Fence: c.fences[i], For: 2 * time.Second, Started: true})
	}
	_, err := c.store.Extend(c.Context(), req)
	var invalid *storage.InvalidError
	if err != nil && !errors.As(err, &invalid) { // two fences may name the same task
		c.Error(err)
	}
}

func TestConsistentAfterEveryStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.store.step.Limits.DeadMax, h.store.step.Limits.DeclinedFor = 5, 3*time.Second
		c := h.chaos(1)
		for i := range 20_000 {
			if i%1000 == 0 {
				c.caller = h.caller() // the virtual time of a thousand steps is within a lane's life
			}
			c.step()
			h.consistent()
			if t.Failed() {
				return
			}
			if c.random.IntN(10) == 0 {
				time.Sleep(time.Second)
			}
		}
	})
}

func TestConsistentUnderConcurrency(t *testing.T) {
	h := newHarness(t)
	h.store.step.Limits.DeadMax, h.store.step.Limits.DeclinedFor = 5, 3*time.Second
	var all sync.WaitGroup
	for i := range uint64(16) {
		all.Go(func() {
			c := h.chaos(i)
			for range 500 {
				c.step()
				if c.random.IntN(20) == 0 {
					h.consistent()
				}
			}
		})
	}
	all.Wait()
	h.consistent()
}

// namedStand returns how many tasks stand in the lines of kinds and of partitions, which must be in the ring
// accordingly.
func (q *queue) namedStand() (stand int, err error) {
	for i, l := range q.subs {
		if l.size == 0 || l.Size != int64(l.size) || l.Queue != &q.Queue || i > 0 && q.subs[i-1].Sub >= l.Sub {
			return 0, fmt.Errorf("the line of %s holds %d, counted %d, in place %d", l.Sub, l.size, l.Size, i)
		}
		if l.Look < q.firstLook || l.Look > q.lastLook {
			return 0, fmt.Errorf("the line of %s is searched at %d, not from %d to %d",
				l.Sub, l.Look, q.firstLook, q.lastLook)
		}
		stand += l.size
	}
	if len(q.parts) != q.ring.size || len(q.parts) != len(q.byKey.from("", len(q.parts)+1)) {
		return 0, fmt.Errorf("%d partitions, %d in the ring, %d keys", len(q.parts), q.ring.size, len(q.byKey.from("", 1<<30)))
	}
	running, err := q.running()
	if err != nil {
		return 0, err
	}
	for _, e := range q.ring.from(place{Sort: math.MinInt64}, q.ring.size) {
		l := e.value
		if q.parts[l.Sub] != l || l.Ring != e.place || l.Size != int64(l.size) || l.IsSpare() || l.IsMisplaced() {
			return 0, fmt.Errorf("the partition %s holds %d, and is %+v", l.Sub, l.size, l.Line)
		}
		if l.Left != 0 && (!l.IsReady() || l.Size == 0) {
			return 0, fmt.Errorf("%d tasks are left of a turn of %s, which has %d and stands at %+v",
				l.Left, l.Sub, l.Size, l.Ring)
		}
		if l.Running != running[l.Sub] {
			return 0, fmt.Errorf("%d tasks of the partition %s run, counted %d", running[l.Sub], l.Sub, l.Running)
		}
		delete(running, l.Sub)
		stand += l.size
	}
	if len(running) > 0 {
		return 0, fmt.Errorf("tasks run of partitions that are not there: %v", running)
	}
	return stand, nil
}

// running counts the tasks that count for the Concurrency of their partition, by partition.
func (q *queue) running() (map[string]int64, error) {
	running := make(map[string]int64)
	for _, r := range q.records {
		switch {
		case r.Flags&engine.Counted == 0:
			continue
		case !r.State.IsPending() || r.Partition == "":
			return nil, fmt.Errorf("%s of the partition %q is counted and %s", r.Ref, r.Partition, r.State.Public())
		}
		running[r.Partition]++
	}
	return running, nil
}
