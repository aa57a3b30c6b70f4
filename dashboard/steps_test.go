package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// stepped returns a dashboard of a running task of the encoding JSON whose job has stored these bytes.
func stepped(t *testing.T, cfg dashboard.Config, stored []byte) *site {
	t.Helper()
	s, store := inserted(t, cfg, storage.Insert{Ref: theTask})
	session := storage.NewSession(store, 0)
	claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: theTask.Queue}}, Start: 1, Lease: time.Hour,
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claimed %d tasks, %v; want one", len(claimed.Fences), err)
	}
	leases := []storage.Extension{{Fence: claimed.Fences[0], Checkpoint: stored}}
	if _, err := session.Extend(t.Context(), storage.ExtendRequest{Leases: leases}); err != nil {
		t.Fatal(err)
	}
	return s
}

var theSteps = "/r/" + theTask.String() + "/steps"

// TestAPageShowsSteps checks the steps of a task for each role: their results only for people who may see payloads,
// and without the hidden fields.
func TestAPageShowsSteps(t *testing.T) {
	for role, sees := range map[access.Role]bool{access.Viewer: false, access.Operator: true, access.Admin: true} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
			redact, err := access.Redact("step.charge.card", "step.secret")
			if err != nil {
				t.Fatal(err)
			}
			cfg, now := as(role), time.Now()
			cfg.Redact = redact
			showsSteps(t, sees, stepped(t, cfg, steps.Envelope{Checkpoint: []byte(`{"at":"page7"}`), Steps: []steps.Step{
				{Name: "charge", Ended: now, Took: 3 * time.Second, Result: []byte(`{"card":"4111","id":"ch_9"}`)},
				{Name: "secret", Ended: now, Result: []byte(`"hunter2"`)},
				{Name: "odd", Ended: now, Result: []byte("no json")},
				{Name: "two days", Ended: now, Until: now.Add(48 * time.Hour)},
				{Name: "wait", Ended: now.Add(-time.Hour), Until: now.Add(-time.Minute)},
			}}.Encode()))
		})
	}
}

// showsSteps checks the page and the downloads for a user who sees results, or does not.
func showsSteps(t *testing.T, sees bool, s *site) {
	t.Helper()
	path := "/r/" + theTask.String()
	s.shows(path, "<h2>Steps</h2>", "charge", "after 3 s", "sleeps until", "slept until")
	page := s.get(path)
	for _, text := range []string{"ch_9", "payload is no json", theSteps, "page7"} {
		if strings.Contains(page, text) != sees {
			t.Errorf("the page shows %q: %t, want %t", text, !sees, sees)
		}
	}
	w := s.do(request(http.MethodGet, theSteps, ""))
	if (w.Code == http.StatusOK) != sees || strings.Contains(w.Body.String(), "ch_9") != sees {
		t.Errorf("the download: %d %s, want the results: %t", w.Code, w.Body, sees)
	}
	for _, text := range []string{page, w.Body.String()} {
		if strings.Contains(text, "4111") || strings.Contains(text, "hunter2") {
			t.Errorf("hidden fields are shown:\n%s", text)
		}
	}
	if got := s.do(request(http.MethodGet, path+"/checkpoint", "")); sees && got.Body.String() != `{"at":"page7"}` {
		t.Errorf("the checkpoint is %s, want that of the job alone", got.Body)
	}
}

// TestAPageOfManySteps checks as many steps as a task may have, with names and results as long as they may be.
func TestAPageOfManySteps(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		all := make([]steps.Step, steps.Most)
		for i := range all {
			all[i] = steps.Step{
				Name: fmt.Sprintf("%03d%s", i, strings.Repeat("<", storage.MaxName-3)), Ended: time.Now(),
				Result: []byte(`"` + strings.Repeat("x", 3<<10) + `"`),
			}
		}
		s := stepped(t, dashboard.Config{}, steps.Envelope{Steps: all}.Encode())
		page := s.get("/r/" + theTask.String())
		if n := strings.Count(page, "&lt;&lt;"); n < steps.Most || strings.Contains(page, "<<") {
			t.Errorf("%d names are shown, want %d, all escaped", n, steps.Most)
		}
		if len(page) > 1<<20 || !strings.Contains(page, "too long to be shown here") {
			t.Errorf("the page has %d bytes, and does not leave out the results that are too long", len(page))
		}
		if w := s.do(request(http.MethodGet, theSteps, "")); w.Code != http.StatusOK || w.Body.Len() < steps.Most*3<<10 {
			t.Errorf("the download: %d with %d bytes, want all results", w.Code, w.Body.Len())
		}
	})
}

// TestDamagedStepsAreNamed checks that bytes that cannot be read take no page away.
func TestDamagedStepsAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		whole := steps.Envelope{Steps: []steps.Step{{Name: "a", Ended: time.Now(), Result: []byte("7")}}}.Encode()
		s := stepped(t, dashboard.Config{}, whole[:len(whole)-1])
		s.shows("/r/"+theTask.String(), "<h2>Steps</h2>", "The steps of the task cannot be read: cut off")
		if page := s.get("/r/" + theTask.String()); strings.Contains(page, "<h2>Checkpoint</h2>") {
			t.Error("the page shows a checkpoint that nobody can read")
		}
		if w := s.do(request(http.MethodGet, theSteps, "")); w.Code == http.StatusOK || w.Code == http.StatusServiceUnavailable {
			t.Errorf("the download: %d, want a refusal that is no outage", w.Code)
		}
	})
}
