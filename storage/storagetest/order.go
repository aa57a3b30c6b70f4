package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func orderRules() []rule {
	return []rule{
		state("order/first in first out", orderFIFO,
			"Tasks of one priority are claimed first in, first out, those of one Tx in its order."),
		state("order/priority", orderPriority,
			"Waiting tasks are claimed by priority, highest first, then first in, first out."),
		state("order/released to the head", orderReleased,
			"What is released goes to the head of its priority."),
		state("order/recovered to the head", orderRecovered,
			"What is recovered goes to the head of its priority."),
		state("order/promoted to the tail", orderPromoted,
			"What is retried, snoozed or scheduled joins the tail of its priority when it is promoted."),
		state("order/requeued to the tail", orderRequeued,
			"What is requeued joins the tail of its priority."),
		state("order/re-prioritised to the tail", orderReprioritised,
			"What gets a new priority joins the tail of that priority."),
		state("order/kept by other changes", orderKept,
			"A change of payload or headers leaves a waiting task where it is."),
		state("order/earlier due first", orderDue,
			"Tasks due earlier are promoted first."),
		state("order/queues in turn", orderQueues,
			"A Claim empties its first queue before it takes from the second."),
	}
}

func prioritised(id string, priority int) storage.Insert {
	j := job(id)
	j.Priority = priority
	return j
}

func orderFIFO(r *rig) {
	r.add("c", "a")
	r.insert(job("e"), job("b"))
	r.add("d")
	r.take(ask(1), "c")
	r.want("claimed", r.drain(), []string{"a", "e", "b", "d"})
}

func orderPriority(r *rig) {
	for id, p := range map[string]int{"low": -9, "under": -1, "over": 1, "high": 9} {
		r.insert(prioritised(id, p))
	}
	r.insert(prioritised("zero1", 0), prioritised("zero2", 0), prioritised("high2", 9))
	r.want("claimed", r.drain(), []string{"high", "high2", "over", "zero1", "zero2", "under", "low"})
}

func orderReleased(r *rig) {
	r.add("a", "b")
	r.insert(prioritised("urgent", 5))
	r.take(ask(1), "urgent")
	h := r.take(ask(1), "a")
	r.add("c")
	r.insert(prioritised("urgent2", 5))
	r.end(h, storage.Release)
	r.want("claimed", r.drain(), []string{"urgent2", "a", "b", "c"})
}

func orderRecovered(r *rig) {
	r.add("a", "b")
	h := r.take(brief(1), "a")
	r.insert(prioritised("urgent", 5), job("c"))
	r.expire(h)
	r.want("claimed", r.drain(), []string{"urgent", "a", "b", "c"})
}

func orderPromoted(r *rig) {
	const delay = 50 * time.Millisecond
	r.add("failed", "snoozed")
	failed, snoozed := r.take(ask(1), "failed"), r.take(ask(1), "snoozed")
	r.add("a", "b")
	r.insert(delayed("scheduled", delay))
	r.pass(time.Millisecond)
	r.settle(snoozed, storage.Settle{Outcome: storage.Snooze, Delay: delay})
	r.pass(time.Millisecond)
	r.settle(failed, storage.Settle{Outcome: storage.Fail, Delay: delay})
	r.passTo(r.read("failed").Due)
	r.want("claimed", r.drain(), []string{"a", "b", "scheduled", "snoozed", "failed"})
}

func orderRequeued(r *rig) {
	r.bury(job("dead"))
	r.insert(delayed("scheduled", time.Hour))
	r.add("a", "b")
	r.changeNow("dead", storage.Change{Requeue: true})
	r.changeNow("scheduled", storage.Change{Now: true})
	r.add("c")
	r.want("claimed", r.drain(), []string{"a", "b", "dead", "scheduled", "c"})
}

func orderReprioritised(r *rig) {
	five, zero := 5, 0
	r.add("a", "b", "c")
	r.insert(prioritised("five", 5))
	r.changeNow("b", storage.Change{Priority: &five})
	r.changeNow("five", storage.Change{Priority: &zero})
	r.want("claimed", r.drain(), []string{"b", "a", "c", "five"})
}

func orderKept(r *rig) {
	r.add("a", "b")
	r.changeNow("a", storage.Change{Headers: map[string]string{"x": "y"}})
	r.changeNow("a", storage.Change{Encoding: "raw", Payload: []byte("new")})
	r.want("claimed", r.drain(), []string{"a", "b"})
}

func orderDue(r *rig) {
	// A whole second, late enough that even a slow machine has inserted all tasks by then.
	from := r.now().Add(2 * time.Second).Truncate(time.Second)
	at := func(id string, after time.Duration) {
		j := job(id)
		j.At = from.Add(after)
		r.insert(j)
	}
	at("third", 20*time.Millisecond)
	at("first", 0)
	at("second", 10*time.Millisecond)
	for _, id := range []string{"first", "second", "third"} {
		r.passTo(r.read(id).Due)
	}
	r.want("claimed", r.drain(), []string{"first", "second", "third"})
}

func orderQueues(r *rig) {
	for _, id := range []string{"a", "b", "c"} {
		first, second := job(id), job(id)
		first.Ref.Queue, second.Ref.Queue = sideQueue, mainQueue
		second.Priority = 9
		r.insert(second)
		r.insert(first)
	}
	if !storage.Spans(r.store, mainQueue, sideQueue) {
		r.Log("not tested: the order across queues that do not span is best effort")
		return
	}
	req := ask(5)
	req.Queues = []storage.ClaimQueue{{Name: sideQueue}, {Name: mainQueue}}
	var got []string
	for _, h := range r.hold(req, 5) {
		got = append(got, h.Ref.String())
	}
	r.want("claimed", got, []string{"side/a", "side/b", "side/c", "main/a", "main/b"})
}
