package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func shareClockAhead(r *rig) {
	if !r.jumps() {
		return
	}
	r.addKeyed("a", 1)
	r.add("x")
	holds := r.gets("at first", ask(9), "x", "a0")
	r.settle(holds[0], storage.Settle{Outcome: storage.Release, Delay: time.Hour})
	r.settle(holds[1], storage.Settle{Outcome: storage.Release, Delay: time.Hour})
	rests := r.partition("a").Rests
	r.Jump(far)
	for range 3 {
		c := r.nothing("while the clock is ahead")
		r.between("NextDue", c.NextDue, c.Now, c.Now.Add(storage.JumpWait))
		r.pass(200 * time.Millisecond)
	}
	r.Jump(-far)
	c := r.nothing("when it is right again")
	r.between("NextDue", c.NextDue, rests.Add(-time.Minute), rests)
	r.want("rests", r.partition("a").Rests.Equal(rests), true)
	r.Jump(far)
	r.nothing("when it has jumped for good")
	r.pass(storage.JumpWait + time.Millisecond)
	r.want("claimed after the wait", len(r.finish(9)), 2)
}

func shareClockAheadRate(r *rig) {
	if !r.jumps() {
		return
	}
	r.configure(inEach(0, storage.Rate{N: 1, Per: time.Hour}))
	r.addKeyed("a", 2)
	r.addKeyed("b", 1)
	r.want("claimed at first", r.finish(1), []string{"a0"})
	r.Jump(far)
	r.want("claimed of another while the clock is ahead", r.finish(9), []string{"b0"})
	for range 3 {
		c := r.nothing("while the clock is ahead")
		r.between("NextDue", c.NextDue, c.Now, c.Now.Add(storage.JumpWait))
		r.counted("while the clock is ahead", "a", 0, 1)
		r.pass(200 * time.Millisecond)
	}
	r.Jump(-far)
	r.nothing("when it is right again")
	r.counted("when it is right again", "a", 0, 1)
}

// aheadOf starts a task of a partition under a rate while the clock is ahead, and sets the clock right.
func (r *rig) aheadOf(per time.Duration) {
	r.Helper()
	r.pace.rely(per)
	r.configure(inEach(0, storage.Rate{N: 1, Per: per}))
	r.addKeyed("a", 3)
	r.want("claimed at first", r.finish(9), []string{"a0"})
}

func shareClockBack(r *rig) {
	if !r.jumps() {
		return
	}
	const per = 2 * time.Second
	r.aheadOf(per)
	r.Jump(-far)
	c := r.nothing("after the clock was set back")
	r.between("NextDue", c.NextDue, c.Now, c.Now.Add(per+per/storage.RateParts))
	r.counted("after the clock was set back", "a", 0, 1)
	r.pass(per + per/storage.RateParts + 10*time.Millisecond)
	r.want("claimed a span later", r.finish(9), []string{"a1"})
	r.nothing("after one start")
}

func shareClockBackRate(r *rig) {
	if !r.jumps() {
		return
	}
	const per = 2 * time.Second
	r.aheadOf(per)
	r.addKeyed("c", 1)
	r.want("claimed of one without other tasks", r.finish(9), []string{"c0"})
	r.nothing("so that the partition rests")
	r.Jump(-far)
	r.addKeyed("b", 1)
	r.want("claimed of another", r.finish(9), []string{"b0"})
	r.pass(per + per/storage.RateParts + 10*time.Millisecond)
	r.want("claimed a span later", r.finish(9), []string{"a1"})
	r.maintain()
	r.want("partitions a span later", r.keys(), []string{"a"})
}

func shareClockBackOthers(r *rig) {
	if !r.jumps() {
		return
	}
	r.addKeyed("a", 1)
	h := r.take(ask(1), "a0")
	r.settle(h, storage.Settle{Outcome: storage.Release, Delay: time.Hour})
	rests := r.partition("a").Rests
	r.Jump(-far)
	r.addKeyed("b", 1)
	r.add("x")
	r.want("claimed beside the rest", r.finish(9), []string{"x", "b0"})
	r.want("rests", r.partition("a").Rests.Equal(rests), true)
	r.Jump(far)
	r.pass(storage.JumpWait + time.Millisecond)
	r.nothing("when the clock is right again")
	r.Jump(far)
	r.nothing("when it has jumped for good")
	r.pass(storage.JumpWait + time.Millisecond)
	r.want("claimed after the rest", r.finish(9), []string{"a0"})
}
