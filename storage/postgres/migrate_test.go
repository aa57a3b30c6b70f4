package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

func TestTwentyStartersMigrateOnce(t *testing.T) {
	testserver.RequirePostgres(t)
	for name, before := range map[string]string{
		"from nothing": "DROP SCHEMA %[1]s CASCADE",
		"from an older version": `DELETE FROM %[1]s.migrations WHERE version > 1;
			DO $$ DECLARE f regprocedure; BEGIN
				FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = '%[1]s'::regnamespace LOOP
					EXECUTE 'DROP FUNCTION ' || f;
				END LOOP;
			END $$`,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fresh(t, postgres.Config{})
			if err := shared.Exec(t.Context(), fmt.Sprintf(before, cfg.Schema)); err != nil {
				t.Fatal(err)
			}
			startTwenty(t, cfg)
		})
	}
}

func startTwenty(t *testing.T, cfg postgres.Config) {
	t.Helper()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := postgres.Migrate(t.Context(), cfg); err != nil {
				t.Error(err)
			}
			store, err := postgres.Open(t.Context(), cfg)
			if err != nil {
				t.Error(err)
				return
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	once := "SELECT 1 / (count(*) = max(version) AND count(*) > 0)::int FROM " + cfg.Schema + ".migrations"
	if err := shared.Exec(t.Context(), once); err != nil {
		t.Errorf("the migrations: %v, want each applied once", err)
	}
}

func TestOpenRefusesOtherTables(t *testing.T) {
	testserver.RequirePostgres(t)
	for name, c := range map[string]struct {
		disturb string
		migrate bool // is refused too
		have    int
	}{
		"much newer": {"INSERT INTO %s.migrations (version) VALUES (1000)", true, 1000},
		"newer by one": {
			"INSERT INTO %[1]s.migrations (version) SELECT max(version) + 1 FROM %[1]s.migrations", true, postgres.Version() + 1,
		},
		"older": {"DELETE FROM %s.migrations WHERE version > 1", false, 1},
		"none":  {"DROP SCHEMA %s CASCADE", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fresh(t, postgres.Config{})
			if err := shared.Exec(t.Context(), fmt.Sprintf(c.disturb, cfg.Schema)); err != nil {
				t.Fatal(err)
			}
			_, err := postgres.Open(t.Context(), cfg)
			refusals := []error{err}
			if c.migrate {
				refusals = append(refusals, postgres.Migrate(t.Context(), cfg))
			}
			for _, err := range refusals {
				var other *postgres.SchemaError
				if !errors.As(err, &other) || other.Have != c.have || !errors.Is(err, storage.ErrRefused) {
					t.Errorf("got %v, want a *SchemaError of version %d, an ErrRefused", err, c.have)
				}
			}
		})
	}
}

func TestOpenRefusesABadConfig(t *testing.T) {
	for what, cfg := range map[string]postgres.Config{
		"neither URL nor pool": {},
		"a bad URL":            {URL: "postgres://user:secret@host:port/x"},
		"a bad schema":         {URL: "postgres://localhost", Schema: "pg_catalog"},
		"an upper-case schema": {URL: "postgres://localhost", Schema: "Midge"},
		"too few connections":  {URL: "postgres://localhost", Connections: -1},
		"a listener and none":  {URL: "postgres://localhost", ListenURL: "postgres://localhost", NoListener: true},
		"a bad limit":          {URL: "postgres://localhost", Limits: storage.Limits{DeadMax: -1}},
	} {
		var invalid *storage.InvalidError
		if _, err := postgres.Open(t.Context(), cfg); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, want an *InvalidError", what, err)
		}
	}
}

// TestOpenRefusesAMissingDatabase: to try again would not help, so the error says so.
func TestOpenRefusesAMissingDatabase(t *testing.T) {
	testserver.RequirePostgres(t)
	elsewhere := strings.Replace(shared.URL(), "/postgres?", "/nowhere?", 1)
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: elsewhere}); !errors.Is(err, storage.ErrRefused) {
		t.Errorf("got %v, want an ErrRefused", err)
	}
}

// TestOpenRefusesAListenerElsewhere: it would listen for ever and hear nothing.
func TestOpenRefusesAListenerElsewhere(t *testing.T) {
	testserver.RequirePostgres(t)
	for _, database := range []string{"nowhere", "template1"} {
		cfg := fresh(t, postgres.Config{ListenURL: strings.Replace(shared.URL(), "/postgres?", "/"+database+"?", 1)})
		_, err := postgres.Open(t.Context(), cfg)
		if !errors.Is(err, storage.ErrRefused) || !strings.Contains(err.Error(), "ListenURL") {
			t.Errorf("a listener in database %s: %v, want an ErrRefused that names ListenURL", database, err)
		}
	}
}

// TestDescribeWarnsOfADeafListener for as long as it is.
func TestDescribeWarnsOfADeafListener(t *testing.T) {
	testserver.RequirePostgres(t)
	proxy := testserver.NewProxy(t, shared.Addr())
	proxy.Refuse()
	cfg := fresh(t, postgres.Config{ListenURL: "postgres://" + proxy.Addr() + "/postgres?user=midge&sslmode=disable"})
	store, session := opened(t, cfg)
	store.DeafFor(0)
	if _, err := session.Claim(t.Context(), claimOf(1)); err != nil { // starts the listener
		t.Fatal(err)
	}
	warned := func() bool {
		d, err := store.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(d.Warnings, func(w string) bool { return strings.Contains(w, "refused") })
	}
	testserver.Await(t, "a warning", warned)
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "no warning", func() bool { return !warned() })
}
