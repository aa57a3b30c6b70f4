package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// world opens a storage with n tasks in each of some queues. Every third task is of kind "odd", and every
// second task is scheduled.
func world(t *testing.T, n int, queues ...string) *memory.Storage {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	session := storage.NewSession(store, 0)
	for _, queue := range queues {
		var txs []storage.Tx
		for i := range n {
			in := storage.Insert{
				Ref: storage.Ref{Queue: queue, ID: fmt.Sprintf("t%04d", i)}, Kind: "even", Encoding: "json",
				Payload: []byte("{}"), CrashLimit: 3,
			}
			if i%3 == 0 {
				in.Kind = "odd"
			}
			if i%2 == 0 {
				in.Delay = time.Duration(i+1) * time.Minute
			}
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
		}
		if _, err := session.Apply(t.Context(), txs...); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func parse(t *testing.T, text string) filter.Filter {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// all reads all pages of a request. It returns the refs of their tasks, the last page and the number of
// calls.
func all(t *testing.T, store Source, req Request) (refs []string, last Page, calls int) {
	t.Helper()
	for {
		page, err := Next(t.Context(), store, req)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Tasks) > max(req.Limit, DefaultLimit) || req.Limit > 0 && len(page.Tasks) > req.Limit {
			t.Fatalf("a page has %d tasks, want at most %d", len(page.Tasks), req.Limit)
		}
		for _, task := range page.Tasks {
			refs = append(refs, task.Ref.String())
		}
		calls++
		if page.Done() {
			return refs, page, calls
		}
		req.Cursor = page.Cursor
	}
}

func TestEachMatchComesOnceWhateverThePages(t *testing.T) {
	queues := []string{"a", "b", "midge.own"}
	store := world(t, 500, queues...)
	for _, limit := range []int{1, 7, 50, 1000} {
		for _, text := range []string{"", "kind:odd", "queue:b state:scheduled", "kind:none", "id:t0499", "queue:midge.own", "queue:x"} {
			f := parse(t, text)
			got, last, _ := all(t, store, Request{Filter: f, Limit: limit, Time: -1})
			want, total := listed(t, store, f, queues)
			if !slices.Equal(got, want) {
				t.Errorf("%q by %d: got %d tasks, want %d: %v", text, limit, len(got), len(want), got[:min(len(got), 5)])
			}
			if last.Searched != total || last.Total != total || last.Matched != int64(len(want)) {
				t.Errorf("%q by %d: searched %d of %d, matched %d; want all %d, matched %d",
					text, limit, last.Searched, last.Total, last.Matched, total, len(want))
			}
		}
	}
}

// listed returns the refs of the tasks that match, and the number of tasks to search, without a scan.
func listed(t *testing.T, store *memory.Storage, f filter.Filter, queues []string) (refs []string, total int64) {
	t.Helper()
	for _, queue := range queues {
		for _, state := range f.States(storage.StatesWhere(storage.State.Live)...) {
			for task, err := range storage.Each(t.Context(), store, queue, state) {
				if err != nil {
					t.Fatal(err)
				}
				if f.Match(task) {
					refs = append(refs, task.Ref.String())
				}
				if f.MatchQueue(queue) {
					total++
				}
			}
		}
	}
	return refs, total
}

func TestABudgetEndsACall(t *testing.T) {
	store := world(t, 1000, "a")
	page, err := Next(t.Context(), store, Request{Filter: parse(t, "kind:none"), Tasks: 300, Time: -1})
	if err != nil || page.Done() || page.Searched != 400 || page.Total != 1000 {
		t.Errorf("got %+v, %v, want 400 of 1000 searched", page, err)
	}
	_, last, calls := all(t, store, Request{Filter: parse(t, "kind:none"), Tasks: 1, Time: -1})
	if last.Searched != 1000 || calls < 5 {
		t.Errorf("got %d searched in %d calls", last.Searched, calls)
	}
	_, last, calls = all(t, store, Request{Filter: parse(t, "kind:none"), Time: time.Nanosecond})
	if last.Searched != 1000 || calls < 5 {
		t.Errorf("got %d searched in %d calls", last.Searched, calls)
	}
}

func TestACountKeepsSamples(t *testing.T) {
	store := world(t, 900, "a")
	page, err := Next(t.Context(), store, Request{Filter: parse(t, "kind:odd"), Limit: 5, Count: true, Time: -1})
	if err != nil || len(page.Tasks) != 5 || page.Matched != 300 || !page.Done() {
		t.Errorf("got %d tasks of %d, %v; want 5 of 300", len(page.Tasks), page.Matched, err)
	}
}

// reads is a storage that counts the tasks that it lists.
type reads struct {
	storage.Storage

	tasks int
}

func (r *reads) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	page, err := r.Storage.Tasks(ctx, q)
	r.tasks += len(page.Tasks)
	return page, err
}

// TestOnePartitionIsReadAlone checks that a search for the waiting tasks of a partition reads its line alone, page
// by page, and finds declined tasks of the partition too.
func TestOnePartitionIsReadAlone(t *testing.T) {
	store := &reads{Storage: world(t, 600, "a", "b")}
	session := storage.NewSession(store, 0)
	for i, key := range slices.Repeat([]string{"acme", "other"}, 300) {
		in := storage.Insert{
			Ref: storage.Ref{Queue: "b", ID: fmt.Sprintf("%s%03d", key, i)}, Kind: "keyed", Encoding: "json",
			Payload: []byte("{}"), CrashLimit: 3, Partition: key,
		}
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
			t.Fatal(err)
		}
	}
	req := Request{Filter: parse(t, "partition:acme"), States: []storage.State{storage.Waiting}, Limit: 200}
	refs, last, calls := all(t, store, req)
	if len(refs) != 300 || last.Total != 300 || last.Searched != 300 || store.tasks > 500 {
		t.Errorf("%d tasks, searched %d of %d, read %d", len(refs), last.Searched, last.Total, store.tasks)
	}
	if slices.Sort(refs); calls < 2 || len(slices.Compact(refs)) != 300 {
		t.Errorf("%d distinct tasks in %d calls", len(slices.Compact(refs)), calls)
	}
	page, err := Next(t.Context(), store, req)
	if err != nil {
		t.Fatal(err)
	}
	decline(t, session, "b") // the page after goes on in the same line
	req.Cursor = page.Cursor
	rest, _, _ := all(t, store, req)
	if n := len(page.Tasks) + len(rest); n != 300 && n != 299 {
		t.Errorf("%d tasks, want all but the declined one at least", n)
	}
	req.Cursor = ""
	refs, _, _ = all(t, store, req)
	if len(refs) != 300 {
		t.Errorf("%d tasks with a declined one, want 300", len(refs))
	}
}

// decline declines one task of the partition acme.
func decline(t *testing.T, session *storage.Session, queue string) {
	t.Helper()
	claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 3, Lease: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range claimed.Tasks {
		settle := storage.Settle{Fence: claimed.Fences[i], Outcome: storage.Release}
		if task.Partition == "acme" {
			settle.Outcome = storage.Decline
		}
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHiddenQueuesAreSearchedWhereNamed(t *testing.T) {
	store := world(t, 10, "a", "midge.own")
	for _, c := range []struct {
		req  Request
		want int
	}{
		{Request{}, 10},
		{Request{Queues: []string{"midge.own", "a"}}, 20},
		{Request{Filter: parse(t, "queue:midge.*,a")}, 20},
		{Request{Filter: parse(t, "queue:*")}, 10},
	} {
		if got, _, _ := all(t, store, c.req); len(got) != c.want {
			t.Errorf("%+v: got %d, want %d", c.req, len(got), c.want)
		}
	}
}

func TestTheTimeOfTheFirstCallHolds(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	store, err := memory.Open(memory.Config{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, 0)
	for i := range 4 {
		_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: "a", ID: fmt.Sprint("t", i)}, Kind: "k", Encoding: "json", Payload: []byte("1"), CrashLimit: 1,
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	req := Request{Filter: parse(t, "age<1m"), Limit: 1}
	page, err := Next(t.Context(), store, req)
	if err != nil || len(page.Tasks) != 1 {
		t.Fatalf("got %v, %v", page, err)
	}
	at = at.Add(2 * time.Minute)
	req.Cursor = page.Cursor
	if page, err = Next(t.Context(), store, req); err != nil || len(page.Tasks) != 1 {
		t.Errorf("got %v, %v, want a task that was young at the first call", page, err)
	}
}

func TestACursorOfAnotherRequestIsRefused(t *testing.T) {
	store := world(t, 300, "a")
	page, err := Next(t.Context(), store, Request{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []Request{
		{Cursor: page.Cursor, Filter: parse(t, "kind:odd")},
		{Cursor: page.Cursor, States: []storage.State{storage.Dead}},
		{Cursor: "?"},
		{Cursor: "e30"},
		{Cursor: page.Cursor, Queues: []string{"a"}},
		{Queues: []string{"?"}},
	} {
		var invalid *storage.InvalidError
		if _, err := Next(t.Context(), store, req); !errors.As(err, &invalid) {
			t.Errorf("%+v: got %v, want an *InvalidError", req, err)
		}
	}
}

func TestAContextEndsACall(t *testing.T) {
	store := world(t, 300, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Next(ctx, store, Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestDeadTasksAreGroupedByTheirCause(t *testing.T) {
	store := world(t, 600, "a", "b")
	session := storage.NewSession(store, 0)
	for n := 0; ; {
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "a"}, {Name: "b"}}, Start: 100, Lease: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed.Tasks) == 0 {
			break
		}
		for _, f := range claimed.Fences {
			s := storage.Settle{Fence: f, Outcome: storage.Bury, Reason: "refused", Error: fmt.Sprintf("user %d not found", n)}
			if n%3 == 0 {
				s.Error = fmt.Sprintf("dial 10.0.0.%d: refused", n%250)
			}
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{s}}); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	g := NewGrouping(store, Request{Tasks: 250, Time: -1})
	steps := 0
	for done := false; !done; steps++ {
		var err error
		if done, err = g.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	groups := g.Groups()
	if len(groups) != 2 || groups[0].Text != "user # not found" || groups[0].Tasks != 400 || groups[1].Tasks != 200 ||
		g.Searched != 600 || g.Total != 600 || steps < 2 || groups[0].Queues["b"] != 200 || groups[0].Sample.State != storage.Dead {
		t.Errorf("got %+v in %d steps, %d of %d", groups, steps, g.Searched, g.Total)
	}
	refs, _, _ := all(t, store, Request{Filter: parse(t, groups[1].Filter()), Time: -1})
	if len(refs) != 200 || groups[1].First.IsZero() || groups[1].Last.Before(groups[1].First) {
		t.Errorf("%s chooses %d tasks, want 200", groups[1].Filter(), len(refs))
	}
}

// died lets a new task die in each of the queues, one after the other.
func died(t *testing.T, store *memory.Storage, queues ...string) {
	t.Helper()
	session := storage.NewSession(store, 0)
	for i, queue := range queues {
		_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: queue, ID: fmt.Sprintf("t%05d", i)}, Kind: "k", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
		}}})
		if err != nil {
			t.Fatal(err)
		}
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 1, Lease: time.Minute,
		})
		if err != nil || len(claimed.Fences) != 1 {
			t.Fatalf("claimed %d tasks, %v", len(claimed.Fences), err)
		}
		s := storage.Settle{Fence: claimed.Fences[0], Outcome: storage.Bury, Reason: "refused"}
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{s}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEndedTasksComeNewestFirstOnRequest(t *testing.T) {
	store := world(t, 0)
	died(t, store, "b", "a", "b", "a", "b")
	for _, limit := range []int{1, 2, 50} {
		req := Request{Filter: parse(t, "state:all"), Limit: limit, Time: -1, Newest: true}
		refs, _, _ := all(t, store, req)
		if want := "[a/t00003 a/t00001 b/t00004 b/t00002 b/t00000]"; fmt.Sprint(refs) != want {
			t.Errorf("by %d: got %v, want %s", limit, refs, want)
		}
	}
	page, err := Next(t.Context(), store, Request{Filter: parse(t, "state:dead"), Limit: 1, Newest: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Next(t.Context(), store, Request{Filter: parse(t, "state:dead"), Limit: 1, Cursor: page.Cursor})
	if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
		t.Errorf("a cursor of the other order gives %v, want an *InvalidError", err)
	}
}

// TestCausesOfTheNewestAreCountedFirst checks that the old tasks of queue b are read after the tasks of all
// other queues that died later.
func TestCausesOfTheNewestAreCountedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := world(t, 0)
		var queues []string
		for range 3000 {
			queues = append(queues, "b")
		}
		died(t, store, queues...)
		time.Sleep(time.Hour)
		died(t, store, slices.Repeat([]string{"a", "c"}, 1000)...)
		g := NewGrouping(store, Request{Tasks: 2200, Time: -1})
		done, err := g.Read(t.Context())
		if err != nil || done {
			t.Fatalf("done %t, %v; want a part", done, err)
		}
		got := g.Groups()[0].Queues
		if got["a"] != 1000 || got["c"] != 1000 || got["b"] < 200 || g.Total != 5000 {
			t.Errorf("read %v of %d, want all of a and c first, and some of b, of 5000", got, g.Total)
		}
		for !done {
			if done, err = g.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := g.Groups()[0]; got.Tasks != 5000 || g.Searched != 5000 || got.Sample.Queue == "b" {
			t.Errorf("got %d tasks, the newest of %s, want 5000 and not b", got.Tasks, got.Sample.Queue)
		}
	})
}

// heavy opens a storage with n tasks whose parameters take a while to decode.
func heavy(t *testing.T, n int) *memory.Storage {
	t.Helper()
	store := world(t, 0)
	var txs []storage.Tx
	for i := range n {
		txs = append(txs, storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: "heavy", ID: fmt.Sprintf("t%04d", i)}, Kind: "big", Encoding: "json", CrashLimit: 3,
			Payload: []byte(`{"list":[` + strings.Repeat(`{"a":1},`, 3000) + `{"a":2}]}`),
		}}})
	}
	if _, err := storage.NewSession(store, 0).Apply(t.Context(), txs...); err != nil {
		t.Fatal(err)
	}
	return store
}

// ending is a context whose Err returns an error after left calls.
type ending struct {
	context.Context

	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// TestAPageOfWhichTasksTakeLongEndsInTime checks that the time of a request, and the end of its context, hold
// within a page too.
func TestAPageOfWhichTasksTakeLongEndsInTime(t *testing.T) {
	store := heavy(t, 20)
	req := Request{Filter: parse(t, "-params.list.b:x -params.list.c:x"), Time: time.Nanosecond}
	refs, last, calls := all(t, store, req)
	if calls < 20 || len(refs) != 20 || last.Matched != 20 || last.Searched != 20 {
		t.Errorf("%d calls found %d tasks, matched %d of %d; want a call for each of 20", calls, len(refs), last.Matched, last.Searched)
	}
	req.Time = -1
	ctx := &ending{t.Context(), 100}
	if _, err := Next(ctx, store, req); err != nil {
		t.Errorf("a context that holds: %v", err)
	}
	ctx = &ending{t.Context(), 10}
	if _, err := Next(ctx, store, req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that ends within a page: %v, want its error", err)
	}
}

// TestACountLeavesNoMatchOut checks that a caller who pages through the tasks gets each match once: the next
// page begins with the tasks that were counted but not returned.
func TestACountLeavesNoMatchOut(t *testing.T) {
	store := world(t, 500, "a", "b")
	for _, budget := range []int{-1, 1, 300} {
		req := Request{Filter: parse(t, "kind:odd"), Limit: 7, Count: true, Tasks: budget, Time: -1}
		seen := make(map[storage.Ref]int)
		for pages := 0; ; pages++ {
			page, err := Next(t.Context(), store, req)
			if err != nil || pages > 1000 {
				t.Fatal(pages, err)
			}
			for _, task := range page.Tasks {
				seen[task.Ref]++
			}
			if page.Done() && page.Matched != 2*167 {
				t.Errorf("matched %d, want %d", page.Matched, 2*167)
			}
			if req.Cursor = cmp.Or(page.Rest, page.Cursor); req.Cursor == "" {
				break
			}
		}
		for ref, n := range seen {
			if n != 1 {
				t.Errorf("%v comes %d times", ref, n)
			}
		}
		if len(seen) != 2*167 {
			t.Errorf("by %d: got %d tasks, want %d", budget, len(seen), 2*167)
		}
	}
}

// TestGroupsOfTasksThatHaveNotEndedHaveASample checks groups in which no task has a moment at which it ended.
func TestGroupsOfTasksThatHaveNotEndedHaveASample(t *testing.T) {
	store := world(t, 10, "a")
	g := NewGrouping(store, Request{States: []storage.State{storage.Scheduled}, Time: -1})
	if done, err := g.Read(t.Context()); !done || err != nil {
		t.Fatal(done, err)
	}
	if of := g.Groups()[0]; of.Tasks != 5 || of.Sample.State != storage.Scheduled {
		t.Errorf("got %d tasks and the sample %+v, want 5 and one of them", of.Tasks, of.Sample)
	}
}

func TestTheOrderIsTold(t *testing.T) {
	for text, want := range map[string]string{
		"state:dead": "the newest of each queue first", "state:dead queue:a": "newest first", "state:dead,waiting": "", "": "",
		"state:ended queue:a": "the newest of each state first", "state:ended": "the newest of each queue and state first",
	} {
		if got := (&Request{Filter: parse(t, text), Newest: true}).Order(); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
