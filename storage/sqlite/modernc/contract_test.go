package modernc_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
	"github.com/midgehq/midge/storage/storagetest"
)

// TestContractOnSQLite runs the contract, each rule on a file of its own. The clock is the test's, so that no
// rule waits.
func TestContractOnSQLite(t *testing.T) {
	storagetest.Run(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		var ahead atomic.Int64
		path := filepath.Join(t.TempDir(), "jobs.db")
		open := func(t testing.TB) storage.Storage {
			t.Helper()
			s, err := sqlite.Open(t.Context(), sqlite.Config{
				Path: path, Driver: modernc.Driver, Limits: limits, MinLease: time.Second, Relaxed: true,
				Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		move := func(d time.Duration) { ahead.Add(int64(d)) }
		return storagetest.Opened{
			Storage: open(t), Again: open, Durable: true, Advance: move, Jump: move,
			Damage: func(t testing.TB, ref storage.Ref) {
				t.Helper()
				execute(t, path, "UPDATE midge_tasks SET record = 'garbage' WHERE id = ?", ref.ID)
			},
		}
	})
}
