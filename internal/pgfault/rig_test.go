package pgfault

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// shared is the server of all tests that need none of their own. It is nil without real
// servers.
var shared *testserver.PostgresServer

// schemas counts the schemas that tests make.
var schemas atomic.Int64

// clockNow is an SQL expression for the time of the server's clock in microseconds.
const clockNow = "(date_part('epoch', clock_timestamp()) * 1000000)::int8"

func TestMain(m *testing.M) { os.Exit(run(m)) }

// atOnce is how many rules of the contract run in parallel. They wait for half of their time.
const atOnce = 4

func run(m *testing.M) int {
	if err := testserver.SetParallel(atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if testserver.Enabled() {
		server, err := testserver.StartPostgres(testserver.PostgresOptions{Unsafe: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = server.Close() }()
		shared = server
	}
	return m.Run()
}

// fresh returns a configuration with an empty schema of its own, on the shared server unless
// cfg names another.
func fresh(t testing.TB, cfg postgres.Config) postgres.Config {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = shared.URL()
	}
	cfg.Schema = fmt.Sprintf("midge_%d", schemas.Add(1))
	if err := postgres.Migrate(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// opened opens a storage. It is closed when the test ends.
func opened(t testing.TB, cfg postgres.Config) (*postgres.Storage, *storage.Session) {
	t.Helper()
	store, err := postgres.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store, storage.NewSession(store, testserver.Patience)
}

// connect returns a connection that does not belong to a storage.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// value runs a query and returns its only value.
func value[V any](t testing.TB, conn *pgx.Conn, sql string, args ...any) (v V) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func must[V any](v V, err error) func(t testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func insertOf(queue, id string) storage.Insert {
	return storage.Insert{
		Ref: storage.Ref{Queue: queue, ID: id}, Kind: "kind", Encoding: "msgpack", Payload: make([]byte, 96),
		MaxRetries: 20, CrashLimit: 3,
	}
}

// inserts returns n Txs, each with a new task.
func inserts(n int) []storage.Tx {
	txs := make([]storage.Tx, n)
	for i := range txs {
		txs[i].Inserts = []storage.Insert{insertOf("q", storage.NewID())}
	}
	return txs
}

func claimOf(n int, queues ...string) storage.ClaimRequest {
	if len(queues) == 0 {
		queues = []string{"q"}
	}
	req := storage.ClaimRequest{Runner: "runner", Start: n, Lease: time.Minute}
	for _, q := range queues {
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: q})
	}
	return req
}

// completions returns Txs that complete one task each.
func completions(fences []storage.Fence) []storage.Tx {
	txs := make([]storage.Tx, len(fences))
	for i, f := range fences {
		txs[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Complete}}
	}
	return txs
}

// pass inserts, claims and completes n tasks.
func pass(t testing.TB, session *storage.Session, n int) {
	t.Helper()
	must(session.Apply(t.Context(), inserts(n)...))(t)
	for left := n; left > 0; {
		claimed := must(session.Claim(t.Context(), claimOf(left)))(t)
		if len(claimed.Fences) == 0 {
			t.Fatalf("%d of %d tasks are left, and are not found", left, n)
		}
		left -= len(claimed.Fences)
		must(session.Apply(t.Context(), completions(claimed.Fences)...))(t)
	}
}
