package postgres

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

func specs() []engine.Spec {
	return []engine.Spec{
		{Kind: "k", Encoding: "json", CrashLimit: 3},
		{Kind: "k", Encoding: "raw", CrashLimit: 1, MaxRetries: storage.MaxLimit, Payload: []byte{0, 255}},
		{
			Kind: "k", Encoding: "msgpack", CrashLimit: 3, Payload: []byte("p"),
			Headers: map[string]string{"a": "", "é": "\x00"}, Timeout: time.Minute,
			Keep:   storage.Keep{For: time.Hour, UntilRead: true},
			Unique: storage.Unique{Key: "u", Mode: storage.UniqueWindow, For: time.Second},
		},
		{Kind: "k", Encoding: "a", CrashLimit: 3, Unique: storage.Unique{Key: "u", Mode: storage.UniqueLife}},
		{
			Kind: "k", Encoding: "ab", CrashLimit: 3,
			Cursor: &storage.Cursor{Next: time.Unix(1, 0).UTC(), Declaration: `{"spec":"every 1h"}`},
		},
		{Kind: "k", Encoding: "raw", CrashLimit: 3, Keep: storage.Keep{UntilRead: true}},
	}
}

func TestRecordsReadAsWritten(t *testing.T) {
	for i, want := range specs() {
		parts := []byte{1, 2, 'h', 'i'}[:4*(i%2)]
		got, rest, err := unpack(packSpec(nil, &want, parts), "")
		if len(got.Payload) == 0 {
			got.Payload = nil
		}
		if err != nil || !reflect.DeepEqual(got, want) || !bytes.Equal(rest, parts) {
			t.Errorf("got %+v, %x, %v, want %+v, %x", got, rest, err, want, parts)
		}
	}
	for _, want := range []engine.Past{
		{Created: 1},
		{Created: 2, Crashes: 1},
		{Created: 3, Retries: 300, Snoozes: 7, SnoozedSince: 5},
		{Created: 4, Reason: "why"},
		{Created: 5, Snoozes: 1, SnoozedSince: 2, Reason: "é"},
	} {
		if got, err := unpackPast(packPast(&want), 9); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if got, err := unpackPast(nil, 9); err != nil || got != (engine.Past{Created: 9}) {
		t.Errorf("an empty past: got %+v, %v, want one created at its version", got, err)
	}
}

func FuzzUnpack(f *testing.F) {
	for _, sp := range specs() {
		f.Add(packSpec(nil, &sp, nil))
		f.Add(packSpec(nil, &sp, []byte{1, 2, 'h', 'i'}))
	}
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := unpack(b, ""); err != nil && !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("got %v, want a damaged record", err)
		}
		if _, err := unpackPast(b, 1); err != nil && !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("got %v, want a damaged record", err)
		}
	})
}

func TestIDsReadAsWritten(t *testing.T) {
	for _, id := range []string{
		storage.NewID(), "a", "0123456789abcdef", "zzzzzzzzzzzzzzzzzzzzzzzzzz", "00000000000000000000000000",
		"0000000000000000000000000V", "06LHQ3M0AVOFK6HV9M8T4LL1SK",
	} {
		if got := unpackID(packID(id)); got != id {
			t.Errorf("got %q, want %q", got, id)
		}
	}
	if n := len(packID(storage.NewID())); n != 16 {
		t.Errorf("an id that was made takes %d bytes, want 16", n)
	}
}
