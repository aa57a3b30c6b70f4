package dashboard_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// as returns the configuration that serves the dashboard to a user with a role.
func as(role access.Role) dashboard.Config {
	return dashboard.Config{Who: func(*http.Request) (access.User, bool) {
		return access.User{Name: "ann", Role: role}, true
	}}
}

// admitting returns cfg, for an admin if cfg does not define the viewers.
func admitting(cfg dashboard.Config) dashboard.Config {
	if cfg.Who == nil && cfg.Users == nil && cfg.Token == "" {
		cfg.Who = as(access.Admin).Who
	}
	return cfg
}

// list returns the refs of all tasks of a queue in a state.
func (s *site) list(queue string, state storage.State) (refs []string) {
	s.t.Helper()
	for t, err := range storage.Each(s.t.Context(), s.Store, queue, state) {
		if err != nil {
			s.t.Fatal(err)
		}
		refs = append(refs, t.Ref.String())
	}
	return refs
}

// between returns the text of a page between two others.
func between(t *testing.T, page, before, after string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, before)
	text, _, ends := strings.Cut(rest, after)
	if !ok || !ends {
		t.Fatalf("the page has no %q and %q behind it", before, after)
	}
	return html.UnescapeString(text)
}

// post sends a form, and returns the page to which it leads.
func (s *site) post(path string, pairs ...string) (int, string) {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	w := s.do(request(http.MethodPost, path, form.Encode()))
	if w.Code != http.StatusSeeOther {
		return w.Code, w.Body.String()
	}
	return http.StatusOK, strings.ReplaceAll(s.get(w.Header().Get("Location")), "\u00a0", " ")
}

func TestAListShowsWhatItsAddressSays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		s.shows("/tasks?state=dead", "showing 50 of 300", "no space left on device", "midge task ls state:dead")
		s.shows("/tasks?queue=mail&state=dead", "showing 50 of 212", "connection refused")
		s.shows("/tasks?queue=mail&state=dead&filter=kind:send_digest", "showing 32 of 32",
			"midge task ls &#39;queue:mail state:dead kind:send_digest&#39;")
		s.shows("/tasks?filter=kind:legacy_sync", "legacy_sync", "no runner that saw the task handles its kind")
		s.shows("/tasks?filter=kind:send_digest", "No task matches", "Also search the tasks that have ended")
		s.shows("/tasks?filter=colour:red", "queue: id: kind:", "colour")
		page := s.get("/tasks?queue=mail&state=dead")
		s.shows(between(t, page, `rel="next" href="`, `"`), "showing 50 of 212", "First page")
		for path, want := range map[string]int{
			"/tasks?state=lost": 400, "/tasks?queue=a/b": 400, "/tasks?after=nonsense": 400, "/r/mail/none": 404, "/r/a%20b/c": 400,
		} {
			if w := s.do(request(http.MethodGet, path, "")); w.Code != want {
				t.Errorf("GET %s: %d, want %d", path, w.Code, want)
			}
		}
	})
}

func TestATaskTellsItsLife(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		ref := s.list("mail", storage.Dead)[0]
		s.shows("/r/"+ref, "Dead since", "Retries exhausted. Last error: ", "connection refused", "goroutine 41 [running]", "&#34;user&#34;", "tenant", "acme",
			"midge task show "+ref, "Requeue", "Edit", "Delete")
		w := s.do(request(http.MethodGet, "/r/"+ref+"/params", ""))
		if got := w.Header().Get("Content-Disposition"); w.Code != http.StatusOK || !strings.HasPrefix(got, "attachment;") {
			t.Errorf("the parameters: %d, Content-Disposition %q, want an attachment", w.Code, got)
		}
	})
}

func TestAViewerSeesNoPayloads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Viewer))
		ref := s.list("mail", storage.Dead)[0]
		page := s.get("/r/" + ref)
		for _, secret := range []string{"example.com", "acme"} {
			if strings.Contains(page, secret) {
				t.Errorf("a viewer sees %q", secret)
			}
		}
		for _, path := range []string{
			"/r/" + ref + "/params", "/edit?ref=" + ref, "/tasks?filter=params.user:1", "/tasks?filter=-header.tenant:acme&state=dead",
		} {
			if w := s.do(request(http.MethodGet, path, "")); w.Code != http.StatusForbidden {
				t.Errorf("GET %s: %d, want 403", path, w.Code)
			}
		}
	})
}

func TestWhatIsRedactedIsNowhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hidden, err := access.Redact("params.mail", "header.tenant")
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, "night", dashboard.Config{Redact: hidden})
		ref := s.list("mail", storage.Dead)[0]
		for _, path := range []string{"/r/" + ref, "/r/" + ref + "/params"} {
			if page := s.get(path); strings.Contains(page, "example.com") || strings.Contains(page, "acme") || !strings.Contains(page, "***") {
				t.Errorf("GET %s shows what is redacted", path)
			}
		}
		list := s.get("/tasks?queue=mail")
		if !strings.Contains(list, "&#34;user&#34;:0,") || !strings.Contains(list, "***") || strings.Contains(list, "example.com") {
			t.Error("a list does not show the begin of parameters without what is redacted")
		}
		viewer := as(access.Viewer)
		if page := open(t, "night", viewer).get("/tasks?queue=mail"); strings.Contains(page, "example.com") {
			t.Error("a list shows parameters to a viewer")
		}
		for _, path := range []string{"/edit?ref=" + ref, "/tasks?filter=params.mail:x", "/tasks?filter=header.tenant:acme"} {
			if w := s.do(request(http.MethodGet, path, "")); w.Code != http.StatusForbidden {
				t.Errorf("GET %s: %d, want 403", path, w.Code)
			}
		}
	})
}

// TestARedactedValueIsInNoError checks a task whose error repeats a hidden value, on each page that shows
// errors and in a filter by errors.
func TestARedactedValueIsInNoError(t *testing.T) {
	for what, card := range map[string]string{
		"a short value": "4111-2222", "a value that is cut": strings.Repeat("4111-2222-", 200),
	} {
		t.Run(what, func(t *testing.T) { redactedValueIsInNoError(t, card) })
	}
}

func redactedValueIsInNoError(t *testing.T, card string) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		hidden, err := access.Redact("params.card")
		if err != nil {
			t.Fatal(err)
		}
		s, store := inserted(t, dashboard.Config{Redact: hidden}, storage.Insert{
			Ref: theTask, Encoding: "json", Payload: []byte(`{"card":"` + card + `"}`),
		})
		session := storage.NewSession(store, 0)
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: theTask.Queue}}, Start: 1, Lease: time.Minute,
		})
		if err != nil || len(claimed.Fences) != 1 {
			t.Fatalf("claimed %+v, %v", claimed, err)
		}
		_, err = session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{{
			Fence: claimed.Fences[0], Outcome: storage.Bury, Reason: "the bank refuses " + card,
			Error: "charge " + card + ": declined", Stack: "goroutine of " + card,
		}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{
			"/", "/dead", "/tasks?state=dead", "/r/" + theTask.String(), "/tasks?filter=error:charge&state=dead",
		} {
			if page := s.get(path); strings.Contains(page, "4111") || !strings.Contains(page, "charge ***") {
				t.Errorf("GET %s does not show the error without the card", path)
			}
		}
		if page := s.get("/tasks?filter=error:4111&state=dead"); strings.Contains(page, "charge ***") {
			t.Error("a filter by errors finds the card")
		}
	})
}

func TestAKeptScheduleIsShownAsSuch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", as(access.Admin))
		for name, kind := range map[string]string{"ann": "send_welcome", "bob": "legacy_sync", "eve": "legacy_sync"} {
			in := storage.Insert{
				Ref: storage.Ref{Queue: "mail", ID: storage.CursorPrefix + name}, Kind: kind, Encoding: "json",
				Payload: []byte("{}"), CrashLimit: 3,
			}
			schedule.Declare(&in, storage.Declaration{Spec: "every 24h0m0s jitter 6h0m0s", Kept: true})
			if err := schedule.Set(t.Context(), s.Session, in); err != nil {
				t.Fatal(err)
			}
		}
		s.shows("/schedules", ">kept</span>", "jitter 6", "No live runner of the queue handles legacy_sync, so it is stalled.")
		s.shows("/", "2 schedules of the kind legacy_sync are orphaned", "No live runner of the queue mail handles legacy_sync")
		s.shows("/action?do=unschedule&ref=mail/"+storage.CursorPrefix+"ann", "No program declares it")
	})
}

// state returns everything in the storage that its contract can read.
func (s *site) state() string {
	s.t.Helper()
	var b strings.Builder
	for name, err := range storage.EachQueue(s.t.Context(), s.Store, "") {
		if err != nil {
			s.t.Fatal(err)
		}
		stats, err := s.Store.Stats(s.t.Context(), name)
		if err != nil {
			s.t.Fatal(err)
		}
		stats[0].Oldest = 0 // grows by itself
		b.WriteString(name + " " + strings.ReplaceAll(strings.TrimSpace(sprint(stats[0])), "\n", " "))
		for _, state := range storage.States() {
			for t, err := range storage.Each(s.t.Context(), s.Store, name, state) {
				if err != nil {
					s.t.Fatal(err)
				}
				b.WriteString("\n" + sprint(t))
			}
		}
	}
	return b.String()
}

func TestAGetChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		ref := s.list("mail", storage.Dead)[0]
		before := s.state()
		seen := map[string]bool{}
		next := append(s.paths(), "/tasks", "/tasks?state=dead", "/r/"+ref, "/edit?ref="+ref, "/search?q=mail", "/action?do=delete&ref="+ref)
		for len(next) > 0 && len(seen) < 400 {
			path := html.UnescapeString(next[0])
			next = next[1:]
			if path, _, _ = strings.Cut(path, "#"); seen[path] || path == "" || strings.HasPrefix(path, "/events") {
				continue
			}
			seen[path] = true
			w := s.do(request(http.MethodGet, path, ""))
			if w.Code >= 400 && w.Code != http.StatusNotFound {
				t.Errorf("GET %s: %d", path, w.Code)
			}
			for rest := w.Body.String(); ; {
				_, after, ok := strings.Cut(rest, `href="`)
				if !ok {
					break
				}
				var address string
				address, rest, _ = strings.Cut(after, `"`)
				next = append(next, address)
			}
		}
		if len(seen) < 100 {
			t.Errorf("the crawl saw %d pages, want a hundred and more", len(seen))
		}
		if after := s.state(); after != before {
			t.Error("a crawl of all pages has changed the storage")
		}
	})
}

// TestRunningIsToldFromClaimed checks the words for tasks in the state pending, and the note at their number.
func TestRunningIsToldFromClaimed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "empty", dashboard.Config{})
		if err := s.Add(t.Context(), "mail", "work", 2, nil); err != nil {
			t.Fatal(err)
		}
		_, err := s.Session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Ahead: 1, Lease: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		const note = `title="2, includes the tasks that a runner has claimed and not started yet"`
		s.shows("/tasks?state=running", "</i>running</span>", "</i>claimed, not started</span>", note)
		s.shows("/queues", note, "Running</a>")
		s.shows("/queues/mail", note)
		for _, path := range []string{"/", "/queues", "/queues/mail", "/tasks?state=running"} {
			if words := regexp.MustCompile(`>[^<:]*pending[^<]*<`).FindString(s.get(path)); words != "" {
				t.Errorf("GET %s shows %q", path, words)
			}
		}
		for _, ref := range s.list("mail", storage.Pending) {
			if page := s.get("/r/" + ref); !strings.Contains(page, "attempt 1 started") && !strings.Contains(page, "claimed, not started") {
				t.Errorf("the page of %s shows neither that it runs nor that it is claimed", ref)
			}
		}
	})
}

// TestAListOfOneTaskLeadsToIt checks the address that a finding about one task has.
func TestAListOfOneTaskLeadsToIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		one := s.do(request(http.MethodGet, "/tasks?queue=default&state=waiting&filter=kind:legacy_sync&only=1", ""))
		if to := one.Header().Get("Location"); !strings.HasPrefix(to, "/r/default/") {
			t.Errorf("a list of one task: %d to %q, want its page", one.Code, to)
		}
		if many := s.do(request(http.MethodGet, "/tasks?queue=payments&state=waiting&only=1", "")); many.Code != http.StatusOK {
			t.Errorf("a list of many tasks: %d, want the list", many.Code)
		}
	})
}
