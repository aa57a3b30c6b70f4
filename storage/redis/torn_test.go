package redis_test

import (
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
