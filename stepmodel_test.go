package midge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// action is a part of a random program: a step, a sleep, a checkpoint, or a group of concurrent actions.
type action struct {
	does   string
	name   string
	chance float64       // that it fails
	lasts  time.Duration // of a sleep, and of the function of a step
	within []action
}

// likeNames has pairs that a careless storage of names would mix up.
var likeNames = []string{"a", "A", "a ", "a/b", "a.b", "ä", "a\u0308", "b", "0", "00", "é", "e\u0301", "'", "\"", "\\", "β", "βγ", "{}", "[]"}

// program returns random actions, each with a name of its own.
func program(r *rand.Rand, depth int, names *[]string) (actions []action) {
	for range 1 + r.IntN(4) {
		var a action
		switch roll := r.IntN(12); {
		case roll < 6:
			a.does = "step"
			if depth < 2 && r.IntN(4) == 0 {
				a.within = program(r, depth+1, names)
			}
		case roll < 8 && depth == 0:
			a.does = "together"
			a.within = program(r, 1, names)
		case roll < 9:
			a.does = "checkpoint"
		case roll < 10 && depth == 0:
			a.does = "snooze"
		case depth == 0:
			a.does = "sleep"
		default:
			a.does = "step"
		}
		if len(*names) == 0 {
			return actions
		}
		a.name, *names = (*names)[0], (*names)[1:]
		a.chance = r.Float64() / 3
		a.lasts = time.Duration(r.Int64N(int64(400 * time.Millisecond)))
		if a.does == "sleep" {
			a.lasts = time.Duration(r.Int64N(int64(10 * time.Minute)))
			if r.IntN(5) == 0 {
				a.lasts = -a.lasts
			}
		}
		actions = append(actions, a)
	}
	return actions
}

// programs runs random programs, and keeps a ledger of them beside the storage.
type programs struct {
	*testing.T
	mu       sync.Mutex
	rand     *rand.Rand
	tasks    map[string]*programTask
	mischief bool // failures and outages still happen
}

type programTask struct {
	actions  []action
	careless bool // the errors of the storage and of sleeps are ignored
	calls    map[string]int
	stored   map[string]bool      // as the storage has acknowledged, perhaps in a lost reply
	values   map[string]string    // that Step has returned
	wakes    map[string]time.Time // the ends of sleeps
	one      chan struct{}
	point    int // last acknowledged checkpoint
	points   int
	snoozed  map[string]bool
	order    []string // of the stored steps
}

func (p *programs) chance(c float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mischief && p.rand.Float64() < c
}

// attempt is one attempt of a program.
type attempt struct {
	*programs
	task   *programTask
	id     string
	mu     sync.Mutex
	broken error
}

var errOfStep = errors.New("the step failed")

func (p *programs) run(ctx context.Context, w work) error {
	info, _ := midge.Current(ctx)
	a := &attempt{programs: p, task: p.tasks[w.Name], id: info.Ref.ID}
	return a.do(ctx, a.task.actions)
}

func (a *attempt) brokenNow() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.broken
}

func storageError(err error) bool {
	return errors.Is(err, midge.ErrUnavailable) || errors.Is(err, midge.ErrUnknown) || errors.Is(err, midge.ErrLeaseLost)
}

func (a *attempt) do(ctx context.Context, actions []action) error {
	for _, next := range actions {
		var err error
		switch next.does {
		case "step":
			err = a.step(ctx, next)
		case "sleep":
			err = a.sleep(ctx, next)
		case "checkpoint":
			err = a.checkpoint(ctx)
		case "together":
			err = a.together(ctx, next.within)
		case "snooze":
			a.programs.mu.Lock()
			before := a.task.snoozed[next.name]
			a.task.snoozed[next.name] = true
			a.programs.mu.Unlock()
			if !before {
				return midge.Snooze(time.Minute)
			}
		}
		if err == nil {
			continue
		}
		if !a.task.careless || ctx.Err() != nil || errors.Is(err, errOfStep) {
			return err
		}
	}
	return nil
}

func (a *attempt) together(ctx context.Context, actions []action) error {
	errs := make([]error, len(actions))
	var all sync.WaitGroup
	for i, one := range actions {
		all.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					errs[i] = fmt.Errorf("%w: %v", errOfStep, r)
				}
			}()
			errs[i] = errOfStep // if it does not return
			errs[i] = a.do(ctx, []action{one})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (a *attempt) step(ctx context.Context, next action) error {
	before := a.brokenNow()
	ended := ctx.Err() != nil
	called, own := false, ""
	v, err := midge.Step(ctx, next.name, func(ctx context.Context) (string, error) {
		called = true
		a.programs.mu.Lock()
		a.task.calls[next.name]++
		n := a.task.calls[next.name]
		if a.task.stored[next.name] {
			a.Errorf("%s: step %q was called after it was stored", a.id, next.name)
		}
		a.programs.mu.Unlock()
		if before != nil {
			a.Errorf("%s: step %q was called after %v", a.id, next.name, before)
		}
		if ended {
			a.Errorf("%s: step %q was called with a context that had ended", a.id, next.name)
		}
		<-time.After(next.lasts) // by the bubble's clock
		if err := a.do(ctx, next.within); err != nil {
			return "", fmt.Errorf("%w: %w", errOfStep, err)
		}
		if a.chance(next.chance) {
			switch int64(next.lasts) % 4 {
			case 0:
				panic("the step panicked")
			case 1:
				runtime.Goexit()
			}
			return "", errOfStep
		}
		own = fmt.Sprintf("%s %q %d", a.id, next.name, n)
		return own, nil
	})
	a.programs.mu.Lock()
	defer a.programs.mu.Unlock()
	if err != nil {
		if v != "" {
			a.Errorf("%s: step %q returned %q with the error %v", a.id, next.name, v, err)
		}
		if !errors.Is(err, errOfStep) {
			a.mu.Lock()
			a.broken = err
			a.mu.Unlock()
		}
		return err
	}
	if called && v != own {
		a.Errorf("%s: step %q returned %q, and its function %q", a.id, next.name, v, own)
	}
	if was, ok := a.task.values[next.name]; ok && was != v {
		a.Errorf("%s: step %q returned %q, and before %q", a.id, next.name, v, was)
	}
	if !a.task.stored[next.name] {
		a.Errorf("%s: step %q has returned, and is not stored", a.id, next.name)
	}
	a.task.values[next.name] = v
	return nil
}

func (a *attempt) sleep(ctx context.Context, next action) error {
	before := a.brokenNow()
	err := midge.Sleep(ctx, next.name, next.lasts)
	a.programs.mu.Lock()
	defer a.programs.mu.Unlock()
	if err != nil {
		a.mu.Lock()
		a.broken = err
		a.mu.Unlock()
		return err
	}
	if before != nil {
		a.Errorf("%s: sleep %q returned nil after %v", a.id, next.name, before)
	}
	end, ok := a.task.wakes[next.name]
	if !ok {
		a.Errorf("%s: sleep %q is over and was never stored", a.id, next.name)
	}
	if time.Now().Before(end) {
		a.Errorf("%s: sleep %q is over at %v, before %v", a.id, next.name, time.Now(), end)
	}
	return nil
}

// checkpoint stores the next number, one goroutine at a time.
func (a *attempt) checkpoint(ctx context.Context) error {
	a.task.one <- struct{}{}
	defer func() { <-a.task.one }()
	var point int
	if ok, err := midge.LoadCheckpoint(ctx, &point); err != nil {
		if !storageError(err) && ctx.Err() == nil {
			a.Errorf("%s: LoadCheckpoint: %v", a.id, err)
		}
		return nil
	} else if !ok {
		point = 0
	}
	a.programs.mu.Lock()
	if point < a.task.point || point > a.task.points {
		a.Errorf("%s: the checkpoint is %d, stored were %d to %d", a.id, point, a.task.point, a.task.points)
	}
	a.task.points++
	n := a.task.points
	a.programs.mu.Unlock()
	if err := midge.Checkpoint(ctx, n); err != nil {
		return nil // it goes on without
	}
	a.programs.mu.Lock()
	a.task.point = max(n, a.task.point)
	a.programs.mu.Unlock()
	return nil
}

// cutStorage loses calls before and after they take effect, and keeps the ledger of stored steps.
type cutStorage struct {
	storage.Storage
	p     *programs
	until time.Time // the end of an outage
}

func (c *cutStorage) cut(share float64) error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if !c.p.mischief {
		return nil
	}
	if time.Now().Before(c.until) {
		return storage.ErrUnavailable
	}
	if c.p.rand.Float64() < share {
		if c.p.rand.IntN(4) == 0 {
			c.until = time.Now().Add(time.Duration(c.p.rand.Int64N(int64(9 * time.Second))))
		}
		return storage.ErrUnavailable
	}
	return nil
}

func (c *cutStorage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := c.cut(0.03); err != nil {
		return storage.Extended{}, err
	}
	got, err := c.Storage.Extend(ctx, req)
	if err == nil {
		for _, l := range req.Leases {
			if l.Checkpoint != nil && !slices.Contains(got.Lost, l.Fence.Ref) && !slices.Contains(got.Locked, l.Fence.Ref) {
				c.p.wrote(l.Fence.ID, l.Checkpoint)
			}
		}
		if c.p.chance(0.03) {
			return storage.Extended{}, storage.ErrUnknown
		}
	}
	return got, err //nolint:wrapcheck // as the storage has it
}

func (c *cutStorage) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if err := c.cut(0.03); err != nil {
		return storage.Task{}, err
	}
	return c.Storage.Task(ctx, ref)
}

func (c *cutStorage) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := c.cut(0.02); err != nil {
		return storage.Claimed{}, err
	}
	got, err := c.Storage.Claim(ctx, req)
	if err == nil && c.p.chance(0.01) {
		return storage.Claimed{}, storage.ErrUnknown
	}
	return got, err //nolint:wrapcheck // as the storage has it
}

func (c *cutStorage) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if err := c.cut(0.02); err != nil {
		return nil, err
	}
	got, err := c.Storage.Apply(ctx, call, txs...)
	if err == nil && c.p.chance(0.02) {
		return nil, storage.ErrUnknown
	}
	return got, err //nolint:wrapcheck // as the storage has it
}

func (p *programs) wrote(name string, checkpoint []byte) {
	steps, err := midge.StepsOf(midge.Task{Encoding: string(midge.MessagePack), Checkpoint: checkpoint})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.Errorf("StepsOf: %v", err)
	}
	t := p.tasks[name]
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
		if !t.stored[s.Name] && time.Since(s.Ended).Abs() > time.Minute {
			p.Errorf("step %q ended %v", s.Name, s.Ended)
		}
		t.stored[s.Name] = true
		if !s.Until.IsZero() {
			if end, ok := t.wakes[s.Name]; ok && !end.Equal(s.Until) {
				p.Errorf("sleep %q ends at %v, and before at %v", s.Name, s.Until, end)
			}
			t.wakes[s.Name] = s.Until
		}
	}
	if len(names) < len(t.order) || !slices.Equal(names[:len(t.order)], t.order) {
		p.Errorf("the steps %q became %q", t.order, names)
	}
	t.order = names
}

// TestRandomPrograms runs jobs of random steps, sleeps, checkpoints and snoozes, which fail, panic, call
// runtime.Goexit, time out, are cancelled and requeued, on a storage that loses calls before and after they
// take effect. A step whose result was stored is never called again, and returns the same result in each
// attempt; no step, sleep or checkpoint is lost; no sleep ends early; and a job that drops the errors of
// the storage and of sleeps completes only once all of its steps have returned.
func TestRandomPrograms(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { randomPrograms(t, seed) })
	}
}

func randomPrograms(t *testing.T, seed uint64) {
	bubble(t, func(b *bench) {
		p := &programs{T: b.T, rand: rand.New(rand.NewPCG(seed, 1)), tasks: map[string]*programTask{}, mischief: true}
		cut := &cutStorage{Storage: b.store, p: p}
		b.store = cut
		var refs []midge.Ref
		for i := range 12 {
			name := fmt.Sprint("t", i)
			names := slices.Clone(likeNames)
			p.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			p.tasks[name] = &programTask{
				actions: program(p.rand, 0, &names), careless: p.rand.IntN(3) == 0,
				one: make(chan struct{}, 1), calls: map[string]int{}, stored: map[string]bool{}, values: map[string]string{}, wakes: map[string]time.Time{}, snoozed: map[string]bool{},
			}
			opts := []midge.Option{midge.ID(name), midge.KeepFor(1000 * time.Hour), midge.Retries(9999), midge.CrashLimit(100)}
			if p.rand.IntN(3) == 0 {
				opts = append(opts, midge.Timeout(8*time.Second))
			}
			task, err := b.client.Enqueue(b.Context(), work{name}, opts...)
			if err != nil {
				b.Fatal(err)
			}
			refs = append(refs, task.Ref)
		}
		b.run(midge.RunnerConfig{Lease: 3 * time.Second, Concurrency: 5, Logger: zap.NewNop(), Backoff: midge.Constant(time.Second)}, p.run)
		outside := rand.New(rand.NewPCG(seed, 2))
		for range 40 {
			b.after(time.Duration(outside.Int64N(int64(30 * time.Second))))
			ref := refs[outside.IntN(len(refs))]
			task := b.raw(ref, cut)
			if task.State == storage.Completed {
				continue
			}
			b.disturb(outside, ref)
		}
		p.mu.Lock()
		p.mischief = false
		p.mu.Unlock()
		for _, ref := range refs {
			if b.raw(ref, cut).State == storage.Cancelled {
				_ = b.client.Requeue(b.Context(), ref)
			}
		}
		b.after(time.Hour)
		for i, ref := range refs {
			task := b.raw(ref, cut)
			if task.State != storage.Completed {
				b.Errorf("seed %d: %+v", seed, task)
				continue
			}
			p.check(p.tasks[fmt.Sprint("t", i)], ref)
		}
	})
}

// disturb requeues, cancels or changes a task, if its state allows that.
func (b *bench) disturb(outside *rand.Rand, ref midge.Ref) {
	switch outside.IntN(4) {
	case 0:
		_ = b.client.Requeue(b.Context(), ref)
	case 1:
		_, _ = b.client.Cancel(b.Context(), ref)
		b.after(5 * time.Second)
		_ = b.client.Requeue(b.Context(), ref)
	case 2:
		_ = b.client.Change(b.Context(), ref, midge.Priority(outside.IntN(10)))
	case 3:
		_ = b.client.Change(b.Context(), ref, midge.In(time.Duration(outside.Int64N(int64(time.Minute)))))
	}
}

func (b *bench) raw(ref midge.Ref, c *cutStorage) storage.Task {
	t, err := c.Storage.Task(b.Context(), ref)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func (p *programs) check(t *programTask, ref midge.Ref) {
	var walk func(actions []action)
	walk = func(actions []action) {
		for _, a := range actions {
			if a.does == "step" {
				if t.calls[a.name] == 0 || t.values[a.name] == "" {
					p.Errorf("%s: completed, but step %q was called %d times, and returned %q", ref, a.name, t.calls[a.name], t.values[a.name])
				}
			}
			if a.does == "sleep" && t.wakes[a.name].IsZero() {
				p.Errorf("%s: completed without the sleep %q", ref, a.name)
			}
			walk(a.within)
		}
	}
	walk(t.actions)
}
