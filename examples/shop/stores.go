package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/open"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// isPostgres reports whether at is the URL of a PostgreSQL, and not the path of a file.
func isPostgres(at string) bool {
	return strings.HasPrefix(at, "postgres://") || strings.HasPrefix(at, "postgresql://")
}

// openOrders opens the database of the orders: a PostgreSQL by URL, or an SQLite file by path.
func openOrders(ctx context.Context, at string) (*sql.DB, error) {
	open := modernc.OpenDB
	if isPostgres(at) {
		open = func(url string) (*sql.DB, error) { return sql.Open("pgx", url) }
	}
	db, err := open(at)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return nil, errors.Join(fmt.Errorf("make the tables of the shop: %w", err), db.Close())
	}
	return db, nil
}

// openJobs opens the storage of the jobs at a URL. By default that is the database of the orders.
// The jobs can then take part in its transactions, by within.
func openJobs(ctx context.Context, at, orders string, db *sql.DB) (
	store storage.Storage, within func(*sql.Tx) storage.Joined, err error,
) {
	switch own := cmp.Or(at, orders); {
	case isPostgres(own):
		err = postgres.Migrate(ctx, postgres.Config{URL: own})
		if err == nil {
			store, err = open.Open(ctx, own)
		}
	case at != "":
		store, err = open.Open(ctx, at, modernc.URL{})
	default: // midge's tables in the file of the orders
		cfg := sqlite.Config{DB: db}
		if err := sqlite.Migrate(ctx, cfg); err != nil {
			return nil, nil, err
		}
		store, err = sqlite.Open(ctx, cfg)
	}
	joins, ok := store.(interface {
		WithinSQL(tx *sql.Tx) storage.Joined
	})
	if err == nil && ok && (at == "" || at == orders) {
		within = joins.WithinSQL
	}
	return store, within, err
}
