package midge_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/storage"
)

// moving moves a task that waits.
type moving struct {
	*bench
	ref midge.Ref
}

// to moves the task by [midge.Client.Change].
func (m *moving) to(queue string, opts ...midge.Option) {
	m.Helper()
	m.moved(queue, m.client.Change(m.Context(), m.ref, append(opts, midge.To(queue))...))
}

// withJob moves the task by [midge.Client.ChangeJob].
func (m *moving) withJob(queue string) {
	m.Helper()
	m.moved(queue, m.client.ChangeJob(m.Context(), m.ref, work{"other"}, midge.To(queue)))
}

// inBulk moves the task as an operator moves many.
func (m *moving) inBulk(queue string) {
	m.Helper()
	got, err := bulk.Run(m.Context(), storage.NewSession(m.store, 0), bulk.Request{
		Action: bulk.Action{Verb: bulk.Move, Queue: queue}, Tasks: []bulk.Target{{Ref: m.ref}},
	})
	if err == nil && got.Done != 1 {
		err = fmt.Errorf("done to %d tasks: %v", got.Done, got.Reasons)
	}
	m.moved(queue, err)
}

func (m *moving) moved(queue string, err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
	m.ref.Queue = queue
}

// headers replaces the headers of the task in the storage.
func (m *moving) headers(all map[string]string) {
	m.Helper()
	err := storage.NewSession(m.store, 0).ChangeTask(m.Context(), m.ref, func(storage.Task) (storage.Change, error) {
		return storage.Change{Headers: all}, nil
	})
	if err != nil {
		m.Fatal(err)
	}
}

// TestAMoveKeepsTheIdempotencyKey moves tasks in every way. Their jobs get the key of the first queue, and their
// own headers.
func TestAMoveKeepsTheIdempotencyKey(t *testing.T) {
	full := map[string]string{"a": strings.Repeat("x", storage.MaxHeaderBytes-1)}
	for name, c := range map[string]struct {
		move    func(m *moving)
		headers map[string]string
		first   string // the queue in the key
	}{
		"not moved":      {func(*moving) {}, nil, "default"},
		"to itself":      {func(m *moving) { m.to("default") }, nil, "default"},
		"moved":          {func(m *moving) { m.to("bulk") }, nil, "default"},
		"with headers":   {func(m *moving) { m.to("bulk") }, map[string]string{"a": "1"}, "default"},
		"full headers":   {func(m *moving) { m.to("bulk"); m.inBulk("slow") }, full, "default"},
		"with a header":  {func(m *moving) { m.to("bulk", midge.Header("b", "2")) }, map[string]string{"b": "2"}, "default"},
		"with a job":     {func(m *moving) { m.withJob("bulk") }, map[string]string{"a": "1"}, "default"},
		"in bulk":        {func(m *moving) { m.inBulk("bulk") }, map[string]string{"a": "1"}, "default"},
		"there and back": {func(m *moving) { m.to("bulk"); m.to("default") }, nil, "default"},
		"twice":          {func(m *moving) { m.inBulk("bulk"); m.to("slow") }, nil, "default"},
		"back in bulk":   {func(m *moving) { m.to("bulk"); m.inBulk("default") }, nil, "default"},
		"and rescheduled": {func(m *moving) {
			m.to("bulk")
			must(m.client.Change(m.Context(), m.ref, midge.At(time.Now())))
		}, nil, "default"},
		"damaged": {func(m *moving) {
			m.to("bulk")
			m.headers(map[string]string{storage.QueueHeader: "a b"})
			m.to("slow")
		}, nil, "bulk"},
		"empty": {func(m *moving) { m.headers(map[string]string{storage.QueueHeader: ""}) }, nil, "default"},
	} {
		bubble(t, func(b *bench) {
			var opts []midge.Option
			for name, value := range c.headers {
				opts = append(opts, midge.Header(name, value))
			}
			task := b.enqueue("a", append(opts, midge.In(time.Minute))...)
			created := b.task(task.Ref).Created
			c.move(&moving{b, task.Ref})
			var run midge.RunInfo
			b.run(midge.RunnerConfig{Queues: []string{"default", "bulk", "slow"}}, func(ctx context.Context, _ work) error {
				run, _ = midge.Current(ctx)
				return nil
			})
			b.after(2 * time.Minute)
			want := fmt.Sprintf("%s/%s@%d", c.first, task.ID, created.UnixMicro())
			if run.IdempotencyKey != want {
				t.Errorf("%s: the key is %q, want %q", name, run.IdempotencyKey, want)
			}
			own := maps.Clone(run.Headers)
			maps.DeleteFunc(own, func(name, _ string) bool { return strings.HasPrefix(name, "midge.") })
			if !maps.Equal(own, c.headers) {
				t.Errorf("%s: the headers are %.200v, want %.200v", name, own, c.headers)
			}
		})
	}
}

// TestANewMomentReplacesTheOld sets other moments of tasks, alone and in bulk. Their jobs see the new moment,
// or none if the new one is a delay or now.
func TestANewMomentReplacesTheOld(t *testing.T) {
	full := midge.Header("a", strings.Repeat("x", storage.MaxHeaderBytes-1))
	for name, change := range map[string]func(m *moving, at time.Time) error{
		"alone": func(m *moving, at time.Time) error {
			if at.IsZero() {
				return m.client.Change(m.Context(), m.ref, midge.In(0))
			}
			return m.client.Change(m.Context(), m.ref, midge.At(at))
		},
		"in bulk": func(m *moving, at time.Time) error {
			_, err := bulk.Run(m.Context(), storage.NewSession(m.store, 0), bulk.Request{
				Action: bulk.Action{Verb: bulk.Reschedule, At: at}, Tasks: []bulk.Target{{Ref: m.ref}},
			})
			return err
		},
		"with an edit": func(m *moving, at time.Time) error {
			_, err := bulk.Run(m.Context(), storage.NewSession(m.store, 0), bulk.Request{
				Action: bulk.Action{Verb: bulk.Edit, Rescheduled: true, At: at, Params: []byte(`{"Name":"b"}`)},
				Tasks:  []bulk.Target{{Ref: m.ref}},
			})
			return err
		},
	} {
		for _, in := range []time.Duration{0, time.Minute} {
			bubble(t, func(b *bench) {
				task := b.enqueue("a", midge.In(time.Hour), full)
				b.after(time.Second)
				var at time.Time // now
				if in > 0 {
					at = time.Now().Add(in).UTC()
				}
				if err := change(&moving{b, task.Ref}, at); err != nil {
					t.Fatal(err)
				}
				if run := b.next(); !run.Due.Equal(at) {
					t.Errorf("%s in %v: the job sees that it was due at %v, want %v", name, in, run.Due, at)
				}
			})
		}
	}
}

// TestARunNowReplacesTheMoment requeues tasks that are due later.
func TestARunNowReplacesTheMoment(t *testing.T) {
	for name, requeue := range map[string]func(m *moving) error{
		"alone": func(m *moving) error { return m.client.Requeue(m.Context(), m.ref) },
		"all": func(m *moving) error {
			_, err := m.client.Queue("default").RequeueAll(m.Context(), midge.Scheduled, nil)
			return err
		},
		"in bulk": func(m *moving) error {
			_, err := bulk.Run(m.Context(), storage.NewSession(m.store, 0), bulk.Request{
				Action: bulk.Action{Verb: bulk.Requeue}, Tasks: []bulk.Target{{Ref: m.ref}},
			})
			return err
		},
		"with an edit": func(m *moving) error {
			_, err := bulk.Run(m.Context(), storage.NewSession(m.store, 0), bulk.Request{
				Action: bulk.Action{Verb: bulk.Edit, Requeue: true, Params: []byte(`{"Name":"b"}`)},
				Tasks:  []bulk.Target{{Ref: m.ref}},
			})
			return err
		},
	} {
		bubble(t, func(b *bench) {
			task := b.enqueue("a", midge.In(time.Hour), midge.Header("a", "b"))
			must(requeue(&moving{b, task.Ref}))
			if run := b.next(); run.Ref != task.Ref || !run.Due.IsZero() || run.Headers["a"] != "b" {
				t.Errorf("%s: the job sees that it was due at %v, want no moment", name, run.Due)
			}
		})
	}
}

// next returns the RunInfo of the next job that runs within two minutes.
func (b *bench) next() (run midge.RunInfo) {
	b.run(midge.RunnerConfig{}, func(ctx context.Context, _ work) error { run, _ = midge.Current(ctx); return nil })
	b.after(2 * time.Minute)
	return run
}

// TestADelayOfATaskIsNoMoment delays tasks that were enqueued to run at once, or by a schedule. When they become due
// the storage alone knows, and so the creation or the tick is not shown instead. A moment replaces a tick.
func TestADelayOfATaskIsNoMoment(t *testing.T) {
	for name, tick := range map[string]bool{"at once": false, "by a schedule": true} {
		for _, delay := range []bool{true, false} {
			bubble(t, func(b *bench) {
				var opts []midge.Option
				begun := time.Now().UTC()
				ref := b.enqueue("a", opts...).Ref
				if tick {
					(&moving{b, ref}).headers(map[string]string{storage.TickHeader: begun.Format(time.RFC3339Nano)})
				}
				want, opt := time.Time{}, midge.In(time.Minute)
				if !delay {
					want = begun.Add(time.Minute)
					opt = midge.At(want)
				}
				must(b.client.Change(b.ctx, ref, opt))
				if run := b.next(); !run.Due.Equal(want) || run.Tick.IsZero() == tick {
					t.Errorf("%s, delay %v: due at %v and tick %v, want due at %v", name, delay, run.Due, run.Tick, want)
				}
			})
		}
	}
}

// TestAnAddedOrRestoredTaskWasDueAtItsMoment adds tasks for later as an operator does, and brings one back.
func TestAnAddedOrRestoredTaskWasDueAtItsMoment(t *testing.T) {
	at := func(begun time.Time) time.Time { return begun.Add(time.Minute) }
	add := bulk.Add{
		Ref: ref("default", "1"), Kind: "work", Encoding: "json", Params: []byte(`{"Name":"a"}`), CrashLimit: 1,
	}
	for name, insert := range map[string]func(begun time.Time) (storage.Insert, error){
		"in": func(time.Time) (storage.Insert, error) { a := add; a.In = time.Minute; return a.Insert() },
		"at": func(begun time.Time) (storage.Insert, error) { a := add; a.At = at(begun); return a.Insert() },
		"back": func(begun time.Time) (storage.Insert, error) {
			in, err := add.Insert()
			must(err)
			return bulk.RecordOf(storage.Task{
				Ref: in.Ref, Kind: in.Kind, Encoding: in.Encoding, Payload: in.Payload, CrashLimit: 1,
				Headers: map[string]string{storage.DueHeader: "1s"}, State: storage.Scheduled, Due: at(begun),
			}).Insert()
		},
	} {
		bubble(t, func(b *bench) {
			begun := time.Now().UTC()
			in, err := insert(begun)
			must(err)
			must1(storage.NewSession(b.store, 0).ApplyOne(b.ctx, storage.Tx{Inserts: []storage.Insert{in}}))
			if run := b.next(); !run.Due.Truncate(time.Millisecond).Equal(at(begun)) {
				t.Errorf("%s: the job sees that it was due at %v, want %v", name, run.Due, at(begun))
			}
		})
	}
}

// TestARestoredTaskWasDueAtItsMoment restores tasks of all states. The moment in midge.due counted from the creation
// that the backup names, and not from the restore.
func TestARestoredTaskWasDueAtItsMoment(t *testing.T) {
	for _, state := range []storage.State{
		storage.Scheduled, storage.Retry, storage.Waiting, storage.Pending, storage.Dead, storage.Completed,
		storage.Cancelled,
	} {
		for _, text := range []string{"", "1h0m0s", "unknown", "2020-01-02T03:04:05Z"} {
			for _, dated := range []bool{true, false} {
				bubble(t, func(b *bench) { b.restores(t, state, text, dated) })
			}
		}
	}
}

// restores restores a task with a text in midge.due, "" for no such header, and whose creation is known if it is dated.
func (b *bench) restores(t *testing.T, state storage.State, text string, dated bool) {
	t.Helper()
	begun := time.Now().UTC()
	task := storage.Task{
		Ref: ref("default", "1"), Kind: "work", Encoding: "json", Payload: []byte(`{"Name":"a"}`), CrashLimit: 1,
		Headers: map[string]string{"a": "b"}, State: state, Due: begun.Add(time.Minute),
	}
	want := time.Time{}
	switch {
	case state.Timed():
		want = task.Due
	case text == "":
		want = begun
	case text == "1h0m0s" && dated:
		want = begun.Add(-time.Hour)
	case text != "1h0m0s" && text != "unknown":
		want = must1(time.Parse(time.RFC3339, text))
	}
	if text != "" {
		task.Headers[storage.DueHeader] = text
	}
	if dated {
		task.Created = begun.Add(-2 * time.Hour)
	}
	in := must1(bulk.RecordOf(task).Insert())
	must1(storage.NewSession(b.store, 0).ApplyOne(b.ctx, storage.Tx{Inserts: []storage.Insert{in}}))
	if run := b.next(); run.Ref.ID != "1" || !run.Due.Truncate(time.Millisecond).Equal(want) {
		t.Errorf("%s, %q, created known %v: was due at %v, want %v", state, text, dated, run.Due, want)
	}
	if task.Headers[storage.DueHeader] != text {
		t.Errorf("%s, %q: the record itself changed", state, text)
	}
}
