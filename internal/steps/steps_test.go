package steps

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestAnEnvelopeComesBack(t *testing.T) {
	at := time.Date(2026, 11, 27, 10, 0, 0, 5000, time.UTC)
	for _, e := range []Envelope{
		{},
		{Checkpoint: []byte("7")},
		{Checkpoint: []byte{mark, 9}},
		{Steps: []Step{{Name: "account", Ended: at, Took: time.Millisecond, Result: []byte{0xc0}}}},
		{
			Checkpoint: []byte{mark},
			Steps: []Step{
				{Name: "page 12 of 40", Ended: at, Result: bytes.Repeat([]byte("x"), 70_000)},
				{Name: strings.Repeat("ü", storage.MaxName/2), Ended: at, Until: at.Add(14 * 24 * time.Hour)},
			},
		},
	} {
		stored := e.Encode()
		if e.Size() != len(stored) {
			t.Errorf("got the size %d of %d bytes", e.Size(), len(stored))
		}
		got, err := Decode(stored)
		for i := range got.Steps { // an empty result is as good as none
			if len(got.Steps[i].Result) == 0 {
				got.Steps[i].Result = nil
			}
		}
		if len(got.Checkpoint) == 0 {
			got.Checkpoint = nil
		}
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("got %+v, %v; want %+v", got, err, e)
		}
		for _, s := range e.Steps {
			if found, ok := got.Find(s.Name); !ok || !reflect.DeepEqual(found, s) {
				t.Errorf("Find(%q): got %+v, %v", s.Name, found, ok)
			}
		}
	}
}

func TestACheckpointWithoutStepsIsStoredAsItIs(t *testing.T) {
	for _, text := range []string{"", "7", `{"a":1}`, "\x81\xa1a\x01"} {
		e := Envelope{Checkpoint: []byte(text)}
		if got := string(e.Encode()); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

// The layout is part of the stored data: other programs read it.
func TestTheLayout(t *testing.T) {
	e := Envelope{Checkpoint: []byte("7"), Steps: []Step{{
		Name: "a", Ended: time.UnixMicro(256), Took: 2 * time.Microsecond, Until: time.UnixMicro(3), Result: []byte("r"),
	}}}
	want := "\xc1\x01" + "\x00\x00\x00\x017" + "\x00\x00\x00\x01a" + "\x00\x00\x00\x00\x00\x00\x01\x00" +
		"\x00\x00\x00\x00\x00\x00\x00\x02" + "\x00\x00\x00\x00\x00\x00\x00\x03" + "\x00\x00\x00\x01r"
	if got := string(e.Encode()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "a": true, "wait for the bank": true, "größe": true, "a\n": false, "a\x00": false, "\xff": false,
		"\u202e": false, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		err := CheckName(name)
		if invalid := (*storage.InvalidError)(nil); (err == nil) != want || err != nil && !errors.As(err, &invalid) {
			t.Errorf("%q: got %v, want allowed %v", name, err, want)
		}
	}
}

// Bytes from a storage may be damaged in any way: each is decoded to an envelope that is stored as the same
// bytes, or to an error about the damage.
func TestDamagedBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	e := Envelope{Checkpoint: []byte("7"), Steps: make([]Step, 3)}
	for i := range e.Steps {
		e.Steps[i] = Step{Name: "step", Ended: time.UnixMicro(1e15), Took: time.Second, Result: []byte("result")}
	}
	whole := e.Encode()
	refused := 0
	for range 20_000 {
		b := bytes.Clone(whole[:random.IntN(len(whole)+1)])
		if len(b) == 0 || random.IntN(4) == 0 {
			b = bytes.Clone(whole)
		}
		for range random.IntN(4) {
			b[random.IntN(len(b))] = byte(random.Uint32())
		}
		if !decodesToItself(t, b) {
			refused++
		}
	}
	if refused < 10_000 {
		t.Errorf("%d of 20,000 damaged envelopes were refused: the damage is too rare", refused)
	}
	e.Steps = make([]Step, Most+1)
	for i := range e.Steps {
		e.Steps[i].Name = "step"
	}
	if decodesToItself(t, e.Encode()) {
		t.Errorf("%d steps were read", len(e.Steps))
	}
}

// decodesToItself reports whether b decodes; then it must encode to the same bytes.
func decodesToItself(t *testing.T, b []byte) bool {
	t.Helper()
	e, err := Decode(b)
	if err != nil {
		if !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("%q: got %v, want an ErrDamaged", b, err)
		}
		return false
	}
	if again := e.Encode(); len(e.Steps) > 0 && !bytes.Equal(again, b) {
		t.Errorf("%q came back as %q", b, again)
	}
	return true
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("7"))
	f.Add([]byte{mark, version, 0, 0, 0, 0})
	f.Add(Envelope{Steps: []Step{{Name: "a", Result: []byte("r")}}}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) { decodesToItself(t, b) })
}
