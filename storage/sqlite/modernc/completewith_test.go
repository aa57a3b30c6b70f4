package modernc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// order is a job that writes its row and its completion in one transaction.
type order struct{ Number int }

// TestCompleteWith has a runner's jobs complete in transactions of their own. The first try of each
// is rolled back.
func TestCompleteWith(t *testing.T) {
	const orders = 5
	path := file(t)
	s := open(t, path)
	db := database(t, path, "&_txlock=immediate")
	_, err := db.ExecContext(t.Context(), "CREATE TABLE orders (number INTEGER)")
	must(t, err)
	runner, err := midge.NewRunner(s.store, midge.RunnerConfig{Queues: []string{queue}, Concurrency: 2})
	must(t, err)
	must(t, midge.Handle(runner, func(ctx context.Context, job order) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", job.Number)
		err = errors.Join(err, midge.CompleteWith(ctx, s.store.Within(tx)))
		if run, _ := midge.Current(ctx); err != nil || run.Retries == 0 {
			return errors.Join(midge.RetryIn(time.Millisecond, errors.New("the first try")), err, tx.Rollback())
		}
		return tx.Commit()
	}))
	client, err := midge.NewClient(s.store, midge.ClientConfig{})
	must(t, err)
	for i := range orders {
		_, err := client.Enqueue(t.Context(), order{i}, midge.To(queue))
		must(t, err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()
	var totals storage.Stats
	await(t, "all orders are completed", func() bool {
		stats, err := s.store.Stats(t.Context(), queue)
		must(t, err)
		totals = stats[0]
		return totals.Totals.Completed == orders
	})
	stop()
	must(t, <-ended)
	var rows, distinct int
	must(t, db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT number) FROM orders").Scan(&rows, &distinct))
	if rows != orders || distinct != orders || totals.Totals.Failed != orders || totals.Live() != 0 {
		t.Errorf("%d rows of %d orders, totals %+v; want each once, after one failure", rows, distinct, totals)
	}
}
