package midge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// lossy is a storage that answers writes of steps and checkpoints with errors.
type lossy struct {
	storage.Storage
	fails atomic.Pointer[func(ctx context.Context) (happens bool, err error)]
}

func (l *lossy) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	fails := l.fails.Load()
	if fails == nil || !slices.ContainsFunc(req.Leases, func(e storage.Extension) bool { return e.Checkpoint != nil }) {
		return l.Storage.Extend(ctx, req) //nolint:wrapcheck // as the storage has it
	}
	happens, err := (*fails)(ctx)
	if !happens {
		return storage.Extended{}, err
	}
	answer, happened := l.Storage.Extend(ctx, req)
	return answer, errors.Join(happened, err)
}

// loss is a write whose answer is an error.
type loss struct {
	err        error
	happens    bool
	checkpoint bool // it is the write of a checkpoint, and not of a step
}

// charging is a job that stores a step, or loses the write in its first attempt.
type charging struct {
	*bench
	store           *lossy
	loss            loss
	calls, attempts int
}

func (c *charging) charge(ctx context.Context) error {
	_, err := midge.Step(ctx, "charge", func(context.Context) (int, error) { c.calls++; return c.calls, nil })
	return err
}

func (c *charging) run(ctx context.Context, _ work) error {
	if c.attempts++; c.attempts > 1 {
		return c.charge(ctx)
	}
	fails := func(context.Context) (bool, error) { return c.loss.happens, c.loss.err }
	c.store.fails.Store(&fails)
	var lost error
	if c.loss.checkpoint {
		lost = midge.Checkpoint(ctx, "half")
	} else {
		lost = c.charge(ctx)
	}
	c.store.fails.Store(nil)
	_, step := midge.Step(ctx, "more", func(context.Context) (int, error) { panic("it was called") })
	slept := midge.Sleep(ctx, "sleep", time.Hour)
	for _, err := range []error{lost, step, slept} {
		if !errors.Is(err, c.loss.err) {
			c.Errorf("%+v: got %v", c.loss, err)
		}
	}
	return nil
}

// If the outcome of a write is an error, the attempt fails, although its job returns nil. The next attempt
// finds the step, or calls it again.
func TestAStepWhoseReplyIsLost(t *testing.T) {
	for lost, calls := range map[loss]int{
		{err: storage.ErrUnknown}:                                  2,
		{err: storage.ErrUnknown, happens: true}:                   1,
		{err: storage.ErrUnavailable}:                              2,
		{err: storage.ErrFull}:                                     2,
		{err: storage.ErrUnknown, checkpoint: true}:                1,
		{err: storage.ErrUnknown, checkpoint: true, happens: true}: 1,
	} {
		bubble(t, func(b *bench) {
			c := &charging{bench: b, store: &lossy{Storage: b.store}, loss: lost}
			b.store = c.store
			b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second), Lease: 10 * time.Second}, c.run)
			task := b.enqueue("a", midge.KeepFor(time.Hour))
			b.after(time.Minute)
			if got := b.task(task.Ref); got.State != storage.Completed || c.attempts != 2 || got.Retries != 1 || c.calls != calls {
				t.Errorf("%+v: the task is %s after %d attempts, %d failures, %d calls; want 2, 1, %d", lost, got.State, c.attempts, got.Retries, c.calls, calls)
			}
		})
	}
}

// A write whose outcome is unknown may arrive late. It must not remove the steps that were stored meanwhile.
func TestAWriteThatHappensLate(t *testing.T) {
	bubble(t, func(b *bench) {
		late := &lateStorage{Storage: b.store}
		b.store = late
		var calls, attempts int
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second)}, func(ctx context.Context, _ work) error {
			attempts++
			first := attempts == 1
			_, err := midge.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				calls++
				_, err := midge.Step(ctx, "inner", func(context.Context) (int, error) { return 1, nil })
				if first != (err != nil) {
					t.Errorf("attempt %d: the inner step returned %v", attempts, err)
				}
				return 2, nil
			})
			if err != nil {
				t.Errorf("the outer step returned %v", err)
			}
			return nil
		})
		task := b.enqueue("a", midge.KeepFor(time.Hour))
		b.after(time.Minute)
		got := b.task(task.Ref)
		if names := stepNames(t, got); got.State != storage.Completed || attempts != 2 || calls != 1 || len(names) != 1 {
			t.Errorf("the task is %s after %d attempts and %d calls, with the steps %q", got.State, attempts, calls, names)
		}
	})
}

// lateStorage sends the first write of a step after the second one, and answers it with an ErrUnknown until then.
type lateStorage struct {
	storage.Storage
	first storage.ExtendRequest
	done  bool
}

func (l *lateStorage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if l.done || len(req.Leases) == 0 || req.Leases[0].Checkpoint == nil {
		return l.Storage.Extend(ctx, req) //nolint:wrapcheck // as the storage has it
	}
	if l.first.Call.IsZero() {
		l.first = req
	}
	if req.Call == l.first.Call { // the session repeats it
		return storage.Extended{}, storage.ErrUnknown
	}
	l.done = true
	answer, err := l.Storage.Extend(ctx, req)
	_, late := l.Storage.Extend(ctx, l.first)
	return answer, errors.Join(err, late)
}

// A write whose outcome is unknown may also arrive after a later checkpoint. It must not replace that, which counts as
// stored.
func TestACheckpointBehindAWriteThatHappensLate(t *testing.T) {
	for name, write := range map[string]func(ctx context.Context) error{
		"checkpoint": func(ctx context.Context) error { return midge.Checkpoint(ctx, 1) },
		"step": func(ctx context.Context) error {
			_, err := midge.Step(ctx, "a", func(context.Context) (int, error) { return 1, nil })
			return err
		},
	} {
		bubble(t, func(b *bench) {
			b.store = &lateStorage{Storage: b.store}
			var attempts, loaded int
			var second error
			b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second)}, func(ctx context.Context, _ work) error {
				if attempts++; attempts > 1 {
					_, err := midge.LoadCheckpoint(ctx, &loaded)
					return err
				}
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if err := write(short); !errors.Is(err, storage.ErrUnknown) {
					t.Errorf("%s: the first write returned %v, want ErrUnknown", name, err)
				}
				second = midge.Checkpoint(ctx, 2)
				return errBroken
			})
			b.enqueue("a")
			b.after(time.Minute)
			if attempts != 2 || second != nil || loaded != 2 {
				t.Errorf("%s: the checkpoint 2 returned %v, and attempt %d has loaded %d", name, second, attempts, loaded)
			}
		})
	}
}

// The context of a job that ends while the storage writes a step does not cut off the write.
func TestAContextThatEndsDuringAWrite(t *testing.T) {
	bubble(t, func(b *bench) {
		store := &lossy{Storage: b.store}
		b.store = store
		slow := func(ctx context.Context) (bool, error) {
			select {
			case <-ctx.Done():
				return false, storage.ErrUnknown
			case <-time.After(time.Second):
				return true, nil
			}
		}
		store.fails.Store(&slow)
		calls := 0
		b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second)}, func(ctx context.Context, _ work) error {
			_, err := midge.Step(ctx, "charge", func(context.Context) (int, error) { calls++; return calls, nil })
			return errors.Join(err, ctx.Err())
		})
		task := b.enqueue("a", midge.KeepFor(time.Hour), midge.Timeout(500*time.Millisecond))
		b.after(time.Minute)
		got := b.task(task.Ref)
		if got.State != storage.Completed || got.Retries != 1 || calls != 1 {
			t.Errorf("the task is %s (%s) after %d failures and %d calls, want one of each", got.State, got.LastError(), got.Retries, calls)
		}
	})
}

// sequence is a job of random steps, sleeps and checkpoints, which is disturbed in random ways. It checks
// against the storage that no stored step is called, and that none is lost.
type sequence struct {
	*bench
	random *rand.Rand
	faulty *lossy
	ops    []string

	stored  map[string]string // by name, as last seen in the storage
	results map[string]int    // the results of steps
	calls   int
	faults  int // how many disturbances are left
}

// look reads the task, behind the runner's back, and checks that stored steps stay.
func (s *sequence) look(ctx context.Context, ref midge.Ref) {
	s.Helper()
	task, err := s.faulty.Storage.Task(context.WithoutCancel(ctx), ref)
	if err != nil {
		s.Errorf("read the task: %v", err)
		return
	}
	all, err := midge.StepsOf(task)
	if err != nil {
		s.Errorf("read the steps: %v", err)
	}
	now := make(map[string]string)
	for _, one := range all {
		var n int
		_ = one.Decode(&n) // a sleep has none
		now[one.Name] = fmt.Sprint(one.Ended, one.Until, n)
	}
	for name, was := range s.stored {
		if now[name] != was {
			s.Errorf("the step %s was %q, and is %q", name, was, now[name])
		}
	}
	s.stored = now
}

// disturb is true if something is to go wrong now.
func (s *sequence) disturb() bool {
	if s.faults == 0 || s.random.IntN(3) > 0 {
		return false
	}
	s.faults--
	return true
}

// lose makes the next writes fail, until the returned function is called.
func (s *sequence) lose() func() {
	err := []error{storage.ErrUnknown, storage.ErrUnknown, storage.ErrUnavailable, storage.ErrFull}[s.random.IntN(4)]
	happens := errors.Is(err, storage.ErrUnknown) && s.random.IntN(2) == 0
	fails := func(context.Context) (bool, error) { return happens, err }
	s.faulty.fails.Store(&fails)
	return func() { s.faulty.fails.Store(nil) }
}

func (s *sequence) run(ctx context.Context, _ work) error {
	info, _ := midge.Current(ctx)
	for _, op := range s.ops {
		s.look(ctx, info.Ref)
		mend := func() {}
		if s.disturb() {
			switch s.random.IntN(4) {
			case 0:
				mend = s.lose()
			case 1:
				return midge.RetryIn(time.Second, errBroken)
			case 2:
				panic("broken")
			case 3:
				return midge.Snooze(time.Second)
			}
		}
		err := s.do(ctx, info.Ref, op)
		mend()
		if err != nil && s.random.IntN(4) > 0 { // some jobs go on
			return err
		}
	}
	return nil
}

func (s *sequence) do(ctx context.Context, ref midge.Ref, op string) error {
	switch op[0] {
	case 'z':
		return midge.Sleep(ctx, op, time.Duration(s.random.IntN(int(time.Minute))))
	case 'c':
		return midge.Checkpoint(ctx, op)
	}
	got, err := midge.Step(ctx, op, func(context.Context) (int, error) {
		s.look(ctx, ref)
		if was, ok := s.stored[op]; ok {
			s.Errorf("the step %s was called, and is stored as %s", op, was)
		}
		if s.disturb() {
			return 0, errBroken
		}
		s.calls++
		s.results[op] = s.calls
		return s.calls, nil
	})
	if err == nil {
		s.look(ctx, ref)
		if got != s.results[op] || s.stored[op] == "" {
			s.Errorf("the step %s returned %d, want %d; it is stored as %q", op, got, s.results[op], s.stored[op])
		}
	}
	return err
}

func TestRandomSteps(t *testing.T) {
	for seed := range uint64(60) {
		bubble(t, func(b *bench) {
			s := &sequence{
				bench: b, random: rand.New(rand.NewPCG(seed, 0)), faulty: &lossy{Storage: b.store},
				results: make(map[string]int), faults: 15,
			}
			b.store = s.faulty
			for i := range 3 + s.random.IntN(6) {
				s.ops = append(s.ops, fmt.Sprint([]string{"step ", "step ", "zzz ", "checkpoint "}[s.random.IntN(4)], i))
			}
			b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second), Lease: 10 * time.Second}, s.run)
			task := b.enqueue("a", midge.KeepFor(24*time.Hour), midge.Retries(1000))
			got := b.task(task.Ref)
			for waits := 0; !got.State.Ended() && waits < 1000; waits++ {
				b.after(2 * time.Second)
				got = b.task(task.Ref)
			}
			names := slices.Sorted(maps.Keys(s.stored))
			if got.State != storage.Completed {
				t.Errorf("seed %d: the task is %s (%s, %s) with the steps %q of %q", seed, got.State, got.Reason, got.LastError(), names, s.ops)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A step that is not stored fails its attempt, also if a sleep has begun beside it. The next attempt finds the sleep
// and goes on with the rest of it.
func TestAStepThatIsLostBesideASleep(t *testing.T) {
	for _, lost := range []error{storage.ErrUnknown, storage.ErrUnavailable, storage.ErrFull} {
		bubble(t, func(b *bench) {
			store := &lossy{Storage: b.store}
			b.store = store
			var calls, attempts int
			b.run(midge.RunnerConfig{Backoff: midge.Constant(time.Second), Lease: 10 * time.Second}, func(ctx context.Context, _ work) error {
				attempts++
				asleep, failed := make(chan struct{}), make(chan error, 1)
				go func() { // ends with the step
					_, err := midge.Step(ctx, "charge", func(context.Context) (int, error) { calls++; <-asleep; return 1, nil })
					failed <- err
				}()
				synctest.Wait()
				slept := midge.Sleep(ctx, "nap", time.Hour)
				if attempts == 1 {
					fails := func(context.Context) (bool, error) { return false, lost }
					store.fails.Store(&fails)
				}
				close(asleep)
				err := <-failed
				store.fails.Store(nil)
				if (attempts == 1) != errors.Is(err, lost) || (slept == nil) != (attempts > 2) {
					t.Errorf("attempt %d: the step returned %v and the sleep %v", attempts, err, slept)
				}
				return nil
			})
			task := b.enqueue("a", midge.KeepFor(2*time.Hour))
			begun := time.Now()
			b.after(time.Minute)
			got := b.task(task.Ref)
			if got.State != storage.Scheduled || got.Retries != 1 || calls != 2 || !strings.Contains(got.LastError(), "cannot store step charge") {
				t.Errorf("%v: got %s after %d failures (%q) and %d calls, want 1 and 2", lost, got.State, got.Retries, got.LastError(), calls)
			}
			b.after(time.Hour)
			if got = b.task(task.Ref); got.State != storage.Completed || calls != 2 || got.Ended.Sub(begun) > time.Hour+time.Second {
				t.Errorf("%v: got %s after %d calls and %v, want it completed", lost, got.State, calls, got.Ended.Sub(begun))
			}
		})
	}
}
