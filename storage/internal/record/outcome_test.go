package record

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// FuzzOutcome reads any bytes as the outcome that a lane remembers: the result is an
// outcome of the Txs, or an error.
func FuzzOutcome(f *testing.F) {
	txs := []storage.Tx{
		{Inserts: make([]storage.Insert, 2)}, {Changes: make([]storage.Change, 1), Settles: make([]storage.Settle, 1)},
	}
	want := []storage.Applied{
		{Inserted: []storage.Placed{
			{Ref: storage.Ref{Queue: "q", ID: "holder"}, Version: 1 << 50, State: storage.Dead, Existing: true},
			{Version: 2, State: storage.Waiting, Created: time.UnixMicro(1).UTC()},
		}},
		{Err: &storage.DependencyError{Lost: []storage.Ref{{Queue: "q", ID: "i"}}}},
	}
	packed := PackApplied(txs, want)
	if got, err := Applied(packed, txs); err != nil || !reflect.DeepEqual(got, want) {
		f.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, b := range []string{string(packed), "", "\x00", "\x01\x02{}", "\x00\x01\x00\x01\x00\x01\x02{}"} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		applied, err := Applied(b, txs)
		switch {
		case errors.Is(err, storage.ErrUnknown):
		case err != nil:
			t.Errorf("got %v, want an unknown outcome", err)
		case len(applied) != len(txs) || applied[0].Err == nil && len(applied[0].Inserted) != 2:
			t.Errorf("got %+v for %+v", applied, txs)
		}
	})
}
