package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

var historyList = show.List[ledger.Totals]{
	Columns: []show.Column[ledger.Totals]{
		{Name: "queue", Text: func(_ *show.Printer, t ledger.Totals) string { return show.Text(t.Queue) }},
		{Name: "enqueued", Right: true, Text: summed(func(t ledger.Totals) int64 { return t.Enqueued })},
		{Name: "done", Right: true, Text: summed(func(t ledger.Totals) int64 { return t.Done })},
		{Name: "failed", Right: true, Text: summed(func(t ledger.Totals) int64 { return t.Failed })},
		{Name: "dead", Right: true, Text: summed(func(t ledger.Totals) int64 { return t.Dead })},
		{Name: "waiting", Right: true, Text: summed(func(t ledger.Totals) int64 { return t.Waiting })},
		{Name: "oldest", Right: true, Text: func(_ *show.Printer, t ledger.Totals) string {
			if t.Waiting > 0 && t.Oldest == 0 { // the history has whole seconds
				return "<1s"
			}
			return age(t.Oldest)
		}},
	},
	Record: func(t ledger.Totals) any { return show.HistoryOf(t) },
	ID:     func(t ledger.Totals) string { return t.Queue },
}

func summed(of func(ledger.Totals) int64) func(*show.Printer, ledger.Totals) string {
	return func(_ *show.Printer, t ledger.Totals) string { return show.Number(of(t)) }
}

func (a *app) history() *cobra.Command {
	cmd := &cobra.Command{
		Use: "history [QUEUE]", Short: "Show what the queues did in the last hours or days",
		Long: "history shows for each queue how many tasks were enqueued, done, failed and\n" +
			"dead in a span of time, the largest number of waiting tasks, and the longest\n" +
			"wait. Programs that run a dashboard, such as midge serve, record the history.\n" +
			"For a time without such a program it has only sums. The queue with the most\n" +
			"attempts comes first.",
		Example: "  midge history\n  midge history --span 7d mail", Args: wants(0, 1, "one queue at most"),
	}
	span := cmd.Flags().String("span", "1h", "the span of time up to now: `1h`, 6h, 24h, 7d, 30d or 90d")
	cmd.RunE = a.quick(func(ctx context.Context, args []string) error {
		of, err := ledger.SpanOf(*span)
		if err != nil {
			return err
		}
		for _, name := range args {
			if err := storage.CheckName("queue name", name); err != nil {
				return err
			}
		}
		if err := a.open(ctx); err != nil {
			return err
		}
		now, err := a.session.Now(ctx)
		if err != nil {
			return err
		}
		end := of.End(now)
		series, err := ledger.New(a.store).Series(ctx, end.Add(-of.Length), end, of.Step, args...)
		if err != nil {
			return err
		}
		for _, name := range series.Damaged {
			a.notef("warning: the page %s of the history cannot be read", show.Text(name))
		}
		return list(ctx, a, historyList, series.Totals(),
			"there is no history of this time: a program that runs a dashboard keeps it")
	})
	return cmd
}
