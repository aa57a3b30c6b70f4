package redis_test

import (
	"fmt"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestQueuesInWhichNothingIsDueCostACommandEach: all runners together sweep about a hundred a
// second, which is to cost Redis less than two hundred commands.
func TestQueuesInWhichNothingIsDueCostACommandEach(t *testing.T) {
	const all, each = 10_000, 50
	server, store, session := started(t)
	queues := make([]storage.ClaimQueue, all)
	for i := range queues {
		queues[i] = storage.ClaimQueue{Name: fmt.Sprint("queue-", i), Max: -1}
	}
	for i := 0; i < all; i += each {
		tx := storage.Tx{}
		for n, q := range queues[i : i+each] {
			in := insertOf("a")
			in.Ref.Queue = q.Name
			if n%2 == 0 {
				in.Delay = storage.MaxDelay
			}
			tx.Inserts = append(tx.Inserts, in)
		}
		if _, err := session.ApplyOne(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func() int {
		all := 0
		for _, n := range commands(t, server, func() {
			for i := 0; i < len(queues); i += each {
				claimed, err := session.Claim(t.Context(), storage.ClaimRequest{Runner: "r", Queues: queues[i : i+each]})
				if err != nil || claimed.NextDue.IsZero() || claimed.More {
					t.Fatalf("got %+v, %v, want what is due in the end alone", claimed, err)
				}
			}
		}) {
			all += n
		}
		return all
	}
	first, second := sweep(), sweep()
	t.Logf("%d queues: %d commands at first, %d then", all, first, second)
	if second > all*5/4 {
		t.Errorf("a sweep of %d quiet queues cost %d commands, want little more than one each", all, second)
	}

	in := insertOf("b")
	in.Ref.Queue, in.Delay = queues[1].Name, storage.MinSpan
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "what is due since is promoted", func() bool {
		if _, err := session.Claim(t.Context(), storage.ClaimRequest{Runner: "r", Queues: queues[:each]}); err != nil {
			t.Fatal(err)
		}
		stats, err := store.Stats(t.Context(), queues[1].Name)
		return err == nil && stats[0].Scheduled == 0 && stats[0].Waiting == 2
	})
}
