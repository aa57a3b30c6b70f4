package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// kill makes n tasks of the queue q die of an error.
func kill(t *testing.T, store storage.Storage, errorText string, n int) {
	t.Helper()
	session := storage.NewSession(store, 0)
	for n > 0 {
		some := min(n, 500)
		var inserts, settles []storage.Tx
		for range some {
			inserts = append(inserts, storage.Tx{Inserts: []storage.Insert{{
				Ref: storage.Ref{Queue: "q", ID: storage.NewID()}, Kind: "k", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
			}}})
		}
		if _, err := session.Apply(t.Context(), inserts...); err != nil {
			t.Fatal(err)
		}
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "q"}}, Start: some, Lease: time.Minute,
		})
		if err != nil || len(claimed.Fences) != some {
			t.Fatalf("claimed %d tasks, want %d: %v", len(claimed.Fences), some, err)
		}
		for _, f := range claimed.Fences {
			settles = append(settles, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Bury, Error: errorText}}})
		}
		if _, err := session.Apply(t.Context(), settles...); err != nil {
			t.Fatal(err)
		}
		n -= some
	}
}

// TestNothingHasDiedForAWhile checks that the page claims no more than the history knows. The clock of the
// bubble begins at a full hour.
func TestNothingHasDiedForAWhile(t *testing.T) {
	for _, c := range []struct {
		name        string
		begins      int           // how many minutes after the hour the history begins
		length, die int           // the minutes of the history, and the minute of the death, 0 for none
		without     time.Duration // the time after it in which nobody wrote, before one more minute
		want        string
	}{
		{"without a history", 50, 0, 0, 0, "No task is dead."},
		{"parts of two hours", 30, 59, 0, 0, "No task is dead."},
		{"a part and two hours", 50, 130, 0, 0, "Nothing has died for 2 h."},
		{"a death in the first of two hours", 50, 130, 30, 0, "Nothing has died for 1 h."},
		{"a death in this hour", 50, 130, 128, 0, "No task is dead."},
		{"a break of three hours, over which deaths are averaged", 50, 130, 0, 3 * time.Hour, "Nothing has died for 5 h."},
		{"a break that nobody knows of", 50, 130, 0, 30 * 24 * time.Hour, "No task is dead."},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Duration(c.begins) * time.Minute) // virtual: the bubble's clock
				store := remembers(t, c.length, c.die, c.without)
				if said := saidOfNoDeath(t, store); !strings.HasPrefix(said, c.want) {
					t.Errorf("the page says %.80q, want %q", said, c.want)
				}
			})
		})
	}
}

// remembers returns a storage with a history of so many minutes. In the minute die a task died and was
// deleted at once; if die is 0, none died. If without is not 0, the history is written once more after that
// time.
func remembers(t *testing.T, minutes, die int, without time.Duration) storage.Storage {
	t.Helper()
	sc, err := scene.Open(t.Context(), "empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	write := func() {
		t.Helper()
		if _, err := ledger.New(sc.Store).Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for minute := range minutes {
		write()
		time.Sleep(time.Minute) // virtual
		if minute == 0 || minute != die {
			continue
		}
		kill(t, sc.Store, "disk full", 1)
		if _, err := sc.Session.DeleteAll(t.Context(), "q", storage.Dead, nil); err != nil {
			t.Fatal(err)
		}
	}
	if without > 0 {
		time.Sleep(without) // virtual
		write()
	}
	return sc.Store
}

// TestADamagedHistoryTellsOfNoTimeWithoutDeaths checks that the page of the dead names no time, because the
// damaged page of the history may have held a death.
func TestADamagedHistoryTellsOfNoTimeWithoutDeaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := remembers(t, 130, 0, 0)
		pages, err := store.Tasks(t.Context(), storage.TasksQuery{Queue: ledger.Queue, State: storage.Scheduled})
		if err != nil || len(pages.Tasks) == 0 {
			t.Fatalf("%d pages of the history, %v", len(pages.Tasks), err)
		}
		page := pages.Tasks[len(pages.Tasks)-1] // the page of the hours, which is kept the longest
		page.Payload[len(page.Payload)/2] ^= 1
		_, err = storage.NewSession(store, 0).ApplyOne(t.Context(), storage.Tx{Changes: []storage.Change{
			{Ref: page.Ref, Version: page.Version, Encoding: page.Encoding, Payload: page.Payload},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if said := saidOfNoDeath(t, store); !strings.HasPrefix(said, "No task is dead.") {
			t.Errorf("with page %s damaged the page says %.80q, want no time", page.ID, said)
		}
	})
}

// saidOfNoDeath returns the text of the page of the dead if there are none, and the rest of the page.
func saidOfNoDeath(t *testing.T, store storage.Storage) string {
	t.Helper()
	d, err := Handler(store, asAdmin())
	if err != nil {
		t.Fatal(err)
	}
	page := fetch(t.Context(), d, "/dead").Body.String()
	_, text, _ := strings.Cut(strings.ReplaceAll(page, "\u00a0", " "), `<span class="text">`)
	return text
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

// causePage returns the page of a cause.
func causePage(t *testing.T, d *Dashboard, text string) string {
	t.Helper()
	return pageAt(t, d, "/dead?cause="+fingerprint.OfText(text).ID)
}

// pageAt returns the page at a path, which must exist.
func pageAt(t *testing.T, d *Dashboard, path string) string {
	t.Helper()
	w := fetch(t.Context(), d, path)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d", path, w.Code)
	}
	return w.Body.String()
}

// buriedUnder returns a scene in which three tasks died of "no route", and a second later many others in the
// same queue. It must be called in a bubble.
func buriedUnder(t *testing.T, others int) *scene.Scene {
	t.Helper()
	sc, err := scene.Open(t.Context(), "empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	kill(t, sc.Store, "no route", 3)
	time.Sleep(time.Second)
	kill(t, sc.Store, "disk full", others)
	return sc
}

// TestTheTasksOfACauseAreFoundWhereOneStepIsTooShort checks that tasks that were counted are found, however
// slow the storage or the machine is.
func TestTheTasksOfACauseAreFoundWhereOneStepIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := buriedUnder(t, storage.MaxPage+100)
		d, err := Handler(&tardy{sc.Store, scan.DefaultTime + time.Millisecond}, asAdmin())
		if err != nil {
			t.Fatal(err)
		}
		if rows := strings.Count(causePage(t, d, "no route"), `<tr data-key="`); rows != 3 {
			t.Errorf("3 tasks died of the cause, and its page has %d rows", rows)
		}
	})
}

// TestACauseThatIsNotCountedYetIsShown checks a cause of old tasks, because the count of dead tasks begins
// with the newest.
func TestACauseThatIsNotCountedYetIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := buriedUnder(t, survey.MostDead+100)
		d, err := Handler(sc.Store, asAdmin())
		if err != nil {
			t.Fatal(err)
		}
		page := causePage(t, d, "no route")
		if rows := strings.Count(page, `<tr data-key="`); rows != 3 || strings.Contains(page, "No dead task has this cause") {
			t.Errorf("3 tasks died of a cause that is not counted yet, and its page has %d rows:\n%s", rows, page)
		}
	})
}

// TestTasksThatGaveUpAreNotMadeToRunAgain checks that no page advises to requeue tasks that their jobs
// discarded by themselves.
func TestTasksThatGaveUpAreNotMadeToRunAgain(t *testing.T) {
	requeues := regexp.MustCompile(`<a class="(button[^"]*)"\s+href="/action\?[^"]*do=requeue`)
	for _, c := range []struct {
		reason string
		gaveUp bool
	}{{"out of retries", false}, {storage.AttemptDiscarded, true}} {
		sc, err := scene.Open(t.Context(), "empty", 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := sc.Add(t.Context(), "q", "k", 2, nil); err != nil {
			t.Fatal(err)
		}
		var ref string
		err = sc.End(t.Context(), "q", 2, func(_ int, task storage.Task, st *storage.Settle) {
			ref = task.Ref.String()
			st.Outcome, st.Reason, st.Error = storage.Bury, c.reason, "no such user"
		})
		if err != nil {
			t.Fatal(err)
		}
		d, err := Handler(sc.Store, asAdmin())
		if err != nil {
			t.Fatal(err)
		}
		for path, said := range map[string]string{
			"/":         "The job discarded these tasks.",
			"/dead":     "The job discarded these tasks. Fix the cause before you requeue them.",
			"/r/" + ref: "The job discarded this task. Fix the cause before you requeue it.",
			"/action?do=requeue&all=1&state=dead&filter=kind:k":    "The job discarded some of these tasks, and will do so again unless the cause is fixed.",
			"/dead?cause=" + fingerprint.OfText("no such user").ID: "The job discarded these tasks.",
		} {
			page := pageAt(t, d, path)
			if strings.Contains(page, said) != c.gaveUp {
				t.Errorf("GET %s of tasks that are %s: %q is said %t", path, c.reason, said, !c.gaveUp)
			}
			requeue := requeues.FindStringSubmatch(page)
			if requeue != nil && strings.Contains(requeue[1], "primary") == c.gaveUp {
				t.Errorf("GET %s of tasks that are %s: the requeue has the class %q", path, c.reason, requeue[1])
			}
		}
	}
}

// TestATitleStandsForAllTasksOfItsCause checks causes of equal errors and of errors that differ, and more
// causes than a page shows.
func TestATitleStandsForAllTasksOfItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "empty", 0)
		if err != nil {
			t.Fatal(err)
		}
		kill(t, sc.Store, "dial tcp 10.0.0.7:25: connection refused", 3)
		for i := range 2 {
			kill(t, sc.Store, fmt.Sprintf("write /var/exports/%d.csv for ann%d@example.org", 1000+i, i), 1)
		}
		for i := range pageSize {
			kill(t, sc.Store, "cause "+string(rune('A'+i)), 1)
		}
		d, err := Handler(sc.Store, asAdmin())
		if err != nil {
			t.Fatal(err)
		}
		page := pageAt(t, d, "/dead")
		for _, title := range []string{
			">dial tcp 10.0.0.7:25: connection refused</a>", ">write /var/exports/{n}.csv for {…}</a>", "1–50 of 52",
		} {
			if !strings.Contains(page, title) {
				t.Errorf("the page of the dead does not show %q", title)
			}
		}
		if rest := pageAt(t, d, "/dead?page=2"); strings.Count(rest, `class="need cause"`) != 2 || !strings.Contains(rest, `rel="prev"`) {
			t.Errorf("the second page has %d causes, want 2, and a way back", strings.Count(rest, `class="need cause"`))
		}
		id := fingerprint.OfText("write /var/exports/1.csv for a@example.org").ID
		if cause := pageAt(t, d, "/dead?cause="+id); !strings.Contains(cause, "write /var/exports/{n}.csv for {…}\n") &&
			!strings.Contains(cause, "<h1>write /var/exports/{n}.csv for {…}") {
			t.Error("the page of the cause does not have its title")
		}
	})
}
