package redis_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// TestADamagedQueueIsNamed: with its key, by Describe, and what names other queues in the same
// call goes on: claims, Txs and leases.
func TestADamagedQueueIsNamed(t *testing.T) {
	server := miniredis.RunT(t)
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, 0)
	in := func(queue, id string) storage.Tx {
		insert := insertOf(id)
		insert.Ref.Queue = queue
		return storage.Tx{Inserts: []storage.Insert{insert}}
	}
	txs := []storage.Tx{in("one", "a"), in("two", "b"), in("three", "c")}
	if _, err := session.Apply(t.Context(), txs...); err != nil {
		t.Fatal(err)
	}
	req := claimOf(10)
	req.Queues = []storage.ClaimQueue{{Name: "one"}, {Name: "two"}, {Name: "three"}}
	claimed, err := session.Claim(t.Context(), req)
	if err != nil || len(claimed.Tasks) != 3 {
		t.Fatalf("claimed %v, %v, want three", claimed.Tasks, err)
	}
	for _, key := range []string{"pending", "waiting"} {
		server.Del("midge:{two}:" + key)
		if err := server.Set("midge:{two}:"+key, "x"); err != nil {
			t.Fatal(err)
		}
	}

	var leases []storage.Extension
	for _, f := range claimed.Fences {
		leases = append(leases, storage.Extension{Fence: f, For: req.Lease})
	}
	extended, err := session.Extend(t.Context(), storage.ExtendRequest{Leases: leases})
	if err != nil || len(extended.Lost) > 0 || !slices.Equal(extended.Locked, []storage.Ref{claimed.Fences[1].Ref}) {
		t.Errorf("extended: got %+v, %v, want the second passed over", extended, err)
	}

	var settles []storage.Tx
	for _, f := range claimed.Fences {
		settles = append(settles, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
	}
	applied, err := session.Apply(t.Context(), settles...)
	if err != nil || applied[0].Err != nil || applied[1].Err == nil || applied[2].Err != nil {
		t.Errorf("completed: got %+v, %v, want the second alone refused", applied, err)
	}

	if _, err := session.Apply(t.Context(), in("one", "d"), in("three", "e")); err != nil {
		t.Fatal(err)
	}
	claimed, err = session.Claim(t.Context(), req)
	if err != nil || len(claimed.Tasks) != 2 || claimed.Now.IsZero() {
		t.Errorf("claimed %v at %v, %v, want two", claimed.Tasks, claimed.Now, err)
	}
	req.Queues = req.Queues[1:2]
	if claimed, err = session.Claim(t.Context(), req); err != nil || len(claimed.Tasks) > 0 || claimed.Now.IsZero() {
		t.Errorf("claimed %v at %v, %v, want none, and the time", claimed.Tasks, claimed.Now, err)
	}
	d, err := store.Describe(t.Context())
	if err != nil || !slices.ContainsFunc(d.Warnings, func(w string) bool {
		return strings.Contains(w, "queue two is damaged") && strings.Contains(w, "midge:{two}:pending is a string, want a hash") &&
			strings.Contains(w, "midge:{two}:waiting is a string, want a zset")
	}) {
		t.Errorf("got %q, %v, want a warning that names the queue and its keys", d.Warnings, err)
	}
	stats, err := store.Stats(t.Context(), "one", "two", "three")
	if err != nil || stats[0].Damaged+stats[2].Damaged != 0 || stats[1].Damaged != 2 {
		t.Errorf("got %+v, %v, want two keys damaged in the second queue", stats, err)
	}
}
