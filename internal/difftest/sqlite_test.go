package difftest

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestSQLite compares SQLite, which needs no server.
func TestSQLite(t *testing.T) {
	sequences(t, seeds*2/5, steps, func(t testing.TB) ([]*side, func(time.Time)) {
		reference, move := openMemory(t)
		var ahead atomic.Int64
		ahead.Store(int64(time.Until(begin)))
		store, err := sqlite.Open(t.Context(), sqlite.Config{
			Path: filepath.Join(t.TempDir(), "jobs.db"), Driver: modernc.Driver, Limits: limits,
			MinLease: storage.MinLease, Relaxed: true,
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return []*side{reference, newSide("sqlite", store)}, func(now time.Time) {
			move(now)
			ahead.Store(int64(time.Until(now)))
		}
	})
}
