package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// kill makes tasks die in a queue, each of the error.
func kill(t *testing.T, store storage.Storage, queue, errorText string, n int) {
	t.Helper()
	session := storage.NewSession(store, 0)
	for n > 0 {
		some := min(n, 500)
		var inserts, settles []storage.Tx
		for range some {
			inserts = append(inserts, storage.Tx{Inserts: []storage.Insert{{
				Ref: storage.Ref{Queue: queue, ID: storage.NewID()}, Kind: "k", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
			}}})
		}
		if _, err := session.Apply(t.Context(), inserts...); err != nil {
			t.Fatal(err)
		}
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: queue}}, Start: some, Lease: time.Minute,
		})
		if err != nil || len(claimed.Fences) != some {
			t.Fatalf("claimed %d tasks, want %d: %v", len(claimed.Fences), some, err)
		}
		for _, f := range claimed.Fences {
			settles = append(settles, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Bury, Error: errorText}}})
		}
		if _, err := session.Apply(t.Context(), settles...); err != nil {
			t.Fatal(err)
		}
		n -= some
	}
}

// TestTheDeadAreCountedFromTheNewestOn: the newest at once, the others with the looks that follow; what dies
// meanwhile is shown soon, and deletes begin a new count.
func TestTheDeadAreCountedFromTheNewestOn(t *testing.T) {
	d, store, ahead := clocked(t)
	kill(t, store, "a.old", "disk full", 5000)
	kill(t, store, "z.new", "timeout", 1500)
	look := func() string {
		t.Helper()
		*ahead += 2 * deadFor
		now, err := d.server.sampler.sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%d %t:", now.dead.Read, now.dead.Whole)
		for _, g := range now.dead.Groups {
			text += fmt.Sprintf(" %s %d", g.Error, g.Tasks)
		}
		return text
	}
	want := func(when, want string) {
		t.Helper()
		if got := look(); got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	want("first", "2000 false: timeout 1000 disk full 1000")
	want("second", "3900 false: disk full 2400 timeout 1500")
	kill(t, store, "z.new", "refused", 10)
	want("what died meanwhile", "3910 false: disk full 2400 timeout 1500 refused 10")
	want("going on", "5910 false: disk full 4400 timeout 1500 refused 10")
	want("last", "6510 true: disk full 5000 timeout 1500 refused 10")
	want("at rest", "6510 true: disk full 5000 timeout 1500 refused 10")
	deleted, err := storage.NewSession(store, 0).DeleteAll(t.Context(), "a.old", storage.Dead, nil)
	if err != nil || deleted != 5000 {
		t.Fatalf("deleted %d: %v", deleted, err)
	}
	want("few left", "1510 true: timeout 1500 refused 10")
}
