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
func (s *site) requeueWithCanary() (page, act string) {
	s.t.Helper()
	s.shows("/act?do=requeue&all=1&queue=mail&state=scheduled", `name="canary"`)
	code, page := s.post("/act", "do", "requeue", "all", "1", "queue", "mail", "state", "scheduled", "count", "3", "rate", "10", "canary", "1")
	if code != http.StatusOK {
		s.t.Fatalf("a requeue with a canary: %d %s", code, page)
	}
	return page, "/acts/" + between(s.t, page, `action="/acts/`, `/stop"`)
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
				page, act := s.requeueWithCanary()
				if !strings.Contains(page, "The other tasks wait for its attempt.") || !strings.Contains(page, `href="/r/mail/`) {
					t.Errorf("the page of the action does not name its canary:\n%s", page)
				}
				settleAll(t, store, c.settle)
				time.Sleep(5 * time.Second) // virtual
				s.shows(act, c.text)
				acts, _, err := ledger.NewAudit(store).List(t.Context(), "", 1)
				if err != nil || acts[0].Outcome != c.outcome || acts[0].Note != "with a canary" || strings.Contains(acts[0].Error, "smtp") {
					t.Errorf("the audit has %+v, %v, want %s", acts, err, c.outcome)
				}
			})
		})
	}
}

// TestOnlyARequeueHasACanary checks that another action with the parameter is refused and not recorded.
func TestOnlyARequeueHasACanary(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, store := inserted(t, as(access.Admin), later("a"))
		if page := s.get("/act?do=cancel&all=1&queue=mail&state=scheduled"); strings.Contains(page, `name="canary"`) {
			t.Error("the dialog of a cancel offers a canary")
		}
		code, _ := s.post("/act", "do", "cancel", "ref", "mail/a", "canary", "1")
		acts, _, err := ledger.NewAudit(store).List(t.Context(), "", 1)
		if code != http.StatusBadRequest || err != nil || len(acts) > 0 {
			t.Errorf("a cancel with a canary: %d, %v in the audit, %v; want 400 and no record", code, acts, err)
		}
	})
}

// TestARestartEndsACanaryRequeue checks that the audit has how many tasks were requeued by then, if the process
// ends in order and if it is killed.
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
			acts, _, err := ledger.NewAudit(store).List(t.Context(), "", 1)
			if err != nil || acts[0].Outcome != outcome || acts[0].Count != 1 {
				t.Errorf("the audit has %+v, %v, want %s after one task", acts, err, outcome)
			}
		}
		audit(ledger.Intended) // as a kill leaves it
		s.shows("/audit", "1 task at least")
		stop()
		<-ended
		audit(ledger.Failed)
	})
}
