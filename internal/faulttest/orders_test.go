//go:build unix

package faulttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// orderJob is the job of an order. An application enqueues and completes it in transactions of
// its own.
type orderJob struct{ Order string }

// Options sets limits so high that the job of an order runs again however often its process is killed.
func (orderJob) Options() midge.Options { return midge.Options{Retries: 100, CrashLimit: 1000} }

// The events of a transaction that writes an order. The task has the order's id.
const (
	orderBegun      = "order"
	orderCommitted  = "order.committed"
	orderRolledBack = "order.rolled-back"
)

// orderTables are the application's tables, beside its tasks, and the application's own
// connections to them.
type orderTables struct {
	db    *pgxpool.Pool
	store *postgres.Storage
	place string
}

func openOrderTables(ctx context.Context, d dialing, store storage.Storage) (*orderTables, error) {
	db, err := pgxpool.New(ctx, d.postgres().URL)
	pg, _ := store.(*postgres.Storage)
	return &orderTables{db: db, store: pg, place: d.Place}, err
}

// within calls do in a transaction and commits it, or rolls it back on an error.
func (o *orderTables) within(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, o.db, do)
}

func (o *orderTables) write(ctx context.Context, tx pgx.Tx, table, order string) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+o.place+"."+table+" VALUES ($1)", order)
	return err
}

// errOutOfStock is the reason for which half of the orders, and some of the jobs, are
// rolled back.
var errOutOfStock = errors.New("out of stock")

// writeOrders writes orders in several goroutines, each order with its task in one
// transaction, until the test has enough.
func writeOrders(ctx context.Context, w *workerProcess) error {
	client, err := midge.NewClient(w.orderTables.store, midge.ClientConfig{Patience: loadPatience})
	if err != nil {
		return err
	}
	w.rec.record(event{What: workerReady})
	const writers = 4
	errs := make([]error, writers)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				select {
				case <-w.gates.at("enough"):
					return
				default:
					errs[i] = w.writeOrder(ctx, client)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (w *workerProcess) writeOrder(ctx context.Context, client *midge.Client) error {
	order := storage.NewID()
	ref := storage.Ref{Queue: "q", ID: order}
	w.rec.record(event{What: orderBegun, Ref: ref})
	err := w.orderTables.within(ctx, func(tx pgx.Tx) error {
		if err := w.orderTables.write(ctx, tx, "orders", order); err != nil {
			return err
		}
		_, err := client.With(w.orderTables.store.Within(tx)).Enqueue(ctx, orderJob{order}, midge.To("q"), midge.ID(order))
		if err == nil && rand.IntN(2) == 0 {
			err = errOutOfStock
		}
		return err
	})
	switch {
	case err == nil:
		w.rec.record(event{What: orderCommitted, Ref: ref})
	case errors.Is(err, errOutOfStock):
		w.rec.record(event{What: orderRolledBack, Ref: ref})
		return nil
	}
	return err
}

// completeOrder records the completion of an order and completes its task in the same transaction.
func (w *workerProcess) completeOrder(ctx context.Context, job orderJob) error {
	return w.orderTables.within(ctx, func(tx pgx.Tx) error {
		if err := w.orderTables.write(ctx, tx, "completions", job.Order); err != nil {
			return err
		}
		err := midge.CompleteWith(ctx, w.orderTables.store.Within(tx))
		if err == nil && rand.IntN(8) == 0 {
			err = errOutOfStock // the job runs again
		}
		return err
	})
}

// TestEachOrderIsSoldOnce kills processes at random: processes that write orders and their
// tasks in one transaction, half of which are rolled back, and runners that complete the
// tasks in transactions of their own. There must have been as many tasks as committed
// transactions, and each order must have one completion.
func TestEachOrderIsSoldOnce(t *testing.T) {
	require(t)
	testserver.Parallel(t)
	transactions := count(1_000, 10_000)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	s := ownServer(t, onePostgres, testserver.Options{})
	f := newFleet(t, s)
	pg := s.nodes[0].(*testserver.PostgresServer)
	for _, table := range []string{"orders", "completions"} {
		must(t, pg.Exec(t.Context(), "CREATE TABLE "+f.dialing.Place+"."+table+" (id text)"))
	}
	begin := func(i int) *worker {
		if i%2 == 0 {
			return f.start(workerConfig{Client: "orders"})
		}
		return f.start(workerConfig{Queues: []string{"q"}, Concurrency: 10, Lease: time.Second})
	}
	var fleet []*worker
	for i := range 4 {
		fleet = append(fleet, begin(i))
	}
	f.awaitWhat("", workerReady, len(fleet), 20*time.Second)
	// Continue until one kill has cut off a transaction and another one a run.
	kills := 0
	killed := make(map[string]bool)
	for !enoughOrders(t, f, transactions, killed) {
		pause := time.NewTimer(100*time.Millisecond + time.Duration(random.Int64N(int64(400*time.Millisecond))))
		<-pause.C
		i := random.IntN(len(fleet))
		fleet[i].kill()
		killed[fleet[i].name] = true
		kills++
		fleet[i] = begin(i)
	}
	f.openGate("enough")
	for i := range fleet {
		if i%2 == 0 {
			fleet[i].ended(t, 20*time.Second)
		}
	}
	awaitDrained(t, f.store, "q", 60*time.Second)
	checkOrders(t, f, pg, kills)
}

// enoughOrders reports whether enough transactions have ended, and killed processes have left
// at least one transaction open and one task whose lease has run out since.
func enoughOrders(t *testing.T, f *fleet, transactions int, killed map[string]bool) bool {
	t.Helper()
	h := f.history()
	ended := h.of(orderCommitted, orderRolledBack)
	cutOff := len(h.of(orderBegun).where(func(e *event) bool { return killed[e.Worker] })) -
		len(ended.where(func(e *event) bool { return killed[e.Worker] }))
	stats, err := f.store.Stats(t.Context(), "q")
	must(t, err)
	return len(ended) >= transactions && cutOff > 0 && stats[0].Totals.Crashed > 0
}

func checkOrders(t *testing.T, f *fleet, pg *testserver.PostgresServer, kills int) {
	t.Helper()
	count := func(table string) map[storage.Ref]int {
		rows := make(map[storage.Ref]int)
		for _, id := range list(t, pg, "SELECT id FROM "+f.dialing.Place+"."+table) {
			rows[storage.Ref{Queue: "q", ID: id}]++
		}
		return rows
	}
	h := f.history()
	checkRuns(t, h)
	orders, completions, runs := count("orders"), count("completions"), runsOf(h)
	for ref, n := range orders {
		if n != 1 || completions[ref] != 1 {
			t.Errorf("%s: %d orders with %d completions, want one of each", ref, n, completions[ref])
		}
	}
	for ref := range completions {
		if orders[ref] == 0 {
			t.Errorf("%s has a completion and no order", ref)
		}
	}
	for ref := range runs {
		if orders[ref] == 0 {
			t.Errorf("%s ran, and its transaction was not committed", ref)
		}
	}
	for ref := range h.of(orderCommitted).refs() {
		if orders[ref] == 0 {
			t.Errorf("%s was committed and is lost", ref)
		}
	}
	for ref := range h.of(orderRolledBack).refs() {
		if orders[ref] != 0 {
			t.Errorf("%s was rolled back and is there", ref)
		}
	}
	totals := checkTotals(t, f.store, "q", tasksOf(t, f.store, "q")).Totals
	if n := int64(len(orders)); totals.Enqueued != n || totals.Completed != n {
		t.Errorf("%d orders, and %+v; want a task enqueued and completed for each", n, totals)
	}
	begun, ended := len(h.of(orderBegun)), len(h.of(orderCommitted, orderRolledBack))
	t.Logf("%d transactions, %d of them cut off; %d orders, %d runs, %d crashes charged, %d kills",
		begun, begun-ended, len(orders), len(h.of(runStart)), totals.Crashed, kills)
	if begun == ended || totals.Crashed == 0 {
		t.Errorf("%d transactions were cut off and %d runs: a test that proves nothing", begun-ended, totals.Crashed)
	}
}
