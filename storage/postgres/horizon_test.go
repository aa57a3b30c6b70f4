package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// TestWarnsOfWhatHoldsVacuumBack opens transactions, and expects a warning that names each while it
// is open.
func TestWarnsOfWhatHoldsVacuumBack(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{
		Unsafe: true, Config: []string{"max_prepared_transactions = 2"},
	})
	store, _ := opened(t, fresh(t, postgres.Config{URL: server.URL()}))
	store.HeldFor(0)
	warns := func(of string) func() bool {
		return func() bool {
			d, err := store.Describe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(d.Warnings, func(w string) bool { return strings.Contains(w, of) })
		}
	}
	for of, begin := range map[string]string{
		"(reader)": "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1",
		"(writer)": "BEGIN; SELECT pg_current_xact_id()",
	} {
		conn, err := pgx.Connect(t.Context(), server.URL()+"&application_name="+strings.Trim(of, "()"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.PgConn().Exec(t.Context(), begin).ReadAll(); err != nil {
			t.Fatal(err)
		}
		if !warns(of)() {
			t.Errorf("no warning of %s", begin)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		testserver.Await(t, "the warning is gone", func() bool { return !warns(of)() })
	}
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.PgConn().Exec(t.Context(), "BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if !warns("forgotten")() {
		t.Error("no warning of a prepared transaction")
	}
}
