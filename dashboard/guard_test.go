package dashboard_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// TestABareProxyIsSeenByWhatItPassesOn checks that a proxy on this machine that adds no header cannot serve
// anybody without a login.
func TestABareProxyIsSeenByWhatItPassesOn(t *testing.T) {
	s := open(t, "calm", dashboard.Config{})
	for name, alter := range map[string]func(*http.Request){
		"an origin":   func(r *http.Request) { r.Header.Set("Origin", "https://jobs.example.com") },
		"no origin":   func(r *http.Request) { r.Header.Set("Origin", "null") },
		"a referer":   func(r *http.Request) { r.Header.Set("Referer", "https://jobs.example.com/queues") },
		"an old HTTP": func(r *http.Request) { r.Proto, r.ProtoMinor = "HTTP/1.0", 0 },
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			path := map[string]string{http.MethodGet: "/", http.MethodPost: "/act"}[method]
			r := request(method, path, "do=pause&queue=mail")
			r.Host = "127.0.0.1:8383"
			alter(r)
			if w := s.do(r); w.Code != http.StatusForbidden {
				t.Errorf("%s with %s: %d, want 403", method, name, w.Code)
			}
		}
	}
	r := request(http.MethodPost, "/act", "do=pause&queue=mail")
	r.Header.Set("Origin", "http://localhost:8080")
	r.Header.Set("Referer", "http://localhost:8080/queues")
	if w := s.do(r); w.Code != http.StatusSeeOther {
		t.Errorf("from this machine: %d, want 303", w.Code)
	}
}

// TestMidgesOwnQueuesAreNotActedUpon checks that nobody can change the audit through the dashboard, not even
// an admin.
func TestMidgesOwnQueuesAreNotActedUpon(t *testing.T) {
	s := open(t, "night", as(access.Admin))
	ref := s.list(ledger.AuditQueue, storage.Scheduled)[0]
	for want, forms := range map[int][][]string{
		http.StatusBadRequest: {
			{"/edit", "ref", ref, "version", "1", "params", "{}"},
			{"/act", "do", "delete", "ref", ref},
			{"/act", "do", "cancel", "ref", ref},
		},
		http.StatusNotFound: {
			{"/act", "do", "pause", "queue", ledger.AuditQueue},
			{"/act", "do", "resume", "queue", ledger.AuditQueue},
			{"/act", "do", "remove", "queue", ledger.AuditQueue},
			{"/act", "do", "pause", "queue", "no_such_queue"},
			{"/act", "do", "resume", "queue", "no_such_queue"},
		},
	} {
		for _, form := range forms {
			if code, _ := s.post(form[0], form[1:]...); code != want {
				t.Errorf("POST %v: %d, want %d", form, code, want)
			}
		}
	}
	if code, page := s.post("/act", "do", "delete", "all", "1", "queue", ledger.AuditQueue, "state", "scheduled",
		"count", "all", "typed", "all"); code != http.StatusNotFound || !strings.Contains(page, "does not show the queues of midge") {
		t.Errorf("delete all of the audit: %d, want 404", code)
	}
	if w := s.do(request(http.MethodGet, "/edit?ref="+ref, "")); w.Code != http.StatusBadRequest {
		t.Errorf("the form for a record of the audit: %d, want 400", w.Code)
	}
	if got := s.list(ledger.AuditQueue, storage.Scheduled); got[len(got)-1] != ref {
		t.Errorf("the first record of the audit is gone: %v", got)
	}
	s.lacks("no_such_queue")
}

// TestADeleteIsOfWhatWasConfirmed checks that the server requires the count of the dialog, and deletes no
// more tasks than that.
func TestADeleteIsOfWhatWasConfirmed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		before := len(s.list("payments", storage.Waiting))
		if before <= 1000 {
			t.Fatalf("%d tasks wait in payments, want more than 1,000", before)
		}
		all := []string{"do", "delete", "all", "1", "queue", "payments", "state", "waiting"}
		page := s.get("/act?do=delete&all=1&queue=payments&state=waiting")
		count := between(t, page, `name="count" value="`, `">`)
		for _, more := range [][]string{
			nil,
			{"count", "x"},
			{"count", "0"},
			{"count", count},
			{"count", count, "typed", "12"},
			{"count", "all"},
			{"typed", count},
		} {
			if code, _ := s.post("/act", append(all, more...)...); code != http.StatusBadRequest {
				t.Errorf("delete with %v: %d, want 400", more, code)
			}
		}
		if got := len(s.list("payments", storage.Waiting)); got != before {
			t.Fatalf("%d tasks wait after what was refused, want %d", got, before)
		}
		if code, _ := s.post("/act", append(all, "count", "7")...); code != http.StatusOK {
			t.Errorf("delete 7: %d", code)
		}
		if got := len(s.list("payments", storage.Waiting)); got != before-7 {
			t.Errorf("%d tasks wait after 7 were deleted, want %d", got, before-7)
		}
		if code, _ := s.post("/act", append(all, "count", count, "typed", count)...); code != http.StatusOK {
			t.Errorf("delete all: %d", code)
		}
		if got := len(s.list("payments", storage.Waiting)); got != 0 {
			t.Errorf("%d tasks wait after all were deleted, want none", got)
		}
	})
}

// lacks fails the test if a queue exists.
func (s *site) lacks(queue string) {
	s.t.Helper()
	page, err := s.Store.Queues(s.t.Context(), storage.QueuesQuery{Prefix: queue})
	if err != nil || len(page.Names) > 0 {
		s.t.Errorf("there are the queues %v, %v; want none", page.Names, err)
	}
}

// leaver is a storage that makes the viewer leave while a queue is removed.
type leaver struct {
	storage.Storage

	leave context.CancelFunc
}

func (l *leaver) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if slices.ContainsFunc(txs, func(tx storage.Tx) bool { return len(tx.Deletes) > 0 }) {
		l.leave()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return l.Storage.Apply(ctx, call, txs...)
}

func TestAQueueIsRemovedAlsoWhereItsViewerLeaves(t *testing.T) {
	s := open(t, "night", dashboard.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	h, err := dashboard.Handler(&leaver{s.Store, cancel}, as(access.Admin))
	if err != nil {
		t.Fatal(err)
	}
	s.Dashboard = h
	s.do(request(http.MethodPost, "/act", "do=remove&queue=payments&typed=payments").WithContext(ctx))
	s.lacks("payments")
	acts, _, err := ledger.NewAudit(s.Store).List(t.Context(), "", 1)
	if err != nil || len(acts) != 1 || acts[0].Act != "remove" || acts[0].Outcome != ledger.Done || acts[0].Count != 1 {
		t.Errorf("the audit: %+v, %v", acts, err)
	}
}

// TestCookiesAreSecureBehindAProxyThatEndsTLS checks that cookies are secure if the browser's Origin says
// that it uses TLS.
func TestCookiesAreSecureBehindAProxyThatEndsTLS(t *testing.T) {
	s := open(t, "calm", dashboard.Config{Users: knowing(t, "ann", "correct horse")})
	for origin, want := range map[string]bool{"https://jobs.example.com": true, "http://jobs.example.com": false} {
		r := request(http.MethodPost, "/login", "name=ann&password=correct+horse")
		r.Host = "jobs.example.com"
		r.Header.Set("Origin", origin)
		cookies := s.do(r).Result().Cookies()
		if len(cookies) != 1 || cookies[0].Secure != want {
			t.Errorf("after a login from %s: %v, want Secure %t", origin, cookies, want)
		}
	}
}

// TestOnlyWhoMayEditSendsLongForms checks that a payload's room is given to nobody else: not to strangers at
// the login, not to viewers, and not on a read-only dashboard.
func TestOnlyWhoMayEditSendsLongForms(t *testing.T) {
	users := knowing(t, "a", "correct horse")
	readOnly := as(access.Admin)
	readOnly.ReadOnly = true
	for _, c := range []struct {
		cfg  dashboard.Config
		path string
		size int
		want int
	}{
		{dashboard.Config{Users: users}, "/login", 8 << 10, http.StatusUnauthorized},
		{dashboard.Config{Users: users}, "/login", 32 << 10, http.StatusRequestEntityTooLarge},
		{as(access.Viewer), "/edit", 5 << 20, http.StatusRequestEntityTooLarge},
		{as(access.Viewer), "/queues/mail/add", 5 << 20, http.StatusRequestEntityTooLarge},
		{as(access.Operator), "/edit", 5 << 20, http.StatusRequestEntityTooLarge},
		{readOnly, "/edit", 5 << 20, http.StatusRequestEntityTooLarge},
		{as(access.Admin), "/act", 5 << 20, http.StatusRequestEntityTooLarge},
		{as(access.Admin), "/edit", 5 << 20, http.StatusBadRequest}, // no ref
	} {
		s := open(t, "night", c.cfg)
		if code, page := s.post(c.path, "name", "a", "password", "b", "params", strings.Repeat("a", c.size)); code != c.want {
			t.Errorf("%d bytes to %s: %d, want %d: %.200s", c.size, c.path, code, c.want, page)
		}
	}
}
