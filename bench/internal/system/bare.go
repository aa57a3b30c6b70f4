package system

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// bareSystem is the least that enqueues jobs and runs them under leases: batched calls of a
// storage, combined enqueues, work ahead, a wake-up, and nothing that a framework is for. No
// retries, fences, recovery or codec, and one queue to a worker. It says what the storage
// and the machine leave to be reached.
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

// bareStore is what the least needs of a storage.
type bareStore interface {
	// insert adds jobs, all due at one moment, and wakes a worker. A zero due means now.
	insert(ctx context.Context, queue string, due time.Time, bodies [][]byte) error
	// claim leases up to so many. Where there are none it gives the moment of the next, if known.
	claim(ctx context.Context, queue string, most int) ([]bareJob, time.Time, error)
	// settle removes jobs that have run.
	settle(ctx context.Context, queue string, jobs []bareJob) error
	// wait waits for a wake-up, for so long at most.
	wait(ctx context.Context, queue string, most time.Duration) error
	totals(ctx context.Context, queue string) (Totals, error)
	close() error
}

// bareJob is a job under its lease.
type bareJob struct {
	id   string // Redis's
	row  int64  // PostgreSQL's and SQLite's
	body []byte
}

// bare is the least on some storage.
type bare struct {
	bareStore

	enqueues sync.Map // queue -> *batcher
}

func newBare(store bareStore) *bare { return &bare{bareStore: store} }

// The batches.
const (
	bareInserts = 500
	bareClaims  = 500
	bareChunk   = 32 // jobs that a slot takes at a time
)

// bareLease is how long a lease would last.
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

// Work has a loop that claims ahead, slots that run, and a loop that settles.
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
			chunks <- jobs[:n:n] // who settles appends to it
			jobs = jobs[n:]
		}
	}
	return nil
}

// settleAll settles what has run, as much at a time as there is, and calls stop where it cannot.
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
		if failed == nil { // else what comes is taken all the same, so that nobody waits
			if failed = b.settle(ctx, queue, chunk); failed != nil {
				stop()
			}
		}
	}
	return failed
}

// Totals adds up.
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

// batcher flushes together what comes while a flush is under way.
type batcher struct {
	flush func(bodies [][]byte) error

	mu   sync.Mutex
	next *batch // that waits for its flush; nil where none is under way
}

// batch is what goes out together.
type batch struct {
	bodies [][]byte
	turn   chan struct{} // has one when a caller of it is to flush it
	done   chan struct{} // closed once it was flushed
	err    error
}

func newBatch() *batch { return &batch{turn: make(chan struct{}, 1), done: make(chan struct{})} }

// do flushes a body with others.
func (b *batcher) do(body []byte) error {
	b.mu.Lock()
	mine := b.next
	leads := mine == nil // nobody flushes
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

// lead flushes a batch and hands on.
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
