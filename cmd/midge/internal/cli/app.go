package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// app is one command that runs.
type app struct {
	std    Std
	ended  <-chan struct{} // the command was interrupted
	choice connect.Choice
	// The flags that all commands have.
	output  string
	columns []string
	timeout span
	quiet   bool
	utc     bool
	noColor bool

	target  connect.Target
	chosen  bool
	store   storage.Storage
	session *storage.Session
	writing bool   // something may have been sent that changes the storage
	again   string // how to look what became of it
}

// errTimeout ends a command whose time is over.
var errTimeout = errors.New("it took too long")

// quickTime bounds the commands that answer at once, where --timeout does not.
const quickTime = 30 * time.Second

func (a *app) globals(flags *pflag.FlagSet) {
	flags.StringVar(&a.choice.Storage, "storage", "",
		"the storage, by its `URL`: redis://…, postgres://…, sqlite:path")
	flags.StringVar(&a.choice.Profile, "profile", "",
		"the storage, by the `name` of a profile of the configuration")
	flags.StringVar(&a.choice.Prefix, "prefix", "", "the `prefix` of the keys in Redis (default midge)")
	flags.StringVar(&a.choice.Schema, "schema", "", "the `schema` of the tables in PostgreSQL (default midge)")
	flags.StringVarP(&a.output, "output", "o", "table", "how to write: "+strings.Join(show.Formats(), ", "))
	flags.StringSliceVar(&a.columns, "columns", nil, "the `names` of the columns of a table, with commas")
	flags.Var(&a.timeout, "timeout",
		"give up after this `time`, such as 5m (default 30s, none for what takes long)")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing beside what was asked for")
	flags.BoolVar(&a.utc, "utc", false, "show moments in UTC, not how far away they are")
	flags.BoolVar(&a.noColor, "no-color", false, "no colours (also by the variable NO_COLOR)")
}

// quick makes the function of a command that answers at once.
func (a *app) quick(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return a.command(quickTime, do)
}

// long makes the function of a command that may take as long as it likes.
func (a *app) long(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return a.command(0, do)
}

// command makes the function of a command: it checks what all commands have, and bounds its time.
func (a *app) command(
	most time.Duration, do func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.printer(time.Time{}).Check(); err != nil {
			return err
		}
		if err := notEmpty(cmd.Flags()); err != nil {
			return err
		}
		ctx := cmd.Context()
		if a.timeout.Duration > 0 {
			most = a.timeout.Duration
		}
		if most > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeoutCause(ctx, most, errTimeout)
			defer stop()
		}
		err := do(ctx, args)
		if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil && !a.writing {
			err = fmt.Errorf("%w (%v)", context.Cause(ctx), most)
		}
		return err
	}
}

// open finds and opens the storage.
func (a *app) open(ctx context.Context) error {
	if err := a.choose(); err != nil {
		return err
	}
	if a.target.Memory() && a.std.Open == nil {
		return storage.Invalid("storage", "memory:",
			"one that other processes share; memory: is for midge serve alone")
	}
	return a.openAny(ctx)
}

// openAny is open for a command to which the memory of its own process is a storage, too.
func (a *app) openAny(ctx context.Context) error {
	if a.store != nil {
		return nil
	}
	if err := a.choose(); err != nil {
		return err
	}
	redis.SendLogs(slog.New(slog.DiscardHandler)) // the answer of a call says what was wrong
	openIt := a.target.Open
	if a.std.Open != nil {
		openIt = func(ctx context.Context) (storage.Storage, error) { return a.std.Open(ctx, a.target) }
	}
	store, err := openIt(ctx)
	if err != nil {
		return err
	}
	a.store, a.session = store, storage.NewSession(store, 0)
	return nil
}

// choose finds the storage.
func (a *app) choose() (err error) {
	if a.chosen {
		return nil
	}
	a.chosen = true
	if a.target, err = connect.Choose(a.choice, a.std.Env); err == nil && a.target.Warning != "" {
		a.notef("warning: %s", a.target.Warning)
	}
	return err
}

func (a *app) close() {
	if a.store != nil {
		_ = a.store.Close() // all calls were answered
	}
}

// write says on which storage something is about to be changed. again is how to look what became of
// it, where the reply is lost.
func (a *app) write(again string) {
	a.notef("on %s", a.target)
	a.writing, a.again = true, again
}

// audit is the audit of the storage, which is open.
func (a *app) audit() audit.Writer {
	return audit.Writer{Store: a.store, Who: a.std.User, Warn: func(err error) { a.notef("warning: %v", err) }}
}

// notef says something beside the output, unless it should be quiet.
func (a *app) notef(format string, args ...any) {
	if !a.quiet {
		_, _ = fmt.Fprintf(a.std.Err, format+"\n", args...)
	}
}

// printer writes the output. now is the storage's time.
func (a *app) printer(now time.Time) *show.Printer {
	return &show.Printer{
		Out: a.std.Out, Format: show.Format(a.output), Columns: a.columns, UTC: a.utc, Now: now,
		Color: a.std.Terminal && !a.noColor && a.std.Env("NO_COLOR") == "" && a.std.Env("TERM") != "dumb",
		Width: a.width(),
	}
}

func (a *app) width() int {
	if !a.std.Terminal {
		return 0
	}
	return a.std.Width
}

// shown is the printer for what a command found, which tells moments from the storage's time.
func (a *app) shown(ctx context.Context) (*show.Printer, error) {
	now, err := a.session.Now(ctx)
	return a.printer(now), err
}

// list writes rows, and what was left out.
func list[T any](ctx context.Context, a *app, l show.List[T], rows []T, none string) error {
	p, err := a.shown(ctx)
	if err != nil {
		return err
	}
	if len(rows) == 0 && p.People() {
		a.notef("%s", none)
	}
	return l.Write(p, rows)
}

// arguments gives the arguments of a command: those of the line, or where that is "-" the lines of
// standard input.
func (a *app) arguments(args []string) ([]string, error) {
	if len(args) != 1 || args[0] != "-" {
		return args, nil
	}
	text, err := io.ReadAll(a.input(a.std.In))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// input reads what somebody types or another program writes, until the command is interrupted: a read that
// waits would go on for ever.
func (a *app) input(in io.Reader) io.Reader { return &input{in: in, done: a.ended} }

type input struct {
	in   io.Reader
	done <-chan struct{}
}

// Read reads. The goroutine of a read that is interrupted ends with the process.
func (r *input) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	read, own := make(chan result, 1), make([]byte, len(p))
	go func() {
		n, err := r.in.Read(own)
		read <- result{n, err}
	}()
	select {
	case got := <-read:
		return copy(p, own[:got.n]), got.err
	case <-r.done:
		return 0, context.Canceled
	}
}
