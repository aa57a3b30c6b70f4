package bulk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// rig is a storage with some tasks.
type rig struct {
	t     *testing.T
	store storage.Storage
	*storage.Session
}

func open(t *testing.T) *rig {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &rig{t: t, store: store, Session: storage.NewSession(store, 0)}
}

// insert inserts n tasks of a queue.
func (r *rig) insert(queue string, n int, alter func(i int, in *storage.Insert)) {
	r.t.Helper()
	var txs []storage.Tx
	for i := range n {
		in := storage.Insert{
			Ref: storage.Ref{Queue: queue, ID: fmt.Sprintf("t%04d", i)}, Kind: "mail", Encoding: "json",
			Payload: []byte(`{"n":1}`), CrashLimit: 3, Keep: storage.Keep{For: time.Hour},
		}
		if alter != nil {
			alter(i, &in)
		}
		txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
	}
	if _, err := r.Apply(r.t.Context(), txs...); err != nil {
		r.t.Fatal(err)
	}
}

// bury makes all waiting tasks of a queue dead.
func (r *rig) bury(queue string) {
	r.t.Helper()
	for {
		claimed, err := r.Claim(r.t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 500, Lease: time.Minute,
		})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(claimed.Tasks) == 0 {
			return
		}
		var txs []storage.Tx
		for _, f := range claimed.Fences {
			s := storage.Settle{Fence: f, Outcome: storage.Bury, Reason: "refused", Error: "no such user"}
			txs = append(txs, storage.Tx{Settles: []storage.Settle{s}})
		}
		if _, err := r.Apply(r.t.Context(), txs...); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) count(queue string, state storage.State) int64 {
	r.t.Helper()
	stats, err := r.store.Stats(r.t.Context(), queue)
	if err != nil {
		r.t.Fatal(err)
	}
	return stats[0].Size(state)
}

// task reads a task of queue a.
func (r *rig) task(id string) storage.Task {
	r.t.Helper()
	task, err := r.store.Task(r.t.Context(), storage.Ref{Queue: "a", ID: id})
	if err != nil {
		r.t.Fatal(err)
	}
	return task
}

func matching(t *testing.T, text string) scan.Request {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return scan.Request{Filter: f}
}

// brief returns the counts of a result.
func brief(r Result) [5]int64 { return [5]int64{r.Matched, r.Done, r.Changed, r.Gone, r.Kept} }

func TestActs(t *testing.T) {
	r := open(t)
	r.insert("a", 450, func(i int, in *storage.Insert) {
		if i%3 == 0 {
			in.Kind = "odd"
		}
	})
	r.bury("a")
	r.insert("b", 30, func(i int, in *storage.Insert) {
		if i%2 == 0 {
			in.Delay = time.Hour
		}
	})
	at := time.Now().Add(48 * time.Hour).Truncate(time.Microsecond)
	for _, c := range []struct {
		act    Act
		filter string
		want   [5]int64
		queue  string
		state  storage.State
		left   int64 // tasks in that queue and state
	}{
		{Act{Verb: Requeue}, "kind:odd", [5]int64{150, 150}, "a", storage.Dead, 300},
		{Act{Verb: Requeue}, "kind:odd", [5]int64{}, "a", storage.Dead, 300},
		{Act{Verb: Move, Queue: "c"}, "queue:a kind:odd", [5]int64{150, 150}, "c", storage.Waiting, 150},
		{Act{Verb: Move, Queue: "c"}, "queue:a,c kind:odd", [5]int64{}, "c", storage.Waiting, 150},
		{Act{Verb: Prioritise, Priority: -3}, "queue:c", [5]int64{150, 150}, "c", storage.Waiting, 150},
		{Act{Verb: Prioritise, Priority: -3}, "queue:c", [5]int64{}, "c", storage.Waiting, 150},
		{Act{Verb: Reschedule}, "queue:b", [5]int64{15, 15}, "b", storage.Waiting, 30},
		{Act{Verb: Reschedule, At: at}, "queue:b", [5]int64{30, 30}, "b", storage.Scheduled, 30},
		{Act{Verb: Reschedule, At: at}, "queue:b", [5]int64{}, "b", storage.Scheduled, 30},
		{Act{Verb: Cancel}, "queue:b", [5]int64{30, 30}, "b", storage.Cancelled, 30},
		{Act{Verb: Delete}, "state:all queue:b", [5]int64{30, 30}, "b", storage.Cancelled, 0},
		{Act{Verb: Delete}, "state:dead", [5]int64{300, 300}, "a", storage.Dead, 0},
	} {
		got, err := Run(t.Context(), r.Session, Request{Act: c.act, Scan: matching(t, c.filter)})
		if err != nil || brief(got) != c.want {
			t.Errorf("%s of %s: got %+v, %v, want %v", c.act.Verb, c.filter, got, err, c.want)
		}
		if left := r.count(c.queue, c.state); left != c.left {
			t.Errorf("%s of %s: %d %s tasks are left in %s, want %d", c.act.Verb, c.filter, left, c.state, c.queue, c.left)
		}
	}
}

func TestNamedTasksAreCounted(t *testing.T) {
	r := open(t)
	r.insert("a", 3, nil)
	r.bury("a")
	r.insert("b", 1, nil)
	ref := func(id string) Target { return Target{Ref: storage.Ref{Queue: "a", ID: id}} }
	old := ref("t0002")
	old.Version = 7
	req := Request{Act: Act{Verb: Requeue}, Tasks: []Target{ref("t0000"), ref("t0001"), ref("t0000"), ref("none"), old}}
	req.Tasks = append(req.Tasks, Refs(storage.Ref{Queue: "b", ID: "t0000"})...)
	got, err := Run(t.Context(), r.Session, req)
	if err != nil || brief(got) != [5]int64{4, 2, 1, 1, 0} {
		t.Errorf("got %+v, %v, want 4 matched, 2 done, 1 changed, 1 gone", got, err)
	}
	want := []Reason{{storage.Ref{Queue: "a", ID: "none"}, "there is no such task"}}
	if look, err := Look(t.Context(), r.Session, req, Budget{}); err != nil || !slices.Equal(look.Reasons, want) ||
		!slices.Equal(got.Reasons, want) {
		t.Errorf("got %v and, of a preview, %v, %v, want %v", got.Reasons, look.Reasons, err, want)
	}
	req = Request{Act: Act{Verb: Move, Queue: "b"}, Tasks: Refs(storage.Ref{Queue: "a", ID: "t0000"})}
	got, err = Run(t.Context(), r.Session, req)
	if err != nil || brief(got) != [5]int64{1, 0, 0, 0, 1} || !strings.Contains(got.Reasons[0].Text, "id") {
		t.Errorf("got %+v, %v, want one kept, whose id is taken", got, err)
	}
}

// meddling is a storage in which somebody changes tasks right after they were listed.
type meddling struct {
	storage.Storage
	meddle func()
}

func (m *meddling) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	page, err := m.Storage.Tasks(ctx, q)
	if m.meddle != nil && len(page.Tasks) > 0 {
		m.meddle()
		m.meddle = nil
	}
	return page, err
}

func TestWhatChangedMeanwhileIsKept(t *testing.T) {
	r := open(t)
	r.insert("a", 300, nil)
	r.bury("a")
	r.store = &meddling{r.store, func() {
		if err := r.Requeue(t.Context(), storage.Ref{Queue: "a", ID: "t0001"}); err != nil {
			t.Fatal(err)
		}
		priority := 5
		alter := func(storage.Task) (storage.Change, error) { return storage.Change{Priority: &priority}, nil }
		if err := r.ChangeTask(t.Context(), storage.Ref{Queue: "a", ID: "t0002"}, alter); err != nil {
			t.Fatal(err)
		}
		if err := r.DeleteTask(t.Context(), storage.Ref{Queue: "a", ID: "t0003"}); err != nil {
			t.Fatal(err)
		}
	}}
	got, err := Run(t.Context(), storage.NewSession(r.store, 0), Request{Act: Act{Verb: Delete}, Scan: matching(t, "state:dead")})
	if err != nil || brief(got) != [5]int64{300, 297, 2, 1, 0} {
		t.Errorf("got %+v, %v, want 297 of 300 done, 2 changed, 1 gone", got, err)
	}
	if r.task("t0001").State != storage.Waiting || r.task("t0002").Priority != 5 {
		t.Error("a task that changed meanwhile was not left as it is")
	}
}

// dying is a storage whose Apply fails after some calls.
type dying struct {
	storage.Storage
	calls int
}

var errDied = errors.New("died")

func (d *dying) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if d.calls--; d.calls < 0 {
		return nil, errDied
	}
	return d.Storage.Apply(ctx, call, txs...)
}

func TestARunThatWasKilledCanBeRepeated(t *testing.T) {
	for _, act := range []Act{
		{Verb: Requeue}, {Verb: Delete}, {Verb: Move, Queue: "b"}, {Verb: Prioritise, Priority: 3},
	} {
		r := open(t)
		r.insert("a", 1000, nil)
		r.bury("a")
		req := Request{Act: act, Scan: matching(t, "state:dead")}
		got, err := Run(t.Context(), storage.NewSession(&dying{r.store, 2}, 0), req)
		if !errors.Is(err, errDied) || got.Done != 400 {
			t.Fatalf("%s: got %+v, %v, want 400 done", act.Verb, got, err)
		}
		rest, err := Run(t.Context(), r.Session, req)
		if err != nil || rest.Done != 600 || rest.Matched != 600 || rest.Changed+rest.Gone+rest.Kept != 0 {
			t.Errorf("%s: got %+v, %v, want the other 600 done", act.Verb, rest, err)
		}
	}
}

func TestALimitAndARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		r.insert("a", 100, nil)
		r.bury("a")
		begun := time.Now()
		told := 0
		got, err := Run(t.Context(), r.Session, Request{
			Act: Act{Verb: Requeue}, Scan: matching(t, ""), Limit: 50, Rate: 10, Progress: func(Result) { told++ },
		})
		if err != nil || got.Done != 50 || r.count("a", storage.Dead) != 50 {
			t.Errorf("got %+v, %v, want 50 done", got, err)
		}
		if took := time.Since(begun); took < 4*time.Second || took > 6*time.Second || told < 20 {
			t.Errorf("took %v and told %d times, want 5s", took, told)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err = Run(ctx, r.Session, Request{Act: Act{Verb: Requeue}, Scan: matching(t, ""), Rate: 4})
		if !errors.Is(err, context.DeadlineExceeded) || got.Done < 3 || got.Done > 6 {
			t.Errorf("got %+v, %v, want some done and the end of the context", got, err)
		}
	})
}

// TestARateOfLessThanOneTaskInYearsWaits checks that a tiny rate waits after the first task, and that a huge
// rate does not wait.
func TestARateOfLessThanOneTaskInYearsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		r.insert("a", 300, nil)
		for rate, want := range map[float64]int64{1e-10: 1, math.SmallestNonzeroFloat64: 1} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			got, err := Run(ctx, r.Session, Request{Act: Act{Verb: Cancel}, Scan: matching(t, ""), Rate: rate})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || got.Done != want {
				t.Errorf("rate %v: got %+v, %v, want %d done in an hour", rate, got, err, want)
			}
		}
		calls := &counting{Storage: r.store}
		got, err := Run(t.Context(), storage.NewSession(calls, 0), Request{Act: Act{Verb: Cancel}, Scan: matching(t, ""), Rate: 1e300})
		if err != nil || got.Done != 298 || calls.n > 2 {
			t.Errorf("got %+v, %v in %d calls, want all at once", got, err, calls.n)
		}
	})
}

// counting counts the calls that change tasks.
type counting struct {
	storage.Storage

	n int
}

func (c *counting) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	c.n++
	return c.Storage.Apply(ctx, call, txs...)
}

// TestAMomentThatHasComeIsNow checks that tasks rescheduled to a moment in the past are due now, so that a
// repeat has nothing to do.
func TestAMomentThatHasComeIsNow(t *testing.T) {
	r := open(t)
	r.insert("a", 5, func(i int, in *storage.Insert) {
		if i > 1 {
			in.Delay = time.Hour
		}
	})
	req := Request{Act: Act{Verb: Reschedule, At: time.Now().Add(-time.Hour)}, Scan: matching(t, "")}
	for turn, want := range [][5]int64{{3, 3}, {}} {
		if p, err := Look(t.Context(), r.Session, req, Budget{}); err != nil || p.Count != want[0] || !strings.Contains(p.Consequence, "from now on") {
			t.Errorf("turn %d: the preview has %+v, %v", turn, p, err)
		}
		if got, err := Run(t.Context(), r.Session, req); err != nil || brief(got) != want {
			t.Errorf("turn %d: got %+v, %v, want %v", turn, got, err, want)
		}
	}
}

func TestAnEditKeepsTypes(t *testing.T) {
	r := open(t)
	r.insert("a", 1, nil)
	r.bury("a")
	task := r.task("t0000")
	edit := Request{Act: Act{Verb: Edit, Params: []byte(`{"n":2}`), Requeue: true}, Tasks: []Target{{task.Ref, task.Version}}}
	got, err := Run(t.Context(), r.Session, edit)
	after := r.task("t0000")
	if err != nil || got.Done != 1 || after.State != storage.Waiting || string(after.Payload) != `{"n":2}` {
		t.Errorf("got %+v, %v: %+v %s", got, err, after, after.Payload)
	}
	if got, err = Run(t.Context(), r.Session, edit); err != nil || brief(got) != [5]int64{1, 0, 1, 0, 0} {
		t.Errorf("at the old version: got %+v, %v, want one changed", got, err)
	}
	edit.Act.Params, edit.Tasks[0].Version = []byte(`{"n":"two"}`), 0
	var invalid *storage.InvalidError
	if got, err = Run(t.Context(), r.Session, edit); !errors.As(err, &invalid) || got.Done != 0 {
		t.Errorf("another type: got %+v, %v, want an *InvalidError", got, err)
	}
}

func TestABackupComesBack(t *testing.T) {
	r := open(t)
	r.insert("a", 250, func(i int, in *storage.Insert) {
		in.Headers, in.Timeout = map[string]string{"n": fmt.Sprint(i)}, time.Minute
		if i == 7 {
			in.Delay, in.Unique = time.Hour, storage.Unique{Key: "k", Mode: storage.UniqueLife}
		}
	})
	was := r.task("t0007")
	var backup bytes.Buffer
	got, err := Run(t.Context(), r.Session, Request{Act: Act{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: &backup})
	if err != nil || got.Done != 250 || r.count("a", storage.Waiting) != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	lines := strings.Split(strings.TrimSpace(backup.String()), "\n")
	for _, line := range lines {
		var record Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		in, err := record.Insert()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
			t.Fatal(err)
		}
	}
	is := r.task("t0007")
	is.Version, is.Created, was.Version, was.Created = 0, time.Time{}, 0, time.Time{}
	if len(lines) != 250 || r.count("a", storage.Waiting) != 249 || !reflect.DeepEqual(is, was) {
		t.Errorf("%d lines brought back %+v, was %+v", len(lines), is, was)
	}
	if _, err := (Record{Timeout: "soon"}).Insert(); err == nil {
		t.Error("a timeout that is none was read")
	}
}

// TestARecordKeepsTheWindowOfItsTask checks what is left of the window at several moments.
func TestARecordKeepsTheWindowOfItsTask(t *testing.T) {
	created := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	window := storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: time.Hour}
	record := RecordOf(storage.Task{Created: created, Unique: window})
	for after, want := range map[time.Duration]storage.Unique{
		0: window, 45 * time.Minute: {Key: "k", Mode: storage.UniqueWindow, For: 15 * time.Minute},
		time.Hour - 1: {}, time.Hour: {}, 24 * time.Hour: {},
	} {
		if got := record.Window(created.Add(after)); got != want {
			t.Errorf("after %v: got %+v, want %+v", after, got, want)
		}
	}
	if in, err := record.Insert(); err != nil || in.Unique != (storage.Unique{}) {
		t.Errorf("got %+v, %v; want the window left to the caller", in.Unique, err)
	}
	life := RecordOf(storage.Task{Created: created, Unique: storage.Unique{Key: "k", Mode: storage.UniqueLife}})
	if got := life.Window(created); got != (storage.Unique{}) {
		t.Errorf("got the window %+v of a key for life", got)
	}
}

// TestABackupTellsWhichTasksWereNotDeleted checks the second line of each task that changed meanwhile, or was
// gone.
func TestABackupTellsWhichTasksWereNotDeleted(t *testing.T) {
	r := open(t)
	r.insert("a", 2*storage.MaxPage, nil)
	meddles := &beforeApply{r.store, func() {
		priority := 5
		alter := func(storage.Task) (storage.Change, error) { return storage.Change{Priority: &priority}, nil }
		if err := r.ChangeTask(t.Context(), storage.Ref{Queue: "a", ID: "t0002"}, alter); err != nil {
			t.Error(err)
		}
		if err := r.DeleteTask(t.Context(), storage.Ref{Queue: "a", ID: "t0003"}); err != nil {
			t.Error(err)
		}
	}}
	var backup bytes.Buffer
	req := Request{Act: Act{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: &backup}
	got, err := Run(t.Context(), storage.NewSession(meddles, 0), req)
	if err != nil || brief(got) != [5]int64{400, 398, 1, 1, 0} {
		t.Fatalf("got %+v, %v", got, err)
	}
	seen := make(map[string]int)
	for line := range strings.Lines(backup.String()) {
		var record Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if seen[record.ID]++; record.NotDeleted != (seen[record.ID] == 2) {
			t.Errorf("line %d of %s: %s", seen[record.ID], record.ID, line)
		}
	}
	if len(seen) != 400 || seen["t0002"] != 2 || seen["t0003"] != 2 || seen["t0001"] != 1 {
		t.Errorf("the backup has %d tasks, and of those that were not deleted %d and %d lines", len(seen), seen["t0002"], seen["t0003"])
	}
}

// restorable returns the ids of the tasks that a restore would bring back.
func restorable(t *testing.T, backup string) map[string]bool {
	t.Helper()
	ids := make(map[string]bool)
	for line := range strings.Lines(backup) {
		var record Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if ids[record.ID] = true; record.NotDeleted {
			delete(ids, record.ID)
		}
	}
	return ids
}

// TestABackupHasNoTaskThatARunDidNotComeTo checks that the backup of a run that failed has the tasks of its
// calls and no others, and tells that the tasks of the failed call were not deleted.
func TestABackupHasNoTaskThatARunDidNotComeTo(t *testing.T) {
	r := open(t)
	r.insert("a", 3*storage.MaxPage, nil)
	var backup bytes.Buffer
	req := Request{Act: Act{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: &backup}
	_, err := Run(t.Context(), storage.NewSession(&dying{r.store, 1}, 0), req)
	not := strings.Count(backup.String(), `"not_deleted"`)
	lines := strings.Count(backup.String(), "\n") - not
	if !errors.Is(err, errDied) || lines != 2*storage.MaxPage || not != storage.MaxPage {
		t.Errorf("%d lines and %d of tasks that were not deleted, %v; want those of the call that failed and of "+
			"the one before", lines, not, err)
	}
	for id := range restorable(t, backup.String()) {
		if _, err := r.store.Task(t.Context(), storage.Ref{Queue: "a", ID: id}); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("a restore brings back %s, which was not deleted: %v", id, err)
		}
	}
}

// synced is a backup in whose Sync something happens.
type synced struct {
	bytes.Buffer

	happens func() error
}

func (s *synced) Sync() error { return s.happens() }

// TestABackupTellsOfARunThatEndedByAnError which of its tasks are surely there: those of a call that was
// refused, but not those of a call whose outcome is not known.
func TestABackupTellsOfARunThatEndedByAnError(t *testing.T) {
	unsynced := errors.New("not synced")
	for _, c := range []struct {
		what string
		sync func(cancel func()) error
		call error
		want int // tasks that a restore would bring back
	}{
		{"stopped by its user", func(cancel func()) error { cancel(); return nil }, nil, 0},
		{"whose backup was not synced", func(func()) error { return unsynced }, nil, 0},
		{"whose storage was full", nil, storage.ErrFull, 0},
		{"with an unknown outcome", nil, storage.ErrUnknown, 10},
	} {
		r := open(t)
		r.insert("a", 10, nil)
		ctx, cancel := context.WithCancel(t.Context())
		backup := &synced{happens: func() error {
			if c.sync == nil {
				return nil
			}
			return c.sync(cancel)
		}}
		session := storage.NewSession(&refusing{r.store, c.call}, -1)
		got, err := Run(ctx, session, Request{Act: Act{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: backup})
		cancel()
		if left := restorable(t, backup.String()); err == nil || got.Done != 0 || len(left) != c.want {
			t.Errorf("a run %s: %+v, %v, and a restore brings back %d tasks, want %d", c.what, got, err, len(left), c.want)
		}
		if lines := strings.Count(backup.String(), "\n"); lines != 20-c.want {
			t.Errorf("a run %s: the backup has %d lines", c.what, lines)
		}
	}
}

// refusing is a storage that fails each change with an error, unless that is nil.
type refusing struct {
	storage.Storage

	err error
}

func (r *refusing) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.Storage.Apply(ctx, call, txs...)
}

// torn is a backup that takes some bytes and then no more for one write.
type torn struct {
	bytes.Buffer

	room int
}

func (w *torn) Write(p []byte) (int, error) {
	if room := w.room; room < len(p) {
		w.room = math.MaxInt
		n, _ := w.Buffer.Write(p[:room])
		return n, errors.New("no room")
	}
	return w.Buffer.Write(p)
}

// TestABrokenLineOfABackupIsItsLast because a restore refuses a backup with a broken line in its midst.
func TestABrokenLineOfABackupIsItsLast(t *testing.T) {
	r := open(t)
	r.insert("a", 10, nil)
	backup := &torn{room: 1000}
	_, err := Run(t.Context(), r.Session, Request{Act: Act{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: backup})
	if err == nil || backup.Len() != 1000 || r.count("a", storage.Waiting) != 10 {
		t.Errorf("got %v and a backup of %d bytes, want the bytes that the first write took", err, backup.Len())
	}
}

// beforeApply is a storage in which something happens right before the first Apply.
type beforeApply struct {
	storage.Storage

	happens func()
}

func (b *beforeApply) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if b.happens != nil {
		b.happens()
		b.happens = nil
	}
	return b.Storage.Apply(ctx, call, txs...)
}

// full is a writer that is out of room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestNothingIsDeletedWithoutItsBackup(t *testing.T) {
	r := open(t)
	r.insert("a", 10, nil)
	got, err := Run(t.Context(), r.Session, Request{Act: Act{Verb: Delete}, Scan: matching(t, "queue:a"), Backup: full{}})
	if err == nil || got.Done != 0 || r.count("a", storage.Waiting) != 10 {
		t.Errorf("got %+v, %v, want nothing deleted", got, err)
	}
}

func TestRecordsOfMidgeItselfAreKept(t *testing.T) {
	r := open(t)
	r.insert("midge.own", 3, nil)
	got, err := Run(t.Context(), r.Session, Request{Act: Act{Verb: Delete}, Scan: matching(t, "queue:midge.*")})
	if err != nil || brief(got) != [5]int64{3, 0, 0, 0, 3} || r.count("midge.own", storage.Waiting) != 3 {
		t.Errorf("got %+v, %v, want all kept", got, err)
	}
}

func TestAPreviewChangesNothing(t *testing.T) {
	r := open(t)
	r.insert("a", 300, nil)
	r.insert("b", 100, nil)
	r.bury("a")
	r.bury("b")
	req := Request{Act: Act{Verb: Requeue}, Scan: matching(t, "kind:mail")}
	p, err := Look(t.Context(), r.Session, req, Budget{Time: -1})
	if err != nil || p.Count != 400 || p.More || len(p.Samples) != 5 || p.Queues["a"] != 300 || p.Queues["b"] != 100 ||
		p.Searched != 400 || p.Consequence == "" {
		t.Errorf("got %+v, %v", p, err)
	}
	p, err = Look(t.Context(), r.Session, req, Budget{Tasks: 150, Time: -1})
	if err != nil || p.Count != 200 || !p.More || p.Most != math.MaxInt64 || p.Total != 400 {
		t.Errorf("with a budget: got %+v, %v", p, err)
	}
	req.Limit = 10
	if p, err = Look(t.Context(), r.Session, req, Budget{}); err != nil || p.Count != 10 || p.Most != 10 {
		t.Errorf("with a limit: got %+v, %v", p, err)
	}
	if r.count("a", storage.Dead) != 300 {
		t.Error("the preview changed tasks")
	}
	req = Request{Act: Act{Verb: Delete}, Tasks: Refs(storage.Ref{Queue: "a", ID: "none"}, storage.Ref{Queue: "a", ID: "t0000"})}
	if p, err = Look(t.Context(), r.Session, req, Budget{}); err != nil || p.Count != 1 || p.Gone != 1 {
		t.Errorf("of named tasks: got %+v, %v", p, err)
	}
}

// slow is a storage whose answers take 60 ms.
type slow struct{ storage.Storage }

func (s slow) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	time.Sleep(60 * time.Millisecond)
	return s.Storage.Tasks(ctx, q)
}

func (s slow) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	time.Sleep(60 * time.Millisecond)
	return s.Storage.Task(ctx, ref)
}

// TestAPreviewEndsInTimeWhereNothingMatches checks the time of a preview on a slow storage: with a filter
// that matches nothing, and for named tasks that do not exist.
func TestAPreviewEndsInTimeWhereNothingMatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		for n := range 30 {
			r.insert("a", 500, func(_ int, in *storage.Insert) { in.Ref.ID = fmt.Sprint(n, in.Ref.ID) })
		}
		refs := make([]storage.Ref, 100)
		for i := range refs {
			refs[i] = storage.Ref{Queue: "a", ID: fmt.Sprint("none", i)}
		}
		session := storage.NewSession(slow{r.store}, 0)
		for _, req := range []Request{
			{Act: Act{Verb: Cancel}, Scan: matching(t, "kind:none")}, {Act: Act{Verb: Cancel}, Tasks: Refs(refs...)},
		} {
			begun := time.Now()
			p, err := Look(t.Context(), session, req, Budget{Tasks: -1})
			if took := time.Since(begun); err != nil || !p.More || p.None() || took < time.Second || took > 1500*time.Millisecond {
				t.Errorf("took %v, want a second: %+v, %v", took, p, err)
			}
		}
	})
}

// TestAPreviewOfNamedTasksTellsWhichTasksItRead checks previews of named tasks whose time ends: before the last
// task, and after it.
func TestAPreviewOfNamedTasksTellsWhichTasksItRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		r.insert("a", 2, nil)
		session := storage.NewSession(slow{r.store}, 0)
		ref := func(id string) storage.Ref { return storage.Ref{Queue: "a", ID: id} }
		none, first, second := ref("none"), ref("t0000"), ref("t0001")
		for _, c := range []struct {
			refs                  []storage.Ref
			count, searched, most int64
			more                  bool
		}{
			{[]storage.Ref{first}, 1, 1, 1, false},
			{[]storage.Ref{none, first}, 0, 1, 1, true},
			{[]storage.Ref{first, none, second}, 1, 1, 3, true},
		} {
			req := Request{Act: Act{Verb: Cancel}, Tasks: Refs(c.refs...)}
			p, err := Look(t.Context(), session, req, Budget{Time: 50 * time.Millisecond})
			if err != nil || p.Count != c.count || p.More != c.more || p.Searched != c.searched || p.Most != c.most ||
				p.Total != int64(len(c.refs)) {
				t.Errorf("of %v: got %+v, %v, want %+v", c.refs, p, err, c)
			}
		}
	})
}

func TestATaskNamedTwiceIsCountedOnce(t *testing.T) {
	r := open(t)
	r.insert("a", 1, nil)
	here, none := storage.Ref{Queue: "a", ID: "t0000"}, storage.Ref{Queue: "a", ID: "none"}
	req := Request{Act: Act{Verb: Cancel}, Tasks: Refs(here, none, here, none, here)}
	p, err := Look(t.Context(), r.Session, req, Budget{})
	if err != nil || p.Count != 1 || p.Gone != 1 || p.Queues["a"] != 1 || p.Total != 2 || len(p.Samples) != 1 {
		t.Errorf("the preview: got %+v, %v, want one task and one that is gone", p, err)
	}
	got, err := Run(t.Context(), r.Session, req)
	if err != nil || brief(got) != [5]int64{2, 1, 0, 1, 0} {
		t.Errorf("the run: got %+v, %v, want 2 matched, 1 done, 1 gone", got, err)
	}
	if len(req.Tasks) != 5 {
		t.Errorf("the caller's tasks became %v", req.Tasks)
	}
}

// moving is a storage in which tasks become scheduled right after they were listed as waiting.
type moving struct {
	storage.Storage

	session *storage.Session
}

func (m moving) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	page, err := m.Storage.Tasks(ctx, q)
	for i := range page.Tasks {
		if t := &page.Tasks[i]; t.State == storage.Waiting {
			later := storage.Change{Ref: t.Ref, Version: t.Version, At: time.Now().Add(time.Hour)}
			_, aerr := m.session.Apply(ctx, storage.Tx{Changes: []storage.Change{later}})
			err = errors.Join(err, aerr)
		}
	}
	return page, err
}

func TestAPreviewCountsATaskOnceThatChangesItsState(t *testing.T) {
	r := open(t)
	r.insert("a", 4, func(i int, in *storage.Insert) {
		if i == 0 {
			in.Delay = time.Minute
		}
	})
	session := storage.NewSession(moving{r.store, r.Session}, 0)
	p, err := Look(t.Context(), session, Request{Act: Act{Verb: Cancel}, Scan: matching(t, "kind:mail")}, Budget{})
	if err != nil || p.Count != 4 || r.count("a", storage.Scheduled) != 4 {
		t.Errorf("got %+v, %v, want 4 tasks, which are scheduled now", p, err)
	}
}

// TestAPreviewThatFoundNothingYetIsNotEmpty checks that a preview without a match is empty only if it has
// searched all tasks.
func TestAPreviewThatFoundNothingYetIsNotEmpty(t *testing.T) {
	r := open(t)
	r.insert("a", 500, func(i int, in *storage.Insert) {
		if i == 499 {
			in.Kind = "needle"
		}
	})
	for _, c := range []struct {
		filter       string
		tasks, count int64
		none         bool
	}{
		{"kind:needle", 200, 0, false}, {"kind:needle", 1000, 1, false}, {"kind:none", 200, 0, false}, {"kind:none", 1000, 0, true},
	} {
		p, err := Look(t.Context(), r.Session, Request{Act: Act{Verb: Cancel}, Scan: matching(t, c.filter)}, Budget{Tasks: int(c.tasks), Time: -1})
		if err != nil || p.Count != c.count || p.None() != c.none {
			t.Errorf("%s of %d tasks: got %+v, %v, want %d, none: %t", c.filter, c.tasks, p, err, c.count, c.none)
		}
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	r := open(t)
	for _, req := range []Request{
		{},
		{Act: Act{Verb: "burn"}},
		{Act: Act{Verb: Move}},
		{Act: Act{Verb: Move, Queue: "?"}},
		{Act: Act{Verb: Move, Queue: "midge.own"}},
		{Act: Act{Verb: Prioritise, Priority: 10}},
		{Act: Act{Verb: Edit, Params: []byte("1")}},
		{Act: Act{Verb: Edit}, Tasks: Refs(storage.Ref{Queue: "a", ID: "b"})},
		{Act: Act{Verb: Requeue}, Limit: -1},
		{Act: Act{Verb: Requeue}, Rate: -1},
		{Act: Act{Verb: Requeue}, Tasks: Refs(storage.Ref{Queue: "a"})},
		{Act: Act{Verb: Delete}, Scan: matching(t, "state:pending")},
		{Act: Act{Verb: Requeue}, Scan: matching(t, "is:started")},
	} {
		var invalid *storage.InvalidError
		if _, err := Run(t.Context(), r.Session, req); !errors.As(err, &invalid) {
			t.Errorf("%+v: got %v, want an *InvalidError", req, err)
		}
		if _, err := Look(t.Context(), r.Session, req, Budget{}); !errors.As(err, &invalid) {
			t.Errorf("%+v: got %v, want an *InvalidError of the preview", req, err)
		}
	}
}

func TestStatesOfActs(t *testing.T) {
	ended := []storage.State{storage.Completed, storage.Cancelled, storage.Dead}
	for _, c := range []struct {
		act       Act
		able      []storage.State
		otherwise []storage.State
	}{
		{Act{Verb: Requeue}, append([]storage.State{storage.Waiting, storage.Scheduled, storage.Retry}, ended...), ended[2:]},
		{Act{Verb: Cancel}, scan.Live, scan.Live},
		{Act{Verb: Reschedule}, []storage.State{storage.Waiting, storage.Scheduled, storage.Retry}, []storage.State{storage.Waiting, storage.Scheduled, storage.Retry}},
	} {
		if able, otherwise := c.act.States(), c.act.Default(); !slices.Equal(able, c.able) || !slices.Equal(otherwise, c.otherwise) {
			t.Errorf("%s: got %v, by default %v; want %v and %v", c.act.Verb, able, otherwise, c.able, c.otherwise)
		}
	}
	for _, v := range Verbs() {
		a := Act{Verb: v}
		if a.Consequence() == "" || !strings.HasSuffix(a.Done(), "ed") || slices.Contains(scan.Live, storage.Dead) {
			t.Errorf("%s has no words", v)
		}
	}
}
