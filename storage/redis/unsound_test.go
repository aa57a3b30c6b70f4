package redis_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// TestADamagedQueueIsNamed: Describe names the queue and the damaged key. Claims, Txs and extensions
// for other queues in the same call go on.
func TestADamagedQueueIsNamed(t *testing.T) {
	server := miniredis.RunT(t)
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, testserver.Patience)
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

// TestAHeldQueueShowsBesideADamagedQueue checks that a claim still reports the queue whose partitions hold tasks back.
func TestAHeldQueueShowsBesideADamagedQueue(t *testing.T) {
	session, server := onMini(t, 0)
	limit := storage.Limit{Partition: storage.PartitionLimit{Concurrency: 1}}
	for _, id := range []string{"a", "b"} {
		insert := insertOf(id)
		insert.Ref.Queue, insert.Partition = "one", "p"
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insert}}); err != nil {
			t.Fatal(err)
		}
	}
	err := session.Configure(t.Context(), "one", storage.Settings{Limit: &storage.OperatorLimit{On: true, Limit: limit}})
	if err != nil {
		t.Fatal(err)
	}
	req := claimOf(10)
	req.Queues = []storage.ClaimQueue{{Name: "one"}}
	if c, err := session.Claim(t.Context(), req); err != nil || len(c.Tasks) != 1 {
		t.Fatalf("claimed %v, %v, want one", c.Tasks, err)
	}
	if err := server.Set("midge:{two}:meta", "x"); err != nil {
		t.Fatal(err)
	}
	req.Queues = append(req.Queues, storage.ClaimQueue{Name: "two"})
	if c, err := session.Claim(t.Context(), req); err != nil || !slices.Equal(c.Held, []string{"one"}) {
		t.Errorf("held %v, %v, want the sound queue", c.Held, err)
	}
}

// TestAnExpiredLaneShowsBesideADamagedQueue: the caller then opens a new lane at a new time, and knows
// that the call did not happen.
func TestAnExpiredLaneShowsBesideADamagedQueue(t *testing.T) {
	server := miniredis.RunT(t)
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := server.Set("midge:{one}:meta", "x"); err != nil {
		t.Fatal(err)
	}
	described, err := store.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := claimOf(10)
	req.Token = storage.NewToken()
	req.Queues = []storage.ClaimQueue{{Name: "one"}, {Name: "two"}}
	opened := described.Now.Add(-2 * storage.LaneLife)
	req.Call = storage.Call{Lane: storage.Lane{ID: storage.NewToken(), Opened: opened}, Seq: 1}
	if _, err := store.Claim(t.Context(), req); !errors.Is(err, storage.ErrLaneExpired) {
		t.Errorf("got error %v, want ErrLaneExpired", err)
	}
}

// TestADamagedTaskIsAFinalError: Task returns it whether the task was set apart or not.
func TestADamagedTaskIsAFinalError(t *testing.T) {
	server := miniredis.RunT(t)
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, testserver.Patience)
	in := insertOf("a")
	if _, err := session.Apply(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		t.Fatal(err)
	}
	server.HSet("midge:{"+in.Ref.Queue+"}:tasks", "a", "garbage")
	for _, when := range []string{"where it stands", "set apart"} {
		_, err := store.Task(t.Context(), in.Ref)
		if !errors.Is(err, storage.ErrDamaged) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s: got %v, want an ErrDamaged alone", when, err)
		}
		if claimed, err := session.Claim(t.Context(), claimOf(1)); err != nil || len(claimed.Tasks) > 0 {
			t.Errorf("claimed %v, %v, want none", claimed.Tasks, err)
		}
	}
}

// TestARepeatBesideADamagedQueueClaimsNothingAnew: a queue turns out to be damaged, and the reply
// for one of the others is lost. The repeat returns the tasks that the first try claimed.
func TestARepeatBesideADamagedQueueClaimsNothingAnew(t *testing.T) {
	server := miniredis.RunT(t)
	proxy := testserver.NewProxy(t, server.Addr())
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + proxy.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	queues := []string{"one", "two", "three"}
	var txs []storage.Tx
	req := claimOf(10)
	req.Queues = nil
	for _, queue := range queues {
		for _, id := range []string{"a", "b"} {
			in := insertOf(id)
			in.Ref.Queue = queue
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
		}
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: queue, Max: 1})
	}
	if _, err := storage.NewSession(store, testserver.Patience).Apply(t.Context(), txs...); err != nil {
		t.Fatal(err)
	}
	server.Del("midge:{one}:waiting")
	if err := server.Set("midge:{one}:waiting", "x"); err != nil {
		t.Fatal(err)
	}
	d, err := store.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req.Token = storage.NewToken()
	req.Call = storage.Call{Lane: storage.Lane{ID: storage.NewToken(), Opened: d.Now}, Seq: 1}
	third := func(request []byte) bool {
		return bytes.Contains(request, []byte("{three}")) && !bytes.Contains(request, []byte("{two}"))
	}
	lost := proxy.CutAfterRequest(third, -1) // the driver's further tries too
	if _, err := store.Claim(t.Context(), req); !errors.Is(err, storage.ErrUnknown) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	lost.Release()
	claimed, err := store.Claim(t.Context(), req)
	var got []string
	for _, task := range claimed.Tasks {
		got = append(got, task.Ref.String())
	}
	if err != nil || !slices.Equal(got, []string{"two/a", "three/a"}) {
		t.Errorf("the repeat gave %q, %v, want what the first try claimed", got, err)
	}
	for _, queue := range queues[1:] {
		stats, err := store.Stats(t.Context(), queue)
		if err != nil || stats[0].Pending != 1 {
			t.Errorf("%s: %+v, %v, want one pending", queue, stats, err)
		}
	}
}

// TestWhatHasNoRecordIsCounted: a member without a record is set apart under its own name, in whichever
// state's set it is.
func TestWhatHasNoRecordIsCounted(t *testing.T) {
	for set, member := range map[string]string{
		"scheduled": "garbage", "retry": "garbage", "waiting": "none", "line": "none", "leases": "none", "dead": "garbage",
	} {
		t.Run(set, func(t *testing.T) {
			server := miniredis.RunT(t)
			store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			session := storage.NewSession(store, testserver.Patience)
			in := insertOf("a")
			if _, err := session.Apply(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
				t.Fatal(err)
			}
			key := "midge:{" + in.Ref.Queue + "}:"
			if set == "line" {
				_, err = server.Push(key+set, member)
			} else {
				_, err = server.ZAdd(key+set, 1, member)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := session.Claim(t.Context(), claimOf(10)); err != nil {
					t.Fatal(err)
				}
			}
			stats, err := store.Stats(t.Context(), in.Ref.Queue)
			if names, _ := server.HKeys(key + "damaged"); err != nil || stats[0].Damaged != 1 || !slices.Equal(names, []string{member}) {
				t.Errorf("%d damaged, %q, %v, want %q", stats[0].Damaged, names, err, member)
			}
		})
	}
}

// TestAListingGoesOnBehindWhatHasNoRecord: in either order. The place of a damaged member may be a number
// that is too large to add one to it.
func TestAListingGoesOnBehindWhatHasNoRecord(t *testing.T) {
	server := miniredis.RunT(t)
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, testserver.Patience)
	for _, id := range []string{"a", "b"} {
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf(id)}}); err != nil {
			t.Fatal(err)
		}
		claimed, err := session.Claim(t.Context(), claimOf(1))
		if err != nil {
			t.Fatal(err)
		}
		settle := storage.Settle{Fence: claimed.Fences[0], Outcome: storage.Bury}
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, score := range []float64{1, 1 << 52} { // before all others, and behind them
		if _, err := server.ZAdd("midge:{main}:dead", score, "garbage"); err != nil {
			t.Fatal(err)
		}
		for _, newest := range []bool{false, true} {
			query := storage.TasksQuery{Queue: "main", State: storage.Dead, Limit: 1, Newest: newest}
			ids, after := pagedIDs(t, store, query)
			if want := map[bool]string{false: "ab", true: "ba"}[newest]; ids != want || after != "" {
				t.Errorf("newest %t: listed %q up to %q, want %q to the end", newest, ids, after, want)
			}
		}
	}
}

// pagedIDs lists the ids of up to ten pages, and returns where the list would go on, "" at its end.
func pagedIDs(t *testing.T, store storage.Storage, query storage.TasksQuery) (ids, after string) {
	t.Helper()
	for range 10 {
		page, err := store.Tasks(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page.Tasks {
			ids += task.ID
		}
		if query.After = page.Next; query.After == "" {
			break
		}
	}
	return ids, query.After
}
