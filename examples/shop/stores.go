package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// isPostgres tells the URL of a PostgreSQL from the path of a file.
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

// openJobs opens the storage of the jobs: that at a URL, memory, or by default the database of the
// orders, whose transactions are then those of the jobs too.
func openJobs(ctx context.Context, at, orders string, db *sql.DB) (
	store storage.Storage, within func(*sql.Tx) storage.Joined, err error,
) {
	switch {
	case at == "memory":
		store, err = memory.Open(memory.Config{})
		return store, nil, err
	case strings.HasPrefix(at, "redis"):
		store, err = redis.Open(ctx, redis.Config{URL: at})
		return store, nil, err
	case at == "" && !isPostgres(orders):
		cfg := sqlite.Config{DB: db}
		if err := sqlite.Migrate(ctx, cfg); err != nil {
			return nil, nil, err
		}
		s, err := sqlite.Open(ctx, cfg)
		return s, s.WithinSQL, err
	}
	cfg := postgres.Config{URL: at}
	if at == "" {
		cfg.URL = orders
	}
	if err := postgres.Migrate(ctx, cfg); err != nil {
		return nil, nil, err
	}
	s, err := postgres.Open(ctx, cfg)
	if at == "" || at == orders {
		within = s.WithinSQL
	}
	return s, within, err
}
