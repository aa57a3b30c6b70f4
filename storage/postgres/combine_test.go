package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestRepeatBesideOthers flushes the repeat of an insert whose task has ended together with new
// inserts: the answers to the new ones must be true.
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
		applied, errs := store.Flush(t.Context(), calls, txs)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		return applied
	}
	once := flush([]storage.Call{call(1, 1), call(2, 1)}, tx("a"), tx("b"))
	complete(t.Context(), t, session, make(map[string]int))
	// One lane is known and one is new; the server admits both calls.
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

// TestOnlyWhoWantsItWaits has an application take an id and a unique key in a transaction that stays
// open. Of the calls that share a flush, the calls that want the same are handed back soon, and the
// others are carried out.
func TestOnlyWhoWantsItWaits(t *testing.T) {
	unique := insertOf("a")
	unique.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
	rival := unique
	rival.Ref.ID = "b"
	for name, want := range map[string]storage.Insert{"an id": insertOf("a"), "a key": rival} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("running")}})
			other := storage.Tx{Inserts: []storage.Insert{insertOf("other")}}
			if want.Unique.Mode != "" { // so that the other call goes the general way too
				other.Settles = []storage.Settle{{Fence: s.claim(1).Fences[0], Outcome: storage.Bury}}
			}
			tx, err := s.conn.Begin(t.Context())
			s.must(err)
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			s.want("refused", s.apply(s.store.Within(tx), storage.Tx{Inserts: []storage.Insert{unique}}).Err, nil)
			rivals := storage.Tx{Inserts: []storage.Insert{want}}
			pace, begun := testserver.StartPace(t), time.Now()
			_, errs := s.store.Flush(t.Context(), make([]storage.Call, 4), []storage.Tx{rivals, rivals, other, rivals})
			if took := time.Since(begun); took > pace.Stretch(2*time.Second, begun) {
				t.Errorf("it took %v, want some 100 ms", took)
			}
			s.must(errs[2])
			s.want("the other", s.state("other"), storage.Waiting)
			for _, i := range []int{0, 1, 3} {
				s.want("an outcome to be asked for again", errors.Is(errs[i], storage.ErrUnknown), true)
			}
			s.must(tx.Rollback(t.Context()))
			_, errs = s.store.Flush(t.Context(), make([]storage.Call, 1), []storage.Tx{rivals})
			s.must(errs[0])
			s.want("who wants it, once it is free", s.state(want.Ref.ID), storage.Waiting)
		})
	}
}
