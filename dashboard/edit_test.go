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
}

// TestALargeTaskIsSaved checks that a task up to the limit of the storage is saved as it was opened. Texts of
// many values have a lower limit, because an edit takes seconds for each hundred thousand values under the race
// detector.
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

// TestAFormThatIsTooLargeIsRefused checks that the error about a form that is larger than the limit says so.
func TestAFormThatIsTooLargeIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := inserted(t, dashboard.Config{}, storage.Insert{Ref: theTask, Delay: time.Hour})
		for _, path := range []string{"/edit", "/queues/mail/add", "/act"} {
			code, page := s.post(path, "ref", "mail/a", "params", strings.Repeat("x", 16<<20))
			if code != http.StatusRequestEntityTooLarge || !strings.Contains(page, "The form is larger than") {
				t.Errorf("POST %s of 16 MiB: %d, want 413", path, code)
			}
		}
	})
}
