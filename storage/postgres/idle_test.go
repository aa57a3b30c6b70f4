package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestAClientHoldsThreeConnectionsAtMost once it has inserted one task after the other: for inserts, for
// wake-ups and for what is tidied up. They are under midge's name or the one of the URL, and none
// listens before a runner waits.
func TestAClientHoldsThreeConnectionsAtMost(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	watch, err := pgx.Connect(t.Context(), server.URL()+"&application_name=watch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Close(t.Context()) }()
	for name, parameter := range map[string]string{"midge": "", "shop": "&application_name=shop"} {
		_, session := opened(t, fresh(t, postgres.Config{URL: server.URL() + parameter}))
		for i := range 20 {
			in := storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprint(i)}, Kind: "job", Encoding: "json", CrashLimit: 3}
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
				t.Fatal(err)
			}
		}
		var held, listens int
		var queries string
		err := watch.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE query ILIKE '%listen%'), coalesce(string_agg(left(query, 60), '; '), '')
			FROM pg_stat_activity WHERE application_name = $1`, name).Scan(&held, &listens, &queries)
		if err != nil || held < 1 || held > 3 || listens > 0 {
			t.Errorf("%s: got %d connections, %d that listen, %v; want one to three, and none: %s", name, held, listens, err, strings.Join(strings.Fields(queries), " "))
		}
	}
}
