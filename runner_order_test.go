package midge_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// TestOneAtATimeKeepsTheOrder also has a slow job, behind which the tasks that were claimed ahead
// are handed back: no later task may be claimed before their release was applied.
func TestOneAtATimeKeepsTheOrder(t *testing.T) {
	bubble(t, func(b *bench) {
		const jobs = 1200
		for i := range jobs {
			b.enqueue(fmt.Sprint(i))
		}
		var ran []string
		b.store = slowApply{b.store, 20 * time.Millisecond}
		b.run(midge.RunnerConfig{Concurrency: 1}, func(_ context.Context, w work) error {
			if n := len(ran); n%40 == 39 {
				<-time.After(time.Duration(101+n/40%7) * time.Millisecond) // virtual
			}
			ran = append(ran, w.Name)
			return nil
		})
		b.after(time.Minute)
		if len(ran) != jobs {
			t.Fatalf("%d jobs ran, want %d", len(ran), jobs)
		}
		breaks := 0
		for i, name := range ran {
			if name != fmt.Sprint(i) {
				breaks++
			}
		}
		if breaks > 0 {
			t.Errorf("%d jobs of %d ran out of order, want none", breaks, jobs)
		}
	})
}

// TestASuspectStartsWhenTheOneBeforeItIsSettled checks that the second suspect waits, because it
// could kill the process while the completion of the first is under way, and the crash would be
// charged to both. It must start right after that completion, also if the first job ends while a
// claim is under way.
func TestASuspectStartsWhenTheOneBeforeItIsSettled(t *testing.T) {
	for _, claim := range []time.Duration{0, 20 * time.Millisecond} {
		bubble(t, func(b *bench) { oneSuspectAfterTheOther(t, b, claim) })
	}
}

func oneSuspectAfterTheOther(t *testing.T, b *bench, claim time.Duration) {
	t.Helper()
	for range 2 {
		if _, err := b.client.Enqueue(b.ctx, fragile{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := storage.NewSession(b.store, 0).Claim(b.ctx, storage.ClaimRequest{
		Runner: "another", Queues: []storage.ClaimQueue{{Name: "default"}}, Start: 2, Lease: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.after(2 * time.Second)
	const settle = 300 * time.Millisecond
	var mu sync.Mutex
	var began []time.Time
	b.store = slowClaim{slowApply{b.store, settle}, claim}
	b.runner = b.newRunner(b.store, midge.RunnerConfig{Concurrency: 3}, nil)
	if err := midge.Handle(b.runner, func(context.Context, fragile) error {
		mu.Lock()
		defer mu.Unlock()
		began = append(began, time.Now())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	go func() { b.done <- b.runner.Run(b.ctx) }()
	b.after(time.Minute)
	if len(began) != 2 {
		t.Fatalf("%d suspects ran, want 2", len(began))
	}
	if apart := began[1].Sub(began[0]); apart < settle || apart > settle+claim+50*time.Millisecond {
		t.Errorf("with claims of %v the second suspect began %v after the end of the first; want it right after the "+
			"%v that its settle takes", claim, apart, settle)
	}
}

// slowClaim is a storage whose Claim takes a while.
type slowClaim struct {
	storage.Storage

	by time.Duration
}

func (s slowClaim) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	select {
	case <-time.After(s.by):
		return s.Storage.Claim(ctx, req)
	case <-ctx.Done():
		return storage.Claimed{}, storage.ErrUnknown
	}
}
