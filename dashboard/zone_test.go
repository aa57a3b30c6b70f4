package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// choose posts the choice of a zone from the page of the dead tasks.
func (s *site) choose(zone string) (int, []*http.Cookie) {
	s.t.Helper()
	r := request(http.MethodPost, "/preferences", url.Values{"zone": {zone}}.Encode())
	r.Header.Set("Referer", "http://localhost:8080/dead")
	w := s.do(r)
	if to := w.Header().Get("Location"); w.Code == http.StatusSeeOther && to != "/dead" {
		s.t.Errorf("the choice leads to %q, want the page of the form", to)
	}
	return w.Code, w.Result().Cookies()
}

// read returns a page as a browser with cookies sees it.
func (s *site) read(path string, cookies []*http.Cookie) string {
	s.t.Helper()
	r := request(http.MethodGet, path, "")
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return strings.ReplaceAll(s.do(r).Body.String(), "\u00a0", " ")
}

// TestAViewerReadsTimesInTheirZone chooses a time zone, which the pages after that remember, and UTC again.
func TestAViewerReadsTimesInTheirZone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		code, tokyo := s.choose("Asia/Tokyo")
		if code != http.StatusSeeOther || len(tokyo) != 1 || tokyo[0].MaxAge < int((300*24*time.Hour).Seconds()) {
			t.Fatalf("the choice of a zone: %d, cookies %v", code, tokyo)
		}
		for path, texts := range map[string][]string{
			"/":                {"Times in Asia/Tokyo", ">JST</text>", "<th>JST</th>"},
			"/metrics":         {"Times in Asia/Tokyo", ">JST</text>"},
			"/queues/mail/add": {"or start time in Asia/Tokyo"},
		} {
			page := s.read(path, tokyo)
			for _, text := range texts {
				if !strings.Contains(page, text) {
					t.Errorf("GET %s does not show %q in the zone of its viewer", path, text)
				}
			}
		}
		page := s.read("/dead", nil)
		if !strings.Contains(page, "Times in UTC") {
			t.Error("a viewer who has chosen nothing does not read UTC")
		}
		hour := func(page string) int {
			at, err := time.Parse("15:04:05", between(t, page, "as of ", "<"))
			if err != nil {
				t.Fatal(err)
			}
			return at.Hour()
		}
		if utc, there := hour(page), hour(s.read("/dead", tokyo)); (there-utc+24)%24 != 9 {
			t.Errorf("it is %d h in UTC and %d h in Tokyo", utc, there)
		}
		_, utc := s.choose("UTC")
		if page := s.read("/dead", utc); !strings.Contains(page, "Times in UTC") {
			t.Error("the choice of UTC is not remembered")
		}
	})
}

// TestAZoneThatNobodyKnowsIsUTC checks names that are no time zones of a viewer.
func TestAZoneThatNobodyKnowsIsUTC(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		for _, bad := range []string{"Local", "Mars/Base", "../../etc/passwd"} {
			if code, _ := s.choose(bad); code != http.StatusBadRequest {
				t.Errorf("the zone %s: %d, want 400", bad, code)
			}
			if page := s.read("/dead", []*http.Cookie{{Name: "midge_zone", Value: bad}}); !strings.Contains(page, "Times in UTC") {
				t.Errorf("the zone %s of a cookie is not read as UTC", bad)
			}
		}
	})
}

// TestATaskStartsAtALocalTime enqueues a task for a moment in the zone of the viewer.
func TestATaskStartsAtALocalTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		r := request(http.MethodPost, "/queues/mail/add", url.Values{
			"kind": {"send_welcome"}, "params": {"{}"}, "at": {"2030-03-01T09:00"}, "id": {"local"},
		}.Encode())
		r.AddCookie(&http.Cookie{Name: "midge_zone", Value: "Asia/Tokyo"})
		w := s.do(r)
		task, err := s.Store.Task(t.Context(), storage.Ref{Queue: "mail", ID: "local"})
		if err != nil || !task.Due.Equal(time.Date(2030, 3, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("%d: the task is due at %v, %v; want midnight in UTC", w.Code, task.Due, err)
		}
	})
}
