// Package audit has the audit of a storage keep what people do by the command.
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

// Writer writes acts into the audit of a storage. One without a Store writes none.
type Writer struct {
	Store storage.Storage
	// Who acts.
	Who string
	// Warn is told of what the audit did not take.
	Warn func(error)
}

// recordTime bounds how long an act waits for a record of it, and lateTime how long one does whose own
// time is over.
const (
	recordTime = 5 * time.Second
	lateTime   = time.Second
)

// Do does an act. It writes what is meant before, and the outcome afterwards: do gives how many things it
// changed. An audit that takes no record holds no act up, as it may be a full storage that is repaired.
func (w Writer) Do(ctx context.Context, e ledger.Entry, do func() (count int64, err error)) error {
	if w.Store == nil {
		_, err := do()
		return err
	}
	e.Who, e.Via = w.Who, "command"
	begin, stop := context.WithTimeout(ctx, recordTime)
	act, err := ledger.NewAudit(w.Store).Begin(begin, e)
	stop()
	w.warn(err)
	count, failed := do()
	left := recordTime
	if ctx.Err() != nil { // somebody waits no more
		left = lateTime
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer stop()
	w.warn(act.End(end, int(count), failed))
	return failed
}

// One is an act on one thing.
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
		w.Warn(fmt.Errorf("no full record of this act: %w", err))
	}
}

// Tasks is the entry of an act on tasks.
func Tasks(req bulk.Request) ledger.Entry {
	e := ledger.Entry{Act: string(req.Act.Verb), Note: note(&req.Act)}
	for _, t := range req.Tasks[:min(len(req.Tasks), ledger.MaxIDs)] {
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

// note says what an act does beyond its name.
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
	case act.Requeue:
		return "and requeue"
	}
	return ""
}
