package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func boundedClockAhead(r *rig) {
	if !r.jumps() {
		return
	}
	r.configure(limiting(starting(1, time.Hour)))
	r.addMany(3)
	h := r.hold(ask(3), 1)[0]
	r.Jump(far)
	for range 3 {
		r.full("while the clock is ahead")
		r.pass(200 * time.Millisecond)
	}
	r.Jump(-far)
	r.full("when it is right again")
	r.end(h, storage.Complete)
	r.full("after the end of the task")
}

func boundedClockBack(r *rig) {
	if !r.jumps() {
		return
	}
	const per = 2 * time.Second
	r.pace.rely(per)
	r.configure(limiting(starting(1, per)))
	r.addMany(3)
	r.hold(ask(3), 1)
	r.Jump(-far)
	c := r.full("after the clock was set back")
	r.between("NextDue", c.NextDue, c.Now, c.Now.Add(per+per/storage.RateParts))
	r.pass(per + per/storage.RateParts + 10*time.Millisecond)
	r.hold(ask(3), 1)
	r.full("after one start")
}

func boundedToldAhead(r *rig) {
	if !r.jumps() {
		return
	}
	r.configure(limiting(starting(1, time.Hour)))
	r.addMany(2)
	r.hold(ask(2), 1)
	r.Jump(far)
	r.full("while the clock is ahead")
	r.want("started", r.stats().Limit.Started, int64(1))
}

func boundedNextAhead(r *rig) {
	if !r.jumps() {
		return
	}
	r.configure(limiting(starting(1, time.Hour)))
	r.addMany(2)
	r.hold(ask(2), 1)
	r.Jump(far)
	c := r.full("while the clock is ahead")
	r.between("NextDue", c.NextDue, c.Now, c.Now.Add(storage.JumpWait))
}

func boundedShorter(r *rig) {
	const per = 2 * time.Second
	r.pace.rely(per)
	r.configure(limiting(starting(1, storage.MaxPer)))
	r.addMany(2)
	r.hold(ask(2), 1)
	r.configure(limiting(starting(1, per)))
	r.full("after the start")
	r.pass(per + per/storage.RateParts + 10*time.Millisecond)
	r.hold(ask(2), 1)
}
