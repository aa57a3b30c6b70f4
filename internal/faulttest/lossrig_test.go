//go:build unix

package faulttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// lossRig is a storage behind proxies that lose replies, and a second connection to it
// without proxies, for the actions of others in the meantime.
type lossRig struct {
	t       *testing.T
	kind    kind
	proxies []*testserver.Proxy
	lossy   *storage.Session // through the proxies
	direct  *storage.Session
	store   storage.Storage // direct
	queue   string
	before  storage.Totals // of the queue, from warmUp
}

func newLossRig(t *testing.T, s *server) *lossRig {
	t.Helper()
	place := s.place(t)
	r := &lossRig{t: t, kind: s.kind, queue: "q"}
	d, proxies := place.through(t)
	r.proxies = proxies
	lossy, err := d.open(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = lossy.Close() })
	r.store, err = place.open(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = r.store.Close() })
	r.lossy, r.direct = storage.NewSession(lossy, 20*time.Second), storage.NewSession(r.store, loadPatience)
	r.warmUp()
	return r
}

// warmUp loads the scripts into the server. Otherwise the call that loses its reply
// could be a call that the server refused for an unknown script.
func (r *lossRig) warmUp() {
	r.t.Helper()
	r.add("warm-up")
	_, fence := r.take()
	_, err := r.direct.Extend(r.t.Context(), storage.ExtendRequest{Leases: []storage.Extension{{Fence: fence}}})
	must(r.t, err)
	r.settle(fence, storage.Complete)
	must(r.t, r.direct.Configure(r.t.Context(), r.queue, storage.Settings{Pause: &storage.Pause{}}))
	const rounds, many = 3, 2 // each kind of call has a script of its own once its lane is known
	for i := range rounds {
		r.add(fmt.Sprint("warm-up-", i))
		_, fence := r.take()
		r.settle(fence, storage.Complete)
		txs := make([]storage.Tx, many)
		for j := range txs {
			txs[j].Inserts = []storage.Insert{r.insert(fmt.Sprint("warm-up-", i, "-", j))}
		}
		_, err := r.direct.Apply(r.t.Context(), txs...)
		must(r.t, err)
		for range txs {
			_, fence := r.take()
			r.settle(fence, storage.Complete)
		}
	}
	n := int64(1 + rounds*(1+many))
	r.before = storage.Totals{Enqueued: n, Completed: n}
}

// onQueue reports whether a request is about the queue. On PostgreSQL the rig sends no
// other requests.
func (r *lossRig) onQueue(request []byte) bool {
	return r.kind == onePostgres || bytes.Contains(request, []byte("{"+r.queue+"}"))
}

// lose makes a call whose first reply is lost after the server has executed it. Every
// repeat waits until meanwhile, which does not go through the proxies, has returned.
// The call must succeed.
func (r *lossRig) lose(call func(s *storage.Session) error, meanwhile func()) {
	r.t.Helper()
	var armed, holding atomic.Bool // each call has its own, because faults of earlier calls are still asked
	armed.Store(true)
	hit := make(chan int, 1)
	cuts := make([]*testserver.Fault, len(r.proxies))
	var faults []*testserver.Fault
	for i, p := range r.proxies {
		cuts[i] = p.CutAfterRequest(func(request []byte) bool {
			if !armed.Load() || !r.kind.isStep(request) || !r.onQueue(request) || !armed.CompareAndSwap(true, false) {
				return false
			}
			holding.Store(true)
			hit <- i
			return true
		}, 1)
		hold := p.Hold(func(request []byte) bool { return holding.Load() && r.kind.begins(request) && r.onQueue(request) })
		faults = append(faults, cuts[i], hold)
	}
	defer func() {
		for _, f := range faults {
			f.Release()
		}
	}()
	done := make(chan error, 1)
	go func() { done <- call(r.lossy) }()
	select {
	case i := <-hit:
		<-cuts[i].Struck()
	case err := <-done:
		r.t.Fatalf("the call ended before its reply was lost: %v", err)
	}
	meanwhile()
	holding.Store(false)
	for _, f := range faults {
		f.Release()
	}
	if err := <-done; err != nil {
		r.t.Errorf("a call whose reply was lost: %v, want success", err)
	}
}

// insert returns an insert of a task that is not kept after its end.
func (r *lossRig) insert(id string) storage.Insert {
	return storage.Insert{
		Ref: storage.Ref{Queue: r.queue, ID: id}, Kind: "kind", Encoding: "json", Payload: []byte("{}"),
		MaxRetries: 3, CrashLimit: 3,
	}
}

// do applies a Tx without the proxies.
func (r *lossRig) do(tx storage.Tx) storage.Applied {
	r.t.Helper()
	applied, err := r.direct.ApplyOne(r.t.Context(), tx)
	must(r.t, err)
	return applied
}

func (r *lossRig) add(id string) { r.do(storage.Tx{Inserts: []storage.Insert{r.insert(id)}}) }

// settle ends a claim, without the proxies.
func (r *lossRig) settle(fence storage.Fence, outcome storage.Outcome) {
	r.t.Helper()
	r.do(storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: outcome}}})
}

// claimRequest returns a request for n tasks.
func (r *lossRig) claimRequest(n int) storage.ClaimRequest {
	return storage.ClaimRequest{
		Runner: "runner", Queues: []storage.ClaimQueue{{Name: r.queue}}, Start: n, Lease: time.Minute,
	}
}

// take waits until there is a task and claims it, without the proxies.
func (r *lossRig) take() (storage.Task, storage.Fence) {
	r.t.Helper()
	var claimed storage.Claimed
	took := poll(10*time.Second, func() bool {
		var err error
		claimed, err = r.direct.Claim(r.t.Context(), r.claimRequest(1))
		must(r.t, err)
		return len(claimed.Tasks) > 0
	})
	if !took {
		r.t.Fatal("there is nothing to claim")
	}
	return claimed.Tasks[0], claimed.Fences[0]
}

// finish claims and completes the next task, as another runner would, and checks its
// id.
func (r *lossRig) finish(id string) {
	r.t.Helper()
	task, fence := r.take()
	if task.ID != id {
		r.t.Errorf("claimed %s, want %s", task.ID, id)
	}
	r.settle(fence, storage.Complete)
}

// none checks that no task can be claimed, which means that no task came twice.
func (r *lossRig) none() {
	r.t.Helper()
	claimed, err := r.direct.Claim(r.t.Context(), r.claimRequest(10))
	must(r.t, err)
	for _, task := range claimed.Tasks {
		r.t.Errorf("%s is waiting, want it done with", task.Ref)
	}
}

// gone checks that no record of a task is left.
func (r *lossRig) gone(id string) {
	r.t.Helper()
	task, err := r.store.Task(r.t.Context(), storage.Ref{Queue: r.queue, ID: id})
	if !errors.Is(err, storage.ErrNotFound) {
		r.t.Errorf("%s is %s, %v; want it gone", id, task.State, err)
	}
}

// totals checks the queue's lifetime totals.
func (r *lossRig) totals(want storage.Totals) {
	r.t.Helper()
	stats, err := r.store.Stats(context.WithoutCancel(r.t.Context()), r.queue)
	must(r.t, err)
	if got := stats[0].Totals; got != sum(want, r.before) {
		r.t.Errorf("totals %+v, want %+v", got, want)
	}
	if stats[0].Live() != 0 {
		r.t.Errorf("%d tasks live on, want none: %+v", stats[0].Live(), stats[0])
	}
}

func id(i int) string { return fmt.Sprint("task-", i) }
