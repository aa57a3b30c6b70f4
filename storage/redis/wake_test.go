package redis_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

func TestLostReplyOfEachVerbIsNoEvent(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	proxy := testserver.NewProxy(t, server.Addr())
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + proxy.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, 0)
	for i := range 50 {
		proxy.CutAfterRequest(testserver.Command("EVALSHA", "EVAL"), 1)
		fill(t, session, 5, nil)
		proxy.CutAfterRequest(testserver.Command("EVALSHA", "EVAL"), 1)
		if got := drain(t, session); got != 5 {
			t.Fatalf("round %d: drained %d, want 5", i, got)
		}
	}
	stats, err := store.Stats(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	if got := stats[0].Totals; got.Enqueued != 250 || got.Completed != 250 || got.Crashed != 0 {
		t.Errorf("totals: got %+v, want 250 enqueued and completed", got)
	}
}

func TestWakeUpComesFromAnotherProcess(t *testing.T) {
	server, store, session := started(t)
	other, err := redis.Open(t.Context(), redis.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	fill(t, session, 1, nil)
	drain(t, session)
	claimed, err := session.Claim(t.Context(), claimOf(1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	woken := make(chan error, 1)
	go func() {
		woken <- store.Wait(ctx, storage.WaitRequest{Queues: []string{"main"}, Since: claimed.Since})
	}()
	fill(t, storage.NewSession(other, 0), 1, nil)
	if err := <-woken; err != nil {
		t.Errorf("wait: %v", err)
	}
}

func TestWakeUpsComeBackAfterTheConnectionWasLost(t *testing.T) {
	server, store, session := started(t)
	fill(t, session, 1, nil)
	drain(t, session)
	claimed, err := session.Claim(t.Context(), claimOf(1))
	if err != nil {
		t.Fatal(err)
	}
	do(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// The new subscription itself is an event, so that the caller looks for tasks that it missed.
	if err := store.Wait(ctx, storage.WaitRequest{Queues: []string{"main"}, Since: claimed.Since}); err != nil {
		t.Errorf("wait: %v", err)
	}
}

func TestApplicationsOwnClientStaysOpen(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	store, err := redis.Open(t.Context(), redis.Config{Client: client, Prefix: "app:jobs"})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, storage.NewSession(store, 0), 1, nil)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Errorf("keys: got %v, error %v", keys, err)
	}
	if i := slices.IndexFunc(keys, func(k string) bool { return !strings.HasPrefix(k, "app:jobs:") }); i >= 0 {
		t.Errorf("key %s: want prefix app:jobs", keys[i])
	}
	if _, err := store.Stats(t.Context(), "main"); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close: got %v, want ErrClosed", err)
	}
}

func TestNothingOutlivesTheLastRecord(t *testing.T) {
	server, _, session := started(t)
	fill(t, session, 3, func(in *storage.Insert) { in.Payload = make([]byte, 8<<10) })
	claimed, err := session.Claim(t.Context(), claimOf(3))
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range []storage.Outcome{storage.Fail, storage.Bury, storage.Cancel} {
		s := storage.Settle{Fence: claimed.Fences[i], Outcome: o, Error: "e", Stack: "s"}
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{s}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := session.RemoveQueue(t.Context(), "main"); err != nil {
		t.Fatal(err)
	}
	keys := do(t, server, "EVAL", "return table.concat(redis.call('KEYS', '*'), ' ')", "0")
	for k := range strings.FieldsSeq(keys) {
		if strings.HasPrefix(k, "midge:{main}:") || k == "midge:{*}:queues" || k == "midge:{*}:seen" {
			t.Errorf("key %s is still there", k)
		}
	}
}
