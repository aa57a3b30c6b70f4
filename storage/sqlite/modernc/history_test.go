package modernc_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	history "github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestTheHistoryOnAFile has two processes write the history of an hour at once, and the audit.
func TestTheHistoryOnAFile(t *testing.T) {
	var ahead atomic.Int64
	path := filepath.Join(t.TempDir(), "jobs.db")
	open := func() storage.Storage {
		s, err := sqlite.Open(t.Context(), sqlite.Config{
			Path: path, Driver: modernc.Driver, Relaxed: true,
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	stores := []storage.Storage{open(), open()}
	writers := []*history.Ledger{history.New(stores[0]), history.New(stores[1])}
	const minutes = 70
	begun := time.Now()
	for minute := range minutes {
		var all sync.WaitGroup
		for _, l := range writers {
			all.Go(func() {
				if _, err := l.Write(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		ahead.Add(int64(time.Minute))
		_, err := storage.NewSession(stores[minute%2], 0).ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: "mail", ID: fmt.Sprint("a", minute)}, Kind: "mail", Encoding: "json", CrashLimit: 1,
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := writers[0].Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []time.Duration{time.Minute, time.Hour} {
		end := time.Now().Add(time.Duration(ahead.Load()))
		s, err := writers[1].Series(t.Context(), begun.Add(-2*time.Minute), end, step, "mail")
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, p := range s.Queues["mail"] {
			sum += p.Enqueued
		}
		if sum != minutes || len(s.Damaged) > 0 {
			t.Errorf("by %v: %d enqueued, want %d; damaged %v", step, sum, minutes, s.Damaged)
		}
	}
	action, err := history.NewAudit(stores[0]).Begin(t.Context(), history.Entry{Who: "ann", Action: "pause"})
	if err != nil {
		t.Fatal(err)
	}
	if err := action.End(t.Context(), history.Ending{Count: 1}); err != nil {
		t.Fatal(err)
	}
	actions, _, err := history.NewAudit(stores[1]).List(t.Context(), "", 0)
	if err != nil || len(actions) != 1 || actions[0].Outcome != history.Done {
		t.Errorf("got %v, %v", actions, err)
	}
}
