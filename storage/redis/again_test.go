package redis

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/midgehq/midge/storage"
)

// TestNobodyReturnsBeforeHisCallWasSent: one who comes where others without an identity wait
// may not carry them along, and has to wait for who does.
func TestNobodyReturnsBeforeHisCallWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		c := newCombiner(t.Context(), interruptsOfASecond(), func(_ context.Context, parts []*part) {
			<-gate
			giveAll(parts, nil)
			for _, p := range parts {
				p.outcome = "sent"
			}
		})
		s := &Storage{combiner: c}
		var calls sync.WaitGroup
		parts := make([]*part, 8)
		outcomes := make([]string, len(parts))
		for i := range parts {
			parts[i] = &part{id: identity{lane: "lane", seq: 2}}
			if i == 5 { // the first two land, and what waits goes as one
				gate <- struct{}{}
				gate <- struct{}{}
				synctest.Wait()
				parts[i].id.seq = 0
			}
			calls.Go(func() {
				if err := s.send(t.Context(), parts[i:i+1]); err != nil {
					t.Error(err)
				}
				outcomes[i] = parts[i].outcome
			})
			synctest.Wait()
		}
		close(gate)
		calls.Wait()
		c.close()
		for i, outcome := range outcomes {
			if outcome != "sent" {
				t.Errorf("call %d returned before it was sent", i)
			}
		}
	})
}

// TestNobodyWaitsForOneWhoLeft: one whose call was under way as he left cannot flush what
// waits, also where his call comes back to be sent again.
func TestNobodyWaitsForOneWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fate := error(nil)
		c := newCombiner(t.Context(), interruptsOfASecond(), func(_ context.Context, parts []*part) {
			giveAll(parts, fate)
		})
		type caller struct {
			of    *flight
			parts []*part
		}
		come := func() caller {
			parts := []*part{{id: identity{lane: "lane", seq: 2}}}
			f, all, err := c.enlist(parts, true)
			if err != nil {
				t.Fatal(err)
			}
			if all != nil {
				parts = all
			}
			return caller{f, parts}
		}
		ctx, leave := context.WithCancel(t.Context())
		first, second, carrier, carried := come(), come(), come(), come()
		c.carry(t.Context(), first.of, first.parts)
		<-carrier.of.baton
		both := c.take(0)
		leaver, last := come(), come()
		c.carry(t.Context(), second.of, second.parts) // leaver has the baton

		leave()
		c.withdraw(carried.of, carried.parts)
		fate = storage.ErrUnknown
		c.carry(ctx, carrier.of, both)
		fate = nil
		c.withdraw(leaver.of, leaver.parts)
		synctest.Wait()
		select {
		case <-last.of.landed:
		case <-last.of.baton:
			c.carry(t.Context(), last.of, c.take(0))
		default:
			t.Fatal("nobody flushes what waits")
		}
		c.close()
	})
}

// TestWhatIsSentAgainTakesNoPartBesideTheOneBefore it of the same call.
func TestWhatIsSentAgainTakesNoPartBesideTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCombiner(t.Context(), interruptsOfASecond(), func(ctx context.Context, parts []*part) {
			giveAll(parts, nil)
			if ctx.Err() != nil {
				giveAll(parts, storage.ErrUnknown)
			}
			for _, p := range parts {
				p.outcome = "sent"
			}
		})
		c.most = 2
		come := func(n int) (*flight, []*part) {
			parts := make([]*part, n)
			for i := range parts {
				parts[i] = &part{id: identity{lane: "lane", seq: 2}}
			}
			f, _, err := c.enlist(parts, true)
			if err != nil {
				t.Fatal(err)
			}
			return f, parts
		}
		first, a := come(1)
		second, b := come(1)
		leaver, _ := come(1)
		other, again := come(1)
		c.carry(t.Context(), first, a)
		<-leaver.baton
		both := c.take(0)
		next, _ := come(1)
		for range flushParts - 2 {
			come(1)
		}
		c.carry(t.Context(), second, b) // next has the baton
		whole, chain := come(2)
		<-next.baton
		most := c.take(0) // and the first part of the chain

		ctx, leave := context.WithCancel(t.Context())
		leave()
		c.carry(ctx, leaver, both)
		synctest.Wait()
		if chain[1].outcome != "" {
			t.Error("a part was sent beside the one before it")
		}
		c.carry(t.Context(), next, most)
		<-other.baton
		c.carry(t.Context(), other, c.take(0))
		<-whole.landed
		if again[0].err != nil || chain[1].outcome == "" {
			t.Error("what waited was not sent again")
		}
		c.close()
	})
}

// TestNothingOfACallerWhoLeftIsSent but what he gave: his slices are his again.
func TestNothingOfACallerWhoLeftIsSent(t *testing.T) {
	s, _ := openMini(t)
	given := bytes.Repeat([]byte("x"), largePayload+1)
	insert := insertOf("mail", "a")
	insert.Inserts[0].Payload = given
	for what, tx := range map[string]storage.Tx{
		"an insert": insert,
		"a change":  {Changes: []storage.Change{{Ref: insert.Inserts[0].Ref, Encoding: "json", Payload: given}}},
		"a result": {Settles: []storage.Settle{{
			Fence: storage.Fence{Ref: insert.Inserts[0].Ref}, Outcome: storage.Complete, Result: given,
		}}},
	} {
		parts, _ := s.split(callOf(1), []storage.Tx{tx})
		given[0] = 'y'
		for _, arg := range parts[0].args {
			if sent, some := arg.([]byte); some && bytes.HasPrefix(sent, []byte("yxx")) {
				t.Errorf("%s sends what its caller wrote afterwards", what)
			}
		}
		given[0] = 'x'
	}
}
