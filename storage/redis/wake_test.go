package redis_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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
	session := storage.NewSession(store, testserver.Patience)
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
	fill(t, storage.NewSession(other, testserver.Patience), 1, nil)
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
	// The new subscription itself is an event, so that the caller searches for tasks that it missed.
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
	fill(t, storage.NewSession(store, testserver.Patience), 1, nil)
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

// idle opens n storages of a server, each of which has claimed from the queue main in vain, beside a storage
// that has claimed from it before.
func idle(t *testing.T, server *testserver.Server, n int) []*redis.Storage {
	t.Helper()
	all := make([]*redis.Storage, n)
	for i := range all {
		var err error
		if all[i], err = redis.Open(t.Context(), redis.Config{URL: server.URL()}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = all[i].Close() })
		waitIn(t.Context(), t, all[i], false)
	}
	testserver.Await(t, "all storages listen", func() bool {
		return strings.Count(do(t, server, "PUBSUB", "CHANNELS", "midge:{main}:wake:*"), "wake:") == n+1
	})
	return all
}

// waitIn claims in vain and then waits, if waits is true, until ctx ends. The channel receives the error of the
// Wait.
func waitIn(ctx context.Context, t *testing.T, store *redis.Storage, waits bool) <-chan error {
	t.Helper()
	claimed, err := storage.NewSession(store, testserver.Patience).Claim(ctx, claimOf(1))
	if err != nil || len(claimed.Tasks) > 0 {
		t.Fatalf("claim: got %d tasks, %v, want none", len(claimed.Tasks), err)
	}
	woken := make(chan error, 1)
	if waits {
		go func() {
			woken <- store.Wait(ctx, storage.WaitRequest{Queues: []string{"main"}, Since: claimed.Since})
		}()
	}
	return woken
}

// TestATaskWakesOneIdleProcess, and is published to nobody if no process is idle.
func TestATaskWakesOneIdleProcess(t *testing.T) {
	server, _, session := started(t)
	fill(t, session, 1, nil) // the queue exists from here on
	drain(t, session)
	stores := idle(t, server, 5)
	id := 1
	// A busy machine may take so long that the marks are old, or that another process is woken.
	testserver.Await(t, "a task wakes one of five processes", func() bool {
		do(t, server, "DEL", "midge:{main}:idle")
		ctx, end := context.WithTimeout(t.Context(), 5*time.Second)
		defer end()
		woken := make(chan error, len(stores))
		for _, s := range stores {
			waits := waitIn(ctx, t, s, true)
			go func() { woken <- <-waits }()
		}
		id++
		fillFrom(t, session, id, id+1, nil)
		err := <-woken
		drain(t, session)
		return err == nil && len(woken) == 0
	})
	counts := commands(t, server, func() {
		do(t, server, "DEL", "midge:{main}:idle")
		fillFrom(t, session, 0, 1, nil)
	})
	if n := counts["publish"]; n > 0 {
		t.Errorf("no process is idle, and a task was published %d times", n)
	}
}

// TestAWakeUpReachesWhoCanTakeTheTask: it passes over a process that has ended, and a process without a free
// slot passes it on.
func TestAWakeUpReachesWhoCanTakeTheTask(t *testing.T) {
	server, _, session := started(t)
	fill(t, session, 1, nil)
	drain(t, session)
	stores := idle(t, server, 2)
	full, empty := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		req := storage.WaitRequest{Queues: []string{"main"}, Since: 1 << 60, CancelsOnly: true}
		_ = stores[0].Wait(full, req)
	})
	id := 1
	// A busy machine may take so long that the marks are old, and nobody is woken.
	testserver.Await(t, "the process that can take the task is woken", func() bool {
		do(t, server, "DEL", "midge:{main}:idle")
		ctx, end := context.WithTimeout(t.Context(), 5*time.Second)
		defer end()
		waitIn(ctx, t, stores[0], false)
		woken := waitIn(ctx, t, stores[1], true)
		// The first mark, as the marks of processes that have ended are.
		do(t, server, "EVAL", "redis.call('ZADD', KEYS[1], redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] - 1, 'ended')",
			"1", "midge:{main}:idle")
		id++
		fillFrom(t, session, id, id+1, nil)
		err := <-woken
		if left := do(t, server, "ZRANGE", "midge:{main}:idle", "0", "-1"); strings.Contains(left, "ended") {
			t.Errorf("marked as idle: %s, want no process that has ended", left)
		}
		drain(t, session)
		return err == nil
	})
	empty()
	waiting.Wait()
}
