package midge_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// damagedSteps is a storage that returns other bytes for checkpoints if a test sets them.
type damagedSteps struct {
	storage.Storage

	checkpoint []byte
}

func (d *damagedSteps) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	t, err := d.Storage.Task(ctx, ref)
	if d.checkpoint != nil {
		t.Checkpoint = d.checkpoint
	}
	return t, err //nolint:wrapcheck // as the storage has it
}

// TestJobsGoOnBesideDamagedSteps runs jobs whose stored steps are cut off, have a flipped bit, or a huge
// length. If the steps cannot be read, the attempt fails with an ErrDamaged that names the task. Each
// attempt ends, and other tasks go on.
func TestJobsGoOnBesideDamagedSteps(t *testing.T) {
	bubble(t, func(b *bench) {
		store := &damagedSteps{Storage: b.store}
		b.store = store
		var err error
		b.run(midge.RunnerConfig{Logger: zap.NewNop()}, func(ctx context.Context, w work) error {
			if w.Name == "other" {
				return nil
			}
			var point int
			_, loaded := midge.LoadCheckpoint(ctx, &point)
			if loaded == nil && point == 0 {
				loaded = midge.Checkpoint(ctx, 77)
			}
			_, first := midge.Step(ctx, "first", func(context.Context) (string, error) { return "one", nil })
			err = errors.Join(loaded, first, midge.Sleep(ctx, "nap", time.Hour))
			return err
		})
		task := b.enqueue("whole")
		b.after(time.Second)
		whole := b.task(task.Ref)
		if all, err := midge.StepsOf(whole); err != nil || len(all) != 2 {
			t.Fatalf("got %v, %v, want the step and the sleep", all, err)
		}
		for _, checkpoint := range damage(whole.Checkpoint) {
			store.checkpoint = checkpoint
			err = nil
			task := b.enqueue("damaged", midge.Retries(midge.None), midge.KeepFor(time.Hour))
			b.after(time.Second)
			got := b.task(task.Ref)
			if _, unread := midge.StepsOf(got); unread != nil && !errors.Is(unread, midge.ErrDamaged) {
				t.Errorf("%q: StepsOf: got %v, want an ErrDamaged", checkpoint, unread)
			} else if unread != nil && (got.State != storage.Dead || !errors.Is(err, midge.ErrDamaged) || !strings.Contains(err.Error(), task.ID)) {
				t.Errorf("%q: got %s, %v, want it dead by an ErrDamaged that names it", checkpoint, got.State, err)
			}
			if got.State == storage.Pending || got.State == storage.Waiting {
				t.Errorf("%q: the task is still %s", checkpoint, got.State)
			}
		}
		store.checkpoint = nil
		other := b.enqueue("other", midge.KeepFor(time.Hour))
		b.after(time.Second)
		if got := b.task(other.Ref); got.State != storage.Completed {
			t.Errorf("another task is %s, want it completed", got.State)
		}
	})
}

// TestASleepThatEndsTooLateIsCut has a stored sleep that ends in more than 100 years, as it was stored under a
// wrong clock, or damaged since. Its task sleeps, for 100 years at most.
func TestASleepThatEndsTooLateIsCut(t *testing.T) {
	for _, years := range []int{101, 300, 7000} {
		bubble(t, func(b *bench) {
			now := time.Now().UTC()
			until := now.AddDate(years, 0, 0)
			kept := steps.Envelope{Steps: []steps.Step{{Name: "nap", Ended: until.Add(-time.Hour), Until: until}}}
			b.store = &damagedSteps{Storage: b.store, checkpoint: kept.Encode()}
			b.run(midge.RunnerConfig{Lease: 3 * time.Second}, func(ctx context.Context, _ work) error {
				return midge.Sleep(ctx, "nap", time.Hour)
			})
			task := b.enqueue("a")
			b.after(time.Minute)
			got := b.task(task.Ref)
			if got.State != storage.Scheduled || got.Crashes != 0 || got.Due.Sub(now.Add(storage.MaxDelay)).Abs() > time.Second {
				t.Errorf("in %d years: it is %s, due at %v after %d crashes, want it to sleep", years, got.State, got.Due, got.Crashes)
			}
		})
	}
}

// damage returns whole cut off at each byte, with a flipped bit in each, and with a huge length at each.
func damage(whole []byte) (all [][]byte) {
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1 << (i % 8)
		huge := slices.Concat(whole[:i], []byte("\xff\xff\xff\xff\xff\xff\xff\x7f"), whole[i+1:])
		all = append(all, whole[:i:i], flipped, huge)
	}
	return all[1:] // without the empty one, which has no steps
}
