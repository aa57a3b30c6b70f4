package dashboard_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// TestAnAddressAdmitsNobody checks that a dashboard without a login admits only a client that knows its
// token: not each user of this machine, nor a client behind a proxy on it that adds no header and rewrites
// Host.
func TestAnAddressAdmitsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		token := rand.Text()
		s := open(t, "calm", dashboard.Config{Token: token, Base: "/midge"})
		forged := open(t, "calm", dashboard.Config{Token: rand.Text()}).entered("/")
		forged.Name = s.entered("/midge/").Name
		for name, alter := range map[string]func(*http.Request){
			"as a browser":             func(*http.Request) {},
			"from elsewhere":           func(r *http.Request) { r.RemoteAddr = "192.0.2.7:4000" },
			"by another name":          func(r *http.Request) { r.Host = "evil.example" },
			"passed on by a proxy":     func(r *http.Request) { r.Header.Set("X-Forwarded-For", "127.0.0.1") },
			"without an address":       func(r *http.Request) { r.RemoteAddr = "@" },
			"by the session of others": func(r *http.Request) { r.AddCookie(forged) },
			"with a forged session":    func(r *http.Request) { r.Header.Set("Cookie", forged.Name+"=bG9jYWw.9999999999.AA") },
			"with a wrong token":       func(r *http.Request) { r.URL.RawQuery = "token=" + rand.Text() },
			"with the token elsewhere": func(r *http.Request) { r.URL.RawQuery = "token=" + token },
		} {
			for path, want := range map[string]int{
				"GET /midge/": http.StatusSeeOther, "GET /midge/events": http.StatusUnauthorized,
				"POST /midge/action": http.StatusUnauthorized,
			} {
				method, path, _ := strings.Cut(path, " ")
				r := request(method, path, "do=pause&queue=mail")
				r.Host = "127.0.0.1:8383"
				alter(r)
				if w := s.do(r); w.Code != want || strings.Contains(w.Body.String(), "mail") {
					t.Errorf("%s %s %s: %d, want %d and nothing of the storage", method, path, name, w.Code, want)
				}
			}
		}
		w := s.do(request(http.MethodGet, "/midge/login?token="+rand.Text(), ""))
		if w.Code != http.StatusUnauthorized || len(w.Result().Cookies()) > 0 || !strings.Contains(w.Body.String(), "The secret is wrong.") {
			t.Errorf("a wrong token: %d, %v", w.Code, w.Result().Cookies())
		}
		replica, err := dashboard.Handler(s.Store, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		r := request(http.MethodGet, "/midge/", "")
		r.RemoteAddr, r.Host = "192.0.2.7:4000", "jobs.example.com"
		r.AddCookie(s.entered("/midge/"))
		for name, h := range map[string]http.Handler{"the process": s, "a replica": replica} {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "local · admin") {
				t.Errorf("with the token, %s: %d, want 200", name, w.Code)
			}
		}
		w = s.do(request(http.MethodPost, "/midge/login", "back=/midge/queues&token="+token))
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/midge/queues" {
			t.Errorf("the token in the form: %d, want 303", w.Code)
		}
	})
}

// entered returns the cookie of a browser that has opened the address with the token, and checks that the
// browser then shows an address without it.
func (s *site) entered(path string) *http.Cookie {
	s.t.Helper()
	w := s.do(request(http.MethodGet, path+"login?token="+s.cfg.Token, ""))
	cookies := w.Result().Cookies()
	if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != path || len(cookies) == 0 {
		s.t.Fatalf("the address with the token: %d to %s, %v", w.Code, to, cookies)
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, s.cfg.Token) {
		s.t.Errorf("the cookie is %v", c)
	}
	return cookies[0]
}

// TestADashboardRequiresALogin checks that no configuration is open to everybody.
func TestADashboardRequiresALogin(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{})
		for _, token := range []string{"", "admin", strings.Repeat("x", 21)} {
			var invalid *storage.InvalidError
			if _, err := dashboard.Handler(s.Store, dashboard.Config{Token: token}); !errors.As(err, &invalid) {
				t.Errorf("with the token %q: got %v, want an InvalidError", token, err)
			}
		}
	})
}

// TestMidgesOwnQueuesAreNotActedUpon checks that nobody can change the audit through the dashboard, not even
// an admin.
func TestMidgesOwnQueuesAreNotActedUpon(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		ref := s.list(ledger.AuditQueue, storage.Scheduled)[0]
		for want, forms := range map[int][][]string{
			http.StatusBadRequest: {
				{"/edit", "ref", ref, "version", "1", "params", "{}"},
				{"/action", "do", "delete", "ref", ref},
				{"/action", "do", "cancel", "ref", ref},
			},
			http.StatusNotFound: {
				{"/action", "do", "pause", "queue", ledger.AuditQueue},
				{"/action", "do", "resume", "queue", ledger.AuditQueue},
				{"/action", "do", "remove", "queue", ledger.AuditQueue},
				{"/action", "do", "pause", "queue", "no_such_queue"},
				{"/action", "do", "resume", "queue", "no_such_queue"},
			},
		} {
			for _, form := range forms {
				if code, _ := s.post(form[0], form[1:]...); code != want {
					t.Errorf("POST %v: %d, want %d", form, code, want)
				}
			}
		}
		if code, page := s.post("/action", "do", "delete", "all", "1", "queue", ledger.AuditQueue, "state", "scheduled",
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
	})
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
		page := s.get("/action?do=delete&all=1&queue=payments&state=waiting")
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
			if code, _ := s.post("/action", append(all, more...)...); code != http.StatusBadRequest {
				t.Errorf("delete with %v: %d, want 400", more, code)
			}
		}
		if got := len(s.list("payments", storage.Waiting)); got != before {
			t.Fatalf("%d tasks wait after what was refused, want %d", got, before)
		}
		if code, _ := s.post("/action", append(all, "count", "7")...); code != http.StatusOK {
			t.Errorf("delete 7: %d", code)
		}
		if got := len(s.list("payments", storage.Waiting)); got != before-7 {
			t.Errorf("%d tasks wait after 7 were deleted, want %d", got, before-7)
		}
		if code, _ := s.post("/action", append(all, "count", count, "typed", count)...); code != http.StatusOK {
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
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		h, err := dashboard.Handler(&leaver{s.Store, cancel}, as(access.Admin))
		if err != nil {
			t.Fatal(err)
		}
		s.Dashboard = h
		s.do(request(http.MethodPost, "/action", "do=remove&queue=payments&typed=payments").WithContext(ctx))
		s.lacks("payments")
		actions, _, err := ledger.NewAudit(s.Store).List(t.Context(), "", 1)
		if err != nil || len(actions) != 1 || actions[0].Action != "remove" || actions[0].Outcome != ledger.Done || actions[0].Count != 1 {
			t.Errorf("the audit: %+v, %v", actions, err)
		}
	})
}

// TestCookiesAreSecureBehindAProxyThatEndsTLS checks that cookies are secure if the browser's Origin shows
// that it uses TLS.
func TestCookiesAreSecureBehindAProxyThatEndsTLS(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{Users: knowing(t, "ann", "correct horse")})
		for origin, want := range map[string]bool{"https://jobs.example.com": true, "http://jobs.example.com": false} {
			r := request(http.MethodPost, "/login", "name=ann&password=correct+horse")
			r.Host = "jobs.example.com"
			r.Header.Set("Origin", origin)
			cookies := s.do(r).Result().Cookies()
			if len(cookies) != 2 || cookies[0].Secure != want || cookies[1].Secure != want {
				t.Errorf("after a login from %s: %v, want Secure %t", origin, cookies, want)
			}
		}
	})
}

// TestOnlyWhoMayEditSendsLongForms checks that nobody else gets the room of a payload: not to strangers at
// the login, not to viewers, and not on a read-only dashboard.
func TestOnlyWhoMayEditSendsLongForms(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
			{as(access.Admin), "/action", 5 << 20, http.StatusRequestEntityTooLarge},
			{as(access.Admin), "/edit", 5 << 20, http.StatusBadRequest}, // no ref
		} {
			s := open(t, "night", c.cfg)
			if code, page := s.post(c.path, "name", "a", "password", "b", "params", strings.Repeat("a", c.size)); code != c.want {
				t.Errorf("%d bytes to %s: %d, want %d: %.200s", c.size, c.path, code, c.want, page)
			}
		}
	})
}

// TestTheClientIsNamedByTrustedProxiesAlone fails as often as an address may, and checks which addresses then
// count as the same client.
func TestTheClientIsNamedByTrustedProxiesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		peer, told string
		throttled  bool
	}{
		"the client itself":                  {"192.0.2.7:4000", "", true},
		"the client, by a proxy":             {"10.1.2.3:4000", "192.0.2.7", true},
		"the client, with a port":            {"10.1.2.3:4000", "192.0.2.7:99", true},
		"the client, by two proxies":         {"[::ffff:10.1.2.3]:4000", "192.0.2.7, 10.9.9.9", true},
		"the client, who forged the header":  {"10.1.2.3:4000", "203.0.113.1, 192.0.2.7", true},
		"the client, who claims to be proxy": {"192.0.2.7:4000", "203.0.113.1", true},
		"a proxy that tells nothing":         {"10.1.2.3:4000", "", false},
		"a proxy that tells no address":      {"10.1.2.3:4000", "192.0.2.7, unknown", false},
		"another client by the proxy":        {"10.1.2.3:4000", "192.0.2.8", false},
	} {
		inBubble(t, func(t *testing.T) {
			s := open(t, "calm", dashboard.Config{
				Users:          knowing(t, "ann", "battery staple"),
				TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			})
			login := func(peer, told, name, password string) int {
				r := request(http.MethodPost, "/login", "name="+name+"&password="+password)
				r.RemoteAddr = peer
				if told != "" {
					r.Header.Set("X-Forwarded-For", told)
				}
				return s.do(r).Code
			}
			for i := range 20 {
				if got := login("192.0.2.7:4000", "", fmt.Sprint("name", i), "wrong"); got != http.StatusUnauthorized {
					t.Fatalf("failure %d: %d, want 401", i, got)
				}
			}
			want := map[bool]int{true: http.StatusTooManyRequests, false: http.StatusSeeOther}[c.throttled]
			if got := login(c.peer, c.told, "ann", "battery+staple"); got != want {
				t.Errorf("%s: %d, want %d", name, got, want)
			}
		})
	}
}

// TestAProxyThatReplacesTheHost checks a form of the dashboard's own page behind a proxy that passes on no
// Host, as nginx with a bare proxy_pass.
func TestAProxyThatReplacesTheHost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		trusting := as(access.Admin)
		trusting.TrustedOrigins = []string{"http://jobs.example.com"}
		for _, c := range []struct {
			cfg          dashboard.Config
			host, origin string
			want         int
		}{
			{as(access.Admin), "jobs.example.com", "http://jobs.example.com", http.StatusSeeOther},
			{as(access.Admin), "127.0.0.1:8383", "http://jobs.example.com", http.StatusForbidden},
			{trusting, "127.0.0.1:8383", "http://jobs.example.com", http.StatusSeeOther},
			{trusting, "127.0.0.1:8383", "http://evil.example", http.StatusForbidden},
			{trusting, "127.0.0.1:8383", "https://jobs.example.com", http.StatusForbidden},
			{trusting, "127.0.0.1:8383", "null", http.StatusForbidden},
		} {
			r := request(http.MethodPost, "/action", "do=pause&queue=mail")
			r.Header.Del("Sec-Fetch-Site")
			r.Host = c.host
			r.Header.Set("Origin", c.origin)
			w := open(t, "calm", c.cfg).do(r)
			if w.Code != c.want {
				t.Errorf("for %s from %s: %d, want %d", c.host, c.origin, w.Code, c.want)
			}
			for _, named := range []string{c.host, c.origin, "proxy_set_header Host $http_host"} {
				if c.want == http.StatusForbidden && c.origin != "null" && !strings.Contains(w.Body.String(), named) {
					t.Errorf("for %s from %s: the answer does not name %s", c.host, c.origin, named)
				}
			}
		}
		trusting.TrustedOrigins = []string{"jobs.example.com"}
		var invalid *storage.InvalidError
		if _, err := dashboard.Handler(open(t, "calm", dashboard.Config{}).Store, trusting); !errors.As(err, &invalid) {
			t.Errorf("an origin without a scheme: got %v, want an InvalidError", err)
		}
	})
}
