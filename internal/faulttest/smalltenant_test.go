//go:build unix

package faulttest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// TestASmallTenantIsClaimedNext checks that the task of a small tenant, which comes last, is among the tasks
// of the next two claims of a hundred, however many tasks of a big tenant wait in the same queue. It prints
// the time of the claims.
func TestASmallTenantIsClaimedNext(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		testserver.Parallel(t)
		store, err := memory.Open(memory.Config{})
		must(t, err)
		defer func() { must(t, store.Close()) }()
		claimedNext(t, store)
	})
	eachStorage(t, func(t *testing.T, s *server) {
		place := s.place(t)
		store, err := place.open(t.Context())
		must(t, err)
		defer func() { must(t, store.Close()) }()
		claimedNext(t, store)
	})
}

// claimedNext fills a queue of a storage with tasks of a big tenant, behind which one of a small tenant comes, and
// claims.
func claimedNext(t *testing.T, store storage.Storage) {
	t.Helper()
	big := count(20_000, 1_000_000)
	session := storage.NewSession(store, time.Minute)
	insert := func(tenant string, n int) {
		for from := 0; from < n; from += storage.MaxTxOps {
			var tx storage.Tx
			for i := from; i < min(from+storage.MaxTxOps, n); i++ {
				tx.Inserts = append(tx.Inserts, storage.Insert{
					Ref: storage.Ref{Queue: "q", ID: fmt.Sprintf("%s.%07d", tenant, i)}, Kind: "kind", Encoding: "raw",
					CrashLimit: 3, Partition: tenant,
				})
			}
			_, err := session.ApplyOne(t.Context(), tx)
			must(t, err)
		}
	}
	begun := time.Now()
	insert("big", big)
	insert("small", 1)
	filled, found := time.Since(begun), false
	begun = time.Now()
	for range 2 {
		c, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "runner", Queues: []storage.ClaimQueue{{Name: "q"}}, Start: 100, Lease: time.Minute,
		})
		must(t, err)
		found = found || slices.ContainsFunc(c.Tasks, func(task storage.Task) bool { return task.Partition == "small" })
	}
	t.Logf("%d tasks of the big tenant came in %v, and two claims took %v", big,
		filled.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
	if !found {
		t.Error("the task of the small tenant is in none of the next two claims of 100")
	}
}
