package dashboard_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// route is a method and a path of a dashboard. The method of a route that takes the remaining ones is DELETE.
type route struct{ method, path string }

func (r route) String() string { return r.method + " " + r.path }

// get reports whether browsers follow links to the route.
func (r route) get() bool { return r.method == http.MethodGet }

// open reports whether the route belongs to the login.
func (r route) open() bool { return r.path == "/login" || strings.HasPrefix(r.path, "/assets/") }

// routesOf returns all routes that a dashboard registers, with names that the scene night has.
func (s *site) routesOf(cfg dashboard.Config) (routes []route) {
	s.t.Helper()
	queue, id, _ := strings.Cut(s.list("mail", storage.Dead)[0], "/")
	names := strings.NewReplacer("{$}", "", "{queue}", queue, "{id}", id, "{part}", "params", "{runner}", s.Runners[0].ID,
		"{job}", "none", "{version}", "0", "{name}", "midge.css")
	for _, pattern := range dashboard.Patterns(cfg) {
		method, path, ok := strings.Cut(names.Replace(pattern), " ")
		if !ok {
			method, path = http.MethodDelete, method
		}
		if strings.Contains(path, "{") {
			s.t.Fatalf("the route %s has a name that this test does not know", pattern)
		}
		routes = append(routes, route{method, path})
	}
	if len(routes) < 25 {
		s.t.Fatalf("%d routes, want all of the dashboard", len(routes))
	}
	return routes
}

// refuses requests a route without credentials.
func (s *site) refuses(name string, route route) {
	s.t.Helper()
	w := s.do(request(route.method, route.path, "do=pause&queue=mail"))
	want, to := http.StatusUnauthorized, ""
	switch {
	case s.cfg.Who != nil:
		want = http.StatusForbidden
	case route.open():
		want = w.Code // which shows nothing of the storage, see below
	case route.get() && route.path != "/events":
		want, to = http.StatusSeeOther, "/login?back="+url.QueryEscape(route.path)
	}
	if got := w.Header().Get("Location"); w.Code != want || got != to {
		s.t.Errorf("with %s, %s: %d to %q, want %d to %q", name, route, w.Code, got, want, to)
	}
	if text := w.Body.String(); strings.Contains(text, "send_invoice") || strings.Contains(text, "payments") {
		s.t.Errorf("with %s, %s shows a name of the storage", name, route)
	}
}

// TestNoRouteIsOpen requests each route without credentials, with its own method and with others.
func TestNoRouteIsOpen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		nobody := dashboard.Config{Who: func(*http.Request) (access.User, bool) { return access.User{}, false }}
		for name, cfg := range map[string]dashboard.Config{
			"users": {Users: knowing(t, "ann", "correct horse")}, "a token": {Token: rand.Text()}, "an application": nobody,
		} {
			s := open(t, "night", cfg)
			before := s.state()
			for _, route := range s.routesOf(cfg) {
				for _, route.method = range []string{route.method, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
					s.refuses(name, route)
				}
			}
			if s.state() != before {
				t.Errorf("with %s, requests without credentials have changed the storage", name)
			}
		}
	})
}

// TestNoGetChangesAnything requests each route that browsers follow links to as an admin, with the parameters of
// actions.
func TestNoGetChangesAnything(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		s.get("/")
		before, reached := s.state(), 0
		for _, route := range s.routesOf(s.cfg) {
			if !route.get() {
				continue
			}
			ref := s.list("mail", storage.Dead)[0]
			for _, query := range []string{
				"", "?do=pause&queue=mail", "?do=delete&form=a&ref=" + ref, "?do=requeue&ref=" + ref + "&confirm=1", "?ref=" + ref + "&params={}",
				"?kind=k&params={}&fresh=a", "?theme=dark",
			} {
				ctx, stop := context.WithTimeout(t.Context(), time.Second) // for the live stream
				w := s.do(request(http.MethodGet, route.path+query, "do=pause&queue=mail").WithContext(ctx))
				stop()
				if w.Code == http.StatusOK {
					reached++
				}
				if w.Code >= http.StatusInternalServerError {
					t.Errorf("GET %s%s: %d", route.path, query, w.Code)
				}
				if got := w.Header()["Set-Cookie"]; len(got) > 0 {
					t.Errorf("GET %s%s sets the cookies %v", route.path, query, got)
				}
			}
		}
		if reached < 60 {
			t.Errorf("%d requests were answered with 200, want most of them", reached)
		}
		if s.state() != before {
			t.Error("a GET has changed the storage")
		}
	})
}

// refusesOthers sends a route the requests of other sites by a browser that has a session.
func (s *site) refusesOthers(route route, session string) {
	s.t.Helper()
	for name, header := range map[string][2]string{
		"cross-site":             {"Sec-Fetch-Site", "cross-site"},
		"same-site":              {"Sec-Fetch-Site", "same-site"},
		"another origin":         {"Origin", "https://evil.example"},
		"no origin":              {"Origin", "null"},
		"a cookie and no origin": {"Cookie", "midge_session=1; " + session},
	} {
		for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=b"} {
			r := request(route.method, route.path, "theme=dark&do=pause&queue=mail&count=1")
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Content-Type", kind)
			r.Header.Set("Cookie", session)
			r.Header.Set(header[0], header[1])
			if w := s.do(r); w.Code != http.StatusForbidden {
				s.t.Errorf("%s as %s, %s: %d, want 403", route, kind, name, w.Code)
			}
		}
	}
}

// TestAnotherSiteChangesNothing sends each route that changes something the requests of other sites: by a browser
// that is logged in, and by a viewer whom an application names.
func TestAnotherSiteChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, cfg := range []dashboard.Config{{Token: rand.Text()}, as(access.Admin)} {
			s := open(t, "night", cfg)
			session := ""
			if cfg.Token != "" {
				session = s.entered("/").String()
			}
			before, sent := s.state(), 0
			for _, route := range s.routesOf(cfg) {
				if route.get() {
					continue
				}
				sent++
				s.refusesOthers(route, session)
			}
			if sent < 6 {
				t.Errorf("%d routes change something, want all", sent)
			}
			if s.state() != before {
				t.Error("another site has changed the storage")
			}
		}
	})
}
