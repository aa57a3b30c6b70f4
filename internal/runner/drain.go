package runner

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// shutdownTail is how long the last calls to the storage may take after the jobs have returned. Run ends
// within the grace period, the time that jobs have to return, and this time, even if the storage is away.
const shutdownTail = time.Second

// hooksTail is how long the calls of hooks may take once the grace period is over.
const hooksTail = shutdownTail / 4

// graceLeft returns how much of the grace period is left for the calls of hooks, at least hooksTail.
// begun is when the drain began, as elapsed time.
func (r *Runner) graceLeft(begun time.Duration) time.Duration {
	return max(r.grace-(r.elapsed()-begun), hooksTail)
}

// awaitTicks receives true once the actors that make ticks have ended, and false if they have not ended for a
// quarter of shutdownTail, because a middleware does not return. The actors then end with the middleware.
func (r *Runner) awaitTicks(ticks *sync.WaitGroup) <-chan bool {
	ended := make(chan bool, 2)
	late := time.AfterFunc(shutdownTail/4, func() { ended <- false })
	go func() { // ends with the actors
		ticks.Wait()
		late.Stop()
		ended <- true
	}()
	return ended
}

// drain waits for running jobs, and returns how many tasks are left to the expiry of their leases.
// The claimers have been ordered to end.
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
	go func() { // ends when the claimers have ended and every task in flight is settled
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
	tail := time.NewTimer(r.tail)
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
	outlived = max(outlived, r.slots.busy()) // a job whose lease was lost may no longer be in flight
	if outlived > 0 {
		return left, fmt.Errorf("%w: %d still run", ErrGraceExceeded, outlived)
	}
	return left, nil
}
