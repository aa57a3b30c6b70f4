package modernc_test

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestReadsOfAnIdleFileFindNoJump has a file to which nobody has written for hours. Reads show the rate as it is by
// then, and no jump of the clock.
func TestReadsOfAnIdleFileFindNoJump(t *testing.T) {
	ahead := time.Duration(0)
	s := opened(t, sqlite.Config{
		Path: file(t), Driver: modernc.Driver, MinLease: time.Second,
		Now: func() time.Time { return time.Now().Add(ahead) },
	})
	rate := storage.Limit{Rate: storage.Rate{N: 1, Per: time.Minute}}
	must(t, s.session.Configure(t.Context(), queue, storage.Settings{Limit: &storage.OperatorLimit{On: true, Limit: rate}}))
	for _, id := range []string{"a", "b"} {
		in := job(id)
		in.Partition = "p"
		_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
		must(t, err)
	}
	_, err := s.claimLong(t.Context(), 1)
	must(t, err)
	for _, ahead = range []time.Duration{3 * time.Hour, 4 * time.Hour} {
		stats, err := s.store.Stats(t.Context(), queue)
		must(t, err)
		if _, spent := stats[0].AtLimit(); spent {
			t.Errorf("after %v the rate of a minute is spent: %+v", ahead, stats[0].Limit)
		}
		d, err := s.store.Describe(t.Context())
		must(t, err)
		if len(d.Warnings) > 0 {
			t.Errorf("after %v Describe warns: %q", ahead, d.Warnings)
		}
	}
}
