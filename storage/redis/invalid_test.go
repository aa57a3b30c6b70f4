package redis_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// TestARecordUnderAnInvalidIDIsSetApart: in whichever state its task is. A runner that got such a task
// from a claim would send an id that every storage refuses.
func TestARecordUnderAnInvalidIDIsSetApart(t *testing.T) {
	for _, bad := range []string{"bad id", "", "a,b", "a;b", "!", "#x", "cursor.\x00", "\xff\xfe"} {
		for _, set := range []string{"line", "waiting", "suspects", "scheduled", "retry", "cursors"} {
			t.Run(set+" "+bad, func(t *testing.T) { testInvalidID(t, bad, set) })
		}
	}
}

func testInvalidID(t *testing.T, bad, set string) {
	server := miniredis.RunT(t)
	begun := time.Now()
	server.SetTime(begun)
	store, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, testserver.Patience)
	in := insertOf("good")
	if set == "cursors" {
		in.Ref.ID, in.Cursor = "cursor.good", &storage.Cursor{
			Declaration: `{"spec":"cron @daily"}`, Next: begun.Add(-time.Second),
		}
	}
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		t.Fatal(err)
	}
	record := server.HGet("midge:{main}:tasks", in.Ref.ID)
	server.HSet("midge:{main}:tasks", bad, record)
	if set == "line" {
		if _, err := server.Push("midge:{main}:line", bad); err != nil {
			t.Fatal(err)
		}
	} else {
		member := bad
		if set == "scheduled" || set == "retry" { // members begin with a place
			member = "\x00\x00\x00\x00\x00\x00\x00" + bad
		}
		if _, err := server.ZAdd("midge:{main}:"+set, 1, member); err != nil {
			t.Fatal(err)
		}
	}
	found := make(map[string]int)
	for range 4 {
		req := claimOf(10)
		req.Suspect = true
		claimed, err := session.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range append(claimed.Tasks, claimed.Ticks...) {
			found[task.ID]++
		}
		begun = begun.Add(2 * time.Minute) // leases expire
		server.SetTime(begun)
	}
	if delete(found, in.Ref.ID); len(found) > 0 {
		t.Errorf("claimed %v, want %s alone", found, in.Ref.ID)
	}
	want := int64(1)
	if set == "scheduled" || set == "retry" {
		want = 2 // the member, whose place is not that of the record, and then the record, which is in no set
	}
	stats, err := store.Stats(t.Context(), "main")
	if err != nil || stats[0].Damaged != want {
		t.Errorf("got %+v, %v, want %d of damage", stats, err, want)
	}
}
