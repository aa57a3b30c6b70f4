package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestARowIsTakenBackIntoUse has a queue whose row stands for nothing for so long that it
// may be deleted at any moment. Who inserts into it says first that it is in use.
func TestARowIsTakenBackIntoUse(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	err := shared.Exec(t.Context(), "INSERT INTO "+cfg.Schema+".queues (name) VALUES ('q')") // touched in 1970
	if err != nil {
		t.Fatal(err)
	}
	_, session := opened(t, cfg)
	if _, err := session.ApplyOne(t.Context(), insertTx()); err != nil {
		t.Fatal(err)
	}
	recent := "SELECT 1 / count(*) FROM " + cfg.Schema + ".queues WHERE touched > " + cfg.Schema + ".told() - 60000000"
	if err := shared.Exec(t.Context(), recent); err != nil {
		t.Errorf("the row is still old: %v", err)
	}
	ended := make(map[string]int)
	if complete(t.Context(), t, session, ended); len(ended) != 1 {
		t.Errorf("got %d tasks, want one", len(ended))
	}
}

// TestManyQueuesAreRung has one call enqueue in more queues than one notification can name.
func TestManyQueuesAreRung(t *testing.T) {
	s := newShop(t)
	_, err := s.conn.Exec(t.Context(), "LISTEN midge_"+s.cfg.Schema)
	s.must(err)
	txs := make([]storage.Tx, 2000)
	for i := range txs {
		in := insertOf("a")
		in.Ref.Queue = fmt.Sprintf("q%d", i)
		txs[i].Inserts = []storage.Insert{in}
	}
	_, err = s.session.Apply(t.Context(), txs...)
	s.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for rung := 0; rung < len(txs); {
		note, err := s.conn.WaitForNotification(ctx)
		s.must(err)
		rung += 1 + strings.Count(note.Payload, ",")
	}
}
