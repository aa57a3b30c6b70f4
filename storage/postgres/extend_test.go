package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestACheckpointIsNotSkipped locks a task for a moment, as a heartbeat does. Extensions pass over
// such a task, but a checkpoint for it must not be lost.
func TestACheckpointIsNotSkipped(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, session := opened(t, cfg)
	if _, err := session.ApplyOne(t.Context(), insertTx()); err != nil {
		t.Fatal(err)
	}
	claimed, err := session.Claim(t.Context(), claimOf(1))
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claim: %d tasks, %v, want one", len(claimed.Fences), err)
	}
	fence := claimed.Fences[0]
	conn, err := pgx.Connect(t.Context(), shared.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM "+cfg.Schema+".tasks FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	hasty := storage.NewSession(store, -1)
	extended, err := hasty.Extend(t.Context(), storage.ExtendRequest{
		Leases: []storage.Extension{{Fence: fence, For: time.Minute}},
	})
	if err != nil || !slices.Equal(extended.Locked, []storage.Ref{fence.Ref}) {
		t.Errorf("a heartbeat: got %v, %v, want the locked task passed over", extended.Locked, err)
	}
	write := storage.ExtendRequest{Leases: []storage.Extension{{Fence: fence, Checkpoint: []byte("1")}}}
	if _, err := hasty.Extend(t.Context(), write); err == nil {
		t.Error("a checkpoint was acknowledged and not written")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := session.Extend(t.Context(), write); err != nil {
		t.Fatal(err)
	}
	task, err := store.Task(t.Context(), fence.Ref)
	if err != nil || string(task.Checkpoint) != "1" {
		t.Errorf("the checkpoint is %q, %v, want it written", task.Checkpoint, err)
	}
}
