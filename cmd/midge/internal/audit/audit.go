// Package audit records in the audit of a storage the actions of people who use the command.
package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// Writer writes actions into the audit of a storage. A Writer without a Store writes nothing.
type Writer struct {
	Store storage.Storage
	// Who is the name of the person who does the actions.
	Who string
	// Warn is called with the error of each record that the audit did not take.
	Warn func(error)
}

// recordTime bounds how long an action waits for each of its records. lateTime is the bound if the context of
// the action has ended.
const (
	recordTime = 5 * time.Second
	lateTime   = time.Second
)

// Do executes an action. It records the intention before it calls do, and the outcome afterwards. do returns
// the number of things that it changed. Do returns the error of do. An audit that takes no record does not
// stop the action, because the action may be the repair of a full storage.
func (w Writer) Do(ctx context.Context, e ledger.Entry, do func() (count int64, err error)) error {
	return w.Record(ctx, e, func() ledger.Ending {
		count, err := do()
		return ledger.Ending{Count: int(count), Err: err}
	})
}

// Record executes an action as Do does, and records the ending that do returns.
func (w Writer) Record(ctx context.Context, e ledger.Entry, do func() ledger.Ending) error {
	return w.record(ctx, e, func(*ledger.Action) ledger.Ending { return do() })
}

// Run executes an action on tasks, as Do does.
func (w Writer) Run(
	ctx context.Context, session *storage.Session, req bulk.Request,
) (r bulk.Result, err error) {
	err = w.record(ctx, entryOf(req), func(begun *ledger.Action) ledger.Ending {
		tell := req.Progress
		req.Progress = func(r bulk.Result) {
			if tell != nil {
				tell(r)
			}
			begun.Reached(ctx, int(r.Done))
		}
		r, err = bulk.Run(ctx, session, req)
		return ledger.Ending{Count: int(r.Done), IDs: r.IDs(), Err: err}
	})
	return r, err
}

// record executes an action, and records its intention before and its ending afterwards.
func (w Writer) record(ctx context.Context, e ledger.Entry, do func(*ledger.Action) ledger.Ending) error {
	if w.Store == nil {
		return do(nil).Err
	}
	e.Who, e.Via = w.Who, "command"
	begin, stop := context.WithTimeout(ctx, recordTime)
	begun, err := ledger.NewAudit(w.Store).Begin(begin, e)
	stop()
	w.warn(err)
	ended := do(begun)
	left := recordTime
	if ctx.Err() != nil { // the user no longer waits
		left = lateTime
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer stop()
	w.warn(begun.End(end, ended))
	return ended.Err
}

// One makes the function for Do from an action on one thing. The function counts 1 if do succeeds.
func One(do func() error) func() (int64, error) {
	return func() (int64, error) {
		if err := do(); err != nil {
			return 0, err
		}
		return 1, nil
	}
}

func (w Writer) warn(err error) {
	if err != nil {
		w.Warn(fmt.Errorf("the audit has no full record of this action: %w", err))
	}
}

// entryOf makes the entry of an action on tasks.
func entryOf(req bulk.Request) ledger.Entry {
	e := ledger.Entry{Action: string(req.Action.Verb), Note: note(&req.Action)}
	if req.Action.Verb == bulk.Requeue {
		e.Note = req.RequeueNote()
	}
	for _, t := range req.Tasks {
		e.IDs = append(e.IDs, t.Ref.String())
	}
	if len(req.Tasks) > 0 {
		return e
	}
	var words []string
	if len(req.Scan.Queues) > 0 {
		words = append(words, "queue:"+strings.Join(req.Scan.Queues, ","))
	}
	chosen := req.Scan.States
	if len(chosen) == 0 && len(req.Scan.Filter.States()) == 0 {
		chosen = req.Action.Default()
	}
	var states []string
	for _, s := range chosen {
		states = append(states, string(s))
	}
	if states != nil {
		words = append(words, "state:"+strings.Join(states, ","))
	}
	if !req.Scan.Filter.IsZero() {
		words = append(words, req.Scan.Filter.String())
	}
	e.Filter = strings.Join(words, " ")
	return e
}

// note returns the parameters of an action for people, "" for none.
func note(action *bulk.Action) string {
	switch {
	case action.Verb == bulk.Move:
		return "to " + action.Queue
	case action.Verb == bulk.Prioritise:
		return strings.TrimSpace(fmt.Sprintf("to %d %s", action.Priority, placeNote(action)))
	case action.Verb == bulk.Partition, action.Verb == bulk.Cost:
		return strings.TrimPrefix(placeNote(action), "and ")
	case action.Verb == bulk.Reschedule && !action.At.IsZero():
		return "to " + action.At.UTC().Format(time.RFC3339)
	case action.Verb == bulk.Reschedule:
		return "to now"
	case action.Verb == bulk.Edit:
		return editNote(action)
	}
	return ""
}

// editNote names the fields that an edit sets, but not their values, and what else it does.
func editNote(action *bulk.Action) string {
	var parts []string
	for _, s := range action.Set {
		parts = append(parts, s.Path)
	}
	for _, part := range []struct {
		is   bool
		text string
	}{
		{action.Requeue, "and requeue"},
		{action.FromStart, "from the start"},
		{action.Prioritised, fmt.Sprintf("and prioritise to %d", action.Priority)},
		{action.Partition != nil || action.Cost != nil, placeNote(action)},
		{action.Rescheduled && action.At.IsZero(), "and run now"},
		{action.Rescheduled && !action.At.IsZero(), "and reschedule to " + action.At.UTC().Format(time.RFC3339)},
	} {
		if part.is {
			parts = append(parts, part.text)
		}
	}
	return strings.Join(parts, " ")
}

// placeNote names the partition to which an action moves tasks and the cost that it sets, "" for none.
func placeNote(action *bulk.Action) string {
	var parts []string
	switch {
	case action.Partition == nil:
	case *action.Partition == "":
		parts = append(parts, "and to no partition")
	default:
		parts = append(parts, fmt.Sprintf("and to the partition %q", *action.Partition))
	}
	if action.Cost != nil {
		parts = append(parts, fmt.Sprintf("and to the cost %d", action.Cost.N()))
	}
	return strings.Join(parts, " ")
}
