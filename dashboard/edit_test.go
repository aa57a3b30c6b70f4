package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// theTask is the task that tests edit.
var theTask = storage.Ref{Queue: "mail", ID: "a"}

// params returns the parameters of the task.
func params(t *testing.T, store *memory.Storage) string {
	t.Helper()
	task, err := store.Task(t.Context(), theTask)
	if err != nil {
		t.Fatal(err)
	}
	return string(task.Payload)
}

// TestAnEditOverwritesNoOther checks that a form that was refused, for whatever reason, keeps the version
// that it first showed.
func TestAnEditOverwritesNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const theirs = `{"to":"bo"}`
		s, store := inserted(t, dashboard.Config{}, storage.Insert{
			Ref: theTask, Delay: time.Hour, Encoding: "json", Payload: []byte(`{"to":"x"}`),
		})
		version := func(page string) string { return between(t, page, `name="version" value="`, `"`) }
		opened := version(s.get("/edit?ref=mail/a"))
		err := storage.NewSession(store, 0).ChangeTask(t.Context(), theTask, func(storage.Task) (storage.Change, error) {
			return storage.Change{Encoding: "json", Payload: []byte(theirs)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, sent := range []struct {
			params string
			want   int
		}{
			{`{"to":"ann",`, http.StatusBadRequest},
			{`{"to":"ann"}`, http.StatusConflict},
			{`{"to":"ann"}`, http.StatusConflict},
		} {
			code, page := s.post("/edit", "ref", "mail/a", "version", opened, "params", sent.params)
			if code != sent.want || version(page) != opened || !strings.Contains(page, "&#34;ann&#34;") {
				t.Errorf("%s with an old version: %d, want %d, the text and the version", sent.params, code, sent.want)
			}
			if strings.Contains(page, "&#34;bo&#34;") != (sent.want == http.StatusConflict) {
				t.Errorf("%s with an old version: the present parameters are shown without need, or missing", sent.params)
			}
			opened = version(page)
		}
		if got := params(t, store); got != theirs {
			t.Errorf("the parameters are %s, want those of the edit before", got)
		}
		opened = version(s.get("/edit?ref=mail/a"))
		if code, _ := s.post("/edit", "ref", "mail/a", "version", opened, "params", `{"to":"ann"}`); code != http.StatusOK {
			t.Errorf("an edit of the present parameters: %d", code)
		}
	})
}

// TestALargeTaskIsSaved checks that a task up to the limit of the storage is saved as it was opened. Texts of
// many values have a lower limit, because an edit takes seconds for each hundred thousand values under the
// race detector.
func TestALargeTaskIsSaved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const most, many = 1 << 20, 1 << 18
		for what, payload := range map[string]string{
			"ones":       "[" + strings.Repeat("1,", many/2-2) + "1]",
			"deep lists": strings.Repeat("[", 90) + strings.Repeat("1,", many/2-100) + "1" + strings.Repeat("]", 90),
			"controls":   `"` + strings.Repeat(`\u0001`, most/6-1) + `"`,
		} {
			limits := storage.Limits{MaxPayload: many}
			if len(payload) > many {
				limits = storage.Limits{} // the default is the limit most
			}
			s, store := insertedWithin(t, limits, dashboard.Config{}, storage.Insert{
				Ref: theTask, Delay: time.Hour, Encoding: "json", Payload: []byte(payload),
			})
			page := s.get("/edit?ref=mail/a")
			// A browser sends the text of a field with these line ends.
			text := strings.ReplaceAll(between(t, page, `spellcheck="false">`, `</textarea>`), "\n", "\r\n")
			version := between(t, page, `name="version" value="`, `"`)
			if code, page := s.post("/edit", "ref", "mail/a", "version", version, "params", text); code != http.StatusOK {
				t.Errorf("%s of %d bytes: %d\n%.2000s", what, len(payload), code, page)
			}
			if got := params(t, store); got != payload {
				t.Errorf("%s: the parameters changed, from %d bytes to %d", what, len(payload), len(got))
			}
		}
	})
}

// TestAFormThatIsTooLargeIsRefused checks that the error about a form that is larger than the limit names the
// limit.
func TestAFormThatIsTooLargeIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := inserted(t, dashboard.Config{}, storage.Insert{Ref: theTask, Delay: time.Hour})
		for _, path := range []string{"/edit", "/queues/mail/add", "/action"} {
			code, page := s.post(path, "ref", "mail/a", "params", strings.Repeat("x", 16<<20))
			if code != http.StatusRequestEntityTooLarge || !strings.Contains(page, "The form is larger than") {
				t.Errorf("POST %s of 16 MiB: %d, want 413", path, code)
			}
		}
	})
}

// TestAnEditRunsATaskThatIsDueLater checks the buttons of the form and their effect in each state.
func TestAnEditRunsATaskThatIsDueLater(t *testing.T) {
	for state, c := range map[storage.State]struct{ button, said string }{
		storage.Scheduled: {"Save and run now", "The parameters are saved, and the task is due now."},
		storage.Dead:      {"Save and requeue", "The parameters are saved, and the task is requeued."},
		storage.Waiting:   {"", ""},
	} {
		in := storage.Insert{Ref: theTask, Encoding: "json", Payload: []byte(`{"to":"x"}`)}
		if state == storage.Scheduled {
			in.Delay = time.Hour
		}
		s, store := inserted(t, dashboard.Config{}, in)
		if state == storage.Dead {
			settle(t, storage.NewSession(store, 0), storage.Settle{Outcome: storage.Bury})
		}
		form := s.get("/edit?ref=mail/a")
		if strings.Contains(form, `name="requeue"`) != (c.button != "") || !strings.Contains(form, c.button) {
			t.Errorf("the form of a %s task has not the button %q", state, c.button)
		}
		if c.button == "" {
			continue
		}
		version := between(t, form, `name="version" value="`, `"`)
		for range 2 { // a form that is sent twice saves once
			code, page := s.post("/edit", "ref", "mail/a", "version", version, "params", `{"to":"bo"}`, "requeue", "1")
			if code != http.StatusOK || !strings.Contains(page, "The parameters are saved") {
				t.Errorf("a %s task: %d, want 200 and %q", state, code, c.said)
			}
		}
		if task, err := store.Task(t.Context(), theTask); err != nil || task.State != storage.Waiting || params(t, store) != `{"to":"bo"}` {
			t.Errorf("the %s task is %s, %v; want it waiting with bo", state, task.State, err)
		}
	}
}

// TestAMistypedFieldGivesAWarning checks both forms for parameters.
func TestAMistypedFieldGivesAWarning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := inserted(t, dashboard.Config{}, storage.Insert{Ref: theTask, Delay: time.Hour, Encoding: "json", Payload: []byte(`{"to":"x"}`)})
		version := between(t, s.get("/edit?ref=mail/a"), `name="version" value="`, `"`)
		for _, c := range []struct {
			path string
			form []string
		}{
			{"/queues/mail/add", []string{"kind", "k", "params", `{"too":"x"}`, "fresh", "b"}},
			{"/edit", []string{"ref", "mail/a", "version", version, "params", `{"to":"x","cc":1}`}},
		} {
			field := map[string]string{"/edit": "cc", "/queues/mail/add": "too"}[c.path]
			want := "No other task of the kind k in mail has the field " + field + "."
			if code, page := s.post(c.path, c.form...); code != http.StatusOK || !strings.Contains(page, want) {
				t.Errorf("%s leads to %d, want 200 and %q", c.path, code, want)
			}
		}
	})
}
