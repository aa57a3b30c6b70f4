package storage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// fault is the outcome of one call.
type fault int

const (
	arrives   fault = iota
	neverSent       // the request is lost
	replyLost       // the storage carries the call out, and its reply is lost
	unreached       // no connection can be made
)

// errCut is a driver's error for a connection that was cut.
var errCut = errors.New("connection reset")

// flaky is a storage behind a network. It also checks the lanes: one call at a
// time, and numbers that grow or repeat.
type flaky struct {
	storage.Storage
	next func() fault // the outcome of the next call; nil: it arrives

	mu    sync.Mutex // guards the fields below
	calls []storage.Call
	last  map[storage.Lane]uint64
	busy  map[storage.Lane]bool
	wrong error
}

func openFlaky(t *testing.T) *flaky {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{Storage: store, last: map[storage.Lane]uint64{}, busy: map[storage.Lane]bool{}}
	t.Cleanup(func() {
		_ = store.Close()
		if f.wrong != nil {
			t.Error(f.wrong)
		}
	})
	return f
}

// send lets a call through, or loses it.
func (f *flaky) send(call storage.Call, deliver func() error) error {
	fate := f.begin(call)
	defer f.end(call)
	if fate == neverSent {
		return fmt.Errorf("%w: %w", storage.ErrUnknown, errCut)
	}
	if fate == unreached {
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, errCut)
	}
	err := deliver()
	if fate == replyLost {
		return fmt.Errorf("%w: %w", storage.ErrUnknown, errCut)
	}
	return err
}

func (f *flaky) begin(call storage.Call) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[call.Lane] || call.Seq < f.last[call.Lane] || call.IsZero() {
		f.wrong = fmt.Errorf("call %d on a lane at %d, busy %v", call.Seq, f.last[call.Lane], f.busy[call.Lane])
	}
	f.busy[call.Lane], f.last[call.Lane] = true, call.Seq
	f.calls = append(f.calls, call)
	if f.next == nil {
		return arrives
	}
	return f.next()
}

func (f *flaky) end(call storage.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, call.Lane)
}

// sent returns the calls so far.
func (f *flaky) sent() []storage.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]storage.Call(nil), f.calls...)
}

// fate sets the outcomes of the next calls, in order; later calls arrive.
func (f *flaky) fate(fates ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = func() fault {
		if len(fates) == 0 {
			return arrives
		}
		first := fates[0]
		fates = fates[1:]
		return first
	}
}

// always sets the outcome of all later calls.
func (f *flaky) always(fate fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = func() fault { return fate }
}

func (f *flaky) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) (a []storage.Applied, err error) {
	err = f.send(call, func() (err error) {
		a, err = f.Storage.Apply(ctx, call, txs...)
		return err
	})
	return a, err
}

func (f *flaky) Claim(ctx context.Context, req storage.ClaimRequest) (c storage.Claimed, err error) {
	err = f.send(req.Call, func() (err error) {
		c, err = f.Storage.Claim(ctx, req)
		return err
	})
	return c, err
}

func (f *flaky) Extend(ctx context.Context, req storage.ExtendRequest) (x storage.Extended, err error) {
	err = f.send(req.Call, func() (err error) {
		x, err = f.Storage.Extend(ctx, req)
		return err
	})
	return x, err
}

func (f *flaky) Configure(ctx context.Context, call storage.Call, queue string, s storage.Settings) error {
	return f.send(call, func() error { return f.Storage.Configure(ctx, call, queue, s) })
}

// job returns an insert into the queue q.
func job(id string) storage.Insert {
	return storage.Insert{
		Ref: storage.Ref{Queue: "q", ID: id}, Kind: "job", Encoding: "raw", MaxRetries: 3, CrashLimit: 3,
	}
}

func inserting(ids ...string) storage.Tx {
	var tx storage.Tx
	for _, id := range ids {
		tx.Inserts = append(tx.Inserts, job(id))
	}
	return tx
}

// ask returns a claim of up to n tasks of q.
func ask(n int) storage.ClaimRequest {
	return storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "q"}}, Start: n, Lease: storage.DefaultPatience * 12,
	}
}

// must returns the value of a call that must succeed.
func must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func stats(t testing.TB, s storage.Storage) storage.Stats {
	t.Helper()
	return must(s.Stats(t.Context(), "q"))(t)[0]
}
