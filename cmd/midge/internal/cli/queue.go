package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

var zeroTime time.Time

// hidden is the prefix of the names of the queues in which midge keeps its own records.
const hidden = filter.HiddenPrefix

// row is a queue with the number of live runners that serve it.
type row struct {
	surveyed
}

// surveyed is an alias, because an embedded field named Queue would hide the name of the queue.
type surveyed = survey.Queue

var queueList = show.List[row]{
	Columns: slices.Concat([]show.Column[row]{
		{Name: "queue", Text: func(_ *show.Printer, r row) string { return show.Text(r.Queue) }},
		{Name: "status", Text: func(p *show.Printer, r row) string { return r.status(p) }, Style: row.style},
	}, sizeColumns(filter.Outstanding(), row.sizeStyle), []show.Column[row]{
		{Name: "oldest", Right: true, Text: func(_ *show.Printer, r row) string { return age(r.Oldest) }},
		{Name: "runners", Right: true, Text: count(func(r row) int64 { return int64(r.Runners) })},
	}, sizeColumns(filter.Kept(), row.sizeStyle), []show.Column[row]{
		{Name: "schedules", Wide: true, Right: true, Text: count(func(r row) int64 { return r.Cursors })},
		{Name: "limit", Wide: true, Text: limitText},
		{Name: "damaged", Wide: true, Right: true, Text: count(func(r row) int64 { return r.Damaged })},
		{Name: "enqueued", Wide: true, Right: true, Text: count(func(r row) int64 { return r.Totals.Enqueued })},
		{Name: "done", Wide: true, Right: true, Text: count(func(r row) int64 { return r.Totals.Completed })},
		{Name: "failed", Wide: true, Right: true, Text: count(func(r row) int64 { return r.Totals.Failed })},
		{Name: "crashed", Wide: true, Right: true, Text: count(func(r row) int64 { return r.Totals.Crashed })},
	}),
	Record: func(r row) any { return show.QueueOf(r.Stats, r.Runners) },
	ID:     func(r row) string { return r.Queue },
}

// sizeColumns returns a column for the number of tasks in each of some states. A nil style means no style.
func sizeColumns[T interface {
	Size(states ...storage.State) int64
}](states []storage.State, style func(T, storage.State) show.Style) (columns []show.Column[T]) {
	for _, state := range states {
		c := show.Column[T]{
			Name: filter.StateWord(state), Wide: filter.IsKept(state), Right: true,
			Text: func(_ *show.Printer, of T) string { return show.Number(of.Size(state)) },
		}
		if c.Name != string(state) {
			c.Also = string(state)
		}
		if style != nil {
			c.Style = func(of T) show.Style { return style(of, state) }
		}
		columns = append(columns, c)
	}
	return columns
}

// sizes writes the numbers of tasks in some states: "3 waiting, 1 running".
func sizes(s *storage.Stats, states []storage.State) string {
	parts := make([]string, len(states))
	for i, state := range states {
		parts[i] = show.Number(s.Size(state)) + " " + filter.StateWord(state)
	}
	return strings.Join(parts, ", ")
}

// everFields returns the totals of queues over their lifetime.
func everFields(t *storage.Totals) []show.Field {
	return []show.Field{
		{
			Name: "ever",
			Text: fmt.Sprintf("%s enqueued, %s completed, %s dead, %s cancelled, %s deleted, %s requeued",
				show.Number(t.Enqueued), show.Number(t.Completed), show.Number(t.Dead), show.Number(t.Cancelled),
				show.Number(t.Deleted), show.Number(t.Requeued)),
		},
		{Name: "attempts", Text: fmt.Sprintf("%s failed, %s crashed", show.Number(t.Failed),
			show.Number(t.Crashed))},
	}
}

func count(of func(row) int64) func(*show.Printer, row) string {
	return func(_ *show.Printer, r row) string { return show.Number(of(r)) }
}

// age formats the age of the oldest waiting task.
func age(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return show.Span(d)
}

// status reports in a few words whether runners work on the queue.
func (r row) status(p *show.Printer) string {
	switch {
	case r.Paused && !r.PausedUntil.IsZero() && p.UTC:
		return "paused until " + p.Moment(r.PausedUntil)
	case r.Paused && !r.PausedUntil.IsZero():
		return "paused for " + show.Span(r.PausedUntil.Sub(p.Now))
	case r.Paused:
		return "paused"
	case r.Idle():
		return "no runner"
	case len(r.Undecodable) > 0:
		return "undecodable"
	case r.KeptWaiting():
		return "at limit"
	case r.Pending > 0:
		return "working"
	case r.Waiting > 0:
		return "waiting"
	}
	return "idle"
}

// sizeStyle returns the style of the number of tasks in a state.
func (r row) sizeStyle(state storage.State) show.Style {
	if state == storage.Dead && r.Dead > 0 {
		return show.Bad
	}
	return show.Plain
}

func (r row) style() show.Style {
	switch {
	case r.Paused:
		return show.Warn
	case r.Idle(), len(r.Undecodable) > 0:
		return show.Bad
	case r.KeptWaiting():
		return show.Warn
	}
	return show.Plain
}

func (a *app) queue() *cobra.Command {
	return noun("queue", "See, create, pause, resume, limit and remove queues", []string{"queues"},
		a.queueLs(), a.queueShow(), a.queuePartitions(), a.queueCreate(), a.queuePause(), a.queueResume(),
		a.queueLimit(), a.queueRm())
}

func (a *app) queueLs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [PATTERN]", Aliases: []string{"list"}, Short: "List queues and their sizes",
		Example: "  midge queue ls\n  midge queue ls 'mail*' -o wide\n  midge queue ls --sort dead --limit 10\n" +
			"  midge queue ls --watch",
		Args: wants(0, 1, "one pattern at most, such as 'mail*'"),
	}
	var part queuePart
	part.add(cmd)
	all := cmd.Flags().Bool("all", false, "show midge's own queues too")
	watch := watchFlag(cmd)
	cmd.RunE = a.watched(watch, func(ctx context.Context, args []string) error {
		if err := part.check(); err != nil {
			return err
		}
		rows, err := a.rows(ctx, args, *all)
		if err != nil {
			return err
		}
		return list(ctx, a, queueList, part.of(rows), "no queue"+matching(args))
	})
	return cmd
}

// queuePart holds the flags that choose and sort the queues of a list.
type queuePart struct {
	contains, sort string
	skip, limit    int
}

func (q *queuePart) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&q.contains, "contains", "",
		"only queues with this `text` in their names, in upper or lower case")
	flags.StringVar(&q.sort, "sort", "name",
		"sort by this `key`: name, or the largest first by oldest or a state")
	flags.IntVar(&q.limit, "limit", 0, "list at most this number of queues (default all)")
	flags.IntVar(&q.skip, "skip", 0, "skip this number of queues at the beginning")
}

func (q *queuePart) check() error {
	if q.skip < 0 || q.limit < 0 {
		return storage.Invalid("flags", "--skip or --limit below 0", "0 or more")
	}
	if _, ok := filter.ParseState(q.sort); !ok && q.sort != "name" && q.sort != "oldest" {
		return storage.Invalid("--sort", q.sort, "%s", show.OneOf(sortKeys()...))
	}
	return nil
}

// of returns the chosen rows in their order. rows have to be sorted by name.
func (q *queuePart) of(rows []row) []row {
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return !strings.Contains(strings.ToLower(r.Queue), strings.ToLower(q.contains))
	})
	switch q.sort {
	case "name":
	case "oldest":
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.Oldest, a.Oldest) })
	default:
		state, _ := filter.ParseState(q.sort)
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.Size(state), a.Size(state)) })
	}
	rows = rows[min(q.skip, len(rows)):]
	if q.limit > 0 {
		rows = rows[:min(q.limit, len(rows))]
	}
	return rows
}

// matching returns the text that names the pattern of an empty list.
func matching(args []string) string {
	if len(args) == 0 {
		return " yet"
	}
	return " matches " + show.Text(args[0])
}

// rows reads the queues that match a pattern, or all queues without a pattern. own includes midge's own
// queues.
func (a *app) rows(ctx context.Context, patterns []string, own bool) ([]row, error) {
	pattern := "*"
	if len(patterns) > 0 {
		pattern = patterns[0]
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, storage.Invalid("pattern", pattern, "a name in which * stands for any characters and ? for one")
	}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	var names []string
	for name, err := range storage.EachQueue(ctx, a.store, "") {
		if err != nil {
			return nil, err
		}
		if ok, _ := path.Match(pattern, name); ok && (own || !strings.HasPrefix(name, hidden)) {
			names = append(names, name)
		}
	}
	return a.statsOf(ctx, names)
}

// statsOf reads the sizes of queues, and the numbers of runners that serve them.
func (a *app) statsOf(ctx context.Context, names []string) ([]row, error) {
	runners, err := a.store.Runners(ctx)
	if err != nil {
		return nil, err
	}
	serving := survey.ServingOf(runners)
	var rows []row
	for chunk := range slices.Chunk(names, storage.MaxNames) {
		stats, err := a.store.Stats(ctx, chunk...)
		if err != nil {
			return nil, err
		}
		for _, s := range stats {
			rows = append(rows, row{survey.QueueOf(s, serving[s.Queue])})
		}
	}
	return rows, nil
}

// there opens the storage and reads queues. It returns an error if one does not exist.
func (a *app) there(ctx context.Context, names []string) ([]row, error) {
	if err := a.exist(ctx, names); err != nil {
		return nil, err
	}
	return a.statsOf(ctx, names)
}

// exist opens the storage and returns an error if a queue does not exist.
func (a *app) exist(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := storage.CheckName("queue name", name); err != nil {
			return err
		}
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	for _, name := range names {
		page, err := a.store.Queues(ctx, storage.QueuesQuery{Prefix: name, Limit: 1})
		if err != nil {
			return err
		}
		if !slices.Contains(page.Names, name) {
			return notFound("midge queue ls", "queue %q not found on %s", name, a.target)
		}
	}
	return nil
}

// checkOwn checks the name of a queue that a command changes or adds tasks to. It refuses midge's own
// queues.
func checkOwn(name string) error {
	if storage.Reserved(name) {
		return storage.Invalid("queue name", name, "one that does not begin with %q, as midge's own do",
			storage.ReservedQueues)
	}
	return storage.CheckName("queue name", name)
}

// own does the same as there, for queues that a command changes.
func (a *app) own(ctx context.Context, names []string) ([]row, error) {
	for _, name := range names {
		if err := checkOwn(name); err != nil {
			return nil, err
		}
	}
	return a.there(ctx, names)
}

func (a *app) queueShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show QUEUE", Short: "Show everything about a queue",
		Example: "  midge queue show mail", Args: wants(1, 1, "the name of a queue"),
	}
	watch := watchFlag(cmd)
	cmd.RunE = a.watched(watch, func(ctx context.Context, args []string) error {
		rows, err := a.there(ctx, args)
		if err != nil {
			return err
		}
		p, err := a.shown(ctx)
		if err != nil {
			return err
		}
		if !p.People() {
			return p.One(rows[0].Queue, show.QueueOf(rows[0].Stats, rows[0].Runners))
		}
		outlook := ""
		if rows[0].Waiting > 0 {
			before := storage.Sample{At: p.Now, Stats: rows[0].Stats}
			if !a.pause(ctx) {
				return context.Cause(ctx)
			}
			after, err := a.sample(ctx, rows[0].Queue)
			if err != nil {
				return err
			}
			rows[0].Stats, outlook = after.Stats, storage.Forecast(before, after).String()
		}
		return show.Fields(p, queueFields(p, rows[0], outlook)...)
	})
	return cmd
}

// queueFields returns the page about a queue.
func queueFields(p *show.Printer, r row, outlook string) []show.Field {
	declined := make([]string, 0, len(r.Unknown))
	for _, k := range r.Unknown {
		declined = append(declined, show.Count(k.Tasks,
			"task")+" of kind "+show.Text(k.Kind)+", which no runner handles")
	}
	damaged := show.Field{Name: "damaged", Style: show.Bad}
	if r.Damaged > 0 {
		damaged.Text = show.Count(r.Damaged, "record") + " that cannot be read, set apart"
	}
	fields := []show.Field{
		{Name: "queue", Text: r.Queue, Style: show.Strong},
		{Name: "status", Text: r.status(p), Style: r.style()},
		r.limitField(p),
		{Name: "runners", Text: show.Number(int64(r.Runners))},
	}
	for _, state := range filter.Outstanding() {
		f := show.Field{Name: filter.StateWord(state), Text: show.Number(r.Size(state)), Style: r.sizeStyle(state)}
		if f.Style == show.Bad {
			f.Text += fmt.Sprintf("   (midge task ls --queue %s state:dead)", r.Queue)
		}
		fields = append(fields, f)
		if state == storage.Waiting {
			fields = append(fields, []show.Field{
				r.partitionedField(),
				{Name: "outlook", Text: outlook},
				{Name: "oldest", Text: age(r.Oldest)},
				{Name: "declined", Text: strings.Join(declined, "\n"), Style: show.Bad},
			}...)
		}
	}
	for _, state := range filter.Kept() {
		size := show.Number(r.Size(state))
		fields = append(fields, show.Field{Name: filter.StateWord(state), Text: size + " kept"})
	}
	fields = append(fields, show.Field{Name: "schedules", Text: show.Number(r.Cursors)}, damaged)
	return append(fields, everFields(&r.Totals)...)
}

// partitionedField returns how many of the waiting tasks stand in the lines of partitions. Its text is empty
// if none does.
func (r row) partitionedField() show.Field {
	f := show.Field{Name: "in partitions"}
	if r.Partitioned > 0 {
		f.Text = show.Number(r.Partitioned) + "   (midge queue partitions " + r.Queue + ")"
	}
	return f
}

func (a *app) queueCreate() *cobra.Command {
	return &cobra.Command{
		Use: "create QUEUE...", Short: "Make queues exist before their first tasks",
		Long: "create makes queues exist before their first tasks come, so that they can be\n" +
			"paused. It changes nothing about a queue that exists.",
		Example: "  midge queue create mail\n  midge queue pause mail", Args: wants(1, -1, "the names of queues"),
		RunE: a.quick(func(ctx context.Context, args []string) error {
			names, err := a.arguments(args)
			if err != nil {
				return err
			}
			return a.createQueues(ctx, names)
		}),
	}
}

// createQueues makes queues exist.
func (a *app) createQueues(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := checkOwn(name); err != nil {
			return err
		}
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	a.write("midge queue ls")
	for i, name := range names {
		err := a.audit().Do(ctx, ledger.Entry{Action: "create", Queue: name}, audit.One(func() error {
			return a.session.Configure(ctx, name, storage.Settings{Create: true})
		}))
		if err != nil {
			return a.partly(ctx, int64(i), int64(len(names)), "queue", "created", err)
		}
		a.notef("%s exists", name)
	}
	return nil
}

func (a *app) queuePause() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pause QUEUE...", Short: "Stop runners from claiming tasks of a queue or of a partition",
		Long: "pause stops runners from claiming tasks of a queue. Running tasks continue to\n" +
			"their end. Enqueueing, schedules and retries continue too. With --partition it\n" +
			"pauses one partition, and runners go on with all other tasks of the queue.",
		Example: "  midge queue pause mail\n  midge queue pause mail --for 1h\n" +
			"  midge queue pause mail --create\n  midge queue pause mail --partition acme --for 1h",
		Args: wants(1, -1, "the names of queues"),
	}
	create := cmd.Flags().Bool("create", false, "pause a queue also before its first task: create it first")
	var span span
	cmd.Flags().Var(&span, "for",
		"resume the queue after this time, such as 30m or 1d (default: it stays paused)")
	var key partitionKey
	a.partitionFlag(cmd, &key, "pause the partition with this key, whether or not it has tasks")
	cmd.RunE = a.quick(func(ctx context.Context, args []string) error {
		if cmd.Flags().Changed("for") && span.Duration < storage.MinSpan {
			return storage.Invalid("--for", span.Duration, "a millisecond or more, such as 30m")
		}
		args, err := a.arguments(args)
		if err == nil && *create {
			err = a.createQueues(ctx, args)
		}
		if err == nil {
			pause := storage.Pause{On: true, For: span.Duration}
			err = a.configure(ctx, args, pausing{pause, "pause", string(key)})
		}
		var missing *exitError
		if errors.As(err, &missing) && missing.code == NotFound {
			missing.next += ", or the same command with --create, before the first task of the queue"
		}
		return err
	})
	return cmd
}

func (a *app) queueResume() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume QUEUE...", Short: "Let runners claim tasks of a paused queue or partition again",
		Example: "  midge queue resume mail\n  midge queue resume mail --partition acme",
		Args:    wants(1, -1, "the names of queues"),
	}
	var key partitionKey
	a.partitionFlag(cmd, &key, "resume the partition with this key")
	cmd.RunE = a.quick(func(ctx context.Context, args []string) error {
		return a.configure(ctx, args, pausing{verb: "resume", partition: string(key)})
	})
	return cmd
}

// partly returns the error of an action on several things that ended after did of them were done.
func (a *app) partly(ctx context.Context, did, of int64, one, done string, err error) error {
	if did == 0 && (stopped(ctx) == 0 || errors.Is(err, storage.ErrUnknown)) {
		return err
	}
	return a.partial(ctx, show.Number(did)+" of "+show.Count(of, one)+" "+done, err)
}

func (a *app) queueRm() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm QUEUE", Aliases: []string{
			"delete",
			"remove",
		}, Short: "Remove a queue with all its tasks and totals",
		Example: "  midge queue rm mail", Args: wants(1, 1, "the name of a queue"),
	}
	yes := yesFlag(cmd)
	dry := cmd.Flags().Bool("dry-run", false, "show what would be removed, and change nothing")
	cmd.RunE = a.long(func(ctx context.Context, args []string) error {
		return a.removeQueue(ctx, args, *yes,
			*dry)
	})
	return cmd
}

func (a *app) removeQueue(ctx context.Context, args []string, yes, dry bool) error {
	rows, err := a.own(ctx, args)
	if err != nil {
		return err
	}
	r := rows[0]
	tasks := r.Size(storage.TaskStates()...)
	a.notef("on %s", a.target)
	a.notef("queue %s holds %s and %s; its totals go too", r.Queue, show.Count(tasks, "task"),
		show.Count(r.Cursors, "schedule"))
	if err := a.samples(ctx, r); err != nil {
		return err
	}
	if dry {
		a.notef("nothing was changed (--dry-run)")
		return nil
	}
	if err := a.confirm(yes, "Remove all of it?", tasks, r.Queue); err != nil {
		return err
	}
	a.writing, a.again = true, "midge queue show "+r.Queue
	deleted := 0
	err = a.audit().Do(ctx, ledger.Entry{Action: "remove", Queue: r.Queue}, func() (_ int64, err error) {
		if deleted, err = a.session.RemoveQueue(ctx, r.Queue); err != nil {
			return int64(deleted), err
		}
		return 1, nil
	})
	if err == nil {
		a.notef("removed %s", r.Queue)
		return nil
	}
	var full *storage.NotEmptyError
	if errors.As(err, &full) && full.Pending > 0 {
		a.again = "midge queue pause " + r.Queue + ", or midge task cancel --queue " + r.Queue + " --state running"
		err = &exitError{code: Refused, text: full.Error(), next: a.again}
	}
	return a.partly(ctx, int64(deleted), max(int64(deleted), tasks+r.Cursors), "record", "deleted", err)
}

// samples shows up to five of the tasks and schedules that are about to be removed.
func (a *app) samples(ctx context.Context, r row) error {
	left := 5
	for _, state := range storage.States() {
		if left == 0 {
			return nil
		}
		page, err := a.store.Tasks(ctx, storage.TasksQuery{Queue: r.Queue, State: state, Limit: left})
		if err != nil {
			return err
		}
		for _, t := range page.Tasks {
			a.notef("  %s  %s  %s", schedule.Name(t.Ref), show.Text(t.Kind), filter.TaskWord(&t))
		}
		left -= len(page.Tasks)
	}
	return nil
}
