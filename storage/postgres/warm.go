package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/storage"
)

// warmth has connections made and warmed before a task waits for one. A connection's
// first steps take twenty times as long as later ones: the server reads its catalogs and
// plans every statement. It begins with the first Claim: who only enqueues has few
// connections, and they are made when they are needed.
type warmth struct {
	up  func(ctx context.Context)
	ctx context.Context //nolint:containedctx // of what is warmed; ended by Close

	mu     sync.Mutex // guards what follows; no I/O under it
	begun  bool
	closed bool
	all    sync.WaitGroup // one goroutine; it ends with ctx, or when all is warm
}

// begin begins, once.
func (w *warmth) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun || w.closed {
		return
	}
	w.begun = true
	w.all.Go(func() { w.up(w.ctx) })
}

// close waits for what is being warmed, whose context has ended.
func (w *warmth) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.all.Wait()
}

// warmUp warms one connection of the reserve and one for claims, beside the one that the
// Claim has which began this. It never holds one and waits for another. Where it fails
// they stay cold, and work all the same.
func (s *Storage) warmUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if s.pool.Config().MaxConns > 1 {
		_ = s.rehearse(ctx, s.pool, s.rehearseClaim)
	}
	_ = s.rehearse(ctx, s.reserve, s.rehearseEnd)
}

// rehearsal does steps in a queue.
type rehearsal func(ctx context.Context, tx *transaction, name string, queue int32) error

// rehearse acts on a connection of a pool, in a transaction that is rolled back. It makes a
// queue for that whose number and name no other has; it burns no number. Whoever has locked
// a table keeps it from holding what others may need.
func (s *Storage) rehearse(ctx context.Context, pool *pgxpool.Pool, act rehearsal) error {
	tx, err := s.begin(ctx, pool)
	if err != nil {
		return err
	}
	defer tx.close(ctx)
	var queue int32
	var name string
	err = tx.run(ctx, query{text: "SET LOCAL lock_timeout = '50ms'"}, query{
		text: `INSERT INTO {schema}.queues (queue, name) OVERRIDING SYSTEM VALUE
			VALUES (-pg_backend_pid(), 'warm up ' || pg_backend_pid()) RETURNING queue, name`,
		scan: one(&queue, &name),
	})
	if err != nil {
		return err
	}
	return act(ctx, tx, name, queue)
}

// rehearseClaim enqueues a task and claims it.
func (s *Storage) rehearseClaim(ctx context.Context, tx *transaction, name string, queue int32) error {
	in := storage.Insert{Ref: storage.Ref{Queue: name, ID: storage.NewID()}, Kind: "trial"}
	c := claim{store: s, trial: true, req: &storage.ClaimRequest{
		Runner: name, Queues: []storage.ClaimQueue{{Name: name}}, Start: 1, Lease: storage.MinLease,
	}}
	add := storage.Tx{Inserts: []storage.Insert{in}}
	return tx.run(ctx, s.trial(classInsert, add, name, queue), c.query())
}

// rehearseEnd completes a task that is pending.
func (s *Storage) rehearseEnd(ctx context.Context, tx *transaction, name string, queue int32) error {
	f := storage.Fence{Ref: storage.Ref{Queue: name, ID: storage.NewID()}, Version: 1, Token: storage.NewToken()}
	err := tx.run(ctx, query{
		text: `INSERT INTO {schema}.tasks
				(sort, turn, version, queue, line, flags, priority, id, lease, past, record)
			VALUES (0, 0, 1, $1, $1::int4 * 16 + 4, 0, 0, $2, $3, '', '')`,
		args: []any{queue, packID(f.ID), f.Token[:]},
	})
	if err != nil {
		return err
	}
	end := storage.Settle{Fence: f, Outcome: storage.Complete}
	return tx.run(ctx, s.trial(classSettle, storage.Tx{Settles: []storage.Settle{end}}, name, queue))
}

// trial carries out a Tx of a plain class.
func (s *Storage) trial(class int, plainTx storage.Tx, name string, queue int32) query {
	st := &plainStep{class: class, parts: []*part{newPart(storage.Call{}, []storage.Tx{plainTx})}}
	return s.plainQuery(plain(st.parts, map[string]int32{name: queue}), st)
}
