package dashboard_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

func TestEachActIsInTheAudit(t *testing.T) {
	s := open(t, "night", as(access.Admin))
	open(t, "empty", as(access.Admin)).shows("/audit", "There are no acts yet.")
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
		{"do", "unschedule", "ref", "mail/cursor.daily_digest"},
		{"do", "run", "ref", "mail/cursor.none"},
	}
	for _, form := range forms {
		s.post("/act", form...)
	}
	s.post("/edit", "ref", dead[3], "version", "1", "params", "{}")
	acts, _, err := ledger.NewAudit(s.Store).List(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	acts = slices.DeleteFunc(acts, func(e ledger.Entry) bool { return e.Who == "bo" }) // the acts of the scene
	if len(acts) != len(forms)+1 {
		t.Errorf("%d acts are in the audit, want %d", len(acts), len(forms)+1)
	}
	for i, act := range acts { // the newest first
		want := ledger.Done
		if i < 2 {
			want = ledger.Failed
		}
		if act.Who != "ann" || act.Role != "admin" || act.Via != "dashboard" || act.Outcome != want {
			t.Errorf("act %d in the audit: %+v, want %s by ann", i, act, want)
		}
	}
	s.shows("/audit", "ann", "queue:mail state:dead kind:send_digest", dead[0], "for 1h", "failed")
	if page := s.get("/queues"); strings.Contains(page, "midge.audit") {
		t.Error("the list of queues shows midge's own")
	}
}

func TestWhatIsRefusedIsNotBegun(t *testing.T) {
	s := open(t, "night", as(access.Viewer))
	s.post("/act", "do", "pause", "queue", "mail")
	acts, _, err := ledger.NewAudit(s.Store).List(t.Context(), "", 0)
	if err != nil || len(acts) != 1 { // the act of the scene
		t.Errorf("%d acts are in the audit, %v; want one", len(acts), err)
	}
}

// TestTheAuditShowsNoParametersToAViewer checks that the audit hides filters on parameters, which show for
// what others searched, even if a filter is misspelt.
func TestTheAuditShowsNoParametersToAViewer(t *testing.T) {
	cfg, role := as(access.Operator), access.Operator
	cfg.Who = func(*http.Request) (access.User, bool) { return access.User{Name: "ann", Role: role}, true }
	s := open(t, "night", cfg)
	for _, text := range []string{"kind:open*", "params.iban:DE75", "-header.tenant:DE75 kind:x", `params.iban:"DE75`} {
		s.post("/act", "do", "requeue", "all", "1", "filter", text, "count", "1")
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
	h, err := dashboard.Handler(s.Store, dashboard.Config{Redact: redacted})
	if err != nil {
		t.Fatal(err)
	}
	s.Dashboard = h
	s.shows("/audit", "kind:open*", "-header.tenant:DE75")
	if page := s.get("/audit"); strings.Contains(page, "params.iban:") {
		t.Error("the audit shows a filter by a field that is hidden")
	}
}

// TestTheRecordsOfTheAuditAreNoTasks checks that no page shows a record of the audit as a task, because only
// the page of the audit hides what a viewer may not see.
func TestTheRecordsOfTheAuditAreNoTasks(t *testing.T) {
	cfg := as(access.Operator)
	var err error
	if cfg.Redact, err = access.Redact("params.card.*"); err != nil {
		t.Fatal(err)
	}
	s := open(t, "night", cfg)
	const secret = "4111222233334444"
	act, err := ledger.NewAudit(s.Store).Begin(t.Context(), ledger.Entry{Act: "requeue", Filter: "params.card.number:" + secret})
	if err == nil {
		err = act.End(t.Context(), 1, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{
		"/tasks?queue=midge.audit&state=scheduled", "/act?do=requeue&all=1&filter=queue:midge.audit+state:scheduled",
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
}

// TestTheErrorOfAnEditIsHidden checks that a viewer does not read parameters in the error of an edit, which
// may repeat a value.
func TestTheErrorOfAnEditIsHidden(t *testing.T) {
	cfg, role := as(access.Admin), access.Admin
	cfg.Who = func(*http.Request) (access.User, bool) { return access.User{Name: "ann", Role: role}, true }
	s := open(t, "night", cfg)
	act, err := ledger.NewAudit(s.Store).Begin(t.Context(), ledger.Entry{Act: "edit", Queue: "mail"})
	if err == nil {
		err = act.End(t.Context(), 0, storage.Invalid("parameter card", "SECRET-4111", "a number"))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.shows("/audit", "SECRET-4111")
	role = access.Viewer
	if page := s.get("/audit"); strings.Contains(page, "SECRET") {
		t.Error("the audit shows the error of an edit to a viewer")
	}
}

func TestTheHistoryIsShown(t *testing.T) {
	s := open(t, "calm", dashboard.Config{})
	open(t, "empty", dashboard.Config{}).shows("/metrics", "There is no history of this time yet.")
	s.shows("/metrics", "images", "webhooks")
	for _, span := range []string{"1h", "6h", "24h", "7d", "30d", "90d"} {
		s.shows("/metrics?span="+span, "Throughput", span)
	}
	for _, path := range []string{"/metrics?span=2h", "/metrics?queue=a/b"} {
		if w := s.do(request(http.MethodGet, path, "")); w.Code != http.StatusBadRequest {
			t.Errorf("GET %s: %d, want 400", path, w.Code)
		}
	}
}
