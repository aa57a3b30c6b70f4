package memory

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// view is everything in a storage that its contract can read.
type view struct {
	Queues  []string
	Stats   []storage.Stats
	Tasks   []storage.Task
	Runners []storage.RunnerInfo
}

func (h *harness) view() (v view) {
	h.Helper()
	failed := func(err error) {
		if err != nil {
			h.Fatal(err)
		}
	}
	page, err := h.store.Queues(h.Context(), storage.QueuesQuery{})
	failed(err)
	v.Queues = page.Names
	v.Stats, err = h.store.Stats(h.Context(), v.Queues...)
	failed(err)
	v.Runners, err = h.store.Runners(h.Context())
	failed(err)
	for _, queue := range v.Queues {
		for _, state := range storage.States() {
			for listed, err := range storage.Each(h.Context(), h.store, queue, state) {
				failed(err)
				task, err := h.store.Task(h.Context(), listed.Ref)
				failed(err)
				v.Tasks = append(v.Tasks, task)
			}
		}
	}
	return v
}

// clone returns the harness of a clone.
func (h *harness) clone() *harness {
	return &harness{TB: h.TB, store: h.store.Clone(nil)}
}

// on returns a chaos that makes the same calls to a storage as another with the same seed and fences makes to
// its own.
func (c *chaos) on(h *harness, seed uint64) *chaos {
	return &chaos{harness: h, caller: h.caller(), random: rand.New(rand.NewPCG(seed, 1)), fences: slices.Clone(c.fences)}
}

// beat sends the heartbeat of a runner, pauses or resumes a queue, and makes or removes others.
func (c *chaos) beat() {
	info := storage.RunnerInfo{
		ID: c.pick("r1", "r2", "r3"), Host: c.pick("h", "i"), Queues: []string{c.pick("a", "b")},
		For: time.Second + c.delay(), Leaving: c.random.IntN(4) == 0, Vitals: []byte(c.pick("", "v", "w")),
	}
	_, err := c.store.Extend(c.Context(), storage.ExtendRequest{Call: c.next(), Runner: info})
	pause := &storage.Pause{On: c.random.IntN(4) == 0, For: c.delay()}
	if !pause.On {
		pause.For = 0
	}
	err = errors.Join(err, c.store.Configure(c.Context(), c.next(), c.pick("a", "b"), storage.Settings{Pause: pause}))
	create := c.random.IntN(2) == 0
	other := storage.Settings{Create: create, Remove: !create}
	err = errors.Join(err, c.store.Configure(c.Context(), c.next(), c.pick("aa", "c", "d"), other))
	if err != nil {
		c.Error(err)
	}
}

// apart fails the test if a clone shares memory that steps change with its original.
func (h *harness) apart(from *harness) {
	h.Helper()
	for name, q := range h.store.queues {
		of := from.store.queues[name]
		for id, r := range q.records {
			o := of.records[id]
			side := r.Side != nil && (r.Side == o.Side || len(r.Side.Attempts) > 0 && &r.Side.Attempts[0] == &o.Side.Attempts[0])
			if r == o || side {
				h.Errorf("%s is shared", r.Ref)
			}
		}
	}
}

// several carries out random operations, between which no time passes.
func (c *chaos) several() {
	c.beat()
	for range 30 {
		c.step()
	}
	c.consistent()
}

// TestACloneIsEqualAndSharesNothing checks after random operations that a clone is equal to its original,
// that the same further operations and the same time have the same effects on both, and that neither shows
// the changes of the other.
func TestACloneIsEqualAndSharesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newHarness(t)
		first.store.step.Limits.DeadMax, first.store.step.Limits.DeclinedFor = 5, 3*time.Second
		original, tasks := first.chaos(1), 0
		equal := func(what string, got, want view) {
			t.Helper()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: got %+v, want %+v", what, got, want)
			}
		}
		for round := uint64(0); round < 100 && !t.Failed(); round++ {
			original.caller = original.harness.caller() // the virtual time of all rounds is longer than a lane's life
			original.several()
			before := original.view()
			tasks += len(before.Tasks)
			clone := original.clone()
			equal("a clone", clone.view(), before)
			clone.apart(original.harness)

			other := original.on(clone, round)
			other.several()
			changed := clone.view()
			equal("an original after changes of its clone", original.view(), before)
			original.on(original.harness, round).several()
			equal("a clone after changes of its original", clone.view(), changed)
			equal("an original after the same operations as its clone", original.view(), changed)

			wait := time.Duration(round%5) * time.Second
			if round%7 == 6 {
				wait = engine.QueueLife + time.Minute // the clock jumps, and empty queues are abandoned
			}
			time.Sleep(wait)
			ours, theirs := original.on(original.harness, round), original.on(clone, round)
			ours.several()
			theirs.several()
			equal("a clone after the same operations and time", clone.view(), original.view())
			original.fences = ours.fences
		}
		if tasks < 1000 {
			t.Errorf("the rounds began with %d tasks, want a thousand or more", tasks)
		}
	})
}

// TestACloneHasItsClock checks the clock of a clone, and that a clone remembers no calls of its original.
func TestACloneHasItsClock(t *testing.T) {
	h := newHarness(t)
	c := h.caller()
	tx := storage.Tx{Inserts: []storage.Insert{{
		Ref: storage.Ref{Queue: "q", ID: "a"}, Kind: "k", Encoding: "raw", CrashLimit: 3, Delay: time.Hour,
	}}}
	h.apply(c, []storage.Tx{tx})
	now := time.Now().Add(time.Minute).UTC().Truncate(time.Microsecond)
	clone := &harness{TB: t, store: h.store.Clone(func() time.Time { return now })}
	if d, err := clone.store.Describe(t.Context()); err != nil || !d.Now.Equal(now) {
		t.Errorf("the clone has the time %v, %v, want %v", d.Now, err, now)
	}
	task, err := clone.store.Task(t.Context(), tx.Inserts[0].Ref)
	if err != nil {
		t.Fatal(err)
	}
	deletes := storage.Tx{Deletes: []storage.Delete{{Ref: task.Ref, Version: task.Version}}}
	if applied, err := clone.store.Apply(t.Context(), c.call, deletes); err != nil || applied[0].Err != nil {
		t.Errorf("a call with the identity of a call of the original: %+v, %v", applied, err)
	}
	for what, want := range map[*Storage]int64{h.store: 1, clone.store: 0} {
		if stats, err := what.Stats(t.Context(), "q"); err != nil || stats[0].Scheduled != want {
			t.Errorf("after the delete: got %d scheduled tasks, %v, want %d", stats[0].Scheduled, err, want)
		}
	}
}

// TestACloneOfAClosedStorageIsClosed checks that it refuses calls, and a Wait too.
func TestACloneOfAClosedStorageIsClosed(t *testing.T) {
	h := newHarness(t)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	clone := h.store.Clone(nil)
	if _, err := clone.Describe(t.Context()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Describe: got %v, want ErrClosed", err)
	}
	if err := clone.Wait(t.Context(), storage.WaitRequest{Queues: []string{"q"}}); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Wait: got %v, want ErrClosed", err)
	}
}
