package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/midgehq/midge"
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
	driver, source := "pgx", at
	if !isPostgres(at) {
		path, err := filepath.Abs(at)
		if err != nil {
			return nil, err
		}
		driver = modernc.Driver // transactions begin as writers, and wait for each other
		source = "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() +
			"?_txlock=immediate&_pragma=busy_timeout(20000)"
	}
	db, err := sql.Open(driver, source)
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
	store storage.Storage, within func(*sql.Tx) midge.Applier, err error,
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
		return s, func(tx *sql.Tx) midge.Applier { return s.Within(tx) }, err
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
		within = func(tx *sql.Tx) midge.Applier { return s.WithinSQL(tx) }
	}
	return s, within, err
}
