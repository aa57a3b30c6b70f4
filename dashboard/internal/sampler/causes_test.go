package sampler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/ledger"
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

// mourning returns a sampler of a scene, with a clock that the test sets.
func mourning(t *testing.T) (*scene.Scene, *Sampler, *reading, *time.Duration) {
	t.Helper()
	sc, err := scene.Open(t.Context(), "empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	store, ahead, began := &reading{Storage: sc.Store, calls: map[string]int{}}, new(time.Duration), time.Now()
	return sc, New(store, ledger.New(store), func() time.Time { return began.Add(*ahead) }), store, ahead
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

// mustLook looks once, after the time d, and requires causes with the wanted numbers of tasks.
func (s *Sampler) mustLook(t *testing.T, ahead *time.Duration, d time.Duration, want map[string]int64) {
	t.Helper()
	*ahead += d
	now, err := s.Sample(t.Context())
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

func TestOnlyWhatDiedIsReadAgain(t *testing.T) {
	sc, s, store, ahead := mourning(t)
	bury(t, sc, "old", "disk full", 1500)
	bury(t, sc, "small", "no route", 3)
	s.countDead(t.Context())
	all := map[string]int64{"no route": 3, "disk full": 1000}
	s.mustLook(t, ahead, 0, all)
	s.countDead(t.Context())
	all["disk full"] = 1500
	clear(store.calls)
	for range 10 {
		s.mustLook(t, ahead, 2*time.Second, all)
		s.countDead(t.Context())
	}
	if len(store.calls) > 0 {
		t.Errorf("nothing died, and %v are read", store.calls)
	}
	bury(t, sc, "old", "disk full", 5)
	all["disk full"] += 5
	s.mustLook(t, ahead, deadFor+time.Second, all)
	if store.calls["tasks"] > MostDead || store.calls["dead"] > countPages {
		t.Errorf("five died, and %v are read", store.calls)
	}
	// If dead tasks are requeued, the tasks of their queue are counted anew.
	if _, err := sc.Session.RequeueAll(t.Context(), "small", storage.Dead, nil); err != nil {
		t.Fatal(err)
	}
	delete(all, "no route")
	s.mustLook(t, ahead, deadFor+time.Second, all)
}

// TestTheDeadAreCountedFromTheNewestOn checks that the newest dead tasks are counted at once, and the others
// by later looks. Tasks that die meanwhile are shown soon, and deletes make the count begin anew.
func TestTheDeadAreCountedFromTheNewestOn(t *testing.T) {
	sc, s, store, ahead := mourning(t)
	bury(t, sc, "a.old", "disk full", 5000)
	bury(t, sc, "z.new", "timeout", 1500)
	look := func() string {
		t.Helper()
		*ahead += 2 * deadFor
		now, err := s.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%d %t:", now.Dead.Read, now.Dead.Whole)
		for _, g := range now.Dead.Groups {
			text += fmt.Sprintf(" %s %d", g.Error, g.Tasks)
		}
		return text
	}
	want := func(when, want string) {
		t.Helper()
		if got := look(); got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	want("first", "2000 false: timeout 1000 disk full 1000")
	want("second", "3900 false: disk full 2400 timeout 1500")
	bury(t, sc, "z.new", "refused", 10)
	want("what died meanwhile", "3910 false: disk full 2400 timeout 1500 refused 10")
	want("going on", "5910 false: disk full 4400 timeout 1500 refused 10")
	want("last", "6510 true: disk full 5000 timeout 1500 refused 10")
	want("at rest", "6510 true: disk full 5000 timeout 1500 refused 10")
	deleted, err := storage.NewSession(store, 0).DeleteAll(t.Context(), "a.old", storage.Dead, nil)
	if err != nil || deleted != 5000 {
		t.Fatalf("deleted %d: %v", deleted, err)
	}
	want("few left", "1510 true: timeout 1500 refused 10")
}

// tardy is a storage that takes its time to list dead tasks.
type tardy struct {
	storage.Storage

	each time.Duration
}

func (w *tardy) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	if q.State == storage.Dead {
		select {
		case <-time.After(w.each):
		case <-ctx.Done():
			return storage.TasksPage{}, ctx.Err()
		}
	}
	return w.Storage.Tasks(ctx, q)
}

// TestACountOfTheDeadTakesTheTurnFromNobody checks that a count holds the turn no longer than a look may if
// the storage does not answer it, because all pages wait for the turn.
func TestACountOfTheDeadTakesTheTurnFromNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "empty", 0)
		if err != nil {
			t.Fatal(err)
		}
		bury(t, sc, "q", "disk full", MostDead+100)
		store := &tardy{Storage: sc.Store}
		s := New(store, ledger.New(store), time.Now)
		if _, err := s.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.each = time.Hour
		began := time.Now()
		s.countDead(t.Context())
		if took := time.Since(began); took > LookTimeout+time.Second {
			t.Errorf("a count that the storage does not answer holds the turn for %v, want %v at most", took, LookTimeout)
		}
	})
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
	now, err := s.Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(now.Dead.Groups) != MostDead || now.Dead.Read != MostDead {
		t.Errorf("a look tells %d causes of %d tasks, want %d of each", len(now.Dead.Groups), now.Dead.Read, MostDead)
	}
	s.countDead(t.Context())
	*ahead += 2 * time.Second
	if now, err = s.Sample(t.Context()); err != nil {
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
		now, err := s.Sample(t.Context())
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
		now, err := s.Sample(t.Context())
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
