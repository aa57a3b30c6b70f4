package storagetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

func cursorRules() []rule {
	return []rule{
		state("cursor/a state of its own", cursorState,
			"A cursor is listed, read and counted as a state of its own, and is no task: not in waiting, "+
				"not in the totals."),
		state("cursor/due", cursorDue,
			"A Claim hands out a cursor as a Tick once its Next has come, whole, and not before; a zero "+
				"Next never comes."),
		state("cursor/hidden", cursorHidden,
			"A cursor handed out is hidden from other Claims for two seconds, then handed out again."),
		state("cursor/tick", cursorTick,
			"A tick is one Tx: the cursor changes to its next moment at its version, and the task is inserted."),
		state("cursor/next tick at once", cursorTickEndsHiding,
			"A tick ends the hiding: a cursor whose next moment is due already is handed out at once."),
		state("cursor/once among many", cursorOnce,
			"However many runners tick one cursor at once, exactly one succeeds and one task is inserted."),
		state("cursor/stale tick", cursorStale,
			"A tick at another version than the cursor's is refused, and its task not inserted."),
		state("cursor/not paused", cursorPaused,
			"A pause of its queue does not stop a cursor."),
		state("cursor/beside the tasks", cursorBeside,
			"Cursors are handed out beside the tasks and do not count towards Max."),
		state("cursor/4 MiB", cursorBytes,
			"The cursors that a Claim hands out have at most MaxClaimBytes of payload, whatever its tasks have, or "+
				"it hands out one cursor. More and NextDue say that others are due.",
		).under(storage.Limits{MaxPayload: 8 << 20}),
		state("cursor/replaced", cursorReplaced,
			"A cursor deleted and inserted anew in one Tx is replaced whole, at its version or not at all."),
		state("cursor/deleted", cursorDeleted,
			"A cursor is deleted like a task, at its version, and ticks no more."),
		state("cursor/holds its queue", cursorHoldsQueue,
			"A queue with a cursor is not empty."),
	}
}

// cursor returns an insert of a schedule into main.
func cursor(id string, next time.Time) storage.Insert {
	j := job(id)
	j.Headers = map[string]string{"x": "y"}
	j.Cursor = &storage.Cursor{
		Next: next.Truncate(time.Microsecond), Declaration: `{"spec":"every 1h","zone":"Europe/Paris"}`,
	}
	return j
}

// tick claims, and returns the one cursor that must be due.
func (r *rig) tick() storage.Task {
	r.Helper()
	c := r.claim(ask(1))
	if len(c.Ticks) != 1 {
		r.Fatalf("ticks: got %v, want one", ids(c.Ticks))
	}
	return c.Ticks[0]
}

// ticking returns the Tx of a tick that moves a cursor to its next moment.
func ticking(t storage.Task, next time.Time, id string) storage.Tx {
	c := *t.Cursor
	c.Last, c.Next = c.Next, next.Truncate(time.Microsecond)
	j := job(id)
	return storage.Tx{
		Inserts: []storage.Insert{j},
		Changes: []storage.Change{{Ref: t.Ref, Version: t.Version, Cursor: &c}},
	}
}

func cursorState(r *rig) {
	next := r.now().Add(time.Hour).UTC()
	j := cursor("cursor.c", next)
	r.want("placed", r.insert(j)[0].State, storage.Cursors)
	listed := r.list(storage.Cursors)
	r.want("listed", ids(listed), []string{"cursor.c"})
	for _, t := range []storage.Task{listed[0], r.is("cursor.c", storage.Cursors)} {
		r.want("Next", t.Cursor.Next.Equal(j.Cursor.Next), true)
		t.Cursor.Next = j.Cursor.Next
		r.want("cursor", *t.Cursor, *j.Cursor)
		r.want("its task", [3]any{t.Kind, string(t.Payload), t.Headers},
			[3]any{j.Kind, string(j.Payload), j.Headers})
	}
	s := r.stats()
	r.want("stats", [4]int64{s.Cursors, s.Live(), s.Totals.Enqueued, s.Totals.Deleted}, [4]int64{1, 0, 0, 0})
	r.want("claimed", r.drain(), []string{})
}

func cursorDue(r *rig) {
	next := r.now().Add(300 * time.Millisecond)
	r.insert(cursor("cursor.never", time.Time{}), cursor("cursor.c", next))
	c := r.claim(ask(1))
	if c.Now.Before(next.Truncate(time.Microsecond)) {
		r.want("ticks before the moment", ids(c.Ticks), []string{})
		r.passTo(next)
		c = r.claim(ask(1))
	}
	r.want("ticks", ids(c.Ticks), []string{"cursor.c"})
	r.want("tick, beside the cursor read", c.Ticks[0], r.read("cursor.c"))
}

func cursorHidden(r *rig) {
	r.insert(cursor("cursor.c", r.now()))
	first := r.tick()
	handed := r.now()
	c := r.claim(ask(1))
	if c.Now.Before(handed.Add(storage.TickHide / 2)) {
		r.want("ticks while it is hidden", ids(c.Ticks), []string{})
	}
	r.passTo(handed.Add(storage.TickHide))
	again := r.tick()
	r.want("version", again.Version, first.Version)
}

func cursorTick(r *rig) {
	now := r.now()
	r.insert(cursor("cursor.c", now))
	t := r.tick()
	next := now.Add(time.Hour).Truncate(time.Microsecond)
	a := r.apply(ticking(t, next, "a"))
	after := r.is("cursor.c", storage.Cursors)
	r.want("placed", a.Changed[0], storage.Placed{Ref: t.Ref, Version: after.Version, State: storage.Cursors})
	if after.Version <= t.Version {
		r.Fatalf("version: got %d, want more than %d", after.Version, t.Version)
	}
	r.want("Next, Last", [2]bool{after.Cursor.Next.Equal(next), after.Cursor.Last.Equal(t.Cursor.Next)},
		[2]bool{true, true})
	r.take(ask(1), "a")
	r.passTo(now.Add(storage.TickHide))
	r.want("ticks before the next moment", len(r.claim(ask(1)).Ticks), 0)
}

func cursorTickEndsHiding(r *rig) {
	now := r.now()
	r.insert(cursor("cursor.c", now.Add(-time.Hour)))
	for n := range 3 {
		t := r.tick()
		r.apply(ticking(t, now.Add(-time.Minute), fmt.Sprintf("t%d", n)))
	}
	r.want("enqueued", r.stats().Totals.Enqueued, int64(3))
}

func cursorOnce(r *rig) {
	r.insert(cursor("cursor.c", r.now()))
	t := r.tick()
	next := r.now().Add(time.Hour)
	var ticked atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := r.session.ApplyOne(r.ctx, ticking(t, next, fmt.Sprintf("t%d", i)))
			if err == nil {
				ticked.Add(1)
			}
		})
	}
	all.Wait()
	r.want("ticks", ticked.Load(), int64(1))
	s := r.stats()
	r.want("enqueued, cursors", [2]int64{s.Totals.Enqueued, s.Cursors}, [2]int64{1, 1})
	r.want("claimed", len(r.drain()), 1)
}

func cursorStale(r *rig) {
	r.insert(cursor("cursor.c", r.now()))
	t := r.tick()
	tx := ticking(t, r.now().Add(time.Hour), "a")
	tx.Changes[0].Version++
	r.unchanged(func() {
		r.want("stale", r.refuse(tx).Stale, []storage.Stale{{Ref: t.Ref, Want: t.Version + 1, Have: t.Version}})
	}, "cursor.c", "a")
}

func cursorPaused(r *rig) {
	r.insert(cursor("cursor.c", r.now()))
	r.configure(pausing(0))
	t := r.tick()
	r.apply(ticking(t, r.now().Add(time.Hour), "a"))
	r.is("a", storage.Waiting)
}

func cursorBeside(r *rig) {
	r.add("a", "b")
	r.insert(cursor("cursor.c1", r.now()), cursor("cursor.c2", r.now()))
	c := r.claim(ask(1))
	r.want("tasks, ticks", [2]int{len(c.Tasks), len(c.Ticks)}, [2]int{1, 2})
	r.want("pending", r.stats().Pending, int64(1))
}

func cursorBytes(r *rig) {
	task := keyed("a", "task") // of a partition: storages choose such tasks in another way
	task.Payload = make([]byte, 4<<20)
	r.insert(task)
	req := ask(1)
	queues := []string{mainQueue, mainQueue}
	if storage.Spans(r.store, mainQueue, sideQueue) {
		queues[1] = sideQueue
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: sideQueue})
	}
	sizes := []int{5 << 20, 3 << 20, 1 << 20, 1<<20 + 1, 10, 10}
	for i, size := range sizes {
		c := cursor(fmt.Sprintf("cursor.c%d", i), r.now().Add(-time.Second))
		c.Ref.Queue, c.Payload = queues[i%2], make([]byte, size)
		r.insert(c)
	}
	var tasks []string
	for left := len(sizes); left > 0; {
		c := r.claim(req)
		size := 0
		for _, t := range c.Ticks {
			size += len(t.Payload)
			r.apply(storage.Tx{Deletes: []storage.Delete{{Ref: t.Ref, Version: t.Version}}})
		}
		if n := len(c.Ticks); n == 0 || n > 1 && size > storage.MaxClaimBytes {
			r.Fatalf("claim: got %d cursors of %d bytes, want some of at most %d", n, size, storage.MaxClaimBytes)
		}
		tasks, left = append(tasks, ids(c.Tasks)...), left-len(c.Ticks)
		r.want("tasks", tasks, []string{"task"})
		r.want("More", c.More, left > 0)
		// By NextDue a runner without a free slot goes on.
		r.want("due now", !c.NextDue.IsZero() && !c.NextDue.After(c.Now), left > 0)
	}
}

func cursorReplaced(r *rig) {
	now := r.now()
	r.insert(cursor("cursor.c", now.Add(time.Hour)))
	old := r.read("cursor.c")
	later := cursor("cursor.c", now.Add(2*time.Hour))
	later.Kind, later.Priority, later.Cursor.Declaration = "other", 5, "d2"
	tx := storage.Tx{
		Deletes: []storage.Delete{deleting("cursor.c", old.Version+1)},
		Inserts: []storage.Insert{later, job("a")},
	}
	r.unchanged(func() {
		r.want("stale", *r.refuse(tx), storage.DependencyError{
			Stale: []storage.Stale{{Ref: old.Ref, Want: old.Version + 1, Have: old.Version}},
		})
	}, "cursor.c", "a")
	tx.Deletes[0].Version = old.Version
	p := r.apply(tx).Inserted[0]
	t := r.is("cursor.c", storage.Cursors)
	r.want("placed", p, storage.Placed{Ref: old.Ref, Version: t.Version, State: storage.Cursors})
	r.want("version grown", t.Version > old.Version, true)
	r.want("replaced", [3]any{t.Kind, t.Priority, t.Cursor.Declaration}, [3]any{"other", 5, "d2"})
	r.want("Next", t.Cursor.Next.Equal(later.Cursor.Next), true)
	r.is("a", storage.Waiting)
	r.want("cursors", [2]int64{r.stats().Cursors, int64(len(r.list(storage.Cursors)))}, [2]int64{1, 1})
}

func cursorDeleted(r *rig) {
	r.insert(cursor("cursor.c", r.now()))
	version := r.read("cursor.c").Version
	r.unchanged(func() {
		dep := r.refuse(storage.Tx{Deletes: []storage.Delete{{Ref: in("cursor.c"), Version: version + 1}}})
		r.want("stale", len(dep.Stale), 1)
	}, "cursor.c")
	r.delete("cursor.c")
	r.gone("cursor.c")
	r.want("ticks", len(r.claim(ask(1)).Ticks), 0)
	s := r.stats()
	r.want("cursors, deleted", [2]int64{s.Cursors, s.Totals.Deleted}, [2]int64{0, 0})
}

func cursorHoldsQueue(r *rig) {
	r.insert(cursor("cursor.c", time.Time{}))
	err := r.session.Configure(r.ctx, mainQueue, storage.Settings{Remove: true})
	r.wantError("remove", err, storage.ErrNotEmpty)
	r.is("cursor.c", storage.Cursors)
}
