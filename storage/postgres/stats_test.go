package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestStatsSearchesOnlyLinesWithTasks counts the searches in the index of the tasks while Stats reads many
// queues, of which one has a waiting task.
func TestStatsSearchesOnlyLinesWithTasks(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{URL: shared.URL()})
	store, session := opened(t, cfg)
	const queues, bands = 100, 19
	names := make([]string, queues)
	for i := range names {
		names[i] = fmt.Sprintf("q%03d", i)
		if err := session.Configure(t.Context(), names[i], storage.Settings{Create: true}); err != nil {
			t.Fatal(err)
		}
	}
	in := insertOf("a")
	in.Ref.Queue = names[queues/2]
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), shared.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var read, searches int64
	err = tx.QueryRow(t.Context(), postgres.InSchema("SELECT count(*) FROM {schema}.stats($1)", cfg.Schema), names).Scan(&read)
	if err != nil {
		t.Fatal(err)
	}
	err = tx.QueryRow(t.Context(),
		"SELECT idx_scan + seq_scan FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname = 'tasks'", cfg.Schema,
	).Scan(&searches)
	if err != nil || read != queues || searches > bands {
		t.Errorf("%d queues read with %d searches, %v; want %d with %d at most, of the one line with tasks",
			read, searches, err, queues, bands)
	}
	stats, err := store.Stats(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stats {
		if waits := s.Queue == in.Ref.Queue; (s.Waiting == 1) != waits || (s.Oldest > 0) != waits {
			t.Errorf("%s: %d waiting, the oldest for %v", s.Queue, s.Waiting, s.Oldest)
		}
	}
}
