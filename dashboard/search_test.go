package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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

// refusing is a storage that reads no task.
type refusing struct{ storage.Storage }

func (refusing) Task(context.Context, storage.Ref) (storage.Task, error) {
	return storage.Task{}, storage.ErrUnavailable
}

// TestASearchThatIsCutShowsIt searches for the id of a task that is there, in a storage of more queues than a
// search reads, in a storage that hangs, and in a storage that fails.
func TestASearchThatIsCutShowsIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		session := storage.NewSession(sc.Store, 0)
		for i := range 1200 {
			tx := storage.Tx{Inserts: []storage.Insert{{
				Ref:  storage.Ref{Queue: fmt.Sprintf("tenant-%04d", i), ID: fmt.Sprintf("order%04d", i)},
				Kind: "k", Encoding: "json", Payload: []byte("{}"), CrashLimit: 1,
			}}}
			if _, err := session.ApplyOne(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		slow := &hanging{Storage: sc.Store}
		slow.tasks.Store(true)
		for query, c := range map[string]struct {
			store storage.Storage
			text  string
		}{
			"order1199":             {sc.Store, "looks up 1,000 tasks at most"},
			"order0001":             {slow, "took longer than 3 s"},
			"order0002":             {refusing{sc.Store}, "The storage does not answer."},
			"tenant-0002/order0002": {refusing{sc.Store}, "The storage does not answer."},
		} {
			var log bytes.Buffer
			cfg := as(access.Admin)
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			h, err := dashboard.Handler(c.store, cfg)
			if err != nil {
				t.Fatal(err)
			}
			s := &site{t, sc, h, cfg}
			page := s.get("/search?q=" + url.QueryEscape(query))
			if !strings.Contains(page, "Tasks may be missing here. ") || !strings.Contains(page, c.text) {
				t.Errorf("%s: the page does not show %q", query, c.text)
			}
			if strings.Contains(page, "schedule, runner or task with this name") {
				t.Errorf("%s: the page shows that there is no such task", query)
			}
			logged := strings.Contains(log.String(), "cannot read the storage")
			if logged != strings.HasSuffix(c.text, "not answer.") {
				t.Errorf("%s: the log has %q", query, log.String())
			}
		}
	})
}

// TestASearchShowsThatItHasMoreResults searches for names in storages with as many queues as a page of results has,
// and with one more.
func TestASearchShowsThatItHasMoreResults(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for queues, want := range map[int]bool{47: false, 48: false, 49: true, 100: true} {
			s := open(t, "calm", as(access.Admin))
			for i := range queues {
				if err := s.Add(t.Context(), fmt.Sprintf("tenant-%03d", i), "k", 1, nil); err != nil {
					t.Fatal(err)
				}
			}
			page := s.get("/search?q=tenant")
			if got := strings.Contains(page, "These are the first 48 results."); got != want {
				t.Errorf("%d queues: the page shows that there are more: %t, want %t", queues, got, want)
			}
			if hits := strings.Count(page, `<td class="n muted">queue</td>`); hits != min(48, queues) {
				t.Errorf("%d queues: the page shows %d", queues, hits)
			}
			if page := s.get("/search?q=tenant-00"); strings.Contains(page, "These are the first") {
				t.Errorf("%d queues: a search for ten shows that there are more", queues)
			}
		}
	})
}
