package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// site is a dashboard under test.
type site struct {
	t *testing.T
	*scene.Scene
	*dashboard.Dashboard

	cfg dashboard.Config
}

func open(t *testing.T, name string, cfg dashboard.Config) *site {
	t.Helper()
	sc, err := scene.Open(t.Context(), name, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	h, err := dashboard.Handler(sc.Store, admitting(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return &site{t, sc, h, cfg}
}

// inBubble runs a test in a bubble, where computing takes no time: there the bounds of searches, reads and
// actions do not depend on how fast the machine is.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		test(t)
	})
}

// nextReading lets time pass, so that the next page has a new sample.
func nextReading() { time.Sleep(2 * sampler.Period) } // virtual

func sprint(v any) string { return fmt.Sprintf("%+v", v) }

// request returns a request as a browser on this machine makes it.
func request(method, path string, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "localhost:8080", "127.0.0.1:4000"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	return r
}

func (s *site) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// get returns a page, which must exist.
func (s *site) get(path string) string {
	s.t.Helper()
	w := s.do(request(http.MethodGet, path, ""))
	if w.Code != http.StatusOK {
		s.t.Fatalf("GET %s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// shows fails the test if a page lacks a text.
func (s *site) shows(path string, texts ...string) {
	s.t.Helper()
	page := strings.ReplaceAll(s.get(path), "\u00a0", " ")
	for _, text := range texts {
		if !strings.Contains(page, text) {
			s.t.Errorf("GET %s does not show %q", path, text)
		}
	}
}

// paths returns the paths of all pages of a scene.
func (s *site) paths() []string {
	s.t.Helper()
	paths := []string{
		"/", "/queues", "/queues?sort=dead&name=a", "/schedules", "/runners", "/tasks", "/tasks?state=dead",
		"/metrics", "/metrics?span=90d", "/audit", "/search?q=a",
	}
	names, err := s.Store.Queues(s.t.Context(), storage.QueuesQuery{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range names.Names {
		if !storage.Reserved(name) {
			paths = append(paths, "/queues/"+name)
			break
		}
	}
	if len(s.Runners) > 0 {
		paths = append(paths, "/runners/"+s.Runners[0].ID)
	}
	return paths
}

func TestTheNightsOverviewNamesAllTroubles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		s.shows("/", "212 tasks died: send_invoice (180), send_digest (32).", "connection refused",
			"88 tasks died: archive_orders (88).", "no space left on device", "The queue payments is paused", "1,204 tasks wait in it. Paused by bo.",
			"Needs attention</h2>", "The last one died <time", "waiting; payments is paused", "1 stalled", "The schedule daily_digest is orphaned", "No runner on default handles legacy_sync", "1 task waits for a runner that handles it.")
		s.shows("/dead", "300 tasks by cause", "midge task ls --by cause", ">send_invoice</a> 180, <a", ">send_digest</a> 32 in", ">archive_orders</a> 88 in")
		if page := s.get("/"); strings.Count(page, "since") < 5 {
			t.Errorf("%d of 5 troubles say since when", strings.Count(page, "since"))
		}
	})
}

// TestManyCausesHideNothingElse checks the overview of hundreds of causes of death, two paused queues and
// three orphaned schedules. One need stands for the causes after the first five.
func TestManyCausesHideNothingElse(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "million", 10_000)
		if err != nil {
			t.Fatal(err)
		}
		h, err := dashboard.Handler(sc.Store, as(access.Admin))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(http.MethodGet, "/", ""))
		page := w.Body.String()
		first, folded, found := strings.Cut(page, `<details class="folded">`)
		if !found || !strings.Contains(strings.ReplaceAll(folded, "\u00a0", " "), " other causes</span>") {
			t.Error("the further causes are not named")
		}
		for text, want := range map[string]int{"data-ask>Requeue</a>": 2, "data-ask>Resume</a>": 1, "schedules are orphaned</summary>": 1} {
			if got := strings.Count(first, text); got != want {
				t.Errorf("the first needs have %q %d times, want %d", text, got, want)
			}
		}
		for text, want := range map[string]int{"data-ask>Resume</a>": 2, "is orphaned</a>": 3} {
			if got := strings.Count(page, text); got != want {
				t.Errorf("all needs have %q %d times, want %d", text, got, want)
			}
		}
	})
}

func TestQueuesArePausedFromTheirList(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		actions := []string{`/action?do=resume&amp;queue=payments"`, `/action?do=pause&amp;queue=mail"`}
		open(t, "night", dashboard.Config{}).shows("/queues", actions...)
		page := open(t, "night", dashboard.Config{ReadOnly: true}).get("/queues")
		for _, action := range actions {
			if strings.Contains(page, action) {
				t.Errorf("whoever may only read is offered %s", action)
			}
		}
	})
}

func TestACauseHasAPage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		page := s.get("/")
		_, rest, found := strings.Cut(page, `href="/dead?cause=`)
		if !found {
			t.Fatal("the overview leads to no cause")
		}
		id, _, _ := strings.Cut(rest, `"`)
		s.shows("/dead?cause="+id, "Cause of death", "212 tasks died", "Requeue all 212", "connection refused", "send_invoice", "send_digest",
			"midge task ls &#39;state:dead cause:"+id+"&#39;", "goroutine 41 [running]")
		s.shows("/dead?cause=zz", "No dead task has this cause", "View other causes")
		for _, bad := range []string{"x+state:live", "-1", "%22"} {
			if w := s.do(request(http.MethodGet, "/dead?cause="+bad, "")); w.Code != http.StatusBadRequest {
				t.Errorf("the cause %s: %d, want 400", bad, w.Code)
			}
		}
	})
}

func TestCalmIsSaidInWords(t *testing.T) {
	s := open(t, "calm", dashboard.Config{})
	s.shows("/", "All clear.", "of the attempts succeeded, and the oldest task has waited <span")
	s = open(t, "empty", dashboard.Config{})
	s.shows("/", "All clear. No queues yet.", "client.Enqueue(ctx")
}

func TestEachAnswerForbidsWhatNoPageNeeds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		for _, path := range append(s.paths(), "/nothing", "/queues/none", "/queues/%00", "/assets/0/midge.css", "/r/a/b/c") {
			h := s.do(request(http.MethodGet, path, "")).Header()
			for name, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
					"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; " +
					"require-trusted-types-for 'script'; trusted-types 'none'",
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Access-Control-Allow-Origin": "",
			} {
				if got := h.Get(name); got != want {
					t.Errorf("GET %s: %s is %q, want %q", path, name, got, want)
				}
			}
		}
	})
}

func TestAnApplicationsLoginDecides(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		user, in := access.User{}, false
		s := open(t, "calm", dashboard.Config{Who: func(*http.Request) (access.User, bool) { return user, in }})
		r := request(http.MethodGet, "/", "")
		r.RemoteAddr, r.Host = "192.0.2.7:4000", "ops.example"
		if w := s.do(r); w.Code != http.StatusForbidden {
			t.Errorf("nobody: %d, want 403", w.Code)
		}
		in = true
		if w := s.do(r); w.Code != http.StatusForbidden {
			t.Errorf("without a role: %d, want 403", w.Code)
		}
		user = access.User{Name: "ann", Role: access.Viewer}
		if w := s.do(r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "ann · viewer") {
			t.Errorf("a viewer: %d, want 200 and the name", w.Code)
		}
	})
}

// knowing returns users of whom one is an operator with a password.
func knowing(t *testing.T, name, password string) *access.Users {
	t.Helper()
	return usersOf(t, userFile(t, name, password))
}

// userFile returns a file of users of whom one is an operator with a password. The password is hashed with as
// few rounds as a file may have, because the 600,000 of a new password take seconds under the race detector.
func userFile(t *testing.T, name, password string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users")
	if _, err := access.CreateUsers(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 10_000
	salt := []byte("sixteen bytes...")
	sum, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	encoded := base64.RawStdEncoding.EncodeToString
	text = fmt.Appendf(text, "user %s operator pbkdf2-sha256$%d$%s$%s\n", name, rounds, encoded(salt), encoded(sum))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// usersOf opens a file of users, as another process does.
func usersOf(t *testing.T, file string) *access.Users {
	t.Helper()
	users, err := access.OpenUsers(file)
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// TestAQueueWithTheNameOfTheStreamHasALogin opens a page whose address ends as that of the stream does.
func TestAQueueWithTheNameOfTheStreamHasALogin(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{Users: knowing(t, "ann", "correct horse"), Base: "/midge"})
		w := s.do(request(http.MethodGet, "/midge/queues/events", ""))
		if got, want := w.Header().Get("Location"), "/midge/login?back=%2Fmidge%2Fqueues%2Fevents"; w.Code != 303 || got != want {
			t.Errorf("before a login: %d to %q, want 303 to %q", w.Code, got, want)
		}
	})
}

func TestItsOwnLogin(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{Users: knowing(t, "ann", "correct horse"), Base: "/midge"})
		w := s.do(request(http.MethodGet, "/midge/queues?sort=dead", ""))
		if got, want := w.Header().Get("Location"), "/midge/login?back=%2Fmidge%2Fqueues%3Fsort%3Ddead"; w.Code != 303 || got != want {
			t.Fatalf("before a login: %d to %q, want 303 to %q", w.Code, got, want)
		}
		if w := s.do(request(http.MethodGet, "/midge/events", "")); w.Code != http.StatusUnauthorized {
			t.Errorf("the stream before a login: %d, want 401", w.Code)
		}
		form := "name=ann&password=%s&back=%s"
		if w := s.do(request(http.MethodPost, "/midge/login", fmt.Sprintf(form, "wrong", "/midge/"))); w.Code != http.StatusUnauthorized {
			t.Errorf("a wrong password: %d, want 401", w.Code)
		}
		for back, want := range map[string]string{
			"/midge/queues": "/midge/queues", "https://evil.example/": "/midge/", "//evil.example": "/midge/",
			"/midge/../..//evil.example": "/midge/", "/elsewhere": "/midge/", `/midge/\evil`: "/midge/",
		} {
			w := s.do(request(http.MethodPost, "/midge/login", fmt.Sprintf(form, "correct+horse", back)))
			if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want {
				t.Errorf("back to %s: %d to %q, want 303 to %q", back, w.Code, got, want)
			}
		}
		w = s.do(request(http.MethodPost, "/midge/login", fmt.Sprintf(form, "correct+horse", "/midge/")))
		r := request(http.MethodGet, "/midge/queues", "")
		for _, c := range w.Result().Cookies() {
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
				t.Errorf("the cookie %s is not HttpOnly and SameSite=Strict", c.Name)
			}
			r.AddCookie(c)
		}
		if w := s.do(r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "ann · operator") {
			t.Errorf("after a login: %d", w.Code)
		}
		out := request(http.MethodPost, "/midge/logout", "")
		out.Header.Set("Cookie", r.Header.Get("Cookie"))
		s.do(out)
		if w := s.do(r); w.Code != http.StatusSeeOther {
			t.Errorf("the cookie after a logout: %d, want 303 to the login", w.Code)
		}
	})
}

func TestPagesAreSmall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "million", dashboard.Config{})
		for _, path := range s.paths() {
			r := request(http.MethodGet, path, "")
			r.Header.Set("Accept-Encoding", "gzip")
			w := s.do(r)
			if got := w.Body.Len(); w.Code != http.StatusOK || got > 40<<10 {
				t.Errorf("GET %.40s: %d, %d bytes compressed, want at most 40 KiB", path, w.Code, got)
			}
			if plain, err := gzip.NewReader(w.Body); err != nil || plain.Close() != nil {
				t.Errorf("GET %.40s is not compressed: %v", path, err)
			}
		}
		page := s.get("/")
		total := 0
		for _, name := range []string{"midge.css", "midge.mjs"} {
			at := strings.Index(page, "/assets/")
			path := page[at : at+strings.Index(page[at:], "\"")]
			path = path[:strings.LastIndex(path, "/")+1] + name
			r := request(http.MethodGet, path, "")
			r.Header.Set("Accept-Encoding", "gzip")
			w := s.do(r)
			if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
				t.Errorf("GET %s: %d, %v", path, w.Code, w.Header())
			}
			total += w.Body.Len()
		}
		if total > 30<<10 {
			t.Errorf("CSS and JS are %d bytes compressed, want at most 30 KiB", total)
		}
	})
}

func TestBadInputIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{})
		for path, want := range map[string]int{
			"/queues?sort=size": 400, "/queues?page=0": 400, "/queues?page=x": 400, "/queues/none": 404, "/queues/%2e%2e": 400,
			"/runners/none": 404, "/none": 404, "/queues?page=9999": 200,
		} {
			if w := s.do(request(http.MethodGet, path, "")); w.Code != want {
				t.Errorf("GET %s: %d, want %d", path, w.Code, want)
			}
		}
		r := request(http.MethodDelete, "/queues", "")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if w := s.do(r); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("DELETE /queues: %d, want 405", w.Code)
		}
		for _, cfg := range []dashboard.Config{
			{Base: "midge"},
			{Base: "/midge/"},
			{Base: "/?x"},
			{Base: "/tasks"},
			{Base: "/r"},
			{Base: "/queues/midge"},
			{Base: "/assets/x"},
			{Base: "/preferences"},
			{TooOld: -1},
		} {
			if _, err := dashboard.Handler(s.Store, admitting(cfg)); err == nil {
				t.Errorf("Handler with %+v: no error", cfg)
			}
		}
		for _, base := range []string{"/task", "/midge/tasks", "/ops"} {
			if _, err := dashboard.Handler(s.Store, admitting(dashboard.Config{Base: base})); err != nil {
				t.Errorf("Handler with the base %s: %v", base, err)
			}
		}
		if _, err := dashboard.Handler(nil, as(access.Admin)); err == nil {
			t.Error("Handler without a storage: no error")
		}
	})
}

func TestTheBaseIsInEachAddress(t *testing.T) {
	s := open(t, "night", dashboard.Config{Base: "/ops/midge"})
	for _, path := range s.paths() {
		for _, at := range []string{"/ops/midge" + path, path} { // with Base, and with Base cut off
			page := []byte(s.get(at))
			for _, attr := range []string{"href=\"", "src=\"", "action=\""} {
				for rest := page; ; {
					i := bytes.Index(rest, []byte(attr))
					if i < 0 {
						break
					}
					rest = rest[i+len(attr):]
					if !bytes.HasPrefix(rest, []byte("/ops/midge/")) && rest[0] != '#' {
						t.Errorf("GET %s: address %.40s is not below the base", at, rest)
					}
				}
			}
		}
	}
}

// TestTheBodyOfAGetChoosesNoPage checks that a page depends only on its address, under which viewers share
// it.
func TestTheBodyOfAGetChoosesNoPage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{})
		r := request(http.MethodGet, "/metrics", "--x\r\nContent-Disposition: form-data; name=\"span\"\r\n\r\n90d\r\n--x--\r\n")
		r.Header.Set("Content-Type", `multipart/form-data; boundary=x`)
		if w := s.do(r); w.Code != http.StatusOK {
			t.Fatalf("GET /metrics with a body: %d", w.Code)
		}
		s.shows("/metrics", "midge history --span 1h")
	})
}

func TestDeploysAreTicksOfTheCharts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		row := regexp.MustCompile(`<td class="text mono">v0\.9\.1</td></tr>`)
		for _, path := range []string{"/", "/metrics", "/metrics?span=24h", "/queues/mail"} {
			page := s.get(path)
			if got := strings.Count(page, `class="deploy"`); got != 1 {
				t.Errorf("GET %s: %d ticks, want one", path, got)
			}
			if got := row.FindAllString(page, -1); len(got) != 1 {
				t.Errorf("GET %s: %d rows of the table name the version, want one", path, len(got))
			}
		}
		if page := open(t, "calm", dashboard.Config{}).get("/"); strings.Contains(page, "deploy\"") || strings.Contains(page, "<th>deployed</th>") {
			t.Error("a day without a deploy shows one")
		}
	})
}
