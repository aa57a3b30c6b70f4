package sampler

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// bury makes n tasks of a queue die of a cause.
func bury(t *testing.T, sc *scene.Scene, queue, cause string, n int) {
	t.Helper()
	if err := sc.Add(t.Context(), queue, "work", n, func(_ int, in *storage.Insert) { in.MaxRetries = 0 }); err != nil {
		t.Fatal(err)
	}
	err := sc.End(t.Context(), queue, n, func(_ int, _ storage.Task, st *storage.Settle) {
		st.Outcome, st.Error = storage.Fail, cause
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheDeadAreCountedFromTheNewestOn checks that the newest dead tasks are counted at once, and the others
// by later reads. Tasks that die meanwhile are shown soon, and deletes make the count begin anew.
func TestTheDeadAreCountedFromTheNewestOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "empty", 0)
		if err != nil {
			t.Fatal(err)
		}
		ahead, began := time.Duration(0), time.Now()
		s := New(sc.Store, ledger.New(sc.Store), func() time.Time { return began.Add(ahead) })
		bury(t, sc, "a.old", "disk full", 5000)
		time.Sleep(time.Second) // the newest come first
		bury(t, sc, "z.new", "timeout", 1500)
		look := func() string {
			t.Helper()
			ahead += 10 * time.Second
			now, err := s.Sample(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("%d %t:", now.Dead.Read, now.Dead.Whole)
			for _, g := range now.Dead.Groups {
				text += fmt.Sprintf(" %s %d", g.Error, g.Tasks)
			}
			return text
		}
		want := func(when, want string) {
			t.Helper()
			if got := look(); got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		want("first", "2000 false: timeout 1000 disk full 1000")
		want("second", "3900 false: disk full 2400 timeout 1500")
		bury(t, sc, "z.new", "refused", 10)
		want("what died meanwhile", "3910 false: disk full 2400 timeout 1500 refused 10")
		want("going on", "5910 false: disk full 4400 timeout 1500 refused 10")
		want("last", "6510 true: disk full 5000 timeout 1500 refused 10")
		want("at rest", "6510 true: disk full 5000 timeout 1500 refused 10")
		deleted, err := storage.NewSession(sc.Store, 0).DeleteAll(t.Context(), "a.old", storage.Dead, nil)
		if err != nil || deleted != 5000 {
			t.Fatalf("deleted %d: %v", deleted, err)
		}
		want("few left", "1510 true: timeout 1500 refused 10")
	})
}

// tardy is a storage that takes its time to list dead tasks.
type tardy struct {
	storage.Storage

	each time.Duration
}

func (w *tardy) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	if q.State == storage.Dead {
		select {
		case <-time.After(w.each):
		case <-ctx.Done():
			return storage.TasksPage{}, ctx.Err()
		}
	}
	return w.Storage.Tasks(ctx, q)
}

// TestACountOfTheDeadTakesTheTurnFromNobody checks that a count holds the turn no longer than a read may if
// the storage does not answer it, because all pages wait for the turn.
func TestACountOfTheDeadTakesTheTurnFromNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "empty", 0)
		if err != nil {
			t.Fatal(err)
		}
		bury(t, sc, "q", "disk full", survey.MostDead+100)
		store := &tardy{Storage: sc.Store}
		s := New(store, ledger.New(store), time.Now)
		if _, err := s.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.each = time.Hour
		began := time.Now()
		s.countDead(t.Context())
		if took := time.Since(began); took > LookTimeout+time.Second {
			t.Errorf("a count that the storage does not answer holds the turn for %v, want %v at most", took, LookTimeout)
		}
	})
}
