package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// tardy is a storage that takes its time to list the dead.
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

// causePage gives the page of a cause.
func causePage(t *testing.T, d *Dashboard, text string) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/dead?cause="+fingerprint.OfText(text).ID, nil)
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:4000"
	w := httptest.NewRecorder()
	if d.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Fatalf("the page of a cause: %d", w.Code)
	}
	return w.Body.String()
}

// buriedUnder makes a scene in which three tasks died of "no route", and a second later so many others of the
// same queue. The time is that of a bubble.
func buriedUnder(t *testing.T, others int) *scene.Scene {
	t.Helper()
	sc, err := scene.Open(t.Context(), "empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	bury(t, sc, "q", "no route", 3)
	time.Sleep(time.Second)
	bury(t, sc, "q", "disk full", others)
	return sc
}

// TestTheTasksOfACauseAreFoundWhereOneStepIsTooShort: the tasks were counted, so they are there, however slow the
// storage or the machine is.
func TestTheTasksOfACauseAreFoundWhereOneStepIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := buriedUnder(t, storage.MaxPage+100)
		d, err := Handler(&tardy{sc.Store, scan.DefaultTime + time.Millisecond}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if rows := strings.Count(causePage(t, d, "no route"), `<tr data-key="`); rows != 3 {
			t.Errorf("3 tasks died of the cause, and its page has %d rows", rows)
		}
	})
}

// TestACauseThatIsNotCountedYetIsShown: the count of the dead begins with the newest.
func TestACauseThatIsNotCountedYetIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := buriedUnder(t, mostDead+100)
		d, err := Handler(sc.Store, Config{})
		if err != nil {
			t.Fatal(err)
		}
		page := causePage(t, d, "no route")
		if rows := strings.Count(page, `<tr data-key="`); rows != 3 || strings.Contains(page, "Nothing is dead of this cause") {
			t.Errorf("3 tasks died of a cause that is not counted yet, and its page has %d rows:\n%s", rows, page)
		}
	})
}

// TestACountOfTheDeadTakesTheTurnFromNobody: where the storage does not answer it, all pages would wait for it.
func TestACountOfTheDeadTakesTheTurnFromNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "empty", 0)
		if err != nil {
			t.Fatal(err)
		}
		bury(t, sc, "q", "disk full", mostDead+100)
		store := &tardy{Storage: sc.Store}
		s := newSampler(store, time.Now)
		if _, err := s.sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.each = time.Hour
		began := time.Now()
		s.countDead(t.Context())
		if took := time.Since(began); took > lookFor+time.Second {
			t.Errorf("a count that the storage does not answer holds the turn for %v, want %v at most", took, lookFor)
		}
	})
}
