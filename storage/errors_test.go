package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

func TestErrLaneExpiredIsUnknown(t *testing.T) {
	if !errors.Is(storage.ErrLaneExpired, storage.ErrUnknown) {
		t.Error("ErrLaneExpired: is no ErrUnknown, want it to be")
	}
	if errors.Is(storage.ErrUnknown, storage.ErrLaneExpired) {
		t.Error("ErrUnknown: is an ErrLaneExpired, want it not to be")
	}
}

func TestDependencyError(t *testing.T) {
	ref := func(id string) storage.Ref { return storage.Ref{Queue: "mail", ID: id} }
	var none storage.DependencyError
	if errors.Is(&none, storage.ErrLeaseLost) || errors.Is(&none, storage.ErrNotFound) {
		t.Error("an empty one is lost or missing, want neither")
	}
	all := fmt.Errorf("settle: %w", &storage.DependencyError{
		Missing:   []storage.Ref{ref("m")},
		Stale:     []storage.Stale{{Ref: ref("s"), Want: 1, Have: 2}},
		Colliding: []storage.Collision{{Ref: ref("c"), Holder: ref("c")}, {Ref: ref("u"), Holder: ref("h"), Unique: true}},
		Lost:      []storage.Ref{ref("l")},
		Barred:    []storage.Barred{{Ref: ref("b"), State: storage.Pending}},
	})
	if !errors.Is(all, storage.ErrLeaseLost) || !errors.Is(all, storage.ErrNotFound) || errors.Is(all, storage.ErrUnknown) {
		t.Errorf("%v: want it to be ErrLeaseLost and ErrNotFound, and not ErrUnknown", all)
	}
	for _, want := range []string{
		"mail/m: task not found", "mail/s: is at version 2, not 1", "mail/c: another task has this id",
		"mail/u: unique key is held by mail/h", "mail/l: lease lost", "mail/b: is pending",
	} {
		if !strings.Contains(all.Error(), want) {
			t.Errorf("got %q, want %q in it", all, want)
		}
	}
}
