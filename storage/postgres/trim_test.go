package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestTrimsAtTheSameTimeEvictOnce has a transaction trim a queue, or lock its oldest dead task, while another
// trims it: together they evict the oldest dead tasks beyond the most that a queue keeps, and none but these.
func TestTrimsAtTheSameTimeEvictOnce(t *testing.T) {
	const dead, most = 8, 3
	for _, c := range []struct {
		what, first string
		keeps, want int
	}{
		{"a trim of as many", "SELECT {schema}.trim(queue, {schema}.told(), 3, 5) FROM {schema}.queues", 5, 5},
		{"a trim of fewer", "SELECT {schema}.trim(queue, {schema}.told(), 3, 7) FROM {schema}.queues", 6, 6},
		{"a lock", "SELECT FROM {schema}.ended ORDER BY expires LIMIT 1 FOR UPDATE", 7, 8},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newShop(t)
			for i := range dead {
				s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprint("d", i))}})
				s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: s.claim(1).Fences[0], Outcome: storage.Bury}}})
			}
			other, err := pgx.Connect(t.Context(), s.cfg.URL)
			s.must(err)
			defer func() { s.must(other.Close(t.Context())) }()
			tx, err := other.Begin(t.Context())
			s.must(err)
			_, err = tx.Exec(t.Context(), postgres.InSchema(c.first, s.cfg.Schema))
			s.must(err)
			_, err = s.conn.Exec(t.Context(), postgres.InSchema(
				"SELECT {schema}.trim(queue, {schema}.told(), $1, $2) FROM {schema}.queues", s.cfg.Schema), most, c.keeps)
			s.must(err)
			s.must(tx.Commit(t.Context()))
			page, err := s.store.Tasks(t.Context(), storage.TasksQuery{Queue: "q", State: storage.Dead})
			s.must(err)
			var got, want []string
			for i := range page.Tasks {
				got = append(got, page.Tasks[i].ID)
			}
			for i := dead - c.want; i < dead; i++ {
				want = append(want, fmt.Sprint("d", i))
			}
			if !slices.Equal(got, want) {
				t.Errorf("dead tasks: got %v, want %v", got, want)
			}
			s.want("evicted", s.stats().Totals.Evicted, int64(dead-c.want))
		})
	}
}
