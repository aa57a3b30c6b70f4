package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
)

// sample holds the sums over queues at a time, and the rates since the sample before.
type sample struct {
	show.Stats

	now time.Time
}

var sampleList = show.List[sample]{
	Columns: []show.Column[sample]{
		{Name: "time", Text: func(p *show.Printer, s sample) string {
			if p.UTC {
				return s.now.UTC().Format("15:04:05Z")
			}
			return s.now.Local().Format("15:04:05") //nolint:gosmopolitan // for whoever reads it here
		}},
		{Name: "waiting", Right: true, Text: total(func(s sample) int64 { return s.Waiting })},
		{
			Name: filter.Running, Also: "pending", Right: true,
			Text: total(func(s sample) int64 { return s.Pending }),
		},
		{Name: "scheduled", Right: true, Text: total(func(s sample) int64 { return s.Scheduled })},
		{Name: "retry", Right: true, Text: total(func(s sample) int64 { return s.Retry })},
		{Name: "dead", Right: true, Text: total(func(s sample) int64 { return s.Dead })},
		{Name: "in/s", Right: true, Text: rate(func(r show.Rates) float64 { return r.Enqueued })},
		{Name: "done/s", Right: true, Text: rate(func(r show.Rates) float64 { return r.Completed })},
		{Name: "failed/s", Right: true, Text: rate(func(r show.Rates) float64 { return r.Failed })},
	},
	Record: func(s sample) any { return s.Stats },
	ID:     func(s sample) string { return s.now.UTC().Format(time.RFC3339) },
}

func total(of func(sample) int64) func(*show.Printer, sample) string {
	return func(_ *show.Printer, s sample) string { return show.Number(of(s)) }
}

func rate(of func(show.Rates) float64) func(*show.Printer, sample) string {
	return func(_ *show.Printer, s sample) string {
		if s.PerSecond == nil {
			return "-"
		}
		return fmt.Sprintf("%.1f", of(*s.PerSecond))
	}
}

func (a *app) stats() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats [PATTERN]", Short: "Show the sums of the sizes and totals of queues",
		Example: "  midge stats\n  midge stats 'mail*' --watch\n  midge stats --watch=10s -o jsonl",
		Args:    wants(0, 1, "one pattern at most, such as 'mail*'"),
	}
	watch := watchFlag(cmd)
	cmd.RunE = a.either(watch, a.statsOnce, func(ctx context.Context, args []string) error {
		return a.watchStats(ctx, args, watch.Duration)
	})
	return cmd
}

// sum reads the sums over the queues that match a pattern.
func (a *app) sum(ctx context.Context, patterns []string) (sample, error) {
	rows, err := a.rows(ctx, patterns, false)
	if err != nil {
		return sample{}, err
	}
	if len(patterns) > 0 && len(rows) == 0 {
		return sample{}, notFound("midge queue ls", "no queue%s on %s", matching(patterns), a.target)
	}
	now, err := a.session.Now(ctx)
	s := sample{now: now, Stats: show.Stats{Time: now.UTC(), Queues: len(rows)}}
	for _, r := range rows {
		s.Add(r.Stats)
	}
	return s, err
}

func (a *app) statsOnce(ctx context.Context, args []string) error {
	s, err := a.sum(ctx, args)
	if err != nil {
		return err
	}
	d, err := a.store.Describe(ctx)
	if err != nil {
		return err
	}
	p := a.printer(s.now)
	if !p.People() {
		return p.Value(s.Stats)
	}
	t := s.Totals
	return show.Fields(p,
		show.Field{Name: "storage", Text: a.target.String() + " (" + show.Text(d.Storage) + ")"},
		show.Field{Name: "queues", Text: show.Number(int64(s.Queues))},
		show.Field{Name: "waiting", Text: show.Number(s.Waiting)},
		show.Field{Name: "oldest", Text: age(time.Duration(s.Oldest * float64(time.Second)))},
		show.Field{Name: filter.Running, Text: show.Number(s.Pending)},
		show.Field{Name: "scheduled", Text: show.Number(s.Scheduled)},
		show.Field{Name: "retry", Text: show.Number(s.Retry)},
		show.Field{Name: "dead", Text: show.Number(s.Dead)},
		show.Field{Name: "kept", Text: fmt.Sprintf("%s completed, %s cancelled", show.Number(s.Completed),
			show.Number(s.Cancelled))},
		show.Field{
			Name: "ever",
			Text: fmt.Sprintf("%s enqueued, %s completed, %s dead, %s cancelled, %s deleted, %s requeued",
				show.Number(t.Enqueued), show.Number(t.Completed), show.Number(t.Dead), show.Number(t.Cancelled),
				show.Number(t.Deleted), show.Number(t.Requeued)),
		},
		show.Field{Name: "attempts", Text: fmt.Sprintf("%s failed, %s crashed", show.Number(t.Failed),
			show.Number(t.Crashed))},
	)
}

// watchStats writes a line for each sample.
func (a *app) watchStats(ctx context.Context, args []string, every time.Duration) error {
	var before *sample
	return a.turns(ctx, every, func(ctx context.Context) error {
		s, err := a.sum(ctx, args)
		if err != nil {
			return err
		}
		if before != nil {
			s.Since(before.Stats)
		}
		first := before == nil
		before = &s
		return a.line(s, first)
	})
}

// line writes a sample. If first is set, a table begins with its head.
func (a *app) line(s sample, first bool) error {
	p := a.printer(s.now)
	if !p.People() {
		p.Format = show.JSONL
		return p.Value(s.Stats)
	}
	columns, err := sampleList.Chosen(p)
	if err != nil {
		return err
	}
	for i, c := range columns {
		if end := "  "; first {
			if i == len(columns)-1 {
				end = "\n"
			}
			if _, err := fmt.Fprintf(p.Out, "%10s%s", strings.ToUpper(c.Name), end); err != nil {
				return err
			}
		}
	}
	for i, c := range columns {
		end := "  "
		if i == len(columns)-1 {
			end = "\n"
		}
		if _, err := fmt.Fprintf(p.Out, "%10s%s", c.Text(p, s), end); err != nil {
			return err
		}
	}
	return nil
}
