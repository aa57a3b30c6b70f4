package system

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// bareSystem returns the smallest system that enqueues jobs and runs them under leases: batched calls
// of a storage, combined enqueues, work ahead and a wake-up. It lacks what a framework is for:
// retries, fences, recovery and a codec, and its worker serves only one queue. It shows which
// rate the storage and the machine allow.
func bareSystem() System {
	return System{
		Name: "bare", Storages: []string{Redis, Postgres, SQLite}, Bulk: true, Bare: true, Open: openBare,
	}
}

func openBare(ctx context.Context, at Place) (Instance, error) {
	switch at.Storage {
	case Redis:
		return newBare(openBareRedis(at)), nil
	case Postgres:
		store, err := openBarePostgres(ctx, at)
		if err != nil {
			return nil, err
		}
		return newBare(store), nil
	case SQLite:
		store, err := openBareSQLite(ctx, at)
		if err != nil {
			return nil, err
		}
		return newBare(store), nil
	}
	return nil, fmt.Errorf("bare: no storage is named %q", at.Storage)
}

// bareStore is the storage that the bare system needs.
type bareStore interface {
	// insert adds jobs, all due at one moment, and wakes a worker. A zero due means now.
	insert(ctx context.Context, queue string, due time.Time, bodies [][]byte) error
	// claim leases up to most jobs. If there are none, it returns the due moment of the next, if
	// known.
	claim(ctx context.Context, queue string, most int) ([]bareJob, time.Time, error)
	// settle removes jobs that have run.
	settle(ctx context.Context, queue string, jobs []bareJob) error
	// wait waits for a wake-up, or for most.
	wait(ctx context.Context, queue string, most time.Duration) error
	totals(ctx context.Context, queue string) (Totals, error)
	close() error
}

// bareJob is a claimed job.
type bareJob struct {
	id   string // on Redis
	row  int64  // on PostgreSQL and SQLite
	body []byte
}

// bare is the bare system on a storage.
type bare struct {
	bareStore

	enqueues sync.Map // queue -> *batcher
}

func newBare(store bareStore) *bare { return &bare{bareStore: store} }

// The sizes of the batches.
const (
	bareInserts = 500
	bareClaims  = 500
	bareChunk   = 32 // jobs that a slot takes at once
)

// bareLease is the length of a lease.
const bareLease = 30 * time.Second

func (b *bare) Enqueue(ctx context.Context, queue string, payload []byte, due time.Time) error {
	ctx = context.WithoutCancel(ctx)
	if !due.IsZero() {
		return b.insert(ctx, queue, due, [][]byte{payload})
	}
	all, ok := b.enqueues.Load(queue)
	if !ok {
		all, _ = b.enqueues.LoadOrStore(queue, &batcher{flush: func(bodies [][]byte) error {
			return b.insert(ctx, queue, time.Time{}, bodies)
		}})
	}
	return all.(*batcher).do(payload)
}

func (b *bare) EnqueueMany(ctx context.Context, queue string, payloads [][]byte, due time.Time) error {
	for len(payloads) > 0 {
		n := min(len(payloads), bareInserts)
		if err := b.insert(ctx, queue, due, payloads[:n]); err != nil {
			return err
		}
		payloads = payloads[n:]
	}
	return nil
}

// Work runs a loop that claims ahead, slots that run jobs, and a loop that settles.
func (b *bare) Work(ctx context.Context, w Worker) error {
	if len(w.Queues) != 1 {
		return fmt.Errorf("bare: %d queues, want one", len(w.Queues))
	}
	queue := w.Queues[0]
	chunks := make(chan []bareJob, 2*bareClaims/bareChunk)
	done := make(chan []bareJob, 2*bareClaims/bareChunk)
	var slots, settler sync.WaitGroup
	for range w.Concurrency {
		slots.Go(func() {
			for chunk := range chunks {
				for i := range chunk {
					_ = w.Run(chunk[i].body)
				}
				done <- chunk
			}
		})
	}
	var settled error
	claiming, stop := context.WithCancel(ctx)
	defer stop()
	settler.Go(func() { settled = b.settleAll(context.WithoutCancel(ctx), queue, done, stop) })
	err := b.claimAll(claiming, queue, chunks)
	close(chunks)
	slots.Wait()
	close(done)
	settler.Wait()
	if err == nil {
		err = settled
	}
	return err
}

// claimAll claims until ctx ends.
func (b *bare) claimAll(ctx context.Context, queue string, chunks chan<- []bareJob) error {
	calls := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		jobs, next, err := b.claim(calls, queue, bareClaims)
		if err != nil {
			return err
		}
		if len(jobs) == 0 {
			pause := time.Second
			if !next.IsZero() {
				pause = max(min(pause, time.Until(next)), 0)
			}
			if err := b.wait(calls, queue, pause); err != nil {
				return err
			}
		}
		for len(jobs) > 0 {
			n := min(len(jobs), bareChunk)
			chunks <- jobs[:n:n] // without spare capacity, because settleAll appends to it
			jobs = jobs[n:]
		}
	}
	return nil
}

// settleAll settles the jobs that have run, in batches as large as possible, and calls stop if a
// settle fails.
func (b *bare) settleAll(ctx context.Context, queue string, done <-chan []bareJob, stop func()) error {
	var failed error
	for chunk := range done {
		for more := true; more && len(chunk) < bareClaims; {
			select {
			case other, ok := <-done:
				chunk = append(chunk, other...)
				more = ok
			default:
				more = false
			}
		}
		if failed == nil { // after a failure, jobs are still received, so that no slot blocks
			if failed = b.settle(ctx, queue, chunk); failed != nil {
				stop()
			}
		}
	}
	return failed
}

// Totals returns the sum over the queues.
func (b *bare) Totals(ctx context.Context, queues ...string) (sum Totals, err error) {
	for _, queue := range queues {
		t, err := b.totals(ctx, queue)
		if err != nil {
			return Totals{}, err
		}
		sum = sum.Plus(t)
	}
	return sum, nil
}

func (b *bare) Close() error { return b.close() }

// batcher flushes together the bodies that arrive during a flush.
type batcher struct {
	flush func(bodies [][]byte) error

	mu   sync.Mutex
	next *batch // batch that waits for its flush; nil while no flush is under way
}

// batch is a number of bodies that are flushed together.
type batch struct {
	bodies [][]byte
	turn   chan struct{} // holds a value when one of its callers must flush it
	done   chan struct{} // closed once it was flushed
	err    error
}

func newBatch() *batch { return &batch{turn: make(chan struct{}, 1), done: make(chan struct{})} }

// do flushes a body together with others and returns the error of the flush.
func (b *batcher) do(body []byte) error {
	b.mu.Lock()
	mine := b.next
	leads := mine == nil // no flush is under way
	if leads {
		mine, b.next = newBatch(), newBatch()
	}
	mine.bodies = append(mine.bodies, body)
	b.mu.Unlock()
	if leads {
		return b.lead(mine)
	}
	select {
	case <-mine.turn:
		b.mu.Lock()
		b.next = newBatch()
		b.mu.Unlock()
		return b.lead(mine)
	case <-mine.done:
		return mine.err
	}
}

// lead flushes a batch and lets a caller of the next batch flush that one.
func (b *batcher) lead(mine *batch) error {
	mine.err = b.flush(mine.bodies)
	close(mine.done)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.next.bodies) > 0 {
		b.next.turn <- struct{}{}
	} else {
		b.next = nil
	}
	return mine.err
}
