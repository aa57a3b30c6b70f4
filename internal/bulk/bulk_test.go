package bulk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/payload"
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

func TestActions(t *testing.T) {
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
		action Action
		filter string
		want   [5]int64
		queue  string
		state  storage.State
		left   int64 // tasks in that queue and state
	}{
		{Action{Verb: Requeue}, "kind:odd", [5]int64{150, 150}, "a", storage.Dead, 300},
		{Action{Verb: Requeue}, "kind:odd", [5]int64{}, "a", storage.Dead, 300},
		{Action{Verb: Move, Queue: "c"}, "queue:a kind:odd", [5]int64{150, 150}, "c", storage.Waiting, 150},
		{Action{Verb: Move, Queue: "c"}, "queue:a,c kind:odd", [5]int64{}, "c", storage.Waiting, 150},
		{Action{Verb: Prioritise, Priority: -3}, "queue:c", [5]int64{150, 150}, "c", storage.Waiting, 150},
		{Action{Verb: Prioritise, Priority: -3}, "queue:c", [5]int64{}, "c", storage.Waiting, 150},
		{Action{Verb: Reschedule}, "queue:b", [5]int64{15, 15}, "b", storage.Waiting, 30},
		{Action{Verb: Reschedule, At: at}, "queue:b", [5]int64{30, 30}, "b", storage.Scheduled, 30},
		{Action{Verb: Reschedule, At: at}, "queue:b", [5]int64{}, "b", storage.Scheduled, 30},
		{Action{Verb: Cancel}, "queue:b", [5]int64{30, 30}, "b", storage.Cancelled, 30},
		{Action{Verb: Delete}, "state:all queue:b", [5]int64{30, 30}, "b", storage.Cancelled, 0},
		{Action{Verb: Delete}, "state:dead", [5]int64{300, 300}, "a", storage.Dead, 0},
	} {
		got, err := Run(t.Context(), r.Session, Request{Action: c.action, Scan: matching(t, c.filter)})
		if err != nil || brief(got) != c.want {
			t.Errorf("%s of %s: got %+v, %v, want %v", c.action.Verb, c.filter, got, err, c.want)
		}
		if left := r.count(c.queue, c.state); left != c.left {
			t.Errorf("%s of %s: %d %s tasks are left in %s, want %d", c.action.Verb, c.filter, left, c.state, c.queue, c.left)
		}
	}
}

// TestARequeueFromTheStart checks which requeued tasks keep their checkpoint: named tasks, the tasks of a
// filter, and tasks that wait already.
func TestARequeueFromTheStart(t *testing.T) {
	r := open(t)
	r.insert("a", 4, nil)
	claimed, err := r.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "a"}}, Start: 4, Lease: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, fence := range claimed.Fences {
		leases := []storage.Extension{{Fence: fence, Checkpoint: []byte("7"), Progress: []byte("7")}}
		if x, err := r.Extend(t.Context(), storage.ExtendRequest{Leases: leases}); err != nil || len(x.Lost) > 0 {
			t.Fatal(x, err)
		}
		se := storage.Settle{Fence: fence, Outcome: storage.Bury, Error: "boom"}
		if i == 3 {
			se = storage.Settle{Fence: fence, Outcome: storage.Release}
		}
		if _, err := r.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{se}}); err != nil {
			t.Fatal(err)
		}
	}
	start, ref := Action{Verb: Requeue, FromStart: true}, func(i int) storage.Ref { return claimed.Fences[i].Ref }
	for i, req := range []Request{
		{Action: Action{Verb: Requeue}, Tasks: Refs(ref(0))},
		{Action: start, Tasks: Refs(ref(1))},
		{Action: start, Scan: matching(t, "state:dead")},
		{Action: start, Tasks: Refs(ref(3))},
	} {
		if got, err := Run(t.Context(), r.Session, req); err != nil || got.Done != 1 {
			t.Fatalf("request %d: got %+v, %v", i, got, err)
		}
		now, err := r.store.Task(t.Context(), ref(i))
		if err != nil || now.State != storage.Waiting || (len(now.Checkpoint)+len(now.Progress) > 0) != (i == 0) {
			t.Errorf("request %d: the task is %s with checkpoint %q, %v", i, now.State, now.Checkpoint, err)
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
	req := Request{Action: Action{Verb: Requeue}, Tasks: []Target{ref("t0000"), ref("t0001"), ref("t0000"), ref("none"), old}}
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
	req = Request{Action: Action{Verb: Move, Queue: "b"}, Tasks: Refs(storage.Ref{Queue: "a", ID: "t0000"})}
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
	got, err := Run(t.Context(), storage.NewSession(r.store, 0), Request{Action: Action{Verb: Delete}, Scan: matching(t, "state:dead")})
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
	for _, action := range []Action{
		{Verb: Requeue}, {Verb: Delete}, {Verb: Move, Queue: "b"}, {Verb: Prioritise, Priority: 3},
	} {
		r := open(t)
		r.insert("a", 1000, nil)
		r.bury("a")
		req := Request{Action: action, Scan: matching(t, "state:dead")}
		got, err := Run(t.Context(), storage.NewSession(&dying{r.store, 2}, 0), req)
		if !errors.Is(err, errDied) || got.Done != 400 {
			t.Fatalf("%s: got %+v, %v, want 400 done", action.Verb, got, err)
		}
		rest, err := Run(t.Context(), r.Session, req)
		if err != nil || rest.Done != 600 || rest.Matched != 600 || rest.Changed+rest.Gone+rest.Kept != 0 {
			t.Errorf("%s: got %+v, %v, want the other 600 done", action.Verb, rest, err)
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
			Action: Action{Verb: Requeue}, Scan: matching(t, ""), Limit: 50, Rate: 10, Progress: func(Result) { told++ },
		})
		if err != nil || got.Done != 50 || r.count("a", storage.Dead) != 50 {
			t.Errorf("got %+v, %v, want 50 done", got, err)
		}
		if took := time.Since(begun); took < 4*time.Second || took > 6*time.Second || told < 20 {
			t.Errorf("took %v and told %d times, want 5s", took, told)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err = Run(ctx, r.Session, Request{Action: Action{Verb: Requeue}, Scan: matching(t, ""), Rate: 4})
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
			got, err := Run(ctx, r.Session, Request{Action: Action{Verb: Cancel}, Scan: matching(t, ""), Rate: rate})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || got.Done != want {
				t.Errorf("rate %v: got %+v, %v, want %d done in an hour", rate, got, err, want)
			}
		}
		calls := &counting{Storage: r.store}
		got, err := Run(t.Context(), storage.NewSession(calls, 0), Request{Action: Action{Verb: Cancel}, Scan: matching(t, ""), Rate: 1e300})
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
	req := Request{Action: Action{Verb: Reschedule, At: time.Now().Add(-time.Hour)}, Scan: matching(t, "")}
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
	edit := Request{Action: Action{Verb: Edit, Params: []byte(`{"n":2}`), Requeue: true}, Tasks: []Target{{task.Ref, task.Version}}}
	got, err := Run(t.Context(), r.Session, edit)
	after := r.task("t0000")
	if err != nil || got.Done != 1 || after.State != storage.Waiting || string(after.Payload) != `{"n":2}` {
		t.Errorf("got %+v, %v: %+v %s", got, err, after, after.Payload)
	}
	if got, err = Run(t.Context(), r.Session, edit); err != nil || brief(got) != [5]int64{1, 0, 1, 0, 0} {
		t.Errorf("at the old version: got %+v, %v, want one changed", got, err)
	}
	edit.Action.Params, edit.Tasks[0].Version = []byte(`{"n":"two"}`), 0
	var invalid *storage.InvalidError
	if got, err = Run(t.Context(), r.Session, edit); !errors.As(err, &invalid) || got.Done != 0 {
		t.Errorf("another type: got %+v, %v, want an *InvalidError", got, err)
	}
}

func TestRecordsOfMidgeItselfAreKept(t *testing.T) {
	r := open(t)
	r.insert("midge.own", 3, nil)
	got, err := Run(t.Context(), r.Session, Request{Action: Action{Verb: Delete}, Scan: matching(t, "queue:midge.*")})
	if err != nil || brief(got) != [5]int64{3, 0, 0, 0, 3} || r.count("midge.own", storage.Waiting) != 3 {
		t.Errorf("got %+v, %v, want all kept", got, err)
	}
}

// TestRecordsOfLoadsAndImportsAreKept by every action but a cancel, which leaves them there. Without its record, or
// with another one, a file would be loaded again, and tasks would be imported again.
func TestRecordsOfLoadsAndImportsAreKept(t *testing.T) {
	for _, kind := range []string{storage.LoadKind, storage.ImportKind} {
		recordsAreKept(t, kind)
	}
}

func recordsAreKept(t *testing.T, kind string) {
	t.Helper()
	cost, partition := storage.Cost(7), "x"
	actions := []Action{
		{Verb: Requeue},
		{Verb: Requeue, FromStart: true},
		{Verb: Delete},
		{Verb: Move, Queue: "other"},
		{Verb: Prioritise, Priority: 3},
		{Verb: Partition, Partition: &partition},
		{Verb: Cost, Cost: &cost},
		{Verb: Reschedule},
		{Verb: Edit, Params: []byte("{}")},
	}
	for _, ended := range []bool{false, true} {
		r := open(t)
		r.insert("a", 1, func(_ int, in *storage.Insert) { in.Kind, in.Delay = kind, time.Hour })
		named := Refs(storage.Ref{Queue: "a", ID: "t0000"})
		if ended {
			cancel := Request{Action: Action{Verb: Cancel}, Tasks: named}
			if got, err := Run(t.Context(), r.Session, cancel); err != nil || got.Done != 1 {
				t.Fatalf("cancel: %+v, %v", got, err)
			}
		}
		for _, a := range actions {
			r.keeps(Request{Action: a, Tasks: named})
			if a.Verb != Edit { // it wants a task that is named
				r.keeps(Request{Action: a, Scan: matching(t, "queue:a state:all")})
			}
		}
	}
}

// keeps checks that a request for the task t0000 of queue a leaves it as it is.
func (r *rig) keeps(req Request) {
	r.t.Helper()
	verb, named, before := req.Action.Verb, int64(len(req.Tasks)), r.task("t0000")
	look, err := Look(r.t.Context(), r.Session, req, Budget{})
	if err != nil || look.Count != 0 || look.Kept != named || len(look.Reasons) != 1 {
		r.t.Errorf("%s: the preview: got %+v, %v", verb, look, err)
	}
	got, err := Run(r.t.Context(), r.Session, req)
	if err != nil || brief(got) != [5]int64{named, 0, 0, 0, named} || len(got.Reasons) != 1 {
		r.t.Errorf("%s: got %+v, %v, want it kept", verb, got, err)
	}
	if after := r.task("t0000"); after.Version != before.Version {
		r.t.Errorf("%s: the task was changed", verb)
	}
}

func TestATaskNamedTwiceIsCountedOnce(t *testing.T) {
	r := open(t)
	r.insert("a", 1, nil)
	here, none := storage.Ref{Queue: "a", ID: "t0000"}, storage.Ref{Queue: "a", ID: "none"}
	req := Request{Action: Action{Verb: Cancel}, Tasks: Refs(here, none, here, none, here)}
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

func TestBadRequestsAreRefused(t *testing.T) {
	r := open(t)
	for _, req := range []Request{
		{},
		{Action: Action{Verb: "burn"}},
		{Action: Action{Verb: Move}},
		{Action: Action{Verb: Move, Queue: "?"}},
		{Action: Action{Verb: Move, Queue: "midge.own"}},
		{Action: Action{Verb: Prioritise, Priority: 10}},
		{Action: Action{Verb: Partition}},
		{Action: Action{Verb: Cost}},
		{Action: Action{Verb: Edit, Params: []byte("1")}},
		{Action: Action{Verb: Edit}, Tasks: Refs(storage.Ref{Queue: "a", ID: "b"})},
		{Action: Action{Verb: Delete, FromStart: true}},
		{Action: Action{Verb: Edit, Params: []byte("1"), FromStart: true}, Tasks: Refs(storage.Ref{Queue: "a", ID: "b"})},
		{Action: Action{Verb: Requeue}, Limit: -1},
		{Action: Action{Verb: Requeue}, Rate: -1},
		{Action: Action{Verb: Requeue}, Tasks: Refs(storage.Ref{Queue: "a"})},
		{Action: Action{Verb: Delete}, Scan: matching(t, "state:pending")},
		{Action: Action{Verb: Requeue}, Scan: matching(t, "is:started")},
		{Action: Action{Verb: Delete}, Scan: matching(t, "state:pending params.email:ann@x.org")},
		{Action: Action{Verb: Delete}, Scan: matching(t, "state:dead state:waiting header.email:ann@x.org")},
		{
			Action: Action{
				Verb: Edit, Params: []byte(`{"email":"ann@x.org"}`),
				Set: []payload.Setting{{Path: "email", Value: "ann@x.org"}},
			},
			Tasks: Refs(storage.Ref{Queue: "a", ID: "b"}),
		},
	} {
		var invalid *storage.InvalidError
		if _, err := Run(t.Context(), r.Session, req); !errors.As(err, &invalid) {
			t.Errorf("%+v: got %v, want an *InvalidError", req, err)
		}
		if _, err := Look(t.Context(), r.Session, req, Budget{}); !errors.As(err, &invalid) {
			t.Errorf("%+v: got %v, want an *InvalidError of the preview", req, err)
		}
		if strings.Contains(invalid.Error(), "ann@x.org") {
			t.Errorf("the error quotes a value, which the log and the audit would have: %v", invalid)
		}
	}
}

func TestStatesOfActions(t *testing.T) {
	live := []storage.State{storage.Waiting, storage.Pending, storage.Scheduled, storage.Retry}
	ended := []storage.State{storage.Completed, storage.Cancelled, storage.Dead}
	for _, c := range []struct {
		action    Action
		able      []storage.State
		otherwise []storage.State
	}{
		{Action{Verb: Requeue}, append([]storage.State{storage.Waiting, storage.Scheduled, storage.Retry}, ended...), ended[2:]},
		{Action{Verb: Cancel}, live, live},
		{Action{Verb: Reschedule}, []storage.State{storage.Waiting, storage.Scheduled, storage.Retry}, []storage.State{storage.Waiting, storage.Scheduled, storage.Retry}},
	} {
		if able, otherwise := c.action.States(), c.action.Default(); !slices.Equal(able, c.able) || !slices.Equal(otherwise, c.otherwise) {
			t.Errorf("%s: got %v, by default %v; want %v and %v", c.action.Verb, able, otherwise, c.able, c.otherwise)
		}
	}
	key := "acme"
	for _, v := range Verbs() {
		a := Action{Verb: v, Partition: &key, Cost: new(storage.Cost)}
		if a.Consequence() == "" || !strings.HasSuffix(a.Done(), "ed") || slices.Contains(live, storage.Dead) {
			t.Errorf("%s has no words", v)
		}
	}
}

// locking refuses each cancel, as PostgreSQL does if a transaction keeps the running task locked.
type locking struct{ storage.Storage }

func (l locking) Apply(_ context.Context, _ storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	applied := make([]storage.Applied, len(txs))
	for i := range txs {
		barred := []storage.Barred{{Ref: txs[i].Changes[0].Ref, State: storage.Pending}}
		applied[i].Err = &storage.DependencyError{Barred: barred}
	}
	return applied, nil
}

func TestACancelOfALockedTaskHasItsReason(t *testing.T) {
	r := open(t)
	r.insert("a", 1, nil)
	req := Request{Action: Action{Verb: Cancel}, Tasks: Refs(storage.Ref{Queue: "a", ID: "t0000"})}
	got, err := Run(t.Context(), storage.NewSession(locking{r.store}, 0), req)
	if err != nil || got.Kept != 1 || got.Changed != 0 || len(got.Reasons) != 1 || !strings.Contains(got.Reasons[0].Text, "locked") {
		t.Errorf("got %+v, %v, want one task that is kept because it is locked", got, err)
	}
}
