package dashboard_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// as returns the configuration that serves the dashboard to a user with a role.
func as(role access.Role) dashboard.Config {
	return dashboard.Config{Who: func(*http.Request) (access.User, bool) {
		return access.User{Name: "ann", Role: role}, true
	}}
}

// admitting returns cfg, for an admin if cfg does not say who may look.
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
	inBubble(t, func(t *testing.T) {
		hidden, err := access.Redact("params.card")
		if err != nil {
			t.Fatal(err)
		}
		s, store := inserted(t, dashboard.Config{Redact: hidden}, storage.Insert{
			Ref: theTask, Encoding: "json", Payload: []byte(`{"card":"4111-2222"}`),
		})
		session := storage.NewSession(store, 0)
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: theTask.Queue}}, Start: 1, Lease: time.Minute,
		})
		if err != nil || len(claimed.Fences) != 1 {
			t.Fatalf("claimed %+v, %v", claimed, err)
		}
		_, err = session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{{
			Fence: claimed.Fences[0], Outcome: storage.Bury, Reason: "the bank refuses 4111-2222",
			Error: "charge 4111-2222: declined", Stack: "goroutine of 4111-2222",
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

func TestActionsOnTasks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		dead := s.list("mail", storage.Dead)
		s.shows("/action?do=requeue&ref="+dead[0]+"&ref="+dead[1], "Requeue 2 tasks?", dead[0], "Back", "Rate")
		if got := s.list("mail", storage.Dead); len(got) != len(dead) {
			t.Fatalf("%d dead after a dialog, want %d", len(got), len(dead))
		}
		if code, page := s.post("/action", "do", "requeue", "ref", dead[0], "back", "/r/"+dead[0]); code != 200 ||
			!strings.Contains(page, "1 task requeued.") {
			t.Errorf("requeue one: %d", code)
		}
		if got := s.list("mail", storage.Waiting); !slices.Contains(got, dead[0]) {
			t.Error("the requeued task does not wait")
		}
		if code, page := s.post("/action", "do", "delete", "ref", dead[1], "ref", dead[2], "ref", "mail/none", "back", "/tasks"); code != 200 ||
			!strings.Contains(page, "2 of 3 tasks deleted, 1 not found.") {
			t.Errorf("delete: %d", code)
		}
		if code, page := s.post("/action", "do", "cancel", "ref", dead[0], "back", "/tasks"); code != 200 ||
			!strings.Contains(page, "1 task cancelled.") {
			t.Errorf("cancel: %d", code)
		}
		s.shows("/action?do=requeue&all=1&queue=mail&state=dead&filter=kind:send_digest", "Requeue 32 tasks?", "and 27 more",
			"midge task requeue &#39;queue:mail state:dead kind:send_digest&#39;")
		if code, page := s.post("/action", "do", "requeue", "all", "1", "queue", "mail", "state", "dead", "filter", "kind:send_digest",
			"count", "32", "back", "/tasks"); code != 200 || !strings.Contains(page, "tasks requeued.") {
			t.Errorf("requeue all that match: %d", code)
		}
		if code, page := s.post("/action", "do", "requeue", "all", "1", "queue", "mail", "state", "dead", "rate", "1",
			"count", "all", "back", "/tasks"); code != 200 || !strings.Contains(page, "It continues if you close this page") {
			t.Errorf("requeue all at a rate: %d", code)
		} else {
			code, page := s.post("/actions/" + between(t, page, `action="/actions/`, `"`))
			if code != 200 || !strings.Contains(page, "The action was stopped. Repeat it to do the rest.") {
				t.Errorf("stop: %d", code)
			}
		}
	})
}

func TestActionsThatMakeNoSenseAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		dead := s.list("mail", storage.Dead)[0]
		for _, bad := range [][]string{
			{"do", "requeue", "all", "1", "rate", "x", "count", "1"},
			{"do", "requeue", "all", "1", "queue", "mail", "state", "dead"},
			{"do", "cancel", "all", "1", "queue", "mail", "count", "0"},
			{"do", "explode", "ref", dead},
			{"do", "requeue"},
			{"do", "requeue", "ref", "nonsense"},
			{"do", "run", "ref", dead},
		} {
			if code, _ := s.post("/action", bad...); code != http.StatusBadRequest {
				t.Errorf("POST /action with %v: %d, want 400", bad, code)
			}
		}
	})
}

// TestARequeueOfManyTasksHasAModerateRate checks that the dialog proposes a rate if what made the tasks fail
// might not bear all of them at once, and that its command has the same rate.
func TestARequeueOfManyTasksHasAModerateRate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		for _, c := range []struct{ path, rate, command string }{
			{"/action?do=requeue&all=1&queue=mail&state=dead", "50", "midge task requeue --rate 50 &#39;queue:mail state:dead&#39;"},
			{"/action?do=requeue&all=1&queue=archive&state=dead", "0", "midge task requeue &#39;queue:archive state:dead&#39;"},
			{"/action?do=delete&all=1&queue=mail&state=dead", "0", "midge task rm &#39;queue:mail state:dead&#39;"},
		} {
			s.shows(c.path, `<option value="`+c.rate+`" selected>`, c.command)
		}
	})
}

// TestAQueueWhoseTasksRunIsNotRemoved checks that such a queue keeps all its tasks.
func TestAQueueWhoseTasksRunIsNotRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		claimed, err := storage.NewSession(s.Store, 0).Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 2, Lease: time.Minute,
		})
		if err != nil || len(claimed.Fences) != 2 {
			t.Fatalf("claimed %d tasks, %v; want 2", len(claimed.Fences), err)
		}
		waiting := len(s.list("mail", storage.Waiting))
		if code, page := s.post("/action", "do", "remove", "queue", "mail", "typed", "mail", "back", "/queues/mail"); code != 200 ||
			!strings.Contains(page, "of mail are running: pause the queue and wait, or cancel them") {
			t.Errorf("remove: %d", code)
		}
		if got := len(s.list("mail", storage.Waiting)); got != waiting || got == 0 {
			t.Errorf("%d tasks wait after a remove that was refused, want %d", got, waiting)
		}
	})
}

func TestActionsOnQueues(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		s.shows("/action?do=resume&queue=payments", "Resume the queue payments?", "1,204 tasks wait in it now")
		if code, page := s.post("/action", "do", "resume", "queue", "payments", "back", "/queues/payments"); code != 200 ||
			!strings.Contains(page, "The queue payments is resumed.") || strings.Contains(page, "but none starts") {
			t.Errorf("resume: %d", code)
		}
		if code, page := s.post("/action", "do", "pause", "queue", "mail", "for", "1h", "back", "/queues/mail"); code != 200 ||
			!strings.Contains(page, "It resumes by itself") {
			t.Errorf("pause: %d", code)
		}
		if code, _ := s.post("/action", "do", "pause", "queue", "mail", "for", "7m"); code != http.StatusBadRequest {
			t.Errorf("pause for a time that is not offered: %d, want 400", code)
		}
		s.shows("/action?do=remove&queue=payments", "Type payments to confirm", "1,284 tasks")
		if code, _ := s.post("/action", "do", "remove", "queue", "payments", "typed", "payment"); code != http.StatusBadRequest {
			t.Errorf("remove without the name: %d, want 400", code)
		}
		if code, _ := s.post("/action", "do", "remove", "queue", "payments", "typed", "payments", "back", "/queues/payments"); code != 200 {
			t.Errorf("remove: %d", code)
		}
		if w := s.do(request(http.MethodGet, "/queues/payments", "")); w.Code != http.StatusNotFound {
			t.Errorf("a removed queue: %d, want 404", w.Code)
		}
	})
}

func TestActionsOnSchedules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		cursor := "mail/" + storage.CursorPrefix + "daily_digest"
		s.shows("/action?do=run&ref="+cursor, "Run the schedule daily_digest of mail now?", "midge schedule run mail/daily_digest")
		before := len(s.list("mail", storage.Waiting))
		if code, page := s.post("/action", "do", "run", "ref", cursor, "back", "/schedules"); code != 200 ||
			!strings.Contains(page, "The schedule has enqueued the task mail/") {
			t.Errorf("run: %d", code)
		}
		if got := len(s.list("mail", storage.Waiting)); got != before+1 {
			t.Errorf("%d tasks wait after a run, want %d", got, before+1)
		}
		s.shows("/action?do=pause-schedule&ref="+cursor, "Pause the schedule daily_digest of mail?", "midge schedule pause mail/daily_digest")
		if code, page := s.post("/action", "do", "pause-schedule", "ref", cursor, "back", "/schedules"); code != 200 ||
			!strings.Contains(page, "The schedule is paused.") || !strings.Contains(page, ">paused</span>") ||
			!strings.Contains(page, "do=resume-schedule&amp;ref="+url.QueryEscape(cursor)) {
			t.Errorf("pause a schedule: %d %s", code, page)
		}
		if code, page := s.post("/action", "do", "resume-schedule", "ref", cursor, "back", "/schedules"); code != 200 ||
			!strings.Contains(page, "The schedule is resumed.") || strings.Contains(page, ">paused</span>") {
			t.Errorf("resume a schedule: %d", code)
		}
		if code, _ := s.post("/action", "do", "unschedule", "ref", cursor, "back", "/schedules"); code != 200 ||
			len(s.list("mail", storage.Cursors)) != 0 {
			t.Errorf("remove a schedule: %d", code)
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

func TestARunThatIsSentTwiceEnqueuesOneTask(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		cursor := "mail/" + storage.CursorPrefix + "daily_digest"
		before := len(s.list("mail", storage.Waiting))
		for dialogs := 1; dialogs <= 2; dialogs++ {
			fresh := between(t, s.get("/action?do=run&ref="+cursor), `name="fresh" value="`, `"`)
			for range 2 {
				if code, page := s.post("/action", "do", "run", "ref", cursor, "fresh", fresh); code != http.StatusOK ||
					!strings.Contains(page, "The schedule has enqueued the task mail/"+fresh) {
					t.Errorf("run: %d", code)
				}
			}
			if got := len(s.list("mail", storage.Waiting)); got != before+dialogs {
				t.Errorf("%d tasks wait after %d dialogs, want %d", got, dialogs, before+dialogs)
			}
		}
		if code, _ := s.post("/action", "do", "run", "ref", cursor, "fresh", "a/b"); code != http.StatusBadRequest {
			t.Errorf("run under a bad id: %d, want 400", code)
		}
	})
}

func TestAnEditedTaskRunsWithItsNewParameters(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		ref := s.list("mail", storage.Dead)[0]
		page := s.get("/edit?ref=" + ref)
		version := between(t, page, `name="version" value="`, `"`)
		if code, page := s.post("/edit", "ref", ref, "version", version, "params", `{"user":"x"`); code != http.StatusBadRequest ||
			!strings.Contains(page, "{&#34;user&#34;:&#34;x&#34;") {
			t.Errorf("bad JSON: %d, want 400 and the text", code)
		}
		if code, _ := s.post("/edit", "ref", ref, "version", "1", "params", `{"user":7}`); code != http.StatusConflict {
			t.Errorf("an old version: %d, want 409", code)
		}
		if code, page := s.post("/edit", "ref", ref, "version", version, "requeue", "1", "params", `{"user":7}`); code != 200 ||
			!strings.Contains(page, "is requeued") {
			t.Errorf("edit and requeue: %d", code)
		}
		queue, id, _ := strings.Cut(ref, "/")
		task, err := s.Store.Task(t.Context(), storage.Ref{Queue: queue, ID: id})
		if err != nil || task.State != storage.Waiting || string(task.Payload) != `{"user":7}` {
			t.Errorf("the edited task: %s %s, %v", task.State, task.Payload, err)
		}
	})
}

func TestRolesPermitActions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		forms := map[string][]string{
			"requeue": {"do", "requeue", "ref", "mail/x"}, "cancel": {"do", "cancel", "ref", "mail/x"},
			"pause": {"do", "pause", "queue", "mail"}, "resume": {"do", "resume", "queue", "mail"},
			"run":             {"do", "run", "ref", "mail/cursor.daily_digest"},
			"pause-schedule":  {"do", "pause-schedule", "ref", "mail/cursor.daily_digest"},
			"resume-schedule": {"do", "resume-schedule", "ref", "mail/cursor.daily_digest"},
			"delete":          {"do", "delete", "ref", "mail/x"}, "remove": {"do", "remove", "queue", "images"},
			"unschedule": {"do", "unschedule", "ref", "mail/cursor.daily_digest"},
		}
		alter := []string{"delete", "remove", "unschedule"}
		for _, role := range access.Roles() {
			s := open(t, "night", as(role))
			for do, form := range forms {
				code, _ := s.post("/action", form...)
				may := role == access.Admin || role == access.Operator && !slices.Contains(alter, do)
				if got := code != http.StatusForbidden; got != may {
					t.Errorf("%s as %s: %d, permitted %t, want %t", do, role, code, got, may)
				}
			}
			if code, _ := s.post("/edit", "ref", s.list("mail", storage.Dead)[0]); (code != http.StatusForbidden) != (role == access.Admin) {
				t.Errorf("edit as %s: %d", role, code)
			}
		}
		cfg := as(access.Admin)
		cfg.ReadOnly = true
		s := open(t, "night", cfg)
		for do, form := range forms {
			if code, _ := s.post("/action", form...); code != http.StatusForbidden {
				t.Errorf("%s, read-only: %d, want 403", do, code)
			}
		}
		if page := s.get("/r/" + s.list("mail", storage.Dead)[0]); strings.Contains(page, "/action?") {
			t.Error("a read-only dashboard offers actions")
		}
	})
}

func TestSearchFindsATask(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		ref := s.list("mail", storage.Dead)[0]
		_, id, _ := strings.Cut(ref, "/")
		for _, text := range []string{
			ref, id, "  " + id + " ", `time=2026-11-23T02:14:07Z level=ERROR msg="a job failed" task=` + ref + ` kind=send_invoice`,
			`{"level":"error","id":"` + id + `","retries":3}`,
		} {
			w := s.do(request(http.MethodGet, "/search?q="+url.QueryEscape(text), ""))
			if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != "/r/"+ref {
				t.Errorf("search for %q: %d to %q, want %q", text, w.Code, got, "/r/"+ref)
			}
		}
		s.shows("/search?q=mail", "/queues/mail", "Scan live tasks for this text")
		s.shows("/search?q=digest", "daily_digest", "send_digest")
		s.shows("/suggest?q=app-2", "app-2.internal:4101:", "runner")
		s.shows("/suggest?q=refused", "connection refused", "212 dead", "/dead?cause=", `"what":"scan"`)
		s.shows("/suggest?q=se", "send_invoice", "kind")
		s.shows("/suggest?q="+id, `"what":"task"`, "/r/"+ref)
		s.shows("/search?q=nothing+of+the+kind", "No queue, kind, cause, schedule, runner or task with this name.")
	})
}

func TestASuggestionAsksTheStorageLittle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "million", 10_000)
		if err != nil {
			t.Fatal(err)
		}
		store := &counting{Storage: sc.Store, calls: map[string]int{}}
		h, err := dashboard.Handler(store, as(access.Admin))
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Repeat(`{"id":"06gd2nq1c5v8k3m0a1b2c3d4e5","queue":"a","task":"b1","at":"2026-11-23T02:14:07Z","trace":"4bf92f3577b34da6"} `, 20)
		for _, text := range []string{"t", "tenant", "06gd2nq1c5v8k3m0a1b2c3d4e5", line} {
			store.taken()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(http.MethodGet, "/suggest?q="+url.QueryEscape(text), ""))
			var hits []struct{ What, Label, URL string }
			if err := json.Unmarshal(w.Body.Bytes(), &hits); err != nil || len(hits) > 25 {
				t.Errorf("%.20q: %d hits, %v", text, len(hits), err)
			}
			if reads := store.taken()["Task"]; reads > 140 {
				t.Errorf("%.20q: %d tasks are read for a keystroke, want at most 140", text, reads)
			}
		}
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

// TestAnActionWhoseMatchesLieFarBehindIsOffered checks an action whose first match is not among the 20,000
// tasks that a dialog searches. The action itself searches all tasks.
func TestAnActionWhoseMatchesLieFarBehindIsOffered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "empty", dashboard.Config{})
		for _, kind := range []string{"other", "needle"} {
			n := map[string]int{"other": 22_000, "needle": 1}[kind]
			if err := s.Add(t.Context(), "mail", kind, n, nil); err != nil {
				t.Fatal(err)
			}
		}
		const far = "No task matches among the first 20,000. The action searches all tasks."
		s.shows("/action?do=cancel&all=1&filter=kind:needle", "Cancel all tasks that match?", far, `<button class="primary">Cancel tasks</button>`)
		s.shows("/action?do=delete&all=1&filter=kind:needle", "Type all to confirm", far, `<button class="danger">Delete</button>`, "data-countdown")
		if code, page := s.post("/action", "do", "cancel", "all", "1", "filter", "kind:needle", "count", "all", "back", "/tasks"); code != 200 ||
			!strings.Contains(page, "1 task cancelled.") {
			t.Errorf("cancel what lies far behind: %d", code)
		}
		if page := s.get("/action?do=requeue&all=1&queue=mail&state=dead&filter=kind:needle"); strings.Contains(page, `<button class="primary">Requeue`) {
			t.Error("an action to nothing is offered")
		}
	})
}

// TestActionsThatNoTaskPermitsAreOff checks the buttons above lists of tasks in each state.
func TestActionsThatNoTaskPermitsAreOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		for path, want := range map[string]string{
			"/tasks":                               "",
			"/tasks?state=waiting":                 "",
			"/tasks?state=running":                 "requeue delete",
			"/tasks?state=completed":               "cancel",
			"/tasks?filter=state:dead+kind:send_*": "cancel",
		} {
			var off []string
			for _, button := range strings.Split(s.get(path), `<button class="small" name="do" value="`)[1:] {
				if tag, _, _ := strings.Cut(button, ">"); strings.Contains(tag, " disabled data-off") {
					verb, _, _ := strings.Cut(tag, `"`)
					off = append(off, verb)
				}
			}
			if got := strings.Join(off, " "); got != want {
				t.Errorf("GET %s: the actions %q are off, want %q", path, got, want)
			}
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
