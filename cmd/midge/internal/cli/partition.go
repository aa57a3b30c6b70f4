package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// partitionRow is a partition in the list, with the limit of the partitions of its queue.
type partitionRow struct {
	storage.PartitionStats

	limit storage.PartitionLimit
}

var partitionList = show.List[partitionRow]{
	Columns: []show.Column[partitionRow]{
		{Name: "partition", Text: func(_ *show.Printer, r partitionRow) string { return show.Text(r.Key) }},
		{Name: "waiting", Right: true, Text: func(_ *show.Printer, r partitionRow) string {
			return show.Number(r.Waiting)
		}},
		{Name: "running", Right: true, Text: func(_ *show.Printer, r partitionRow) string {
			return used(r.Running, r.InForce(r.limit).Concurrency)
		}},
		{Name: "starts", Right: true, Text: func(_ *show.Printer, r partitionRow) string {
			return used(storage.Started(r.Counts), r.InForce(r.limit).Rate.N)
		}},
		{Name: "limit", Text: func(_ *show.Printer, r partitionRow) string {
			if r.Limit == nil {
				return "-"
			}
			return findingWords.PartitionLimit(*r.Limit)
		}},
		{
			Name: "status", Also: "paused",
			Text: func(p *show.Printer, r partitionRow) string { return r.status(p) },
			Style: func(r partitionRow) show.Style {
				if len(r.reasons(func(time.Time) string { return "" })) > 0 {
					return show.Warn
				}
				return show.Plain
			},
		},
	},
	Record: func(r partitionRow) any { return show.PartitionOf(r.PartitionStats, r.limit) },
	ID:     func(r partitionRow) string { return r.Key },
}

// used returns how much of a bound is in use, such as "2 of 3"; "-" if there is neither a bound nor a use.
func used(n int64, most int) string {
	switch {
	case most > 0:
		return show.Number(n) + " of " + show.Number(int64(most))
	case n > 0:
		return show.Number(n)
	}
	return "-"
}

// status returns why no task of a partition starts now, "-" if one may.
func (r partitionRow) status(p *show.Printer) string {
	until := func(at time.Time) string {
		if p.UTC {
			return " until " + p.Moment(at)
		}
		return " for " + show.Span(max(at.Sub(p.Now), 0))
	}
	return cmp.Or(strings.Join(r.reasons(until), ", "), "-")
}

// reasons returns each reason for which no task of a partition starts now, with the words for its end.
func (r partitionRow) reasons(until func(time.Time) string) (list []string) {
	switch {
	case r.Paused && r.PausedUntil.IsZero():
		list = append(list, "paused until it is resumed")
	case r.Paused:
		list = append(list, "paused"+until(r.PausedUntil))
	}
	if !r.Rests.IsZero() {
		list = append(list, "resting"+until(r.Rests))
	}
	switch full, spent := r.AtLimit(r.limit); {
	case full: // until a task ends
		list = append(list, "at limit")
	case spent:
		list = append(list, "at limit"+until(r.Next))
	}
	return list
}

func (a *app) queuePartitions() *cobra.Command {
	cmd := &cobra.Command{
		Use: "partitions QUEUE", Short: "List the partitions of a queue, and how much of its limit each uses",
		Long: "partitions lists the partitions of a queue by key: those that have waiting tasks, are\n" +
			"paused, rest after a throttled task, count for the limit of partitions, which\n" +
			"midge queue limit sets, or have a limit of their own. Runners serve them in turn.\n" +
			"RUNNING and STARTS show how much of its limit each uses.",
		Example: "  midge queue partitions mail\n  midge queue partitions mail --limit 10\n" +
			"  midge queue pause mail --partition acme --for 1h",
		Args: wants(1, 1, "the name of a queue"),
	}
	limit := cmd.Flags().Int("limit", 0, "list at most this number of partitions (default all)")
	watch := watchFlag(cmd)
	cmd.RunE = a.watched(watch, func(ctx context.Context, args []string) error {
		if *limit < 0 {
			return storage.Invalid("--limit", *limit, "0 or more")
		}
		queues, err := a.there(ctx, args)
		if err != nil {
			return err
		}
		found, more, err := a.partitions(ctx, args[0], *limit)
		if err != nil {
			return err
		}
		rows := make([]partitionRow, len(found))
		for i, s := range found {
			rows[i] = partitionRow{s, queues[0].Limit.InForce().Partition}
		}
		err = list(ctx, a, partitionList, rows, "no task waits in a partition, and no partition is paused or rests")
		if err == nil && more {
			a.notef("showing the first %s; without --limit all are listed",
				show.Count(int64(len(found)), "partition"))
		}
		return err
	})
	return cmd
}

// partitions reads the first partitions of a queue, or all if most is 0, and whether there are more.
func (a *app) partitions(
	ctx context.Context, queue string, most int,
) (found []storage.PartitionStats, more bool, err error) {
	query := storage.PartitionsQuery{Queue: queue}
	for {
		if most > 0 {
			query.Limit = min(most-len(found), storage.MaxNames)
		}
		page, err := a.store.Partitions(ctx, query)
		if err != nil {
			return nil, false, err
		}
		found = append(found, page.Partitions...)
		if query.After = page.Next; page.Next == "" || most > 0 && len(found) >= most {
			return found, page.Next != "", nil
		}
	}
}

// partitionKey is a flag that takes the key of a partition. It refuses the empty text that a shell makes from
// an empty variable, because the command would be about the whole queue.
type partitionKey string

// Set checks and takes the key.
func (k *partitionKey) Set(text string) error {
	*k = partitionKey(text)
	return storage.CheckPartition(text)
}

// Type names the values of the flag.
func (*partitionKey) Type() string { return "key" }

// String returns the key.
func (k *partitionKey) String() string { return string(*k) }

var _ pflag.Value = (*partitionKey)(nil)

// partitionFlag adds the flag that names a partition of the queues of a command.
func (a *app) partitionFlag(cmd *cobra.Command, key pflag.Value, usage string) {
	cmd.Flags().Var(key, "partition", usage)
	_ = cmd.RegisterFlagCompletionFunc("partition", a.ofQueue)
}

// pausing is a pause or a resume of queues, or of one partition of each.
type pausing struct {
	pause     storage.Pause
	verb      string // pause or resume
	partition string // "" for the whole queue
}

// configure pauses or resumes queues, and records each in the audit.
func (a *app) configure(ctx context.Context, args []string, p pausing) error {
	names, err := a.arguments(args)
	if err != nil {
		return err
	}
	if _, err := a.own(ctx, names); err != nil {
		return err
	}
	a.write(p.check(names))
	for i, name := range names {
		err := a.audit().Do(ctx, p.entry(name), audit.One(func() error {
			return a.session.Configure(ctx, name, storage.Settings{Partition: p.partition, Pause: &p.pause})
		}))
		if err != nil {
			return a.partly(ctx, int64(i), int64(len(names)), "queue", p.verb+"d", err)
		}
		of := name
		if p.partition != "" {
			of = "partition " + show.Text(strconv.Quote(p.partition)) + " of " + name
		}
		a.notef("%sd %s%s", p.verb, of, p.length())
	}
	return nil
}

// length returns the duration of a pause for messages, "" if it has none.
func (p *pausing) length() string {
	if p.pause.For == 0 {
		return ""
	}
	return " for " + show.Span(p.pause.For)
}

// check returns the command that shows whether the queues are paused.
func (p *pausing) check(names []string) string {
	if p.partition != "" && len(names) == 1 {
		return "midge queue partitions " + names[0]
	}
	return "midge queue ls"
}

// entry returns the record of the audit for a queue.
func (p *pausing) entry(queue string) ledger.Entry {
	e := ledger.Entry{Action: p.verb, Queue: queue, Note: strings.TrimSpace(p.length())}
	if p.partition != "" {
		e.OnPartition(p.partition)
	}
	return e
}

// partitionKeys returns the first keys of the partitions of a queue for a completion, and none for several
// queues.
func (a *app) partitionKeys(ctx context.Context, queues []string) (keys []string) {
	if len(queues) != 1 || a.open(ctx) != nil {
		return nil
	}
	found, _, err := a.partitions(ctx, queues[0], storage.MaxNames)
	if err != nil {
		return nil
	}
	for _, s := range found {
		keys = append(keys, s.Key)
	}
	return keys
}

// ofQueue completes a flag that names a partition. The queue is the first argument of a command on queues,
// and the value of --queue of a command on tasks.
func (a *app) ofQueue(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	queues := args
	if f := cmd.Flags().Lookup("queue"); f != nil {
		queues = []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			queues = slices.Compact(several.GetSlice()) // a completion parses the flags twice
		}
	}
	keys := func(ctx context.Context) []string { return a.partitionKeys(ctx, queues) }
	return a.completed(keys)(cmd, args, begin)
}
