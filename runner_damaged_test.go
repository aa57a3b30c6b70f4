package midge_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// misnaming is a storage that hands out each task twice, once with an invalid id.
type misnaming struct{ storage.Storage }

func (m misnaming) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	claimed, err := m.Storage.Claim(ctx, req)
	for i := range claimed.Tasks {
		task, fence := claimed.Tasks[i], claimed.Fences[i]
		task.ID, fence.ID = "not an id", "not an id"
		claimed.Tasks, claimed.Fences = append(claimed.Tasks, task), append(claimed.Fences, fence)
	}
	return claimed, err
}

// TestALeaseThatIsRefusedCostsNoOtherIts has a storage that refuses a whole Extend because of one
// invalid lease.
func TestALeaseThatIsRefusedCostsNoOtherIts(t *testing.T) {
	bubble(t, func(b *bench) {
		var mu sync.Mutex // guards runs
		runs := make(map[string]int)
		b.runner = b.newRunner(misnaming{b.store}, midge.RunnerConfig{}, func(ctx context.Context, _ work) error {
			info, _ := midge.Current(ctx)
			mu.Lock()
			runs[info.Ref.ID]++
			mu.Unlock()
			time.Sleep(10 * time.Minute)
			return nil
		})
		go func() { b.done <- b.runner.Run(b.ctx) }()
		synctest.Wait()
		task := b.enqueue("long")
		b.after(20 * time.Minute)
		b.gone(task.Ref)
		mu.Lock()
		defer mu.Unlock()
		if runs[task.ID] != 1 {
			t.Errorf("%d runs, want 1", runs[task.ID])
		}
	})
}
