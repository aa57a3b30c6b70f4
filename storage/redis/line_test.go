package redis_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// listed lists the ids of all pages.
func listed(t *testing.T, s storage.Storage, query storage.TasksQuery) (ids []string) {
	t.Helper()
	for {
		page, err := s.Tasks(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Tasks {
			ids = append(ids, page.Tasks[i].ID)
		}
		if page.Next == "" {
			return ids
		}
		query.After = page.Next
	}
}

// few bounds the void entries that a step of these tests removes or passes over: a tenth of the bound of
// production, so that a tenth of the tasks shows the same.
const few = 50

// onMini opens a storage on a miniredis, with n tasks that wait in the line of main.
func onMini(t *testing.T, n int) (*storage.Session, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	store, err := redis.Open(t.Context(), redis.WithMostVoid(redis.Config{URL: "redis://" + server.Addr()}, few))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	session := storage.NewSession(store, testserver.Patience)
	fill(t, session, n, nil)
	return session, server
}

// cancel cancels the waiting tasks from id<from> up to id<to>, which is excluded. Its calls are so small
// that a miniredis answers each of them within the session's patience, also on a busy machine. It calls
// each function of after after each of them.
func cancel(t *testing.T, session *storage.Session, from, to int, after ...func()) {
	t.Helper()
	var txs []storage.Tx
	for i := from; i < to; i++ {
		change := storage.Change{Ref: refOf("id" + strconv.Itoa(i)), Cancel: true}
		txs = append(txs, storage.Tx{Changes: []storage.Change{change}})
	}
	for len(txs) > 0 {
		n := min(len(txs), 100)
		if _, err := session.Apply(t.Context(), txs[:n]...); err != nil {
			t.Fatal(err)
		}
		callAll(after)
		txs = txs[n:]
	}
}

// inLine returns how many entries the line of main has, void entries included.
func inLine(server *miniredis.Miniredis) int {
	list, _ := server.List("midge:{main}:line")
	return len(list)
}

func waitingIn(t *testing.T, session *storage.Session) int64 {
	t.Helper()
	stats, err := session.Storage().Stats(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	return stats[0].Waiting
}

// TestAClaimGoesPastManyVoidEntriesInParts: each claim drops some void entries and reports that there is
// more. When all are gone, claims go the short way again.
func TestAClaimGoesPastManyVoidEntriesInParts(t *testing.T) {
	session, server := onMini(t, 600)
	cancel(t, session, 0, 270)
	if got := inLine(server); got != 600 || waitingIn(t, session) != 330 {
		t.Fatalf("got %d entries for %d tasks, want 600 for 330", got, waitingIn(t, session))
	}
	calls := 0
	for ; ; calls++ {
		claimed, err := session.Claim(t.Context(), claimOf(2))
		if err != nil || !claimed.More {
			t.Fatalf("claim %d: got more %v, %v", calls, claimed.More, err)
		}
		if len(claimed.Tasks) > 0 {
			if claimed.Tasks[0].ID != "id270" || claimed.Tasks[1].ID != "id271" {
				t.Errorf("got %v, want id270 and id271", claimed.Tasks)
			}
			break
		}
	}
	if calls != 5 || inLine(server) != 328 || waitingIn(t, session) != 328 {
		t.Errorf("after %d calls: %d entries for %d tasks, want 5 calls and 328",
			calls, inLine(server), waitingIn(t, session))
	}
	got := drain(t, session)
	if line, voids := server.Exists("midge:{main}:line"), server.Exists("midge:{main}:voids"); got != 328 || line || voids {
		t.Errorf("drained: got %d, want 328 and neither line nor voids", got)
	}
}

// TestALineOfVoidEntriesShrinks: even if nobody claims. Tasks that were inserted and cancelled
// leave nothing behind, and tasks that wait keep their turn.
func TestALineOfVoidEntriesShrinks(t *testing.T) {
	session, server := onMini(t, 400)
	cancel(t, session, 1, 390)
	if got := inLine(server); got > 70 {
		t.Errorf("%d entries for 11 tasks, want about %d", got, few)
	}
	want := []string{"id0"}
	for i := 390; i < 400; i++ {
		want = append(want, "id"+strconv.Itoa(i))
	}
	query := storage.TasksQuery{Queue: "main", State: storage.Waiting, Limit: 4}
	if got := listed(t, session.Storage(), query); !slices.Equal(got, want) || waitingIn(t, session) != 11 {
		t.Errorf("listed %v, %d waiting, want %v", got, waitingIn(t, session), want)
	}
	var got []string
	for more := true; more; {
		claimed, err := session.Claim(t.Context(), claimOf(3))
		if err != nil {
			t.Fatal(err)
		}
		for i := range claimed.Tasks {
			got = append(got, claimed.Tasks[i].ID)
		}
		more = claimed.More
	}
	if !slices.Equal(got, want) || inLine(server) > 0 {
		t.Errorf("claimed %v and left %d entries, want %v", got, inLine(server), want)
	}
}

// TestAQueueOfVoidEntriesCanBeRemoved: void entries do not count as records.
func TestAQueueOfVoidEntriesCanBeRemoved(t *testing.T) {
	session, server := onMini(t, 3)
	cancel(t, session, 1, 3)
	remove := storage.Settings{Remove: true}
	if err := session.Configure(t.Context(), "main", remove); !errors.Is(err, storage.ErrNotEmpty) {
		t.Errorf("with a task: got %v, want %v", err, storage.ErrNotEmpty)
	}
	cancel(t, session, 0, 1)
	err := session.Configure(t.Context(), "main", remove)
	for _, key := range []string{"meta", "line", "voids"} {
		if err != nil || server.Exists("midge:{main}:"+key) {
			t.Errorf("%s is still there, %v", key, err)
		}
	}
}

// TestPagesOfTheLineHoldWhileClaimsTakeFromItsHead: pages list no task twice and leave none out.
func TestPagesOfTheLineHoldWhileClaimsTakeFromItsHead(t *testing.T) {
	session, _ := onMini(t, 40)
	cancel(t, session, 20, 22)
	query := storage.TasksQuery{Queue: "main", State: storage.Waiting, Limit: 10}
	page, err := session.Storage().Tasks(t.Context(), query)
	if err != nil || page.Tasks[9].ID != "id9" {
		t.Fatalf("got %v, %v, want id0 to id9", page.Tasks, err)
	}
	claimed, err := session.Claim(t.Context(), claimOf(15))
	if err != nil || len(claimed.Tasks) != 15 {
		t.Fatalf("claimed %d, %v, want 15", len(claimed.Tasks), err)
	}
	released := storage.Settle{Fence: claimed.Fences[12], Outcome: storage.Release} // goes before the cursor
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{released}}); err != nil {
		t.Fatal(err)
	}
	query.After = page.Next
	got := listed(t, session.Storage(), query)
	if len(got) != 23 || got[0] != "id15" || got[5] != "id22" || got[22] != "id39" {
		t.Errorf("got %v, want id15 to id39 without id20 and id21", got)
	}
}

// TestAPageGoesPastManyVoidEntriesInParts: a page may be empty, and its Next is the position of the next
// page.
func TestAPageGoesPastManyVoidEntriesInParts(t *testing.T) {
	session, _ := onMini(t, 900)
	cancel(t, session, 0, 440)
	query := storage.TasksQuery{Queue: "main", State: storage.Waiting, Limit: 5}
	pages := 0
	for ; pages < 5; pages++ {
		page, err := session.Storage().Tasks(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		if query.After = page.Next; len(page.Tasks) > 0 {
			if page.Tasks[0].ID != "id440" {
				t.Errorf("got %v, want id440", page.Tasks[0].ID)
			}
			break
		}
	}
	if pages != 2 {
		t.Errorf("got %d empty pages, want 2", pages)
	}
}

// TestTheOldestTaskIsFoundBehindManyVoidEntries checks that the age of a line does not vanish after somebody
// deleted its oldest tasks. It is exact if these stood together, as after a deletion by age.
func TestTheOldestTaskIsFoundBehindManyVoidEntries(t *testing.T) {
	const tasks, batch = 300, 25 // a batch a minute
	for _, c := range []struct {
		what    string
		cancels [][2]int // from, and the first behind
		oldest  int      // the first task that waits
		between bool     // a task stands between the void entries, so that a later task may be found
	}{
		{"none", nil, 0, false},
		{"the first", [][2]int{{0, 1}}, 1, false},
		{"fewer than the first look", [][2]int{{0, few - 1}}, few - 1, false},
		{"as many as the first look", [][2]int{{0, few}}, few, false},
		{"three batches and one", [][2]int{{0, 76}}, 76, false},
		{"almost half", [][2]int{{0, 149}}, 149, false},
		{"the first after others", [][2]int{{1, 140}, {0, 1}}, 140, false},
		{"a task stands between", [][2]int{{0, 70}, {71, 110}}, 70, true},
		{"and the last", [][2]int{{280, 300}, {0, 120}}, 120, false},
	} {
		session, server := onMini(t, 0)
		start := time.Now().Truncate(time.Minute)
		server.SetTime(start)
		for i := 0; i < tasks; i += batch {
			server.SetTime(start.Add(time.Duration(i/batch) * time.Minute))
			fillFrom(t, session, i, i+batch, nil)
		}
		for _, some := range c.cancels {
			cancel(t, session, some[0], some[1])
		}
		stats, err := session.Storage().Stats(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		want := time.Duration((tasks-1)/batch-c.oldest/batch) * time.Minute
		got := stats[0].Oldest
		if got > want || got <= 0 || !c.between && got != want {
			t.Errorf("%s: the oldest task waits for %v, want %v", c.what, got, want)
		}
	}
}
