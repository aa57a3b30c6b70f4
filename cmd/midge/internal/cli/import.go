package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/imports"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// EnvFrom is the variable with the URL of asynq's Redis, because a password should not be in a flag.
const EnvFrom = "MIDGE_IMPORT_FROM"

// importFlags are the flags of both imports.
type importFlags struct {
	peer             string
	queue, to, table string
	kinds            []string
	dry, ended       bool
	yes              *bool
}

func (a *app) imports() *cobra.Command {
	return noun("import", "Move the tasks of another job queue into this storage", nil, a.importAsynq(),
		a.importRiver())
}

func (f *importFlags) add(cmd *cobra.Command, peer, ended string) {
	f.peer = peer
	flags := cmd.Flags()
	flags.StringVar(&f.queue, "queue", "default", "the `queue` of "+peer)
	flags.StringVar(&f.to, "to", "", "the `queue` of midge (default the same name)")
	flags.StringArrayVar(&f.kinds, "kind", nil,
		"a type and the kind for its tasks, as `type=kind`; * uses each type as the kind; may be repeated")
	flags.StringVar(&f.table, "kinds", "", "a `file` with a line type=kind for each type")
	flags.BoolVar(&f.ended, ended, false, "move "+ended+" tasks too; they run again at once")
	flags.BoolVar(&f.dry, "dry-run", false, "show what would be moved, and change nothing")
	f.yes = yesFlag(cmd)
}

// read reads the table of kinds.
func (f *importFlags) read() (imports.Kinds, error) {
	kinds := make(imports.Kinds)
	for _, line := range f.kinds {
		if err := kinds.Add(line); err != nil {
			return nil, err
		}
	}
	if f.table != "" {
		file, err := os.Open(f.table)
		if err != nil {
			return nil, badInput("the table of kinds cannot be read: %v", err)
		}
		defer func() { _ = file.Close() }()
		if err := kinds.Read(file); err != nil {
			return nil, fmt.Errorf("%s, %w", f.table, err)
		}
	}
	if f.to == "" {
		f.to = f.queue
	}
	return kinds, checkOwn(f.to)
}

// importer is an import from another job queue.
type importer interface {
	Check(ctx context.Context) error
	Plan(ctx context.Context) (*imports.Report, error)
	Run(ctx context.Context) (*imports.Report, error)
}

func (a *app) importAsynq() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use: "asynq", Short: "Move a queue of asynq, each task once",
		Long: "asynq moves the pending, scheduled and retried tasks of a queue of asynq if the\n" +
			"table of kinds names their types and their payloads are JSON. The other tasks\n" +
			"stay in asynq, and the command lists them. It pauses the queue in asynq, and the\n" +
			"queue stays paused. Active tasks have to end before the command moves tasks.\n\n" +
			"If a run was killed, repeat it with the same arguments: it moves the remaining\n" +
			"tasks. --abort instead gives the tasks back that the run had set aside. Until\n" +
			"then the command refuses another --to or storage, because the tasks may be in\n" +
			"the first one already.",
		Example: "  midge import asynq --from redis://localhost:6379 --queue mail --kind email:send=send_mail " +
			"--dry-run",
		Args: noArguments,
	}
	f.add(cmd, "asynq", "archived")
	from := cmd.Flags().String("from", "", "the Redis of asynq, by its `URL` (or the variable "+EnvFrom+")")
	abort := cmd.Flags().Bool("abort", false,
		"give the tasks that a killed run had set aside for any queue of midge back to asynq, and resume the queue")
	gone := cmd.Flags().Bool("storage-gone", false,
		"with --abort: also give back the tasks that a run into a storage that no longer exists had set aside")
	cmd.RunE = a.long(func(ctx context.Context, _ []string) error {
		kinds, err := f.read()
		if err != nil {
			return err
		}
		source, err := a.asynqRedis(*from)
		if err != nil {
			return err
		}
		defer func() { _ = source.Close() }()
		if err := a.open(ctx); err != nil {
			return err
		}
		i := &imports.Asynq{
			Source: source, Session: a.session, From: f.queue, To: f.to,
			Kinds: kinds, Archived: f.ended, Done: a.progress(), Gone: *gone,
		}
		if *abort {
			return asynqError(a.abortAsynq(ctx, i))
		}
		if *gone {
			return badInput("--storage-gone is for --abort alone")
		}
		archived, completed, grouped, err := i.Stays(ctx)
		if err != nil {
			return unreachable("asynq", err)
		}
		stays := map[string]int64{"archived": archived, "completed": completed, "grouped": grouped}
		if f.ended {
			delete(stays, "archived")
		}
		return asynqError(a.bring(ctx, f, i, stays))
	})
	return cmd
}

// asynqError adds the next step to the error of an import of asynq that was refused.
func asynqError(err error) error {
	var target *imports.TargetError
	switch {
	case errors.Is(err, imports.ErrActive):
		return &exitError{
			code: Refused, text: err.Error() + "; the queue is paused now, and they will end",
			next: "wait until asynq has no active task, and give the same command again",
		}
	case errors.As(err, &target) && target.Elsewhere:
		return &exitError{
			code: Refused, text: target.Error(),
			next: "give the command again with that storage and --to " + target.To + ", or with that storage and " +
				"--abort; if that storage is gone, with --abort --storage-gone",
		}
	case errors.As(err, &target):
		return &exitError{
			code: Refused, text: target.Error(),
			next: "give the command again with --to " + target.To + ", which moves them, or with --abort, which " +
				"gives back what was not moved",
		}
	}
	return err
}

func (a *app) abortAsynq(ctx context.Context, i *imports.Asynq) error {
	if err := i.Check(ctx); err != nil {
		return err
	}
	a.write("the same command again")
	if err := i.Resume(ctx); err != nil { // Resume sets the queue that the audit names
		return err
	}
	e := ledger.Entry{Action: "abort an import", Queue: i.To, Note: "from queue " + i.From + " of asynq"}
	if err := a.audit().Do(ctx, e, audit.One(func() error { return i.Abort(ctx) })); err != nil {
		return err
	}
	a.notef("queue %s of asynq has back what was not inserted, and is resumed", i.From)
	return nil
}

// unreachable returns the error for another job queue that does not answer.
func unreachable(peer string, err error) error {
	return &exitError{code: Unreachable, text: peer + " gives no answer: " + err.Error()}
}

// asynqRedis makes a client for the Redis of asynq.
func (a *app) asynqRedis(from string) (goredis.UniversalClient, error) {
	if from == "" {
		from = a.std.Env(EnvFrom)
	}
	if from == "" {
		return nil, badInput("give --from, the URL of the Redis of asynq, or set %s", EnvFrom)
	}
	options, err := goredis.ParseURL(from) // its error may show a password
	if err != nil {
		return nil, storage.Invalid("--from", "***", "the URL of a Redis, such as redis://localhost:6379/0")
	}
	return goredis.NewClient(options), nil
}

func (a *app) importRiver() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use: "river", Short: "Move a queue of River, in the database that both share",
		Long: "river moves the available, retryable and scheduled jobs of a queue of River if\n" +
			"the table of kinds names their kinds. The storage has to be the PostgreSQL that\n" +
			"holds River's tables. Each chunk is one transaction, so that River's workers may\n" +
			"continue. If a run was killed, repeat it.",
		Example: "  midge import river --queue default --kind send_mail=send_mail --dry-run",
		Args:    noArguments,
	}
	f.add(cmd, "River", "discarded")
	schema := cmd.Flags().String("river-schema", "",
		"the `schema` of River's tables (default: the search path names it)")
	cmd.RunE = a.long(func(ctx context.Context, _ []string) error {
		kinds, err := f.read()
		if err != nil {
			return err
		}
		if err := a.open(ctx); err != nil {
			return err
		}
		cfg, ok := a.target.Postgres()
		store, same := a.store.(*postgres.Storage)
		if !ok || !same {
			return badInput("import river wants the PostgreSQL in which River's tables are, and the storage is %s",
				a.target)
		}
		conn, err := pgx.Connect(ctx, cfg.URL)
		if err != nil {
			return unreachable("the database of River", errors.New("it cannot be connected to as the storage was"))
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		i := &imports.River{
			Conn: conn, Store: store, Schema: *schema, From: f.queue, To: f.to,
			Kinds: kinds, Discarded: f.ended, Done: a.progress(),
		}
		if err := i.Check(ctx); err != nil {
			return err
		}
		stays, err := i.Stays(ctx)
		if err != nil {
			return err
		}
		return a.bring(ctx, f, i, stays)
	})
	return cmd
}

// bring runs an import after it has shown the plan and the user has confirmed it. With --dry-run it only
// shows the plan.
func (a *app) bring(ctx context.Context, f importFlags, i importer, stays map[string]int64) error {
	if err := i.Check(ctx); err != nil {
		return err
	}
	plan, err := i.Plan(ctx)
	if err != nil {
		return err
	}
	p := a.printer(zeroTime)
	tasks, _ := plan.Tasks()
	a.notef("on %s", a.target)
	a.notef("%s to be moved from queue %s to queue %s", show.Count(tasks, "task"), show.Text(f.queue), f.to)
	a.warnUnserved(ctx, f.to, "", "its tasks wait")
	if f.dry {
		return a.imported(p, plan, stays, "to be moved")
	}
	for _, l := range plan.Lefts() {
		a.notef("  left: %s of type %s: %s", show.Count(plan.Left[l], "task"), show.Text(l.Type),
			show.Text(l.Reason))
	}
	if err := a.confirm(*f.yes, "Move them?", tasks, f.to); err != nil {
		return err
	}
	a.writing, a.again = true, "the same command again: it goes on where this one ended, and doubles nothing"
	var report *imports.Report
	e := ledger.Entry{Action: "import", Queue: f.to, Note: "from queue " + f.queue + " of " + f.peer}
	err = a.audit().Record(ctx, e, func() ledger.Ending {
		report, err = i.Run(ctx)
		n, _ := report.Tasks()
		return ledger.Ending{Count: int(n), IDs: bulk.IDs(report.Refs), Err: err}
	})
	if err != nil {
		if n, _ := report.Tasks(); n > 0 || stopped(ctx) != 0 && !errors.Is(err, storage.ErrUnknown) {
			return a.partial(ctx, show.Count(n, "task")+" moved", err)
		}
		return err
	}
	return a.imported(p, report, stays, "moved")
}

// progress returns a function that reports the progress of an import.
func (a *app) progress() func(*imports.Report) {
	return func(r *imports.Report) {
		moved, left := r.Tasks()
		a.notef("moved %s, left %s", show.Number(moved), show.Number(left))
	}
}

// imported writes the report of an import, or of its dry run.
func (a *app) imported(p *show.Printer, r *imports.Report, stays map[string]int64, done string) error {
	if !p.People() {
		record := show.Import{Moved: r.Moved, Left: []show.Left{}, Stays: stays}
		for _, l := range r.Lefts() {
			record.Left = append(record.Left, show.Left{Type: l.Type, Reason: l.Reason, Tasks: r.Left[l]})
		}
		return p.Value(record)
	}
	if len(r.Moved)+len(r.Left) == 0 {
		if err := p.Line("nothing is left to move"); err != nil {
			return err
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(r.Moved)) {
		if err := p.Line("%s: %s of type %s", done, show.Count(r.Moved[typ], "task"), show.Text(typ)); err != nil {
			return err
		}
	}
	for _, l := range r.Lefts() {
		if err := p.Line("left: %s of type %s: %s", show.Count(r.Left[l], "task"), show.Text(l.Type),
			show.Text(l.Reason)); err != nil {
			return err
		}
	}
	var stay []string
	for _, state := range slices.Sorted(maps.Keys(stays)) {
		if stays[state] > 0 {
			stay = append(stay, show.Number(stays[state])+" "+state)
		}
	}
	if len(stay) > 0 {
		return p.Line("not moved: %s", strings.Join(stay, ", "))
	}
	return nil
}
