package storage

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"
)

// The functions below are made of the contract's methods. The client, the dashboard, the
// command line and the server all need them.

// tries bounds how often a change is tried if the task moves meanwhile, and how often the
// removal of a queue is tried.
const tries = 10

// RequeueOption alters the change of a requeue. [FromStart] is the only option.
type RequeueOption func(*Change)

// FromStart makes a requeue set [Change].FromStart.
func FromStart() RequeueOption { return func(ch *Change) { ch.FromStart = true } }

// Requeue puts a task into waiting, due now. An ended task starts anew with its
// retries and crashes reset; a task that is scheduled or in retry runs now.
func (s *Session) Requeue(ctx context.Context, ref Ref, opts ...RequeueOption) error {
	return s.ChangeTask(ctx, ref, func(t Task) (Change, error) { return t.Requeued(opts...), nil })
}

// Requeued returns the change that puts the task, at its version, into waiting, due now: an ended task
// starts anew, and any other runs now.
func (t Task) Requeued(opts ...RequeueOption) Change {
	ended := t.State.Ended()
	ch := Change{Ref: t.Ref, Version: t.Version, Requeue: ended, Now: !ended}
	if ch.Now {
		ch.CompleteHeaders(&t)
	}
	for _, o := range opts {
		o(&ch)
	}
	return ch
}

// ChangeTask reads a task and applies the change that alter returns, at the version
// that was read. It begins again, up to ten times, if the task changed meanwhile.
// ChangeTask fills Ref and Version of the change. If alter returns an error, ChangeTask
// changes nothing and returns that error.
func (s *Session) ChangeTask(ctx context.Context, ref Ref, alter func(Task) (Change, error)) error {
	return s.atVersion(ctx, ref, func(t Task) (Tx, error) {
		ch, err := alter(t)
		ch.Ref, ch.Version = t.Ref, t.Version
		return Tx{Changes: []Change{ch}}, err
	})
}

// DeleteTask deletes a task that is not pending, or a cursor.
func (s *Session) DeleteTask(ctx context.Context, ref Ref) error {
	return s.atVersion(ctx, ref, func(t Task) (Tx, error) {
		return Tx{Deletes: []Delete{{Ref: t.Ref, Version: t.Version}}}, nil
	})
}

func (s *Session) atVersion(ctx context.Context, ref Ref, txOf func(Task) (Tx, error)) error {
	if err := CheckRef(ref); err != nil {
		return err
	}
	for try := 1; ; try++ {
		var tx Tx
		t, err := s.store.Task(ctx, ref)
		if err == nil {
			tx, err = txOf(t)
		}
		if err != nil {
			return err
		}
		_, err = s.ApplyOne(ctx, tx)
		var dep *DependencyError
		if errors.As(err, &dep) && len(dep.Stale) > 0 && try < tries {
			continue
		}
		return err
	}
}

// RunSchedule enqueues the task of a cursor now, in addition to its ticks, and returns the
// task's ref. If the schedule's overlap policy is to skip and the task of an earlier tick
// has not ended, it enqueues nothing and returns the ref of that task. The [Task.Tick] of the task
// is the moment of the run, by the storage's clock.
func (s *Session) RunSchedule(ctx context.Context, cursor Ref) (Ref, error) {
	in, err := s.ScheduleInsert(ctx, cursor)
	if err != nil {
		return Ref{}, err
	}
	applied, err := s.ApplyOne(ctx, Tx{Inserts: []Insert{in}})
	if err != nil {
		return Ref{}, err
	}
	return applied.Inserted[0].Ref, nil
}

// ScheduleInsert reads a cursor and returns the insert that RunSchedule would apply. It
// returns an *InvalidError if the ref is not that of a cursor or its declaration is damaged.
func (s *Session) ScheduleInsert(ctx context.Context, cursor Ref) (Insert, error) {
	t, err := s.store.Task(ctx, cursor)
	if err != nil {
		return Insert{}, err
	}
	if t.State != Cursors {
		return Insert{}, Invalid("schedule", cursor.String(), "the ref of a cursor")
	}
	d, err := t.Cursor.Decode()
	if err != nil {
		return Insert{}, err
	}
	now, err := s.sync(ctx)
	if err != nil {
		return Insert{}, err
	}
	return t.TickInsert(NewID(), &d).AtTick(now), nil
}

// TickInsert returns the insert, under an id, that a tick of the cursor t makes, without its moment;
// see [Insert.AtTick]. d is the declaration of t.
func (t Task) TickInsert(id string, d *Declaration) Insert {
	in := Insert{
		Ref: Ref{Queue: t.Queue, ID: id}, Kind: t.Kind, Encoding: t.Encoding, Payload: t.Payload,
		Headers: t.Headers, Priority: t.Priority, MaxRetries: t.MaxRetries, CrashLimit: t.CrashLimit,
		Timeout: t.Timeout, Keep: t.Keep, Partition: t.Partition, Cost: t.Cost,
	}
	if d.Overlap == "skip" {
		in.Unique = Unique{Key: UniqueKey([]byte("schedule"), []byte(t.ID)), Mode: UniqueLife}
		in.OnConflict = Skip
	}
	return in
}

// AtTick returns the insert with the moment of its tick; see [Task.Tick].
func (in Insert) AtTick(at time.Time) Insert {
	headers := make(map[string]string, len(in.Headers)+1)
	maps.Copy(headers, in.Headers)
	headers[TickHeader] = at.UTC().Format(time.RFC3339Nano)
	in.Headers = headers
	return in
}

// Each lists all tasks of a queue in a state, page after page. An error ends the sequence. Tasks
// that move while Each lists may be left out or come twice.
func Each(ctx context.Context, store Reader, queue string, state State) iter.Seq2[Task, error] {
	return pages(func(after string) ([]Task, string, error) {
		page, err := store.Tasks(ctx, TasksQuery{Queue: queue, State: state, Limit: MaxPage, After: after})
		return page.Tasks, page.Next, err
	})
}

// EachOfPartition lists the waiting tasks in the line of a partition, page after page, as [Each] lists tasks.
// Declined tasks stand in the line of their kind.
func EachOfPartition(ctx context.Context, store Reader, queue, key string) iter.Seq2[Task, error] {
	return pages(func(after string) ([]Task, string, error) {
		page, err := store.Tasks(ctx, TasksQuery{
			Queue: queue, State: Waiting, Partition: key, Limit: MaxPage, After: after,
		})
		return page.Tasks, page.Next, err
	})
}

// EachPartition lists the partitions of a queue as Storage.Partitions does, by key, page after page. An
// error ends the sequence.
func EachPartition(ctx context.Context, store Storage, queue string) iter.Seq2[PartitionStats, error] {
	return pages(func(after string) ([]PartitionStats, string, error) {
		page, err := store.Partitions(ctx, PartitionsQuery{Queue: queue, After: after})
		return page.Partitions, page.Next, err
	})
}

// EachQueue lists all queue names with a prefix, page after page. An error ends the sequence.
func EachQueue(ctx context.Context, store Reader, prefix string) iter.Seq2[string, error] {
	return pages(func(after string) ([]string, string, error) {
		page, err := store.Queues(ctx, QueuesQuery{Prefix: prefix, After: after})
		return page.Names, page.Next, err
	})
}

// pages lists the elements that read returns, page after page, until an error or an empty next.
func pages[T any](read func(after string) (page []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := ""; ; {
			page, next, err := read(after)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			after = next
		}
	}
}

// Match chooses tasks; a nil Match chooses all.
type Match func(Task) bool

// unlessRecord chooses the tasks that match chooses, except for the records of midge itself; see
// [RecordKind].
func unlessRecord(match Match) Match {
	return func(t Task) bool { return !RecordKind(t.Kind) && (match == nil || match(t)) }
}

// RequeueAll requeues, as Requeue does, every task of a queue in a state that match
// chooses, and returns how many it requeued. Tasks whose unique key is taken, or that
// moved meanwhile, stay, and so do the records of midge itself; see [RecordKind].
func (s *Session) RequeueAll(
	ctx context.Context, queue string, state State, match Match, opts ...RequeueOption,
) (int, error) {
	return s.bulk(ctx, queue, state, unlessRecord(match), func(t Task) Tx {
		return Tx{Changes: []Change{t.Requeued(opts...)}}
	})
}

// DeleteAll deletes every task of a queue in a state that match chooses, and
// returns how many it deleted. Pending tasks cannot be deleted. The records of midge itself stay; see
// [RecordKind].
func (s *Session) DeleteAll(ctx context.Context, queue string, state State, match Match) (int, error) {
	return s.deleteAll(ctx, queue, state, unlessRecord(match))
}

func (s *Session) deleteAll(ctx context.Context, queue string, state State, match Match) (int, error) {
	return s.bulk(ctx, queue, state, match, func(t Task) Tx {
		return Tx{Deletes: []Delete{{Ref: t.Ref, Version: t.Version}}}
	})
}

// CancelAll cancels every task of a queue in a state that match chooses, and
// returns how many it cancelled or, of pending tasks, asked to stop.
func (s *Session) CancelAll(ctx context.Context, queue string, state State, match Match) (int, error) {
	return s.bulk(ctx, queue, state, match, func(t Task) Tx {
		return Tx{Changes: []Change{{Ref: t.Ref, Cancel: true}}}
	})
}

// bulk applies a Tx to each matching task and returns how many of them succeeded. Changed tasks
// leave the state and so the listing; the listing goes on after the tasks that stayed.
func (s *Session) bulk(
	ctx context.Context, queue string, state State, match Match, tx func(Task) Tx,
) (done int, err error) {
	err = s.ApplyEach(ctx, EachTx{
		Tasks: Each(ctx, s.store, queue, state),
		Tx:    func(t Task) (Tx, bool) { return tx(t), match == nil || match(t) },
		After: func(_ Task, a Applied) {
			if a.Err == nil {
				done++
			}
		},
	})
	return done, err
}

// SetLimit sets the limit of an operator for a queue; the zero Limit lifts the declared limit. SetLimit
// returns an error that is ErrNotFound if there is no such queue: a mistyped name must not make a queue.
func (s *Session) SetLimit(ctx context.Context, queue string, l Limit) error {
	return s.setLimit(ctx, queue, Settings{Limit: &OperatorLimit{On: true, Limit: l}})
}

// ClearLimit clears the limit of an operator, so that the declared limit holds again. If no operator has set
// a limit, it removes the declared limit, unless a live runner declares a limit of the queue. It returns an
// error that is ErrNotFound if there is no such queue.
func (s *Session) ClearLimit(ctx context.Context, queue string) error {
	settings := Settings{Limit: new(OperatorLimit)}
	if err := CheckSettings(queue, &settings); err != nil {
		return err
	}
	stats, err := s.store.Stats(ctx, queue)
	if err != nil {
		return err
	}
	live, err := s.store.Runners(ctx)
	if err != nil {
		return err
	}
	if stats[0].Limit.Forgotten(queue, live) {
		settings.Declared = new(DeclaredLimit)
	}
	return s.setLimit(ctx, queue, settings)
}

// setLimit changes the settings of a queue that exists.
func (s *Session) setLimit(ctx context.Context, queue string, settings Settings) error {
	if err := CheckSettings(queue, &settings); err != nil {
		return err
	}
	page, err := s.store.Queues(ctx, QueuesQuery{Prefix: queue, Limit: 1})
	if err != nil {
		return err
	}
	if !slices.Contains(page.Names, queue) { // the shortest of its prefix is the first
		return noQueueError{}
	}
	return s.Configure(ctx, queue, settings)
}

// RemoveQueue deletes every task and cursor of a queue and then the queue. It returns how many tasks and
// cursors it deleted, even if it fails. It fails with a *[NotEmptyError] if a task is pending at the
// start, in which case it deletes nothing, if a runner claims a task meanwhile, or if new tasks keep
// coming.
func (s *Session) RemoveQueue(ctx context.Context, queue string) (deleted int, err error) {
	if err := s.notPending(ctx, queue); err != nil {
		return 0, err
	}
	for try := 1; ; try++ {
		for _, state := range States() {
			if state == Pending {
				continue
			}
			n, err := s.deleteAll(ctx, queue, state, nil)
			if deleted += n; err != nil {
				return deleted, err
			}
		}
		err := s.Configure(ctx, queue, Settings{Remove: true})
		switch {
		case !errors.Is(err, ErrNotEmpty):
			return deleted, err
		case try == tries:
			return deleted, s.notEmpty(ctx, queue, err)
		}
	}
}

// notPending returns a *NotEmptyError if tasks of the queue are pending.
func (s *Session) notPending(ctx context.Context, queue string) error {
	stats, err := s.store.Stats(ctx, queue)
	if err != nil || stats[0].Pending == 0 {
		return err
	}
	return &NotEmptyError{Queue: queue, Pending: stats[0].Pending}
}

// notEmpty returns a *NotEmptyError with the contents of the queue, or refusal if it cannot read them.
func (s *Session) notEmpty(ctx context.Context, queue string, refusal error) error {
	stats, err := s.store.Stats(ctx, queue)
	if err != nil {
		return refusal
	}
	st := &stats[0]
	return &NotEmptyError{queue, st.Pending, st.Size(States()...) - st.Pending}
}
