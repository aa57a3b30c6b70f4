package dashboard

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// auditData is the data of the page of the audit.
type auditData struct {
	Actions     []ledger.Entry
	First, Next string
}

func (s *server) audits(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title = "audit", "Audit", "Audit"
	after := r.FormValue("after")
	words := []string{"midge", "audit"}
	if after != "" {
		words = append(words, "--after="+after)
	}
	v.Command = commandLine(words...)
	actions, next, err := s.audit.List(r.Context(), after, pageSize)
	if err != nil {
		return err
	}
	for i := range actions {
		s.veil(v, &actions[i])
	}
	d := auditData{Actions: actions}
	if after != "" {
		d.First = v.URL("/audit")
	}
	if next != "" {
		d.Next = v.URL("/audit", "after", next)
	}
	v.Data = d
	return nil
}

// veil hides the filter of an action from a viewer who may not search by it, because the filter shows for
// which parameters and headers others have searched. It also hides the error of the action, which may repeat
// the filter, and the error of an edit, which may repeat a value of the parameters. Errors of the storage
// have addresses of servers, so a viewer who may change nothing sees no error.
func (s *server) veil(v *view, action *ledger.Entry) {
	if !v.User.May(access.Operate) {
		action.Error = ""
	}
	if action.Action == string(bulk.Edit) && !s.seesAll(v) {
		action.Error = ""
	}
	if !s.seesFilter(v, action.Filter) {
		action.Filter, action.Error = access.Hidden, ""
	}
}

// seesAll reports whether nothing is hidden from a viewer.
func (s *server) seesAll(v *view) bool { return v.May(string(access.Payloads)) && s.cfg.Redact == nil }

// seesFilter reports whether a viewer may search by a filter, and so may see it.
func (s *server) seesFilter(v *view, text string) bool {
	f, err := filter.Parse(text)
	if err != nil {
		return s.seesAll(v)
	}
	return s.mayFilter(v, f) == nil
}

// auditTimeout limits the write that records the result of an action.
const auditTimeout = 5 * time.Second

// entry returns the record of an action by the user of a request. It has nothing of the form: the caller adds
// what the action uses.
func (s *server) entry(r *http.Request, action string) ledger.Entry {
	user := userOf(r.Context())
	return ledger.Entry{Who: user.Name, Role: string(user.Role), Via: "dashboard", Action: action}
}

// begin records in the audit what is about to be done. If the storage is too full for the record, an action
// that makes room goes on, and its record waits. After any other error the caller must not do the action.
func (s *server) begin(ctx context.Context, e ledger.Entry) (*ledger.Action, error) {
	record, err := s.audit.Begin(ctx, e)
	if err == nil || !makesRoom[e.Action] || !errors.Is(err, storage.ErrFull) {
		return record, err
	}
	return s.audit.BeginLate(ctx, e)
}

// makesRoom are the actions that people need to make room in a full storage.
var makesRoom = map[string]bool{"delete": true, "cancel": true, "resume": true, "resume-partition": true}

// lateText is the sentence of a dialog on an action that makes room in a full storage.
const lateText = " The storage is full. The audit gets the record of this action once there is room: " +
	"until then it waits in the memory of this process."

// flushEach is how often the records that wait for room are tried again.
const flushEach = 10 * time.Second

// flush writes the records and the logouts that the storage did not take, until ctx ends.
func (s *server) flush(ctx context.Context) {
	ticker := time.NewTicker(flushEach)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if s.audit.Waiting() > 0 {
				_ = s.audit.Flush(ctx) // the next turn tries again
			}
			s.logouts.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
			defer cancel()
			_ = s.audit.Flush(last) // what is left then is only in the log
			s.logouts.flush(last)
			return
		}
	}
}

// loggable returns the filter of an action as the log has it: hidden if it names values of parameters or
// headers. Other filters name refs, kinds and errors, which the log has anyway.
func loggable(text string) string {
	if f, err := filter.Parse(text); err != nil || len(f.Fields()) > 0 {
		return access.Hidden
	}
	return text
}

// written records how an action ended in the audit. If the storage refuses the record, the audit has only the
// intent.
func (s *server) written(ctx context.Context, record *ledger.Action, end ledger.Ending) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	if record.Late() {
		e := record.Entry()
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn,
			"midge: the storage is full: the record of an action waits in memory",
			slog.String("who", e.Who), slog.String("action", e.Action), slog.String("queue", e.Queue),
			slog.String("filter", loggable(e.Filter)), slog.Any("ids", e.IDs), slog.Int("changed", end.Count),
			slog.Any("error", end.Err))
	}
	if err := record.End(ctx, end); err != nil {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "midge: the audit does not know what became of an action",
			slog.Any("error", err))
	}
}

// writtenOne is like written, for an action on one thing. If the outcome of the action is not known, the
// record stays as it is: intended.
func (s *server) writtenOne(ctx context.Context, record *ledger.Action, failed error) {
	end := ledger.Ending{Count: 1, Err: failed}
	switch {
	case errors.Is(failed, storage.ErrUnknown) && !record.Late():
		return
	case failed != nil:
		end.Count = 0
	}
	s.written(ctx, record, end)
}
