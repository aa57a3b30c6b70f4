package ledger

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
)

// TestOnServers has two writers at once on each storage that has a server, by the server's clock.
func TestOnServers(t *testing.T) {
	testserver.Require(t)
	testserver.RequirePostgres(t)
	for name, open := range map[string]func(t *testing.T) (storage.Storage, error){
		"redis": func(t *testing.T) (storage.Storage, error) {
			t.Helper()
			return redis.Open(t.Context(), redis.Config{URL: testserver.Redis(t).URL()})
		},
		"postgres": func(t *testing.T) (storage.Storage, error) {
			t.Helper()
			url := testserver.Postgres(t, testserver.PostgresOptions{}).URL()
			if err := postgres.Migrate(t.Context(), postgres.Config{URL: url}); err != nil {
				return nil, err
			}
			return postgres.Open(t.Context(), postgres.Config{URL: url})
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			write(t, store)
		})
	}
}

// write writes the minutes of two hours, and reads them.
func write(t *testing.T, store storage.Storage) {
	t.Helper()
	w := &world{T: t, Storage: store, stats: make(map[string]*storage.Stats)}
	d, err := store.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := d.Now.Unix() / 60
	begun := last - 119
	writers := []*Ledger{New(w), New(w)}
	for minute := begun; minute <= last; minute++ {
		for i := range 600 {
			q := w.queue(fmt.Sprintf("q%03d", i))
			q.Totals.Enqueued += int64(i)
			q.Waiting = int64(i)
		}
		var all sync.WaitGroup
		for _, l := range writers {
			all.Go(func() {
				if err := l.sampleAndGather(t.Context(), minute); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	from := time.Unix(begun*60, 0)
	for _, step := range []time.Duration{time.Minute, time.Hour} {
		s := w.read(from, from.Add(2*time.Hour), step, "q000", "q001", "q599")
		w.want("damaged", s.Damaged, []string(nil))
		for i := range []int{0, 1, 599} {
			name := fmt.Sprintf("q%03d", []int{0, 1, 599}[i])
			w.want(name, enqueued(s.Queues[name]), int64([]int{0, 1, 599}[i])*119)
		}
	}
	if err := New(store).sweep(t.Context(), time.Now().Add(HoursKept+72*time.Hour)); err != nil {
		t.Fatal(err)
	}
	stats, err := store.Stats(t.Context(), Queue)
	if err != nil {
		t.Fatal(err)
	}
	w.want("pages left", stats[0].Scheduled, 0)
	actions(t, NewAudit(store))
}

// sampleAndGather writes the sample of a minute, as Write does.
func (l *Ledger) sampleAndGather(ctx context.Context, minute int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 1 << 20
	if err := l.sample(ctx, minute, most); err != nil {
		return err
	}
	return l.gather(ctx, (minute+1)/60, most)
}

// actions writes some actions, and lists them.
func actions(t *testing.T, a *Audit) {
	t.Helper()
	for i := range 5 {
		action, err := a.Begin(t.Context(), Entry{Who: "ann", Action: "pause", Note: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if err := action.End(t.Context(), Ending{Count: i}); err != nil {
			t.Fatal(err)
		}
	}
	var notes string
	for after := ""; ; {
		actions, next, err := a.List(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range actions {
			notes += fmt.Sprint(e.Note, e.Outcome, e.Count, " ")
		}
		if after = next; next == "" {
			break
		}
	}
	if want := "4done4 3done3 2done2 1done1 0done0 "; notes != want {
		t.Errorf("got %q, want %q", notes, want)
	}
}
