package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestCrashLosesNothing kills the server under load and starts it again: every acknowledged task is
// there, once.
func TestCrashLosesNothing(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	store, _ := opened(t, fresh(t, postgres.Config{URL: server.URL()}))
	session := storage.NewSession(store, time.Minute)
	const producers, each, crashes = 4, 150, 3
	ctx := t.Context()
	var producing, consuming sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			for i := range each {
				tx := storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprintf("p%d-%d", p, i))}}
				if _, err := session.ApplyOne(ctx, tx); err != nil {
					t.Errorf("insert: %v", err)
					return
				}
			}
		})
	}
	ended := make(map[string]int)
	produced := make(chan struct{})
	consuming.Go(func() { drain(ctx, t, session, produced, ended) })
	for n := range crashes {
		testserver.Await(t, "some tasks are in", func() bool {
			stats, err := store.Stats(t.Context(), "q")
			return err == nil && stats[0].Totals.Enqueued > int64((n+1)*producers*each/(crashes+2))
		})
		if err := errors.Join(server.Kill(), server.Restart()); err != nil {
			t.Fatal(err)
		}
	}
	producing.Wait()
	close(produced)
	consuming.Wait()
	stats, err := store.Stats(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	totals := stats[0].Totals
	if totals.Enqueued != producers*each || totals.Completed != producers*each || stats[0].Live() != 0 {
		t.Errorf("after %d crashes: %+v, want %d enqueued and completed", crashes, stats[0], producers*each)
	}
	for n := range producers * each {
		if id := fmt.Sprintf("p%d-%d", n/each, n%each); ended[id] != 1 {
			t.Errorf("%s was acknowledged and ended %d times", id, ended[id])
		}
	}
}

// drain completes tasks until no more are expected and none is left, and counts each.
func drain(
	ctx context.Context, t *testing.T, session *storage.Session, produced <-chan struct{}, ended map[string]int,
) {
	t.Helper()
	for over := false; !over && !t.Failed(); {
		select {
		case <-produced:
			stats, err := session.Storage().Stats(ctx, "q")
			over = err == nil && stats[0].Live() == 0
		default:
		}
		complete(ctx, t, session, ended)
	}
}

// complete claims some tasks and completes them, and counts each.
func complete(ctx context.Context, t *testing.T, session *storage.Session, ended map[string]int) {
	t.Helper()
	claimed, err := session.Claim(ctx, claimOf(20))
	if err != nil {
		t.Errorf("claim: %v", err)
		return
	}
	for _, f := range claimed.Fences {
		tx := storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}}
		if _, err := session.ApplyOne(ctx, tx); err != nil {
			t.Errorf("complete: %v", err)
			return
		}
		ended[f.ID]++
	}
}

// TestListenerComesBack ends the listener's connection. It is made again, and later events wake those
// who wait.
func TestListenerComesBack(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, session := opened(t, cfg)
	_, other := opened(t, cfg)
	if _, err := other.ApplyOne(t.Context(), insertTx()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		claimed, err := session.Claim(t.Context(), claimOf(100))
		if err != nil {
			t.Fatal(err)
		}
		err = shared.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query "+
			"LIKE 'LISTEN \"midge_"+cfg.Schema+"\"%'")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = store.Wait(ctx, storage.WaitRequest{Queues: []string{"q"}, Since: claimed.Since})
		cancel()
		if err != nil {
			t.Fatalf("wait after the listener was lost: %v, want it to return for what may have been missed", err)
		}
	}
}
