package redis_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// keysOfAQueue are the keys of a queue that the test below breaks.
var keysOfAQueue = []string{
	"meta", "tasks", "pending", "side", "unique", "windows", "waiting", "suspects", "scheduled", "retry",
	"leases", "completed", "cancelled", "dead", "cursors", "damaged", "claims", "line", "voids", "lines",
	"idle", "ring",
}

// keysOfAllQueues are the keys that all queues of a server share.
var keysOfAllQueues = []string{"lanes", "opened"}

// TestScriptsChangeNothingWhereTheyFail breaks one key after the other, by a change of its type, and takes a
// step of each kind. A step that fails must have changed nothing.
func TestScriptsChangeNothingWhereTheyFail(t *testing.T) {
	var keys []string
	for _, key := range keysOfAQueue {
		keys = append(keys, "midge:{main}:"+key)
	}
	for _, key := range keysOfAllQueues {
		keys = append(keys, "midge:{*}:"+key)
	}
	for _, broken := range keys {
		t.Run(broken, func(t *testing.T) {
			server := miniredis.RunT(t)
			client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
			defer func() { _ = client.Close() }()
			store, err := redis.Open(t.Context(), redis.Config{Client: client})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			w := newWorld(t, store)
			server.Del(broken)
			if err := server.Set(broken, "of another type"); err != nil {
				t.Fatal(err)
			}
			for name, action := range w.actions() {
				before := dump(t, server)
				if action() == nil {
					continue
				}
				if after := dump(t, server); !reflect.DeepEqual(before, after) {
					t.Errorf("%s failed and changed\n%s", name, difference(before, after))
				}
			}
			stats, err := store.Stats(t.Context(), "main")
			if strings.HasPrefix(broken, "midge:{main}:") && (err != nil || stats[0].Damaged == 0) {
				t.Errorf("got %+v, %v, want %s of another type counted as damaged", stats, err, broken)
			}
		})
	}
}

// TestAClaimThatFailsHandsNoCursorOut: a key of another type makes it fail before it maintains the queue.
func TestAClaimThatFailsHandsNoCursorOut(t *testing.T) {
	for _, key := range []string{"midge:{main}:idle", "midge:{main}:ring", "midge:{*}:opened", "midge:{*}:lanes"} {
		server := miniredis.RunT(t)
		store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		w := newWorld(t, store)
		paused := storage.Settings{Partition: "p", Pause: &storage.Pause{On: true}}
		if err := w.session.Configure(t.Context(), "main", paused); err != nil {
			t.Fatal(err)
		}
		server.Del(key)
		if err := server.Set(key, "of another type"); err != nil {
			t.Fatal(err)
		}
		before := dump(t, server)
		claimed, err := storage.NewSession(store, -1).Claim(t.Context(), claimOf(5))
		if err != nil || len(claimed.Tasks)+len(claimed.Ticks) > 0 {
			t.Errorf("%s: got %+v, %v, want nothing", key, claimed, err)
		}
		if after := dump(t, server); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the claim has changed\n%s", key, difference(before, after))
		}
	}
}

// TestAClaimBesideADamagedQueueLosesNothing: its script call fails because of one queue, before it has maintained the
// other one. The call for that queue alone hands its cursor out and names the task that ended.
func TestAClaimBesideADamagedQueueLosesNothing(t *testing.T) {
	for _, key := range []string{"waiting", "line", "lines", "suspects", "pending"} {
		server := miniredis.RunT(t)
		store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		now := time.Now()
		server.SetTime(now)
		w := &world{t: t, session: storage.NewSession(store, -1)}
		cursor, crashes, other := insertOf("cursor.c"), insertOf("crashes"), insertOf("other")
		cursor.Cursor = &storage.Cursor{Next: now.Add(2 * storage.MinLease)}
		crashes.CrashLimit, other.Ref.Queue, other.Delay = 1, "other", time.Hour
		w.must(storage.Tx{Inserts: []storage.Insert{cursor, crashes}})
		w.must(storage.Tx{Inserts: []storage.Insert{other}})
		req := claimOf(5)
		req.Lease, req.Suspect = storage.MinLease, true
		req.Queues = append(req.Queues, storage.ClaimQueue{Name: "other"})
		if claimed, err := w.session.Claim(t.Context(), req); err != nil || len(claimed.Tasks) != 1 {
			t.Fatalf("claimed %v, %v, want the task that crashes", claimed.Tasks, err)
		}
		server.SetTime(now.Add(3 * storage.MinLease))
		server.Del("midge:{other}:" + key)
		if err := server.Set("midge:{other}:"+key, "of another type"); err != nil {
			t.Fatal(err)
		}
		claimed, err := w.session.Claim(t.Context(), req)
		if err != nil || len(claimed.Ticks) != 1 || len(claimed.Ended) != 1 {
			t.Errorf("%s: got %+v, %v, want a cursor and a task that ended", key, claimed, err)
		}
	}
}

// world is a queue with tasks in most states.
type world struct {
	t       *testing.T
	session *storage.Session
	fences  []storage.Fence
}

func newWorld(t *testing.T, store storage.Storage) *world {
	t.Helper()
	w := &world{t: t, session: storage.NewSession(store, -1)}
	var ins []storage.Insert
	for i := range 8 {
		ins = append(ins, insertOf(fmt.Sprintf("held%d", i)))
	}
	w.must(storage.Tx{Inserts: ins})
	claimed, err := w.session.Claim(t.Context(), claimOf(8))
	if err != nil {
		t.Fatal(err)
	}
	w.fences = claimed.Fences
	unique, later, cursor := insertOf("unique"), insertOf("later"), insertOf("cursor.c")
	unique.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife}
	later.Delay = time.Hour
	cursor.Cursor = &storage.Cursor{Next: time.Now().Add(-time.Hour)}
	w.must(storage.Tx{Inserts: []storage.Insert{unique, later, cursor, insertOf("waiting")}})
	return w
}

func (w *world) must(tx storage.Tx) {
	w.t.Helper()
	if _, err := w.session.ApplyOne(w.t.Context(), tx); err != nil {
		w.t.Fatal(err)
	}
}

// actions returns one step of each kind.
func (w *world) actions() map[string]func() error {
	apply := func(tx storage.Tx) func() error {
		return func() error {
			_, err := w.session.ApplyOne(w.t.Context(), tx)
			return err
		}
	}
	settle := func(i int, s storage.Settle) func() error {
		s.Fence = w.fences[i]
		return apply(storage.Tx{Settles: []storage.Settle{s}})
	}
	window := insertOf("window")
	window.Unique = storage.Unique{Key: "w", Mode: storage.UniqueWindow, For: time.Hour}
	large := insertOf("large")
	large.Payload = make([]byte, 10_000)
	return map[string]func() error{
		"insert":           apply(storage.Tx{Inserts: []storage.Insert{insertOf("new")}}),
		"insert unique":    apply(storage.Tx{Inserts: []storage.Insert{window}}),
		"insert large":     apply(storage.Tx{Inserts: []storage.Insert{large}}),
		"complete":         settle(0, storage.Settle{Outcome: storage.Complete}),
		"complete, result": settle(1, storage.Settle{Outcome: storage.Complete, Result: []byte("r")}),
		"fail":             settle(2, storage.Settle{Outcome: storage.Fail, Error: "e", Stack: "s", Delay: time.Hour}),
		"snooze":           settle(3, storage.Settle{Outcome: storage.Snooze, Delay: time.Hour}),
		"release":          settle(4, storage.Settle{Outcome: storage.Release}),
		"bury":             settle(5, storage.Settle{Outcome: storage.Bury, Reason: "r"}),
		"cancel":           apply(storage.Tx{Changes: []storage.Change{{Ref: refOf("later"), Cancel: true}}}),
		"cancel in turn":   apply(storage.Tx{Changes: []storage.Change{{Ref: refOf("waiting"), Cancel: true}}}),
		"claim": func() error {
			_, err := w.session.Claim(w.t.Context(), claimOf(5))
			return err
		},
		"extend": func() error {
			_, err := w.session.Extend(w.t.Context(), storage.ExtendRequest{Leases: []storage.Extension{
				{Fence: w.fences[6], For: time.Hour, Progress: []byte("p")},
			}})
			return err
		},
		"claim a suspect": func() error {
			req := claimOf(5)
			req.Suspect = true
			_, err := w.session.Claim(w.t.Context(), req)
			return err
		},
		"stats": func() error {
			_, err := w.session.Storage().Stats(w.t.Context(), "main")
			return err
		},
		"pause": func() error {
			return w.session.Configure(w.t.Context(), "main", storage.Settings{Pause: &storage.Pause{On: true}})
		},
	}
}

func refOf(id string) storage.Ref { return storage.Ref{Queue: "main", ID: id} }

func insertOf(id string) storage.Insert {
	return storage.Insert{
		Ref: refOf(id), Kind: "job", Encoding: "raw", Payload: []byte("p"), MaxRetries: 3, CrashLimit: 3,
	}
}

func claimOf(n int) storage.ClaimRequest {
	return storage.ClaimRequest{
		Runner: "r1", Queues: []storage.ClaimQueue{{Name: "main"}}, Start: n, Lease: time.Minute,
	}
}

// dump returns everything that a miniredis has of the queue main.
func dump(t *testing.T, server *miniredis.Miniredis) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, key := range server.Keys() {
		if !strings.HasPrefix(key, "midge:{main}:") {
			continue
		}
		switch server.Type(key) {
		case "hash":
			fields, err := server.HKeys(key)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fields {
				all[key+" "+f] = server.HGet(key, f)
			}
		case "zset":
			members, err := server.SortedSet(key)
			if err != nil {
				t.Fatal(err)
			}
			for m, score := range members {
				all[key+" "+m] = fmt.Sprintf("%.0f", score)
			}
		default:
			all[key] = "of another type"
		}
	}
	return all
}

func difference(before, after map[string]string) string {
	var b strings.Builder
	for k := range maps.Keys(before) {
		if after[k] != before[k] {
			fmt.Fprintf(&b, "%s: %q, now %q\n", k, before[k], after[k])
		}
	}
	for k := range maps.Keys(after) {
		if _, ok := before[k]; !ok {
			fmt.Fprintf(&b, "%s: new, %q\n", k, after[k])
		}
	}
	return b.String()
}

// TestScriptsUseNoCommandThatReadsEverything searches for commands whose cost grows with the number of
// all tasks.
func TestScriptsUseNoCommandThatReadsEverything(t *testing.T) {
	files, err := filepath.Glob("scripts/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts: got %v, error %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{
			"'KEYS'", "'SMEMBERS'", "'HGETALL'", "'HKEYS'", "'HVALS'", "'LPOS'", "'LREM'", "'EXPIRE'", "'PEXPIRE'",
		} {
			if strings.Contains(string(text), command) {
				t.Errorf("%s uses %s", file, command)
			}
		}
		if !strings.HasPrefix(string(text), "-- ") {
			t.Errorf("%s has no header", file)
		}
	}
}
