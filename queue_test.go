package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestWhatAStateDoesNotPermitIsRefusedBeforeAnyIO(t *testing.T) {
	c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, mail := t.Context(), c.Queue("mail")
	const want = ": want a state whose tasks can be "
	for text, err := range map[string]error{
		`"pending"` + want + "deleted: waiting, scheduled, retry, completed, cancelled, dead":  second(mail.DeleteAll(ctx, storage.Pending, nil)),
		`"pending"` + want + "requeued: waiting, scheduled, retry, completed, cancelled, dead": second(mail.RequeueAll(ctx, storage.Pending, nil)),
		`"cursor"` + want + "requeued: waiting, scheduled, retry, completed, cancelled, dead":  second(mail.RequeueAll(ctx, storage.Cursors, nil)),
		`"dead"` + want + "cancelled: waiting, pending, scheduled, retry, cancelled":           second(mail.CancelAll(ctx, storage.Dead, nil)),
		`"completed"` + want + "cancelled: waiting, pending, scheduled, retry, cancelled":      second(mail.CancelAll(ctx, storage.Completed, nil)),
	} {
		var invalid *midge.InvalidError
		if !errors.As(err, &invalid) || invalid.Error() != "invalid state "+text {
			t.Errorf("got %v, want an *InvalidError that ends in %s", err, text)
		}
	}
}

func TestQueueNamesAreCheckedBeforeAnyIO(t *testing.T) {
	c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	bad, mail := c.Queue("a b"), c.Queue("mail")
	for name, err := range map[string]error{
		"Create":                  bad.Create(ctx),
		"Pause":                   bad.Pause(ctx),
		"PauseFor":                bad.PauseFor(ctx, time.Hour),
		"PauseFor nothing":        mail.PauseFor(ctx, 0),
		"Resume":                  bad.Resume(ctx),
		"Stats":                   second(bad.Stats(ctx)),
		"Page":                    second(bad.Page(ctx, storage.Dead, "", 0)),
		"Page of no state":        second(mail.Page(ctx, "lost", "", 0)),
		"a page too large":        second(mail.Page(ctx, storage.Dead, "", 201)),
		"Requeue":                 c.Requeue(ctx, ref("a b", "1")),
		"Requeue of no id":        c.Requeue(ctx, ref("mail", "")),
		"RequeueAll":              second(bad.RequeueAll(ctx, storage.Dead, nil)),
		"RequeueAll of no state":  second(mail.RequeueAll(ctx, "lost", nil)),
		"CancelAll":               second(bad.CancelAll(ctx, storage.Waiting, nil)),
		"Delete":                  c.Delete(ctx, ref("a b", "1")),
		"DeleteAll":               second(bad.DeleteAll(ctx, storage.Dead, nil)),
		"Remove":                  bad.Remove(ctx),
		"Change":                  c.Change(ctx, ref("a b", "1"), midge.Priority(1)),
		"Change to nowhere":       c.Change(ctx, ref("mail", "1"), midge.To("a b")),
		"Change by too much":      c.Change(ctx, ref("mail", "1"), midge.Priority(10)),
		"Change into the past":    c.Change(ctx, ref("mail", "1"), midge.In(-1)),
		"Change of the id":        c.Change(ctx, ref("mail", "1"), midge.ID("2")),
		"Change of the retries":   c.Change(ctx, ref("mail", "1"), midge.Retries(2)),
		"Change of the key":       c.Change(ctx, ref("mail", "1"), midge.Unique{}),
		"ChangeJob to nil":        c.ChangeJob(ctx, ref("mail", "1"), nil),
		"ChangeJob to too much":   c.ChangeJob(ctx, ref("mail", "1"), work{strings.Repeat("x", 1<<20)}),
		"Schedules":               second(bad.Schedules(ctx)),
		"RunSchedule":             second(bad.RunSchedule(ctx, "x")),
		"RunSchedule of no name":  second(mail.RunSchedule(ctx, "")),
		"RemoveSchedule":          bad.RemoveSchedule(ctx, "x"),
		"RemoveSchedule too long": mail.RemoveSchedule(ctx, strings.Repeat("x", 122)),
	} {
		if _, ok := errors.AsType[*midge.InvalidError](err); !ok {
			t.Errorf("%s: got %v, want an *InvalidError", name, err)
		}
	}
}

// Names come from requests and flags: the error about an invalid name is a short line.
func TestErrorsQuoteNamesShortAndPrintable(t *testing.T) {
	c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for what, bad := range map[string]string{
		"long": strings.Repeat("x", 1<<20), "reversed": "a\u202eb\u200b", "a terminal's": "\x1b[2J\r\n", "broken": "\xff\x00",
	} {
		q, ref := c.Queue(bad), storage.Ref{Queue: bad, ID: bad}
		decode := midge.Decode(storage.Task{Ref: ref, Encoding: bad}, new(work))
		for call, err := range map[string]error{
			"To": second(c.Enqueue(ctx, work{}, midge.To(bad))), "ID": second(c.Enqueue(ctx, work{}, midge.ID(bad))),
			"Unique.By": second(c.Enqueue(ctx, work{}, midge.Unique{By: []string{bad}})),
			"Task":      second(c.Task(ctx, ref)), "Cancel": second(c.Cancel(ctx, ref)), "Await": c.Await(ctx, ref, nil), "await into": c.Await(ctx, ref, 7),
			"Pause": q.Pause(ctx), "Stats": second(q.Stats(ctx)), "Page": second(q.Page(ctx, storage.Dead, "", 0)),
			"a state": second(c.Queue("a").DeleteAll(ctx, storage.State(bad), nil)),
			"Requeue": c.Requeue(ctx, ref), "Delete": c.Delete(ctx, ref), "Change": c.Change(ctx, ref, midge.Priority(1)),
			"ChangeJob": c.ChangeJob(ctx, ref, work{}), "Remove": q.Remove(ctx), "RunSchedule": second(q.RunSchedule(ctx, bad)),
			"RemoveSchedule": q.RemoveSchedule(ctx, bad), "Decode": decode, "Decode of nothing": midge.Decode(storage.Task{Ref: ref}, nil),
		} {
			if err == nil || len(err.Error()) > 1<<10 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !strconv.IsPrint(r) }) {
				t.Errorf("%s, %s: got %.200q, want a short printable error", call, what, fmt.Sprint(err))
			}
		}
	}
}

func TestQueuesOfMidgesOwnAreNotListedAndNotChanged(t *testing.T) {
	bubble(t, func(b *bench) {
		b.enqueue("a", midge.To("mail:high"), midge.ID("user:7"))
		if err := storage.NewSession(b.store, 0).Configure(b.ctx, "midge.ledger", storage.Settings{Create: true}); err != nil {
			t.Fatal(err)
		}
		if names := b.queues(""); !slices.Equal(names, []string{"mail:high"}) {
			t.Errorf("got %v, want the application's", names)
		}
		q, ref, work := b.client.Queue("midge.ledger"), storage.Ref{Queue: "midge.ledger", ID: "m.1.0"}, work{}
		page := storage.Insert{Ref: ref, Kind: "work", Encoding: "x", CrashLimit: 1, Delay: time.Hour}
		if _, err := storage.NewSession(b.store, 0).ApplyOne(b.ctx, storage.Tx{Inserts: []storage.Insert{page}}); err != nil {
			t.Fatal(err)
		}
		_, enqueued := b.client.Enqueue(b.ctx, work, midge.To("midge.ledger"))
		_, requeued := q.RequeueAll(b.ctx, midge.Scheduled, nil)
		_, cancelledAll := q.CancelAll(b.ctx, midge.Scheduled, nil)
		_, deleted := q.DeleteAll(b.ctx, midge.Scheduled, nil)
		_, cancelled := b.client.Cancel(b.ctx, ref)
		_, ran := q.RunSchedule(b.ctx, "a")
		for action, err := range map[string]error{
			"Create": q.Create(b.ctx), "Pause": q.Pause(b.ctx), "PauseFor": q.PauseFor(b.ctx, time.Hour), "Resume": q.Resume(b.ctx),
			"Remove": q.Remove(b.ctx), "RemoveSchedule": q.RemoveSchedule(b.ctx, "a"), "RunSchedule": ran, "Enqueue": enqueued,
			"RequeueAll": requeued, "CancelAll": cancelledAll, "DeleteAll": deleted, "Cancel": cancelled,
			"Requeue": b.client.Requeue(b.ctx, ref), "Delete": b.client.Delete(b.ctx, ref), "Change": b.client.Change(b.ctx, ref, midge.Priority(1)),
			"ChangeJob": b.client.ChangeJob(b.ctx, ref, work),
		} {
			var invalid *midge.InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "midge's own") {
				t.Errorf("%s in a queue of midge's own: got %v, want an InvalidError that says so", action, err)
			}
		}
		if _, err := b.client.Task(b.ctx, ref); err != nil {
			t.Errorf("what midge keeps cannot be read: %v", err)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran atomic.Int64
		b.run(midge.RunnerConfig{}, func(context.Context, work) error { ran.Add(1); return nil })
		q := b.client.Queue("default")
		step := func(err error, want int64) {
			b.Helper()
			if err != nil {
				b.Error(err)
			}
			b.enqueue("a")
			b.after(2 * time.Second)
			if ran.Load() != want {
				b.Errorf("%d ran, want %d", ran.Load(), want)
			}
		}
		for name, err := range map[string]error{"Pause": q.Pause(b.ctx), "PauseFor": q.PauseFor(b.ctx, time.Hour), "Resume": q.Resume(b.ctx)} {
			if !errors.Is(err, midge.ErrNotFound) || len(b.queues("")) > 0 {
				b.Errorf("%s of no queue: got %v and queues %v, want ErrNotFound and none", name, err, b.queues(""))
			}
		}
		if err := q.Create(b.ctx); err != nil || len(b.queues("")) != 1 {
			b.Errorf("got %v and queues %v, want one", err, b.queues(""))
		}
		step(q.Pause(b.ctx), 0)
		if err := q.Create(b.ctx); err != nil {
			b.Error(err)
		}
		if stats, err := q.Stats(b.ctx); err != nil || !stats.Paused || stats.Waiting != 1 {
			t.Errorf("got %+v, %v; want it paused with one waiting", stats, err)
		}
		step(q.Resume(b.ctx), 2)
		step(q.PauseFor(b.ctx, time.Minute), 2)
		b.after(time.Minute)
		step(nil, 4)
	})
}

// list returns the tasks of a state in the default queue.
func (b *bench) list(state storage.State) (tasks []storage.Task) {
	b.Helper()
	for task, err := range b.client.Queue(midge.DefaultQueue).Tasks(b.ctx, state) {
		if err != nil {
			b.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// ids returns the ids of these tasks.
func (b *bench) ids(state storage.State) (ids []string) {
	b.Helper()
	for _, task := range b.list(state) {
		ids = append(ids, task.ID)
	}
	return ids
}

// queues returns the names of queues.
func (b *bench) queues(prefix string) (names []string) {
	b.Helper()
	for name, err := range b.client.Queues(b.ctx, prefix) {
		if err != nil {
			b.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func TestQueueListsAndPages(t *testing.T) {
	bubble(t, func(b *bench) {
		if _, err := b.client.EnqueueMany(b.ctx, items(450)); err != nil {
			t.Fatal(err)
		}
		if ids := b.ids(storage.Waiting); len(ids) != 450 || ids[449] != "w-449" {
			t.Errorf("got %d tasks, want 450 in order", len(ids))
		}
		q := b.client.Queue("default")
		first, err := q.Page(b.ctx, storage.Waiting, "", 200)
		if err != nil || len(first.Tasks) != 200 {
			t.Fatalf("got %d tasks, %v; want 200", len(first.Tasks), err)
		}
		next, err := q.Page(b.ctx, storage.Waiting, first.Next, 0)
		if err != nil || len(next.Tasks) != 50 || next.Tasks[0].ID != "w-200" {
			t.Errorf("got %d tasks, %v; want the next 50", len(next.Tasks), err)
		}
		b.enqueue("x", midge.To("mail"))
		b.enqueue("x", midge.To("mail.bulk"))
		if names := b.queues("mail"); fmt.Sprint(names) != "[mail mail.bulk]" {
			t.Errorf("got queues %v", names)
		}
	})
}

func TestListsSayWhatTheyWere(t *testing.T) {
	bubble(t, func(b *bench) {
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		q := b.client.Queue("mail")
		for _, err := range q.Tasks(b.ctx, storage.Dead) {
			wantsClosed(t, err, `midge: list tasks of queue mail: `)
		}
		for _, err := range b.client.Queues(b.ctx, "") {
			wantsClosed(t, err, "midge: list queues: ")
		}
		_, err := q.Stats(b.ctx)
		wantsClosed(t, err, `midge: read stats of queue mail: `)
	})
}

func wantsClosed(t *testing.T, err error, prefix string) {
	t.Helper()
	if !errors.Is(err, storage.ErrClosed) || !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("got %v, want %s… %v", err, prefix, storage.ErrClosed)
	}
}

func TestRequeueAndDeleteTheDead(t *testing.T) {
	bubble(t, func(b *bench) {
		var repaired atomic.Bool
		b.run(midge.RunnerConfig{}, func(context.Context, work) error {
			if !repaired.Load() {
				return midge.Discard(errors.New("broken"))
			}
			return nil
		})
		q := b.client.Queue("default")
		if _, err := b.client.EnqueueMany(b.ctx, items(6)); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		if dead := b.ids(storage.Dead); len(dead) != 6 {
			t.Fatalf("got %v, want 6 dead", dead)
		}
		repaired.Store(true)
		if err := b.client.Requeue(b.ctx, ref("default", "w-0")); err != nil {
			t.Error(err)
		}
		if err := b.client.Requeue(b.ctx, ref("default", "nobody")); !errors.Is(err, midge.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		if err := b.client.Delete(b.ctx, ref("default", "w-1")); err != nil {
			t.Error(err)
		}
		odd := func(t storage.Task) bool { return t.ID == "w-3" || t.ID == "w-5" }
		if n, err := q.DeleteAll(b.ctx, storage.Dead, odd); n != 2 || err != nil {
			t.Errorf("deleted %d, %v; want 2", n, err)
		}
		if n, err := q.RequeueAll(b.ctx, storage.Dead, nil); n != 2 || err != nil {
			t.Errorf("requeued %d, %v; want 2", n, err)
		}
		b.after(time.Second)
		if stats := b.stats("default"); stats.Live()+stats.Dead != 0 || stats.Totals.Completed != 3 {
			t.Errorf("got %+v, want 3 completed and nothing left", stats)
		}
	})
}

func TestCancelAllAndRemove(t *testing.T) {
	bubble(t, func(b *bench) {
		q := b.client.Queue("mail")
		for i := range 5 {
			b.enqueue(fmt.Sprint(i), midge.To("mail"), midge.In(time.Hour))
		}
		if n, err := q.CancelAll(b.ctx, storage.Scheduled, nil); n != 5 || err != nil {
			t.Errorf("cancelled %d, %v; want 5", n, err)
		}
		b.enqueue("left", midge.To("mail"))
		if err := q.Remove(b.ctx); err != nil {
			t.Error(err)
		}
		if names := b.queues(""); len(names) > 0 {
			t.Errorf("queues %v are left", names)
		}
	})
}

func TestChangeWhatWaits(t *testing.T) {
	bubble(t, func(b *bench) {
		now := time.Now()
		task := b.enqueue("a", midge.Header("a", "1"), midge.Header("b", "1"))
		step := func(err error, want func(storage.Task) bool) {
			b.Helper()
			if err != nil {
				b.Error(err)
			}
			if got := b.task(task.Ref); !want(got) {
				b.Errorf("got %+v", got)
			}
		}
		step(b.client.Change(b.ctx, task.Ref, midge.Priority(5)), func(t storage.Task) bool {
			return t.Priority == 5 && t.State == storage.Waiting && len(t.Headers) == 2
		})
		step(b.client.Change(b.ctx, task.Ref, midge.In(time.Hour), midge.Header("b", "2")), func(t storage.Task) bool {
			return t.State == storage.Scheduled && t.Due.Sub(now) >= time.Hour && t.Headers["a"] == "1" && t.Headers["b"] == "2"
		})
		step(b.client.Change(b.ctx, task.Ref, midge.At(now.Add(3*time.Hour))), func(t storage.Task) bool {
			return t.State == storage.Scheduled && t.Due.Equal(now.Add(3*time.Hour))
		})
		step(b.client.Change(b.ctx, task.Ref, midge.In(0)), func(t storage.Task) bool { return t.State == storage.Waiting && t.Priority == 5 })
		step(b.client.ChangeJob(b.ctx, task.Ref, work{"b"}), func(t storage.Task) bool { return strings.Contains(string(t.Payload), "\xa1b") })
		var invalid *midge.InvalidError
		if err := b.client.ChangeJob(b.ctx, task.Ref, stranger{1}); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "stranger") {
			t.Errorf("another kind: got %v, want an *InvalidError that names it", err)
		}
		if err := b.client.Change(b.ctx, task.Ref, midge.To("bulk")); err != nil {
			t.Error(err)
		}
		b.gone(task.Ref)
		if moved := b.task(storage.Ref{Queue: "bulk", ID: task.ID}); moved.Priority != 5 || moved.State != storage.Waiting {
			t.Errorf("got %+v, want it moved as it was", moved)
		}
	})
}

// ended makes one task for each way to end, with the name of its state as id.
func (b *bench) ended() {
	b.Helper()
	b.run(midge.RunnerConfig{}, func(_ context.Context, w work) error {
		if w.Name == "dead" {
			return midge.Discard(errors.New("boom"))
		}
		return nil
	})
	b.enqueue("cancelled", midge.ID("cancelled"), midge.KeepFor(time.Hour), midge.In(time.Hour))
	b.enqueue("completed", midge.ID("completed"), midge.KeepFor(time.Hour))
	b.enqueue("dead", midge.ID("dead"))
	b.after(time.Second)
	if _, err := b.client.Cancel(b.ctx, storage.Ref{Queue: midge.DefaultQueue, ID: "cancelled"}); err != nil {
		b.Fatal(err)
	}
}

func TestChangeRefusesWhatHasEnded(t *testing.T) {
	bubble(t, func(b *bench) {
		b.ended()
		for _, id := range []string{"completed", "cancelled", "dead"} {
			ref := storage.Ref{Queue: midge.DefaultQueue, ID: id}
			before := b.task(ref)
			calls := map[string]error{
				"priority":           b.client.Change(b.ctx, ref, midge.Priority(5)),
				"now":                b.client.Change(b.ctx, ref, midge.In(0)),
				"later":              b.client.Change(b.ctx, ref, midge.In(time.Hour)),
				"a move":             b.client.Change(b.ctx, ref, midge.To("bulk")),
				"a header":           b.client.Change(b.ctx, ref, midge.Header("a", "1")),
				"a job and a moment": b.client.ChangeJob(b.ctx, ref, work{"other"}, midge.In(time.Hour)),
			}
			if id != "dead" {
				calls["a job"] = b.client.ChangeJob(b.ctx, ref, work{"other"})
			}
			for what, err := range calls {
				var barred *midge.DependencyError
				if !errors.As(err, &barred) || len(barred.Barred) != 1 || barred.Barred[0] != (storage.Barred{Ref: ref, State: before.State}) {
					t.Errorf("%s of %s: got %v, want an error that says its state", what, id, err)
				}
			}
			if after := b.task(ref); after.Version != before.Version {
				t.Errorf("%s: got %+v, want it unchanged", id, after)
			}
		}
	})
}

func TestChangeJobOfTheDead(t *testing.T) {
	bubble(t, func(b *bench) {
		b.ended()
		ref := storage.Ref{Queue: midge.DefaultQueue, ID: "dead"}
		if err := b.client.ChangeJob(b.ctx, ref, work{"mended"}, midge.Priority(5), midge.KeepFor(time.Hour)); err == nil {
			t.Error("KeepFor in a change: got no error")
		}
		if err := b.client.ChangeJob(b.ctx, ref, work{"mended"}, midge.Priority(5)); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		var job work
		got := b.task(ref)
		if err := midge.Decode(got, &job); err != nil || job.Name != "mended" || got.State != storage.Dead || got.Priority != 5 {
			t.Errorf("got %+v with %+v, %v; want it dead, with the new parameters", got, job, err)
		}
		if err := b.client.Requeue(b.ctx, ref); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		b.gone(ref) // the task has completed
	})
}

func TestRequeueKeepsTheHistory(t *testing.T) {
	bubble(t, func(b *bench) {
		b.ended()
		ref := storage.Ref{Queue: midge.DefaultQueue, ID: "dead"}
		if err := b.drain(); err != nil {
			t.Fatal(err)
		}
		if err := b.client.Requeue(b.Context(), ref); err != nil {
			t.Fatal(err)
		}
		got := b.task(ref)
		if n := len(got.Attempts); n != 2 || got.Attempts[0].Error != "boom" || got.Attempts[1].Outcome != storage.AttemptRequeued {
			t.Errorf("got %+v, want the failure and the requeue", got.Attempts)
		}
		if got.State != storage.Waiting || got.Retries != 0 {
			t.Errorf("got %s after %d retries, want it waiting anew", got.State, got.Retries)
		}
	})
}

func TestAMoveNamesNoMoment(t *testing.T) {
	c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Change(t.Context(), ref("mail", "1"), midge.To("bulk"), midge.In(time.Hour))
	var invalid *midge.InvalidError
	if !errors.As(err, &invalid) || invalid.Error() != `invalid option To "beside In": want one change after the other` {
		t.Errorf("got %v, want an *InvalidError that names both", err)
	}
}

// tickers runs a runner that declares two schedules: hourly, and work, at three in Paris.
func (b *bench) tickers(ran *atomic.Int64) {
	b.Helper()
	b.runner = b.newRunner(b.store, midge.RunnerConfig{}, func(context.Context, work) error { ran.Add(1); return nil })
	for _, err := range []error{
		b.runner.Periodic(midge.Every(time.Hour), work{"tick"}, midge.Named("hourly")),
		b.runner.Periodic(midge.Cron("0 3 * * *"), work{"tick"}, midge.Zone("Europe/Paris")),
	} {
		if err != nil {
			b.Fatal(err)
		}
	}
	go func() { b.done <- b.runner.Run(b.ctx) }()
	b.after(time.Hour + time.Second)
}

func TestSchedulesAreListedAndRun(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran atomic.Int64
		b.tickers(&ran)
		q := b.client.Queue("default")
		list := b.schedules(q)
		if len(list) != 2 || list[0].Orphaned || list[1].Orphaned {
			t.Fatalf("got %+v, want two schedules that are declared", list)
		}
		i := slices.IndexFunc(list, func(s midge.ScheduleInfo) bool { return s.Name == "hourly" })
		if c := list[i].Cursor; list[i].Declared.Spec != "every 1h0m0s" || c.Next.Sub(c.Last) != time.Hour || ran.Load() != 1 {
			t.Errorf("got %+v after %d runs, want one tick and the next in an hour", c, ran.Load())
		}
		if until := time.Until(list[i].Due); until <= 0 || until > time.Hour {
			t.Errorf("due in %v, want the next tick", until)
		}
		ref, err := q.RunSchedule(b.ctx, "hourly")
		b.after(time.Second)
		if err != nil || ref.Queue != "default" || ran.Load() != 2 {
			t.Errorf("got %s, %v and %d runs, want it run now", ref, err, ran.Load())
		}
		_, err = q.RunSchedule(b.ctx, "nobody")
		if !errors.Is(err, midge.ErrNotFound) || !strings.Contains(err.Error(), "no schedule is named nobody") {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		runners, err := b.client.Runners(b.ctx)
		if err != nil || len(runners) != 1 || runners[0].ID != b.runner.ID() || len(runners[0].Schedules) != 2 {
			t.Errorf("got %+v, %v; want the runner with what it declares", runners, err)
		}
	})
}

func TestSchedulesAreOrphanedAndRemoved(t *testing.T) {
	bubble(t, func(b *bench) {
		b.tickers(new(atomic.Int64))
		q := b.client.Queue("default")
		if err := b.drain(); err != nil {
			t.Error(err)
		}
		if list := b.schedules(q); len(list) != 2 || !list[0].Orphaned || !list[1].Orphaned {
			t.Errorf("got %+v, want two orphans", list)
		}
		if err := q.RemoveSchedule(b.Context(), "hourly"); err != nil {
			t.Error(err)
		}
		err := q.RemoveSchedule(b.Context(), "hourly")
		if !errors.Is(err, midge.ErrNotFound) || strings.Contains(err.Error(), "cursor.") {
			t.Errorf("again: got %v, want ErrNotFound", err)
		}
		if list := b.schedules(q); len(list) != 1 || list[0].Name != "work" {
			t.Errorf("got %+v, want the other one alone", list)
		}
	})
}

func (b *bench) schedules(q *midge.Queue) []midge.ScheduleInfo {
	b.Helper()
	list, err := q.Schedules(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// Without names, Client.Stats returns all queues, however many there are.
func TestStatsOfManyQueues(t *testing.T) {
	bubble(t, func(b *bench) {
		if all, err := b.client.Stats(b.ctx); err != nil || len(all) != 0 {
			t.Errorf("of no queue: got %v, %v", all, err)
		}
		var items []midge.Item
		for i := range storage.MaxNames + 1 {
			items = append(items, midge.New(work{}, midge.To(fmt.Sprintf("q%04d", i))))
		}
		_, err := b.client.EnqueueMany(b.ctx, items)
		must(err)
		all, err := b.client.Stats(b.ctx)
		if must(err); len(all) != len(items) || all[storage.MaxNames].Queue != "q1000" || all[storage.MaxNames].Waiting != 1 {
			t.Errorf("got %d queues, want %d, the last of them q1000 with a task", len(all), len(items))
		}
		some, err := b.client.Stats(b.ctx, "q0002", "none", "q0001")
		if must(err); len(some) != 3 || some[0].Queue != "q0002" || some[1].Waiting != 0 || some[2].Queue != "q0001" {
			t.Errorf("got %+v, want those that were named, in their order", some)
		}
		var invalid *midge.InvalidError
		if _, err := b.client.Stats(b.ctx, "no/slash"); !errors.As(err, &invalid) {
			t.Errorf("got %v, want an *InvalidError", err)
		}
	})
}
