package storagetest

import (
	"fmt"
	"testing"

	"github.com/midgehq/midge/storage"
)

// Bench measures the steps of a task's life on a storage, each in a sub-benchmark: one
// task at a time, and in batches such as clients and runners send. The figure "tasks/s"
// counts tasks, whatever the size of a batch.
func Bench(b *testing.B, open Opener) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("Insert/%d", batch), func(b *testing.B) { benchInsert(b, open, batch) })
		b.Run(fmt.Sprintf("Life/%d", batch), func(b *testing.B) { benchLife(b, open, batch) })
		b.Run(fmt.Sprintf("Extend/%d", batch), func(b *testing.B) { benchExtend(b, open, batch) })
	}
	b.Run("Claim/empty", func(b *testing.B) {
		r := newRig(b, open, storage.Limits{}, false)
		for b.Loop() {
			r.claim(ask(1))
		}
	})
	b.Run("Parallel", func(b *testing.B) { benchParallel(b, open) })
}

// batchOf makes n new jobs.
func batchOf(n int) []storage.Insert {
	ins := make([]storage.Insert, n)
	for i := range ins {
		ins[i] = job(storage.NewID())
		ins[i].Payload = make([]byte, 96)
	}
	return ins
}

func perSecond(b *testing.B, tasks int) {
	b.ReportMetric(float64(tasks)/b.Elapsed().Seconds(), "tasks/s")
}

func benchInsert(b *testing.B, open Opener, batch int) {
	r := newRig(b, open, storage.Limits{}, false)
	for b.Loop() {
		r.insert(batchOf(batch)...)
	}
	perSecond(b, batch*b.N)
}

// benchLife inserts, claims and completes tasks.
func benchLife(b *testing.B, open Opener, batch int) {
	r := newRig(b, open, storage.Limits{}, false)
	for b.Loop() {
		r.insert(batchOf(batch)...)
		r.complete(r.hold(ask(batch), batch)...)
	}
	perSecond(b, batch*b.N)
}

// complete completes each claimed task in a Tx of its own, all in one call.
func (r *rig) complete(holds ...held) {
	r.Helper()
	txs := make([]storage.Tx, len(holds))
	for i, h := range holds {
		txs[i] = settling(h)
	}
	applied, err := r.session.Apply(r.ctx, txs...)
	r.must("complete", err)
	for _, a := range applied {
		r.must("complete", a.Err)
	}
}

func benchExtend(b *testing.B, open Opener, batch int) {
	r := newRig(b, open, storage.Limits{}, false)
	r.insert(batchOf(batch)...)
	req := storage.ExtendRequest{}
	for _, h := range r.hold(ask(batch), batch) {
		req.Leases = append(req.Leases, storage.Extension{Fence: h.Fence, For: long})
	}
	for b.Loop() {
		_, err := r.session.Extend(r.ctx, req)
		r.must("extend", err)
	}
	perSecond(b, batch*b.N)
}

// benchParallel makes many goroutines each insert, claim and complete a task at a time.
func benchParallel(b *testing.B, open Opener) {
	r := newRig(b, open, storage.Limits{}, false)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := r.session.ApplyOne(r.ctx, inserting(batchOf(1)...)); err != nil {
				b.Error(err)
				return
			}
			c, err := r.session.Claim(r.ctx, ask(1))
			if err != nil {
				b.Error(err)
				return
			}
			for i := range c.Tasks {
				h := held{c.Tasks[i], c.Fences[i]}
				if _, err := r.session.ApplyOne(r.ctx, settling(h)); err != nil {
					b.Error(err)
					return
				}
			}
		}
	})
	perSecond(b, b.N)
}
