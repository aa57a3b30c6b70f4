package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

var auditList = show.List[ledger.Entry]{
	Columns: []show.Column[ledger.Entry]{
		{Name: "when", Text: func(p *show.Printer, e ledger.Entry) string { return p.Moment(e.At) }},
		{Name: "who", Text: func(_ *show.Printer, e ledger.Entry) string { return dash(show.Text(e.Who)) }},
		{Name: "role", Wide: true, Text: func(_ *show.Printer, e ledger.Entry) string {
			return dash(show.Text(e.Role))
		}},
		{Name: "via", Wide: true, Text: func(_ *show.Printer, e ledger.Entry) string {
			return dash(show.Text(e.Via))
		}},
		{Name: "action", Text: func(_ *show.Printer, e ledger.Entry) string {
			return dash(show.Text(e.Action))
		}},
		{
			Name: "outcome", Text: func(_ *show.Printer, e ledger.Entry) string {
				if e.Stopped != "" {
					return show.Text(e.Outcome + ", stopped by " + e.Stopped)
				}
				return show.Text(e.Outcome)
			},
			Style: func(e ledger.Entry) show.Style {
				if e.Outcome != ledger.Done {
					return show.Bad
				}
				return show.Plain
			},
		},
		{Name: "count", Right: true, Text: func(_ *show.Printer, e ledger.Entry) string {
			return show.Number(int64(e.Count))
		}},
		{Name: "on", Text: func(_ *show.Printer, e ledger.Entry) string { return dash(show.Text(targetOf(e))) }},
		{Name: "error", Wide: true, Text: func(_ *show.Printer, e ledger.Entry) string {
			return show.Text(e.Error)
		}},
	},
	Record: func(e ledger.Entry) any { return show.EntryOf(e) },
	ID:     func(e ledger.Entry) string { return e.ID },
}

// targetOf returns the target of an action: a queue, a filter or tasks, and the note.
func targetOf(e ledger.Entry) string {
	on := e.Queue
	switch {
	case e.Filter != "":
		on = e.Filter
	case len(e.IDs) == 1:
		on = nameOf(e.IDs[0])
	case len(e.IDs) > 1:
		on = fmt.Sprintf("%s and %d more", nameOf(e.IDs[0]), len(e.IDs)-1)
	}
	return strings.TrimSpace(on + " " + e.Note)
}

// nameOf returns the name of a schedule whose ref is text, and any other text as it is.
func nameOf(text string) string {
	if ref, err := refOf(text); err == nil {
		return schedule.Name(ref)
	}
	return text
}

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "List what people did with the command and the dashboard",
		Long: "audit lists the actions of people, the newest first: the person, the action, its\n" +
			"tasks and its outcome. The storage keeps an action for 90 days. It keeps about\n" +
			"10,000 actions, and of each person at most about the newest 1,000.",
		Example: "  midge audit\n  midge audit --limit 200 -o wide", Args: noArguments,
	}
	limit := cmd.Flags().Int("limit", 50,
		"list at most this number of actions; without it, -o ids and jsonl list all")
	after := cmd.Flags().String("after", "", "continue after this `cursor`, which the previous page printed")
	cmd.RunE = a.quick(func(ctx context.Context, _ []string) error {
		if *limit < 1 {
			return storage.Invalid("--limit", *limit, "1 or more")
		}
		if err := a.open(ctx); err != nil {
			return err
		}
		actions, next, err := a.actions(ctx, *after, a.most(cmd, *limit))
		if err != nil {
			return err
		}
		if err := list(ctx, a, auditList, actions, "no action yet"); err != nil {
			return err
		}
		if next != "" {
			a.notef("next: %s", a.with("--after", next))
		}
		return nil
	})
	return cmd
}

// actions reads the actions in the audit behind a cursor: at most a number of them, or all.
func (a *app) actions(
	ctx context.Context, after string, most int,
) (actions []ledger.Entry, next string, err error) {
	for next = after; len(actions) < most; {
		var page []ledger.Entry
		page, next, err = ledger.NewAudit(a.store).List(ctx, next, min(most-len(actions), storage.MaxPage))
		if actions = append(actions, page...); err != nil || next == "" {
			break
		}
	}
	return actions, next, err
}
