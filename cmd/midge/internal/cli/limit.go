package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/shell"
	"github.com/midgehq/midge/storage"
)

func (a *app) queueLimit() *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit QUEUE", Short: "Show, set or clear how many tasks of a queue run over all runners",
		Long: "limit shows the limit of a queue over all runners. With --concurrency, --rate or the\n" +
			"same bounds of each partition it sets the limit of an operator, and copies the other\n" +
			"bounds from the limit in force. The limit of an operator stands above the limit that\n" +
			"programs declare, now and later, until --clear. Tasks that run continue to their end.\n" +
			"Tasks without a partition are bounded by --concurrency and --rate alone. With\n" +
			"--partition it is about the limit of that partition alone, which stands in the place\n" +
			"of the limit of each partition.",
		Example: "  midge queue limit api\n  midge queue limit api --concurrency 50 --rate 100/1m\n" +
			"  midge queue limit api --partition-concurrency 3 --partition-rate 10/1m\n" +
			"  midge queue limit api --partition acme --partition-concurrency 10 --weight 5\n" +
			"  midge queue limit api --partition acme --clear\n" +
			"  midge queue limit api --none\n  midge queue limit api --clear",
		Args: wants(1, 1, "the name of a queue"),
	}
	var f limitFlags
	flags := cmd.Flags()
	f.queue.add(flags, "", "")
	f.partition.add(flags, "partition-", " of each partition")
	flags.IntVar(&f.weight, "weight", 0,
		"take this `number` of tasks of each partition in one turn, from 1 to 1,000, or 0 for one task")
	a.partitionFlag(cmd, &f.key, "show, set or clear the limit of this partition alone")
	flags.BoolVar(&f.none, "none", false, "lift the limit that programs declare")
	flags.BoolVar(&f.off, "clear", false,
		"clear the limit of an operator or, if there is none, a declared limit that no live runner declares")
	cmd.RunE = a.quick(func(ctx context.Context, args []string) error {
		key, only := string(f.key), !f.bounded(flags) && !f.none && !f.off
		switch {
		case only && key != "":
			return a.showPartitionLimit(ctx, args, key)
		case only:
			return a.showLimit(ctx, args)
		case key != "" && f.queue.given(flags):
			return storage.Invalid("flags", "of the queue with --partition",
				"--partition-concurrency, --partition-rate, --weight, --none or --clear")
		}
		change, err := f.change(flags)
		if err != nil {
			return err
		}
		if key != "" {
			return a.setPartitionLimit(ctx, args, key, change, f.off)
		}
		return a.setLimit(ctx, args, change, f.off)
	})
	return cmd
}

// limitFlags are the flags that set or clear a limit.
type limitFlags struct {
	queue, partition boundFlags
	weight           int
	key              partitionKey // of the partition that it is about, "" for the queue
	none, off        bool
}

// bounded reports whether a flag sets a bound.
func (f *limitFlags) bounded(flags *pflag.FlagSet) bool {
	return f.queue.given(flags) || f.partition.given(flags) || flags.Changed("weight")
}

// change returns the change of a limit that the flags ask for. A bound that no flag sets stays as it is.
func (f *limitFlags) change(flags *pflag.FlagSet) (func(storage.Limit) storage.Limit, error) {
	if f.none && f.off || f.bounded(flags) && (f.none || f.off) {
		return nil, storage.Invalid("flags", "of two kinds", "bounds such as --concurrency, --none, or --clear")
	}
	if f.weight < 0 || f.weight > storage.MaxWeight {
		return nil, storage.Invalid("--weight", f.weight, "1 to %d, or 0 for one task", storage.MaxWeight)
	}
	if f.none {
		return func(storage.Limit) storage.Limit { return storage.Limit{} }, nil
	}
	queue, err := f.queue.change(flags)
	if err != nil {
		return nil, err
	}
	partition, err := f.partition.change(flags)
	if err != nil {
		return nil, err
	}
	return func(l storage.Limit) storage.Limit {
		l.Concurrency, l.Rate = queue(l.Concurrency, l.Rate)
		l.Partition.Concurrency, l.Partition.Rate = partition(l.Partition.Concurrency, l.Partition.Rate)
		if flags.Changed("weight") {
			l.Partition.Weight = f.weight
		}
		return l
	}, nil
}

// boundFlags are the flags that set the bounds of a queue, or of each of its partitions.
type boundFlags struct {
	prefix      string // of the names of the flags
	concurrency int
	rate        string
}

// add adds the flags; of names whose tasks they bound.
func (b *boundFlags) add(flags *pflag.FlagSet, prefix, of string) {
	b.prefix = prefix
	flags.IntVar(&b.concurrency, prefix+"concurrency", 0,
		"let this `number` of tasks"+of+" run at once, from 1 to 10,000, or 0 for any number")
	flags.StringVar(&b.rate, prefix+"rate", "",
		"let this `number/time` of tasks"+of+" start, such as 100/1m, or none for any number")
}

// given reports whether one of the flags was given.
func (b *boundFlags) given(flags *pflag.FlagSet) bool {
	return flags.Changed(b.prefix+"concurrency") || flags.Changed(b.prefix+"rate")
}

// change returns the change of bounds that the flags ask for.
func (b *boundFlags) change(
	flags *pflag.FlagSet,
) (func(concurrency int, r storage.Rate) (int, storage.Rate), error) {
	if b.concurrency < 0 || b.concurrency > storage.MaxLimitConcurrency {
		return nil, storage.Invalid("--"+b.prefix+"concurrency", b.concurrency, "1 to %d, or 0 for no bound",
			storage.MaxLimitConcurrency)
	}
	var given storage.Rate
	rated := flags.Changed(b.prefix + "rate")
	if rated && b.rate != "none" {
		var err error
		if given, err = filter.ParseRate("--"+b.prefix+"rate", b.rate); err != nil {
			return nil, err
		}
	}
	return func(concurrency int, r storage.Rate) (int, storage.Rate) {
		if flags.Changed(b.prefix + "concurrency") {
			concurrency = b.concurrency
		}
		if rated {
			r = given
		}
		return concurrency, r
	}, nil
}

func (a *app) showLimit(ctx context.Context, args []string) error {
	rows, err := a.there(ctx, args)
	if err != nil {
		return err
	}
	p, err := a.shown(ctx)
	if err != nil {
		return err
	}
	r := rows[0]
	if !p.People() {
		return p.One(r.Queue, show.QueueOf(r.Stats, r.Runners))
	}
	live, err := a.store.Runners(ctx)
	if err != nil {
		return err
	}
	limit := r.limitField(p)
	limit.Text = cmp.Or(limit.Text, "none")
	queue := show.Field{Name: "queue", Text: r.Queue, Style: show.Strong}
	return show.Fields(p, slices.Concat([]show.Field{queue, limit}, r.limitFields(live))...)
}

// showPartitionLimit shows the limit of one partition, and whether it is its own.
func (a *app) showPartitionLimit(ctx context.Context, args []string, key string) error {
	rows, err := a.there(ctx, args)
	if err != nil {
		return err
	}
	s, err := storage.PartitionOf(ctx, a.store, rows[0].Queue, key)
	if err != nil {
		return err
	}
	p, err := a.shown(ctx)
	if err != nil {
		return err
	}
	r := partitionRow{s, rows[0].Limit.InForce().Partition}
	if !p.People() {
		return p.One(key, show.PartitionOf(s, r.limit))
	}
	in, by := s.InForce(r.limit), "the limit of each partition"
	if s.Limit != nil {
		by = "an operator, for this partition"
	}
	return show.Fields(p,
		show.Field{Name: "queue", Text: rows[0].Queue, Style: show.Strong},
		show.Field{Name: "partition", Text: show.Text(key)},
		show.Field{Name: "limit", Text: findingWords.PartitionLimit(in)},
		show.Field{Name: "set by", Text: by},
		show.Field{Name: "running", Text: used(s.Running, in.Concurrency)},
		show.Field{Name: "starts", Text: used(storage.Started(s.Counts), in.Rate.N)},
		show.Field{Name: "status", Text: r.status(p)})
}

// setPartitionLimit changes the limit of one partition from the limit that holds for it, or clears it if off
// is set.
func (a *app) setPartitionLimit(
	ctx context.Context, args []string, key string, change func(storage.Limit) storage.Limit, off bool,
) error {
	rows, err := a.own(ctx, args)
	if err != nil {
		return err
	}
	queue := rows[0].Queue
	s, err := storage.PartitionOf(ctx, a.store, queue, key)
	if err != nil {
		return err
	}
	limit := storage.OperatorLimit{}
	e := ledger.Entry{Action: "clear-limit", Queue: queue}
	if !off {
		l := change(storage.Limit{Partition: s.InForce(rows[0].Limit.InForce().Partition)}).Partition
		limit = storage.OperatorLimit{On: true, Limit: storage.Limit{Partition: l}}
		e.Action, e.Note = "limit", "to "+findingWords.PartitionLimit(l)
	}
	note := e.Note
	e.OnPartition(key)
	a.write("midge queue partitions " + queue)
	err = a.audit().Do(ctx, e, audit.One(func() error {
		return a.session.Configure(ctx, queue, storage.Settings{Partition: key, Limit: &limit})
	}))
	if err != nil {
		return err
	}
	of := "partition " + show.Text(strconv.Quote(key)) + " of " + queue
	if off {
		a.notef("cleared the limit of %s: that of each partition holds", of)
		return nil
	}
	a.notef("limited %s %s", of, note)
	if s.Limit == nil && limit.Limit.Partition != change(storage.Limit{}).Partition {
		a.noteCopied(queue, "--partition", key)
	}
	return nil
}

// noteCopied prints that bounds of a limit were copied. of names the limit in a command.
func (a *app) noteCopied(of ...string) {
	clearing := shell.Line(slices.Concat([]string{"midge", "queue", "limit"}, of, []string{"--clear"})...)
	a.notef("bounds that were not given were copied, and follow no later change until %s",
		show.Text(cmp.Or(clearing, "--clear")))
}

// limitText returns the limit of a queue in force for a list.
func limitText(_ *show.Printer, r row) string { return findingWords.Limit(r.Limit.InForce()) }

// limitField returns the limit of a queue, and whether it admits another start. Its text is empty if there is
// no limit.
func (r row) limitField(p *show.Printer) show.Field {
	f := show.Field{Name: "limit"}
	if r.Limit == nil {
		return f
	}
	f.Text = findingWords.Limit(r.Limit.InForce())
	if at := findingWords.AtLimit(&r.Stats, p.Now); at != "" {
		f.Text, f.Style = f.Text+"   (at the limit: "+at+")", show.Warn
	}
	return f
}

// limitFields returns who has set the limit of a queue, and how much of it is in use; none without a limit.
func (r row) limitFields(live []storage.RunnerInfo) []show.Field {
	if r.Limit == nil {
		return nil
	}
	by, declared, running, starts, partitions := "a program", "", show.Number(r.Pending), "", ""
	force := r.Limit.InForce()
	if r.Limit.Operator != nil {
		by = "an operator"
	}
	if d := r.Limit.Declared; d != nil {
		declared = findingWords.Limit(d.Limit)
		if r.Limit.Forgotten(r.Queue, live) {
			declared += "   (by no live runner: midge queue limit " + r.Queue + " --clear forgets it)"
		}
	}
	if force.Concurrency > 0 {
		running += " of " + show.Number(int64(force.Concurrency))
	}
	if force.Rate.N > 0 {
		starts = show.Number(r.Limit.Started) + " of " + show.Number(int64(force.Rate.N)) + " in " +
			show.Span(force.Rate.Per)
	}
	if !force.Partition.IsZero() {
		partitions = "midge queue partitions " + r.Queue
	}
	return []show.Field{
		{Name: "set by", Text: by},
		{Name: "declared", Text: declared},
		{Name: "running", Text: running},
		{Name: "starts", Text: starts},
		{Name: "partitions", Text: partitions},
	}
}

// setLimit changes the limit of an operator from the limit in force, or clears it if off is set.
func (a *app) setLimit(
	ctx context.Context, args []string, change func(storage.Limit) storage.Limit, off bool,
) error {
	rows, err := a.own(ctx, args)
	if err != nil {
		return err
	}
	queue, l := rows[0].Queue, change(rows[0].Limit.InForce())
	a.write("midge queue limit " + queue)
	e := ledger.Entry{Action: "limit", Queue: queue, Note: "to " + findingWords.Limit(l)}
	do := func() error { return a.session.SetLimit(ctx, queue, l) }
	if off {
		e.Action, e.Note = "clear-limit", ""
		do = func() error { return a.session.ClearLimit(ctx, queue) }
	}
	if err := a.audit().Do(ctx, e, audit.One(do)); err != nil {
		return err
	}
	switch {
	case !off && l.IsZero():
		a.notef("lifted the limit of %s", queue)
		return nil
	case !off:
		a.notef("limited %s %s", queue, e.Note)
		if rows[0].Limit != nil && rows[0].Limit.Operator == nil && l != change(storage.Limit{}) {
			a.noteCopied(queue)
		}
		return nil
	}
	text := "no limit holds now"
	if after, err := a.store.Stats(ctx, queue); err == nil && after[0].Limit != nil {
		text = "the declared one holds again: " + findingWords.Limit(after[0].Limit.InForce())
	}
	a.notef("cleared the limit of %s: %s", queue, text)
	return nil
}
