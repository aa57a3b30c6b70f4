package redis

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestPartsStayInOrderWhereAnotherBringsTheScript sends calls of several parts to a server that
// has forgotten its scripts, while another client loads them. The parts have to happen in their order.
func TestPartsStayInOrderWhereAnotherBringsTheScript(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	const rounds, inserts = 40, 120 // three parts
	for round := range rounds {
		s, err := Open(t.Context(), Config{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		session := storage.NewSession(s, testserver.Patience)
		queue := fmt.Sprint("q", round)
		if _, err := session.ApplyOne(t.Context(), insertOf(queue, "first")); err != nil {
			t.Fatal(err)
		}
		if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		txs := make([]storage.Tx, inserts)
		for i := range txs {
			txs[i] = insertOf(queue, fmt.Sprintf("t%03d", i))
			in := &txs[i].Inserts[0]
			in.Payload, in.Unique = make([]byte, 20_000), storage.Unique{Key: in.Ref.ID, Mode: storage.UniqueLife}
		}
		ctx, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			for ctx.Err() == nil {
				_ = s.client.ScriptLoad(ctx, s.scripts.apply.source).Err()
			}
		})
		_, err = session.Apply(t.Context(), txs...)
		stop()
		others.Wait()
		if err != nil {
			t.Fatal(err)
		}
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "runner", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 500, Lease: 1e9,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, task := range claimed.Tasks[1:] {
			if want := fmt.Sprintf("t%03d", i); task.ID != want {
				t.Fatalf("round %d: claimed %s, want %s", round, task.ID, want)
			}
		}
		_ = s.Close()
	}
}
