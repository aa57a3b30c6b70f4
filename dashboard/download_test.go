package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

const deletion = "/action?do=delete&all=1&queue=mail&state=scheduled"

// dialogOf opens the dialog of a deletion, and returns its id and the address of its download.
func (s *site) dialogOf(path string) (form, download string) {
	s.t.Helper()
	page := s.get(path)
	return between(s.t, page, `name="form" value="`, `"`), between(s.t, page, `class="button" href="`, `" download`)
}

// TestTheIDOfAFormIsBounded sends actions with an id that no dialog has.
func TestTheIDOfAFormIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", dashboard.Config{})
		before := s.state()
		for _, form := range []string{strings.Repeat("f", 1<<16), "two words"} {
			code, _ := s.post("/action", "do", "delete", "all", "1", "queue", "mail", "state", "dead", "count", "212", "form", form)
			if code != http.StatusBadRequest {
				t.Errorf("a form with an id of %d bytes: %d, want 400", len(form), code)
			}
		}
		if s.state() != before {
			t.Error("a refused action has changed the storage")
		}
	})
}

// TestADeletionTakesExactlyWhatWasDownloaded checks a task that comes, a task that changes and a task that
// goes between the download and the deletion.
func TestADeletionTakesExactlyWhatWasDownloaded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store := inserted(t, as(access.Admin), later("a"), later("b"), later("c"), later("d"))
		session := storage.NewSession(store, 0)
		form, download := s.dialogOf(deletion)
		file := s.do(request(http.MethodGet, download, ""))
		if file.Code != http.StatusOK || strings.Count(file.Body.String(), "\n") != 4 ||
			!strings.Contains(file.Header().Get("Content-Disposition"), ".jsonl") {
			t.Fatalf("the download: %d %s", file.Code, file.Body)
		}
		priority := 3
		alter := func(storage.Task) (storage.Change, error) { return storage.Change{Priority: &priority}, nil }
		fresh := later("e")
		fresh.Kind, fresh.CrashLimit, fresh.Encoding, fresh.Payload = "k", 3, "json", []byte("{}")
		_, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{fresh}})
		err = errors.Join(err, session.ChangeTask(t.Context(), storage.Ref{Queue: "mail", ID: "b"}, alter),
			session.DeleteTask(t.Context(), storage.Ref{Queue: "mail", ID: "c"}))
		if err != nil {
			t.Fatal(err)
		}
		code, page := s.post("/action", "do", "delete", "all", "1", "queue", "mail", "state", "scheduled", "count", "4", "form", form, "saved", "1")
		if code != http.StatusOK || !strings.Contains(page, "2 of 4 tasks deleted, 1 changed meanwhile, 1 not found.") {
			t.Errorf("the deletion: %d %s", code, page)
		}
		for id, want := range map[string]bool{"a": false, "b": true, "c": false, "d": false, "e": true} {
			if _, err := store.Task(t.Context(), storage.Ref{Queue: "mail", ID: id}); (err == nil) != want {
				t.Errorf("mail/%s is there: %t, want %t", id, err == nil, want)
			}
		}
		actions, _, err := ledger.NewAudit(store).List(t.Context(), "", 1)
		if err != nil || actions[0].Note != "after a download" || actions[0].Count != 2 || actions[0].Filter == "" || len(actions[0].IDs) != 2 {
			t.Errorf("the audit has %+v, %v, want a deletion of two tasks after a download", actions, err)
		}
	})
}

// TestADownloadThatIsNotKnownDeletesNothing checks a deletion whose browser has begun a download that this
// process does not know, as after a restart.
func TestADownloadThatIsNotKnownDeletesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store := inserted(t, as(access.Admin), later("a"), later("b"))
		for _, form := range []string{"unknown", "empty"} {
			if form == "empty" {
				s.get(strings.Replace(deletion, "/action?", "/action/download?form=empty&count=5&", 1) + "&filter=kind:none")
			}
			code, page := s.post("/action", "do", "delete", "all", "1", "queue", "mail", "state", "scheduled", "count", "2", "form", form, "saved", "1")
			if code != http.StatusConflict || !strings.Contains(page, "nothing was deleted") {
				t.Errorf("form %s: %d %s, want a refusal", form, code, page)
			}
		}
		if _, err := store.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"}); err != nil {
			t.Error(err)
		}
	})
}

// TestAHeadDownloadsNothing, so that a deletion after it is no deletion after a download.
func TestAHeadDownloadsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store := inserted(t, as(access.Admin), later("a"))
		form, download := s.dialogOf(deletion)
		w := s.do(request(http.MethodHead, download, ""))
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != "application/x-ndjson" || w.Body.Len() > 0 {
			t.Errorf("HEAD: %d, %q, %d bytes", w.Code, got, w.Body.Len())
		}
		sent := []string{"do", "delete", "all", "1", "queue", "mail", "state", "scheduled", "count", "1", "form", form}
		if code, page := s.post("/action", append(sent, "saved", "1")...); code != http.StatusConflict {
			t.Errorf("the deletion after a HEAD: %d %.200s, want a refusal", code, page)
		}
		if _, err := store.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"}); err != nil {
			t.Error(err)
		}
		s.get(download)
		if code, page := s.post("/action", append(sent, "saved", "1")...); code != http.StatusOK {
			t.Errorf("the deletion after the download: %d %.200s", code, page)
		}
	})
}

// faulty is a storage whose reads of single tasks fail.
type faulty struct{ storage.Storage }

func (faulty) Task(context.Context, storage.Ref) (storage.Task, error) {
	return storage.Task{}, storage.ErrUnavailable
}

// TestADownloadThatFailsIsReported checks that the browser sees the end of the connection, and that nothing
// is deleted then.
func TestADownloadThatFailsIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, store := inserted(t, as(access.Admin), later("a"))
		h, err := dashboard.Handler(faulty{store}, as(access.Admin))
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, Dashboard: h}
		form, download := s.dialogOf(deletion)
		func() {
			defer func() {
				if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
					t.Errorf("the download ended with %v, want the end of the connection", v)
				}
			}()
			s.do(request(http.MethodGet, download, ""))
		}()
		code, page := s.post("/action", "do", "delete", "all", "1", "queue", "mail", "state", "scheduled", "count", "1", "form", form)
		if _, err := store.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"}); code != http.StatusConflict || err != nil {
			t.Errorf("the deletion after it: %d %.200s, %v; want 409 and the task kept", code, page, err)
		}
	})
}

// TestWhoMayNotSeeParametersDownloadsNoTasks checks the dialog and the address of the download.
func TestWhoMayNotSeeParametersDownloadsNoTasks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		redact, err := access.Redact("params.card")
		if err != nil {
			t.Fatal(err)
		}
		hides := as(access.Admin)
		hides.Redact = redact
		for _, c := range []struct {
			cfg  dashboard.Config
			path string
			text string
		}{
			{hides, deletion, "This dashboard hides fields of parameters."},
			{hides, "/action?do=delete&ref=mail/a", "This dashboard hides fields of parameters."},
			{as(access.Operator), "", "Your role does not permit this."},
		} {
			s, _ := inserted(t, c.cfg, later("a"))
			if c.path != "" {
				s.shows(c.path, c.text)
				if page := s.get(c.path); strings.Contains(page, "/action/download") {
					t.Errorf("%s offers a download", c.path)
				}
			}
			download := s.do(request(http.MethodGet, "/action/download?do=delete&form=f1&all=1&queue=mail&state=scheduled&count=1", ""))
			if download.Code != http.StatusForbidden || !strings.Contains(download.Body.String(), c.text) {
				t.Errorf("the download: %d %s, want 403", download.Code, download.Body)
			}
		}
	})
}

// TestOnlyADeletionIsDownloaded checks other parameters of the address.
func TestOnlyADeletionIsDownloaded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := inserted(t, as(access.Admin), later("a"))
		for _, query := range []string{
			"do=requeue&form=f1&ref=mail/a", "do=remove&form=f1&queue=mail", "do=delete&ref=mail/a", "do=delete&form=f1",
			"do=delete&form=f1&all=1&count=none", "do=delete&form=../x&ref=mail/a",
		} {
			if w := s.do(request(http.MethodGet, "/action/download?"+query, "")); w.Code != http.StatusBadRequest {
				t.Errorf("GET /action/download?%s: %d, want 400", query, w.Code)
			}
		}
		for count, want := range map[string]int{"40000": http.StatusOK, "40001": http.StatusForbidden, "2000000000": http.StatusForbidden} {
			w := s.do(request(http.MethodGet, "/action/download?do=delete&form=f1&all=1&state=scheduled&count="+count, ""))
			if w.Code != want || want != http.StatusOK && !strings.Contains(w.Body.String(), "more tasks than can be downloaded") {
				t.Errorf("a download of %s tasks: %d %.200s, want %d", count, w.Code, w.Body, want)
			}
		}
		if page := s.get("/action?do=cancel&ref=mail/a"); strings.Contains(page, "Download first") {
			t.Error("the dialog of a cancel offers a download")
		}
	})
}
