package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// BenchmarkScripts measures what an insert, a claim and a completion cost the server's
// processor, in microseconds per task, and what a waiting task takes of its memory.
func BenchmarkScripts(b *testing.B) {
	server := testserver.Redis(b)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	store, err := redis.Open(b.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, 0)
	const batch = 250
	rounds := max(b.N/batch, 1)
	tasks := float64(rounds * batch)
	payload := []byte(strings.Repeat("x", 64))
	before := measure(b, client)
	for range rounds {
		txs := make([]storage.Tx, batch)
		for i := range txs {
			txs[i].Inserts = []storage.Insert{{
				Ref: storage.Ref{Queue: "mail", ID: storage.NewID()}, Kind: "send_welcome", Encoding: "msgpack",
				Payload: payload, MaxRetries: 20, CrashLimit: 3,
			}}
		}
		if _, err := session.Apply(b.Context(), txs...); err != nil {
			b.Fatal(err)
		}
	}
	inserted := measure(b, client)
	b.ReportMetric(float64(inserted.memory-before.memory)/tasks, "B/task")
	b.ReportMetric((inserted.cpu-before.cpu)/tasks, "insert-µs/task")
	var claims, settles float64
	for range rounds {
		from := measure(b, client)
		claimed, err := session.Claim(b.Context(), storage.ClaimRequest{
			Runner: "r1", Queues: []storage.ClaimQueue{{Name: "mail"}}, Max: batch, Start: batch, Lease: time.Minute,
		})
		if err != nil || len(claimed.Tasks) != batch {
			b.Fatal(len(claimed.Tasks), err)
		}
		between := measure(b, client)
		txs := make([]storage.Tx, batch)
		for i := range txs {
			txs[i].Settles = []storage.Settle{{Fence: claimed.Fences[i], Outcome: storage.Complete}}
		}
		if _, err := session.Apply(b.Context(), txs...); err != nil {
			b.Fatal(err)
		}
		to := measure(b, client)
		claims += between.cpu - from.cpu
		settles += to.cpu - between.cpu
	}
	b.ReportMetric(claims/tasks, "claim-µs/task")
	b.ReportMetric(settles/tasks, "settle-µs/task")
}

type measured struct {
	cpu    float64 // µs of scripts
	memory int64
}

func measure(b *testing.B, client *goredis.Client) measured {
	b.Helper()
	text, err := client.Info(b.Context(), "commandstats", "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	var m measured
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			var calls int64
			var usec int64
			if _, err := fmt.Sscanf(rest, "calls=%d,usec=%d", &calls, &usec); err != nil {
				b.Fatal(err)
			}
			m.cpu = float64(usec)
		}
		if rest, ok := strings.CutPrefix(line, "used_memory:"); ok {
			m.memory, _ = strconv.ParseInt(rest, 10, 64)
		}
	}
	return m
}
