package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// The hook of an application's pool may change the role of each connection. Migrate calls it too, so that the tables
// belong to the role that uses them.
func TestAHookOfThePoolChangesTheRoleOfAMigration(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	schema := fmt.Sprintf("midge_%d", schemas.Add(1))
	owner, login := "owner_"+schema, "login_"+schema
	exec := func(text string) {
		t.Helper()
		if _, err := statements.Exec(context.WithoutCancel(t.Context()), text); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE ROLE " + owner + "; CREATE ROLE " + login + " LOGIN NOINHERIT IN ROLE " + owner)
	t.Cleanup(func() { exec("DROP OWNED BY " + owner + " CASCADE; DROP ROLE " + login + ", " + owner) })
	var database string
	if err := statements.QueryRow(t.Context(), "SELECT current_database()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	exec("GRANT CREATE ON DATABASE " + pgx.Identifier{database}.Sanitize() + " TO " + owner)
	cfg, err := pgxpool.ParseConfig(shared.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.User = login
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+owner)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	config := postgres.Config{Pool: pool, Schema: schema}
	if err := postgres.Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	opened(t, config)
	boom := errors.New("boom")
	cfg.AfterConnect = func(context.Context, *pgx.Conn) error { return boom }
	if config.Pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(config.Pool.Close)
	if err := postgres.Migrate(t.Context(), config); !errors.Is(err, boom) {
		t.Errorf("got %v, want the error of the hook", err)
	}
}

// A URL may set the number of connections, for programs that have nothing else.
func TestAURLMaySetTheConnections(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	cfg := reused(t, storage.Limits{})
	url := cfg.URL
	for given, want := range map[int]int32{0: 7, 9: 9} {
		cfg.URL, cfg.Connections = url+"&pool_max_conns=7", given
		store, _ := opened(t, cfg)
		if got := store.Connections(); got != want {
			t.Errorf("with Connections %d: got %d connections, want %d", given, got, want)
		}
	}
	cfg.Connections = 0
	for _, bad := range []int{0, -1, 1001} {
		cfg.URL = url + "&pool_max_conns=" + strconv.Itoa(bad)
		store, err := postgres.Open(t.Context(), cfg)
		if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
			t.Errorf("%d: got %v, %v; want an *InvalidError", bad, store, err)
		}
	}
}
