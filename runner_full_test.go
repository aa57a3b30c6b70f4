package midge_test

import (
	"context"
	"errors"
	"fmt"
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

	full    atomic.Bool
	refuses bool // it refuses heartbeats too
}

func (c *crowded) Describe(ctx context.Context) (storage.Description, error) {
	d, err := c.Storage.Describe(ctx)
	if c.full.Load() {
		d.Full = "the disk has no room"
	}
	return d, err
}

// Extend refuses heartbeats while the storage is full, as a full disk does.
func (c *crowded) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if c.refuses && c.full.Load() && req.Runner.ID != "" {
		return storage.Extended{}, fmt.Errorf("%w: no room for a heartbeat", storage.ErrFull)
	}
	return c.Storage.Extend(ctx, req)
}

// TestARunnerOfAFullStorageIsNotReady fills a storage under a runner, and makes room again.
func TestARunnerOfAFullStorageIsNotReady(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { fillUnderARunner(t, refuses) })
	}
}

func fillUnderARunner(t *testing.T, refuses bool) {
	t.Helper()
	inner, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := &crowded{Storage: inner, refuses: refuses}
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
			t.Errorf("with the storage full, %t, and refused heartbeats, %t, Ready returns %v", full, refuses, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
