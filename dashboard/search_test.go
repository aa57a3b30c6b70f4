package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

func TestSearchFindsATask(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		ref := s.list("mail", storage.Dead)[0]
		_, id, _ := strings.Cut(ref, "/")
		for _, text := range []string{
			ref, id, "  " + id + " ", `time=2026-11-23T02:14:07Z level=ERROR msg="a job failed" task=` + ref + ` kind=send_invoice`,
			`{"level":"error","id":"` + id + `","retries":3}`,
		} {
			w := s.do(request(http.MethodGet, "/search?q="+url.QueryEscape(text), ""))
			if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != "/r/"+ref {
				t.Errorf("search for %q: %d to %q, want %q", text, w.Code, got, "/r/"+ref)
			}
		}
		s.shows("/search?q=mail", "/queues/mail", "Scan live tasks for this text")
		s.shows("/search?q=digest", "daily_digest", "send_digest")
		s.shows("/suggest?q=app-2", "app-2.internal:4101:", "runner")
		s.shows("/suggest?q=refused", "connection refused", "212 dead", "/dead?cause=", `"what":"scan"`)
		s.shows("/suggest?q=se", "send_invoice", "kind")
		s.shows("/suggest?q="+id, `"what":"task"`, "/r/"+ref)
		s.shows("/search?q=nothing+of+the+kind", "No queue, kind, cause, schedule, runner or task with this name.")
	})
}

func TestASuggestionAsksTheStorageLittle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "million", 10_000)
		if err != nil {
			t.Fatal(err)
		}
		store := &counting{Storage: sc.Store, calls: map[string]int{}}
		h, err := dashboard.Handler(store, as(access.Admin))
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Repeat(`{"id":"06gd2nq1c5v8k3m0a1b2c3d4e5","queue":"a","task":"b1","at":"2026-11-23T02:14:07Z","trace":"4bf92f3577b34da6"} `, 20)
		for _, text := range []string{"t", "tenant", "06gd2nq1c5v8k3m0a1b2c3d4e5", line} {
			store.taken()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(http.MethodGet, "/suggest?q="+url.QueryEscape(text), ""))
			var hits []struct{ What, Label, URL string }
			if err := json.Unmarshal(w.Body.Bytes(), &hits); err != nil || len(hits) > 25 {
				t.Errorf("%.20q: %d hits, %v", text, len(hits), err)
			}
			if reads := store.taken()["Task"]; reads > 140 {
				t.Errorf("%.20q: %d tasks are read for a keystroke, want at most 140", text, reads)
			}
		}
	})
}
