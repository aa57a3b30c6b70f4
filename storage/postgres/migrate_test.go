package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
		"from nothing":          "DROP SCHEMA %[1]s CASCADE",
		"from an older version": dropOurs + "INSERT INTO %[1]s.functions (version, oldest, names) VALUES (0, 0, '{}');",
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

// TestASchemaMadeBeforehandNeedsNoRightOnTheDatabase migrates as a role that may create tables in a schema
// and no schema of its own.
func TestASchemaMadeBeforehandNeedsNoRightOnTheDatabase(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	for _, statement := range []string{
		"CREATE ROLE plain LOGIN", "CREATE SCHEMA jobs", "GRANT ALL ON SCHEMA jobs TO plain",
	} {
		if err := server.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	cfg := postgres.Config{URL: strings.Replace(server.URL(), "user=midge", "user=plain", 1), Schema: "jobs"}
	if err := postgres.Migrate(t.Context(), cfg); err != nil {
		t.Fatalf("in a schema made beforehand: %v", err)
	}
	opened(t, cfg)
	cfg.Schema = "other"
	if err := postgres.Migrate(t.Context(), cfg); !errors.Is(err, storage.ErrRefused) {
		t.Errorf("in a schema that does not exist: got %v, want ErrRefused", err)
	}
}

// dropOurs drops the functions of this version, like a version that does not serve it.
const dropOurs = `DROP VIEW IF EXISTS %[1]s.jobs;
	DO $$ DECLARE f regprocedure; BEGIN
		FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = '%[1]s'::regnamespace LOOP
			EXECUTE 'DROP FUNCTION ' || f;
		END LOOP;
	END $$;
	DELETE FROM %[1]s.functions;`

// TestTheSQLOfAMigrationDoesWhatMigrateDoes runs the text with a client that knows nothing of midge.
func TestTheSQLOfAMigrationDoesWhatMigrateDoes(t *testing.T) {
	testserver.RequirePostgres(t)
	for name, before := range map[string]string{
		"from nothing":          "DROP SCHEMA %[1]s CASCADE",
		"from an older version": dropOurs + "INSERT INTO %[1]s.functions (version, oldest, names) VALUES (0, 0, '{}');",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fresh(t, postgres.Config{})
			if err := shared.Exec(t.Context(), fmt.Sprintf(before, cfg.Schema)); err != nil {
				t.Fatal(err)
			}
			text, err := postgres.MigrationSQL(t.Context(), cfg)
			if err != nil || !strings.HasPrefix(text, "BEGIN;") {
				t.Fatalf("got %.200q, %v; want a transaction", text, err)
			}
			if _, err := postgres.Open(t.Context(), cfg); !errors.Is(err, storage.ErrRefused) {
				t.Fatalf("Open gives %v, want a refusal: the SQL was written, not carried out", err)
			}
			if err := shared.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
			store, err := postgres.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if again, err := postgres.MigrationSQL(t.Context(), cfg); err != nil || again != "" {
				t.Errorf("behind it the SQL is %.200q, %v; want none", again, err)
			}
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

// TestASchemaSaysWhomItServes has schemas that other versions have used.
func TestASchemaSaysWhomItServes(t *testing.T) {
	testserver.RequirePostgres(t)
	newer := strconv.Itoa(postgres.Version + 1)
	for name, c := range map[string]struct {
		disturb         string
		opens, migrates bool
		want            postgres.SchemaError // the error that Open returns
	}{
		"a newer version beside ours": {
			disturb: "INSERT INTO %[1]s.functions (version, oldest, names) VALUES (" + newer + ", 1, '{}')",
			opens:   true, migrates: true,
		},
		"a newer version that could serve us": {
			disturb: dropOurs + "INSERT INTO %[1]s.functions (version, oldest, names) VALUES (" + newer + ", 1, '{}')",
			opens:   false, migrates: true,
			want: postgres.SchemaError{Found: []int{postgres.Version + 1}, Oldest: 1},
		},
		"a newer version that cannot serve us": {
			disturb: dropOurs + "INSERT INTO %[1]s.functions (version, oldest, names) VALUES (" + newer + ", " + newer + ", '{}')",
			opens:   false, migrates: false,
			want: postgres.SchemaError{Found: []int{postgres.Version + 1}, Oldest: postgres.Version + 1},
		},
		"an older version": {
			disturb: dropOurs + "INSERT INTO %[1]s.functions (version, oldest, names) VALUES (0, 0, '{}')",
			opens:   false, migrates: true, want: postgres.SchemaError{Found: []int{0}},
		},
		"before there were numbers": {
			disturb: "DROP TABLE %[1]s.functions", opens: false, migrates: false,
			want: postgres.SchemaError{Unnumbered: true},
		},
		"before the first release": {
			disturb: "ALTER TABLE %[1]s.lines RENAME TO kinds", opens: false, migrates: false,
			want: postgres.SchemaError{Unnumbered: true},
		},
		"no schema": {disturb: "DROP SCHEMA %[1]s CASCADE", opens: false, migrates: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fresh(t, postgres.Config{})
			if err := shared.Exec(t.Context(), fmt.Sprintf(c.disturb, cfg.Schema)); err != nil {
				t.Fatal(err)
			}
			c.want.Schema, c.want.Want = cfg.Schema, postgres.Version
			opens(t, cfg, c.opens, &c.want)
			err := postgres.Migrate(t.Context(), cfg)
			if refused(err, &c.want) == c.migrates || c.migrates && err != nil {
				t.Errorf("Migrate: %v, want it to succeed: %t", err, c.migrates)
			}
			opens(t, cfg, c.migrates, &c.want)
		})
	}
}

// opens checks that Open succeeds if want is true, and else returns the error as.
func opens(t *testing.T, cfg postgres.Config, want bool, as *postgres.SchemaError) {
	t.Helper()
	store, err := postgres.Open(t.Context(), cfg)
	if err == nil {
		_ = store.Close()
	}
	if refused(err, as) == want || want && err != nil {
		t.Errorf("Open: %v, want it to succeed: %t, else %v", err, want, as)
	}
}

// refused reports whether an error is the wanted refusal.
func refused(err error, want *postgres.SchemaError) bool {
	var got *postgres.SchemaError
	return errors.As(err, &got) && errors.Is(err, storage.ErrRefused) && reflect.DeepEqual(got, want)
}

// TestMigrateDropsWhatNobodyIsServedBy expects it to drop no function of the application's. So does its SQL,
// whose writer may have another search_path than the person who runs it.
func TestMigrateDropsWhatNobodyIsServedBy(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Run("Migrate", func(t *testing.T) { dropsUnserved(t, postgres.Migrate) })
	t.Run("MigrationSQL", func(t *testing.T) {
		dropsUnserved(t, func(ctx context.Context, cfg postgres.Config) error {
			cfg.URL += "&search_path=" + cfg.Schema
			text, err := postgres.MigrationSQL(ctx, cfg)
			return errors.Join(err, shared.Exec(ctx, text))
		})
	})
}

func dropsUnserved(t *testing.T, migrate func(context.Context, postgres.Config) error) {
	t.Helper()
	cfg := fresh(t, postgres.Config{})
	before := dropOurs + `INSERT INTO %[1]s.functions (version, oldest, names) VALUES (0, 0, '{claim,told}');
		CREATE FUNCTION %[1]s.claim_0() RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION %[1]s.told_0(a int, b text) RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION %[1]s.orders_0() RETURNS int LANGUAGE sql AS 'SELECT 1';`
	if err := shared.Exec(t.Context(), fmt.Sprintf(before, cfg.Schema)); err != nil {
		t.Fatal(err)
	}
	if err := migrate(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"claim_0": 0, "told_0": 0, "orders_0": 1, "claim_" + strconv.Itoa(postgres.Version): 1} {
		there := fmt.Sprintf("SELECT 1 / (count(*) = %d)::int FROM pg_proc WHERE proname = '%s' "+
			"AND pronamespace = '%s'::regnamespace", want, name, cfg.Schema)
		if err := shared.Exec(t.Context(), there); err != nil {
			t.Errorf("%s: %v, want %d of it", name, err, want)
		}
	}
}

// TestAClientWhoseFunctionsAreGoneIsRefused has Migrate drop them while the client runs.
func TestAClientWhoseFunctionsAreGoneIsRefused(t *testing.T) {
	s := newShop(t)
	s.apply(s.store, insertTx())
	_, err := s.conn.Exec(t.Context(), fmt.Sprintf(dropOurs, s.cfg.Schema))
	s.must(err)
	_, err = s.session.ApplyOne(t.Context(), insertTx())
	if !errors.Is(err, storage.ErrRefused) || !strings.Contains(err.Error(), "update the client") {
		t.Errorf("got %v, want an ErrRefused that says what to do", err)
	}
}

// TestEachFunctionIsAFile of its name, so that a migration knows the names of its functions.
func TestEachFunctionIsAFile(t *testing.T) {
	made := regexp.MustCompile(`CREATE (?:OR REPLACE )?FUNCTION (\S+)\(`)
	files, err := filepath.Glob("schema/*/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.Contains(file, "tables") })
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := "{schema}." + strings.TrimSuffix(filepath.Base(file), ".sql")
		if got := made.FindAllStringSubmatch(string(text), -1); len(got) != 1 || got[0][1] != want {
			t.Errorf("%s makes %v, want %s alone", file, got, want)
		}
	}
}

// TestScriptsKnowEveryConstant that they name: a body with an unknown one would fail when it is first called.
func TestScriptsKnowEveryConstant(t *testing.T) {
	named := regexp.MustCompile(`\{[a-z]+(\.[a-z]+)?\}`)
	for _, dir := range []string{"functions", "view", "tables"} {
		names, texts, err := postgres.Scripts(dir)
		if err != nil || len(names) == 0 {
			t.Fatalf("%d scripts in %s, %v", len(names), dir, err)
		}
		for i, text := range texts {
			for _, name := range named.FindAllString(text, -1) {
				if name != "{schema}" {
					t.Errorf("%s/%s names %s", dir, names[i], name)
				}
			}
		}
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
		"a bad limit":          {URL: "postgres://localhost", Limits: storage.Limits{DeadMax: -2}},
	} {
		var invalid *storage.InvalidError
		if _, err := postgres.Open(t.Context(), cfg); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, want an *InvalidError", what, err)
		}
	}
}

// TestOpenRefusesAMissingDatabase: the error states that trying again would not help.
func TestOpenRefusesAMissingDatabase(t *testing.T) {
	testserver.RequirePostgres(t)
	elsewhere := strings.Replace(shared.URL(), "/postgres?", "/nowhere?", 1)
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: elsewhere}); !errors.Is(err, storage.ErrRefused) {
		t.Errorf("got %v, want an ErrRefused", err)
	}
}

// TestOpenRefusesAListenerElsewhere, which would listen for ever and hear nothing.
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

// TestDescribeWarnsOfADeafListener for as long as the listener is away.
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
