package dashboard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

func TestEachActionIsInTheAudit(t *testing.T) {
	s := open(t, "night", as(access.Admin))
	open(t, "empty", as(access.Admin)).shows("/audit", "No actions yet.")
	dead := s.list("mail", storage.Dead)
	forms := [][]string{
		{"do", "requeue", "ref", dead[0]},
		{"do", "delete", "ref", dead[1]},
		{"do", "cancel", "ref", dead[2]},
		{"do", "requeue", "all", "1", "queue", "mail", "state", "dead", "filter", "kind:send_digest", "count", "32"},
		{"do", "pause", "queue", "mail", "for", "1h"},
		{"do", "resume", "queue", "mail"},
		{"do", "remove", "queue", "images"},
		{"do", "run", "ref", "mail/cursor.daily_digest"},
		{"do", "pause-schedule", "ref", "mail/cursor.daily_digest"},
		{"do", "resume-schedule", "ref", "mail/cursor.daily_digest"},
		{"do", "unschedule", "ref", "mail/cursor.daily_digest"},
		{"do", "run", "ref", "mail/cursor.none"},
	}
	for _, form := range forms {
		s.post("/action", form...)
	}
	s.post("/edit", "ref", dead[3], "version", "1", "params", "{}")
	actions, _, err := ledger.NewAudit(s.Store).List(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	actions = slices.DeleteFunc(actions, func(e ledger.Entry) bool { return e.Who == "bo" }) // the actions of the scene
	if want := len(forms) - 1 + 1; len(actions) != want {                                    // without the schedule that does not exist, with the edit
		t.Errorf("%d actions are in the audit, want %d", len(actions), want)
	}
	for i, action := range actions { // the newest first
		want := ledger.Done
		if i == 0 {
			want = ledger.Failed
		}
		if action.Who != "ann" || action.Role != "admin" || action.Via != "dashboard" || action.Outcome != want {
			t.Errorf("action %d in the audit: %+v, want %s by ann", i, action, want)
		}
	}
	s.shows("/audit", "ann", "queue:mail state:dead kind:send_digest", dead[0], "for 1h", "failed")
	if page := s.get("/queues"); strings.Contains(page, "midge.audit") {
		t.Error("the list of queues shows midge's own")
	}
}

// newest returns the newest action in the audit.
func (s *site) newest() ledger.Entry {
	s.t.Helper()
	actions, _, err := ledger.NewAudit(s.Store).List(s.t.Context(), "", 1)
	if err != nil {
		s.t.Fatal(err)
	}
	return actions[0]
}

// TestNoTaskHidesInTheAudit checks that the record of an action has each task that the action changed, and
// the queue of these tasks, whatever else the form names.
func TestNoTaskHidesInTheAudit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		for _, c := range []struct {
			do   string
			from storage.State
		}{{"requeue", storage.Dead}, {"cancel", storage.Waiting}, {"delete", storage.Dead}} {
			form, want := []string{"do", c.do, "queue", "harmless"}, s.list("mail", c.from)[:2]
			for i := range 198 {
				form = append(form, "ref", fmt.Sprint("pay/none", i))
			}
			s.post("/action", append(form, "ref", want[0], "ref", want[1])...)
			if e := s.newest(); e.Action != c.do || !slices.Equal(e.IDs, want) || e.Queue != "mail" || e.Count != 2 {
				t.Errorf("%s of %v behind 198 others: the audit has %d tasks of %q, count %d: %.200v", c.do, want,
					len(e.IDs), e.Queue, e.Count, e.IDs)
			}
			time.Sleep(time.Second) // virtual: the newest record is listed first
		}
		dead := s.list("mail", storage.Dead)
		s.post("/action", "do", "requeue", "all", "1", "queue", "mail", "state", "dead", "count", "150", "ref", "pay/none")
		if e := s.newest(); e.Filter != "queue:mail state:dead" || e.Count != 150 || len(e.IDs) != 100 ||
			!slices.Contains(dead, e.IDs[0]) {
			t.Errorf("a requeue by a filter: the audit has %+v, want its filter, its count and its first 100 tasks", e)
		}
	})
}

// TestNobodyForgesARecord sends each form with each parameter that its action does not use, in the body and
// in the address, and forms with bad parameters.
func TestNobodyForgesARecord(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const forged = "FORGED"
		s := open(t, "night", as(access.Admin))
		dead := s.list("mail", storage.Dead)
		names := []string{
			"for", "filter", "queue", "rate", "count", "typed", "fresh", "state", "note", "who", "role", "requeue", "id", "form",
			"partition",
		}
		for _, form := range [][]string{
			{"/action", "do", "requeue", "ref", dead[0]},
			{"/action", "do", "delete", "ref", dead[1]},
			{"/action", "do", "cancel", "ref", dead[2]},
			{"/action", "do", "pause", "queue", "mail"},
			{"/action", "do", "resume", "queue", "mail"},
			{"/action", "do", "pause-partition", "queue", "mail", "partition", "acme"},
			{"/action", "do", "resume-partition", "queue", "mail", "partition", "acme"},
			{"/action", "do", "limit", "queue", "mail", "concurrency", "5"},
			{"/action", "do", "clear-limit", "queue", "mail"},
			{"/action", "do", "run", "ref", "mail/cursor.daily_digest"},
			{"/action", "do", "unschedule", "ref", "mail/cursor.daily_digest"},
			{"/action", "do", "remove", "queue", "images"},
			{"/edit", "ref", dead[3], "version", "1", "params", "{}"},
			{"/queues/mail/add", "kind", "send_mail", "params", "{}", "id", "a1", "fresh", "a2"},
		} {
			address, form := form[0], form[1:len(form):len(form)]
			s.post(address, append(form, "all", "1", "filter", "kind:"+forged, "state", "dead")...)
			query := "?all=1&do=delete&kind=" + forged + "&ref=mail/" + forged
			for _, name := range names {
				query += "&" + name + "=" + forged
				if !slices.Contains(form, name) {
					s.post(address, append(form, name, forged)...)
				}
			}
			s.post(address+query, form...)
		}
		seen := map[string]bool{}
		for record, err := range storage.Each(t.Context(), s.Store, ledger.AuditQueue, storage.Scheduled) {
			var e ledger.Entry
			if err == nil {
				err = json.Unmarshal(record.Payload, &e)
			}
			if seen[e.Action] = true; err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(record.Payload), forged) {
				t.Errorf("a parameter that the action does not use is in the audit: %s", record.Payload)
			}
		}
		for _, action := range []string{
			"requeue", "delete", "pause", "resume", "pause-partition", "resume-partition", "limit", "clear-limit", "run", "unschedule", "remove", "edit", "enqueue",
		} {
			if !seen[action] {
				t.Errorf("the action %s is not in the audit: the forms of this test do nothing", action)
			}
		}
	})
}

// TestTheAuditNamesWhoStoppedAnAction checks an action that another person stops, and an action that was done
// before that.
func TestTheAuditNamesWhoStoppedAnAction(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg, who := as(access.Admin), "ann"
		cfg.Who = func(*http.Request) (access.User, bool) { return access.User{Name: who, Role: access.Admin}, true }
		s := open(t, "night", cfg)
		for _, late := range []bool{false, true} {
			who = "ann"
			_, page := s.post("/action", "do", "requeue", "all", "1", "queue", "mail", "state", "dead", "count", "36", "rate", "10")
			action := "/actions/" + between(t, page, `action="/actions/`, `/stop"`)
			want, outcome := "eve", ledger.Failed
			if late {
				time.Sleep(10 * time.Second) // virtual: the action ends
				synctest.Wait()
				want, outcome = "", ledger.Done
			}
			who = "eve"
			s.post(action + "/stop")
			if e := s.newest(); e.Who != "ann" || e.Stopped != want || e.Outcome != outcome || len(e.IDs) != e.Count {
				t.Errorf("after a stop, too late %t, the audit has %+v, want it stopped by %q", late, e, want)
			}
		}
		s.shows("/audit", "stopped by eve")
	})
}

// TestRefusedActionsLeaveTheAuditAlone checks that actions which are refused for their parameters write no
// record.
func TestRefusedActionsLeaveTheAuditAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		before := len(s.list(ledger.AuditQueue, storage.Scheduled))
		for _, form := range [][]string{
			{"do", "requeue"},
			{"do", "requeue", "ref", "mail/a/b"},
			{"do", "requeue", "ref", "mail/a", "rate", "-1"},
			{"do", "delete", "all", "1"},
			{"do", "delete", "all", "1", "count", "2000", "typed", "1"},
			{"do", "requeue", "all", "1", "filter", `kind:"`, "count", "1"},
			{"do", "requeue", "all", "1", "queue", ledger.AuditQueue, "count", "1"},
			{"do", "pause", "queue", "none"},
			{"do", "pause", "queue", "mail", "for", "90m"},
			{"do", "remove", "queue", "payments", "typed", "mail"},
			{"do", "run", "ref", "mail/cursor.none"},
			{"do", "unschedule", "ref", "mail/none"},
			{"do", "run", "ref", "mail/cursor.daily_digest", "fresh", "a/b"},
		} {
			if code, _ := s.post("/action", form...); code < 400 {
				t.Errorf("%v: %d, want it refused", form, code)
			}
		}
		if after := len(s.list(ledger.AuditQueue, storage.Scheduled)); after != before {
			t.Errorf("actions that were refused wrote %d records", after-before)
		}
	})
}

func TestWhatIsRefusedIsNotBegun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Viewer))
		s.post("/action", "do", "pause", "queue", "mail")
		actions, _, err := ledger.NewAudit(s.Store).List(t.Context(), "", 0)
		if err != nil || len(actions) != 1 { // the action of the scene
			t.Errorf("%d actions are in the audit, %v; want one", len(actions), err)
		}
	})
}

// TestTheAuditShowsNoParametersToAViewer checks that the audit hides filters on parameters, which show the
// searches of others, even if a filter is misspelt.
func TestTheAuditShowsNoParametersToAViewer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg, role := as(access.Operator), access.Operator
		cfg.Who = func(*http.Request) (access.User, bool) { return access.User{Name: "ann", Role: role}, true }
		s := open(t, "night", cfg)
		for _, text := range []string{"kind:open*", "params.iban:DE75", "-header.tenant:DE75 kind:x", `params.iban:"DE75`} {
			s.post("/action", "do", "requeue", "all", "1", "filter", text, "count", "1")
		}
		s.shows("/audit", "kind:open*", "params.iban:DE75", "-header.tenant:DE75")
		role = access.Viewer
		s.shows("/audit", "kind:open*", "***")
		if page := s.get("/audit"); strings.Contains(page, "DE75") {
			t.Error("the audit shows parameters to a viewer")
		}
		redacted, err := access.Redact("params.iban")
		if err != nil {
			t.Fatal(err)
		}
		h, err := dashboard.Handler(s.Store, admitting(dashboard.Config{Redact: redacted}))
		if err != nil {
			t.Fatal(err)
		}
		s.Dashboard = h
		s.shows("/audit", "kind:open*", "-header.tenant:DE75")
		if page := s.get("/audit"); strings.Contains(page, "params.iban:") {
			t.Error("the audit shows a filter by a field that is hidden")
		}
	})
}

// TestTheRecordsOfTheAuditAreNoTasks checks that no page shows a record of the audit as a task, because only
// the page of the audit hides data that a viewer may not see.
func TestTheRecordsOfTheAuditAreNoTasks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg := as(access.Operator)
		var err error
		if cfg.Redact, err = access.Redact("params.card.*"); err != nil {
			t.Fatal(err)
		}
		s := open(t, "night", cfg)
		const secret = "4111222233334444"
		action, err := ledger.NewAudit(s.Store).Begin(t.Context(), ledger.Entry{Action: "requeue", Filter: "params.card.number:" + secret})
		if err == nil {
			err = action.End(t.Context(), ledger.Ending{Count: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
		paths := []string{
			"/tasks?queue=midge.audit&state=scheduled", "/action?do=requeue&all=1&filter=queue:midge.audit+state:scheduled",
		}
		for _, ref := range s.list(ledger.AuditQueue, storage.Scheduled) {
			paths = append(paths, "/r/"+ref, "/r/"+ref+"/params")
		}
		for _, path := range paths {
			w := s.do(request(http.MethodGet, path, ""))
			if w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), secret) {
				t.Errorf("GET %s: %d, want 404 without what somebody searched for", path, w.Code)
			}
		}
		for _, filter := range []string{"queue:midge.audit", "queue:midge.*", "kind:x,y+queue:mail,midge.audit"} {
			path := "/tasks?filter=" + filter + "+state:scheduled"
			if page := s.get(path); strings.Contains(page, secret) || !strings.Contains(page, "does not show the queues of midge") {
				t.Errorf("GET %s shows records of the audit", path)
			}
		}
	})
}

// TestTheErrorOfAnEditIsHidden checks that a viewer does not read parameters in the error of an edit, which
// may repeat a value.
func TestTheErrorOfAnEditIsHidden(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg, role := as(access.Admin), access.Admin
		cfg.Who = func(*http.Request) (access.User, bool) { return access.User{Name: "ann", Role: role}, true }
		var err error
		if cfg.Redact, err = access.Redact(); err != nil { // as midge serve does without --redact
			t.Fatal(err)
		}
		s := open(t, "night", cfg)
		action, err := ledger.NewAudit(s.Store).Begin(t.Context(), ledger.Entry{Action: "edit", Queue: "mail"})
		if err == nil {
			err = action.End(t.Context(), ledger.Ending{Err: storage.Invalid("parameter card", "SECRET-4111", "a number")})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.shows("/audit", "SECRET-4111")
		role = access.Viewer
		if page := s.get("/audit"); strings.Contains(page, "SECRET") {
			t.Error("the audit shows the error of an edit to a viewer")
		}
	})
}

// TestTheAuditShowsNoAddressToAViewer checks the error of an action that the storage did not answer.
func TestTheAuditShowsNoAddressToAViewer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg, role := as(access.Operator), access.Operator
		cfg.Who = func(*http.Request) (access.User, bool) { return access.User{Name: "ann", Role: role}, true }
		s := open(t, "night", cfg)
		action, err := ledger.NewAudit(s.Store).Begin(t.Context(), ledger.Entry{Action: "pause", Queue: "mail"})
		if err == nil {
			err = action.End(t.Context(), ledger.Ending{Err: errors.New("dial tcp 10.1.2.3:6379: connection refused")})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.shows("/audit", "10.1.2.3")
		role = access.Viewer
		if page := s.get("/audit"); strings.Contains(page, "10.1.2.3") {
			t.Error("the audit shows the address of a server to a viewer")
		}
	})
}

func TestTheHistoryIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{})
		open(t, "empty", dashboard.Config{}).shows("/metrics", "No history of this time yet.")
		s.shows("/metrics", "images", "webhooks")
		for _, span := range []string{"1h", "6h", "24h", "7d", "30d", "90d"} {
			s.shows("/metrics?span="+span, "Throughput", span)
		}
		for _, path := range []string{"/metrics?span=2h", "/metrics?queue=a/b"} {
			if w := s.do(request(http.MethodGet, path, "")); w.Code != http.StatusBadRequest {
				t.Errorf("GET %s: %d, want 400", path, w.Code)
			}
		}
	})
}
