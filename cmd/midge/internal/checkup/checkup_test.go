package checkup

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// large is a storage with the greatest number of queues and runners to expect.
type large struct {
	storage.Storage
}

func queueOf(i int) string { return fmt.Sprintf("queue-of-tenant-%05d", i%10_000) }

func (l large) Queues(_ context.Context, q storage.QueuesQuery) (page storage.QueuesPage, err error) {
	for i := range 10_000 {
		name := queueOf(i)
		if len(page.Names) == storage.MaxPage {
			page.Next = page.Names[storage.MaxPage-1]
			break
		}
		if name > q.After {
			page.Names = append(page.Names, name)
		}
	}
	return page, nil
}

func (l large) Stats(_ context.Context, queues ...string) (stats []storage.Stats, err error) {
	for _, name := range queues {
		s := storage.Stats{Queue: name}
		s.Waiting = 1
		stats = append(stats, s)
	}
	return stats, nil
}

// Runners returns runners that serve the first half of the queues.
func (l large) Runners(context.Context) ([]storage.RunnerInfo, error) {
	runners := make([]storage.RunnerInfo, 1100)
	for i := range runners {
		for j := range 200 {
			runners[i].Queues = append(runners[i].Queues, queueOf((i*200+j)%5000))
		}
	}
	return runners, nil
}

// TestALargeStorageIsLookedOverInSeconds examines a storage with no runner for half of its queues.
func TestALargeStorageIsLookedOverInSeconds(t *testing.T) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	begun := time.Now()
	report, err := Look(t.Context(), large{store}, Bounds{Dead: -1}, "midge.")
	took := time.Since(begun)
	if err != nil || report.Queues != 10_000 || report.Problems() != 5000 {
		t.Fatalf("got %d problems of %d queues, %v; want 5000 queues that nobody serves", report.Problems(), report.Queues, err)
	}
	if took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}
