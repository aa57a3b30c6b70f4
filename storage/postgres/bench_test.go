package postgres_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/storagetest"
)

// The benchmarks below run on a server that waits for its disk, as servers in production do.

func slow(b *testing.B) (postgres.Config, *testserver.PostgresServer) {
	b.Helper()
	testserver.RequirePostgres(b)
	server := testserver.Postgres(b, testserver.PostgresOptions{})
	return fresh(b, postgres.Config{URL: server.URL()}), server
}

// cpu returns the processor time that a process and its children have used, 0 if the system does not report
// it.
func cpu(pid int) (used time.Duration) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		const parent, user, system, tick = 1, 11, 12, 10 * time.Millisecond
		mine := strings.HasPrefix(path, "/proc/"+strconv.Itoa(pid)+"/")
		if fields[parent] != strconv.Itoa(pid) && !mine {
			continue
		}
		for i, f := range fields[user : system+3] {
			n, _ := strconv.Atoi(f)
			if i < 2 || mine { // add the time of children that have ended
				used += time.Duration(n) * tick
			}
		}
	}
	return used
}

// measured reports the rate of n tasks, and the processor time of the server and of this process per
// task.
func measured(b *testing.B, server *testserver.PostgresServer, n int, what string, action func()) {
	b.Helper()
	self := os.Getpid()
	srv, own, begun := cpu(server.Pid()), cpu(self), time.Now()
	action()
	took := time.Since(begun)
	srv, own = cpu(server.Pid())-srv, cpu(self)-own
	b.ReportMetric(float64(n)/took.Seconds(), what+"/s")
	b.ReportMetric(float64(srv.Microseconds())/float64(n), "srv-µs/"+what)
	b.ReportMetric(float64(own.Microseconds())/float64(n), "own-µs/"+what)
}

func Benchmark(b *testing.B) {
	testserver.RequirePostgres(b)
	server := testserver.Postgres(b, testserver.PostgresOptions{})
	storagetest.Bench(b, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		return opener(t, fresh(t, postgres.Config{URL: server.URL(), Limits: limits}), func(*postgres.Storage) {})
	})
}

// BenchmarkProducers enqueues one task a call, from some goroutines.
func BenchmarkProducers(b *testing.B) {
	for _, producers := range []int{1, 16, 64} {
		b.Run(strconv.Itoa(producers), func(b *testing.B) {
			cfg, server := slow(b)
			store, session := openBench(b, cfg)
			defer func() { _ = store.Close() }()
			var n atomic.Int64
			b.ResetTimer()
			measured(b, server, b.N, "task", func() {
				var all sync.WaitGroup
				for range producers {
					all.Go(func() {
						for n.Add(1) <= int64(b.N) {
							if _, err := session.ApplyOne(b.Context(), insertTx()); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// BenchmarkBare measures the cost that any queue in PostgreSQL pays for an enqueue: one prepared insert of
// such a row into a table with two indexes, and its commit.
func BenchmarkBare(b *testing.B) {
	cfg, server := slow(b)
	conn, err := pgx.Connect(b.Context(), cfg.URL)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close(b.Context()) }()
	_, err = conn.Exec(b.Context(), "CREATE TABLE bare (id bytea PRIMARY KEY, queue text, at timestamptz DEFAULT now(),"+
		" payload bytea); CREATE INDEX ON bare (queue, at)")
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	measured(b, server, b.N, "task", func() {
		for range b.N {
			in := insertOf(storage.NewID())
			_, err := conn.Exec(b.Context(), "INSERT INTO bare (id, queue, payload) VALUES ($1, $2, $3)",
				[]byte(in.Ref.ID), in.Ref.Queue, in.Payload)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDrain fills a queue and drains it with batches of some size, from some goroutines at once.
// One operation is one task.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct{ size, workers int }{{10, 1}, {100, 1}, {100, 2}, {1000, 1}} {
		b.Run(fmt.Sprintf("%dx%d", c.workers, c.size), func(b *testing.B) {
			cfg, server := slow(b)
			store, session := openBench(b, cfg)
			defer func() { _ = store.Close() }()
			measured(b, server, b.N, "fill", func() {
				for left := b.N; left > 0; left -= 1000 {
					if _, err := session.Apply(b.Context(), insertTxs(min(left, 1000))...); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.ResetTimer()
			measured(b, server, b.N, "task", func() {
				var all sync.WaitGroup
				for range c.workers {
					all.Go(func() { drainBench(b, session, c.size) })
				}
				all.Wait()
			})
		})
	}
}

func drainBench(b *testing.B, session *storage.Session, size int) {
	for {
		claimed, err := session.Claim(b.Context(), claimOf(size))
		if err != nil {
			b.Error(err)
			return
		}
		if len(claimed.Fences) == 0 {
			return
		}
		txs := make([]storage.Tx, len(claimed.Fences))
		for i, f := range claimed.Fences {
			txs[i].Settles = []storage.Settle{{Fence: f, Outcome: storage.Complete}}
		}
		applied, err := session.Apply(b.Context(), txs...)
		if err != nil || applied[0].Err != nil {
			b.Error(err, applied)
			return
		}
	}
}

func openBench(b *testing.B, cfg postgres.Config) (*postgres.Storage, *storage.Session) {
	b.Helper()
	store, err := postgres.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	return store, storage.NewSession(store, 0)
}

func insertOf(id string) storage.Insert {
	return storage.Insert{
		Ref: storage.Ref{Queue: "q", ID: id}, Kind: "kind", Encoding: "msgpack", Payload: make([]byte, 96),
		MaxRetries: 20, CrashLimit: 3,
	}
}

func insertTx() storage.Tx {
	return storage.Tx{Inserts: []storage.Insert{insertOf(storage.NewID())}}
}

func insertTxs(n int) (txs []storage.Tx) {
	for range n {
		txs = append(txs, insertTx())
	}
	return txs
}

func claimOf(n int) storage.ClaimRequest {
	return storage.ClaimRequest{
		Runner: "runner", Queues: []storage.ClaimQueue{{Name: "q"}}, Start: n, Lease: time.Minute,
	}
}
