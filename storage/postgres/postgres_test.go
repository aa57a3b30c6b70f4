package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/storagetest"
)

// shared is the server of all tests that need none of their own; nil without real servers.
var shared *testserver.PostgresServer

// sessions is a proxy of shared that serves each client with a session of an earlier client: a new session of
// PostgreSQL starts, compiles and plans for longer than most tests take.
var sessions *testserver.PgBouncer

// statements has the connections on which tests inspect and empty schemas of the shared server.
var statements *pgxpool.Pool

// schemas numbers the schemas that tests make on the shared server.
var schemas atomic.Int64

// clockNow is the time by the server's clock, in microseconds.
const clockNow = "(date_part('epoch', clock_timestamp()) * 1000000)::int8"

func TestMain(m *testing.M) { os.Exit(run(m)) }

// atOnce is how many tests run side by side: the rules of the contract wait for leases half of their
// time.
const atOnce = 8

func run(m *testing.M) int {
	if err := testserver.SetParallel(atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if testserver.Enabled() {
		server, err := testserver.StartPostgres(testserver.PostgresOptions{Unsafe: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = server.Close() }()
		shared = server
		if sessions, err = testserver.StartBouncer(server, testserver.PooledSessions...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = sessions.Close() }()
		if statements, err = pgxpool.New(context.Background(), server.URL()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer statements.Close()
	}
	return m.Run()
}

// TestContract runs the contract on a real server.
func TestContract(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		testserver.Turn(t)
		return opener(t, reused(t, limits), func(*postgres.Storage) {})
	})
}

// TestContractWithoutShortWays runs the rules on the verbs that have short ways with every claim and flush
// in the general way.
func TestContractWithoutShortWays(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		testserver.Turn(t)
		return opener(t, reused(t, limits), (*postgres.Storage).NoShort)
	}, generalTopics...)
}

// fresh returns a configuration with an empty schema of its own.
func fresh(t testing.TB, cfg postgres.Config) postgres.Config {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = shared.URL()
	}
	cfg.Schema = fmt.Sprintf("midge_%d", schemas.Add(1))
	if err := postgres.Migrate(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// emptied has the names of schemas that a test has used, and which are again as they were after their
// migration. A migration takes the server longer than most tests take.
var emptied = make(chan string, 100)

// reused returns a configuration with an empty schema, which earlier tests may have used. No later test uses
// the schema if this one changes a definition in it.
func reused(t testing.TB, limits storage.Limits) postgres.Config {
	t.Helper()
	cfg := postgres.Config{URL: shared.URL(), Limits: limits}
	select {
	case cfg.Schema = <-emptied:
	default:
		cfg = fresh(t, cfg)
	}
	cfg.URL = sessions.URL() + "&application_name=" + cfg.Schema
	ctx := context.WithoutCancel(t.Context())
	before, err := definitions(ctx, cfg.Schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := statements.Exec(ctx, inSchema(quiet, cfg.Schema)); err != nil {
			t.Error(err)
			return
		}
		after, err := definitions(ctx, cfg.Schema)
		if err != nil || after != before { // an error means that a table is missing
			return
		}
		if _, err := statements.Exec(ctx, inSchema(empty, cfg.Schema)); err != nil {
			t.Error(err)
			return
		}
		emptied <- cfg.Schema
	})
	return cfg
}

func inSchema(text, schema string) string { return strings.ReplaceAll(text, "{schema}", schema) }

// definitions returns a text that every change of a definition in a schema changes, and every VACUUM and
// ANALYZE: a change of a definition makes a new version of a row in the catalog.
func definitions(ctx context.Context, schema string) (all string, err error) {
	err = statements.QueryRow(ctx, inSchema(`WITH tables AS (
			SELECT oid, xmin, relpages, reltuples FROM pg_class WHERE relnamespace = '{schema}'::regnamespace
		)
		SELECT md5(string_agg(version, ' ' ORDER BY version)) FROM (
			SELECT ('schema', oid, xmin)::text FROM pg_namespace WHERE nspname = '{schema}'
			UNION ALL SELECT ('table', oid, xmin, relpages, reltuples)::text FROM tables
			UNION ALL SELECT ('function', oid, xmin)::text FROM pg_proc
				WHERE pronamespace = '{schema}'::regnamespace
			UNION ALL SELECT ('type', oid, xmin)::text FROM pg_type
				WHERE typnamespace = '{schema}'::regnamespace
			UNION ALL SELECT ('constraint', c.oid, c.xmin)::text FROM tables, pg_constraint c
				WHERE conrelid = tables.oid
			UNION ALL SELECT ('column', attnum, a.xmin, tables.oid)::text FROM tables, pg_attribute a
				WHERE attrelid = tables.oid
			UNION ALL SELECT ('default', d.oid, d.xmin)::text FROM tables, pg_attrdef d
				WHERE adrelid = tables.oid
			UNION ALL SELECT ('index', indexrelid, i.xmin)::text FROM tables, pg_index i
				WHERE indrelid = tables.oid
			UNION ALL SELECT ('trigger', t.oid, t.xmin)::text FROM tables, pg_trigger t
				WHERE tgrelid = tables.oid
			UNION ALL SELECT ('rule', r.oid, r.xmin)::text FROM tables, pg_rewrite r
				WHERE ev_class = tables.oid
			UNION ALL SELECT ('sequence', seqrelid, s.xmin)::text FROM tables, pg_sequence s
				WHERE seqrelid = tables.oid
			UNION ALL SELECT ('policy', p.oid, p.xmin)::text FROM tables, pg_policy p
				WHERE polrelid = tables.oid
			UNION ALL SELECT ('migration', ctid, xmin)::text FROM {schema}.migrations
			UNION ALL SELECT ('version', ctid, xmin)::text FROM {schema}.functions
		) AS versions (version)`, schema)).Scan(&all)
	return all, err
}

// quiet waits for the sessions of a schema's storages that were closed: the server may still carry out
// a call that was abandoned.
const quiet = `DO $$ BEGIN
		WHILE EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '{schema}') LOOP
			PERFORM pg_sleep(0.002), pg_stat_clear_snapshot();
		END LOOP;
	END $$`

// empty deletes the rows of a schema, except the rows of its migration, and resets its sequences.
const empty = `DO $$
	DECLARE found record;
	BEGIN
		FOR found IN SELECT c.oid::regclass AS name, c.relkind, s.seqstart
			FROM pg_class c LEFT JOIN pg_sequence s ON s.seqrelid = c.oid
			WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind IN ('r', 'S')
				AND c.relname NOT IN ('migrations', 'functions')
		LOOP
			IF found.relkind = 'S' THEN
				PERFORM setval(found.name, found.seqstart, false);
			ELSE
				EXECUTE 'DELETE FROM ' || found.name;
			END IF;
		END LOOP;
	END $$`

// opener opens a storage, again on the same data if asked to, and prepares each.
func opener(t testing.TB, cfg postgres.Config, prepare func(*postgres.Storage)) storagetest.Opened {
	t.Helper()
	open := func(t testing.TB) storage.Storage {
		t.Helper()
		s, err := postgres.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		prepare(s)
		return s
	}
	return storagetest.Opened{
		Storage: open(t),
		Again:   open,
		Durable: true,
		Damage: func(t testing.TB, ref storage.Ref) {
			t.Helper()
			for _, table := range []string{"tasks", "ended"} {
				err := shared.Exec(t.Context(), "UPDATE "+cfg.Schema+"."+table+" SET record = 'garbage' WHERE id = $1",
					[]byte(ref.ID))
				if err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

// TestAnInsertHasTheVersionThatWasTold although a completion comes before it in its call.
func TestAnInsertHasTheVersionThatWasTold(t *testing.T) {
	s := newShop(t)
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
	fence := s.claim(1).Fences[0]
	applied, err := s.session.Apply(t.Context(),
		storage.Tx{Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}}},
		storage.Tx{Inserts: []storage.Insert{insertOf("b")}})
	s.must(err)
	told := applied[1].Inserted[0]
	task, err := s.store.Task(t.Context(), told.Ref)
	s.must(err)
	s.want("version", task.Version, told.Version)
}
