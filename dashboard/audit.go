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
	Acts        []ledger.Entry
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
	acts, next, err := s.audit.List(r.Context(), after, pageSize)
	if err != nil {
		return err
	}
	for i := range acts {
		s.veil(v, &acts[i])
	}
	d := auditData{Acts: acts}
	if after != "" {
		d.First = v.URL("/audit")
	}
	if next != "" {
		d.Next = v.URL("/audit", "after", next)
	}
	v.Data = d
	return nil
}

// veil hides the filter of an act from a viewer who may not search by it, because the filter shows for which
// parameters and headers others have searched. It also hides the error of the act, which may repeat the
// filter, and the error of an edit, which may repeat a value of the parameters.
func (s *server) veil(v *view, act *ledger.Entry) {
	f, err := filter.Parse(act.Filter)
	all := v.May(string(access.Payloads)) && s.cfg.Redact == nil // nothing is hidden from this viewer
	if err != nil && all {
		return
	}
	if act.Act == string(bulk.Edit) && !all {
		act.Error = ""
	}
	if err == nil {
		err = s.mayFilter(v, f)
	}
	if err != nil {
		act.Filter, act.Error = access.Hidden, ""
	}
}

// auditTimeout limits the write that records the result of an act.
const auditTimeout = 5 * time.Second

// entry returns the record of an act for the audit.
func (s *server) entry(r *http.Request, d *askData) ledger.Entry {
	user := userOf(r.Context())
	e := ledger.Entry{
		Who: user.Name, Role: string(user.Role), Via: "dashboard", Act: d.Do, Queue: d.Queue,
		IDs: d.Refs[:min(len(d.Refs), ledger.MaxIDs)],
	}
	if r.FormValue("all") != "" {
		e.Filter, e.IDs = commandFilter(chosenOf(r)), nil
	}
	if length := r.PostFormValue("for"); length != "" {
		e.Note = "for " + length
	}
	return e
}

// written records the result of an act in the audit. If the storage refuses the record, the audit has only
// the intent.
func (s *server) written(ctx context.Context, record *ledger.Act, count int, failed error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	if err := record.End(ctx, count, failed); err != nil {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "midge: the audit does not know what became of an act",
			slog.Any("error", err))
	}
}

// writtenOne is like written, for an act on one thing. If the outcome of the act is not known, the record
// stays as it is: intended.
func (s *server) writtenOne(ctx context.Context, record *ledger.Act, failed error) {
	count := 1
	switch {
	case errors.Is(failed, storage.ErrUnknown):
		return
	case failed != nil:
		count = 0
	}
	s.written(ctx, record, count, failed)
}
