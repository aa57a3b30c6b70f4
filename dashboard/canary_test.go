package dashboard_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// later is a task of queue mail that is due later.
func later(id string) storage.Insert {
	return storage.Insert{Ref: storage.Ref{Queue: "mail", ID: id}, Delay: time.Hour}
}

// waiting is a task of queue mail that is due now.
func waiting(id string) storage.Insert {
	return storage.Insert{Ref: storage.Ref{Queue: "mail", ID: id}}
}

// settleAll claims the waiting tasks of queue mail, and settles each.
func settleAll(t *testing.T, store storage.Storage, settle storage.Settle) {
	session := storage.NewSession(store, 0)
	claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 100, Lease: time.Minute,
	})
	if err != nil {
		t.Error(err)
	}
	for _, fence := range claimed.Fences {
		settle.Fence = fence
		if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
			t.Error(err)
		}
	}
}

// requeueWithCanary opens the dialog on the scheduled tasks of mail, and requeues them with a canary.
func (s *site) requeueWithCanary() (page, action string) {
	s.t.Helper()
	s.shows("/action?do=requeue&all=1&queue=mail&state=scheduled", `name="canary"`)
	code, page := s.post("/action", "do", "requeue", "all", "1", "queue", "mail", "state", "scheduled", "count", "3", "rate", "10", "canary", "1")
	if code != http.StatusOK {
		s.t.Fatalf("a requeue with a canary: %d %s", code, page)
	}
	return page, "/actions/" + between(s.t, page, `action="/actions/`, `/stop"`)
}

// TestADialogRequeuesACanaryFirst checks the page of the action while the canary waits and after its end, and
// the audit.
func TestADialogRequeuesACanaryFirst(t *testing.T) {
	for name, c := range map[string]struct {
		settle  storage.Settle
		text    string
		outcome string
	}{
		"completes": {storage.Settle{Outcome: storage.Complete}, "3 tasks requeued.", ledger.Done},
		"fails":     {storage.Settle{Outcome: storage.Bury, Error: "smtp: refused"}, "was discarded by its job. smtp: refused", ledger.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
				s, store := inserted(t, as(access.Admin), later("a"), later("b"), later("c"))
				page, action := s.requeueWithCanary()
				if !strings.Contains(page, "The other tasks wait for its attempt.") || !strings.Contains(page, `href="/r/mail/`) {
					t.Errorf("the page of the action does not name its canary:\n%s", page)
				}
				settleAll(t, store, c.settle)
				time.Sleep(5 * time.Second) // virtual
				s.shows(action, c.text)
				actions, _, err := ledger.NewAudit(store).List(t.Context(), "", 1)
				if err != nil || actions[0].Outcome != c.outcome || actions[0].Note != "with a canary" || strings.Contains(actions[0].Error, "smtp") {
					t.Errorf("the audit has %+v, %v, want %s", actions, err, c.outcome)
				}
			})
		})
	}
}

// TestOnlyARequeueHasItsOptions checks that another action with a parameter of a requeue is refused and not
// recorded.
func TestOnlyARequeueHasItsOptions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store := inserted(t, as(access.Admin), later("a"))
		page := s.get("/action?do=cancel&all=1&queue=mail&state=scheduled")
		for _, option := range []string{"canary", "from_start"} {
			if strings.Contains(page, `name="`+option+`"`) {
				t.Errorf("the dialog of a cancel offers %s", option)
			}
			code, _ := s.post("/action", "do", "cancel", "ref", "mail/a", option, "1")
			actions, _, err := ledger.NewAudit(store).List(t.Context(), "", 1)
			if code != http.StatusBadRequest || err != nil || len(actions) > 0 {
				t.Errorf("a cancel with %s: %d, %v in the audit, %v; want 400 and no record", option, code, actions, err)
			}
		}
	})
}

// TestADialogForgetsCheckpoints requeues a task as it is and another from its start, and checks the audit.
func TestADialogForgetsCheckpoints(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store := inserted(t, as(access.Admin), waiting("a"), waiting("b"))
		session := storage.NewSession(store, 0)
		claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 2, Lease: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, fence := range claimed.Fences {
			leases := []storage.Extension{{Fence: fence, Checkpoint: []byte("7")}}
			if _, err := session.Extend(t.Context(), storage.ExtendRequest{Leases: leases}); err != nil {
				t.Fatal(err)
			}
			bury := storage.Settle{Fence: fence, Outcome: storage.Bury}
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{bury}}); err != nil {
				t.Fatal(err)
			}
		}
		s.shows("/action?do=requeue&ref=mail/a", `name="from_start"`)
		s.post("/action", "do", "requeue", "ref", "mail/a")
		s.post("/action", "do", "requeue", "ref", "mail/b", "from_start", "1")
		for id, want := range map[string]string{"a": "7", "b": ""} {
			got, err := store.Task(t.Context(), storage.Ref{Queue: "mail", ID: id})
			if err != nil || got.State != storage.Waiting || string(got.Checkpoint) != want {
				t.Errorf("%s is %s with checkpoint %q, %v; want %q", id, got.State, got.Checkpoint, err, want)
			}
		}
		actions, _, err := ledger.NewAudit(store).List(t.Context(), "", 2)
		notes := map[string]string{}
		for _, action := range actions {
			notes[action.IDs[0]] = action.Note
		}
		if err != nil || notes["mail/a"] != "" || notes["mail/b"] != "from the start" {
			t.Errorf("the audit has %+v, %v", actions, err)
		}
	})
}

// TestARestartEndsACanaryRequeue checks that the audit has how many tasks were requeued by then, if the
// process ends in order and if it is killed.
func TestARestartEndsACanaryRequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		s, store := inserted(t, as(access.Admin), later("a"), later("b"), later("c"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(ctx) }()
		s.requeueWithCanary()
		time.Sleep(30 * time.Second) // virtual
		audit := func(outcome string) {
			t.Helper()
			actions, _, err := ledger.NewAudit(store).List(t.Context(), "", 1)
			if err != nil || actions[0].Outcome != outcome || actions[0].Count != 1 {
				t.Errorf("the audit has %+v, %v, want %s after one task", actions, err, outcome)
			}
		}
		audit(ledger.Intended) // as a kill leaves it
		s.shows("/audit", "1 task at least")
		stop()
		<-ended
		audit(ledger.Failed)
	})
}
