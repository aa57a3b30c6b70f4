package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/storagetest"
)

// shared is the server of all tests that need none of their own; nil without real servers.
var shared *testserver.PostgresServer

// schemas numbers the schemas that tests make on the shared server.
var schemas atomic.Int64

// clockNow is the time by the server's clock, in microseconds.
const clockNow = "(date_part('epoch', clock_timestamp()) * 1000000)::int8"

func TestMain(m *testing.M) { os.Exit(run(m)) }

// atOnce is how many tests run side by side: the rules of the contract wait for leases half of their
// time.
const atOnce = "8"

func run(m *testing.M) int {
	if err := flag.Set("test.parallel", atOnce); err != nil {
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
	}
	return m.Run()
}

// TestContract runs the contract on a real server.
func TestContract(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		return opener(t, reused(t, limits), func(*postgres.Storage) {})
	})
}

// TestContractWithoutShortWays runs the rules on the verbs that have short ways with every claim and flush
// in the general way.
func TestContractWithoutShortWays(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		return opener(t, reused(t, limits), (*postgres.Storage).NoShort)
	}, generalTopics...)
}

// fresh gives a configuration with an empty schema of its own.
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

// emptied has the names of schemas in which a rule of the contract has run, and which are empty again. A
// migration takes the server longer than most rules take.
var emptied = make(chan string, 100)

// reused gives a configuration with an empty schema, which other rules may have used.
func reused(t testing.TB, limits storage.Limits) postgres.Config {
	t.Helper()
	cfg := postgres.Config{URL: shared.URL(), Limits: limits}
	select {
	case cfg.Schema = <-emptied:
	default:
		cfg = fresh(t, cfg)
	}
	cfg.URL += "&application_name=" + cfg.Schema
	t.Cleanup(func() {
		if err := shared.Exec(context.WithoutCancel(t.Context()), strings.ReplaceAll(empty, "{schema}", cfg.Schema)); err != nil {
			t.Error(err)
		} else {
			emptied <- cfg.Schema
		}
	})
	return cfg
}

// empty makes a schema as it was after its migration. It first waits for the connections of storages that
// were closed: the server may still carry out a call that was abandoned.
const empty = `DO $$
	DECLARE found record;
	BEGIN
		WHILE EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '{schema}') LOOP
			PERFORM pg_sleep(0.002), pg_stat_clear_snapshot();
		END LOOP;
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

// opener opens a storage, again on the same data where asked to, and prepares each.
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
