package midge_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// untouched is a storage that must not be called: each call would use a nil pointer.
type untouched struct{ storage.Storage }

type secretive struct{ hidden int } //nolint:unused // the test is that it is not stored

type unencodable struct{ Do func() }

// Each error in the arguments of a call is found before any I/O.
func TestBadInputIsFoundBeforeAnyIO(t *testing.T) {
	c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 129)
	enqueue := func(job any, opts ...midge.Option) error {
		_, err := c.Enqueue(t.Context(), job, opts...)
		return err
	}
	in := func(d time.Duration) error {
		_, err := c.EnqueueIn(t.Context(), d, work{})
		return err
	}
	for name, err := range map[string]error{
		"a payload over the limit": enqueue(work{strings.Repeat("x", 1<<20)}),
		"a nil job":                enqueue(nil),
		"a nil pointer":            enqueue((*work)(nil)),
		"nothing exported":         enqueue(secretive{}),
		"no struct":                enqueue(7),
		"an empty queue":           enqueue(work{}, midge.To("")),
		"an overlong queue":        enqueue(work{}, midge.To(long)),
		"an empty id":              enqueue(work{}, midge.ID("")),
		"an overlong id":           enqueue(work{}, midge.ID(long)),
		"the id of a cursor":       enqueue(work{}, midge.ID("cursor.x")),
		"a priority of 10":         enqueue(work{}, midge.Priority(10)),
		"a priority of -10":        enqueue(work{}, midge.Priority(-10)),
		"retries of -2":            enqueue(work{}, midge.Retries(-2)),
		"a negative timeout":       enqueue(work{}, midge.Timeout(-time.Second)),
		"a negative keep":          enqueue(work{}, midge.KeepFor(-time.Second)),
		"a negative delay":         in(-time.Second),
		"an endless delay":         in(math.MaxInt64),
		"two moments":              enqueue(work{}, midge.In(time.Second), midge.At(time.Now())),
		"a moment too far":         enqueue(work{}, midge.At(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC))),
		"no moment":                enqueue(work{}, midge.At(time.Time{})),
		"an empty header":          enqueue(work{}, midge.Header("", "x")),
		"a header of midge's own":  enqueue(work{}, midge.Header("midge.backoff", "x")),
		"headers too large":        enqueue(work{}, midge.Header("a", strings.Repeat("x", 1<<17))),
		"a nil option":             enqueue(work{}, nil),
		"a bad backoff":            enqueue(work{}, midge.Geometric{Factor: 0.5}),
		"unique by no field":       enqueue(work{}, midge.Unique{By: []string{"Other"}}),
		"a short window":           enqueue(work{}, midge.Unique{For: 1}),
		"unique in two ways":       enqueue(work{}, midge.Unique{By: []string{"Name"}, Key: "x"}),
		"cancel of nothing":        second(c.Cancel(t.Context(), ref("", ""))),
		"a task of nothing":        second(c.Task(t.Context(), ref("a", ""))),
		"await of nothing":         c.Await(t.Context(), ref("a b", "1"), nil),
		"await into a value":       c.Await(t.Context(), ref("a", "1"), 7),
		"await into a nil pointer": c.Await(t.Context(), ref("a", "1"), (*int)(nil)),
		"repeat of nothing":        second(c.Repeat(t.Context(), errors.New("x"))),
		"no store":                 second(midge.NewClient(nil, midge.ClientConfig{})),
		"a limit of -1":            second(midge.NewClient(untouched{}, midge.ClientConfig{MaxPayload: -1})),
		"a limit of 1 GiB":         second(midge.NewClient(untouched{}, midge.ClientConfig{MaxPayload: 1 << 30})),
		"an item":                  second(c.EnqueueMany(t.Context(), []midge.Item{midge.New(nil), {}})),
	} {
		if _, ok := errors.AsType[*midge.InvalidError](err); !ok {
			t.Errorf("%s: got %v, want an *InvalidError", name, err)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%s: the error is %d bytes long", name, len(err.Error()))
		}
	}
	if err := enqueue(unencodable{func() {}}); err == nil {
		t.Error("a function as a parameter: got no error")
	}
}

func second[T any](_ T, err error) error { return err }

func newClient(t *testing.T, store storage.Storage) *midge.Client {
	t.Helper()
	c, err := midge.NewClient(store, midge.ClientConfig{Patience: midge.None})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func openMemory(t *testing.T) storage.Storage {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func TestEnqueueGivesTheTask(t *testing.T) {
	c := newClient(t, openMemory(t))
	task, err := c.Enqueue(t.Context(), &work{"a"}, midge.To("mail"), midge.Priority(3), midge.Header("trace", "7"), midge.ID("w-1"))
	if err != nil {
		t.Fatal(err)
	}
	if task.String() != "mail/w-1" || task.State != storage.Waiting || task.Existing || task.Priority != 3 ||
		task.Kind != "work" || task.Version < 1 || task.MaxRetries != 20 || task.CrashLimit != 3 {
		t.Errorf("got %+v", task)
	}
	stored, err := c.Task(t.Context(), task.Ref)
	if err != nil || stored.Version != task.Version || string(stored.Payload) != string(task.Payload) || stored.Headers["trace"] != "7" {
		t.Errorf("got %+v, %v; want what was enqueued", stored, err)
	}
}

func TestEnqueueUnderALivingID(t *testing.T) {
	c := newClient(t, openMemory(t))
	first, err := c.Enqueue(t.Context(), work{"a"}, midge.ID("x"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Enqueue(t.Context(), work{"a"}, midge.ID("x"))
	if err != nil || !again.Existing || again.Ref != first.Ref || again.Version != first.Version {
		t.Errorf("got %+v, %v; want the existing task", again, err)
	}
	_, err = c.Enqueue(t.Context(), work{"b"}, midge.ID("x"))
	var collision *midge.DependencyError
	if !errors.As(err, &collision) || len(collision.Colliding) != 1 || collision.Colliding[0].Unique {
		t.Errorf("got %v, want a collision of the id", err)
	}
	of := func(name string) midge.Item { return midge.New(work{name}, midge.ID("x")) }
	results, err := c.EnqueueMany(t.Context(), []midge.Item{of("a"), of("b"), of("c")})
	const want = "midge: 2 of 3 items were refused, items[1]: enqueue work: default/x: another task has this id: " +
		"it is waiting, of the same kind with other parameters"
	if err == nil || err.Error() != want || !errors.As(results[2].Err, &collision) {
		t.Errorf("got %v and %v,\nwant %s", err, results[2].Err, want)
	}
}

// A repeat after success must not fail, and an enqueue that will never run must not seem to be a success.
func TestEnqueueUnderAnEndedID(t *testing.T) {
	bubble(t, func(b *bench) {
		b.run(midge.RunnerConfig{}, func(_ context.Context, w work) error {
			if w.Name == "dead" {
				return midge.Discard(errors.New("boom"))
			}
			return nil
		})
		of := func(name string) (work, []midge.Option) {
			return work{name}, []midge.Option{midge.ID(name), midge.KeepFor(time.Hour), midge.In(map[bool]time.Duration{true: time.Hour}[name == "cancelled"])}
		}
		var items []midge.Item
		for _, name := range []string{"completed", "dead", "cancelled"} {
			job, opts := of(name)
			b.enqueue(name, opts...)
			items = append(items, midge.New(job, opts...))
		}
		b.after(time.Second)
		if _, err := b.client.Cancel(b.ctx, storage.Ref{Queue: midge.DefaultQueue, ID: "cancelled"}); err != nil {
			t.Fatal(err)
		}
		lossy, err := midge.NewClient(&counted{Storage: b.store, lose: 1}, midge.ClientConfig{Patience: midge.None})
		if err != nil {
			t.Fatal(err)
		}
		_, unknown := lossy.EnqueueMany(b.ctx, items)
		repeated, err := lossy.Repeat(b.ctx, unknown)
		if err != nil {
			t.Fatal(err)
		}
		many, err := b.client.EnqueueMany(b.ctx, items)
		if !errors.Is(err, midge.ErrExists) || !strings.Contains(err.Error(), "2 of 3 items were refused, items[1]") {
			t.Errorf("the whole: got %v, want ErrExists of two", err)
		}
		for i, name := range []string{"completed", "dead", "cancelled"} {
			job, opts := of(name)
			task, err := b.client.Enqueue(b.ctx, job, opts...)
			for _, got := range []midge.Result{{Task: task, Err: err}, many[i], repeated[i]} {
				wantsExisting(t, name, got)
			}
		}
	})
}

// wantsExisting checks the result of an enqueue under the id of a task that ended in a state.
func wantsExisting(t *testing.T, state string, got midge.Result) {
	t.Helper()
	if got.Task.ID != state || string(got.Task.State) != state || !got.Task.Existing {
		t.Errorf("%s: got %+v, want the existing task", state, got.Task)
	}
	if state == "completed" {
		if got.Err != nil {
			t.Errorf("%s: got %v, want no error", state, got.Err)
		}
	} else if !errors.Is(got.Err, midge.ErrExists) || !strings.Contains(got.Err.Error(), "default/"+state+" is "+state) {
		t.Errorf("%s: got %v, want ErrExists with the task and its state", state, got.Err)
	}
}

// A window keeps equal tasks out, however the first task ended.
func TestAWindowIsNoErrExists(t *testing.T) {
	bubble(t, func(b *bench) {
		first := b.enqueue("a", midge.Unique{For: time.Hour}, midge.KeepFor(time.Hour))
		if _, err := b.client.Cancel(b.ctx, first.Ref); err != nil {
			t.Fatal(err)
		}
		if again := b.enqueue("a", midge.Unique{For: time.Hour}); !again.Existing || again.State != storage.Cancelled {
			t.Errorf("got %+v, want the cancelled task", again)
		}
	})
}

func TestEnqueueDue(t *testing.T) {
	bubble(t, func(b *bench) {
		now := time.Now()
		for name, c := range map[string]struct {
			enqueue func() (midge.Task, error)
			state   storage.State
			due     time.Time
		}{
			"in":       {func() (midge.Task, error) { return b.client.EnqueueIn(b.ctx, time.Hour, work{}) }, storage.Scheduled, now.Add(time.Hour)},
			"in 0":     {func() (midge.Task, error) { return b.client.EnqueueIn(b.ctx, 0, work{}) }, storage.Waiting, time.Time{}},
			"at":       {func() (midge.Task, error) { return b.client.EnqueueAt(b.ctx, now.Add(time.Hour), work{}) }, storage.Scheduled, now.Add(time.Hour)},
			"in 1 ns":  {func() (midge.Task, error) { return b.client.EnqueueIn(b.ctx, 1, work{}) }, storage.Scheduled, now.Add(time.Microsecond)},
			"at, ns":   {func() (midge.Task, error) { return b.client.EnqueueAt(b.ctx, now.Add(time.Hour+1), work{}) }, storage.Scheduled, now.Add(time.Hour + time.Microsecond)},
			"the past": {func() (midge.Task, error) { return b.client.EnqueueAt(b.ctx, now.Add(-time.Hour), work{}) }, storage.Waiting, time.Time{}},
		} {
			task, err := c.enqueue()
			if err != nil || task.State != c.state {
				t.Errorf("%s: got %s, %v; want %s", name, task.State, err, c.state)
				continue
			}
			// Each step advances the storage's clock by a microsecond at least.
			if due := b.task(task.Ref).Due; due.Before(c.due) || due.Sub(c.due) > 20*time.Microsecond {
				t.Errorf("%s: due at %v, want %v and never before", name, due, c.due)
			}
		}
	})
}

func TestUniqueEnqueuedByManyIsOneTask(t *testing.T) {
	store := openMemory(t)
	var (
		callers sync.WaitGroup
		mu      sync.Mutex
		refs    = make(map[storage.Ref]int)
		made    int
	)
	for range 2 {
		c := newClient(t, store)
		for range 100 {
			callers.Go(func() {
				task, err := c.Enqueue(t.Context(), work{"once"}, midge.Unique{})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				refs[task.Ref]++
				if !task.Existing {
					made++
				}
			})
		}
	}
	callers.Wait()
	if made != 1 || len(refs) != 1 {
		t.Errorf("got %d tasks made under %d refs, want one", made, len(refs))
	}
}

func TestUniqueModesAndRefusal(t *testing.T) {
	bubble(t, func(b *bench) {
		life := b.enqueue("a", midge.Unique{})
		window := b.enqueue("a", midge.Unique{For: time.Hour})
		if window.Existing {
			t.Error("a window was kept out by a life")
		}
		_, err := b.client.Enqueue(b.ctx, work{"a"}, midge.Unique{Refuse: true})
		var taken *midge.DependencyError
		if !errors.As(err, &taken) || len(taken.Colliding) != 1 || taken.Colliding[0].Holder != life.Ref || !taken.Colliding[0].Unique {
			t.Errorf("got %v, want a collision with %s", err, life.Ref)
		}
		if other := b.enqueue("b", midge.Unique{}); other.Existing {
			t.Error("other parameters were kept out")
		}
		for _, ref := range []storage.Ref{life.Ref, window.Ref} {
			if _, err := b.client.Cancel(b.ctx, ref); err != nil {
				t.Fatal(err)
			}
		}
		if again := b.enqueue("a", midge.Unique{}); again.Existing {
			t.Error("the key of a life outlived its task")
		}
		if again := b.enqueue("a", midge.Unique{For: time.Hour}); !again.Existing {
			t.Error("the key of a window went with its task")
		}
		b.after(time.Hour + time.Millisecond)
		if again := b.enqueue("a", midge.Unique{For: time.Hour}); again.Existing {
			t.Error("the key of a window outlived it")
		}
	})
}

// counted counts the calls of Apply and can lose the reply of one.
type counted struct {
	storage.Storage
	calls, txs int
	lose       int // number of the call whose reply is lost, from 1
	fail       error
}

func (c *counted) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	c.calls++
	c.txs = max(c.txs, len(txs))
	if c.calls == c.lose && c.fail != nil {
		return nil, c.fail
	}
	applied, err := c.Storage.Apply(ctx, call, txs...)
	if err == nil && c.calls == c.lose {
		return nil, fmt.Errorf("the line was cut: %w", storage.ErrUnknown)
	}
	return applied, err
}

func items(n int) (items []midge.Item) {
	for i := range n {
		items = append(items, midge.New(work{fmt.Sprint(i)}, midge.ID(fmt.Sprint("w-", i))))
	}
	return items
}

func TestEnqueueManyInChunks(t *testing.T) {
	store := &counted{Storage: openMemory(t)}
	c := newClient(t, store)
	results, err := c.EnqueueMany(t.Context(), items(2500))
	if err != nil || len(results) != 2500 || store.calls != 3 || store.txs != 1000 {
		t.Fatalf("got %d results in %d calls of up to %d, %v; want 2500 in 3 of 1000", len(results), store.calls, store.txs, err)
	}
	for i, r := range results {
		if r.Err != nil || r.Task.ID != fmt.Sprint("w-", i) || r.Task.Existing {
			t.Fatalf("item %d: got %+v", i, r)
		}
	}
	store.calls = 0
	large := make([]midge.Item, 10)
	for i := range large {
		large[i] = midge.New(work{strings.Repeat("x", 900<<10)})
	}
	if _, err := c.EnqueueMany(t.Context(), large); err != nil || store.calls != 3 {
		t.Errorf("got %d calls, %v; want 3 of at most 4 MiB", store.calls, err)
	}
	if results, err := c.EnqueueMany(t.Context(), nil); err != nil || len(results) != 0 {
		t.Errorf("nothing: got %v, %v", results, err)
	}
}

func TestEnqueueManyTellsEachItem(t *testing.T) {
	c := newClient(t, openMemory(t))
	if _, err := c.Enqueue(t.Context(), work{"other"}, midge.ID("w-1")); err != nil {
		t.Fatal(err)
	}
	list := append(items(3), midge.New(nil), midge.New(work{"0"}, midge.ID("w-0")), midge.New(work{}, midge.Priority(99)))
	results, err := c.EnqueueMany(t.Context(), list)
	var taken *midge.DependencyError
	var invalid *midge.InvalidError
	if !errors.As(err, &taken) || !strings.Contains(err.Error(), "3 of 6 items") {
		t.Errorf("got %v, want the first refusal and the number of them", err)
	}
	if results[0].Err != nil || results[2].Err != nil || !errors.As(results[1].Err, &taken) {
		t.Errorf("got %v, %v, %v; want the second to collide", results[0].Err, results[1].Err, results[2].Err)
	}
	if !errors.As(results[3].Err, &invalid) || results[4].Err != nil || !results[4].Task.Existing || !errors.As(results[5].Err, &invalid) {
		t.Errorf("got %v, %+v, %v; want invalid, existing, invalid", results[3].Err, results[4], results[5].Err)
	}
}

func TestRepeatLearnsTheOutcome(t *testing.T) {
	store := &counted{Storage: openMemory(t), lose: 1}
	c := newClient(t, store)
	_, err := c.Enqueue(t.Context(), work{"a"}, midge.To("mail"))
	if !errors.Is(err, midge.ErrUnknown) {
		t.Fatalf("got %v, want ErrUnknown", err)
	}
	results, err := c.Repeat(t.Context(), err)
	if err != nil || len(results) != 1 || results[0].Task.Existing || results[0].Task.State != storage.Waiting || results[0].Task.Kind != "work" {
		t.Fatalf("got %+v, %v; want the task that was enqueued", results, err)
	}
	store.lose = store.calls + 1
	_, err = c.Cancel(t.Context(), results[0].Task.Ref)
	if results, err = c.Repeat(t.Context(), err); err != nil || results[0].Task.State != storage.Cancelled {
		t.Errorf("got %+v, %v; want the cancelled task", results, err)
	}
	if stats, err := c.Queue("mail").Stats(t.Context()); err != nil || stats.Totals.Enqueued != 1 {
		t.Errorf("got %+v, %v; want one task enqueued", stats, err)
	}
}

func TestEnqueueManyStopsAtAnUnknownOutcome(t *testing.T) {
	store := &counted{Storage: openMemory(t), lose: 2}
	c := newClient(t, store)
	results, err := c.EnqueueMany(t.Context(), items(2500))
	if !errors.Is(err, midge.ErrUnknown) || store.calls != 2 {
		t.Fatalf("got %v after %d calls, want ErrUnknown after 2", err, store.calls)
	}
	for i, r := range results {
		want := map[int]error{0: nil, 1: midge.ErrUnknown, 2: midge.ErrNotSent}[i/1000]
		if !errors.Is(r.Err, want) {
			t.Fatalf("item %d: got %v, want %v", i, r.Err, want)
		}
	}
	repeated, err := c.Repeat(t.Context(), err)
	if err != nil || len(repeated) != 1000 || repeated[0].Task.ID != "w-1000" || repeated[999].Err != nil {
		t.Errorf("got %d results, %v; want those of the items in doubt", len(repeated), err)
	}
}

// A call that was not sent had no effect: the caller may do something else instead.
func TestAStorageThatIsNotReachedIsUnavailable(t *testing.T) {
	store := &counted{Storage: openMemory(t), lose: 1, fail: fmt.Errorf("dial: %w", storage.ErrUnavailable)}
	c := newClient(t, store)
	results, err := c.EnqueueMany(t.Context(), items(2))
	for _, err := range []error{err, results[0].Err, results[1].Err} {
		if !errors.Is(err, midge.ErrUnavailable) || errors.Is(err, midge.ErrUnknown) {
			t.Errorf("got %v, want ErrUnavailable and no ErrUnknown", err)
		}
	}
	if stats, err := c.Queue(midge.DefaultQueue).Stats(t.Context()); err != nil || stats.Totals.Enqueued != 0 {
		t.Errorf("got %+v, %v; want nothing enqueued", stats, err)
	}
}

func TestEnqueueManyStopsAtAnError(t *testing.T) {
	store := &counted{Storage: openMemory(t), lose: 2, fail: storage.ErrFull}
	results, err := newClient(t, store).EnqueueMany(t.Context(), items(2001))
	if !errors.Is(err, midge.ErrFull) || results[999].Err != nil || !errors.Is(results[1000].Err, midge.ErrFull) || !errors.Is(results[2000].Err, midge.ErrNotSent) {
		t.Errorf("got %v, %v, %v, %v", err, results[999].Err, results[1000].Err, results[2000].Err)
	}
}

// transaction replaces a transaction of the caller's database.
type transaction struct{ txs []storage.Tx }

func (x *transaction) Apply(_ context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if !call.IsZero() {
		return nil, errors.New("a call with an identity")
	}
	x.txs = append(x.txs, txs...)
	applied := make([]storage.Applied, len(txs))
	for i, tx := range txs {
		for _, in := range tx.Inserts {
			applied[i].Inserted = append(applied[i].Inserted, storage.Placed{Ref: in.Ref, Version: 1, State: storage.Waiting})
		}
		for _, ch := range tx.Changes {
			applied[i].Changed = append(applied[i].Changed, storage.Placed{Ref: ch.Ref, Version: 1, State: ch.Target(storage.Waiting)})
		}
	}
	return applied, nil
}

func TestATransactionThatGotLostIsNoneOfTheStoragesOwn(t *testing.T) {
	c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var lost *transaction
	for _, a := range []midge.Applier{nil, lost} {
		within := c.With(a)
		many, whole := within.EnqueueMany(t.Context(), items(2))
		for what, err := range map[string]error{
			"Enqueue":      second(within.Enqueue(t.Context(), work{"a"})),
			"EnqueueIn":    second(within.EnqueueIn(t.Context(), time.Hour, work{"a"})),
			"EnqueueMany":  whole,
			"an item":      many[1].Err,
			"Cancel":       second(within.Cancel(t.Context(), storage.Ref{Queue: "q", ID: "a"})),
			"CompleteWith": midge.CompleteWith(t.Context(), a),
		} {
			var invalid *midge.InvalidError
			if !errors.As(err, &invalid) || invalid.Error() != `invalid Applier "nil": want store.Within(tx)` {
				t.Errorf("%s: got %v, want an *InvalidError about the Applier", what, err)
			}
		}
	}
}

func TestWithWritesInTheCallersTransaction(t *testing.T) {
	c, err := midge.NewClient(untouched{}, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var x transaction
	within := c.With(&x)
	task, err := within.Enqueue(t.Context(), work{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := within.EnqueueMany(t.Context(), items(3)); err != nil {
		t.Fatal(err)
	}
	if state, err := within.Cancel(t.Context(), task.Ref); err != nil || state != storage.Cancelled {
		t.Errorf("got %s, %v; want cancelled", state, err)
	}
	if len(x.txs) != 5 || x.txs[0].Inserts[0].Ref != task.Ref {
		t.Errorf("got %d steps, want 5 in the transaction", len(x.txs))
	}
}

// TestATaskIsDatedByTheClockThatWasSetBack compares the tasks that Enqueue returns with the stored ones.
func TestATaskIsDatedByTheClockThatWasSetBack(t *testing.T) {
	var ahead atomic.Int64
	store, err := memory.Open(memory.Config{Now: func() time.Time {
		return time.Now().Add(time.Duration(ahead.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	c, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Enqueue(t.Context(), work{"before"}); err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(-2 * time.Hour))
	now, err := c.Enqueue(t.Context(), work{"now"})
	if err != nil {
		t.Fatal(err)
	}
	later, err := c.EnqueueIn(t.Context(), time.Hour, work{"later"})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []midge.Task{now, later} {
		want, err := store.Task(t.Context(), got.Ref)
		if err != nil || !got.Created.Equal(want.Created) || !got.Due.Equal(want.Due) {
			t.Errorf("created %v and due %v, want %v and %v, as it is stored (%v)",
				got.Created, got.Due, want.Created, want.Due, err)
		}
	}
}
