package dashboard_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// finish runs all tasks of a queue that wait, and completes them. It returns their number.
func (s *site) finish(queue string) int {
	s.t.Helper()
	session := storage.NewSession(s.Store, 0)
	claimed, err := session.Claim(s.t.Context(), storage.ClaimRequest{
		Runner: storage.NewRunnerID("host", 1), Queues: []storage.ClaimQueue{{Name: queue}}, Start: 1000, Lease: time.Minute,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, fence := range claimed.Fences {
		_, err := session.ApplyOne(s.t.Context(), storage.Tx{
			Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}},
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return len(claimed.Tasks)
}

// TestATaskThatEndsAtOnceIsEnqueuedOnce checks that a form which is sent again enqueues nothing, even if the
// task of its first sending is completed by then, as tasks often are within milliseconds.
func TestATaskThatEndsAtOnceIsEnqueuedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		s.finish("mail")
		for name, send := range map[string]func() (int, string){
			"a run of a schedule": func() (int, string) {
				return s.post("/action", "do", "run", "ref", "mail/cursor.daily_digest", "fresh", "form-1")
			},
			"an added task": func() (int, string) {
				return s.post("/queues/mail/add", "kind", "send_welcome", "params", "{}", "fresh", "form-2")
			},
		} {
			ran := 0
			for range 3 {
				if code, page := send(); code != http.StatusOK {
					t.Errorf("%s: %d %.200s", name, code, page)
				}
				ran += s.finish("mail")
			}
			if ran != 1 {
				t.Errorf("%s that was sent three times ran %d times, want once", name, ran)
			}
		}
	})
}

// TestADialogTakesEffectOnce checks that a dialog on all tasks that match is done once, however often it is
// sent: the limit that a person confirmed holds for all sendings together.
func TestADialogTakesEffectOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, do := range []string{"delete", "requeue"} {
			s := open(t, "night", as(access.Admin))
			dialog := func() string {
				page := s.get("/action?do=" + do + "&all=1&state=dead&filter=kind:send_digest")
				return between(t, page, `name="form" value="`, `"`)
			}
			send := func(form string, more ...string) (int, string) {
				return s.post("/action", append([]string{
					"do", do, "all", "1", "state", "dead", "filter", "kind:send_digest", "form", form,
				}, more...)...)
			}
			before, form := len(s.list("mail", storage.Dead)), dialog()
			if code, _ := send(form, "count", "none"); code != http.StatusBadRequest {
				t.Errorf("%s with a bad count: %d, want 400", do, code)
			}
			for i := range 3 {
				if code, page := send(form, "count", "10"); code != http.StatusOK || !strings.Contains(page, "10 tasks") {
					t.Errorf("%s, sent for the %d. time: %d", do, i+1, code)
				}
			}
			if got := before - len(s.list("mail", storage.Dead)); got != 10 {
				t.Errorf("%s that was confirmed for 10 tasks and sent three times actions on %d", do, got)
			}
			send(dialog(), "count", "10")
			if got := before - len(s.list("mail", storage.Dead)); got != 20 {
				t.Errorf("two dialogs to %s 10 tasks action on %d", do, got)
			}
		}
	})
}

// TestAnEditThatIsSentTwiceIsSaved checks that the second sending of an edit does not report that nothing was
// saved.
func TestAnEditThatIsSentTwiceIsSaved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "night", as(access.Admin))
		for i, more := range [][]string{{}, {"requeue", "1"}} {
			ref := s.list("mail", storage.Dead)[0]
			version := between(t, s.get("/edit?ref="+ref), `name="version" value="`, `"`)
			form := append([]string{"ref", ref, "version", version, "params", fmt.Sprintf(`{"user":%d}`, i)}, more...)
			for range 2 {
				if code, page := s.post("/edit", form...); code != http.StatusOK || !strings.Contains(page, "are saved") {
					t.Errorf("the edit %v: %d, want it saved", form, code)
				}
			}
			form[5] = `{"user":99}`
			if code, _ := s.post("/edit", form...); code != http.StatusConflict {
				t.Errorf("another edit of the same version: %d, want 409", code)
			}
		}
	})
}

// leaving is a storage whose viewer leaves while it configures a queue.
type leaving struct {
	storage.Storage

	leave   context.CancelFunc
	unknown bool // the storage never returns the outcome
}

func (l *leaving) Configure(ctx context.Context, call storage.Call, queue string, set storage.Settings) error {
	err := l.Storage.Configure(ctx, call, queue, set)
	if l.leave(); l.unknown || ctx.Err() != nil {
		return fmt.Errorf("%w: %w", storage.ErrUnknown, context.Canceled)
	}
	return err
}

// TestAnActionOutlivesItsViewer checks that the audit has the outcome of an action whose viewer leaves, and
// that it keeps an action as intended if nobody knows.
func TestAnActionOutlivesItsViewer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, unknown := range []bool{false, true} {
			s := open(t, "night", as(access.Admin))
			ctx, leave := context.WithCancel(t.Context())
			h, err := dashboard.Handler(&leaving{s.Store, leave, unknown}, as(access.Admin))
			if err != nil {
				t.Fatal(err)
			}
			(&site{t: t, Scene: s.Scene, Dashboard: h}).do(request(http.MethodPost, "/action", "do=pause&queue=mail").WithContext(ctx))
			actions, _, err := ledger.NewAudit(s.Store).List(t.Context(), "", 1)
			want := ledger.Done
			if unknown {
				want = ledger.Intended
			}
			if err != nil || actions[0].Action != "pause" || actions[0].Outcome != want {
				t.Errorf("an action whose outcome is unknown, %t: the audit has %+v, %v; want %s", unknown, actions, err, want)
			}
		}
	})
}

// dialog opens the dialog of an action, and returns its hidden fields.
func (s *site) dialog(path string) (fields []string) {
	s.t.Helper()
	for _, field := range regexp.MustCompile(`type="hidden" name="(.*?)" value="(.*?)"`).FindAllStringSubmatch(s.get(path), -1) {
		fields = append(fields, field[1], html.UnescapeString(field[2]))
	}
	return fields
}

// TestADialogIsForTheTasksThatItShowed changes a task while a dialog about it is open. A task that another user
// has requeued by then, and that has completed, does not run again. A cancel is meant for a task that has
// started, too.
func TestADialogIsForTheTasksThatItShowed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b := waiting("a"), waiting("b")
		a.Keep, b.Keep = storage.Keep{For: time.Hour}, storage.Keep{For: time.Hour}
		s, store := inserted(t, as(access.Admin), a)
		session := storage.NewSession(store, 0)
		posts := func(want string, fields ...string) {
			t.Helper()
			if code, page := s.post("/action", fields...); code != http.StatusOK || !strings.Contains(page, want) {
				t.Errorf("%s: %d, want %q: %s", fields[1], code, want, page)
			}
		}
		settle(t, session, storage.Settle{Outcome: storage.Bury, Error: "x"})
		requeue := s.dialog("/action?do=requeue&ref=mail/a")
		posts("1 task requeued.", s.dialog("/action?do=requeue&ref=mail/a")...)
		settle(t, session, storage.Settle{Outcome: storage.Complete})
		posts("0 of 1 task requeued, 1 changed meanwhile.", requeue...)

		s, store = inserted(t, as(access.Admin), a, b)
		session = storage.NewSession(store, 0)
		fields := s.dialog("/action?do=delete&ref=mail/a&ref=mail/b&ref=mail/a")
		settle(t, session, storage.Settle{Outcome: storage.Complete})
		posts("1 of 2 tasks deleted, 1 changed meanwhile.", fields...)

		s, store = inserted(t, as(access.Admin), a, b)
		session = storage.NewSession(store, 0)
		fields = s.dialog("/action?do=cancel&ref=mail/a&ref=mail/b")
		if _, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Lease: time.Minute,
		}); err != nil {
			t.Fatal(err)
		}
		posts("2 tasks cancelled, 1 of them still running and asked to stop.", fields...)
	})
}

// TestADialogOnAFilterIsForTheTasksThatItCounted enqueues a task that starts first while a dialog is open, and
// checks a moment that no dialog has.
func TestADialogOnAFilterIsForTheTasksThatItCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, do := range []string{"cancel", "delete"} {
			s, store := inserted(t, as(access.Admin), waiting("a"))
			fields := s.dialog("/action?do=" + do + "&all=1&queue=mail&state=waiting")
			nextReading()
			fresh := waiting("b")
			fresh.Kind, fresh.CrashLimit, fresh.Encoding, fresh.Payload, fresh.Priority = "k", 3, "json", []byte("{}"), 9
			if _, err := storage.NewSession(store, 0).ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{fresh}}); err != nil {
				t.Fatal(err)
			}
			if code, page := s.post("/action", fields...); code != http.StatusOK || !strings.Contains(page, "1 task "+do) {
				t.Errorf("%s: %d %.300s", do, code, page)
			}
			if _, err := store.Task(t.Context(), fresh.Ref); err != nil {
				t.Errorf("%s took the task that came later: %v", do, err)
			}
			if code, _ := s.post("/action", "do", do, "all", "1", "queue", "mail", "count", "1", "seen", "x"); code != http.StatusBadRequest {
				t.Errorf("a bad moment: %d", code)
			}
			if code, page := s.post("/action", "do", do, "all", "1", "queue", "mail", "count", "1"); code != http.StatusOK || !strings.Contains(page, "1 task "+do) {
				t.Errorf("a form without a moment: %d %.300s", code, page)
			}
		}
	})
}

// TestADialogWithBadVersionsIsRefused checks fields that no dialog has. A form without versions, of an earlier
// version of midge, is for the tasks as they are.
func TestADialogWithBadVersionsIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, _ := inserted(t, as(access.Admin), waiting("a"), waiting("b"))
		for _, versions := range [][]string{{"x", "1"}, {"-1", "1"}, {"1"}, {"1", "2", "3"}, {"99999999999999999999", "1"}, {"", ""}} {
			form := []string{"do", "delete", "ref", "mail/a", "ref", "mail/b"}
			for _, version := range versions {
				form = append(form, "version", version)
			}
			if code, page := s.post("/action", form...); code != http.StatusBadRequest {
				t.Errorf("the versions %q: %d %.200s", versions, code, page)
			}
		}
		s.get("/action?do=delete&ref=mail/a&version=7")
		if _, page := s.post("/action", "do", "delete", "ref", "mail/a", "ref", "mail/b"); !strings.Contains(page, "2 tasks deleted.") {
			t.Errorf("a form without versions: %s", page)
		}
	})
}
