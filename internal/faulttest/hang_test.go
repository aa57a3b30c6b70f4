//go:build unix

package faulttest

import (
	"errors"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestAStepThatHangsKeepsNoTask freezes a connection between the two round trips of a
// step, while PostgreSQL holds the locks of the task's rows. Nobody may wait for it: when
// the lease has run out, another runner gets the task, and when the first runner
// continues, it has lost the lease.
func TestAStepThatHangsKeepsNoTask(t *testing.T) {
	require(t)
	testserver.Parallel(t)
	const lease = time.Second
	r := newLossRig(t, sharedServer(t, onePostgres))
	r.add(id(0))
	req := r.claimRequest(1)
	req.Lease = lease
	claimed, err := r.lossy.Claim(t.Context(), req)
	must(t, err)
	begun := time.Now()
	held := r.proxies[0].Hold(r.kind.isStep)
	settled := make(chan error, 1)
	go func() {
		_, err := r.lossy.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{
			{Fence: claimed.Fences[0], Outcome: storage.Fail, Error: "failed"},
		}})
		settled <- err
	}()
	<-held.Struck()
	r.proxies[0].Blackhole() // so that a repeat does not get through either
	task, fence := r.take()
	after := time.Since(begun)
	t.Logf("claimed again %v after a lease of %v began", after.Round(time.Millisecond), lease)
	if bound := lease + machine.Stretch(takeover, begun); task.ID != id(0) || after > bound {
		t.Errorf("claimed %s after %v, want it within %v", task.Ref, after, bound)
	}
	r.proxies[0].Heal()
	held.Release()
	healed := time.Now()
	if err := <-settled; !errors.Is(err, storage.ErrLeaseLost) {
		t.Errorf("the settle of the one that hung: %v, want a lost lease", err)
	}
	t.Logf("the runner that hung learned of it %v after it continued", time.Since(healed).Round(time.Millisecond))
	r.settle(fence, storage.Complete)
	r.none()
}
