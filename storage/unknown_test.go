package storage_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// refusing is a storage that loses the first reply and then refuses all calls, as a server
// does whose disk is full or whose password has changed.
type refusing struct {
	*flaky
	refusal error
	calls   int
}

func (r *refusing) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if r.calls++; r.calls > 1 && r.refusal != nil {
		return nil, r.refusal
	}
	return r.flaky.Apply(ctx, call, txs...)
}

// TestARefusalDoesNotUndoWhatMayHaveHappened: the first try happened and its reply was
// lost, so that the refusal of a later try does not show the outcome of the call.
func TestARefusalDoesNotUndoWhatMayHaveHappened(t *testing.T) {
	for _, refusal := range []error{storage.ErrRefused, storage.ErrFull, storage.ErrClosed, context.Canceled} {
		t.Run(refusal.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &refusing{flaky: openFlaky(t), refusal: refusal}
				store.fate(replyLost)
				session := storage.NewSession(store, time.Second)
				_, err := session.Apply(t.Context(), inserting("a"))
				var unknown *storage.UnknownError
				if !errors.As(err, &unknown) || !errors.Is(err, refusal) {
					t.Fatalf("got %v, want an unknown outcome that names the refusal", err)
				}
				if _, err = session.Repeat(t.Context(), unknown); !errors.Is(err, storage.ErrUnknown) {
					t.Errorf("the repeat gave %v, want an unknown outcome", err)
				}
				store.refusal = nil
				applied, err := session.Repeat(t.Context(), unknown)
				if err != nil || applied[0].Inserted[0].Existing {
					t.Errorf("the repeat gave %v, %v, want the first outcome", applied, err)
				}
			})
		})
	}
}

// hanging is a storage that answers the first call and lets the others wait until their contexts end.
type hanging struct {
	*flaky
	first error
}

func (h *hanging) Apply(ctx context.Context, _ storage.Call, _ ...storage.Tx) ([]storage.Applied, error) {
	if err := h.first; err != nil {
		h.first = nil
		return nil, err
	}
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", storage.ErrUnknown, context.Cause(ctx))
}

// TestTheEndOfThePatienceHidesNoError: the last try of a call reports less than the try before.
func TestTheEndOfThePatienceHidesNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("the reason")
		store := &hanging{flaky: openFlaky(t), first: fmt.Errorf("%w: %w", storage.ErrUnknown, reason)}
		_, err := storage.NewSession(store, time.Second).Apply(t.Context(), inserting("a"))
		if !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, reason) {
			t.Errorf("got %v, want an unknown outcome with the reason of the first try", err)
		}
	})
}

// TestRepeatWithAnEndedContextStaysUnknown: nothing was sent, so nothing was learned.
func TestRepeatWithAnEndedContextStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := openFlaky(t)
		store.fate(replyLost)
		session := storage.NewSession(store, -1)
		_, err := session.Apply(t.Context(), inserting("a"))
		var unknown *storage.UnknownError
		if !errors.As(err, &unknown) {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err = session.Repeat(ended, unknown); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	})
}

// TestAnExtendAfterOneOfUnknownOutcome follows it on its lane, so that the one before it can no longer happen. Nobody
// else uses the lane until it has succeeded. If the lane has expired, it goes out on another one.
func TestAnExtendAfterOneOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := openFlaky(t)
		session := storage.NewSession(store, -1)
		must(session.Apply(t.Context(), inserting("a")))(t)
		claimed := must(session.Claim(t.Context(), ask(1)))(t)
		req := storage.ExtendRequest{Leases: []storage.Extension{{Fence: claimed.Fences[0], Checkpoint: []byte("1")}}}
		lost := func() storage.Call {
			t.Helper()
			store.fate(neverSent)
			_, err := session.Extend(t.Context(), req)
			var unknown *storage.UnknownError
			if !errors.As(err, &unknown) {
				t.Fatalf("got %v, want an unknown outcome", err)
			}
			return unknown.Call
		}
		late := req
		late.Call = lost()
		req.Call, req.Leases = late.Call, []storage.Extension{{Fence: claimed.Fences[0], Checkpoint: []byte("2")}}
		store.fate(unreached)
		if _, err := session.Extend(t.Context(), req); !errors.Is(err, storage.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		must(session.Apply(t.Context(), inserting("b")))(t)
		if calls := store.sent(); calls[len(calls)-1].Lane == late.Call.Lane {
			t.Error("another call uses the lane")
		}
		must(session.Extend(t.Context(), req))(t)
		if _, err := store.Storage.Extend(t.Context(), late); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("the call that comes late: got %v, want it refused", err)
		}
		if task := must(store.Task(t.Context(), claimed.Fences[0].Ref))(t); string(task.Checkpoint) != "2" {
			t.Errorf("stored %q, want the later one", task.Checkpoint)
		}
		req.Call = lost()
		time.Sleep(storage.LaneLife + time.Second)
		must(session.Extend(t.Context(), req))(t)
		if calls := store.sent(); calls[len(calls)-1].Lane == req.Call.Lane {
			t.Error("the call went out on the lane that has expired")
		}
	})
}
