package midge_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// crowded is a storage that describes itself as full while full is set.
type crowded struct {
	storage.Storage

	full atomic.Bool
}

func (c *crowded) Describe(ctx context.Context) (storage.Description, error) {
	d, err := c.Storage.Describe(ctx)
	if c.full.Load() {
		d.Full = "the disk has no room"
	}
	return d, err
}

// TestARunnerOfAFullStorageIsNotReady fills a storage under a runner, and makes room again.
func TestARunnerOfAFullStorageIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, err := memory.Open(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		store := &crowded{Storage: inner}
		runner, err := midge.NewRunner(store, midge.RunnerConfig{Slog: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(ctx) }()
		for _, full := range []bool{false, true, false} {
			store.full.Store(full)
			time.Sleep(time.Minute) // virtual: more than three heartbeats
			if err := runner.Ready(); errors.Is(err, midge.ErrFull) != full || !full && err != nil {
				t.Errorf("with the storage full, %t, Ready returns %v", full, err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
