//go:build unix

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// clientPrograms are the programs that a worker can run as a client.
var clientPrograms = map[string]func(ctx context.Context, w *workerProcess) error{
	"verbs":  driveVerbs,
	"unique": enqueueUnique,
	"orders": writeOrders,
}

// expectation is the expected outcome of a task of driveVerbs.
type expectation struct {
	state storage.State
	runs  int // number of runs if no lease is lost
	// follows means that its completion enqueues a follow-up.
	follows bool
}

// expected holds the expected outcomes of the tasks of driveVerbs by id. The state ""
// means that the task is gone.
var expected = map[string]expectation{
	"now":       {storage.Completed, 1, true},
	"in":        {storage.Completed, 1, true},
	"at":        {storage.Completed, 1, true},
	"many-1":    {storage.Completed, 1, true},
	"many-2":    {storage.Completed, 1, false},
	"many-3":    {storage.Completed, 1, false},
	"retried":   {storage.Completed, 2, true},
	"exhausted": {storage.Dead, 2, false},
	"discarded": {storage.Dead, 1, false},
	"snoozed":   {storage.Completed, 2, true},
	"stepped":   {storage.Completed, 2, false},
	"stopped":   {storage.Cancelled, 1, false},
	"never":     {storage.Cancelled, 0, false},
	"hastened":  {storage.Completed, 1, true},
	"deleted":   {"", 0, false},
}

// driveVerbs takes tasks through every state transition. The runner beside it, which
// serves the first queue, runs the jobs.
func driveVerbs(ctx context.Context, w *workerProcess) error {
	d, err := newDriver(w)
	if err != nil {
		return err
	}
	long := time.Hour
	commit := do("progress", "result", "follow")
	d.enqueue(ctx, "now", commit)
	d.enqueue(ctx, "never", stepJob{}, midge.In(long))
	d.enqueue(ctx, "stopped", steps(step{Do: "announce", Arg: "stopped runs"}, gate("never opened")))
	d.enqueue(ctx, "in", commit, midge.In(100*time.Millisecond))
	d.enqueueAt(ctx, "at", commit)
	d.enqueueMany(ctx, map[string]stepJob{"many-1": commit, "many-2": {}, "many-3": {}})
	d.enqueue(ctx, "retried", do("fail once", "result", "follow"))
	d.enqueue(ctx, "exhausted", do("follow", "fail"), midge.Retries(1))
	d.enqueue(ctx, "discarded", do("follow", "discard"))
	d.enqueue(ctx, "snoozed", do("snooze once", "result", "follow"))
	d.enqueue(ctx, "stepped", do("durable"))
	d.enqueue(ctx, "hastened", commit, midge.In(long))
	d.enqueue(ctx, "deleted", stepJob{}, midge.In(long))

	d.cancel(ctx, "never")
	session := storage.NewSession(w.store, 0)
	d.again(ctx, "hasten", func() error { return session.Requeue(ctx, d.ref("hastened")) })
	d.again(ctx, "delete", func() error { return d.client.Delete(ctx, d.ref("deleted")) })
	select {
	case <-w.gates.at("stopped runs"):
		d.cancel(ctx, "stopped")
	case <-ctx.Done():
	}
	return d.err
}

// driver is a client that repeats every call until its outcome is known. The first
// error other than an unknown outcome is kept in err, and nothing is called after it.
type driver struct {
	w      *workerProcess
	client *midge.Client
	queue  string
	err    error
}

func newDriver(w *workerProcess) (*driver, error) {
	client, err := midge.NewClient(w.store, midge.ClientConfig{})
	return &driver{w: w, client: client, queue: w.cfg.Queues[0]}, err
}

func (d *driver) ref(id string) storage.Ref { return storage.Ref{Queue: d.queue, ID: id} }

// again makes a call until its outcome is known. A repeat may find nothing left to do,
// because the first call may have happened.
func (d *driver) again(ctx context.Context, what string, call func() error) {
	for try := 0; d.err == nil; try++ {
		err := call()
		switch {
		case err == nil, try > 0 && errors.Is(err, storage.ErrNotFound):
			return
		case !unanswered(err) || ctx.Err() != nil || try == 100:
			d.err = fmt.Errorf("%s: %w", what, err)
		}
	}
}

// enqueueOnce makes the call of an enqueue, repeats it while its outcome is unknown,
// and records the outcome.
func (d *driver) enqueueOnce(ctx context.Context, ids []string, call func() error) {
	if d.err != nil {
		return
	}
	for _, id := range ids {
		d.w.rec.record(event{What: enqueueBegun, Ref: d.ref(id)})
	}
	err := call()
	for unanswered(err) && ctx.Err() == nil {
		if errors.Is(err, storage.ErrUnavailable) { // nothing happened
			err = call()
			continue
		}
		_, err = d.client.Repeat(ctx, err)
	}
	for _, id := range ids {
		d.w.rec.record(event{What: enqueued(err), Ref: d.ref(id), Err: text(err)})
	}
	if err != nil {
		d.err = fmt.Errorf("enqueue %v: %w", ids, err)
	}
}

func (d *driver) enqueue(ctx context.Context, id string, job stepJob, opts ...midge.Option) {
	d.enqueueOnce(ctx, []string{id}, func() error {
		_, err := d.client.Enqueue(ctx, job, append(opts, midge.To(d.queue), midge.ID(id))...)
		return err
	})
}

// enqueueAt enqueues a task that is due at a moment by the storage's clock.
func (d *driver) enqueueAt(ctx context.Context, id string, job stepJob) {
	var now time.Time
	d.again(ctx, "tell the time", func() error {
		desc, err := d.w.store.Describe(ctx)
		now = desc.Now
		return err
	})
	d.enqueueOnce(ctx, []string{id}, func() error {
		_, err := d.client.EnqueueAt(ctx, now.Add(150*time.Millisecond), job, midge.To(d.queue), midge.ID(id))
		return err
	})
}

func (d *driver) enqueueMany(ctx context.Context, jobs map[string]stepJob) {
	var ids []string
	var items []midge.Item
	for id, job := range jobs {
		ids = append(ids, id)
		items = append(items, midge.New(job, midge.To(d.queue), midge.ID(id)))
	}
	d.enqueueOnce(ctx, ids, func() error {
		_, err := d.client.EnqueueMany(ctx, items)
		return err
	})
}

func (d *driver) cancel(ctx context.Context, id string) {
	d.again(ctx, "cancel "+id, func() error {
		_, err := d.client.Cancel(ctx, d.ref(id))
		return err
	})
}
