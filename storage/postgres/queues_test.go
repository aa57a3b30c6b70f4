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

// TestARowIsTakenBackIntoUse has a queue whose row has been hidden for so long that it may be deleted
// at any moment. An insert into the queue first takes the row back into use.
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
	recent := "SELECT 1 / count(*) FROM " + cfg.Schema + ".queues WHERE touched > " + clockNow + " - 60000000"
	if err := shared.Exec(t.Context(), recent); err != nil {
		t.Errorf("the row is still old: %v", err)
	}
	ended := make(map[string]int)
	if complete(t.Context(), t, session, ended); len(ended) != 1 {
		t.Errorf("got %d tasks, want one", len(ended))
	}
}

// TestManyQueuesAreRung has one call enqueue into more queues than one notification can name.
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for rung := 0; rung < len(txs); {
		note, err := s.conn.WaitForNotification(ctx)
		s.must(err)
		rung += 1 + strings.Count(note.Payload, ",")
	}
}

// TestClaimsKeepNoNumber has a queue in which only claims happen for three days, so that its row is
// deleted. A task that is enqueued then is not lost.
func TestClaimsKeepNoNumber(t *testing.T) {
	s := newShop(t)
	_, err := s.session.ApplyOne(t.Context(), insertTx())
	s.must(err)
	complete(t.Context(), t, s.session, map[string]int{})
	testserver.Await(t, "the row is hidden, and then gone", func() (gone bool) {
		s.exec("SELECT {schema}.fold(1000)") // does nothing while the storage itself folds
		s.exec("UPDATE {schema}.queues SET touched = 0")
		s.store.AMinuteLater()
		s.claim(1) // as a runner does each second
		s.exec("SELECT {schema}.abandon(86400000000, 172800000000)")
		s.must(s.conn.QueryRow(t.Context(), "SELECT count(*) = 0 FROM "+s.cfg.Schema+".queues").Scan(&gone))
		return gone
	})
	_, err = s.session.ApplyOne(t.Context(), insertTx())
	s.must(err)
	ended := make(map[string]int)
	complete(t.Context(), t, s.session, ended)
	s.want("tasks found of the one that was acknowledged", len(ended), 1)
}

// exec changes the tables behind the storage's back.
func (s *shop) exec(statement string) {
	s.Helper()
	_, err := s.conn.Exec(s.Context(), postgres.InSchema(statement, s.cfg.Schema))
	s.must(err)
}
