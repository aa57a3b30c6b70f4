package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/dashboard/internal/sampler"
)

// TestNothingIsCalmWhileTheStorageIsAway checks all pages that show an earlier state: they show since when,
// and none claims that nothing needs attention.
func TestNothingIsCalmWhileTheStorageIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := stuck(t)
		for _, away := range []bool{false, true, false} {
			store.on.Store(away)
			time.Sleep(2 * sampler.Period) // virtual, so that another read is due
			for _, path := range []string{"/", "/queues", "/queues/mail", "/dead", "/schedules", "/runners"} {
				page := s.get(path)
				body := between(t, page, "<body", ">")
				if strings.Contains(body, "data-away") != away {
					t.Errorf("GET %s, away %t: the body is %q", path, away, body)
				}
				if strings.Contains(page, "The storage has not answered since ") != away {
					t.Errorf("GET %s, away %t: the banner is missing, or shown without need", path, away)
				}
				if path == "/" && strings.Contains(page, "All clear") == away {
					t.Errorf("the overview, away %t: it is calm, or does not say so", away)
				}
			}
		}
	})
}

// TestAnErrorPageIsFetchedAgain checks which error pages stand for a page that may be there in a moment.
func TestAnErrorPageIsFetchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, store := stuck(t)
		store.on.Store(true)
		h, err := dashboard.Handler(store, as(access.Admin)) // it has never read the storage
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, Dashboard: h}
		for _, c := range []struct {
			method, path, form string
			code               int
			again              bool
		}{
			{http.MethodGet, "/", "", http.StatusServiceUnavailable, true},
			{http.MethodGet, "/r/mail/a", "", http.StatusServiceUnavailable, true},
			{http.MethodPost, "/action", "do=pause&queue=mail", http.StatusServiceUnavailable, false},
			{http.MethodPost, "/action", "do=nothing", http.StatusBadRequest, false},
		} {
			w := s.do(request(c.method, c.path, c.form))
			page := w.Body.String()
			again := strings.Contains(page, "data-broken") && strings.Contains(page, `<noscript><meta http-equiv="refresh" content="5">`)
			if w.Code != c.code || again != c.again {
				t.Errorf("%s %s: %d, fetched again: %t; want %d, %t", c.method, c.path, w.Code, again, c.code, c.again)
			}
		}
	})
}
