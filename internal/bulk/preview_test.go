package bulk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

func TestAPreviewChangesNothing(t *testing.T) {
	r := open(t)
	r.insert("a", 300, nil)
	r.insert("b", 100, nil)
	r.bury("a")
	r.bury("b")
	req := Request{Action: Action{Verb: Requeue}, Scan: matching(t, "kind:mail")}
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
	req = Request{Action: Action{Verb: Delete}, Tasks: Refs(storage.Ref{Queue: "a", ID: "none"}, storage.Ref{Queue: "a", ID: "t0000"})}
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
			{Action: Action{Verb: Cancel}, Scan: matching(t, "kind:none")}, {Action: Action{Verb: Cancel}, Tasks: Refs(refs...)},
		} {
			begun := time.Now()
			p, err := Look(t.Context(), session, req, Budget{Tasks: -1})
			if took := time.Since(begun); err != nil || !p.More || p.None() || took < time.Second || took > 1500*time.Millisecond {
				t.Errorf("took %v, want a second: %+v, %v", took, p, err)
			}
		}
	})
}

// TestAPreviewOfNamedTasksTellsWhichTasksItRead checks previews of named tasks whose time ends: before the
// last task, and after it.
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
			req := Request{Action: Action{Verb: Cancel}, Tasks: Refs(c.refs...)}
			p, err := Look(t.Context(), session, req, Budget{Time: 50 * time.Millisecond})
			if err != nil || p.Count != c.count || p.More != c.more || p.Searched != c.searched || p.Most != c.most ||
				p.Total != int64(len(c.refs)) {
				t.Errorf("of %v: got %+v, %v, want %+v", c.refs, p, err, c)
			}
		}
	})
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
	p, err := Look(t.Context(), session, Request{Action: Action{Verb: Cancel}, Scan: matching(t, "kind:mail")}, Budget{})
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
		p, err := Look(t.Context(), r.Session, Request{Action: Action{Verb: Cancel}, Scan: matching(t, c.filter)}, Budget{Tasks: int(c.tasks), Time: -1})
		if err != nil || p.Count != c.count || p.None() != c.none {
			t.Errorf("%s of %d tasks: got %+v, %v, want %d, none: %t", c.filter, c.tasks, p, err, c.count, c.none)
		}
	}
}

// TestNamedTasksThatAPreviewDidNotReadAreProtected names a task that the preview does not reach, and a task that does not
// exist yet. If they change or come before the run, it leaves them alone.
func TestNamedTasksThatAPreviewDidNotReadAreProtected(t *testing.T) {
	r := open(t)
	r.insert("a", 3, nil)
	ref := func(id string) storage.Ref { return storage.Ref{Queue: "a", ID: id} }
	req := Request{Action: Action{Verb: Delete}, Tasks: Refs(ref("gone"), ref("t0000"), ref("t0001"), ref("t0002"))}
	p, err := Look(t.Context(), r.Session, req, Budget{Tasks: 1})
	if err != nil || p.Count > 1 {
		t.Fatalf("got %+v, %v", p, err)
	}
	r.insert("a", 1, func(_ int, in *storage.Insert) { in.Ref.ID = "gone" })
	priority := 3
	alter := func(storage.Task) (storage.Change, error) { return storage.Change{Priority: &priority}, nil }
	if err := r.ChangeTask(t.Context(), ref("t0002"), alter); err != nil {
		t.Fatal(err)
	}
	req.Tasks, req.Seen = p.Targets, p.Seen
	if got, err := Run(t.Context(), r.Session, req); err != nil || brief(got) != [5]int64{4, 2, 2, 0, 0} {
		t.Errorf("got %+v, %v, want two tasks deleted and two that changed", got, err)
	}
}

// TestARunIsForWhatItsPreviewFound does each action after a preview, another task, which is listed first, and a
// change of a task that the preview found. With and without a limit, the other task stays as it is.
func TestARunIsForWhatItsPreviewFound(t *testing.T) {
	cost, tenant := storage.NoCost, "acme"
	for _, action := range []Action{
		{Verb: Requeue, FromStart: true},
		{Verb: Delete},
		{Verb: Cancel},
		{Verb: Move, Queue: "b"},
		{Verb: Prioritise, Priority: 1},
		{Verb: Partition, Partition: &tenant},
		{Verb: Cost, Cost: &cost},
		{Verb: Reschedule, At: time.Now().Add(time.Hour)},
		{Verb: Edit, Set: []payload.Setting{{Path: "n", Value: "2"}}},
	} {
		for _, limited := range []bool{false, true} {
			r := open(t)
			r.insert("a", 3, nil)
			req := Request{Action: action, Scan: matching(t, "queue:a state:waiting")}
			p, err := Look(t.Context(), r.Session, req, Budget{Time: -1})
			if err != nil || p.Count != 3 || p.Seen == 0 {
				t.Fatalf("%s: got %+v, %v", action.Verb, p, err)
			}
			r.insert("a", 1, func(_ int, in *storage.Insert) { in.Ref.ID, in.Priority = "new", 9 })
			priority := 3
			alter := func(storage.Task) (storage.Change, error) { return storage.Change{Priority: &priority}, nil }
			if err := r.ChangeTask(t.Context(), storage.Ref{Queue: "a", ID: "t0001"}, alter); err != nil {
				t.Fatal(err)
			}
			fresh := r.task("new")
			if req.Seen = p.Seen; limited {
				req.Limit = int(p.Count)
			}
			want := [5]int64{3, 2, 1, 0, 0}
			if action.Verb == Cancel {
				want = [5]int64{3, 3, 0, 0, 0}
			}
			if got, err := Run(t.Context(), r.Session, req); err != nil || brief(got) != want {
				t.Errorf("%s: got %+v, %v, want %v", action.Verb, got, err, want)
			}
			if is := r.task("new"); !reflect.DeepEqual(is, fresh) {
				t.Errorf("%s: the task that came later is %+v", action.Verb, is)
			}
		}
	}
}
