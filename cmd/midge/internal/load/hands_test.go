package load

import (
	"errors"
	"os"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestRejectShared checks that a load which goes on leaves the rows that others have appended to the file for
// wrong rows since.
func TestRejectShared(t *testing.T) {
	r := newRig(t)
	r.ok(r.rejecting(r.loader(r.write("a.jsonl", "{a\n"))))
	r.ok(r.rejecting(r.loader(r.write("b.jsonl", "{b1\n{b2\n"))))
	r.ok(r.rejecting(r.loader(r.write("a.jsonl", "{a\n{aa\n1\n"))))
	if got, want := r.rejected(), "{a\n{b1\n{b2\n{aa\n"; got != want {
		t.Errorf("got the wrong rows %q, want %q", got, want)
	}
	r.ok(r.rejecting(r.loader(r.write("a.jsonl", "{a\n{aa\n1\n2\n"))))
	if got, want := r.rejected(), "{a\n{b1\n{b2\n{aa\n"; got != want {
		t.Errorf("after a load without wrong rows: got %q, want %q", got, want)
	}
}

// TestRejectOther checks that a load which goes on with another file for wrong rows damages nothing in it.
func TestRejectOther(t *testing.T) {
	r := newRig(t)
	r.ok(r.rejecting(r.loader(r.write("a.jsonl", "{a\n"))))
	other := r.write("other", "these lines\nare of somebody else\n")
	file, err := os.OpenFile(other, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	l := r.loader(r.write("a.jsonl", "{a\n{aa\n"))
	l.Reject = file
	r.ok(l)
	got, err := os.ReadFile(other)
	if want := "these lines\nare of somebody else\n{aa\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestEditedMarker checks that a marker whose parameters somebody has replaced is named as not readable.
func TestEditedMarker(t *testing.T) {
	r := newRig(t)
	l := r.loader(r.write("a.txt", "1\n"))
	r.ok(l)
	m := r.marker(l.Name)
	r.apply(storage.Tx{Changes: []storage.Change{{
		Ref: m.Ref, Version: m.Version, Encoding: "json", Payload: []byte(`{"x":1}`),
	}}})
	var refused *MarkerError
	_, err := r.loader(l.Source.Name).Run(t.Context())
	if !errors.As(err, &refused) || refused.Is != "not readable" {
		t.Errorf("got %v, want a marker that is not readable", err)
	}
}
