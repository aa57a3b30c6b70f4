package engine

import (
	"testing"
	"unsafe"

	"github.com/midgehq/midge/storage"
)

// TestNumbersStay checks that numbers which storages have written keep their meaning.
func TestNumbersStay(t *testing.T) {
	for i, want := range []storage.State{
		"", storage.Waiting, storage.Waiting, storage.Waiting, storage.Pending, storage.Pending, storage.Scheduled,
		storage.Retry, storage.Cursors, "", storage.Completed, storage.Cancelled, storage.Dead, "", storage.Waiting, storage.Waiting,
		"",
	} {
		if got := State(i).Public(); got != want {
			t.Errorf("state %d: got %q, want %q", i, got, want)
		}
	}
	if Damaged != 9 || States != 16 || Declined != 14 || Keyed != 15 || State(-1).Public() != "" {
		t.Errorf("got %d for damaged of %d states, want 9 of 16", Damaged, States)
	}
	if Special != 1 || Started != 2 || StartOnly != 4 || IsSuspect != 8 || HasSide != 16 {
		t.Error("the flags have other numbers")
	}
	if PartAttempts != 1 || PartCheckpoint != 16 || RecordKeep != 1 || IsRecord != 128 {
		t.Error("the parts or the flags of a packed record have other numbers")
	}
	for _, s := range storage.States() {
		for _, n := range StatesOf(s) {
			if n.Public() != s || n.HasEnded() != s.Ended() || n.IsPending() != (s == storage.Pending) {
				t.Errorf("state %d: is not %s", n, s)
			}
		}
	}
}

// TestRecordsAreSmall: the memory storage keeps millions of them, and 352 bytes is a size in
// which Go allocates.
func TestRecordsAreSmall(t *testing.T) {
	if got := unsafe.Sizeof(Record{}); got > 352 {
		t.Errorf("a record takes %d bytes, want at most 352", got)
	}
}
