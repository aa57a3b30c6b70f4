package record_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

func specs() []engine.Spec {
	return []engine.Spec{
		{Kind: "k", Encoding: "json", CrashLimit: 3},
		{Encoding: "raw", CrashLimit: 1, MaxRetries: storage.MaxLimit, Payload: []byte{0, 255}},
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
		{Kind: "k", Encoding: "raw", CrashLimit: 3, Partition: "é/acme", Payload: []byte("p")},
		{Kind: "k", Encoding: "json", CrashLimit: 3, Partition: "a", Cost: storage.NoCost},
		{Kind: "k", Encoding: "raw", CrashLimit: 3, Partition: "b", Cost: storage.MaxCost, Payload: []byte("p")},
		{Kind: "k", Encoding: "raw", CrashLimit: 3, Cost: 1},
	}
}

var pasts = []engine.Past{
	{Created: 1},
	{Created: 2, Crashes: 1},
	{Created: 3, Retries: 300, Snoozes: 7, SnoozedSince: 5},
	{Created: 4, Reason: "why"},
	{Created: 5, Snoozes: 1, SnoozedSince: 2, Reason: "é"},
	{Created: 6, Reason: "9zzzzzzzzz-9zzzzzzzzz " + strings.Repeat("r", storage.MaxName)}, // a run
}

func TestRecordsReadAsWritten(t *testing.T) {
	for i, want := range specs() {
		parts := []byte{3, 2, 'h', 'i'}[:4*(i%2)]
		b := record.AppendSpec([]byte("head"), &want, parts)
		got, rest, err := record.Spec(b[len("head"):], "")
		if len(got.Payload) == 0 {
			got.Payload = nil
		}
		if err != nil || !reflect.DeepEqual(got, want) || !bytes.Equal(rest, parts) {
			t.Errorf("got %+v, %x, %v, want %+v, %x", got, rest, err, want, parts)
		}
	}
	for _, want := range pasts {
		if got, err := record.Past(record.AppendPast(nil, &want), want.Created); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestLeasesReadAsWritten(t *testing.T) {
	want := engine.Record{State: engine.Asked, Token: storage.Token{1, 2, 3}, Runner: "runner"}
	got := engine.Record{State: engine.Asked}
	if !record.SetLease(&got, record.Lease(&want)) || got.Token != want.Token || got.Runner != want.Runner {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if record.SetLease(&got, []byte("short")) {
		t.Error("a lease without a whole token was read")
	}
	want.State = engine.Waiting
	if b := record.Lease(&want); len(b) != 0 {
		t.Errorf("the lease of a waiting task: got %x, want none", b)
	}
}

func TestAttemptsReadAsWritten(t *testing.T) {
	usual := storage.Attempt{
		At: time.Unix(1, 0).UTC(), Version: 2, Claimed: time.UnixMicro(2).UTC(), Runner: "r", Outcome: "fail", Error: "é",
	}
	behind, requeued := usual, storage.Attempt{At: time.Unix(1, 0).UTC(), Outcome: "requeued"}
	behind.Claimed = time.UnixMicro(1).UTC() // the clock was set back
	want := []storage.Attempt{usual, behind, requeued}
	if got, err := record.Attempts(record.PackAttempts(want)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	// An attempt grows only if its version does not show when the claim was made.
	size := func(a storage.Attempt) int { return len(record.PackAttempts([]storage.Attempt{a})) }
	bare := usual
	bare.Claimed = time.Time{}
	if size(usual) != size(bare) || size(behind) <= size(bare) {
		t.Errorf("sizes: usual %d, set back %d, without Claimed %d", size(usual), size(behind), size(bare))
	}
	if _, err := record.Attempts([]byte("{")); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("got %v, want an ErrDamaged", err)
	}
}

// TestCheck spoils a sound record in one place at a time.
func TestCheck(t *testing.T) {
	sound := engine.Record{
		Ref:     storage.Ref{Queue: "q", ID: "a"},
		Spec:    engine.Spec{Kind: "k", Encoding: "json", CrashLimit: 3},
		State:   engine.Scheduled,
		Version: 5,
	}
	if err := record.Check(&sound); err != nil {
		t.Fatalf("a sound record: got %v, want none", err)
	}
	for what, spoil := range map[string]func(*engine.Record){
		"no kind":                    func(r *engine.Record) { r.Kind = "" },
		"a priority out of range":    func(r *engine.Record) { r.Priority = 100 },
		"no crash limit":             func(r *engine.Record) { r.CrashLimit = -1 },
		"a state that no caller has": func(r *engine.Record) { r.State = engine.Damaged },
		"a state beyond all":         func(r *engine.Record) { r.State = engine.States },
		"a cursor that has none":     func(r *engine.Record) { r.State = engine.Cursor },
		"no version":                 func(r *engine.Record) { r.Version = 0 },
		"a version beyond time":      func(r *engine.Record) { r.Version = 1 << 62 },
		"a moment before time":       func(r *engine.Record) { r.Sort = -1 },
		"an end beyond time":         func(r *engine.Record) { r.At = 1 << 62 },
		"a turn that is no moment":   func(r *engine.Record) { r.State, r.Turn = engine.Declined, -1 },
	} {
		spoilt := sound
		spoil(&spoilt)
		if err := record.Check(&spoilt); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("%s: got %v, want an ErrDamaged", what, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	for _, sp := range specs() {
		f.Add(record.AppendSpec(nil, &sp, nil))
		f.Add(record.AppendSpec(nil, &sp, []byte{1, 2, 'h', 'i'}))
	}
	for _, p := range pasts {
		f.Add(record.AppendPast(nil, &p))
	}
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := record.Spec(b, ""); err != nil && !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("got %v, want a damaged record", err)
		}
		if _, err := record.Past(b, 1); err != nil && !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("got %v, want a damaged record", err)
		}
	})
}
