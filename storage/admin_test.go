package storage_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// desk is an operator's session on a storage.
type desk struct {
	*storage.Session
	t     *testing.T
	store *flaky
}

func openDesk(t *testing.T) *desk {
	t.Helper()
	f := openFlaky(t)
	return &desk{Session: storage.NewSession(f, 0), t: t, store: f}
}

func ref(id string) storage.Ref { return storage.Ref{Queue: "q", ID: id} }

func (d *desk) insert(ins ...storage.Insert) {
	d.t.Helper()
	must(d.ApplyOne(d.t.Context(), storage.Tx{Inserts: ins}))(d.t)
}

// claim claims the next task.
func (d *desk) claim() storage.Fence {
	d.t.Helper()
	return must(d.Claim(d.t.Context(), ask(1)))(d.t).Fences[0]
}

func (d *desk) settle(s storage.Settle) {
	d.t.Helper()
	must(d.ApplyOne(d.t.Context(), storage.Tx{Settles: []storage.Settle{s}}))(d.t)
}

// dead inserts tasks and buries them.
func (d *desk) dead(ins ...storage.Insert) {
	d.t.Helper()
	for _, in := range ins {
		d.insert(in)
		d.settle(storage.Settle{Fence: d.claim(), Outcome: storage.Bury, Reason: "refused"})
	}
}

func (d *desk) state(id string) storage.State {
	d.t.Helper()
	t, err := d.store.Task(d.t.Context(), ref(id))
	if errors.Is(err, storage.ErrNotFound) {
		return ""
	}
	return must(t, err)(d.t).State
}

func (d *desk) want(id string, want storage.State) {
	d.t.Helper()
	if got := d.state(id); got != want {
		d.t.Errorf("%s: got state %q, want %q", id, got, want)
	}
}

func TestRequeue(t *testing.T) {
	d := openDesk(t)
	d.dead(job("dead"))
	later := job("later")
	later.Delay = time.Hour
	d.insert(later)
	for _, id := range []string{"dead", "later"} {
		succeed(t, d.Requeue(t.Context(), ref(id)))
		d.want(id, storage.Waiting)
	}
	fence := d.claim()
	leases := []storage.Extension{{Fence: fence, Checkpoint: []byte("page 7")}}
	if x, err := d.Extend(t.Context(), storage.ExtendRequest{Leases: leases}); err != nil || len(x.Lost) > 0 {
		t.Fatalf("store a checkpoint: %+v, %v", x, err)
	}
	d.settle(storage.Settle{Fence: fence, Outcome: storage.Fail, Delay: time.Hour})
	succeed(t, d.Requeue(t.Context(), fence.Ref, storage.FromStart()))
	if got := must(d.store.Task(t.Context(), fence.Ref))(t); got.State != storage.Waiting || got.Checkpoint != nil {
		t.Errorf("from the start: %s with checkpoint %q, want waiting without one", got.State, got.Checkpoint)
	}
	fence = d.claim()
	var dep *storage.DependencyError
	if err := d.Requeue(t.Context(), fence.Ref); !errors.As(err, &dep) || len(dep.Barred) != 1 {
		t.Errorf("a pending task: got error %v, want it barred", err)
	}
	if err := d.Requeue(t.Context(), ref("none")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a missing task: got error %v, want ErrNotFound", err)
	}
}

// meddling is a storage in which another caller changes each task that is read, for a
// number of reads.
type meddling struct {
	*flaky
	times int
}

func (m *meddling) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	t, err := m.flaky.Task(ctx, ref)
	if err == nil && m.times > 0 {
		m.times--
		ch := storage.Change{Ref: ref, Version: t.Version, Headers: map[string]string{"by": "somebody"}}
		if _, err := m.flaky.Storage.Apply(ctx, storage.Call{}, storage.Tx{Changes: []storage.Change{ch}}); err != nil {
			return storage.Task{}, fmt.Errorf("meddle: %w", err)
		}
	}
	return t, err
}

func TestChangeTaskBeginsAgain(t *testing.T) {
	m := &meddling{flaky: openFlaky(t)}
	s := storage.NewSession(m, 0)
	must(s.ApplyOne(t.Context(), inserting("a", "b")))(t)
	m.times = 3
	alter := func(read storage.Task) (storage.Change, error) {
		p := read.Priority + 1
		return storage.Change{Priority: &p}, nil
	}
	succeed(t, s.ChangeTask(t.Context(), ref("a"), alter))
	got := must(m.Task(t.Context(), ref("a")))(t)
	if got.Priority != 1 || got.Headers["by"] != "somebody" {
		t.Errorf("got priority %d and headers %v, want both changes", got.Priority, got.Headers)
	}
	m.times = 1000
	var dep *storage.DependencyError
	if err := s.ChangeTask(t.Context(), ref("a"), alter); !errors.As(err, &dep) || len(dep.Stale) != 1 {
		t.Errorf("a task that changes all the time: got error %v, want it stale", err)
	}
	m.times = 0
	no := errors.New("no")
	before := must(m.Task(t.Context(), ref("a")))(t)
	err := s.ChangeTask(t.Context(), ref("a"), func(storage.Task) (storage.Change, error) { return storage.Change{}, no })
	if after := must(m.Task(t.Context(), ref("a")))(t); !errors.Is(err, no) || after.Version != before.Version {
		t.Errorf("refused: got %v and version %d, want the refusal and version %d", err, after.Version, before.Version)
	}
	m.times = 2
	succeed(t, s.DeleteTask(t.Context(), ref("b")))
	if _, err := m.Task(t.Context(), ref("b")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("deleted: got error %v, want ErrNotFound", err)
	}
}

func TestBulk(t *testing.T) {
	d := openDesk(t)
	const tasks = storage.MaxPage + 60 // more than a page
	var ins []storage.Insert
	for i := range tasks {
		in := job(fmt.Sprintf("t%03d", i))
		in.Keep.For = time.Hour
		if i%2 == 0 {
			in.Kind = "even"
		}
		ins = append(ins, in)
	}
	d.insert(ins...)
	even := func(t storage.Task) bool { return t.Kind == "even" }
	type action func(context.Context, string, storage.State, storage.Match) (int, error)
	requeueAll := func(ctx context.Context, queue string, state storage.State, match storage.Match) (int, error) {
		return d.RequeueAll(ctx, queue, state, match)
	}
	for _, c := range []struct {
		what   string
		action action
		state  storage.State
		match  storage.Match
		want   int
	}{
		{"cancel the even", d.CancelAll, storage.Waiting, even, tasks / 2},
		{"cancel them again", d.CancelAll, storage.Waiting, even, 0},
		{"requeue them", requeueAll, storage.Cancelled, even, tasks / 2},
		{"delete the odd", d.DeleteAll, storage.Waiting, func(t storage.Task) bool { return !even(t) }, tasks / 2},
		{"cancel the rest", d.CancelAll, storage.Waiting, nil, tasks / 2},
		{"delete the rest", d.DeleteAll, storage.Cancelled, nil, tasks / 2},
		{"delete nothing", d.DeleteAll, storage.Dead, nil, 0},
	} {
		if got := must(c.action(t.Context(), "q", c.state, c.match))(t); got != c.want {
			t.Errorf("%s: got %d, want %d", c.what, got, c.want)
		}
	}
	if got := stats(t, d.store); got.Live()+got.Cancelled != 0 {
		t.Errorf("left: got %+v, want none", got)
	}
}

func TestBulkLeavesWhatStands(t *testing.T) {
	d := openDesk(t)
	key := func(id string) storage.Insert {
		in := job(id)
		in.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
		return in
	}
	d.dead(key("a"), key("b"), job("c"))
	if got := must(d.RequeueAll(t.Context(), "q", storage.Dead, nil))(t); got != 2 {
		t.Errorf("requeued: got %d, want 2, as two have one unique key", got)
	}
	if got := stats(t, d.store); got.Dead != 1 || got.Waiting != 2 {
		t.Errorf("got %d dead and %d waiting, want 1 and 2", got.Dead, got.Waiting)
	}
	d.claim()
	if got := must(d.DeleteAll(t.Context(), "q", storage.Pending, nil))(t); got != 0 {
		t.Errorf("deleted of pending: got %d, want 0", got)
	}
	if got := must(d.CancelAll(t.Context(), "q", storage.Pending, nil))(t); got != 1 {
		t.Errorf("cancels asked: got %d, want 1", got)
	}
	if _, err := d.DeleteAll(t.Context(), "q", "nonsense", nil); err == nil {
		t.Error("a state that is none: got no error, want one")
	}
}

// deadly is a storage in which each task that is requeued dies again at once.
type deadly struct {
	storage.Storage
	d *desk
}

func (d *deadly) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	applied, err := d.Storage.Apply(ctx, call, txs...)
	for i := range applied {
		if len(txs[i].Changes) > 0 && txs[i].Changes[0].Requeue {
			d.d.settle(storage.Settle{Fence: d.d.claim(), Outcome: storage.Bury, Reason: "again"}) //nolint:contextcheck // the desk has its own
		}
	}
	return applied, err
}

// TestCallsAboutManyTasksPassOverRecords of loads and imports: only a cancel and the removal of the queue reach the
// record, and a call that names it.
func TestCallsAboutManyTasksPassOverRecords(t *testing.T) {
	for _, kind := range []string{storage.LoadKind, storage.ImportKind} {
		passedOver(t, kind)
	}
}

func passedOver(t *testing.T, kind string) {
	t.Helper()
	d := openDesk(t)
	for _, id := range []string{"named", "removed"} {
		in := job(id)
		in.Kind, in.Delay, in.Keep.For = kind, time.Hour, time.Hour
		d.insert(in)
	}
	in := job("other")
	in.Delay = time.Hour
	for _, all := range []func(state storage.State) (int, error){
		func(state storage.State) (int, error) { return d.RequeueAll(t.Context(), "q", state, nil) },
		func(state storage.State) (int, error) { return d.DeleteAll(t.Context(), "q", state, nil) },
	} {
		d.insert(in)
		if n, err := all(storage.Scheduled); n != 1 || err != nil {
			t.Errorf("got %d, %v, want the other task alone", n, err)
		}
		if err := d.DeleteTask(t.Context(), ref("other")); err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Error(err)
		}
	}
	if n, err := d.CancelAll(t.Context(), "q", storage.Scheduled, nil); n != 2 || err != nil {
		t.Errorf("cancelled %d, %v, want both", n, err)
	}
	if n, err := d.DeleteAll(t.Context(), "q", storage.Cancelled, nil); n != 0 || err != nil {
		t.Errorf("deleted %d, %v, want none", n, err)
	}
	if err := d.DeleteTask(t.Context(), ref("named")); err != nil || d.state("named") != "" {
		t.Errorf("got %v, and the record is %q, want it deleted", err, d.state("named"))
	}
	if n, err := d.RemoveQueue(t.Context(), "q"); n != 1 || err != nil {
		t.Errorf("removed %d, %v, want the record", n, err)
	}
}

func TestRequeueAllRequeuesATaskOnce(t *testing.T) {
	d := openDesk(t)
	const tasks = 3*storage.MaxPage + 10 // the first die again before the last page is read
	for i := range tasks {
		d.dead(job(fmt.Sprintf("t%03d", i)))
	}
	session := storage.NewSession(&deadly{d.store, d}, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := session.RequeueAll(ctx, "q", storage.Dead, nil); got != tasks || err != nil {
		t.Errorf("got %d, %v, want %d", got, err, tasks)
	}
}

func TestApplyEach(t *testing.T) {
	d := openDesk(t)
	for i := range 5 {
		d.insert(job(fmt.Sprintf("t%d", i)))
	}
	var told []string
	before := 0
	each := storage.EachTx{
		Tasks: storage.Each(t.Context(), d.store, "q", storage.Waiting),
		Tx: func(task storage.Task) (storage.Tx, bool) {
			return storage.Tx{Deletes: []storage.Delete{{Ref: task.Ref, Version: task.Version}}}, task.ID != "t3"
		},
		Chunk:  2,
		Before: func() error { before++; return nil },
		After:  func(task storage.Task, a storage.Applied) { told = append(told, fmt.Sprint(task.ID, a.Err)) },
	}
	if err := d.ApplyEach(t.Context(), each); err != nil || before != 2 ||
		!slices.Equal(told, []string{"t0<nil>", "t1<nil>", "t2<nil>", "t4<nil>"}) {
		t.Errorf("got %v, %d calls, %v", told, before, err)
	}
	stop := errors.New("no room")
	each.Tasks, each.Before = storage.Each(t.Context(), d.store, "q", storage.Waiting), func() error { return stop }
	each.Tx = func(task storage.Task) (storage.Tx, bool) {
		return storage.Tx{Deletes: []storage.Delete{{Ref: task.Ref, Version: task.Version}}}, true
	}
	if err := d.ApplyEach(t.Context(), each); !errors.Is(err, stop) || d.state("t3") != storage.Waiting {
		t.Errorf("got %v and t3 %s, want the error of Before and t3 left", err, d.state("t3"))
	}
	var invalid *storage.InvalidError
	if err := d.ApplyEach(t.Context(), storage.EachTx{Chunk: storage.MaxPage + 1}); !errors.As(err, &invalid) {
		t.Errorf("got %v, want an *InvalidError", err)
	}
}

// overlapping is a storage whose first Apply waits until two pages were listed.
type overlapping struct {
	storage.Storage
	pages  int
	listed chan struct{}
}

func (o *overlapping) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	if o.pages++; o.pages == 2 {
		close(o.listed)
	}
	return o.Storage.Tasks(ctx, q)
}

func (o *overlapping) Apply(ctx context.Context, c storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	select {
	case <-o.listed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return o.Storage.Apply(ctx, c, txs...)
}

func TestBulkListsWhileItApplies(t *testing.T) {
	d := openDesk(t)
	const n = 2*storage.MaxPage + 1
	for i := range n {
		d.insert(job(fmt.Sprint("t", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	session := storage.NewSession(&overlapping{Storage: d.store, listed: make(chan struct{})}, -1)
	if got := must(session.CancelAll(ctx, "q", storage.Waiting, nil))(t); got != n {
		t.Errorf("cancelled: got %d, want %d", got, n)
	}
}

// TestBulkEndsWithItsFirstError: a failed call ends the bulk operation, which returns how many
// tasks it had changed before.
func TestBulkEndsWithItsFirstError(t *testing.T) {
	d := openDesk(t)
	for i := range 2 * storage.MaxPage {
		d.insert(job(fmt.Sprint("t", i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	got, err := d.CancelAll(ctx, "q", storage.Waiting, func(storage.Task) bool {
		if seen++; seen == storage.MaxPage+1 {
			cancel()
		}
		return true
	})
	if !errors.Is(err, context.Canceled) || got != storage.MaxPage && got != 0 {
		t.Errorf("cancelled: got %d, error %v, want a page or nothing and the context's error", got, err)
	}
}

func TestRemoveQueue(t *testing.T) {
	d := openDesk(t)
	d.insert(job("held"))
	fence := d.claim()
	d.dead(job("dead"))
	later, cursor := job("later"), job(storage.CursorPrefix+"c")
	later.Delay, cursor.Cursor = time.Hour, &storage.Cursor{}
	d.insert(job("waiting"), later, cursor)
	deleted, err := d.RemoveQueue(t.Context(), "q")
	var full *storage.NotEmptyError
	want := "1 task of q is running: pause the queue and wait, or cancel the task"
	if !errors.As(err, &full) || !errors.Is(err, storage.ErrNotEmpty) || err.Error() != want || deleted != 0 {
		t.Errorf("a queue with a pending task: got %d, error %v, want a *NotEmptyError: %s", deleted, err, want)
	}
	d.want("held", storage.Pending)
	d.want("waiting", storage.Waiting) // a refusal deletes nothing
	d.want("dead", storage.Dead)
	d.settle(storage.Settle{Fence: fence, Outcome: storage.Complete})
	if deleted, err = d.RemoveQueue(t.Context(), "q"); deleted != 4 || err != nil {
		t.Errorf("got %d, error %v, want three tasks and a schedule deleted", deleted, err)
	}
	if got := stats(t, d.store); !reflect.DeepEqual(got, storage.Stats{Queue: "q"}) {
		t.Errorf("got %+v, want nothing left", got)
	}
	var bad *storage.InvalidError
	if _, err := d.RemoveQueue(t.Context(), ""); !errors.As(err, &bad) {
		t.Errorf("no name: got error %v, want an *InvalidError", err)
	}
}

// TestARemovalTellsWhatItDeletedBeforeItFailed removes a queue of which a runner claims a task meanwhile.
func TestARemovalTellsWhatItDeletedBeforeItFailed(t *testing.T) {
	d := openDesk(t)
	const tasks = storage.MaxPage + 50
	for i := range tasks {
		d.insert(job(fmt.Sprintf("t%03d", i)))
	}
	claims := &claimsMeanwhile{Storage: d.store, claim: func() { d.claim() }}
	deleted, err := storage.NewSession(claims, 0).RemoveQueue(t.Context(), "q")
	var full *storage.NotEmptyError
	if !errors.As(err, &full) || full.Pending != 1 || deleted != tasks-1 {
		t.Errorf("got %d of %d deleted, error %v, want all but the pending one", deleted, tasks, err)
	}
}

// claimsMeanwhile is a storage of which a runner claims a task behind the first deletes.
type claimsMeanwhile struct {
	storage.Storage
	claim func()
	once  sync.Once
}

func (c *claimsMeanwhile) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	applied, err := c.Storage.Apply(ctx, call, txs...)
	if len(txs[0].Deletes) > 0 {
		c.once.Do(c.claim)
	}
	return applied, err
}

func TestRunSchedule(t *testing.T) {
	d := openDesk(t)
	in := job(storage.CursorPrefix + "c")
	in.Kind, in.Payload, in.Priority = "report", []byte("p"), 3
	in.Cursor = &storage.Cursor{Next: time.Now().Add(time.Hour), Declaration: `{"spec":"every 1h","overlap":"skip"}`}
	d.insert(in, job("task"))
	first := must(d.RunSchedule(t.Context(), in.Ref))(t)
	got := must(d.store.Task(t.Context(), first))(t)
	if got.Kind != "report" || string(got.Payload) != "p" || got.Priority != 3 || got.Cursor != nil {
		t.Errorf("got %+v, want the schedule's task", got)
	}
	if d := got.Created.Sub(got.Tick()); d < 0 || d > time.Minute {
		t.Errorf("got the tick %v of a task of %v, want the moment of the run", got.Tick(), got.Created)
	}
	if again := must(d.RunSchedule(t.Context(), in.Ref))(t); again != first {
		t.Errorf("run while the last one has not ended: got %s, want %s", again, first)
	}
	d.settle(storage.Settle{Fence: d.claim(), Outcome: storage.Complete})
	if again := must(d.RunSchedule(t.Context(), in.Ref))(t); again == first {
		t.Errorf("run after the last one has ended: got %s, want another", again)
	}
	var bad *storage.InvalidError
	if _, err := d.RunSchedule(t.Context(), ref("task")); !errors.As(err, &bad) {
		t.Errorf("a task: got error %v, want an *InvalidError", err)
	}
	if _, err := d.RunSchedule(t.Context(), ref("none")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a missing cursor: got error %v, want ErrNotFound", err)
	}
	damaged := job(storage.CursorPrefix + "damaged")
	damaged.Cursor = &storage.Cursor{Declaration: "garbage"}
	d.insert(damaged)
	if _, err := d.RunSchedule(t.Context(), damaged.Ref); !errors.As(err, &bad) {
		t.Errorf("a damaged cursor: got error %v, want an *InvalidError", err)
	}
}

func TestEach(t *testing.T) {
	d := openDesk(t)
	var want []string
	for i := range storage.MaxPage + 1 {
		want = append(want, fmt.Sprintf("t%03d", i))
	}
	d.insert(inserting(want...).Inserts...)
	var got []string
	for task, err := range storage.Each(t.Context(), d.store, "q", storage.Waiting) {
		got = append(got, must(task, err)(t).ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed: got %d tasks, want %d in order", len(got), len(want))
	}
	n := 0
	for _, err := range storage.Each(t.Context(), d.store, "q", storage.Waiting) {
		if n++; n == 3 || err != nil {
			break
		}
	}
	n = 0
	for _, err := range storage.Each(t.Context(), d.store, "q", "nonsense") {
		if n++; err == nil {
			t.Error("a state that is none: got no error, want one")
		}
	}
	if n != 1 {
		t.Errorf("errors: got %d, want 1, then the end", n)
	}
}

func TestEachQueue(t *testing.T) {
	d := openDesk(t)
	for _, name := range []string{"mail.b", "mail.a", "other"} {
		in := job("a")
		in.Ref.Queue = name
		d.insert(in)
	}
	var got []string
	for name, err := range storage.EachQueue(t.Context(), d.store, "mail.") {
		got = append(got, must(name, err)(t))
	}
	if !slices.Equal(got, []string{"mail.a", "mail.b"}) {
		t.Errorf("queues: got %v, want those with the prefix, sorted", got)
	}
	for _, err := range storage.EachQueue(t.Context(), d.store, "") {
		succeed(t, err)
		break
	}
	succeed(t, d.store.Close())
	for _, err := range storage.EachQueue(t.Context(), d.store, "") {
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("after Close: got error %v, want ErrClosed", err)
		}
	}
}

func TestTickInsert(t *testing.T) {
	cursor := storage.Task{
		Ref: ref(storage.CursorPrefix + "c"), Kind: "k", Encoding: "raw", Payload: []byte("p"),
		Headers: map[string]string{"x": "y"}, Priority: 2, MaxRetries: 4, CrashLimit: 5, Timeout: time.Minute,
		Keep: storage.Keep{For: time.Hour}, Partition: "acme", Cursor: &storage.Cursor{},
	}
	in := cursor.TickInsert("id", &storage.Declaration{})
	if in.Ref != ref("id") || in.Kind != "k" || in.MaxRetries != 4 || in.CrashLimit != 5 || in.Timeout != time.Minute ||
		in.Keep != cursor.Keep || in.Partition != "acme" || in.Priority != 2 || in.Headers["x"] != "y" || in.Unique != (storage.Unique{}) {
		t.Errorf("got %+v, want the task of the schedule", in)
	}
	if err := storage.CheckTxs(storage.Limits{}, []storage.Tx{{Inserts: []storage.Insert{in}}}); err != nil {
		t.Errorf("its insert: got %v, want a good one", err)
	}
	in = cursor.TickInsert("id", &storage.Declaration{Overlap: "skip"})
	if in.Unique.Mode != storage.UniqueLife || in.OnConflict != storage.Skip {
		t.Errorf("with overlap skip: got %+v, want a unique insert that is skipped", in)
	}
}
