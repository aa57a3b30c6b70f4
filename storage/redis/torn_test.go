package redis_test

import (
	"bytes"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// TestAUserWithoutChannelsTearsNoStep: a new user of Redis 7 may use no channels unless a rule permits
// them, and Redis does not roll back a script whose last command it refuses.
func TestAUserWithoutChannelsTearsNoStep(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	if _, err := server.Do("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels"); err != nil {
		t.Fatal(err)
	}
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://app:secret@" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	tx := storage.Tx{Inserts: []storage.Insert{plain("mail", "a"), plain("bulk", "b")}}
	applied, err := store.Apply(t.Context(), storage.Call{}, tx)
	if err != nil || applied[0].Err != nil {
		t.Errorf("got %v, %v, want both tasks", applied, err)
	}
	stats, err := store.Stats(t.Context(), "mail", "bulk")
	if err != nil || stats[0].Waiting != stats[1].Waiting {
		t.Errorf("the step was torn: %d and %d wait, %v", stats[0].Waiting, stats[1].Waiting, err)
	}
}

// plain is the insert of a task that is due now.
func plain(queue, id string) storage.Insert {
	return storage.Insert{
		Ref: storage.Ref{Queue: queue, ID: id}, Kind: "job", Encoding: "json", Payload: []byte("{}"),
		MaxRetries: 3, CrashLimit: 3,
	}
}

// TestAPushIsTheLastWriteOfItsStep: a push that a torn file has twice puts a task into the line twice. So nothing
// comes behind it in its step, not even the mark of a process that the step wakes.
func TestAPushIsTheLastWriteOfItsStep(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t, "appendonly yes", "appendfsync always", "auto-aof-rewrite-percentage 0")
	for name, ways := range map[string]func(redis.Config) redis.Config{
		"short": func(cfg redis.Config) redis.Config { return cfg }, "general": redis.WithoutShortWays,
	} {
		store, err := redis.Open(t.Context(), ways(redis.Config{URL: server.URL(), Prefix: name}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		session := storage.NewSession(store, testserver.Patience)
		fill(t, session, 1, nil)
		idle := name + ":{main}:idle"
		do(t, server, "ZADD", idle, "1", "ended")
		fillFrom(t, session, 1, 2, nil)
		step := (&tearing{T: t, server: server}).file()
		step = step[bytes.LastIndex(step, []byte(multi)):]
		if n := bytes.Count(step[max(bytes.LastIndex(step, []byte("RPUSH")), 0):], []byte("\r\n*")); n != 1 {
			t.Errorf("%s: %d commands follow the last push, want EXEC alone:\n%q", name, n, step)
		}
		if left := do(t, server, "ZCARD", idle); left != "0" {
			t.Errorf("%s: %s processes are marked as idle, want none", name, left)
		}
	}
}
