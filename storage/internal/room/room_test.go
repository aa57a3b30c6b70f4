package room

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Room{Of: "Redis", Remedy: "delete"}
		insert := storage.Applied{Inserted: make([]storage.Placed, 1)}
		tell := func() storage.Description {
			d := storage.Description{Now: time.Now()}
			r.Tell(&d)
			return d
		}
		want := func(what, full string, since time.Time) {
			t.Helper()
			if d := tell(); d.Full != full || !d.FullSince.Equal(since) {
				t.Errorf("%s: got %q since %v, want %q since %v", what, d.Full, d.FullSince, full, since)
			}
		}
		want("at first", "", time.Time{})
		if !r.Due() || r.Due() {
			t.Error("a trial is due at first, and not again at once")
		}
		if r.Missed(); !r.Due() || r.Due() {
			t.Error("a trial is due again after one that was not carried out, and only one")
		}
		begun, refused := time.Now(), fmt.Errorf("apply: %w", fmt.Errorf("%w: %w", storage.ErrFull, errors.New("OOM")))
		r.Wrote(refused)
		time.Sleep(tryEvery - 1)
		r.Wrote(nil, storage.Applied{}, storage.Applied{Inserted: []storage.Placed{{Existing: true}}},
			storage.Applied{Inserted: make([]storage.Placed, 1), Err: errors.New("a collision")})
		r.Wrote(storage.ErrUnavailable, insert)
		want("after a refused write", "Redis is full: OOM: delete", begun)
		if r.Due() {
			t.Error("a trial is due within a minute of a refused write")
		}
		time.Sleep(time.Second)
		if !r.Due() {
			t.Error("no trial is due a minute after the last refused write")
		}
		r.Tried("still none")
		want("after a trial", "still none: delete", begun)
		r.Tried("")
		want("after a trial that found space", "", time.Time{})
		r.Wrote(refused)
		r.Wrote(nil, insert)
		want("after an insert", "", time.Time{})
	})
}

// opaque is an error of a driver that unwraps to nothing.
type opaque struct{}

func (opaque) Error() string { return "out of space" }
func (opaque) Unwrap() error { return nil }

func TestTheCauseOfAnErrorThatUnwrapsToNothing(t *testing.T) {
	err := fmt.Errorf("%w: %w", storage.ErrFull, opaque{})
	if got := cause(err); got != "out of space" {
		t.Errorf("got %q, want the text of the driver", got)
	}
}
