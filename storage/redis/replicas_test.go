package redis_test

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// once opens a storage, with a session that repeats nothing.
func once(t *testing.T, cfg redis.Config) (*redis.Storage, *storage.Session) {
	t.Helper()
	store, err := redis.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store, storage.NewSession(store, -1)
}

func insertion(id string) storage.Tx { return storage.Tx{Inserts: []storage.Insert{insertOf(id)}} }

func completion(f storage.Fence) storage.Tx {
	return storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}}
}

// wantUnconfirmed checks that a call failed because no replica confirmed it, and returns its identity.
func wantUnconfirmed(t *testing.T, what string, err error) *storage.UnknownError {
	t.Helper()
	var lack *redis.ReplicasError
	var unknown *storage.UnknownError
	if !errors.As(err, &lack) || *lack != (redis.ReplicasError{Want: 1}) || !errors.Is(err, storage.ErrUnknown) ||
		!errors.As(err, &unknown) {
		t.Errorf("%s: got %v, want an ErrUnknown with a *ReplicasError of 0 of 1", what, err)
		return &storage.UnknownError{}
	}
	return unknown
}

// callsOf returns how often a server has carried a command out.
func callsOf(t *testing.T, server *testserver.Server, command string) int {
	t.Helper()
	found := regexp.MustCompile("cmdstat_" + command + ":calls=([0-9]+)").
		FindStringSubmatch(do(t, server, "INFO", "commandstats"))
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func awaitInfo(t *testing.T, server *testserver.Server, text string) {
	t.Helper()
	testserver.Await(t, text, func() bool { return strings.Contains(do(t, server, "INFO"), text) })
}

// TestACallWaitsForReplicas stops the only replica, and lets it go on.
func TestACallWaitsForReplicas(t *testing.T) {
	testserver.Require(t)
	master := testserver.Redis(t, "repl-diskless-sync-delay 0")
	replica := testserver.Redis(t, "replicaof "+strings.Replace(master.Addr(), ":", " ", 1))
	awaitInfo(t, master, "state=online")
	cfg := redis.Config{URL: master.URL(), WaitReplicas: 1}
	store, session := once(t, cfg)
	_, plain := once(t, redis.Config{URL: master.URL()})
	if _, err := session.Apply(t.Context(), insertion("a")); err != nil {
		t.Fatal(err)
	}
	claimed, err := session.Claim(t.Context(), claimOf(1))
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claim: %d tasks, %v", len(claimed.Fences), err)
	}
	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := plain.ApplyOne(t.Context(), insertion("plain")); err != nil {
		t.Errorf("without the option: %v", err)
	}
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		tx := insertion("b" + strconv.Itoa(i))
		if i == 0 {
			tx = completion(claimed.Fences[0])
		}
		all.Go(func() { _, errs[i] = session.Apply(t.Context(), tx) })
	}
	all.Wait()
	calls := make([]*storage.UnknownError, len(errs))
	for i, err := range errs {
		calls[i] = wantUnconfirmed(t, strconv.Itoa(i), err)
	}
	if t.Failed() {
		return
	}
	_, fresh := once(t, cfg)
	before := callsOf(t, master, "del")
	_, err = fresh.Repeat(t.Context(), calls[1])
	_ = wantUnconfirmed(t, "the repeat on a new connection", err)
	if callsOf(t, master, "del") == before { // from 7.2 on WAIT waits only for writes
		t.Error("the repeat wrote nothing")
	}
	patient := storage.NewSession(store, testserver.Patience)
	for i, call := range calls {
		all.Go(func() {
			if _, err := patient.Repeat(t.Context(), call); err != nil {
				t.Errorf("repeat of %d: %v", i, err)
			}
		})
	}
	testserver.Await(t, "a repeat waits", func() bool {
		return !strings.Contains(do(t, master, "INFO", "clients"), "blocked_clients:0")
	})
	if err := replica.Resume(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	stats, err := store.Stats(t.Context(), "main")
	if err != nil || stats[0].Waiting != int64(len(errs)) || stats[0].Totals.Completed != 1 ||
		stats[0].Totals.Enqueued != int64(len(errs)+1) {
		t.Errorf("got %+v, %v, want each call carried out once", stats, err)
	}
}

// TestAFullRedisWithoutReplicasTakesSettles: they fail for want of replicas only.
func TestAFullRedisWithoutReplicasTakesSettles(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t, "maxmemory-policy noeviction")
	restricted(t, server)
	do(t, server, "ACL", "SETUSER", "app", "+wait")
	_, plain := once(t, redis.Config{URL: server.URL()})
	fill(t, plain, 1, nil)
	claimed, err := plain.Claim(t.Context(), claimOf(1))
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claim: %d tasks, %v", len(claimed.Fences), err)
	}
	store, session := once(t, redis.Config{URL: "redis://app:secret@" + server.Addr() + "?wait_replicas=1"})
	d, err := store.Describe(t.Context())
	if warned := strings.Join(d.Warnings, "\n"); err != nil || !strings.Contains(warned, "WaitReplicas is 1") {
		t.Errorf("got warnings %s, %v", warned, err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := session.Apply(t.Context(), insertion("a")); !errors.Is(err, storage.ErrFull) {
			t.Errorf("insert: got %v, want ErrFull", err)
		}
	})
	_, err = session.Apply(t.Context(), completion(claimed.Fences[0]))
	_ = wantUnconfirmed(t, "complete", err)
	both.Wait()
}

// TestOpenRefusesAUserWhoMayNotWait if the storage has to.
func TestOpenRefusesAUserWhoMayNotWait(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	do(t, server, append([]string{"ACL", "SETUSER", "app", "reset", "on", ">secret"}, documented(t)...)...)
	_, err := redis.Open(t.Context(), redis.Config{URL: "redis://app:secret@" + server.Addr(), WaitReplicas: 1})
	var refused *redis.PermissionError
	if !errors.As(err, &refused) || len(refused.Commands) != 1 || refused.Commands[0] != "WAIT" {
		t.Errorf("got %v, want a *PermissionError that names WAIT", err)
	}
}

// TestACallWaitsForReplicasOnACluster, and finds the master that took over, which has no replica.
func TestACallWaitsForReplicasOnACluster(t *testing.T) {
	testserver.Require(t)
	cluster, err := testserver.StartCluster(testserver.Options{Replicas: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	_, session := once(t, redis.Config{URL: "redis+cluster://" + strings.Join(cluster.Addrs(), ",") + "?wait_replicas=1"})
	cluster.AwaitInStep(t)
	if _, err := session.Apply(t.Context(), insertion("a")); err != nil {
		t.Fatal(err)
	}
	master, err := cluster.Owner("{main}")
	if err != nil {
		t.Fatal(err)
	}
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
	cluster.AwaitTakenOver(t, master)
	testserver.Await(t, "the new master has the task", func() bool {
		_, err = session.Apply(t.Context(), insertion("b"))
		_, lack := errors.AsType[*redis.ReplicasError](err)
		return err == nil || lack
	})
	_ = wantUnconfirmed(t, "insert", err)
}
