package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// Bill is the job of the benchmarks.
type Bill struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
}

// benchRows is the number of rows of a load.
const benchRows = 100_000

// BenchmarkLoad compares a load of 100,000 rows with an EnqueueMany of the same jobs. bytes/task is the
// growth of the storage: the memory of Redis, and the database on the disk of PostgreSQL and SQLite.
func BenchmarkLoad(b *testing.B) {
	testserver.Require(b)
	testserver.RequirePostgres(b)
	var text strings.Builder
	var items []midge.Item
	for i := range benchRows {
		_, _ = fmt.Fprintf(&text, "{\"id\":%d,\"customer\":\"customer %d\"}\n", i, i%1000)
		items = append(items, midge.New(Bill{i, fmt.Sprintf("customer %d", i%1000)}))
	}
	file := (&rig{t: b, dir: b.TempDir()}).write("orders.jsonl", text.String())
	for name, open := range map[string]func(b *testing.B) (storage.Storage, func() int64){
		"redis": openRedis, "postgres": openPostgres, "sqlite": openSQLite,
	} {
		measure := func(b *testing.B, work func(store storage.Storage) error) {
			for b.Loop() {
				b.StopTimer()
				store, size := open(b)
				before := size()
				b.StartTimer()
				err := work(store)
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(size()-before)/benchRows, "bytes/task")
				b.StartTimer()
			}
			b.ReportMetric(benchRows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		}
		b.Run("load/"+name, func(b *testing.B) {
			measure(b, func(store storage.Storage) error {
				l := &Loader{
					Session: storage.NewSession(store, 0), Source: source(file), Name: "orders", Rows: Rows{Format: JSONL, Task: bulk.Add{
						Ref: storage.Ref{Queue: "q"}, Kind: "bill", Encoding: "json", CrashLimit: 3, Retries: 20,
					}},
				}
				_, err := l.Run(b.Context())
				return err
			})
		})
		b.Run("enqueue/"+name, func(b *testing.B) {
			measure(b, func(store storage.Storage) error {
				client, err := midge.NewClient(store, midge.ClientConfig{})
				if err == nil {
					_, err = client.EnqueueMany(b.Context(), items)
				}
				return err
			})
		})
	}
}

// openRedis starts a Redis. The size is its memory.
func openRedis(b *testing.B) (store storage.Storage, size func() int64) {
	b.Helper()
	server := testserver.Redis(b)
	store, err := redis.Open(b.Context(), redis.Config{URL: server.URL()})
	return opened(b, store, err), func() int64 {
		info, err := server.Do("INFO", "memory")
		_, text, _ := strings.Cut(info, "used_memory:")
		text, _, _ = strings.Cut(text, "\r")
		n, bad := strconv.ParseInt(text, 10, 64)
		if err != nil || bad != nil {
			b.Fatal(err, bad)
		}
		return n
	}
}

// openPostgres starts a PostgreSQL. The size is that of the database with its indexes.
func openPostgres(b *testing.B) (store storage.Storage, size func() int64) {
	b.Helper()
	server := testserver.Postgres(b, testserver.PostgresOptions{})
	cfg := postgres.Config{URL: server.URL()}
	if err := postgres.Migrate(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
	store, err := postgres.Open(b.Context(), cfg)
	return opened(b, store, err), func() (n int64) {
		conn, err := pgx.Connect(b.Context(), cfg.URL)
		if err == nil {
			err = conn.QueryRow(b.Context(), "SELECT pg_database_size(current_database())").Scan(&n)
			_ = conn.Close(b.Context()) // it has answered
		}
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
}

// openSQLite makes a file. The size is that of the file with its log.
func openSQLite(b *testing.B) (store storage.Storage, size func() int64) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "jobs.db")
	store, err := modernc.Open(b.Context(), path)
	return opened(b, store, err), func() (n int64) {
		for _, name := range []string{path, path + "-wal"} {
			if info, err := os.Stat(name); err == nil {
				n += info.Size()
			}
		}
		return n
	}
}

func opened(b *testing.B, store storage.Storage, err error) storage.Storage {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	return store
}
