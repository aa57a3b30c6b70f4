package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/storage"
)

// sample holds the sums over queues at a time, and the rates since the sample before.
type sample struct {
	show.Stats

	now time.Time
}

var sampleList = show.List[sample]{
	Columns: slices.Concat([]show.Column[sample]{
		{Name: "time", Text: func(p *show.Printer, s sample) string {
			if p.UTC {
				return s.now.UTC().Format("15:04:05Z")
			}
			return s.now.Local().Format("15:04:05") //nolint:gosmopolitan // for whoever reads it here
		}},
	}, sizeColumns[sample](filter.Outstanding(), nil), []show.Column[sample]{
		{Name: "in/s", Right: true, Text: rate(func(r show.Rates) float64 { return r.Enqueued })},
		{Name: "done/s", Right: true, Text: rate(func(r show.Rates) float64 { return r.Completed })},
		{Name: "failed/s", Right: true, Text: rate(func(r show.Rates) float64 { return r.Failed })},
	}),
	Record: func(s sample) any { return s.Stats },
	ID:     func(s sample) string { return s.now.UTC().Format(time.RFC3339) },
}

// Size returns the number of tasks in some states.
func (s sample) Size(states ...storage.State) int64 { return s.Sum.Size(states...) }

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
	fields := []show.Field{
		{Name: "storage", Text: a.target.String() + " (" + show.Text(d.Storage) + ")"},
		{Name: "queues", Text: show.Number(int64(s.Queues))},
	}
	for _, state := range filter.Outstanding() {
		fields = append(fields, show.Field{Name: filter.StateWord(state), Text: show.Number(s.Size(state))})
		if state == storage.Waiting {
			fields = append(fields, show.Field{Name: "oldest", Text: age(s.Sum.Oldest)})
		}
	}
	fields = append(fields, show.Field{Name: "kept", Text: sizes(&s.Sum, filter.Kept())})
	return show.Fields(p, append(fields, everFields(&s.Sum.Totals)...)...)
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
