package midge

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// Queue looks after the tasks of one queue. [Client.Queue] makes it.
type Queue struct {
	client *Client
	name   string
}

// Queue gives the queue of a name; its methods refuse a name that does not do before
// any I/O. It exists for readers even where it holds nothing.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, name: name} }

// Queues lists the names of all queues that begin with prefix, sorted. It ends after
// an error.
func (c *Client) Queues(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for name, err := range storage.EachQueue(ctx, c.store, prefix) {
			if !yield(name, wrap(err, "list queues")) {
				return
			}
		}
	}
}

// Runners lists the live runners and what they run, by id.
func (c *Client) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	runners, err := c.store.Runners(ctx)
	return runners, wrap(err, "list runners")
}

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// Pause stops runners from claiming tasks of the queue until it is resumed. Tasks that
// run go on; tasks can be enqueued.
func (q *Queue) Pause(ctx context.Context) error {
	return q.configure(ctx, "pause", storage.Settings{Pause: &storage.Pause{On: true}})
}

// PauseFor is Pause for a time; it ends by itself.
func (q *Queue) PauseFor(ctx context.Context, d time.Duration) error {
	if d < storage.MinSpan || d > storage.MaxDelay {
		return q.wrap("pause", storage.Invalid("PauseFor", d, "%v to "+longest, storage.MinSpan))
	}
	return q.configure(ctx, "pause", storage.Settings{Pause: &storage.Pause{On: true, For: d}})
}

// Resume ends a pause.
func (q *Queue) Resume(ctx context.Context) error {
	return q.configure(ctx, "resume", storage.Settings{Pause: &storage.Pause{}})
}

func (q *Queue) configure(ctx context.Context, act string, s storage.Settings) error {
	if err := storage.CheckSettings(q.name, &s); err != nil {
		return q.wrap(act, err)
	}
	return q.wrap(act, q.client.session.Configure(ctx, q.name, s))
}

// Stats gives the queue's sizes by state and its totals, in constant time.
func (q *Queue) Stats(ctx context.Context) (storage.Stats, error) {
	if err := q.check(); err != nil {
		return storage.Stats{}, q.wrap("read stats", err)
	}
	stats, err := q.client.store.Stats(ctx, q.name)
	if err != nil {
		return storage.Stats{}, q.wrap("read stats", err)
	}
	return stats[0], nil
}

// Tasks lists the queue's tasks in a state, in the state's own order, as they are
// while it lists. It ends after an error.
func (q *Queue) Tasks(ctx context.Context, state storage.State) iter.Seq2[storage.Task, error] {
	return func(yield func(storage.Task, error) bool) {
		if err := q.checkState(state); err != nil {
			yield(storage.Task{}, q.wrap("list tasks", err))
			return
		}
		for t, err := range storage.Each(ctx, q.client.store, q.name, state) {
			if !yield(t, q.wrap("list tasks", err)) {
				return
			}
		}
	}
}

// Page is a page of Tasks: after is the Next of the page before, "" for the first one,
// and limit its size, up to 200, where 0 means 50.
func (q *Queue) Page(
	ctx context.Context, state storage.State, after string, limit int,
) (storage.TasksPage, error) {
	if err := q.checkState(state); err != nil {
		return storage.TasksPage{}, q.wrap("list tasks", err)
	}
	if err := checkRange("limit", limit, 0, storage.MaxPage, " tasks, 0 for 50"); err != nil {
		return storage.TasksPage{}, q.wrap("list tasks", err)
	}
	query := storage.TasksQuery{Queue: q.name, State: state, After: after, Limit: limit}
	if err := storage.CheckTasks(&query); err != nil {
		return storage.TasksPage{}, q.wrap("list tasks", err)
	}
	page, err := q.client.store.Tasks(ctx, query)
	return page, q.wrap("list tasks", err)
}

// Requeue makes a task wait for a runner, due now. A task that ended starts anew, with its
// retries and crashes reset. Its history is kept, and the requeue is added to it; its
// checkpoint and its idempotency key stay too, so that a job resumes where it was. A task
// that is scheduled or in retry comes forward.
// [ErrNotFound]; a *[DependencyError] where it runs or its unique key is taken.
func (q *Queue) Requeue(ctx context.Context, id string) error {
	return q.wrap("requeue", q.client.session.Requeue(ctx, q.ref(id)))
}

// RequeueAll requeues the tasks of a state, all but pending, that match accepts, nil
// accepting all, and gives how many. Those whose unique key is taken stay.
func (q *Queue) RequeueAll(
	ctx context.Context, state storage.State, match func(storage.Task) bool,
) (int, error) {
	now, again := storage.Change{Now: true}, storage.Change{Requeue: true}
	may := func(s storage.State) bool { return now.Permitted(s) || again.Permitted(s) }
	return q.all("requeue", state, "requeued", may, func() (int, error) {
		return q.client.session.RequeueAll(ctx, q.name, state, match)
	})
}

// CancelAll cancels the tasks of a state, all but completed and dead, that match accepts,
// nil accepting all, and gives how many were cancelled or, where they run, are about to be.
func (q *Queue) CancelAll(
	ctx context.Context, state storage.State, match func(storage.Task) bool,
) (int, error) {
	cancel := storage.Change{Cancel: true}
	may := cancel.Permitted
	return q.all("cancel", state, "cancelled", may, func() (int, error) {
		return q.client.session.CancelAll(ctx, q.name, state, match)
	})
}

// Delete deletes a task that does not run. [ErrNotFound]; a *[DependencyError] where
// it runs.
func (q *Queue) Delete(ctx context.Context, id string) error {
	return q.wrap("delete", q.client.session.DeleteTask(ctx, q.ref(id)))
}

// DeleteAll deletes the tasks of a state, all but pending, that match accepts, nil
// accepting all, and gives how many.
func (q *Queue) DeleteAll(
	ctx context.Context, state storage.State, match func(storage.Task) bool,
) (int, error) {
	may := func(s storage.State) bool { return s != storage.Pending }
	return q.all("delete", state, "deleted", may, func() (int, error) {
		return q.client.session.DeleteAll(ctx, q.name, state, match)
	})
}

// Remove deletes all tasks and schedules of the queue and then the queue itself, with
// its totals. [ErrNotEmpty] where a task runs or new ones keep coming.
func (q *Queue) Remove(ctx context.Context) error {
	if err := q.check(); err != nil {
		return q.wrap("remove", err)
	}
	return q.wrap("remove", q.client.session.RemoveQueue(ctx, q.name))
}

// Change alters a task that waits for a runner or for its moment. Of the options it
// takes [Priority], [In], [At], [Header] and [To], which moves it to another queue and goes
// with neither In nor At; the others are settled when a task is enqueued. [ErrNotFound]; a
// *[DependencyError] that names the task's state where it runs or has ended.
func (q *Queue) Change(ctx context.Context, id string, opts ...Option) error {
	return q.wrap("change", q.change(ctx, id, nil, opts))
}

// ChangeJob is Change that replaces the parameters by those of job too, which is of
// the task's own kind. A unique key stays that of the old parameters. Of the tasks that have
// ended it takes a dead one, whose moment it cannot change: that stays dead, with its new
// parameters, until [Queue.Requeue].
func (q *Queue) ChangeJob(ctx context.Context, id string, job any, opts ...Option) error {
	d, err := q.client.definitions.of(job)
	if err != nil {
		return q.wrap("change", err)
	}
	payload, err := d.encode(job)
	if err != nil {
		return q.wrap("change", err)
	}
	r := &replacement{kind: d.kind, encoding: string(d.options.Encoding), payload: payload}
	return q.wrap("change", q.change(ctx, id, r, opts))
}

// replacement is new parameters for a task of a kind.
type replacement struct {
	kind, encoding string
	payload        []byte
}

func (q *Queue) change(ctx context.Context, id string, r *replacement, opts []Option) error {
	var c call
	if err := c.read(opts); err != nil {
		return err
	}
	if c.enqueueOnly != "" {
		return storage.Invalid("option "+c.enqueueOnly, "in a change", "Priority, In, At, Header or To")
	}
	if c.queue != nil && c.timed != "" {
		return storage.Invalid("option To", "beside "+c.timed, "one change after the other")
	}
	sample := c.change(storage.Task{}, r)
	sample.Ref, sample.Version = q.ref(id), 1
	limits := storage.Limits{MaxPayload: q.client.maxPayload}
	if err := storage.CheckTxs(limits, []storage.Tx{{Changes: []storage.Change{sample}}}); err != nil {
		return err
	}
	return q.client.session.ChangeTask(ctx, q.ref(id), func(t storage.Task) (storage.Change, error) {
		switch {
		case r != nil && t.Kind != r.kind:
			return storage.Change{}, storage.Invalid("kind", r.kind, "the task's own, %q", t.Kind)
		case r == nil && t.State == storage.Dead: // the storage refuses the others that have ended
			barred := []storage.Barred{{Ref: t.Ref, State: t.State}}
			return storage.Change{}, &storage.DependencyError{Barred: barred}
		}
		return c.change(t, r), nil
	})
}

// change is what the options of a call make of an existing task.
func (c *call) change(t storage.Task, r *replacement) storage.Change {
	ch := storage.Change{Priority: c.priority, Delay: c.delay, At: c.at}
	if c.queue != nil {
		ch.Queue = *c.queue
	}
	if c.timed != "" && c.delay == 0 && c.at.IsZero() {
		ch.Now = true
	}
	if len(c.options.Headers) > 0 {
		ch.Headers = merged(t.Headers, c.options.Headers)
	}
	if r != nil {
		ch.Encoding, ch.Payload = r.encoding, r.payload
	}
	return ch
}

// all does something to the tasks of a state, which are done is the word for then; may tells
// the states in which they can be.
func (q *Queue) all(
	act string, state storage.State, done string, may func(storage.State) bool, do func() (int, error),
) (int, error) {
	if err := q.checkState(state); err != nil {
		return 0, q.wrap(act, err)
	}
	if !may(state) {
		var able []string
		for _, s := range storage.States() {
			if may(s) {
				able = append(able, string(s))
			}
		}
		return 0, q.wrap(act, storage.Invalid("state", string(state),
			"a state whose tasks can be %s: %s", done, strings.Join(able, ", ")))
	}
	n, err := do()
	return n, q.wrap(act, err)
}

func (q *Queue) ref(id string) storage.Ref { return storage.Ref{Queue: q.name, ID: id} }

func (q *Queue) check() error { return storage.CheckName("queue name", q.name) }

// checkState checks the name too.
func (q *Queue) checkState(state storage.State) error {
	if !state.Valid() {
		return storage.Invalid("state", string(state), "one of %v", storage.States())
	}
	return q.check()
}

func (q *Queue) wrap(act string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("midge: %s in queue %q: %w", act, storage.CleanText(q.name, storage.MaxName), err)
}
