package survey

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// reading is a storage that counts the calls that read tasks, and the tasks that they return.
type reading struct {
	storage.Storage

	mu    sync.Mutex
	calls map[string]int
}

func (r *reading) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	page, err := r.Storage.Tasks(ctx, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[string(q.State)]++
	r.calls["tasks"] += len(page.Tasks)
	return page, err
}

// mourning returns a reader of a scene, with a clock that the test sets.
func mourning(t *testing.T) (*scene.Scene, *Reader, *reading, *time.Duration) {
	t.Helper()
	sc, err := scene.Open(t.Context(), "empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	store, ahead, began := &reading{Storage: sc.Store, calls: map[string]int{}}, new(time.Duration), time.Now()
	return sc, NewReader(store, Config{Now: func() time.Time { return began.Add(*ahead) }}), store, ahead
}

// bury makes n tasks of a queue die of a cause.
func bury(t *testing.T, sc *scene.Scene, queue, cause string, n int) {
	t.Helper()
	if err := sc.Add(t.Context(), queue, "work", n, func(_ int, in *storage.Insert) { in.MaxRetries = 0 }); err != nil {
		t.Fatal(err)
	}
	err := sc.End(t.Context(), queue, n, func(_ int, _ storage.Task, st *storage.Settle) {
		st.Outcome, st.Error = storage.Fail, cause
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mustRead reads once, after the time d, and requires causes with the wanted numbers of tasks.
func (r *Reader) mustRead(t *testing.T, ahead *time.Duration, d time.Duration, want map[string]int64) {
	t.Helper()
	*ahead += d
	now, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, g := range now.Dead.Groups {
		got[g.Error] += g.Tasks
	}
	if !maps.Equal(got, want) {
		t.Errorf("died: %v, want %v", got, want)
	}
}

// countAll counts all dead tasks by cause.
func (r *Reader) countAll(t *testing.T) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = r.CountDead(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOnlyWhatDiedIsReadAgain(t *testing.T) {
	sc, s, store, ahead := mourning(t)
	bury(t, sc, "old", "disk full", 1500)
	bury(t, sc, "small", "no route", 3)
	s.countAll(t)
	all := map[string]int64{"no route": 3, "disk full": 1000}
	s.mustRead(t, ahead, 0, all)
	s.countAll(t)
	all["disk full"] = 1500
	clear(store.calls)
	for range 10 {
		s.mustRead(t, ahead, 2*time.Second, all)
		s.countAll(t)
	}
	if len(store.calls) > 0 {
		t.Errorf("nothing died, and %v are read", store.calls)
	}
	bury(t, sc, "old", "disk full", 5)
	all["disk full"] += 5
	s.mustRead(t, ahead, deadFor+time.Second, all)
	if store.calls["tasks"] > MostDead || store.calls["dead"] > MostDead/storage.MaxPage {
		t.Errorf("five died, and %v are read", store.calls)
	}
	// If dead tasks are requeued, the tasks of their queue are counted anew.
	if _, err := sc.Session.RequeueAll(t.Context(), "small", storage.Dead, nil); err != nil {
		t.Fatal(err)
	}
	delete(all, "no route")
	s.mustRead(t, ahead, deadFor+time.Second, all)
}

func TestManyCausesAreBounded(t *testing.T) {
	sc, s, _, ahead := mourning(t)
	if err := sc.Add(t.Context(), "q", "work", mostCauses+100, func(_ int, in *storage.Insert) { in.MaxRetries = 0 }); err != nil {
		t.Fatal(err)
	}
	err := sc.End(t.Context(), "q", mostCauses+100, func(i int, _ storage.Task, st *storage.Settle) {
		st.Outcome, st.Error = storage.Fail, "cause "+word(i)
	})
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(now.Dead.Groups) != MostDead || now.Dead.Read != MostDead {
		t.Errorf("a look tells %d causes of %d tasks, want %d of each", len(now.Dead.Groups), now.Dead.Read, MostDead)
	}
	s.countAll(t)
	*ahead += 2 * time.Second
	if now, err = s.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(now.Dead.Groups) != mostCauses || now.Dead.Read != mostCauses+100 {
		t.Errorf("%d causes of %d tasks, want %d of %d", len(now.Dead.Groups), now.Dead.Read, mostCauses, mostCauses+100)
	}
}

// word writes a number in letters, because a fingerprint ignores digits.
func word(n int) (text string) {
	for ; n > 0 || text == ""; n /= 16 {
		text = fmt.Sprintf("%c%s", 'g'+n%16, text)
	}
	return "w" + text
}

// TestALookReadsSchedulesOnceTheyTick checks that the schedules of a queue are read again if their number has
// changed, if one was due, and after schedulesAgain.
func TestALookReadsSchedulesOnceTheyTick(t *testing.T) {
	sc, s, store, ahead := mourning(t)
	for i := range 20 {
		err := sc.Schedule(t.Context(), fmt.Sprintf("q%d", i), "nightly", "every 1h0m0s", "", time.Hour, true)
		if err != nil {
			t.Fatal(err)
		}
	}
	reads := func(what string, d time.Duration, want int) {
		t.Helper()
		*ahead += d
		clear(store.calls)
		now, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := store.calls[string(storage.Cursors)]; got != want || len(now.Schedules) < 20 {
			t.Errorf("%s: %d pages of schedules are read, want %d; there are %d", what, got, want, len(now.Schedules))
		}
	}
	reads("at first", 0, 20)
	reads("soon after", 10*time.Second, 0)
	if err := sc.Schedule(t.Context(), "q7", "daily", "every 1h0m0s", "", -time.Minute, true); err != nil {
		t.Fatal(err)
	}
	reads("where one came", 2*time.Second, 1)
	reads("where one is late", 10*time.Second, 1)
	reads("a minute after", schedulesAgain, 20)
}

// TestADeploysSchedulesAreNoOrphans checks that a schedule that replaces another one is read again soon.
func TestADeploysSchedulesAreNoOrphans(t *testing.T) {
	sc, s, _, ahead := mourning(t)
	sc.Runners = []storage.RunnerInfo{{ID: "r1", Queues: []string{"q"}, Concurrency: 1}}
	if err := sc.Schedule(t.Context(), "q", "nightly", "every 1h0m0s", "", time.Hour, false); err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		if err := sc.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(now.Schedules) != 1 || now.Schedules[0].Orphaned {
			t.Errorf("%d schedules, orphaned %t: want one that is declared", len(now.Schedules), now.Schedules[0].Orphaned)
		}
	}
	look()
	ref := sc.Runners[0].Schedules[0].Ref
	was, err := sc.Store.Task(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	d := storage.Declaration{Spec: "every 2h0m0s", Hash: "another"}
	_, err = sc.Session.ApplyOne(t.Context(), storage.Tx{
		Deletes: []storage.Delete{{Ref: ref, Version: was.Version}},
		Inserts: []storage.Insert{{
			Ref: ref, Kind: "nightly", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
			Cursor: &storage.Cursor{Next: was.Cursor.Next, Declaration: d.Encode()},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sc.Runners[0].Schedules[0].Hash = d.Hash
	*ahead += runnersFor + time.Second
	look()
}

// TestOneErrorOfAMomentStandsForItsCause checks that the error does not depend on the order in which tasks
// and queues are counted.
func TestOneErrorOfAMomentStandsForItsCause(t *testing.T) {
	at := time.Now()
	died := func(queue, text string) storage.Task {
		return storage.Task{
			Ref: storage.Ref{Queue: queue, ID: text}, Kind: "work", State: storage.Dead, Ended: at,
			Attempts: []storage.Attempt{{Error: text}},
		}
	}
	const want = "timeout after 1 s"
	tasks := []storage.Task{
		died("a", "timeout after 3 s"), died("a", "timeout after 2 s"), died("b", want), died("b", "timeout after 4 s"),
	}
	for range 50 { // the order of a map varies
		if got := CauseOf(tasks); got.Error != want || got.Tasks != 4 {
			t.Fatalf("%d tasks died of %q, want 4 of %q", got.Tasks, got.Error, want)
		}
		slices.Reverse(tasks)
	}
}

// TestTheCausesAddUpToTheDeadTasks checks each reading while tasks die, in a queue that is known and in another one:
// the causes have as many tasks as the sizes of the queues.
func TestTheCausesAddUpToTheDeadTasks(t *testing.T) {
	sc, s, store, ahead := mourning(t)
	bury(t, sc, "a", "disk full", 5)
	for i := range 4 {
		if err := sc.Session.Configure(t.Context(), fmt.Sprint("b", i), storage.Settings{Create: true}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int64{"disk full": 5}
	s.mustRead(t, ahead, 0, want)
	clear(store.calls)
	for i := range 4 {
		bury(t, sc, "a", "disk full", 7)
		bury(t, sc, fmt.Sprint("b", i), "no route", 2)
		want["disk full"], want["no route"] = want["disk full"]+7, want["no route"]+2
		s.mustRead(t, ahead, time.Second, want)
	}
	if store.calls["tasks"] > 4*(7+1+2) {
		t.Errorf("%d tasks are read for 36 deaths, want as many and one of each known queue", store.calls["tasks"])
	}
}
