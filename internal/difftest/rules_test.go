package difftest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// claim returns a claim. From queues that share a slot it asks for any number of tasks. Across
// slots, where the order is best effort, it asks for so many that only the Max of each queue
// limits them.
func (g *generator) claim() step {
	req := storage.ClaimRequest{
		Runner: fmt.Sprint("runner-", g.IntN(3)), Token: storage.Token(g.id()), Lease: g.halved(2, 30),
	}
	var names []string
	if g.chance(75) {
		names = append(names, g.domain()...)
		most := g.IntN(7)
		req.Start = g.IntN(most + 1)
		req.Suspect = g.chance(50)
		if g.chance(50) {
			req.Start = most
		}
		req.Ahead = most - req.Start
	} else {
		names = append(names, queues...)
		req.Start = pick(g, 0, 500)
		req.Ahead = 500 - req.Start
	}
	g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		q := storage.ClaimQueue{Name: name}
		switch {
		case req.Most() == 500:
			q.Max = pick(g, -1, 1, 1, 2, 3, 5)
		case g.chance(40):
			q.Max = pick(g, -1, 1, 2)
		}
		req.Queues = append(req.Queues, q)
	}
	req.Kinds = pick(g, nil, kinds[:1], kinds[:1], kinds[1:], kinds[2:], []string{"k9"})
	if g.chance(90) {
		req.Call = g.call("claim", names)
		g.last.reads, g.last.idle = names, req.Most() == 0
	} else {
		g.last = nil
	}
	return &claim{req}
}

// extend returns a call that extends some leases, rarely lost ones, and may report a runner.
func (g *generator) extend() step {
	e := &extend{}
	seen := map[storage.Ref]bool{}
	var names []string
	for range g.IntN(5) {
		x := storage.Extension{Fence: storage.Fence{Ref: g.anyRef(queues)}, Started: g.chance(60)}
		if pending := g.w.in(queues, storage.Pending); len(pending) > 0 && g.chance(90) {
			x.Fence.Ref = pick(g, pending...).Ref
		}
		if seen[x.Fence.Ref] {
			continue
		}
		seen[x.Fence.Ref] = true
		if g.chance(80) {
			x.For = g.halved(2, 30)
		}
		if g.chance(20) {
			x.Progress = []byte(pick(g, "", "half"))
		}
		if g.chance(20) {
			x.Checkpoint = []byte(pick(g, "", "page 7", string(g.payload())))
		}
		back := 0
		if g.chance(6) {
			back = 1
		}
		e.req.Leases, e.back = append(e.req.Leases, x), append(e.back, back)
		names = append(names, x.Fence.Queue)
	}
	if g.chance(40) {
		e.req.Runner = storage.RunnerInfo{
			ID: fmt.Sprint("runner-", g.IntN(3)), Host: "h", PID: 7, Version: "v1", Queues: queues, Concurrency: 4,
			Started: begin, For: g.halved(2, 40), Leaving: g.chance(15),
		}
		e.req.Runner.Kinds = pick(g, nil, kinds)
	}
	if len(e.req.Leases) == 0 && e.req.Runner.ID == "" {
		return nil
	}
	e.req.Call = g.call("extend", names)
	return e
}

// partsPer is the Per of rates whose parts are as long as a step of the clock, so that each ends between two steps.
const partsPer = storage.RateParts * grid

// per returns the Per of the rates of a queue's partitions. It is always the same: if it were raised, starts that have
// ceased to count could count again on some sides.
func per(queue string) time.Duration {
	if queue == together[0] || queue == apart[0] {
		return storage.MaxPer
	}
	return partsPer
}

// limit returns a limit of a queue, of its partitions, or both. Its rates do not depend on the short time that a step
// takes: see partsPer, or Per is longer than the steps of a sequence.
func (g *generator) limit(queue string) (l storage.Limit) {
	partitions := g.chance(60)
	if !partitions || g.chance(30) {
		l = pick(g,
			storage.Limit{}, storage.Limit{Concurrency: 1}, storage.Limit{Concurrency: 2}, storage.Limit{Concurrency: 5},
			storage.Limit{Rate: storage.Rate{N: 3, Per: storage.MaxPer}},
			storage.Limit{Concurrency: 3, Rate: storage.Rate{N: 8, Per: storage.MaxPer}},
			storage.Limit{Rate: storage.Rate{N: 30, Per: storage.MaxPer}},
		)
	}
	if partitions {
		l.Partition = g.partitionLimit(queue)
	}
	return l
}

// partitionLimit returns a limit of the partitions of a queue, or of one.
func (g *generator) partitionLimit(queue string) storage.PartitionLimit {
	rate := func(n int) storage.Rate { return storage.Rate{N: n, Per: per(queue)} }
	l := pick(g,
		storage.PartitionLimit{Concurrency: 1}, storage.PartitionLimit{Concurrency: 1},
		storage.PartitionLimit{Concurrency: 2}, storage.PartitionLimit{Rate: rate(3)},
		storage.PartitionLimit{Concurrency: 2, Rate: rate(6)},
		storage.PartitionLimit{Rate: rate(5)},
		storage.PartitionLimit{Weight: 2}, storage.PartitionLimit{Weight: 5, Concurrency: 4},
	)
	if g.chance(20) {
		l.Weight = 1 + g.IntN(4)
	}
	return l
}

// dividedFirst returns steps that bound the partitions of two queues.
func (g *generator) dividedFirst() (plan []step) {
	for i, l := range []storage.PartitionLimit{{Concurrency: 1}, {Rate: storage.Rate{N: 3, Per: partsPer}}} {
		s := storage.Settings{Limit: &storage.OperatorLimit{On: true, Limit: storage.Limit{Partition: l}}}
		plan = append(plan, &configure{call: g.call("configure", apart[i:i+1]), queue: apart[i], settings: s})
	}
	return plan
}

// limiting returns a change of the limits of a queue.
func (g *generator) limiting(queue string) (s storage.Settings) {
	if g.chance(60) {
		s.Limit = &storage.OperatorLimit{On: g.chance(75)}
		if s.Limit.On {
			s.Limit.Limit = g.limit(queue)
		}
	}
	if s.Limit == nil || g.chance(20) {
		s.Declared = &storage.DeclaredLimit{Limit: g.limit(queue)}
		for range g.IntN(3) {
			if l := g.limit(queue); !s.Declared.Limit.IsZero() && !l.IsZero() {
				s.Declared.Replaced = append(s.Declared.Replaced, l)
			}
		}
	}
	return s
}

// dividing returns a change that pauses or resumes a partition, or sets or clears its own limit.
func (g *generator) dividing(queue string) storage.Settings {
	s := storage.Settings{Partition: g.partition()}
	if g.chance(40) {
		s.Limit = &storage.OperatorLimit{On: g.chance(60)}
		if s.Limit.On && g.chance(85) {
			s.Limit.Limit.Partition = g.partitionLimit(queue)
		}
		return s
	}
	s.Pause = new(storage.Pause)
	if s.Pause.On = g.chance(50); s.Pause.On && g.chance(80) {
		s.Pause.For = g.apart(20)
	}
	return s
}

// configure returns a step that pauses, resumes or removes a queue, pauses or resumes a partition, or changes
// limits.
func (g *generator) configure() step {
	resume := storage.Settings{Pause: &storage.Pause{}}
	c := &configure{queue: pick(g, queues...), settings: resume}
	switch n := g.IntN(30); {
	case n >= 20:
		c.settings = g.dividing(c.queue)
	case n >= 18: // else many queues would stand still for good
		c.settings = storage.Settings{Limit: &storage.OperatorLimit{}, Declared: &storage.DeclaredLimit{}}
	case n >= 10:
		c.settings = g.limiting(c.queue)
	case n < 3:
		c.settings = storage.Settings{Pause: &storage.Pause{On: true, For: g.halved(1, 20)}}
	case n == 3:
		c.settings = storage.Settings{Pause: &storage.Pause{On: true}}
	case n == 4:
		c.settings = storage.Settings{Remove: true}
	case n == 5:
		c.queue, c.settings = removed, storage.Settings{Remove: true}
	case n == 6:
		c.queue, c.settings = removed, storage.Settings{Pause: &storage.Pause{On: true}}
	case n == 7: // put a task into the queue
		return g.sealed(&apply{spanning: -1, txs: []tx{{{insert: g.insert(removed)}}}})
	case n == 8:
		if found := g.w.in([]string{removed}, storage.Waiting, storage.Scheduled, storage.Dead); len(found) > 0 {
			gone := &storage.Delete{Ref: pick(g, found...).Ref}
			return g.sealed(&apply{spanning: -1, txs: []tx{{{delete: gone}}}})
		}
	}
	c.call = g.call("configure", []string{c.queue})
	return c
}

// outdated returns a call that its lane rejects. The caller does not know its outcome, so a queue
// that was not listed could be listed afterwards; therefore it uses a listed queue.
func (g *generator) outdated() step {
	queue := pick(g, queues...)
	if !g.w.lists(queue) {
		return nil
	}
	a := &apply{txs: []tx{{{insert: g.insert(queue)}}}, spanning: -1}
	g.last = nil
	ln := g.lanes[fmt.Sprint("apply", []string{queue})]
	if ln != nil && ln.seq > 1 && g.w.now.Sub(ln.Opened) < laneUse && g.chance(50) {
		a.call = storage.Call{Lane: ln.Lane, Seq: ln.seq - 1}
		return a
	}
	opened := g.w.now.Add(-storage.LaneLife - grid - g.halved(0, 12))
	a.call = storage.Call{Lane: storage.Lane{ID: g.id(), Opened: opened}, Seq: 1}
	return a
}

// refusal returns a Tx that is refused, in a queue that no other step uses, so that no storage
// may list the queue.
func (g *generator) refusal() step {
	x := tx{{insert: g.insert(unused)}, {depend: &storage.Depend{Ref: storage.Ref{Queue: unused, ID: "nowhere"}}}}
	a := &apply{txs: []tx{x}, spanning: -1}
	g.sealed(a)
	return &refusal{a}
}

// clash returns steps that move a task to a queue in which one task has its id and another its
// unique key.
func (g *generator) clash() step {
	g.bulk++
	id, from := fmt.Sprint("clash", g.bulk), g.IntN(len(together))
	to := together[(from+1)%len(together)]
	holds := func(ref storage.Ref, unique bool) tx {
		in := g.insert(ref.Queue)
		in.Ref, in.Unique = ref, storage.Unique{}
		if unique {
			in.Unique = storage.Unique{Key: id, Mode: storage.UniqueLife}
		}
		return tx{{insert: in}}
	}
	task := storage.Ref{Queue: together[from], ID: id}
	g.plan = append(g.plan, &apply{txs: []tx{{{change: &storage.Change{Ref: task, Queue: to}}}}, spanning: -1})
	return g.sealed(&apply{spanning: -1, txs: []tx{
		holds(task, true), holds(storage.Ref{Queue: to, ID: id}, false), holds(storage.Ref{Queue: to, ID: id + "b"}, true),
	}})
}

// jump returns a step that sets the clocks ahead.
func (g *generator) jump() step { return &jump{grid * time.Duration(pick(g, 80, 100, 250))} }

// across returns a call with a Tx whose queues are in several slots, and which the other storages
// refuse too. The other Txs of the call must be executed.
func (g *generator) across() step {
	refused := tx{
		{insert: g.insert(pick(g, together...))},
		{depend: &storage.Depend{Ref: storage.Ref{Queue: pick(g, apart...), ID: "nowhere"}}},
	}
	a := &apply{txs: []tx{{{insert: g.insert(pick(g, together...))}}, refused, {{insert: g.insert(pick(g, apart...))}}}}
	a.spanning = 1
	return g.sealed(a)
}
