package storagetest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// boundedCostLineRules state that nothing cheaper overtakes a task whose cost the rate does not admit yet.
func boundedCostLineRules() []rule {
	return []rule{
		state("bounded/cost holds the line back", costLine,
			"A task whose cost the rate does not admit holds back the tasks behind it, even those that cost nothing. "+
				"A task of a higher priority comes first."),
		state("bounded/cost and partitions", costPartitions,
			"A task whose cost the rate does not admit holds back the tasks of other partitions that come after it "+
				"in the ring, and no turn is lost meanwhile."),
		state("bounded/cost and kinds", costKinds,
			"A declined task whose cost the rate does not admit holds back the other tasks of a Claim that knows its "+
				"kind, and of no other Claim."),
		state("bounded/cost and suspects", costSuspects,
			"A task that a Claim may not take holds nothing back in it, whatever it costs: a suspect, or a task of a "+
				"paused partition."),
		state("bounded/cost and suspects of two queues", costTwoSuspects(""),
			"A suspect whose cost the rate does not admit holds back no task of the next Claim if this one has taken "+
				"a suspect of another queue. Only the other tasks of the queue decide whether Bounded names it, and "+
				"count for More."),
		state("bounded/cost and suspects of partitions", costTwoSuspects("a"),
			"The same holds if these tasks have a partition."),
		state("bounded/cost and other queues", costQueues,
			"A task whose cost the rate does not admit holds back no task of another queue."),
		state("bounded/cost and more", costMore,
			"Bounded names the queue whose next task the rate does not admit, also where the Claim took tasks, and "+
				"its tasks do not count for More."),
		state("bounded/cost of a damaged task", costDamaged,
			"A record that cannot be read holds nothing back and is charged nothing."),
	}
}

// fourLeft sets a rate of 14 in an hour, of which 4 are left.
func (r *rig) fourLeft() {
	r.Helper()
	r.hourly(14)
	r.spend(10)
}

func costLine(r *rig) {
	r.fourLeft()
	r.insert(costing(5, "big"), costing(1, "small"), costing(storage.NoCost, "none"))
	r.full("with 4 left")
	for id, p := range map[string]int{"urgent": 1, "idle": -1} {
		j := costing(3, id)
		j.Priority = p
		r.insert(j)
	}
	r.want("claimed with 4 left", ids(r.claim(ask(9)).Tasks), []string{"urgent"})
	r.hourly(13 + 4)
	r.full("with 4 left again")
	r.hourly(13 + 5)
	r.want("claimed with 5 left", ids(r.claim(ask(9)).Tasks), []string{"big"})
	r.full("with none left")
	r.hourly(18 + 3)
	r.want("claimed with 3 left", ids(r.claim(ask(9)).Tasks), []string{"small", "none"})
	r.full("with 2 left")
	r.changeNow("idle", repriced(2))
	r.want("claimed once it costs less", ids(r.claim(ask(9)).Tasks), []string{"idle"})
}

func costPartitions(r *rig) {
	cheap, big := keyed("b", "b0"), keyed("a", "a0")
	big.Cost = 5
	r.fourLeft()
	r.insert(big, cheap, keyed("a", "a1"))
	r.full("with 4 left")
	r.add("x", "y")
	r.want("claimed with 4 left", ids(r.claim(ask(9)).Tasks), []string{"x"})
	r.full("with 3 left")
	r.inLine("while it is held back", "a", "a0", "a1")
	r.inLine("while it is held back", "b", "b0")
	urgent := keyed("a", "urgent")
	urgent.Priority, urgent.Cost = 1, 2
	r.insert(urgent)
	r.want("claimed of the same partition", ids(r.claim(ask(1)).Tasks), []string{"urgent"})
	r.want("claimed after it", ids(r.claim(ask(9)).Tasks), []string{"b0"})
	c := keyed("c", "c0")
	c.Cost = storage.NoCost
	r.insert(c)
	r.hourly(14 + 4)
	r.want("claimed before it", ids(r.claim(ask(9)).Tasks), []string{"y"})
	r.full("with 3 left again")
	r.hourly(15 + 6)
	r.want("claimed with 6 left", ids(r.claim(ask(9)).Tasks), []string{"a0", "c0", "a1"})
}

func costKinds(r *rig) {
	d := of("mail", "d")
	d.Cost = 5
	r.decline(d, of("mail", "e"))
	r.add("x", "y", "z")
	r.configure(limiting(starting(10, time.Hour)))
	urgent := costing(6, "urgent")
	urgent.Priority = 1
	r.insert(urgent)
	r.take(ask(1), "urgent")
	mail := knows(9, "mail")
	for range 2 {
		c := r.claim(mail)
		r.want("claimed with 4 left", ids(c.Tasks), []string{})
		r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
		r.full("for all kinds")
		c = r.claim(knows(1, "news"))
		r.want("claimed by another", len(c.Tasks), 1)
		r.want("bounded by another", len(c.Bounded), 0)
	}
	r.hourly(8 + 5)
	r.want("claimed with 5 left", ids(r.claim(mail).Tasks), []string{"d"})
	r.hourly(13 + 2)
	r.want("claimed at last", ids(r.claim(mail).Tasks), []string{"e", "z"})
}

func costSuspects(r *rig) {
	s := costing(5, "s")
	s.CrashLimit = 2
	r.insert(s)
	r.expire(r.take(brief(1), "s"))
	r.fourLeft()
	r.add("x")
	c := r.claim(asking(9))
	r.want("claimed with a suspect", ids(c.Tasks), []string{})
	r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
	r.take(ask(1), "x")
	a := keyed("a", "a0")
	a.Cost = 5
	r.insert(a, keyed("b", "b0"))
	r.full("with 3 left")
	r.configure(pausingOf("a", 0))
	c = r.claim(ask(1))
	r.want("claimed beside a pause", ids(c.Tasks), []string{"b0"})
	r.want("bounded, more beside a pause", [2]any{len(c.Bounded), c.More}, [2]any{0, false})
	r.hourly(12 + 5)
	r.take(asking(1), "s")
	r.configure(resumingOf("a"))
	r.full("after the resume")
}

func costTwoSuspects(key string) func(*rig) {
	return func(r *rig) {
		if !storage.Spans(r.store, mainQueue, sideQueue) {
			r.Log("not tested: main and side are claimed apart")
			return
		}
		side, lease := maintaining(), brief(1)
		side.Queues, lease.Queues = []storage.ClaimQueue{{Name: sideQueue}}, []storage.ClaimQueue{{Name: sideQueue}}
		there, here := costing(1, "there"), costing(5, "here")
		there.Ref.Queue, there.CrashLimit, here.CrashLimit = sideQueue, 2, 2
		x, dear := costing(1, "x"), costing(5, "dear")
		dear.Priority = -1
		here.Partition, x.Partition, dear.Partition = key, key, key
		r.insert(there, here)
		r.expireBy(r.take(lease, "there"), side)
		r.crash("here")
		r.fourLeft()
		req := asking(9)
		req.Queues = []storage.ClaimQueue{{Name: mainQueue}, {Name: sideQueue}}
		claims := func(when string, bounded int, more bool) {
			r.Helper()
			c := r.claim(req)
			r.want("claimed "+when, ids(c.Tasks), []string{"there"})
			r.want("bounded, more "+when, [2]any{len(c.Bounded), c.More}, [2]any{bounded, more})
			r.end(held{c.Tasks[0], c.Fences[0]}, storage.Release)
		}
		claims("before no task", 0, false)
		r.insert(dear)
		claims("before a dear task", 1, false)
		r.insert(x)
		claims("before a cheap task", 0, true)
		req.Suspect = false
		r.want("claimed next", ids(r.claim(req).Tasks), []string{"x"})
	}
}

func costQueues(r *rig) {
	r.fourLeft()
	r.insert(costing(5, "big"), costing(1, "small"))
	for i := range 3 {
		j := costing(100, fmt.Sprint("s", i))
		j.Ref.Queue = sideQueue
		r.insert(j)
	}
	req := ask(1)
	req.Ahead = 1
	req.Queues = []storage.ClaimQueue{{Name: mainQueue}, {Name: sideQueue}}
	c := r.claim(req)
	r.want("claimed", ids(c.Tasks), []string{"s0", "s1"})
	r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, true})
	c = r.claim(req)
	r.want("claimed", ids(c.Tasks), []string{"s2"})
	r.want("bounded, more", [2]any{c.Bounded, c.More}, [2]any{[]string{mainQueue}, false})
}

func costMore(r *rig) {
	claims := func(what string, req storage.ClaimRequest, tasks int, more, bounded bool) {
		r.Helper()
		c := r.claim(req)
		r.want("claimed, more, bounded "+what, [3]any{len(c.Tasks), c.More, len(c.Bounded)},
			[3]any{tasks, more, map[bool]int{true: 1}[bounded]})
	}
	r.hourly(12)
	r.insert(costing(2, "a"), costing(4, "b"), costing(4, "c"), costing(7, "d"))
	claims("with 12 left", ask(1), 1, true, false)
	claims("with 10 left", ask(1), 1, true, false)
	claims("with 6 left", ask(1), 1, false, true)
	r.hourly(16)
	for _, n := range []int{0, 1, 9} {
		claims(fmt.Sprint("with 6 left by a claim of ", n), ask(n), 0, false, true)
	}
	for _, none := range []int{storage.MaxNone, storage.MaxFull} {
		req := ask(1)
		req.Queues[0].Max = none
		claims(fmt.Sprint("with Max ", none), req, 0, false, false)
	}
	r.configure(storage.Settings{Pause: &storage.Pause{On: true}})
	claims("during a pause", ask(9), 0, false, false)
	r.configure(storage.Settings{Pause: &storage.Pause{}})
	claims("after a pause", ask(9), 0, false, true)
	r.insert(costing(7, "e"))
	r.hourly(18)
	claims("with 8 left by a claim of many", ask(9), 1, false, true)
	r.configure(clearing())
	claims("without a rate", ask(9), 1, false, false)
}

func costDamaged(r *rig) {
	if r.Damage == nil {
		r.Log("not tested: the records of this storage cannot be damaged")
		return
	}
	r.fourLeft()
	r.insert(costing(5, "big"), costing(1, "small"))
	r.full("with 4 left")
	r.Damage(r.TB, in("big"))
	var got []string
	for range 3 { // a storage may end a claim with the record that it sets apart
		got = append(got, ids(r.claim(ask(1)).Tasks)...)
	}
	r.want("claimed", got, []string{"small"})
	r.charged("at the end", 11)
	r.want("damaged", r.stats().Damaged, int64(1))
}
