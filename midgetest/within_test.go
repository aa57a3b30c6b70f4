package midgetest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // for database/sql

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/midgetest"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
)

// TestWithinAnOpenTransaction reads the tasks that an open transaction of PostgreSQL has
// enqueued, with pgx and with database/sql, in a new queue and in an existing one.
func TestWithinAnOpenTransaction(t *testing.T) {
	testserver.RequirePostgres(t)
	url := testserver.Postgres(t, testserver.PostgresOptions{}).URL()
	must(t, postgres.Migrate(t.Context(), postgres.Config{URL: url}))
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(t, err)

	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { must(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	sees(t, client, client.With(store.Within(tx)))
	must(t, tx.Rollback(t.Context()))
	midgetest.RequireNone[mail](t, client)

	db, err := sql.Open("pgx", url)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	sqlTx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	sees(t, client, client.With(store.WithinSQL(sqlTx)))
	must(t, sqlTx.Commit())
	midgetest.RequireEnqueued[mail](t, client)
}

// sees enqueues within a transaction and checks that only the transaction sees the task. A read
// that fails must leave the transaction usable.
func sees(t *testing.T, outside, within *midge.Client) {
	t.Helper()
	task := enqueue(t, within, mail{To: "ann"}, midge.To("letters"))
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := within.Task(ended, task.Ref); err == nil {
		t.Error("a read whose context has ended went through")
	}
	if read, err := within.Task(t.Context(), task.Ref); err != nil || read.State != midge.Waiting {
		t.Errorf("the transaction reads its task as %s, %v, want waiting", read.State, err)
	}
	enqueue(t, within, sheet{Pages: 1}, midge.To("letters"))
	midgetest.RequireNone[mail](t, outside)
	midgetest.RequireNone[sheet](t, outside)
	midgetest.RequireEnqueued[mail](t, within, midgetest.Params(mail{To: "ann"}))
	midgetest.RequireEnqueued[sheet](t, within)
}

// TestOptionsComeBackFromEveryStorage enqueues with options on Redis and PostgreSQL, and finds the
// task by these options.
func TestOptionsComeBackFromEveryStorage(t *testing.T) {
	testserver.Require(t)
	url := testserver.Postgres(t, testserver.PostgresOptions{}).URL()
	must(t, postgres.Migrate(t.Context(), postgres.Config{URL: url}))
	onPostgres, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	must(t, err)
	onRedis, err := redis.Open(t.Context(), redis.Config{URL: testserver.Redis(t).URL()})
	must(t, err)
	for name, store := range map[string]storage.Storage{"PostgreSQL": onPostgres, "Redis": onRedis} {
		client, err := midge.NewClient(store, midge.ClientConfig{})
		must(t, err)
		opts := []midge.Option{
			midge.In(time.Hour), midge.To("slow"), midge.Priority(-3), midge.Retries(2), midge.CrashLimit(7),
			midge.Timeout(time.Minute), midge.Header("tenant", "7"), midge.ID(name), midge.KeepFor(time.Hour),
			midge.Header("empty", ""),
			midge.Unique{For: time.Hour},
			midge.Geometric{First: time.Minute},
		}
		enqueue(t, client, mail{To: "ann"}, opts...)
		midgetest.RequireEnqueued[mail](t, client, midgetest.With(opts...))
		must(t, store.Close())
	}
}
