package redis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// started opens a storage on a real server of its own.
func started(t *testing.T, config ...string) (*testserver.Server, *redis.Storage, *storage.Session) {
	t.Helper()
	testserver.Require(t)
	server := testserver.Redis(t, config...)
	store, err := redis.Open(t.Context(), redis.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return server, store, storage.NewSession(store, testserver.Patience)
}

// do sends a command to a server.
func do(t *testing.T, server *testserver.Server, args ...string) string {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	return reply
}

// fill inserts n tasks with the ids id0, id1, and so on, in calls of a thousand.
func fill(t *testing.T, session *storage.Session, n int, alter func(*storage.Insert)) {
	t.Helper()
	fillFrom(t, session, 0, n, alter)
}

// fillFrom inserts the tasks from id<from> up to id<to>, which is excluded.
func fillFrom(t *testing.T, session *storage.Session, from, to int, alter func(*storage.Insert)) {
	t.Helper()
	for begin := from; begin < to; begin += 1000 {
		var txs []storage.Tx
		for i := begin; i < min(begin+1000, to); i++ {
			in := insertOf("id" + strconv.Itoa(i))
			if alter != nil {
				alter(&in)
			}
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
		}
		if _, err := session.Apply(t.Context(), txs...); err != nil {
			t.Fatal(err)
		}
	}
}

// drain claims and completes tasks until none is left, and returns how many there were. It calls each
// function of after after each step.
func drain(t *testing.T, session *storage.Session, after ...func()) int {
	t.Helper()
	n := 0
	for {
		claimed, err := session.Claim(t.Context(), claimOf(500))
		if err != nil {
			t.Fatal(err)
		}
		callAll(after)
		if len(claimed.Tasks) == 0 && !claimed.More {
			return n
		}
		var txs []storage.Tx
		for _, f := range claimed.Fences {
			txs = append(txs, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
		}
		if len(txs) == 0 {
			continue
		}
		applied, err := session.Apply(t.Context(), txs...)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range applied {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		callAll(after)
		n += len(txs)
	}
}

func callAll(funcs []func()) {
	for _, f := range funcs {
		f()
	}
}

func TestFullRedisRefusesInsertsAndDrains(t *testing.T) {
	server, store, session := started(t, "maxmemory-policy noeviction")
	held := make([]storage.Insert, 5)
	for i := range held {
		held[i] = insertOf(fmt.Sprintf("held%d", i))
	}
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: held}); err != nil {
		t.Fatal(err)
	}
	claimed, err := session.Claim(t.Context(), claimOf(5))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, session, 2000, nil)
	later := insertOf("later")
	later.Delay, later.Headers = time.Hour, map[string]string{storage.DueHeader: "1h"}
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{later}}); err != nil {
		t.Fatal(err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	_, err = session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf("refused")}})
	if !errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrUnknown) {
		t.Errorf("insert: got %v, want ErrFull", err)
	}
	if _, err := store.Task(t.Context(), refOf("refused")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("the task refused: got %v, want ErrNotFound", err)
	}
	_, err = session.Extend(t.Context(), storage.ExtendRequest{
		Runner: storage.RunnerInfo{ID: "r1", For: time.Minute},
		Leases: []storage.Extension{{Fence: claimed.Fences[0], For: time.Hour, Progress: []byte("half")}},
	})
	if err != nil {
		t.Errorf("extend: %v", err)
	}
	tx := storage.Tx{
		Settles: []storage.Settle{{Fence: claimed.Fences[0], Outcome: storage.Complete}},
		Inserts: []storage.Insert{insertOf("follow-up")},
	}
	if _, err := session.ApplyOne(t.Context(), tx); err != nil {
		t.Errorf("settle with a follow-up: %v", err)
	}
	fail := storage.Settle{Fence: claimed.Fences[1], Outcome: storage.Fail, Error: "e", Delay: time.Hour}
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{fail}}); err != nil {
		t.Errorf("fail: %v", err)
	}
	cancel := storage.Tx{Changes: []storage.Change{{Ref: refOf("id7"), Cancel: true}}}
	if _, err := session.ApplyOne(t.Context(), cancel); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if err := session.DeleteTask(t.Context(), refOf("id8")); err != nil {
		t.Errorf("delete: %v", err)
	}
	for _, ch := range []storage.Change{{Delay: time.Minute}, {At: time.Now().Add(time.Hour)}, {Now: true}} {
		task, err := store.Task(t.Context(), refOf("later"))
		if err != nil {
			t.Fatal(err)
		}
		ch.Ref, ch.Version = task.Ref, task.Version
		ch.CompleteHeaders(&task)
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Changes: []storage.Change{ch}}); err != nil {
			t.Errorf("a new moment, %+v: %v", ch, err)
		}
	}
	if got, want := drain(t, session), 2000-2+1+1; got != want {
		t.Errorf("drained: got %d, want %d", got, want)
	}
}

// TestFullRedisTakesSettlesBesideInserts: a full Redis must not refuse settles that share a flush with
// inserts.
func TestFullRedisTakesSettlesBesideInserts(t *testing.T) {
	server, _, session := started(t, "maxmemory-policy noeviction")
	fill(t, session, 200, nil)
	claimed, err := session.Claim(t.Context(), claimOf(200))
	if err != nil {
		t.Fatal(err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	var all sync.WaitGroup
	for i, f := range claimed.Fences {
		all.Go(func() {
			_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf(fmt.Sprintf("x%d", i))}})
			if !errors.Is(err, storage.ErrFull) {
				t.Errorf("insert: got %v, want ErrFull", err)
			}
		})
		all.Go(func() {
			settle := storage.Settle{Fence: f, Outcome: storage.Complete}
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
				t.Errorf("settle: %v", err)
			}
		})
	}
	all.Wait()
}

func TestForgottenScriptsAreNoEvent(t *testing.T) {
	server, _, session := started(t)
	ctx, stop := context.WithCancel(t.Context())
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for ctx.Err() == nil {
			_, _ = server.Do("SCRIPT", "FLUSH")
		}
	})
	fill(t, session, 5000, nil)
	got := drain(t, session)
	stop()
	flusher.Wait()
	if got != 5000 {
		t.Errorf("drained: got %d, want 5000", got)
	}
}

func TestRedisThatEvictsIsRefused(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t, "maxmemory 100mb")
	open := func(allow bool) ([]string, error) {
		s, err := redis.Open(t.Context(), redis.Config{URL: server.URL(), AllowEviction: allow})
		if err != nil {
			return nil, err
		}
		defer func() { _ = s.Close() }()
		d, err := s.Describe(t.Context())
		return d.Warnings, err
	}
	for _, policy := range []string{
		"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
	} {
		do(t, server, "CONFIG", "SET", "maxmemory-policy", policy)
		if _, err := open(false); !errors.Is(err, storage.ErrRefused) {
			t.Errorf("%s: got %v, want ErrRefused", policy, err)
		}
		warnings, err := open(true)
		if err != nil || !strings.Contains(strings.Join(warnings, "\n"), policy) {
			t.Errorf("%s, allowed: got warnings %v, error %v", policy, warnings, err)
		}
	}
	do(t, server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	if _, err := open(false); err != nil {
		t.Errorf("noeviction: %v", err)
	}
}

func TestReplicaIsRefused(t *testing.T) {
	testserver.Require(t)
	master := testserver.Redis(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := testserver.Redis(t)
	do(t, replica, "REPLICAOF", host, port)
	if _, err := redis.Open(t.Context(), redis.Config{URL: replica.URL()}); !errors.Is(err, storage.ErrRefused) {
		t.Errorf("open a replica: got %v, want ErrRefused", err)
	}
}

func TestNodeOfAClusterIsRefusedAsOneRedis(t *testing.T) {
	testserver.Require(t)
	node := testserver.Redis(t, "cluster-enabled yes")
	if _, err := redis.Open(t.Context(), redis.Config{URL: node.URL()}); !errors.Is(err, storage.ErrRefused) {
		t.Errorf("open: got %v, want ErrRefused", err)
	}
}

func TestDurabilityIsTold(t *testing.T) {
	testserver.Require(t)
	for config, want := range map[string]string{
		"appendonly no": "no append-only file", "appendfsync always": "fsync always", "appendfsync no": "left to the system",
		"appendfsync everysec": "two seconds",
	} {
		lines := []string{config}
		if strings.HasPrefix(config, "appendfsync") {
			lines = append(lines, "appendonly yes")
		}
		_, store, _ := started(t, lines...)
		d, err := store.Describe(t.Context())
		if err != nil || !strings.Contains(d.Durability, want) || !strings.HasPrefix(d.Storage, "redis ") {
			t.Errorf("%s: got %q, %q, error %v", config, d.Storage, d.Durability, err)
		}
		if warned := strings.Contains(strings.Join(d.Warnings, "\n"), "append-only"); warned != (config == "appendonly no") {
			t.Errorf("%s: got warnings %q", config, d.Warnings)
		}
	}
}

func TestCredentials(t *testing.T) {
	server, _, session := started(t)
	do(t, server, "ACL", "SETUSER", "worker", "on", ">secret", "~midge:*", "resetchannels", "&midge:*", "+@all")
	do(t, server, "ACL", "SETUSER", "reader", "on", ">secret", "~midge:*", "+@read", "+ping", "+info", "+eval", "+evalsha", "+time", "+hello", "+client")
	url := func(user, password string) string { return "redis://" + user + ":" + password + "@" + server.Addr() }
	if _, err := redis.Open(t.Context(), redis.Config{URL: url("worker", "wrong")}); !errors.Is(err, storage.ErrRefused) ||
		strings.Contains(err.Error(), "wrong@") {
		t.Errorf("a wrong password: got %v, want ErrRefused", err)
	}
	fill(t, session, 1, nil)
	reader, err := redis.Open(t.Context(), redis.Config{URL: url("reader", "secret")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	_, err = storage.NewSession(reader, testserver.Patience).ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
	if !errors.Is(err, storage.ErrRefused) {
		t.Errorf("insert without permission: got %v, want ErrRefused", err)
	}
}

// TestUserWhoMayWriteInPartIsRefused: a step of a user who may use only some of its writing commands
// would happen in part.
func TestUserWhoMayWriteInPartIsRefused(t *testing.T) {
	server, _, _ := started(t)
	do(t, server, "ACL", "SETUSER", "half", "on", ">secret", "~*", "&*", "+@all", "-zadd")
	_, err := redis.Open(t.Context(), redis.Config{URL: "redis://half:secret@" + server.Addr()})
	if !errors.Is(err, storage.ErrRefused) {
		t.Errorf("open: got %v, want ErrRefused", err)
	}
}

// TestPermissionsOfThePackageComment: the permissions in the package comment suffice.
func TestPermissionsOfThePackageComment(t *testing.T) {
	server, _, _ := started(t)
	do(t, server, "ACL", "SETUSER", "midge", "on", ">secret", "~midge:*", "resetchannels", "&midge:*", "+@read", "+@write",
		"+@pubsub", "+@connection", "+@scripting", "+time", "+info", "+config|get")
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://midge:secret@" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, testserver.Patience)
	fill(t, session, 10, nil)
	if got := drain(t, session); got != 10 {
		t.Errorf("drained: got %d, want 10", got)
	}
	info := storage.RunnerInfo{ID: "r1", For: time.Minute}
	if _, err := session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
		t.Error(err)
	}
}

func TestServerThatCannotSaveIsDefinite(t *testing.T) {
	server, _, session := started(t, "save 3600 1", "stop-writes-on-bgsave-error yes", "dbfilename dump.rdb")
	fill(t, session, 1, nil)
	if err := os.Mkdir(filepath.Join(server.Dir(), "dump.rdb"), 0o700); err != nil {
		t.Fatal(err) // the server cannot write a file where a directory is
	}
	t.Cleanup(func() { _, _ = server.Do("CONFIG", "SET", "save", "") }) // otherwise the server does not stop
	do(t, server, "BGSAVE")
	testserver.Await(t, "the failed save", func() bool {
		return strings.Contains(do(t, server, "INFO", "persistence"), "rdb_last_bgsave_status:err")
	})
	_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
	if !errors.Is(err, storage.ErrRefused) {
		t.Errorf("insert: got %v, want ErrRefused", err)
	}
}

func TestNumberOfKeysIsAConstantAfterADrain(t *testing.T) {
	server, _, session := started(t)
	round := func(n int) string {
		fill(t, session, n, func(in *storage.Insert) {
			if n := len(in.Ref.ID); n%2 == 0 {
				in.Unique = storage.Unique{Key: "k" + in.Ref.ID, Mode: storage.UniqueLife}
			}
		})
		if got := drain(t, session); got != n {
			t.Errorf("drained: got %d, want %d", got, n)
		}
		return do(t, server, "DBSIZE")
	}
	if few, many := round(10), round(5000); few != many {
		t.Errorf("keys: got %s after 10 tasks and %s after 5,000", few, many)
	}
}
