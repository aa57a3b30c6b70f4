package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// TestAnActionOnATaskThatIsNotKeptIsNotNotFound checks each action after which the page of its task may be
// gone before the browser fetches it: the viewer sees the result.
func TestAnActionOnATaskThatIsNotKeptIsNotNotFound(t *testing.T) {
	const gone = " The task no longer exists, because it has no retention."
	for _, c := range []struct {
		path, want string
		form       url.Values
		dead       bool
	}{
		{"/edit", "The parameters are saved, and the task is requeued." + gone, url.Values{"params": {"{}"}, "requeue": {"1"}}, true},
		{"/action", "1 task requeued." + gone, url.Values{"do": {"requeue"}}, true},
		{"/action", "1 task requeued." + gone, url.Values{"do": {"requeue"}}, false},
		{"/action", "1 task cancelled." + gone, url.Values{"do": {"cancel"}}, false},
		{"/action", "1 task deleted.", url.Values{"do": {"delete"}}, true},
	} {
		inBubble(t, func(t *testing.T) {
			in := storage.Insert{Ref: theTask, Delay: time.Hour}
			if c.dead {
				in.Delay = 0
			}
			s, store := inserted(t, dashboard.Config{}, in)
			session := storage.NewSession(store, 0)
			if c.dead {
				settle(t, session, storage.Settle{Outcome: storage.Bury})
			}
			c.form.Set("ref", theTask.String())
			c.form.Set("back", "/r/mail/a")
			if c.path == "/edit" {
				c.form.Set("version", between(t, s.get("/edit?ref=mail/a"), `name="version" value="`, `"`))
			}
			w := s.do(request(http.MethodPost, c.path, c.form.Encode()))
			if task, err := store.Task(t.Context(), theTask); err == nil && task.State == storage.Waiting {
				settle(t, session, storage.Settle{Outcome: storage.Complete})
			}
			for range 2 {
				if to := w.Header().Get("Location"); w.Code == http.StatusSeeOther {
					w = s.do(request(http.MethodGet, to, ""))
				}
			}
			page := strings.ReplaceAll(w.Body.String(), "\u00a0", " ")
			if w.Code != http.StatusOK || !strings.Contains(page, c.want) {
				t.Errorf("%s %v leads to %d, want 200 and %q", c.path, c.form, w.Code, c.want)
			}
		})
	}
}

// settle claims the only waiting task, and settles it.
func settle(t *testing.T, session *storage.Session, st storage.Settle) {
	t.Helper()
	claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: theTask.Queue}}, Start: 1, Lease: time.Minute,
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claimed %d tasks, %v; want one", len(claimed.Fences), err)
	}
	st.Fence = claimed.Fences[0]
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{st}}); err != nil {
		t.Fatal(err)
	}
}
