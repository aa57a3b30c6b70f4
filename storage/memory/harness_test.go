package memory

import (
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// harness drives a storage without the cost of a session.
type harness struct {
	testing.TB

	store *Storage
	lanes atomic.Uint64
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	store, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &harness{TB: t, store: store}
}

// caller numbers calls on a lane of its own.
type caller struct{ call storage.Call }

func (h *harness) caller() *caller {
	h.Helper()
	d, err := h.store.Describe(h.Context())
	if err != nil {
		h.Error(err)
	}
	c := &caller{}
	binary.BigEndian.PutUint64(c.call.Lane.ID[:], h.lanes.Add(1))
	c.call.Lane.Opened = d.Now
	return c
}

func (c *caller) next() storage.Call {
	c.call.Seq++
	return c.call
}

// apply applies txs. A refused Tx fails the test.
func (h *harness) apply(c *caller, txs []storage.Tx) {
	applied, err := h.store.Apply(h.Context(), c.next(), txs...)
	if err != nil {
		h.Error(err)
		return
	}
	for i := range applied {
		if applied[i].Err != nil {
			h.Error(applied[i].Err)
		}
	}
}

// insert adds n tasks, each in a Tx of its own, with size tasks to a call.
func (h *harness) insert(n, size int) {
	c := h.caller()
	payload := make([]byte, 96)
	for from := 0; from < n; from += size {
		var txs []storage.Tx
		for i := from; i < min(from+size, n); i++ {
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{{
				Ref:  storage.Ref{Queue: "q", ID: "task-" + strconv.Itoa(i)},
				Kind: "kind", Encoding: "raw", Payload: payload, MaxRetries: 20, CrashLimit: 3,
			}}})
		}
		h.apply(c, txs)
	}
}

// drain claims size tasks in each call and completes them, each in a Tx of its own, until
// no tasks are left.
func (h *harness) drain(size int) {
	c := h.caller()
	for {
		claimed, err := h.store.Claim(h.Context(), storage.ClaimRequest{
			Call: c.next(), Token: storage.NewToken(), Runner: "runner",
			Queues: []storage.ClaimQueue{{Name: "q"}}, Start: size, Lease: 30 * time.Second,
		})
		if err != nil {
			h.Error(err)
			return
		}
		if len(claimed.Tasks) == 0 {
			return
		}
		txs := make([]storage.Tx, len(claimed.Fences))
		settles := make([]storage.Settle, len(claimed.Fences))
		for i, f := range claimed.Fences {
			settles[i] = storage.Settle{Fence: f, Outcome: storage.Complete}
			txs[i].Settles = settles[i : i+1]
		}
		h.apply(c, txs)
	}
}
