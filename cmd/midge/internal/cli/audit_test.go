package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// actions returns the audit, the newest action first.
func (r *rig) actions() []ledger.Entry {
	r.t.Helper()
	actions, _, err := ledger.NewAudit(r.store).List(r.t.Context(), "", 200)
	if err != nil {
		r.t.Fatal(err)
	}
	return actions
}

func TestMidgesOwnQueuesAreLeftAsTheyAre(t *testing.T) {
	r := newRig(t)
	begun, err := ledger.NewAudit(r.store).Begin(t.Context(), ledger.Entry{Who: "ann", Action: "pause", Queue: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	if err := begun.End(t.Context(), ledger.Ending{Count: 1}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"queue rm midge.audit --yes", "queue rm midge.audit --dry-run", "queue pause midge.audit", "queue resume midge.audit",
		"task add x --queue midge.audit", "schedule run midge.audit/x", "schedule rm midge.audit/x --yes",
		"import asynq --queue x --to midge.audit --kind '*' --from redis://127.0.0.1:1",
	} {
		if got := r.run(line); got.code != BadInput || !strings.Contains(got.err, "midge's own") {
			t.Errorf("midge %s: got %+v, want %d", line, got, BadInput)
		}
	}
	if got := r.run("task rm --queue midge.audit --yes"); got.code == Done && strings.Contains(got.out, "deleted 1") {
		t.Errorf("task rm: got %+v", got)
	}
	if got := r.ok("queue show midge.audit -o json"); len(r.actions()) != 1 || !strings.Contains(got, `"paused": false`) {
		t.Errorf("the audit has %d actions, and is %s", len(r.actions()), got)
	}
}

// TestNoParameterIsInTheAudit checks that an edit whose parameters do not fit their task is refused before it
// is recorded. Its error has a value of the parameters, and more people read the audit than parameters.
func TestNoParameterIsInTheAudit(t *testing.T) {
	r := newRig(t)
	in := storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a1"}, Kind: "pay", Encoding: "json", Payload: []byte(`{"card":1}`)}
	r.insert(in)
	for _, flags := range []string{"", " --dry-run"} {
		got := r.run(`task edit mail/a1 --params '{"card":"4111 1111"}'` + flags)
		if got.code != BadInput || !strings.Contains(got.err, "invalid parameter card") || strings.Contains(got.err, "nothing was changed") {
			t.Errorf("an edit that does not fit%s: got %+v", flags, got)
		}
	}
	if actions := r.actions(); len(actions) > 0 {
		t.Errorf("the audit has %+v", actions)
	}
}

// TestActionsAreInTheAudit checks that each action of a person is in the audit, with its outcome.
func TestActionsAreInTheAudit(t *testing.T) {
	r := newRig(t)
	r.night()
	backup := filepath.Join(t.TempDir(), "dead.jsonl")
	for _, line := range []string{
		"queue pause mail --for 1h", "queue resume mail", "task requeue mail/a1", "task edit mail/a1 --priority 3",
		"task edit mail/b1 --params '{}'", "task rm --queue mail --state dead error:timeout --yes --backup " + backup,
		"task restore " + backup + " --yes", "task move mail/b1 mail/b2 --to letters --yes", "task rm mail/none", "task cancel kind:send_mail --dry-run",
		"schedule run reports/hourly", "schedule rm reports/nightly --yes", "queue rm letters --yes",
	} {
		r.run(line)
		r.now = r.now.Add(1e9)
	}
	var kept []string
	for _, e := range slices.Backward(r.actions()) {
		if e.Who != "ann@web-1" || e.Via != "command" || e.Ended.IsZero() {
			t.Errorf("got %+v, want who did it by the command", e)
		}
		kept = append(kept, fmt.Sprintf("%s queue=%s ids=%v filter=%q note=%q %s %d", e.Action, e.Queue, e.IDs, e.Filter, e.Note, e.Outcome, e.Count))
	}
	golden(t, "audit", strings.ReplaceAll(strings.Join(kept, "\n")+"\n", backup, "BACKUP"))
}

// TestNoTaskHidesInTheAudit checks that the record of an action has the task that the action changed, however
// many others the command names.
func TestNoTaskHidesInTheAudit(t *testing.T) {
	r := newRig(t)
	r.night()
	line := "task requeue"
	for i := range 500 {
		line += fmt.Sprint(" pay/none", i)
	}
	r.run(line + " mail/a1 --yes")
	e := r.actions()[0]
	if len(e.IDs) != 1 || e.IDs[0] != "mail/a1" || e.Queue != "mail" || e.Count != 1 {
		t.Errorf("the audit has %+v, want mail/a1", e)
	}
}

// closedBook is a storage whose audit takes no records.
type closedBook struct{ storage.Storage }

func (c closedBook) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	for _, tx := range txs {
		if len(tx.Inserts) > 0 && storage.Reserved(tx.Inserts[0].Ref.Queue) {
			return nil, storage.ErrFull
		}
	}
	return c.Storage.Apply(ctx, call, txs...)
}

func TestAnActionGoesOnWithoutTheAudit(t *testing.T) {
	r := newRig(t)
	r.night()
	r.store = closedBook{r.store}
	got := r.run("queue pause mail")
	var q struct{ Paused bool }
	if err := json.Unmarshal([]byte(r.ok("queue show mail -o json")), &q); err != nil || !q.Paused || got.code != Done {
		t.Errorf("got %+v, %v; want the queue paused", got, err)
	}
	if !strings.Contains(got.err, "warning: the audit has no full record of this action") {
		t.Errorf("got %q, want a warning", got.err)
	}
}
