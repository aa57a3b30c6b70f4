package postgres

import (
	"context"
	"sync"
	"time"

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

// warmUp warms the reserve and all connections for claims but one, which the Claim that
// began this has. Where one fails the rest stay cold: they work all the same.
func (s *Storage) warmUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if s.warmSome(ctx, s.reserve, reserveConnections) == nil {
		_ = s.warmSome(ctx, s.pool, min(int(s.pool.Config().MaxConns), defaultConnections)-1)
	}
}

// warmSome warms n connections of a pool. It holds all of them until it has them, else it
// would get the same one again.
func (s *Storage) warmSome(ctx context.Context, pool *pgxpool.Pool, n int) (err error) {
	all := make([]*transaction, 0, n)
	defer func() {
		for _, tx := range all {
			tx.close(ctx)
		}
	}()
	for range n {
		tx, err := s.begin(ctx, pool)
		if err != nil {
			return err
		}
		all = append(all, tx)
	}
	for _, tx := range all {
		if err := s.rehearse(ctx, tx); err != nil {
			return err
		}
		tx.close(ctx)
	}
	return nil
}

// rehearse enqueues, claims and completes tasks in a transaction that is rolled back. Its
// queue has a number and a name that no other has, and burns no number.
func (s *Storage) rehearse(ctx context.Context, tx *transaction) error {
	var queue int32
	var name string
	var now int64
	// Whoever has locked a table keeps this from holding what others may need.
	err := tx.run(ctx, query{text: "SET LOCAL lock_timeout = '50ms'"}, query{
		text: `INSERT INTO {schema}.queues (queue, name) OVERRIDING SYSTEM VALUE
			VALUES (-pg_backend_pid(), 'warm up ' || pg_backend_pid()) RETURNING queue, name, {schema}.told()`,
		scan: one(&queue, &name, &now),
	})
	if err != nil {
		return err
	}
	call := func() storage.Call {
		return storage.Call{Lane: storage.Lane{ID: storage.NewToken(), Opened: moment(now)}, Seq: 1}
	}
	queues := map[string]int32{name: queue}
	soon := trialTx(name)
	soon.Inserts[0].Delay = time.Microsecond // over by the time of the claim
	for _, txs := range [][]storage.Tx{{trialTx(name)}, {trialTx(name), soon}} {
		if err := tx.run(ctx, s.trial(classInsert, newPart(call(), txs), queues)); err != nil {
			return err
		}
	}
	for range 2 { // the second finds nothing, but the time
		c := claim{store: s, trial: true, req: &storage.ClaimRequest{
			Call: call(), Runner: name, Queues: []storage.ClaimQueue{{Name: name}}, Max: 10, Start: 10,
			Lease: storage.MinLease, Token: storage.NewToken(),
		}}
		if err := tx.run(ctx, c.query(false)); err != nil {
			return err
		}
		if len(c.Fences) == 0 {
			continue
		}
		ends := make([]storage.Tx, len(c.Fences))
		for i, f := range c.Fences {
			ends[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Complete}}
		}
		if err := tx.run(ctx, s.trial(classSettle, newPart(call(), ends), queues)); err != nil {
			return err
		}
	}
	return nil
}

// trial carries out a part of a plain class.
func (s *Storage) trial(class int, p *part, queues map[string]int32) query {
	var base int64
	var rung []int32
	args, _ := plain([]*part{p}, queues)
	return s.plainQuery(args, class, &base, &rung)
}

func trialTx(queue string) storage.Tx {
	in := storage.Insert{Ref: storage.Ref{Queue: queue, ID: storage.NewID()}, Kind: "trial"}
	return storage.Tx{Inserts: []storage.Insert{in}}
}
