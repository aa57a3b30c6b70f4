package redis_test

import (
	"crypto/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// BenchmarkWhole measures the processor time of an insert and of a whole drained task (its claim and
// its completion), in the server and in this process, everything included, in microseconds per
// task. It also measures how much memory of the server a waiting task takes.
func BenchmarkWhole(b *testing.B) {
	for _, batch := range []int{1000, 100, 1} {
		b.Run(strconv.Itoa(batch), func(b *testing.B) { benchWhole(b, batch) })
	}
}

func benchWhole(b *testing.B, batch int) {
	server := testserver.Redis(b)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	store, err := redis.Open(b.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, 0)
	rounds := max(b.N/batch, 1)
	inserts := make([][]storage.Tx, rounds)
	for i := range inserts {
		inserts[i] = welcomes(batch)
	}
	begun := measure(b, client)
	for _, txs := range inserts {
		if _, err := session.Apply(b.Context(), txs...); err != nil {
			b.Fatal(err)
		}
	}
	inserted := measure(b, client)
	for range rounds {
		claimAndComplete(b, session, batch)
	}
	drained := measure(b, client)
	tasks := float64(rounds * batch)
	b.ReportMetric(float64(inserted.memory-begun.memory)/tasks, "B/task")
	b.ReportMetric((inserted.server-begun.server)/tasks, "insert-server-µs")
	b.ReportMetric((inserted.client-begun.client)/tasks, "insert-client-µs")
	b.ReportMetric((drained.server-inserted.server)/tasks, "drain-server-µs")
	b.ReportMetric((drained.client-inserted.client)/tasks, "drain-client-µs")
}

// welcomes are Txs as a client sends them.
func welcomes(n int) []storage.Tx {
	txs := make([]storage.Tx, n)
	for i := range txs {
		payload := make([]byte, 64)
		_, _ = rand.Read(payload) // never fails
		txs[i].Inserts = []storage.Insert{{
			Ref: storage.Ref{Queue: "mail", ID: storage.NewID()}, Kind: "send_welcome", Encoding: "msgpack",
			Payload: payload, MaxRetries: 20, CrashLimit: 3,
		}}
	}
	return txs
}

// claimAndComplete claims and completes tasks as a runner does, with no more allocations than a runner
// makes.
func claimAndComplete(b *testing.B, session *storage.Session, batch int) {
	b.Helper()
	claimed, err := session.Claim(b.Context(), storage.ClaimRequest{
		Runner: "host.example-1234-0f0f0f0f", Queues: []storage.ClaimQueue{{Name: "mail"}},
		Start: min(batch, 100), Ahead: max(batch-100, 0), Suspect: true, Lease: time.Minute,
	})
	if err != nil || len(claimed.Tasks) != batch {
		b.Fatal(len(claimed.Tasks), err)
	}
	txs := make([]storage.Tx, batch)
	settles := make([]storage.Settle, batch)
	for i := range txs {
		settles[i] = storage.Settle{Fence: claimed.Fences[i], Outcome: storage.Complete}
		txs[i].Settles = settles[i : i+1]
	}
	if _, err := session.Apply(b.Context(), txs...); err != nil {
		b.Fatal(err)
	}
}

// measured are microseconds of processor time, and bytes of the server's memory.
type measured struct {
	server, client float64
	memory         int64
}

func measure(b *testing.B, client *goredis.Client) measured {
	b.Helper()
	text, err := client.Info(b.Context(), "cpu", "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	var m measured
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_cpu_sys", "used_cpu_user":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			m.server += seconds * 1e6
		case "used_memory":
			m.memory, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	m.client = float64(testserver.ProcessorTime(b).Microseconds())
	return m
}
