package difftest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// generator makes random steps on the tasks that exist.
type generator struct {
	*rand.Rand

	w     *world
	lanes map[string]*lane
	dues  map[time.Time]time.Time // due moments by delay, and the time of the step that set each
	bulk  int                     // numbers the tasks of large calls and of clashes
	last  *repeat
	plan  []step // the next steps that are not random
}

// lane numbers the calls on the same queues, because each atomic domain remembers lanes
// separately.
type lane struct {
	storage.Lane

	seq uint64
}

func newGenerator(seed uint64, w *world) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 13)), w: w, lanes: map[string]*lane{}, dues: map[time.Time]time.Time{}}
}

// laneUse is how long the generator uses a lane.
const laneUse = storage.LaneLife / 2

// chance returns true in the given percentage of calls.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// halved returns a whole number of steps of the clock, from least to most, plus half a step.
// The clock, which moves in whole steps, never comes near a moment at that distance.
func (g *generator) halved(least, most int) time.Duration {
	return time.Duration(least+g.IntN(most-least+1))*grid + grid/2
}

// delay returns a duration like apart, of up to 80 steps of the clock.
func (g *generator) delay() time.Duration { return g.apart(80) }

// apart returns a duration like halved, of up to most steps of the clock or somewhat more: one after which no task of
// another step falls due, and no rest of another step ends. The steps take a little time, more on some sides than on
// others, so that the order of two close moments could differ.
func (g *generator) apart(most int) time.Duration {
	for d := g.halved(1, most); ; d += grid {
		due := g.w.now.Add(grid + d)
		if said, some := g.dues[due]; !some || said.Equal(g.w.now) {
			g.dues[due] = g.w.now
			return d
		}
	}
}

// call returns the number of a call about queues.
func (g *generator) call(what string, names []string) storage.Call {
	key := fmt.Sprint(what, slices.Sorted(slices.Values(names)))
	ln := g.lanes[key]
	if ln == nil || g.w.now.Sub(ln.Opened) > laneUse || g.chance(2) {
		ln = &lane{Lane: storage.Lane{ID: g.id(), Opened: g.w.now}}
		g.lanes[key] = ln
	}
	ln.seq += uint64(1 + g.IntN(3))
	g.last = &repeat{lane: ln.Lane, what: what}
	return storage.Call{Lane: ln.Lane, Seq: ln.seq}
}

func (g *generator) id() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], g.Uint64())
	binary.BigEndian.PutUint64(id[8:], g.Uint64())
	return id
}

// next returns the next step.
func (g *generator) next() step {
	if len(g.plan) > 0 {
		st := g.plan[0]
		g.plan = g.plan[1:]
		return st
	}
	if limits.DeadMax == fewDead {
		return g.death()
	}
	live := len(g.w.in(queues, storage.Waiting, storage.Pending, storage.Scheduled, storage.Retry))
	for {
		var st step
		switch n := g.IntN(100); {
		case n < 20:
			st = g.inserts(live)
		case n < 38:
			st = g.settles()
		case n < 56:
			st = g.mixed()
		case n < 75:
			st = g.claim()
		case n < 80:
			st = g.extend()
		case n < 85:
			st = &advance{grid * time.Duration(pick(g, 1, 1, 1, 2, 3, 5, 10, 15, 60))}
		case n < 91:
			st = g.configure()
		case n < 94 && g.last != nil && g.w.now.Sub(g.last.lane.Opened) < laneUse:
			st = g.last
		case n < 96:
			st = g.outdated()
		case n < 97:
			st = g.across()
		case n < 98:
			st = g.refusal()
		case n < 99:
			st = pick[func() step](g, g.clash, g.jump)()
		default:
			st = &read{g.anyRef(all)}
		}
		if st != nil {
			return st
		}
	}
}

// domain returns queues that can share a Tx in every storage.
func (g *generator) domain() []string {
	if g.chance(60) {
		return together
	}
	return []string{pick(g, apart...)}
}

// anyRef returns a reference, in most cases to a task that exists.
func (g *generator) anyRef(names []string) storage.Ref {
	if found := g.w.in(names, storage.States()...); len(found) > 0 && g.chance(90) {
		return pick(g, found...).Ref
	}
	return storage.Ref{Queue: pick(g, names...), ID: g.taskID()}
}

func (g *generator) taskID() string { return fmt.Sprint("t", g.IntN(60)) }

// inserts returns a call that inserts a few tasks, sometimes many, or nil if there are many
// tasks already.
func (g *generator) inserts(live int) step {
	if live > 90 {
		return nil
	}
	if g.chance(3) {
		return g.bulkInsert()
	}
	a := &apply{spanning: -1}
	for range 1 + g.IntN(3) {
		var x tx
		domain := g.domain()
		for range 1 + g.IntN(3) {
			x = g.add(x, op{insert: g.insert(pick(g, domain...))})
		}
		a.txs = append(a.txs, x)
	}
	return g.sealed(a)
}

// bulkInsert returns a call of so many plain inserts that the storages use their bulk path.
func (g *generator) bulkInsert() step {
	a := &apply{spanning: -1}
	queue, divided, costs := pick(g, queues...), g.chance(50), g.chance(50)
	for range 100 + g.IntN(20) {
		g.bulk++
		in := &storage.Insert{
			Ref: storage.Ref{Queue: queue, ID: fmt.Sprint("bulk", g.bulk)}, Kind: "k0", Encoding: "e", Payload: []byte("b"),
			CrashLimit: 3,
		}
		if divided {
			in.Partition = g.partition()
		}
		if costs {
			in.Cost = g.cost()
		}
		a.txs = append(a.txs, tx{{insert: in}})
	}
	return g.sealed(a)
}

// sealed adds an identity to a call, in most cases.
func (g *generator) sealed(a *apply) step {
	if g.chance(90) {
		a.call = g.call("apply", a.queues())
	} else {
		g.last = nil
	}
	return a
}

// add adds an operation, unless the Tx already names its task.
func (g *generator) add(x tx, o op) tx {
	named := map[storage.Ref]bool{}
	for i := range x {
		for _, ref := range names(&x[i]) {
			named[ref] = true
		}
	}
	for _, ref := range names(&o) {
		if named[ref] {
			return x
		}
	}
	return append(x, o)
}

// names returns the references that an operation names.
func names(o *op) []storage.Ref {
	refs := []storage.Ref{o.ref()}
	if o.change != nil && o.change.Queue != "" && o.change.Queue != o.change.Ref.Queue {
		refs = append(refs, storage.Ref{Queue: o.change.Queue, ID: o.change.Ref.ID})
	}
	return refs
}

func (g *generator) insert(queue string) *storage.Insert {
	in := &storage.Insert{
		Ref: storage.Ref{Queue: queue, ID: g.taskID()}, Kind: "k0", Encoding: "e", Payload: g.payload(),
		Priority: g.priority(), MaxRetries: g.IntN(4), CrashLimit: 1 + g.IntN(3), Headers: g.headers(),
		Cost: g.cost(),
	}
	switch g.IntN(8) {
	case 0, 1:
		in.Delay = g.delay()
	case 2:
		in.At = g.at()
	}
	if g.chance(25) {
		in.Kind = pick(g, kinds...)
	}
	if g.chance(40) {
		in.Keep = storage.Keep{For: g.halved(5, 80), UntilRead: g.chance(20)}
	}
	if g.chance(10) {
		in.Keep, in.Timeout = storage.Keep{UntilRead: true}, time.Minute
	}
	if g.chance(30) {
		in.Unique = storage.Unique{Key: fmt.Sprint("key", g.IntN(4)), Mode: storage.UniqueLife}
		if g.chance(40) {
			in.Unique.Mode, in.Unique.For = storage.UniqueWindow, g.halved(2, 40)
		}
	}
	in.OnConflict = pick(g, storage.Skip, storage.Refuse, "")
	if g.chance(40) {
		in.Partition = g.partition()
	}
	return in
}

// partition returns the key of one of a few partitions, some of which have many tasks.
func (g *generator) partition() string { return pick(g, slices.Concat(partitions, partitions[:1])...) }

// cost returns the cost of a start, rarely more than the N of any rate.
func (g *generator) cost() storage.Cost {
	return pick[storage.Cost](g, 0, 0, 0, 0, storage.NoCost, 2, 3, 6, 20)
}

// payload returns one of a few payloads, so that repeated inserts are often alike. It is
// rarely large.
func (g *generator) payload() []byte {
	switch n := g.IntN(20); {
	case n == 0:
		return []byte(strings.Repeat("large ", 1000))
	case n < 4:
		return []byte("other")
	}
	return []byte("p")
}

func (g *generator) headers() map[string]string {
	if g.chance(80) {
		return nil
	}
	if g.chance(30) {
		return map[string]string{storage.DeadlineHeader: g.at().Format(time.RFC3339Nano)}
	}
	return map[string]string{"h": pick(g, "", "1", "ü"), "x": "y"}
}

func (g *generator) priority() int { return pick(g, 0, 0, 0, 0, 0, -9, -1, 1, 5, 9) }

// at returns a moment, rarely a past one, and often the same for many tasks. It is a second
// before the moments that a delay leads to.
func (g *generator) at() time.Time {
	if g.chance(20) {
		return g.w.now.Add(-g.halved(1, 10))
	}
	since := g.w.now.Sub(begin).Truncate(8 * grid)
	return begin.Add(since + time.Duration(1+g.IntN(4))*8*grid + grid/2 - time.Second)
}

// settles returns a call that ends claims, sometimes with follow-ups.
func (g *generator) settles() step {
	a := &apply{spanning: -1}
	for range 1 + g.IntN(3) {
		domain := g.domain()
		var x tx
		for range 1 + g.IntN(2) {
			if o, ok := g.settle(domain); ok {
				x = g.add(x, o)
			}
		}
		if len(x) > 0 && g.chance(30) {
			x = g.add(x, op{insert: g.insert(pick(g, domain...))})
		}
		if len(x) > 0 {
			a.txs = append(a.txs, x)
		}
	}
	if len(a.txs) == 0 {
		return nil
	}
	return g.sealed(a)
}

// settle returns an operation that ends a claim. Rarely its fence is an old one, or was
// never valid.
func (g *generator) settle(domain []string) (op, bool) {
	se := &storage.Settle{Outcome: pick(g, storage.Complete, storage.Complete, storage.Complete, storage.Fail, storage.Fail,
		storage.Fail, storage.Snooze, storage.Release, storage.Bury, storage.Cancel)}
	if g.chance(25) {
		se.Outcome = storage.Decline
	}
	pending, keeps := g.w.in(domain, storage.Pending), false
	switch {
	case g.chance(5):
		se.Fence.Ref = g.anyRef(domain)
	case len(pending) == 0:
		return op{}, false
	default:
		t := pick(g, pending...)
		se.Fence.Ref = t.Ref
		keeps = t.Keep != storage.Keep{} // otherwise a result is kept for an hour, a multiple of the grid
	}
	switch se.Outcome {
	case storage.Complete:
		if keeps && g.chance(40) {
			se.Result = []byte(pick(g, "", "result"))
		}
	case storage.Fail, storage.Snooze:
		if g.chance(80) {
			se.Delay = g.delay()
		}
	case storage.Release:
		if g.chance(75) {
			se.Delay = g.apart(20)
		}
	default:
	}
	if se.Outcome == storage.Bury || se.Outcome == storage.Snooze && g.chance(50) {
		se.Reason = pick(g, "", "refused")
	}
	if se.Outcome == storage.Fail || se.Outcome == storage.Bury || se.Outcome == storage.Cancel {
		se.Error, se.Stack = pick(g, "", "oops", strings.Repeat("long ", 300)), pick(g, "", "at main.go:1")
		se.As = pick(g, "", storage.AttemptTimedOut, storage.AttemptPanicked, storage.AttemptExpired, storage.AttemptUndecodable)
	}
	o := op{settle: se}
	if g.chance(6) {
		o.back = 1 + g.IntN(2)
	}
	return o, true
}

// mixed returns a call whose Txs do everything that a Tx can do.
func (g *generator) mixed() step {
	a := &apply{spanning: -1}
	for range 1 + g.IntN(3) {
		domain := g.domain()
		var x tx
		for range 1 + g.IntN(3) {
			if o, ok := g.operation(domain); ok {
				x = g.add(x, o)
			}
		}
		if g.chance(8) {
			x = g.replacement(x, pick(g, domain...))
		}
		if len(x) > 0 {
			a.txs = append(a.txs, x)
		}
	}
	if len(a.txs) == 0 {
		return nil
	}
	return g.sealed(a)
}

func (g *generator) operation(domain []string) (op, bool) {
	ref := g.anyRef(domain)
	o := op{}
	if g.chance(6) {
		o.back = 1 + g.IntN(2)
	}
	switch n := g.IntN(20); {
	case n < 3:
		return op{insert: g.insert(pick(g, domain...))}, true
	case n < 5:
		return g.settle(domain)
	case n == 5:
		o.depend = &storage.Depend{Ref: ref}
	case n < 8:
		o.delete = &storage.Delete{Ref: ref}
	case n == 8:
		return op{insert: g.cursor(pick(g, domain...))}, true
	case n < 11:
		return g.tick(domain)
	case n < 13:
		return op{change: &storage.Change{Ref: ref, Cancel: true}}, true
	default:
		ch, ok := g.change(ref, domain)
		o.change = ch
		return o, ok
	}
	return o, true
}

// change returns a change of a task. Most changes that the state of the task does not permit
// are left out.
func (g *generator) change(ref storage.Ref, domain []string) (*storage.Change, bool) {
	ch := &storage.Change{Ref: ref}
	ended := slices.ContainsFunc(g.w.in([]string{ref.Queue}, storage.Completed, storage.Cancelled, storage.Dead),
		func(t storage.Task) bool { return t.Ref == ref })
	switch n := g.IntN(12); {
	case ended && n < 7:
		ch.Requeue = true
		if g.chance(30) {
			ch.Delay = g.delay()
		}
	case n < 3:
		ch.Now = true
	case n < 4:
		ch.Delay = g.delay()
	case n < 5:
		ch.At = g.at()
	case n < 6:
		ch.Delay = pick[time.Duration](g, 1, 999)
	case n < 9:
		ch.Queue = pick(g, domain...)
	}
	if g.chance(40) {
		p := g.priority()
		ch.Priority = &p
	}
	if g.chance(20) {
		key := pick(g, append(slices.Clone(partitions), "")...)
		ch.Partition = &key
	}
	if g.chance(25) {
		c := g.cost()
		ch.Cost = &c
	}
	if g.chance(25) {
		ch.Encoding, ch.Payload = "e2", g.payload()
	}
	if g.chance(20) {
		if ch.Headers = g.headers(); ch.Headers == nil {
			ch.Headers = map[string]string{"changed": "1"}
		}
	}
	ch.FromStart = (ch.Requeue || ch.Now) && g.chance(30)
	cursor := strings.HasPrefix(ref.ID, storage.CursorPrefix)
	if cursor {
		ch.Queue, ch.Now, ch.Delay, ch.At, ch.Requeue, ch.FromStart = "", false, 0, time.Time{}, false, false
	}
	return ch, !cursor || ch.Priority != nil || ch.Partition != nil || ch.Cost != nil || ch.Encoding != ""
}

// cursor returns an insert that declares a schedule.
func (g *generator) cursor(queue string) *storage.Insert {
	in := &storage.Insert{
		Ref: storage.Ref{Queue: queue, ID: storage.CursorPrefix + fmt.Sprint("c", g.IntN(3))}, Kind: "tick",
		Encoding: "e", Payload: []byte("tick"), Priority: g.priority(), CrashLimit: 1, Cursor: g.schedule(), Cost: g.cost(),
	}
	if g.chance(20) {
		in.Partition = g.partition()
	}
	return in
}

func (g *generator) schedule() *storage.Cursor {
	c := &storage.Cursor{
		Next:        g.w.now.Add(g.halved(1, 30)),
		Declaration: pick(g, `{"spec":"every 1m"}`, `{"spec":"every 2m","zone":"Europe/Paris"}`, "garbage"),
	}
	if g.chance(20) {
		c.Next = time.Time{}
	}
	return c
}

// tick returns an operation that moves a cursor, in most cases a due cursor, to its next moment.
func (g *generator) tick(domain []string) (op, bool) {
	cursors := g.w.in(domain, storage.Cursors)
	if len(cursors) == 0 {
		return op{}, false
	}
	t := pick(g, cursors...)
	if t.Cursor.Next.After(g.w.now) && g.chance(60) {
		return op{}, false
	}
	next := *t.Cursor
	next.Last, next.Next = next.Next, g.w.now.Add(g.halved(1, 30))
	return op{change: &storage.Change{Ref: t.Ref, Cursor: &next}}, true
}

// replacement adds the deletion of a cursor and the insert of another in its place.
func (g *generator) replacement(x tx, queue string) tx {
	in := g.cursor(queue)
	n := len(x)
	if x = g.add(x, op{delete: &storage.Delete{Ref: in.Ref}}); len(x) > n {
		x = append(x, op{insert: in})
	}
	return x
}
