package midge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// doubtful is a storage with a warning.
type doubtful struct {
	storage.Storage

	of atomic.Pointer[string]
}

func (d *doubtful) Describe(ctx context.Context) (storage.Description, error) {
	described, err := d.Storage.Describe(ctx)
	if w := d.of.Load(); w != nil {
		described.Warnings = append(described.Warnings, *w)
	}
	return described, err
}

// TestNewWarningsAreLogged has the storage warn while a runner runs. The runner logs the warning
// once for as long as it lasts, and again when it returns.
func TestNewWarningsAreLogged(t *testing.T) {
	bubble(t, func(b *bench) {
		store := &doubtful{Storage: b.store}
		b.store = store
		logger, lines := logged()
		b.run(midge.RunnerConfig{Logger: logger}, func(context.Context, work) error { return nil })
		warning := "the disk is on fire"
		for i, c := range []struct {
			of   *string
			want int
		}{{nil, 0}, {&warning, 1}, {&warning, 1}, {nil, 1}, {&warning, 2}} {
			store.of.Store(c.of)
			b.after(time.Minute)
			if got := lines(warning); len(got) != c.want {
				t.Errorf("after %d minutes: got %d lines, want %d", i+1, len(got), c.want)
			}
		}
	})
}
