package storagetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// slow is a storage on a machine that stops for up to two seconds before each repeat of a claim, and before
// an eighth of the other calls, at random. A repeat maintains the queue main first, as a repeat on PostgreSQL does.
type slow struct {
	storage.Storage

	random *rand.Rand
	last   storage.Call // of the last claim
}

func (s *slow) stop() { <-time.After(time.Duration(s.random.Int64N(int64(2 * time.Second)))) } // virtual

func (s *slow) mayStop() {
	if s.random.IntN(8) == 0 {
		s.stop()
	}
}

func (s *slow) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	s.mayStop()
	return s.Storage.Apply(ctx, call, txs...)
}

func (s *slow) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if s.mayStop(); req.Call == s.last {
		s.stop()
		if c, err := s.Storage.Claim(ctx, maintaining()); err != nil {
			return c, err
		}
	}
	s.last = req.Call
	return s.Storage.Claim(ctx, req)
}

func (s *slow) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	s.mayStop()
	return s.Storage.Extend(ctx, req)
}

func (s *slow) Configure(ctx context.Context, call storage.Call, queue string, set storage.Settings) error {
	s.mayStop()
	return s.Storage.Configure(ctx, call, queue, set)
}

func (s *slow) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	s.mayStop()
	return s.Storage.Task(ctx, ref)
}

func (s *slow) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	s.mayStop()
	return s.Storage.Tasks(ctx, q)
}

func (s *slow) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	s.mayStop()
	return s.Storage.Stats(ctx, queues...)
}

func (s *slow) Partitions(ctx context.Context, q storage.PartitionsQuery) (storage.PartitionsPage, error) {
	s.mayStop()
	return s.Storage.Partitions(ctx, q)
}

func (s *slow) Describe(ctx context.Context) (storage.Description, error) {
	s.mayStop()
	return s.Storage.Describe(ctx)
}

// TestModelsHoldOnASlowMachine: the rules that make random steps rely on no call that is fast.
func TestModelsHoldOnASlowMachine(t *testing.T) {
	t.Parallel()
	byName := ruleNames()
	for _, name := range []string{
		"share/model", "partition/model", "bounded/model", "bounded/cost model", "stats/model",
	} {
		for seed := range uint64(10) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				testserver.Parallel(t)
				ru, ok := byName[name]
				if !ok {
					t.Fatalf("no rule %q", name)
				}
				if failed, log := broken(t, ru, func(t testing.TB, limits storage.Limits) Opened {
					opened := openMemory(t, limits)
					opened.Storage = &slow{Storage: opened.Storage, random: rand.New(rand.NewPCG(seed, 29))}
					return opened
				}); failed {
					t.Errorf("rule %q is broken, want it to hold:\n%s", ru.name, log)
				}
			})
		}
	}
}
