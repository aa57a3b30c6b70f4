package survey

import (
	"context"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// counting counts the pages of tasks that are read.
type counting struct {
	storage.Storage

	pages int
}

func (c *counting) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	c.pages++
	return c.Storage.Tasks(ctx, q)
}

// TestAQueueOfLoadsIsReadAfterAChange changes a queue that holds the record of a load. A reader reads its
// tasks after each change, and not between.
func TestAQueueOfLoadsIsReadAfterAChange(t *testing.T) {
	inner, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inner.Close() }()
	session, store := storage.NewSession(inner, 0), &counting{Storage: inner}
	r := NewReader(store, Config{})
	insert := storage.Insert{Encoding: "json", Payload: []byte("{}"), CrashLimit: 1}
	later := storage.Ref{Queue: "mail", ID: "b"}
	add := func(ref storage.Ref, kind string, delay time.Duration) storage.Tx {
		insert.Ref, insert.Kind, insert.Delay = ref, kind, delay
		return storage.Tx{Inserts: []storage.Insert{insert}}
	}
	for i, c := range []struct {
		tx    storage.Tx
		pages int
		loads bool
	}{
		{add(storage.Ref{Queue: "mail", ID: "a.load"}, storage.LoadKind, 100*365*24*time.Hour), 1, true},
		{storage.Tx{}, 0, true},
		{add(later, "send", time.Hour), 1, false},
		{storage.Tx{}, 0, false},
		{storage.Tx{Changes: []storage.Change{{Ref: later, Cancel: true}}}, 1, true},
		{add(storage.Ref{Queue: "mail", ID: "import.1"}, storage.ImportKind, 99*365*24*time.Hour), 1, true},
		{add(later, "send", 0), 0, false}, // a waiting task needs a runner
	} {
		if c.tx.Ops() > 0 {
			if _, err := session.ApplyOne(t.Context(), c.tx); err != nil {
				t.Fatal(i, err)
			}
		}
		store.pages = 0
		s, err := r.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Queue("mail").OnlyLoads; got != c.loads || store.pages != c.pages {
			t.Errorf("after change %d: only loads: %v, want %v; %d pages were read, want %d", i, got, c.loads,
				store.pages, c.pages)
		}
	}
}
