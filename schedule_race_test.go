package midge_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// between is a storage that does something once, after it has read a schedule for a caller, and before the caller
// learns it.
type between struct {
	storage.Storage
	do atomic.Pointer[func()]
}

func (s *between) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	t, err := s.Storage.Task(ctx, ref)
	if do := s.do.Swap(nil); do != nil {
		(*do)()
	}
	return t, err //nolint:wrapcheck // as the storage has it
}

// TestANameHasOneOwner has a program declare a schedule in the midst of a SetSchedule of its name, and the other
// way round. Only one of the two ticks.
func TestANameHasOneOwner(t *testing.T) {
	for _, kept := range []bool{false, true} {
		bubble(t, func(b *bench) {
			store := &between{Storage: b.store}
			var ran ticks
			runs, sets := storage.Storage(store), b.store
			if !kept { // the program is first
				runs, sets = sets, runs
			}
			client, err := midge.NewClient(sets, midge.ClientConfig{})
			must(err)
			r := b.newRunner(runs, midge.RunnerConfig{}, ran.run)
			must(r.Periodic(midge.Every(time.Minute), work{"code"}, midge.Named("x")))
			var set error
			first := func() {
				set = client.Queue(midge.DefaultQueue).SetSchedule(b.ctx, "x", midge.Every(time.Minute), work{"kept"})
			}
			second := func() { must(r.Start(b.ctx)); b.after(time.Second) }
			if !kept {
				first, second = second, first
			}
			store.do.Store(&first)
			second()
			b.after(10 * time.Minute)
			if store.do.Load() != nil {
				t.Error("nothing came between")
			}
			if errors.Is(set, midge.ErrExists) == kept || kept && set != nil {
				t.Errorf("kept %t: SetSchedule returned %v", kept, set)
			}
			byKept, byCode := len(ran.of("kept")), len(ran.of("code"))
			if is := b.scheduled("x").Declared.Kept; is != kept || byKept+byCode != 10 || (byKept > 0) != kept {
				t.Errorf("kept %t: it is kept: %t, with %d ticks, and %d of the program", kept, is, byKept, byCode)
			}
			must(r.Shutdown(b.Context()))
		})
	}
}

// TestAPauseDuringADeploy pauses a schedule while a later version of its program replaces it.
func TestAPauseDuringADeploy(t *testing.T) {
	bubble(t, func(b *bench) {
		var ran ticks
		old := b.newRunner(b.store, midge.RunnerConfig{}, ran.run)
		must(old.Periodic(midge.Every(time.Minute), work{"old"}, midge.Named("x")))
		must(old.Start(b.ctx))
		b.after(time.Second)
		store := &between{Storage: b.store}
		pause := func() { must(b.client.Queue(midge.DefaultQueue).PauseSchedule(b.ctx, "x")) }
		store.do.Store(&pause)
		r := b.newRunner(store, midge.RunnerConfig{}, ran.run)
		must(r.Periodic(midge.Every(time.Minute), work{"new"}, midge.Named("x")))
		must(r.Start(b.ctx))
		b.after(time.Second)
		must(old.Shutdown(b.Context()))
		b.after(10 * time.Minute)
		s := b.scheduled("x")
		if n := len(ran.of("old")) + len(ran.of("new")); store.do.Load() != nil || !s.Declared.Paused || n != 0 {
			t.Errorf("it is paused: %t, after %d ticks, want a pause that stays", s.Declared.Paused, n)
		}
		must(b.client.Queue(midge.DefaultQueue).ResumeSchedule(b.ctx, "x"))
		b.after(10 * time.Minute)
		if byOld, byNew := len(ran.of("old")), len(ran.of("new")); byOld != 0 || byNew != 10 {
			t.Errorf("%d ticks of the old version and %d of the new one, want ten of the new one", byOld, byNew)
		}
		must(r.Shutdown(b.Context()))
	})
}
