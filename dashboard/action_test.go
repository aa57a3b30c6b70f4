package dashboard_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

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

// TestARequeueOfManyTasksHasAModerateRate checks that the dialog proposes a rate if the cause of the failures
// might not bear all of the tasks at once, and that its command has the same rate.
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
			"limit": {"do", "limit", "queue", "mail", "concurrency", "5"}, "clear-limit": {"do", "clear-limit", "queue", "mail"},
			"pause-partition":  {"do", "pause-partition", "queue", "mail", "partition", "acme"},
			"resume-partition": {"do", "resume-partition", "queue", "mail", "partition", "acme"},
			"run":              {"do", "run", "ref", "mail/cursor.daily_digest"},
			"pause-schedule":   {"do", "pause-schedule", "ref", "mail/cursor.daily_digest"},
			"resume-schedule":  {"do", "resume-schedule", "ref", "mail/cursor.daily_digest"},
			"delete":           {"do", "delete", "ref", "mail/x"}, "remove": {"do", "remove", "queue", "images"},
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
