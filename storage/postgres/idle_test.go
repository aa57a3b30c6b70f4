package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestAClientHoldsTwoConnectionsAtMost counts connections while a client inserts one task after the
// other, and again a while after it has done everything that a client does at the same time. The
// connections have midge's name or that of the URL, and none listens before a runner waits.
func TestAClientHoldsTwoConnectionsAtMost(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	watch, err := pgx.Connect(t.Context(), server.URL()+"&application_name=watch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Close(t.Context()) }()
	for name, parameter := range map[string]string{"midge": "", "shop": "&application_name=shop"} {
		store, session := opened(t, fresh(t, postgres.Config{URL: server.URL() + parameter}))
		held := func() (n int) {
			var listens int
			err := watch.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE query ILIKE '%listen%')
				FROM pg_stat_activity WHERE application_name = $1`, name).Scan(&n, &listens)
			if err != nil || listens > 0 {
				t.Errorf("%s: %d connections listen, %v; want none", name, listens, err)
			}
			return n
		}
		apply := func(tx storage.Tx) {
			if _, err := session.ApplyOne(t.Context(), tx); err != nil {
				t.Error(err)
			}
		}
		for i := range 200 {
			apply(storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprint(i))}})
		}
		// Background work has a second one, and on a busy machine a notification that waited for it has a third.
		if n := held(); n < 1 || n > 3 {
			t.Errorf("%s: got %d connections behind inserts, want one to three", name, n)
		}
		var all sync.WaitGroup
		for i := range 40 {
			unique := insertOf(fmt.Sprint("unique", i))
			unique.Unique = storage.Unique{Key: fmt.Sprint(i), Mode: storage.UniqueLife}
			for _, action := range []func(){
				func() { apply(storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprint("more", i))}}) },
				func() { apply(storage.Tx{Inserts: []storage.Insert{unique}}) },
				func() { apply(cancelOf(storage.Ref{Queue: "q", ID: fmt.Sprint(i)})) },
				func() {
					if _, err := store.Stats(t.Context(), "q"); err != nil {
						t.Error(err)
					}
				},
			} {
				all.Go(action)
			}
		}
		all.Wait()
		testserver.Await(t, "at most two connections are left", func() bool { return held() <= 2 })
	}
}
