package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// told returns the events of the timeline of a task, each with its words alone.
func (s *site) told(path string) (events []string) {
	s.t.Helper()
	page := between(s.t, s.get(path), `<ol class="timeline">`, "</ol>")
	for _, event := range strings.Split(page, "<li ")[1:] {
		var words []string
		for _, span := range strings.Split(event, "<span>")[1:] {
			text, _, _ := strings.Cut(span, "</span>")
			words = append(words, strings.ReplaceAll(text, "\u00a0", " "))
		}
		events = append(events, strings.Join(words, " "))
	}
	return events
}

// TestATimelineHasWaitsAndAttempts checks a task that was enqueued for later, failed, was requeued and runs.
func TestATimelineHasWaitsAndAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		s, store := inserted(t, dashboard.Config{}, storage.Insert{
			Ref: theTask, Delay: time.Minute, MaxRetries: 1, Headers: map[string]string{storage.DueHeader: "1m0s"},
		})
		session := storage.NewSession(store, 0)
		path := "/r/" + theTask.String()
		is := func(want ...string) {
			t.Helper()
			got := s.told(path)
			if strings.Join(got, "; ") != strings.Join(want, "; ") {
				t.Errorf("the timeline is %q, want %q", got, want)
			}
		}
		claim := func() storage.Fence {
			t.Helper()
			req := storage.ClaimRequest{
				Runner: "r", Queues: []storage.ClaimQueue{{Name: theTask.Queue}}, Start: 1, Lease: time.Hour,
			}
			claimed, err := session.Claim(t.Context(), req)
			if err == nil && len(claimed.Fences) == 0 { // the first claim only promoted the task
				claimed, err = session.Claim(t.Context(), req)
			}
			if err != nil || len(claimed.Fences) != 1 {
				t.Fatalf("claimed %d tasks, %v; want one", len(claimed.Fences), err)
			}
			return claimed.Fences[0]
		}
		fail := func(f storage.Fence, delay time.Duration) {
			t.Helper()
			_, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{
				{Fence: f, Outcome: storage.Fail, Error: "no route", Delay: delay},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		is("attempt 1 due", "created")
		time.Sleep(time.Minute + 5*time.Second) // virtual
		f := claim()
		is("attempt 1 started", "waited 5 s", "created")
		time.Sleep(2*time.Second + time.Millisecond) // virtual
		fail(f, time.Minute)
		is("attempt 2 due", "attempt 1 failed after 2 s", "waited 5 s", "created")
		time.Sleep(time.Minute + time.Second) // virtual
		f = claim()
		time.Sleep(time.Second + time.Millisecond) // virtual
		fail(f, 0)
		was := []string{"attempt 2 failed after 1 s", "waited 1 m 1 s", "attempt 1 failed after 2 s", "waited 5 s", "created"}
		is(append([]string{"dead: retries exhausted"}, was...)...)
		s.shows(path, "Dead since", "Retries exhausted. Last error: no route")
		if code, _ := s.post("/action", "do", "requeue", "ref", theTask.String()); code != http.StatusOK {
			t.Fatalf("a requeue: %d", code)
		}
		is(append([]string{"waiting for attempt 1", "was requeued"}, was...)...)
	})
}

// TestACompletedTaskShowsItsRun checks the start, the duration and the runner of a kept task, and that its
// timeline names its end once.
func TestACompletedTaskShowsItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		s, store := inserted(t, dashboard.Config{}, storage.Insert{
			Ref: theTask, MaxRetries: 1, Keep: storage.Keep{For: time.Hour},
		})
		session := storage.NewSession(store, 0)
		for _, end := range []storage.Settle{
			{Outcome: storage.Fail, Error: "no route", Stack: "at main.go:1"}, {Outcome: storage.Complete},
		} {
			claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
				Runner: "r-1", Queues: []storage.ClaimQueue{{Name: theTask.Queue}}, Start: 1, Lease: time.Hour,
			})
			if err != nil || len(claimed.Fences) != 1 {
				t.Fatalf("claimed %d tasks, %v; want one", len(claimed.Fences), err)
			}
			time.Sleep(2*time.Second + time.Millisecond) // virtual
			end.Fence = claimed.Fences[0]
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{end}}); err != nil {
				t.Fatal(err)
			}
		}
		path := "/r/" + theTask.String()
		got, want := s.told(path), []string{"attempt 2 completed after 2 s", "attempt 1 failed after 2 s", "created"}
		if strings.Join(got, "; ") != strings.Join(want, "; ") {
			t.Errorf("the timeline is %q, want %q", got, want)
		}
		s.shows(path, "Completed since", "<dt>started</dt>", "<dt>took</dt>", `href="/runners/r-1"`)
		if stack := between(t, s.get(path), "attempt 1", "created"); !strings.Contains(stack, "main.go:1") {
			t.Error("the stack does not stand at the attempt that failed")
		}
	})
}

// TestATaskIsTitledByItsKind checks the title, the id beside it, and that nobody is urged to requeue a task
// that has completed.
func TestATaskIsTitledByItsKind(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{})
		ref := s.list("payments", storage.Completed)[0]
		page := s.get("/r/" + ref)
		title := between(t, page, "<h1>", "</h1>")
		id := strings.NewReplacer("<i>", "", "</i>", "").Replace(title) // narrow windows cut it between the two parts
		if want := `charge_card <code class="id"><span class="name" title="` + ref + `">` + ref + "</span></code>"; id != want {
			t.Errorf("the title is %q, want the kind, and the ref small", title)
		}
		if !strings.Contains(page, "do=requeue") || strings.Contains(page, "button primary") {
			t.Error("a completed task has no requeue, or one that is filled")
		}
		s.shows("/r/"+ref, "Completed since")
	})
}

// TestATimelineHasWhenACrashWasFound checks that the page of a task whose runner was lost does not show the time until
// that was found as the time of the run, and that a snooze is its reason only until it is due.
func TestATimelineHasWhenACrashWasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		s, store := inserted(t, dashboard.Config{}, storage.Insert{Ref: theTask})
		session := storage.NewSession(store, 0)
		claim := func() (fence storage.Fence) {
			t.Helper()
			for range 2 { // the first claim may only promote the task, or recover it
				claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
					Runner: "r", Queues: []storage.ClaimQueue{{Name: theTask.Queue}}, Start: 1, Lease: 30 * time.Second,
				})
				if err != nil {
					t.Fatal(err)
				}
				if len(claimed.Fences) > 0 {
					fence = claimed.Fences[0]
				}
			}
			return fence
		}
		events := func() string { t.Helper(); return strings.Join(s.told("/r/"+theTask.String()), "; ") }
		_, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{{
			Fence: claim(), Outcome: storage.Snooze, Delay: time.Minute, Reason: storage.ReasonSleeps + " noon (a while)",
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := events(); !strings.HasPrefix(got, "attempt 1 due: the job sleeps until noon (a while); ") {
			t.Errorf("the timeline of a task that sleeps is %q", got)
		}
		time.Sleep(time.Minute + time.Second) // virtual
		claim()
		time.Sleep(44 * time.Second) // virtual
		claim()
		if got := events(); !strings.Contains(got, "attempt 1 crashed found 43 s after the start, once its lease had expired") || strings.Contains(got, "sleeps") {
			t.Errorf("the timeline after a crash is %q", got)
		}
	})
}
