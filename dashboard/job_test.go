package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/storage"
)

// TestSlowActionsHoldUpNoActionOnATask checks that further slow actions are refused, but actions on named
// tasks are done.
func TestSlowActionsHoldUpNoActionOnATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		tasks := []storage.Insert{{Ref: theTask, Delay: time.Hour}}
		for i := range 100 {
			tasks = append(tasks, storage.Insert{Ref: storage.Ref{Queue: "slow", ID: fmt.Sprint(i)}, Delay: time.Hour})
		}
		s, _ := inserted(t, as(access.Admin), tasks...)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(ctx) }()
		slow := func() (int, string) {
			return s.post("/action", "do", "requeue", "all", "1", "queue", "slow", "state", "scheduled", "count", "50", "rate", "1")
		}
		for range 8 {
			if code, _ := slow(); code != http.StatusOK {
				t.Fatalf("a slow action: %d", code)
			}
		}
		if code, page := slow(); code != http.StatusServiceUnavailable || !strings.Contains(page, "Too many actions") {
			t.Errorf("a slow action beside eight others: %d, want 503", code)
		}
		if code, page := s.post("/action", "do", "requeue", "ref", "mail/a"); code != http.StatusOK ||
			!strings.Contains(page, "1 task requeued") {
			t.Errorf("an action on a task beside slow actions: %d, want it done", code)
		}
		if code, _ := s.post("/action", "do", "cancel", "ref", "slow/99", "rate", "1"); code != http.StatusServiceUnavailable {
			t.Errorf("a slow action on a named task: %d, want 503", code)
		}
		stop()
		<-ended
	})
}

// TestAnActionShowsItsFilterToThoseWhoMaySearchByIt runs an action by a filter on parameters, and one on named tasks
// from a page with such a filter. The page of the action shows no part of the filter to a viewer, while the action
// runs and when it has ended.
func TestAnActionShowsItsFilterToThoseWhoMaySearchByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		var tasks []storage.Insert
		for _, queue := range []string{"slow", "named"} {
			for i := range 36 {
				tasks = append(tasks, storage.Insert{
					Ref: storage.Ref{Queue: queue, ID: fmt.Sprint(i)}, Delay: time.Hour, Encoding: "json",
					Payload: []byte(`{"email":"eve@x.org"}`),
				})
			}
		}
		cfg, role := as(access.Operator), access.Operator
		cfg.Who = func(*http.Request) (access.User, bool) { return access.User{Name: "ann", Role: role}, true }
		s, _ := inserted(t, cfg, tasks...)
		all := []string{"all", "1", "queue", "slow", "state", "scheduled", "count", "36", "filter", "params.email:eve*"}
		var named []string
		for i := range 36 {
			named = append(named, "ref", fmt.Sprint("named/", i))
		}
		for _, chosen := range [][]string{all, named} {
			role = access.Operator
			_, page := s.post("/action", append(chosen, "do", "requeue", "rate", "10", "back", "/tasks?filter=params.email:eve*")...)
			action := "/actions/" + between(t, page, `action="/actions/`, `/stop"`)
			for _, part := range []string{`href="/tasks?filter=params.email`, `data-go="/tasks?filter=params.email`} {
				role = access.Operator
				s.shows(action, part)
				role = access.Viewer
				page := s.get(action)
				if strings.Contains(page, "eve") || strings.Contains(page, "email") {
					t.Errorf("a viewer sees the filter:\n%s", page)
				}
				if !strings.Contains(page, `class="button" href="/tasks"`) || strings.Contains(page, access.Hidden) != (chosen[0] == "all") {
					t.Errorf("a viewer sees neither a way back nor that a filter is hidden:\n%s", page)
				}
				time.Sleep(10 * time.Second) // virtual: the action ends
			}
		}
	})
}

// TestAnActionSaysHowFarItIsAndHowItEnded checks an action on 36 tasks, two of which somebody else requeues
// meanwhile.
func TestAnActionSaysHowFarItIsAndHowItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		var tasks []storage.Insert
		for i := range 36 {
			delay := time.Hour + time.Duration(i)*time.Second
			tasks = append(tasks, storage.Insert{Ref: storage.Ref{Queue: "slow", ID: fmt.Sprint(i)}, Delay: delay})
		}
		s, _ := inserted(t, as(access.Admin), tasks...)
		code, page := s.post("/action", "do", "requeue", "all", "1", "queue", "slow", "state", "scheduled", "count", "36", "rate", "10")
		if code != http.StatusOK || !strings.Contains(page, "Stop</button>") {
			t.Fatalf("an action that takes 4 s: %d, want its page with Stop\n%s", code, page)
		}
		for _, want := range []string{
			" of 36 requeued", "searched 36 of 36", "<code>queue:slow state:scheduled</code>", "at most 10 /s",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("after 1.5 s the page does not say %q:\n%s", want, page)
			}
		}
		// The page and a pair of the tasks may be due in the same moment.
		done := between(t, page, "%</progress>", " of 36 requeued")
		done = strings.TrimSpace(done[strings.LastIndex(done, ">")+1:])
		left, ok := map[string]string{"12": "about 3 s", "14": "about 2 s", "16": "about 2 s"}[done]
		if !ok || !strings.Contains(page, "<dd>"+left+"</dd>") {
			t.Errorf("after 1.5 s with %s of 36 done the page does not say %q:\n%s", done, left, page)
		}
		if percent, err := strconv.Atoi(between(t, page, `max="100" value="`, `"`)); err != nil || percent < 30 || percent > 50 {
			t.Errorf("after 1.5 s of 4 the bar is at %d %%, %v; want 30 to 50", percent, err)
		}
		action := "/actions/" + between(t, page, `action="/actions/`, `/stop"`)
		if code, _ := s.post("/action", "do", "requeue", "ref", "slow/34", "ref", "slow/35"); code != http.StatusOK {
			t.Fatalf("an action meanwhile: %d", code)
		}
		time.Sleep(5 * time.Second) // virtual
		s.shows(action, "34 of 36 tasks requeued, 2 changed meanwhile.")
		for _, past := range []string{"Stop</button>", "<progress"} {
			if strings.Contains(s.get(action), past) {
				t.Errorf("the page of an action that has ended has %q", past)
			}
		}
	})
}
