package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func partitionClockAhead(r *rig) {
	if !r.jumps() {
		return
	}
	r.configure(pausingOf("b", time.Hour))
	r.addKeyed("a", 1)
	r.addKeyed("b", 1)
	r.end(r.take(ask(1), "a0"), storage.Complete)
	until := r.partition("b").PausedUntil
	r.Jump(far)
	for range 3 {
		c := r.nothing("while the clock is ahead")
		r.between("NextDue", c.NextDue, c.Now, c.Now.Add(storage.JumpWait))
		r.pass(200 * time.Millisecond)
	}
	r.Jump(-far)
	c := r.nothing("when it is right again")
	r.want("NextDue", c.NextDue.Equal(until), true)
	p := r.partition("b")
	r.want("paused, until", [2]any{p.Paused, p.PausedUntil.Equal(until)}, [2]any{true, true})
	r.Jump(far)
	r.nothing("when it has jumped for good")
	r.pass(storage.JumpWait + time.Millisecond)
	r.take(ask(1), "b0")
}

func partitionClockBack(r *rig) {
	if !r.jumps() {
		return
	}
	r.addKeyed("a", 4)
	r.add("x", "y", "z")
	r.addKeyed("b", 3)
	r.want("claimed before", r.claims(4), []string{"x", "a0", "b0", "y"})
	r.Jump(-far)
	r.addKeyed("c", 2)
	r.want("claimed by a clock set back", r.claims(5), []string{"a1", "b1", "z", "c0", "a2"})
	r.insert(keyed("d", "d0"), keyed("c", "c2"))
	r.configure(pausingOf("b", 0))
	r.configure(resumingOf("b"))
	r.want("claimed after all", r.drain(), []string{"c1", "a3", "d0", "b2", "c2"})
	r.want("partitions", len(r.keys()), 0)
}
