package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestATaskOfANewerVersionIsPassedOver by claims, promotions and recoveries, which neither count it
// as damaged nor change it. A client that knows it goes on with it.
func TestATaskOfANewerVersionIsPassedOver(t *testing.T) {
	s := newShop(t)
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("pending")}})
	req := claimOf(1)
	req.Lease = storage.MinLease
	s.want("claimed", len(s.claimed(req).Tasks), 1)
	due := insertOf("due")
	due.Delay = time.Millisecond
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("waiting"), due}})
	s.awaitAllDue()
	testserver.Await(t, "the lease has expired", func() (over bool) {
		s.must(s.conn.QueryRow(t.Context(), "SELECT sort < "+clockNow+" FROM "+s.cfg.Schema+".tasks WHERE id = 'pending'").Scan(&over))
		return over
	})
	s.damage("UPDATE %s.tasks SET flags = flags | 64")
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a"), insertOf("b")}})

	claimed := s.claim(10)
	s.want("claimed beside them", len(claimed.Tasks), 2)
	s.want("claimed next, and more at once", [2]any{len(s.claim(10).Tasks), s.claim(10).More}, [2]any{0, false})
	for _, id := range []string{"waiting", "pending", "due"} {
		_, err := s.store.Task(t.Context(), storage.Ref{Queue: "q", ID: id})
		if err == nil || errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s: got %v, want an error that says that it is there", id, err)
		}
		again := insertOf(id)
		s.want("an insert of its id is refused", s.apply(s.store, storage.Tx{Inserts: []storage.Insert{again}}).Err != nil, true)
	}
	stats := s.stats()
	s.want("waiting, pending, scheduled, damaged",
		[4]int64{stats.Waiting, stats.Pending, stats.Scheduled, stats.Damaged}, [4]int64{1, 3, 1, 0})

	s.damage("UPDATE %s.tasks SET flags = flags & ~64")
	n := 0
	testserver.Await(t, "all are claimed once they are known", func() bool {
		n += len(s.claim(10).Tasks)
		return n == 3
	})
}

// TestPartsOfANewerVersionSurvive whatever this version does with their task.
func TestPartsOfANewerVersionSurvive(t *testing.T) {
	s := newShop(t)
	in := insertOf("a")
	in.Keep.For, in.MaxRetries = time.Hour, 1
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	s.damage("UPDATE %[1]s.tasks SET record = set_byte(substr(record, 1, length(record) - 96), 0, get_byte(record, 0) | 2)" +
		" || '\\x0401026869' || substr(record, length(record) - 95)")
	survive := func(what string) {
		t.Helper()
		var there bool
		s.must(s.conn.QueryRow(t.Context(), "SELECT count(*) = 1 FROM (SELECT record FROM "+s.cfg.Schema+
			".tasks UNION ALL SELECT record FROM "+s.cfg.Schema+".ended) x WHERE position('\\x0401026869'::bytea IN record) > 0").Scan(&there))
		s.want(what, there, true)
	}
	ref := storage.Ref{Queue: "q", ID: "a"}
	change := func(ch storage.Change) {
		t.Helper()
		task, err := s.store.Task(t.Context(), ref)
		s.must(err)
		ch.Ref, ch.Version = ref, task.Version
		s.must(s.apply(s.store, storage.Tx{Changes: []storage.Change{ch}}).Err)
	}
	settle := func(outcome storage.Outcome) {
		t.Helper()
		f := s.claim(1).Fences[0]
		s.must(s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: outcome, Error: "no"}}}).Err)
	}
	survive("an insert")
	change(storage.Change{Encoding: "raw", Payload: []byte("other")})
	survive("another payload")
	change(storage.Change{Headers: map[string]string{"a": "b"}})
	survive("other headers")
	settle(storage.Fail)
	survive("a retry")
	settle(storage.Bury)
	survive("death")
	change(storage.Change{Requeue: true})
	survive("a requeue")
	settle(storage.Complete)
	survive("its end")
	task, err := s.store.Task(t.Context(), ref)
	s.must(err)
	s.want("its payload", string(task.Payload), "other")
}

// TestClaimsGoOnWhereTheTableOfTasksGrows has a newer version add a column while sessions of this
// version have plans of their functions.
func TestClaimsGoOnWhereTheTableOfTasksGrows(t *testing.T) {
	s := newShop(t)
	tick := insertOf("cursor.c")
	tick.Cursor = &storage.Cursor{Next: time.Now()}
	s.apply(s.store, storage.Tx{Inserts: []storage.Insert{tick, insertOf("a"), insertOf("b")}})
	d, err := s.store.Describe(t.Context())
	s.must(err)
	req := claimOf(1)
	req.Token = storage.NewToken()
	for seq := range uint64(2) {
		req.Call = storage.Call{Lane: storage.Lane{ID: [16]byte{1}, Opened: d.Now.Truncate(time.Microsecond)}, Seq: seq + 1}
		ticks := 0
		testserver.Await(t, "the cursor is due", func() bool {
			claimed, err := s.store.Claim(t.Context(), storage.ClaimRequest{Runner: "r", Queues: req.Queues})
			s.must(err)
			ticks += len(claimed.Ticks)
			return ticks > 0
		})
		for range 2 {
			claimed, err := s.store.Claim(t.Context(), req)
			s.must(err)
			s.want("claimed", len(claimed.Tasks) > 0, true)
		}
		if seq == 0 {
			s.exec("ALTER TABLE {schema}.tasks ADD COLUMN later int4 NOT NULL DEFAULT 0")
		}
	}
}
