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
	open(t, "empty", as(access.Admin)).shows("/audit", "Nobody has done anything here yet.")
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
	acts = slices.DeleteFunc(acts, func(e ledger.Entry) bool { return e.Who == "bo" }) // of the scene itself
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
	if err != nil || len(acts) != 1 { // that of the scene itself
		t.Errorf("%d acts are in the audit, %v; want one", len(acts), err)
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
