package postgres

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/storage"
)

// TestPartsThatGoApartShareTheTimeOfAFlush: a server that does not answer must hold up the calls that
// wait for the next flush no longer than for the time of one flush.
func TestPartsThatGoApartShareTheTimeOfAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := pgxpool.ParseConfig("host=silent.example user=midge connect_timeout=60")
		if err != nil {
			t.Fatal(err)
		}
		cfg.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		s := &Storage{
			pool: pool, reserve: pool, schema: &schema{quoted: "midge"}, numbers: newNumbers(), background: t.Context(),
			idle: &idle{pool: pool, ctx: t.Context()},
		}
		defer s.idle.close()
		var parts []*part
		for range 5 {
			in := storage.Insert{Ref: storage.Ref{Queue: "q", ID: storage.NewID()}, Kind: "k"}
			parts = append(parts, newPart(storage.Call{}, []storage.Tx{{Inserts: []storage.Insert{in}}}))
		}
		begun := time.Now()
		s.flushApart(t.Context(), classGeneral, parts)
		if took := time.Since(begun); took > flushTime+time.Second {
			t.Errorf("took %v, want about %v at most", took, flushTime)
		}
		for _, p := range parts {
			if !away(p.err) {
				t.Errorf("got %v, want an unknown outcome, or that the server is away", p.err)
			}
		}
	})
}
