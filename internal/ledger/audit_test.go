package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestTheAuditListsActionsNewestFirst(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	for i := range 7 {
		action, err := a.Begin(t.Context(), Entry{Who: "ann", Role: "operator", Via: "dashboard", Action: "requeue", Queue: "mail", Filter: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		switch i {
		case 2: // the process is killed
		case 3:
			err = action.End(t.Context(), Ending{Count: 1, Err: errors.New("storage: unavailable")})
		default:
			err = action.End(t.Context(), Ending{Count: i})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []Entry
	after := ""
	for {
		actions, next, err := a.List(t.Context(), after, 3)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, actions...)
		if after = next; next == "" {
			break
		}
	}
	w.want("actions", len(all), 7)
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
	if err := (*Action)(nil).End(t.Context(), Ending{Count: 1}); err != nil {
		t.Error(err)
	}
}

// TestAnActionUnderWayTellsHowFarItCame checks the count of an action that a kill ends, and an action whose
// write fails in between.
func TestAnActionUnderWayTellsHowFarItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		lost := &losing{Storage: w.Storage}
		a := NewAudit(lost)
		action, err := a.Begin(t.Context(), Entry{Who: "ann", Action: "requeue", Filter: "state:dead"})
		if err != nil {
			t.Fatal(err)
		}
		told := func(outcome string, count int) {
			t.Helper()
			e := w.audit(a)[0]
			w.want("outcome and count", [2]any{e.Outcome, e.Count}, [2]any{outcome, count})
		}
		action.Reached(t.Context(), 5) // too soon
		told(Intended, 0)
		time.Sleep(reachedEach) // virtual
		action.Reached(t.Context(), 7)
		action.Reached(t.Context(), 8) // too soon
		told(Intended, 7)
		time.Sleep(reachedEach) // virtual
		lost.replies = 1
		action.Reached(t.Context(), 9) // it is written, and its reply is lost
		time.Sleep(reachedEach)        // virtual
		action.Reached(t.Context(), 11)
		told(Intended, 11)
		if err := action.End(t.Context(), Ending{Count: 12}); err != nil {
			t.Fatal(err)
		}
		told(Done, 12)
		(*Action)(nil).Reached(t.Context(), 1)
	})
}

// losing is a storage that loses the reply of some calls of Apply, and of their repeats.
type losing struct {
	storage.Storage

	replies int
}

func (l *losing) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	applied, err := l.Storage.Apply(ctx, call, txs...)
	if l.replies > 0 {
		l.replies--
		return nil, errors.New("the reply is lost")
	}
	return applied, err
}

func TestTheAuditCutsWhatIsLong(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	for _, long := range []string{strings.Repeat("é\x00", 1<<20), strings.Repeat("\x01", 1<<20), strings.Repeat(`"`, 1<<20)} {
		action, err := a.Begin(t.Context(), Entry{
			Who: long, Role: long, Via: long, Action: long, Queue: long, Filter: long, Note: long, IDs: []string{long, long},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := action.End(t.Context(), Ending{Count: 1000, Stopped: long, Err: errors.New(long)}); err != nil {
			t.Fatal(err)
		}
		actions := w.audit(a)
		if e := actions[0]; e.Count != 1000 || len(e.Who) > storage.MaxName || len(e.Stopped) > storage.MaxName {
			t.Errorf("got %+v", actions[0])
		}
	}
}

// audit returns the newest actions, whose records must have room.
func (w *world) audit(a *Audit) []Entry {
	w.Helper()
	page, err := w.Tasks(w.Context(), storage.TasksQuery{Queue: AuditQueue, State: storage.Scheduled, Limit: storage.MaxPage})
	if err != nil {
		w.Fatal(err)
	}
	for i := range page.Tasks {
		if size := len(page.Tasks[i].Payload); size > MaxRecord {
			w.Errorf("a record has %d bytes, want %d at most", size, MaxRecord)
		}
	}
	actions, _, err := a.List(w.Context(), "", storage.MaxPage)
	if err != nil {
		w.Fatal(err)
	}
	return actions
}

// longRefs returns refs whose queues and ids are as long as they may be.
func longRefs(n int) (refs []string) {
	for i := range n {
		refs = append(refs, fmt.Sprintf("%0*d/%0*d", storage.MaxName, i%2, storage.MaxName, i))
	}
	return refs
}

// TestTheAuditHasEachNamedTask checks that an action on many named tasks leaves none of them out, neither
// before it is carried out nor in its outcome.
func TestTheAuditHasEachNamedTask(t *testing.T) {
	for name, refs := range map[string][]string{
		"200 tasks":    longRefs(200),
		"10,000 tasks": longRefs(10_000),
	} {
		w := newWorld(t)
		a := NewAudit(w.Storage)
		listed := func() (ids []string, count int) {
			for _, e := range w.audit(a) {
				ids, count = append(ids, e.IDs...), count+e.Count
			}
			slices.Sort(ids)
			return ids, count
		}
		action, err := a.Begin(t.Context(), Entry{Who: "mal", Action: "delete", Queue: "harmless", IDs: refs})
		if err != nil {
			t.Fatal(err)
		}
		ids, _ := listed()
		if want := slices.Sorted(slices.Values(refs)); !slices.Equal(ids, want) {
			t.Errorf("%s: the record of the intent has %d of %d", name, len(ids), len(refs))
		}
		if err := action.End(t.Context(), Ending{Count: len(refs), IDs: refs}); err != nil {
			t.Fatal(err)
		}
		ids, count := listed()
		if want := slices.Sorted(slices.Values(refs)); !slices.Equal(ids, want) || count != len(refs) {
			t.Errorf("%s: the record of the outcome has %d of %d, and counts %d", name, len(ids), len(refs), count)
		}
	}
}

// TestTheAuditHasTheTasksThatChanged checks that tasks which an action only named do not hide the tasks that
// it changed, and that the audit keeps the named tasks if nobody knows which of them were changed.
func TestTheAuditHasTheTasksThatChanged(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	named := append(slices.Repeat([]string{"pay/none"}, 100), "pay/none2", "evil/a", "evil/b")
	for _, c := range []struct {
		filter string
		named  []string
		end    Ending
		ids    []string
		queue  string
	}{
		{"", named, Ending{Count: 2, IDs: []string{"evil/b", "evil/a"}}, []string{"evil/a", "evil/b"}, "evil"},
		{"", named, Ending{}, []string{"pay/none", "pay/none2", "evil/a", "evil/b"}, ""},
		{"", named[:102], Ending{Count: 1, IDs: named[100:101], Err: storage.ErrUnknown}, named[99:102], ""},
		{"", []string{"pay/a"}, Ending{Count: 1}, []string{"pay/a"}, "pay"},
		{"queue:mail", nil, Ending{Count: 2, IDs: []string{"mail/a", "mail/b"}}, []string{"mail/a", "mail/b"}, ""},
		{"queue:mail", nil, Ending{Count: 300, IDs: longRefs(100), Err: storage.ErrUnknown}, longRefs(100), ""},
	} {
		action, err := a.Begin(t.Context(), Entry{Who: "mal", Action: "delete", Queue: "harmless", Filter: c.filter, IDs: c.named})
		if err == nil {
			err = action.End(t.Context(), c.end)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := w.audit(a)[0]
		w.want("ids", got.IDs, c.ids)
		w.want("queue and count", [2]any{got.Queue, got.Count}, [2]any{c.queue, c.end.Count})
	}
}

// TestAFilterIsRecordedWhole checks a filter whose last word makes it harmful.
func TestAFilterIsRecordedWhole(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	long := `-error:"` + strings.Repeat("<x>", 1<<10) + `" queue:evil`
	if _, err := a.Begin(t.Context(), Entry{Who: "mal", Action: "delete", Filter: long}); err != nil {
		t.Fatal(err)
	}
	w.want("filter", w.audit(a)[0].Filter, long)
}

// TestTheAuditKeepsWholeRefs checks the ref of a task whose queue and id are as long as they may be.
func TestTheAuditKeepsWholeRefs(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	ref := storage.Ref{Queue: strings.Repeat("q", storage.MaxName), ID: strings.Repeat("i", storage.MaxName)}
	if _, err := a.Begin(t.Context(), Entry{Who: "ann", Action: "cancel", IDs: []string{ref.String()}}); err != nil {
		t.Fatal(err)
	}
	actions, _, err := a.List(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	w.want("ids", actions[0].IDs, []string{ref.String()})
}

func TestADamagedActionIsListed(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	action, err := a.Begin(t.Context(), Entry{Who: "ann", Action: "pause"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.session.ApplyOne(t.Context(), storage.Tx{Changes: []storage.Change{{
		Ref: storage.Ref{Queue: AuditQueue, ID: action.records[0].ID}, Version: action.versions[0], Encoding: "json", Payload: []byte(`{"who":`),
	}}}); err != nil {
		t.Fatal(err)
	}
	actions, _, err := a.List(t.Context(), "", 0)
	if err != nil || len(actions) != 1 || actions[0].Outcome != Damaged || actions[0].ID != action.records[0].ID || !actions[0].At.Equal(noon) {
		t.Errorf("got %+v, %v", actions, err)
	}
}

// TestTheAuditIsTrimmed checks that a ledger deletes the actions that are too old, and the actions that are
// too many.
func TestTheAuditIsTrimmed(t *testing.T) {
	w := newWorld(t)
	a, l := NewAudit(w.Storage), New(w)
	begin := func(n int) {
		for i := range n {
			if _, err := a.Begin(t.Context(), Entry{Who: fmt.Sprint("ann", i%20), Action: "pause"}); err != nil {
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
	w.want("young actions", left(), 3)
	w.pass(ActionsKept + time.Minute)
	a = NewAudit(w.Storage) // the old one reckons the time with the real clock
	begin(1)
	w.writeSteady(l)
	w.want("actions after 90 days", left(), 1)
	begin(MaxActions + 10)
	w.pass(time.Hour)
	w.write(l)
	w.want("actions of so many", left(), MaxActions)
}

// TestTheAuditIsTrimmedWithoutALedger checks that actions that are too old are deleted even if no process
// keeps a ledger.
func TestTheAuditIsTrimmedWithoutALedger(t *testing.T) {
	w := newWorld(t)
	begin := func(n int) {
		a := NewAudit(w.Storage)
		for i := range n {
			if _, err := a.Begin(t.Context(), Entry{Who: fmt.Sprint("ann", i%2), Action: "pause"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin(3)
	w.pass(ActionsKept + time.Minute)
	begin(trimEach + trimFrom)
	stats, err := w.Storage.Stats(t.Context(), AuditQueue)
	if err != nil {
		t.Fatal(err)
	}
	w.want("actions", stats[0].Scheduled, trimEach+trimFrom)
}

// TestNobodyDisplacesTheActionsOfOthers has a person with more actions than the audit has room for. Actions
// without an effect, and actions that failed, count like all others.
func TestNobodyDisplacesTheActionsOfOthers(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	began := func(who, action string, end Ending) {
		t.Helper()
		begun, err := a.Begin(t.Context(), Entry{Who: who, Via: "dashboard", Action: action, Note: fmt.Sprint(a.begun.Load())})
		if err == nil {
			err = begun.End(t.Context(), end)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		began("ann", "pause", Ending{Count: 1})
	}
	for i := range MaxActions + 300 {
		switch i % 3 {
		case 0:
			began("mal", "requeue", Ending{})
		case 1:
			began("mal", "pause", Ending{Count: 1})
		default:
			began("mal", "remove", Ending{Err: storage.ErrNotFound})
		}
	}
	began("bo", "delete", Ending{Count: 1})
	by := func() map[string]int {
		n := make(map[string]int)
		for record, err := range storage.Each(t.Context(), w.Storage, AuditQueue, storage.Scheduled) {
			if err != nil {
				t.Fatal(err)
			}
			n[entryOf(&record).Who]++
		}
		return n
	}
	if n := by(); n["ann"] != 3 || n["mal"] > MaxShare+trimEach || n["bo"] != 1 {
		t.Errorf("the audit has %v, want 3 actions of ann, 1 of bo and about %d of mal", n, MaxShare)
	}
	if err := a.Trim(t.Context(), w.now); err != nil {
		t.Fatal(err)
	}
	w.want("actions by author", by(), map[string]int{"ann": 3, "bo": 1, "mal": MaxShare})
	late := 0
	for _, e := range w.audit(a) {
		if n, err := strconv.ParseInt(e.Note, 10, 64); err == nil && a.begun.Load()-n < MaxShare {
			late++
		}
	}
	w.want("the newest actions are kept", late, storage.MaxPage)
}

// TestManyAuthorsShareTheAudit checks the room of each of more authors than the audit has full shares for.
func TestManyAuthorsShareTheAudit(t *testing.T) {
	for _, c := range []struct {
		counts []int
		want   int
	}{
		{nil, MaxShare},
		{[]int{20_000}, MaxShare},
		{slices.Repeat([]int{20_000}, 10), MaxShare},
		{slices.Repeat([]int{20_000}, 20), MaxShare / 2},
		{append(slices.Repeat([]int{20_000}, 10), 100, 900), 900},
		{slices.Repeat([]int{1}, 20_000), 1},
	} {
		var kept [][]storage.Delete
		for _, n := range c.counts {
			kept = append(kept, make([]storage.Delete, n))
		}
		if got := shareOf(kept); got != c.want {
			t.Errorf("%d authors: a share of %d, want %d", len(c.counts), got, c.want)
		}
	}
}

// TestRecordsThatWaitForRoomAreBounded begins more late actions than may wait, by one author and by all.
func TestRecordsThatWaitForRoomAreBounded(t *testing.T) {
	w := newWorld(t)
	a := NewAudit(w.Storage)
	late := func(who string, want error) {
		t.Helper()
		action, err := a.BeginLate(t.Context(), Entry{Who: who, Action: "delete"})
		if !errors.Is(err, want) || err == nil && !action.Late() {
			t.Fatalf("by %s: got %v, want %v", who, err, want)
		}
	}
	for who := range 10 {
		for range MaxWaiting / 10 {
			late(fmt.Sprint(who), nil)
		}
		late(fmt.Sprint(who), storage.ErrFull)
	}
	late("another", storage.ErrFull)
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

// TestTheNextActionWritesTheRecordsThatWaited checks this for a process that never runs Flush by itself.
func TestTheNextActionWritesTheRecordsThatWaited(t *testing.T) {
	w := newWorld(t)
	store := &fullStore{Storage: w.Storage, full: true}
	a := NewAudit(store)
	late, err := a.BeginLate(t.Context(), Entry{Who: "ann", Action: "delete"})
	if err != nil {
		t.Fatal(err)
	}
	if err := late.End(t.Context(), Ending{Count: 3}); err != nil || a.Waiting() != 1 {
		t.Fatalf("%d records wait, %v; want 1", a.Waiting(), err)
	}
	store.full = false
	if _, err := a.Begin(t.Context(), Entry{Who: "ann", Action: "pause"}); err != nil {
		t.Fatal(err)
	}
	actions, _, err := a.List(t.Context(), "", 0)
	if err != nil || len(actions) != 2 || a.Waiting() != 0 {
		t.Errorf("the audit has %d actions, and %d wait, %v; want 2 and 0", len(actions), a.Waiting(), err)
	}
}
