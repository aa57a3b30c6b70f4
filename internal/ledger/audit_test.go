package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestTheAuditListsActsNewestFirst(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	for i := range 7 {
		act, err := a.Begin(t.Context(), Entry{Who: "ann", Role: "operator", Via: "dashboard", Act: "requeue", Queue: "mail", Filter: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		switch i {
		case 2: // the process is killed
		case 3:
			err = act.End(t.Context(), 1, errors.New("storage: unavailable"))
		default:
			err = act.End(t.Context(), i, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []Entry
	after := ""
	for {
		acts, next, err := a.List(t.Context(), after, 3)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, acts...)
		if after = next; next == "" {
			break
		}
	}
	w.want("acts", len(all), 7)
	for i, e := range all {
		n := 6 - i
		w.want("filter", e.Filter, fmt.Sprint(n))
		want := [3]any{Done, n, ""}
		switch n {
		case 2:
			want = [3]any{Intended, 0, ""}
		case 3:
			want = [3]any{Failed, 1, "storage: unavailable"}
		}
		w.want("outcome", [3]any{e.Outcome, e.Count, e.Error}, want)
		if e.Who != "ann" || e.Via != "dashboard" || e.At.Sub(noon).Abs() > time.Minute || e.Ended.IsZero() != (n == 2) || e.ID == "" {
			t.Errorf("got %+v", e)
		}
	}
	if err := (*Act)(nil).End(t.Context(), 1, nil); err != nil {
		t.Error(err)
	}
}

func TestTheAuditCutsWhatIsLong(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	long := strings.Repeat("é\x00", 1<<20)
	act, err := a.Begin(t.Context(), Entry{
		Who: long, Role: long, Via: long, Act: long, Queue: long, Filter: long, Note: long, IDs: slices.Repeat([]string{long}, 1000),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := act.End(t.Context(), 1000, errors.New(long)); err != nil {
		t.Fatal(err)
	}
	acts, _, err := a.List(t.Context(), "", 1)
	if err != nil || len(acts) != 1 || len(acts[0].IDs) != MaxIDs || acts[0].Count != 1000 || len(acts[0].Who) > storage.MaxName {
		t.Errorf("got %d acts, %v", len(acts), err)
	}
}

// TestTheAuditKeepsWholeRefs checks the ref of a task whose queue and id are as long as they may be.
func TestTheAuditKeepsWholeRefs(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	ref := storage.Ref{Queue: strings.Repeat("q", storage.MaxName), ID: strings.Repeat("i", storage.MaxName)}
	if _, err := a.Begin(t.Context(), Entry{Who: "ann", Act: "cancel", IDs: []string{ref.String()}}); err != nil {
		t.Fatal(err)
	}
	acts, _, err := a.List(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	w.want("ids", acts[0].IDs, []string{ref.String()})
}

func TestADamagedActIsListed(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	act, err := a.Begin(t.Context(), Entry{Who: "ann", Act: "pause"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.session.ApplyOne(t.Context(), storage.Tx{Changes: []storage.Change{{
		Ref: storage.Ref{Queue: AuditQueue, ID: act.entry.ID}, Version: act.version, Encoding: "json", Payload: []byte(`{"who":`),
	}}}); err != nil {
		t.Fatal(err)
	}
	acts, _, err := a.List(t.Context(), "", 0)
	if err != nil || len(acts) != 1 || acts[0].Outcome != Damaged || acts[0].ID != act.entry.ID || !acts[0].At.Equal(noon) {
		t.Errorf("got %+v, %v", acts, err)
	}
}

// TestTheAuditIsTrimmed checks that a ledger deletes the acts that are too old, and the acts that are too
// many.
func TestTheAuditIsTrimmed(t *testing.T) {
	w := newWorld(t)
	a, l := NewAudit(w.Storage), New(w)
	begin := func(n int) {
		for range n {
			if _, err := a.Begin(t.Context(), Entry{Who: "ann", Act: "pause"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() int64 {
		stats, err := w.Storage.Stats(t.Context(), AuditQueue)
		if err != nil {
			t.Fatal(err)
		}
		return stats[0].Scheduled
	}
	begin(3)
	w.write(l)
	w.want("young acts", left(), 3)
	w.pass(ActsKept + time.Minute)
	a = NewAudit(w.Storage) // the old one reckons the time with the real clock
	begin(1)
	w.writeSteady(l)
	w.want("acts after 90 days", left(), 1)
	begin(MaxActs + 10)
	w.pass(time.Hour)
	w.write(l)
	w.want("acts of so many", left(), MaxActs)
}

// TestTheAuditIsTrimmedWithoutALedger checks that acts that are too old are deleted even if no process keeps
// a ledger.
func TestTheAuditIsTrimmedWithoutALedger(t *testing.T) {
	w := newWorld(t)
	begin := func(n int) {
		a := NewAudit(w.Storage)
		for range n {
			if _, err := a.Begin(t.Context(), Entry{Who: "ann", Act: "pause"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin(3)
	w.pass(ActsKept + time.Minute)
	begin(trimEach + trimFrom)
	stats, err := w.Storage.Stats(t.Context(), AuditQueue)
	if err != nil {
		t.Fatal(err)
	}
	w.want("acts", stats[0].Scheduled, trimEach+trimFrom)
}

// TestRecordsThatWaitForRoomAreBounded begins more late acts than may wait.
func TestRecordsThatWaitForRoomAreBounded(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	for i := range MaxWaiting {
		act, err := a.BeginLate(t.Context(), Entry{Who: "ann", Act: "delete"})
		if err != nil || !act.Late() {
			t.Fatal(i, err)
		}
	}
	if _, err := a.BeginLate(t.Context(), Entry{Who: "ann", Act: "delete"}); !errors.Is(err, storage.ErrFull) {
		t.Errorf("got %v, want an ErrFull", err)
	}
}

// fullStore is a storage that takes no inserts while it is full.
type fullStore struct {
	storage.Storage

	full bool
}

func (f *fullStore) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	for i := range txs {
		if f.full && len(txs[i].Inserts) > 0 {
			return nil, storage.ErrFull
		}
	}
	return f.Storage.Apply(ctx, call, txs...)
}

// TestTheNextActWritesTheRecordsThatWaited checks this for a process that never runs Flush by itself.
func TestTheNextActWritesTheRecordsThatWaited(t *testing.T) {
	w := newWorld(t)
	store := &fullStore{Storage: w.Storage, full: true}
	a := NewAudit(store)
	late, err := a.BeginLate(t.Context(), Entry{Who: "ann", Act: "delete"})
	if err != nil {
		t.Fatal(err)
	}
	if err := late.End(t.Context(), 3, nil); err != nil || a.Waiting() != 1 {
		t.Fatalf("%d records wait, %v; want 1", a.Waiting(), err)
	}
	store.full = false
	if _, err := a.Begin(t.Context(), Entry{Who: "ann", Act: "pause"}); err != nil {
		t.Fatal(err)
	}
	acts, _, err := a.List(t.Context(), "", 0)
	if err != nil || len(acts) != 2 || a.Waiting() != 0 {
		t.Errorf("the audit has %d acts, and %d wait, %v; want 2 and 0", len(acts), a.Waiting(), err)
	}
}
