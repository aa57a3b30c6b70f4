package postgres_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestRepeatBesideOthers flushes the repeat of an insert whose task has ended together with
// inserts that are new: what these are told must be so.
func TestRepeatBesideOthers(t *testing.T) {
	testserver.RequirePostgres(t)
	store, session := opened(t, fresh(t, postgres.Config{}))
	d, err := store.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	call := func(n byte, seq uint64) storage.Call {
		return storage.Call{Lane: storage.Lane{ID: [16]byte{n}, Opened: d.Now.Truncate(time.Microsecond)}, Seq: seq}
	}
	tx := func(id string) storage.Tx { return storage.Tx{Inserts: []storage.Insert{insertOf(id)}} }
	flush := func(calls []storage.Call, txs ...storage.Tx) [][]storage.Applied {
		t.Helper()
		applied, errs := store.FlushInserts(t.Context(), calls, txs)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		return applied
	}
	once := flush([]storage.Call{call(1, 1), call(2, 1)}, tx("a"), tx("b"))
	complete(t.Context(), t, session, make(map[string]int))
	// One lane is known and one is new; both calls are.
	both := flush([]storage.Call{call(1, 1), call(2, 2), call(3, 1)}, tx("a"), tx("c"), tx("d"))
	if !slices.Equal(both[0][0].Inserted, once[0][0].Inserted) {
		t.Errorf("the repeat: got %+v, want its first outcome %+v", both[0][0], once[0][0])
	}
	var claimed []string
	got, err := session.Claim(t.Context(), claimOf(10))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range got.Tasks {
		claimed = append(claimed, task.ID)
	}
	if slices.Sort(claimed); !slices.Equal(claimed, []string{"c", "d"}) {
		t.Errorf("claimed %v, want c and d, which were acknowledged", claimed)
	}
	stats, err := store.Stats(t.Context(), "q")
	if err != nil || stats[0].Totals.Enqueued != 4 {
		t.Errorf("enqueued: %+v, %v, want 4", stats, err)
	}
}
