package midge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// kinds is a storage that counts the declines of each task, and answers each call after a delay.
type kinds struct {
	storage.Storage

	takes time.Duration

	mu       sync.Mutex // guards declines
	declines map[string]int
}

func (k *kinds) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	k.mu.Lock()
	for _, tx := range txs {
		for _, s := range tx.Settles {
			if s.Outcome == storage.Decline {
				k.declines[s.Fence.ID]++
			}
		}
	}
	k.mu.Unlock()
	time.Sleep(k.takes) // virtual
	return k.Storage.Apply(ctx, call, txs...)
}

func (k *kinds) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	time.Sleep(k.takes) // virtual
	return k.Storage.Claim(ctx, req)
}

// most returns the highest number of declines of a task.
func (k *kinds) most() (most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.declines {
		most = max(most, n)
	}
	return most
}

// pickUps records when tasks started.
type pickUps struct {
	mu      sync.Mutex // guards started
	started map[string]time.Time
}

func (p *pickUps) note(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started[name] = time.Now()
}

// crewOf starts a runner that knows one kind, work or stranger, and returns a function that stops
// it.
func (b *bench) crewOf(store storage.Storage, cfg midge.RunnerConfig, kind string, ran *pickUps) (stop func() error) {
	b.Helper()
	r := b.newRunner(store, cfg, nil)
	var err error
	if kind == "work" {
		err = midge.Handle(r, func(_ context.Context, w work) error { ran.note(w.Name); return nil })
	} else {
		err = midge.Handle(r, func(_ context.Context, s stranger) error { ran.note(fmt.Sprint(s.X)); return nil })
	}
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	return func() error { cancel(); return <-done }
}

// enqueueStranger enqueues a task of the other kind.
func (b *bench) enqueueStranger(x int, opts ...midge.Option) midge.Task {
	b.Helper()
	t, err := b.client.Enqueue(b.Context(), stranger{x}, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// enqueueBoth enqueues n tasks of two kinds, one every 10 ms, and returns when it enqueued each.
func (b *bench) enqueueBoth(n int) map[string]time.Time {
	b.Helper()
	sent := make(map[string]time.Time)
	for i := range n {
		name := fmt.Sprint(i)
		sent[name] = time.Now()
		if i%3 == 0 {
			b.enqueue(name, midge.ID(name))
		} else {
			b.enqueueStranger(i, midge.ID(name))
		}
		b.after(10 * time.Millisecond)
	}
	b.after(time.Second)
	return sent
}

// TestRunnersOfDifferentKindsShareAQueue checks that a runner that knows its kind runs each task at
// once, and that the task is declined once at most.
func TestRunnersOfDifferentKindsShareAQueue(t *testing.T) {
	for _, concurrency := range []int{1, 100} {
		bubble(t, func(b *bench) {
			store := &kinds{Storage: b.store, takes: time.Millisecond, declines: make(map[string]int)}
			ran := &pickUps{started: make(map[string]time.Time)}
			cfg := midge.RunnerConfig{Concurrency: concurrency}
			first, second := b.crewOf(store, cfg, "work", ran), b.crewOf(store, cfg, "stranger", ran)
			b.after(5 * time.Second) // both runners are idle
			for name, at := range b.enqueueBoth(300) {
				if took := ran.started[name].Sub(at); ran.started[name].IsZero() || took > 20*time.Millisecond {
					t.Errorf("task %s started after %v, want 20ms at most", name, took)
				}
			}
			if n := store.most(); n != 1 {
				t.Errorf("a task was declined %d times, want each once at most, and some", n)
			}
			if err := errors.Join(first(), second()); err != nil {
				t.Error(err)
			}
			if s := b.stats(midge.DefaultQueue); s.Live() != 0 || s.Totals.Completed != 300 || s.Totals.Failed != 0 {
				t.Errorf("got %+v, want 300 completed and none left", s)
			}
		})
	}
}

// TestADeclinedTaskHoldsUpNoOther has thousands of declined tasks before another one, also for a
// runner with a single slot.
func TestADeclinedTaskHoldsUpNoOther(t *testing.T) {
	bubble(t, func(b *bench) {
		store := &kinds{Storage: b.store, takes: time.Millisecond, declines: make(map[string]int)}
		ran := &pickUps{started: make(map[string]time.Time)}
		items := make([]midge.Item, 1000)
		for i := range items {
			items[i] = midge.New(stranger{i})
		}
		if _, err := b.client.EnqueueMany(b.ctx, items); err != nil {
			t.Fatal(err)
		}
		b.enqueue("behind them")
		begun := time.Now()
		b.crewOf(store, midge.RunnerConfig{Concurrency: 10}, "work", ran)
		b.after(10 * time.Second)
		if took := ran.started["behind them"].Sub(begun); took < 0 || took > 300*time.Millisecond {
			t.Errorf("it started after %v, want a hundred claims of 1ms", took)
		}
		if s := b.stats(midge.DefaultQueue); len(s.Declined) != 1 || s.Declined[0].Tasks != 1000 {
			t.Errorf("got %+v declined, want the 1000", s.Declined)
		}
		for i := range 20 { // no claim returns the declined tasks again, and no task waits for them
			name := fmt.Sprint("later ", i)
			begun := time.Now()
			b.enqueue(name)
			b.after(50 * time.Millisecond)
			if took := ran.started[name].Sub(begun); took < 0 || took > 5*time.Millisecond {
				t.Errorf("%s started after %v, want 5ms at most", name, took)
			}
		}
		if n := store.most(); n != 1 {
			t.Errorf("a task was declined %d times, want once", n)
		}
	})
}

// TestADeployBringsANewKind has tasks of a new kind wait for the first runner that knows it, which
// runs them when it starts. The old runner warns once, and hands back the declined tasks when it
// stops.
func TestADeployBringsANewKind(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		ran := &pickUps{started: make(map[string]time.Time)}
		old := b.crewOf(b.store, midge.RunnerConfig{Logger: logger}, "work", ran)
		refs := make([]storage.Ref, 3)
		for i := range refs {
			refs[i] = b.enqueueStranger(i).Ref
			b.after(time.Minute)
		}
		for _, ref := range refs {
			got := b.task(ref)
			if got.State != storage.Waiting || got.PassedOver != storage.PassedOverKind || got.Declined.IsZero() ||
				got.Retries != 0 || got.Snoozes != 0 || len(got.Attempts) != 0 {
				t.Errorf("got %+v, want it declined, uncharged", got)
			}
		}
		want := "stranger " + refs[0].String() + " declined, unknown kind: no job of this kind is registered here; " +
			"tasks of it wait, uncharged, for a runner that knows them, and are dead where none has come for 24h0m0s"
		if got := lines("unknown kind"); !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, want one line %q", got, want)
		}
		begun := time.Now()
		b.crewOf(b.store, midge.RunnerConfig{}, "stranger", ran)
		b.after(time.Second)
		for i, ref := range refs {
			b.gone(ref)
			if took := ran.started[fmt.Sprint(i)].Sub(begun); took < 0 || took > 100*time.Millisecond {
				t.Errorf("%s started %v after the deploy, want at once", ref, took)
			}
		}
		b.enqueueStranger(7)
		if err := old(); err != nil {
			t.Error(err)
		}
		b.after(time.Second)
		if _, ok := ran.started["7"]; !ok {
			t.Error("the task that came while the old runner stopped did not run")
		}
		if got := lines("stopped"); len(got) != 1 || !strings.HasSuffix(got[0], "nothing left behind") {
			t.Errorf("got %q, want nothing left behind", got)
		}
	})
}

// TestADeclinedTaskIsCancelled checks that this happens at once, as for any task that waits.
func TestADeclinedTaskIsCancelled(t *testing.T) {
	bubble(t, func(b *bench) {
		ran := &pickUps{started: make(map[string]time.Time)}
		b.crewOf(b.store, midge.RunnerConfig{}, "work", ran)
		task := b.enqueueStranger(1, midge.KeepFor(time.Hour))
		b.after(time.Second)
		if got := b.task(task.Ref); got.PassedOver != storage.PassedOverKind {
			t.Fatalf("got %+v, want it declined", got)
		}
		if _, err := b.client.Cancel(b.Context(), task.Ref); err != nil {
			t.Fatal(err)
		}
		if got := b.task(task.Ref); got.State != storage.Cancelled || got.PassedOver != "" {
			t.Errorf("got %+v, want it cancelled", got)
		}
	})
}

// TestATaskOfAKindThatNobodyKnowsDies checks that it dies after the time in the storage's limits, for each
// runner that maintains its queue: a runner of other kinds, a runner without a job, or a runner that sweeps a
// queue that it does not serve.
func TestATaskOfAKindThatNobodyKnowsDies(t *testing.T) {
	for name, maintain := range map[string]func(b *bench, cfg midge.RunnerConfig, ran *pickUps){
		"a runner of another kind": func(b *bench, cfg midge.RunnerConfig, ran *pickUps) {
			b.crewOf(b.store, cfg, "work", ran)
		},
		"a runner without a job": func(b *bench, cfg midge.RunnerConfig, _ *pickUps) {
			b.runner = b.newRunner(b.store, cfg, nil)
			go func() { b.done <- b.runner.Run(b.ctx) }()
		},
		"a runner that knows it, of another queue": func(b *bench, cfg midge.RunnerConfig, ran *pickUps) {
			cfg.Queues = []string{"another"}
			b.crewOf(b.store, cfg, "stranger", ran)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.limited(storage.Limits{DeclinedFor: time.Hour})
				logger, lines := logged()
				ran := &pickUps{started: make(map[string]time.Time)}
				task := b.declined(ran)
				maintain(b, midge.RunnerConfig{Logger: logger}, ran)
				b.after(59 * time.Minute)
				if got := b.task(task); got.State != storage.Waiting {
					t.Errorf("before its time: got %s, want it waiting", got.State)
				}
				b.after(13 * time.Minute)
				if got := b.task(task); got.State != storage.Dead || got.Reason != storage.ReasonKind || got.Retries != 0 {
					t.Errorf("behind its time: got %s, %q; want it dead of an unknown kind", got.State, got.Reason)
				}
				want := "stranger " + task.String() +
					" is dead, unknown kind: no runner of its queue has known the kind for long"
				if got := lines("is dead"); !slices.Equal(got, []string{want}) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

// limited replaces the storage by one with these limits.
func (b *bench) limited(limits storage.Limits) {
	b.Helper()
	store, err := memory.Open(memory.Config{Limits: limits})
	if err != nil {
		b.Fatal(err)
	}
	b.store = store
	if b.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
		b.Fatal(err)
	}
}

// declined enqueues a task, has a runner decline it, and stops the runner.
func (b *bench) declined(ran *pickUps) storage.Ref {
	b.Helper()
	task := b.enqueueStranger(1)
	stop := b.crewOf(b.store, midge.RunnerConfig{}, "work", ran)
	b.after(time.Second)
	if err := stop(); err != nil {
		b.Fatal(err)
	}
	if got := b.task(task.Ref); got.PassedOver != storage.PassedOverKind {
		b.Fatalf("got %+v, want it declined", got)
	}
	return task.Ref
}

// TestARunnerWithoutAJobClaimsNothing checks that it also declines no task, and makes the ticks of
// its schedules.
func TestARunnerWithoutAJobClaimsNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, nil)
		if err := b.runner.Periodic(midge.Every(10*time.Minute), work{"tick"}); err != nil {
			t.Fatal(err)
		}
		task := b.enqueue("a")
		due := b.enqueue("b", midge.In(time.Minute))
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		if err := b.runner.SetQueues([]string{midge.DefaultQueue, "another"}, nil); err != nil {
			t.Fatal(err)
		}
		b.after(20 * time.Minute)
		if got := b.task(task.Ref); got.State != storage.Waiting || got.Version != task.Version || !got.Declined.IsZero() {
			t.Errorf("got %+v, want it as it was enqueued", got)
		}
		if got := b.task(due.Ref); got.State != storage.Waiting {
			t.Errorf("got a due task %s, want it promoted", got.State)
		}
		if s := b.stats(midge.DefaultQueue); s.Waiting < 3 || len(s.Declined) != 0 {
			t.Errorf("got %+v, want both tasks and a tick waiting, and none declined", s)
		}
	})
}

// TestRunnersTellTheirKinds checks that the kinds are sorted.
func TestRunnersTellTheirKinds(t *testing.T) {
	bubble(t, func(b *bench) {
		b.runner = b.newRunner(b.store, midge.RunnerConfig{}, func(context.Context, work) error { return nil })
		if err := midge.Handle(b.runner, func(context.Context, stranger) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := midge.Handle(b.runner, func(context.Context, mailed) error { return nil }); err != nil {
			t.Fatal(err)
		}
		go func() { b.done <- b.runner.Run(b.ctx) }()
		b.after(time.Second)
		runners, err := b.client.Runners(b.ctx)
		if err != nil || len(runners) != 1 || !slices.Equal(runners[0].Kinds, []string{"mailed", "stranger", "work"}) {
			t.Errorf("got %+v, %v; want one runner of three kinds", runners, err)
		}
	})
}

func TestADeclineIsLoggedForThoseWhoLookClosely(t *testing.T) {
	bubble(t, func(b *bench) {
		logger, lines := logged()
		ran := &pickUps{started: make(map[string]time.Time)}
		b.crewOf(b.store, midge.RunnerConfig{Logger: logger}, "work", ran)
		for i := range 3 {
			b.enqueueStranger(i)
		}
		b.after(time.Second)
		if got := lines(" declined"); len(got) != 4 { // a warning, and a line for each task
			t.Errorf("got %q, want a warning and a line for each of three", got)
		}
	})
}
