package midge

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// Queue is a handle on one queue and its tasks. [Client.Queue] makes it.
type Queue struct {
	client *Client
	name   string
}

// Queue returns the queue with a name; its methods refuse an invalid name before any I/O. Methods
// that read work even if the queue does not exist.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, name: name} }

// Queues lists the names of all queues that begin with prefix, sorted, except for midge's own
// queues, whose names begin with "midge.". The iteration ends after an error.
func (c *Client) Queues(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for name, err := range storage.EachQueue(ctx, c.reader(), prefix) {
			if err == nil && storage.Reserved(name) {
				continue
			}
			if !yield(name, wrap(err, "list queues")) {
				return
			}
		}
	}
}

// Runners returns the live runners and what they run, sorted by id.
func (c *Client) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	runners, err := c.store.Runners(ctx)
	return runners, wrap(err, "list runners")
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Create makes the queue exist before its first task comes, so that it is listed and can be paused.
// If the queue exists, nothing changes. A queue that is empty, not paused, and untouched for a day
// is removed by itself.
func (q *Queue) Create(ctx context.Context) error {
	err := q.checkOwn()
	if err == nil {
		err = q.client.session.Configure(ctx, q.name, storage.Settings{Create: true})
	}
	return q.wrap("create", err)
}

// Pause stops runners from claiming tasks of the queue until [Queue.Resume]. Running tasks go on,
// and tasks can still be enqueued. It returns [ErrNotFound] if there is no such queue; see
// [Queue.Create].
func (q *Queue) Pause(ctx context.Context) error {
	return q.wrap("pause", q.pause(ctx, storage.Settings{Pause: &storage.Pause{On: true}}))
}

// PauseFor is [Queue.Pause] for d, a millisecond at least; the pause ends by itself.
func (q *Queue) PauseFor(ctx context.Context, d time.Duration) error {
	p, err := pauseOf(d)
	if err == nil {
		err = q.pause(ctx, storage.Settings{Pause: p})
	}
	return q.wrap("pause", err)
}

// Resume ends a pause. It returns [ErrNotFound] if there is no such queue.
func (q *Queue) Resume(ctx context.Context) error {
	return q.wrap("resume", q.pause(ctx, storage.Settings{Pause: new(storage.Pause)}))
}

// pauseOf returns a pause for d.
func pauseOf(d time.Duration) (*storage.Pause, error) {
	if d < storage.MinSpan || d > storage.MaxDelay {
		return nil, storage.Invalid("PauseFor", d, "%v to "+longest, storage.MinSpan)
	}
	return &storage.Pause{On: true, For: d}, nil
}

// pause pauses or resumes an existing queue, or a partition of it, whose own limit it may change instead. A
// mistyped name is an error and must not make a queue.
func (q *Queue) pause(ctx context.Context, s storage.Settings) error {
	if err := q.checkOwn(); err != nil {
		return err
	}
	if err := storage.CheckSettings(q.name, &s); err != nil {
		return err
	}
	page, err := q.client.store.Queues(ctx, storage.QueuesQuery{Prefix: q.name, Limit: 1})
	if err != nil {
		return err
	}
	if !slices.Contains(page.Names, q.name) { // the shortest of its prefix is the first
		return errNoQueue
	}
	return q.client.session.Configure(ctx, q.name, s)
}

// Stats are a queue's numbers of tasks by state and its totals.
type Stats = storage.Stats

// Stats returns the queue's numbers of tasks by state and its totals, in constant time.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	if err := q.check(); err != nil {
		return Stats{}, q.wrap("read stats of", err)
	}
	stats, err := q.client.store.Stats(ctx, q.name)
	if err != nil {
		return Stats{}, q.wrap("read stats of", err)
	}
	return stats[0], nil
}

// Stats returns the numbers of tasks by state and the totals of the named queues, in that order, or
// of all queues of [Client.Queues] if none is named. A queue that does not exist has zeros.
func (c *Client) Stats(ctx context.Context, queues ...string) ([]Stats, error) {
	for _, name := range queues {
		if err := storage.CheckName("queue name", name); err != nil {
			return nil, wrap(err, "read stats")
		}
	}
	if len(queues) == 0 {
		for name, err := range c.Queues(ctx, "") {
			if err != nil {
				return nil, wrap(err, "read stats")
			}
			queues = append(queues, name)
		}
	}
	all := make([]Stats, 0, len(queues))
	for part := range slices.Chunk(queues, storage.MaxNames) {
		stats, err := c.store.Stats(ctx, part...)
		if err != nil {
			return nil, wrap(err, "read stats")
		}
		all = append(all, stats...)
	}
	return all, nil
}

// Tasks lists the queue's tasks in a state, in the order of that state. It reads page by page, so
// that tasks may change meanwhile. The iteration ends after an error.
func (q *Queue) Tasks(ctx context.Context, state State) iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		if err := q.checkState(state); err != nil {
			yield(Task{}, q.wrap("list tasks of", err))
			return
		}
		for t, err := range storage.Each(ctx, q.client.reader(), q.name, state) {
			if !yield(t, q.wrap("list tasks of", err)) {
				return
			}
		}
	}
}

// Page returns one page of Tasks. after is the Next of the previous page, "" for the first page.
// limit is the size of the page, up to 200; 0 means 50.
func (q *Queue) Page(
	ctx context.Context, state State, after string, limit int,
) (storage.TasksPage, error) {
	if err := q.checkState(state); err != nil {
		return storage.TasksPage{}, q.wrap("list tasks of", err)
	}
	if err := checkRange("limit", limit, 0, storage.MaxPage, " tasks, 0 for 50"); err != nil {
		return storage.TasksPage{}, q.wrap("list tasks of", err)
	}
	query := storage.TasksQuery{Queue: q.name, State: state, After: after, Limit: limit}
	if err := storage.CheckTasks(&query); err != nil {
		return storage.TasksPage{}, q.wrap("list tasks of", err)
	}
	page, err := q.client.reader().Tasks(ctx, query)
	return page, q.wrap("list tasks of", err)
}

// RequeueAll requeues the tasks in a state that match accepts, as [Client.Requeue] does, and returns
// how many. A nil match accepts all tasks. state is any but pending. Tasks whose unique key is taken
// stay as they are, and so do the tasks that record how far "midge load" has loaded a file, and "midge
// import" a queue.
func (q *Queue) RequeueAll(
	ctx context.Context, state State, match func(Task) bool, opts ...RequeueOption,
) (int, error) {
	if err := checkRequeue(opts); err != nil {
		return 0, q.wrap("requeue in", err)
	}
	now, again := storage.Change{Now: true}, storage.Change{Requeue: true}
	may := func(s State) bool { return now.Permitted(s) || again.Permitted(s) }
	return q.all("requeue in", state, "requeued", may, func() (int, error) {
		return q.client.session.RequeueAll(ctx, q.name, state, match, opts...)
	})
}

// CancelAll cancels the tasks in a state that match accepts, and returns how many are cancelled or,
// if they run, about to be. A nil match accepts all tasks. state is any but completed and dead.
func (q *Queue) CancelAll(
	ctx context.Context, state State, match func(Task) bool,
) (int, error) {
	cancel := storage.Change{Cancel: true}
	may := cancel.Permitted
	return q.all("cancel in", state, "cancelled", may, func() (int, error) {
		return q.client.session.CancelAll(ctx, q.name, state, match)
	})
}

// DeleteAll deletes the tasks in a state that match accepts, and returns how many. A nil match
// accepts all tasks. state is any but pending. The tasks that record how far "midge load" has loaded a
// file, and "midge import" a queue, stay: only [Client.Delete] and [Queue.Remove] delete them.
func (q *Queue) DeleteAll(
	ctx context.Context, state State, match func(Task) bool,
) (int, error) {
	may := func(s State) bool { return s != storage.Pending }
	return q.all("delete in", state, "deleted", may, func() (int, error) {
		return q.client.session.DeleteAll(ctx, q.name, state, match)
	})
}

// Remove deletes all tasks and schedules of the queue and then the queue itself, with its totals.
// It returns [ErrNotEmpty] if a task runs, before it deletes anything, or if a task starts or
// new tasks keep coming meanwhile; a *[storage.NotEmptyError] names the cause.
func (q *Queue) Remove(ctx context.Context) error {
	if err := q.checkOwn(); err != nil {
		return q.wrap("remove", err)
	}
	_, err := q.client.session.RemoveQueue(ctx, q.name)
	return q.wrap("remove", err)
}

// all calls do for the tasks in a state. may reports whether a state permits the action; done is
// its past participle, for the error.
func (q *Queue) all(
	action string, state State, done string, may func(State) bool, do func() (int, error),
) (int, error) {
	err := q.checkState(state)
	if err == nil {
		err = q.checkOwn()
	}
	if err != nil {
		return 0, q.wrap(action, err)
	}
	if !may(state) {
		var able []string
		for _, s := range storage.TaskStates() {
			if may(s) {
				able = append(able, string(s))
			}
		}
		return 0, q.wrap(action, storage.Invalid("state", string(state),
			"a state whose tasks can be %s: %s", done, strings.Join(able, ", ")))
	}
	n, err := do()
	return n, q.wrap(action, err)
}

// errNoQueue is an ErrNotFound about a queue.
var errNoQueue = &notFoundError{"there is no such queue"}

func (q *Queue) ref(id string) Ref { return Ref{Queue: q.name, ID: id} }

func (q *Queue) check() error { return storage.CheckName("queue name", q.name) }

// checkOwn checks that the application may change the queue.
func (q *Queue) checkOwn() error { return checkQueue("queue name", q.name) }

// checkState checks the state, and the name of the queue.
func (q *Queue) checkState(state State) error {
	if !state.Valid() {
		return storage.Invalid("state", string(state), "one of %v", storage.TaskStates())
	}
	return q.check()
}

// wrap adds action and the queue's name to err. It leaves out an invalid name, which err quotes.
func (q *Queue) wrap(action string, err error) error {
	if q.check() != nil {
		return about(err, action, "queue")
	}
	return about(err, action+" queue", q.name)
}
