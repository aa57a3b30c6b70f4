package runner

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// shutdownTail is how long jobs get to return once their contexts ended, and the
// last storage calls to go through: Run ends within the grace period and twice this,
// also where the storage is away.
const shutdownTail = time.Second

// graceLeft is how much of the grace period is left of a drain that began so long after the runner was
// made, and a little where nothing is: for calls of hooks.
func (r *Runner) graceLeft(begun time.Duration) time.Duration {
	select {
	case <-r.stop:
		return shutdownTail / 4
	default:
		return max(r.grace-(r.elapsed()-begun), shutdownTail/4)
	}
}

// drain sees running jobs out, and tells how many tasks were left to the expiry of their
// leases. The claimers have been told to end.
func (r *Runner) drain(
	claims *sync.WaitGroup, endJobs context.CancelCauseFunc, hardStop func(),
) (left int, err error) {
	period := r.grace
	select {
	case <-r.stop:
		period = 0
	default:
	}
	grace := time.NewTimer(period)
	defer grace.Stop()
	r.released.Store(0)
	r.log.draining(r.id, r.slots.drain(), period)
	ended := make(chan struct{})
	go func() { // ends when the claimers have, and every task in flight is settled
		claims.Wait()
		r.releaseAll(r.slots.removeAllAhead(nil))
		r.slots.waitEmpty()
		close(ended)
	}()
	select {
	case <-ended:
		return 0, nil
	case <-grace.C:
	case <-r.stop:
	}
	endJobs(ErrShutdown)
	tail := time.NewTimer(shutdownTail)
	defer tail.Stop()
	select {
	case <-ended:
		return 0, nil
	case <-tail.C:
	}
	outlived := 0
	for _, a := range r.slots.inFlight.snapshot(nil) {
		if a.abandon() {
			outlived++
			r.slots.abandoned()
			r.release(a)
		}
	}
	tail.Reset(shutdownTail / 2)
	select {
	case <-ended:
	case <-tail.C: // the storage is away: the leases will expire
		hardStop()
		left = r.slots.giveUp()
		<-ended
	}
	outlived = max(outlived, r.slots.busy()) // one whose lease was lost may be in flight no more
	if outlived > 0 {
		return left, fmt.Errorf("%w: %d still run", ErrGraceExceeded, outlived)
	}
	return left, nil
}
