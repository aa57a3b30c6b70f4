package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/open"
	"github.com/midgehq/midge/storage/postgres"
)

// place is a storage with a server of its own.
type place struct {
	url   string // "" for the memory storage
	store storage.Storage
	// written returns how many bytes the server has written. Only the difference between two calls has a
	// meaning. The memory storage has none.
	written func(context.Context) (int64, error)
	// settle makes the server finish the work that remains after it was filled.
	settle func(context.Context) error
	close  func()
}

// openPlace starts a server, and opens a storage on it. extra are lines of the configuration of Redis.
func openPlace(ctx context.Context, name string, extra ...string) (*place, error) {
	switch name {
	case "memory":
		store, err := memory.Open(memory.Config{})
		none := func(context.Context) error { return nil }
		return &place{store: store, settle: none, close: func() { _ = store.Close() }}, err
	case "redis":
		return openRedis(ctx, extra)
	case "postgres":
		return openPostgres(ctx)
	}
	return nil, fmt.Errorf("no storage is named %q", name)
}

func openRedis(ctx context.Context, extra []string) (*place, error) {
	server, err := testserver.Start(testserver.Options{Config: extra})
	if err != nil {
		return nil, err
	}
	store, err := open.Open(ctx, server.URL())
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &place{
		url: server.URL(), store: store,
		written: func(context.Context) (int64, error) {
			info, err := server.Do("INFO", "persistence")
			if err != nil {
				return 0, err
			}
			for line := range strings.Lines(info) {
				if size, ok := strings.CutPrefix(line, "aof_current_size:"); ok {
					return strconv.ParseInt(strings.TrimSpace(size), 10, 64)
				}
			}
			return 0, errors.New("no append-only file is kept")
		},
		settle: func(context.Context) error { return nil },
		close:  func() { _ = errors.Join(store.Close(), server.Close()) },
	}, nil
}

func openPostgres(ctx context.Context) (*place, error) {
	server, err := testserver.StartPostgres(testserver.PostgresOptions{Config: []string{"max_wal_size = '4GB'"}})
	if err != nil {
		return nil, err
	}
	err = postgres.Migrate(ctx, postgres.Config{URL: server.URL()})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	store, err := open.Open(ctx, server.URL())
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &place{
		url: server.URL(), store: store,
		written: func(ctx context.Context) (written int64, err error) {
			// The server writes each change to its log, and later the changed pages. The checkpoint writes
			// all changed pages, so that both are counted.
			const sql = `SELECT (pg_current_wal_insert_lsn() - '0/0' + 8192 *
				(SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter))::bigint`
			err = errors.Join(server.Exec(ctx, "CHECKPOINT"), ask(ctx, server.URL(), sql, &written))
			return written, err
		},
		settle: func(ctx context.Context) error {
			return errors.Join(server.Exec(ctx, "VACUUM ANALYZE"), server.Exec(ctx, "CHECKPOINT"))
		},
		close: func() { _ = errors.Join(store.Close(), server.Close()) },
	}, nil
}

// ask reads one value, over a connection of its own.
func ask(ctx context.Context, url, sql string, value any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(conn.QueryRow(ctx, sql).Scan(value), conn.Close(ctx))
}
