package modernc_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// receipt is a job.
type receipt struct{ Order string }

// ExampleOpen enqueues a job into a file of its own, and a later process runs it.
func ExampleOpen() {
	folder, err := os.MkdirTemp("", "midge")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "jobs.db")
	enqueue := func(ctx context.Context) error {
		store, err := modernc.Open(ctx, path)
		if err != nil {
			return err
		}
		defer func() { _ = store.Close() }()
		client, err := midge.NewClient(store, midge.ClientConfig{})
		if err != nil {
			return err
		}
		_, err = client.Enqueue(ctx, receipt{Order: "7"})
		return err
	}
	ctx := context.Background()
	if err := enqueue(ctx); err != nil {
		fmt.Println(err)
		return
	}
	store, err := modernc.Open(ctx, path) // as the next process does
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	stats, err := store.Stats(ctx, midge.DefaultQueue)
	fmt.Println(stats[0].Waiting, err)
	// Output: 1 <nil>
}

// ExampleOpenDB enqueues a job in the transaction that writes an order: the job is there if and when the order
// is.
func ExampleOpenDB() {
	folder, err := os.MkdirTemp("", "midge")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := sell(context.Background(), filepath.Join(folder, "shop.db")); err != nil {
		fmt.Println(err)
	}
	// Output: 1 order, 1 job
}

func sell(ctx context.Context, path string) error {
	db, err := modernc.OpenDB(path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := sqlite.Migrate(ctx, sqlite.Config{DB: db}); err != nil { // once per deploy
		return err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{DB: db})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (number TEXT PRIMARY KEY)"); err != nil {
		return err
	}
	if err := order7(ctx, db, store); err != nil {
		return err
	}
	var orders int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&orders); err != nil {
		return err
	}
	stats, err := store.Stats(ctx, midge.DefaultQueue)
	if err != nil {
		return err
	}
	fmt.Printf("%d order, %d job\n", orders, stats[0].Waiting)
	return nil
}

// joiner is a storage on PostgreSQL or on SQLite: the application's transaction can enqueue its
// tasks.
type joiner interface {
	storage.Storage
	WithinSQL(tx *sql.Tx) storage.Joined
}

func order7(ctx context.Context, db *sql.DB, store joiner) error {
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('7')"); err != nil {
		return err
	}
	if _, err := client.With(store.WithinSQL(tx)).Enqueue(ctx, receipt{Order: "7"}); err != nil {
		return err
	}
	return tx.Commit()
}
