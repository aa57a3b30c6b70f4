package modernc_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestDurabilityIsTold expects Describe to state the guarantee of an acknowledgement, in both modes.
func TestDurabilityIsTold(t *testing.T) {
	for mode, relaxed := range map[string]bool{"synchronous=FULL": false, "synchronous=NORMAL": true} {
		s := opened(t, sqlite.Config{Path: file(t), Driver: modernc.Driver, Relaxed: relaxed})
		d, err := s.store.Describe(t.Context())
		must(t, err)
		if !strings.Contains(d.Durability, mode) || !strings.HasPrefix(d.Storage, "sqlite 3.") {
			t.Errorf("relaxed %t: got %q, %q; want %s and the version of SQLite", relaxed, d.Storage, d.Durability, mode)
		}
	}
}

// TestADatabaseInMemoryIsRefused tries a database that is in no file.
func TestADatabaseInMemoryIsRefused(t *testing.T) {
	cfg := sqlite.Config{DB: database(t, ":memory:", "")}
	_, err := sqlite.Open(t.Context(), cfg)
	wantProblem(t, err, sqlite.NoWAL)
	wantProblem(t, sqlite.Migrate(t.Context(), cfg), sqlite.NoWAL)
}

// TestCheckpointsAreMadeUnlessSwitchedOff writes 12 MB and checks the log. Without checkpoints the
// log holds all of it; with them it begins anew after some 4 MB.
func TestCheckpointsAreMadeUnlessSwitchedOff(t *testing.T) {
	const size, inserts = 100 << 10, 120
	for _, off := range []bool{false, true} {
		path := file(t)
		s := opened(t, sqlite.Config{Path: path, Driver: modernc.Driver, Relaxed: true, NoCheckpoints: off})
		for range inserts {
			in := job(storage.NewID())
			in.Payload = make([]byte, size)
			_, err := s.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}})
			must(t, err)
		}
		log, err := os.Stat(path + "-wal")
		must(t, err)
		if whole := log.Size() >= size*inserts; whole != off {
			t.Errorf("checkpoints off %t: the log has %d bytes of %d written", off, log.Size(), size*inserts)
		}
	}
}

// TestAFileStaysSmall passes many tasks through a file, of which few wait at any moment.
func TestAFileStaysSmall(t *testing.T) {
	const most = 400 // bytes of the file and its log per waiting task, without the log's least size
	path := file(t)
	s := opened(t, sqlite.Config{Path: path, Driver: modernc.Driver, Relaxed: true})
	begun := time.Now()
	for n := 0; n < passed+window; n += 1000 {
		txs := make([]storage.Tx, 1000)
		for i := range txs {
			in := job(storage.NewID())
			in.Keep = storage.Keep{}
			txs[i] = storage.Tx{Inserts: []storage.Insert{in}}
		}
		if n < passed {
			_, err := s.session.Apply(t.Context(), txs...)
			must(t, err)
		}
		if n < window {
			continue
		}
		c, err := s.claimLong(t.Context(), 1000)
		must(t, err)
		for i := range c.Fences {
			txs[i] = storage.Tx{Settles: []storage.Settle{{Fence: c.Fences[i], Outcome: storage.Complete}}}
		}
		_, err = s.session.Apply(t.Context(), txs[:len(c.Fences)]...)
		must(t, err)
	}
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	if stats[0].Live() != 0 || stats[0].Totals.Completed != passed {
		t.Fatalf("%+v, want %d completed and none left", stats[0], passed)
	}
	var size int64
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		must(t, err)
		size += info.Size()
	}
	t.Logf("%d tasks, of which %d waited at a time: %.1f MB, in %v", passed, window, float64(size)/1e6, time.Since(begun))
	if bound := int64(window*most + 8<<20); size > bound {
		t.Errorf("the file and its log have %d bytes, want at most %d", size, bound)
	}
}
