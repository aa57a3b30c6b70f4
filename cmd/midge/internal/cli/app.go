package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/shell"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/redis"
)

// app is the state of one run of a command.
type app struct {
	std    Std
	args   []string        // the words after midge
	ended  <-chan struct{} // closed when the command is interrupted
	choice connect.Choice
	// The flags of all commands.
	output  string
	columns []string
	timeout span
	quiet   bool
	utc     bool
	noColor bool

	target  connect.Target
	chosen  bool
	unknown error // of choose: it is not known which storage is meant
	store   storage.Storage
	session *storage.Session
	brief   bool   // the command takes long only if the storage does
	writing bool   // a change may have been sent to the storage
	again   string // the command that shows the outcome of the change
}

// errTimeout is the cause of a context whose time is over.
var errTimeout = errors.New("it took too long")

// quickTime bounds the quick commands if --timeout is not set.
const quickTime = 30 * time.Second

func (a *app) globals(flags *pflag.FlagSet) {
	flags.StringVar(&a.choice.Storage, "storage", "",
		"the storage, by its `URL`: redis://…, postgres://…, sqlite:path")
	flags.StringVar(&a.choice.Profile, "profile", "",
		"the storage, by the `name` of a profile of the configuration")
	flags.StringVar(&a.choice.Prefix, "prefix", "", "the `prefix` of the keys in Redis (default midge)")
	flags.StringVar(&a.choice.Schema, "schema", "", "the `schema` of the tables in PostgreSQL (default midge)")
	flags.StringVarP(&a.output, "output", "o", "table",
		"the output format: "+show.OneOf(show.Formats()...))
	flags.StringSliceVar(&a.columns, "columns", nil,
		"the columns of a table, as `names` with commas between them")
	flags.Var(&a.timeout, "timeout",
		"give up after this `time`, such as 5m (default 30s; no limit for commands that may take long)")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print only the requested output and errors")
	flags.BoolVar(&a.utc, "utc", false, "show times in UTC instead of relative times")
	flags.BoolVar(&a.noColor, "no-color", false, "no colours (also by the variable NO_COLOR)")
}

// quick makes the function of a command that answers at once. Its time is bounded by default.
func (a *app) quick(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return a.command(quickTime, do)
}

// long makes the function of a command that may take any time.
func (a *app) long(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return a.command(0, do)
}

// command makes the function of a command. The function checks the flags of all commands and bounds the
// time of do; most is the bound without --timeout, 0 for none.
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
		if a.brief = most > 0; a.timeout.Duration > 0 {
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

// open finds and opens the storage. It refuses a storage in the memory of this process, because no other
// process can see it.
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

// openAny does the same as open, but also opens a storage in the memory of this process.
func (a *app) openAny(ctx context.Context) error {
	if a.store != nil {
		return nil
	}
	if err := a.choose(); err != nil {
		return err
	}
	redis.SendLogs(slog.New(slog.DiscardHandler)) // the errors of the calls name the fault
	openIt := a.target.Open
	if a.std.Open != nil {
		openIt = func(ctx context.Context) (storage.Storage, error) { return a.std.Open(ctx, a.target) }
	}
	store, err := openIt(ctx)
	if err != nil {
		return err
	}
	a.store, a.session = store, storage.NewSession(graceful{store}, 0)
	return nil
}

// choose finds the storage, once, and prints its warning. Each call returns the error of the first one.
func (a *app) choose() error {
	if a.chosen {
		return a.unknown
	}
	a.chosen = true
	if a.target, a.unknown = connect.Choose(a.choice, a.std.Env); a.unknown == nil && a.target.Warning != "" {
		a.notef("warning: %s", a.target.Warning)
	}
	return a.unknown
}

func (a *app) close() {
	if a.store != nil {
		_ = a.store.Close() // all calls have been answered
	}
}

// write names the storage that is about to be changed. again is the command that shows the outcome, for the
// case that the reply is lost.
func (a *app) write(again string) {
	a.notef("on %s", a.target)
	a.writing, a.again = true, again
}

// audit returns the writer for the audit of the storage, which has to be open.
func (a *app) audit() audit.Writer {
	return audit.Writer{Store: a.store, Who: a.std.User, Warn: func(err error) { a.notef("warning: %v", err) }}
}

// most returns how many rows a command with the flag --limit lists. Without the flag, it lists all rows for
// another program that reads each row for itself.
func (a *app) most(cmd *cobra.Command, limit int) int {
	if f := show.Format(a.output); !cmd.Flags().Changed("limit") && (f == show.IDs || f == show.JSONL) {
		return math.MaxInt
	}
	return limit
}

// with returns the command line of this run with another value of a flag, as a person can paste it. It shows
// no password.
func (a *app) with(flag, value string) string {
	words := shell.With(a.args, flag, value)
	if a.choice.Storage != "" {
		words = shell.With(words, "--storage", connect.Redacted(a.choice.Storage))
	}
	line := shell.Line(append([]string{"midge"}, words...)...)
	if line == "" || show.Text(line) != line { // pasted, a line that Text has changed would mean something else
		return "the same command with " + flag + " " + show.Text(value)
	}
	return line
}

// notef writes a message to standard error, unless --quiet is set.
func (a *app) notef(format string, args ...any) {
	if !a.quiet {
		_, _ = fmt.Fprintf(a.std.Err, format+"\n", args...)
	}
}

// printer returns a printer for the output. now is the storage's time.
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

// shown returns a printer with the current time of the storage, for relative times.
func (a *app) shown(ctx context.Context) (*show.Printer, error) {
	now, err := a.session.Now(ctx)
	return a.printer(now), err
}

// list writes rows. For people it adds the message none if there are no rows.
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

// arguments returns the arguments of a command. If the only argument is "-", they are the words of standard
// input. It refuses an empty one, which another program may have left behind that has failed.
func (a *app) arguments(args []string) ([]string, error) {
	if len(args) != 1 || args[0] != "-" {
		return args, nil
	}
	text, err := io.ReadAll(a.input(a.std.In))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	words := strings.Fields(string(text))
	if len(words) == 0 {
		return nil, badInput("standard input is empty")
	}
	return words, nil
}

// input makes in end when the command is interrupted. A read that waits for a user or for another program
// would otherwise last for ever.
func (a *app) input(in io.Reader) io.Reader { return &input{in: in, done: a.ended} }

type input struct {
	in   io.Reader
	done <-chan struct{}
}

// Read reads until the command is interrupted. The goroutine of an interrupted read ends with the process.
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
