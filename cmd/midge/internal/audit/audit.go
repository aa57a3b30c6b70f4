// Package audit records in the audit of a storage what people do by the command.
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

// Writer writes acts into the audit of a storage. A Writer without a Store writes nothing.
type Writer struct {
	Store storage.Storage
	// Who is the name of the person who acts.
	Who string
	// Warn is called with the error of each record that the audit did not take.
	Warn func(error)
}

// recordTime bounds how long an act waits for each of its records. lateTime is the bound if the context of
// the act has ended.
const (
	recordTime = 5 * time.Second
	lateTime   = time.Second
)

// Do executes an act. It records the intention before it calls do, and the outcome afterwards. do returns
// the number of things that it changed. Do returns the error of do. An audit that takes no record does not
// stop the act, because the act may be the repair of a full storage.
func (w Writer) Do(ctx context.Context, e ledger.Entry, do func() (count int64, err error)) error {
	return w.Record(ctx, e, func() ledger.Ending {
		count, err := do()
		return ledger.Ending{Count: int(count), Err: err}
	})
}

// Record executes an act as Do does, and records the ending that do returns.
func (w Writer) Record(ctx context.Context, e ledger.Entry, do func() ledger.Ending) error {
	return w.record(ctx, e, func(*ledger.Act) ledger.Ending { return do() })
}

// Run executes an act on tasks, as Do does.
func (w Writer) Run(
	ctx context.Context, session *storage.Session, req bulk.Request,
) (r bulk.Result, err error) {
	err = w.record(ctx, entryOf(req), func(act *ledger.Act) ledger.Ending {
		tell := req.Progress
		req.Progress = func(r bulk.Result) {
			if tell != nil {
				tell(r)
			}
			act.Reached(ctx, int(r.Done))
		}
		r, err = bulk.Run(ctx, session, req)
		return ledger.Ending{Count: int(r.Done), IDs: r.IDs(), Err: err}
	})
	return r, err
}

// record executes an act, and records its intention before and its ending afterwards.
func (w Writer) record(ctx context.Context, e ledger.Entry, do func(*ledger.Act) ledger.Ending) error {
	if w.Store == nil {
		return do(nil).Err
	}
	e.Who, e.Via = w.Who, "command"
	begin, stop := context.WithTimeout(ctx, recordTime)
	act, err := ledger.NewAudit(w.Store).Begin(begin, e)
	stop()
	w.warn(err)
	ended := do(act)
	left := recordTime
	if ctx.Err() != nil { // the user no longer waits
		left = lateTime
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer stop()
	w.warn(act.End(end, ended))
	return ended.Err
}

// One makes the function for Do of an act on one thing. It counts 1 if do succeeds.
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

// entryOf makes the entry of an act on tasks.
func entryOf(req bulk.Request) ledger.Entry {
	e := ledger.Entry{Act: string(req.Act.Verb), Note: note(&req.Act)}
	if req.Canary {
		e.Note = bulk.CanaryNote
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
	var states []string
	for _, s := range req.Scan.States {
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

// note returns the parameters of an act for people, "" for none.
func note(act *bulk.Act) string {
	switch {
	case act.Verb == bulk.Move:
		return "to " + act.Queue
	case act.Verb == bulk.Prioritise:
		return fmt.Sprintf("to %d", act.Priority)
	case act.Verb == bulk.Reschedule && !act.At.IsZero():
		return "to " + act.At.UTC().Format(time.RFC3339)
	case act.Verb == bulk.Reschedule:
		return "to now"
	case act.Verb == bulk.Edit:
		return editNote(act)
	}
	return ""
}

// editNote names the fields that an edit sets, but not their values, and what else it does.
func editNote(act *bulk.Act) string {
	var parts []string
	for _, s := range act.Set {
		parts = append(parts, s.Path)
	}
	for _, part := range []struct {
		is   bool
		text string
	}{
		{act.Requeue, "and requeue"},
		{act.Prioritised, fmt.Sprintf("and prioritise to %d", act.Priority)},
		{act.Rescheduled && act.At.IsZero(), "and run now"},
		{act.Rescheduled && !act.At.IsZero(), "and reschedule to " + act.At.UTC().Format(time.RFC3339)},
	} {
		if part.is {
			parts = append(parts, part.text)
		}
	}
	return strings.Join(parts, " ")
}
