package cli

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/work/command"
)

// size is a flag that takes a number of bytes, such as 512M.
type size int64

// units are the units of a size, in lower case. All are powers of 1024.
var units = map[string]int64{
	"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
	"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30,
}

// Set parses the number: digits, and a unit right behind them.
func (s *size) Set(text string) error {
	name := strings.TrimLeft(text, "0123456789")
	unit, known := units[strings.ToLower(name)]
	n, err := strconv.ParseInt(strings.TrimSuffix(text, name), 10, 64)
	if err != nil || !known || n < 1 || n > math.MaxInt64/unit {
		return storage.Invalid("size", text, "a number of bytes, such as 512M or 2G")
	}
	*s = size(n * unit)
	return nil
}

// Type names the values of the flag.
func (*size) Type() string { return "size" }

// String returns the number of bytes, "" for 0.
func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

var _ pflag.Value = (*size)(nil)

// The times of work. Together with the second that the runner itself needs, they are less than the 30 seconds
// that Kubernetes waits.
const (
	drainTime = 15 * time.Second
	killTime  = 10 * time.Second
	reapTime  = 2 * time.Second // of ReturnWithin beyond killTime
)

// mostAtOnce bounds --concurrency of work and callback. Each task takes a process, or a connection.
const mostAtOnce = 10_000

// resultSources returns the values of --result.
func resultSources() []string { return []string{"fd3", "stdout"} }

// workFlags are the flags of work.
type workFlags struct {
	kinds, queues, env    []string
	concurrency           int
	timeout, grace, drain span
	memory                size
	dir, result           string
	verbose               bool
}

func (a *app) work() *cobra.Command {
	f := workFlags{grace: span{killTime}, drain: span{drainTime}}
	cmd := &cobra.Command{
		Use:   "work --kind KIND -- PROGRAM [ARGUMENT...]",
		Short: "Run a program for each task of a kind",
		Long: "work is a runner whose jobs are processes. For each task it starts the program,\n" +
			"without a shell, with the parameters as JSON on standard input, and waits for\n" +
			"its end. Exit code 0 completes the task, 65 makes it dead, and every other code\n" +
			"and every signal is a failure, which is retried. The program writes progress,\n" +
			"a checkpoint or a result as lines of JSON to file descriptor 3.\n\n" +
			"SIGTERM or SIGINT ends work: it starts no more tasks, and running programs have\n" +
			"the time of --drain. Then they get SIGTERM, and after --grace SIGKILL. Their\n" +
			"tasks run again elsewhere, without counting a retry.",
		Example: "  midge work --kind encode --queue films --concurrency 4 -- ./encode.sh\n" +
			"  midge work --kind report --memory 2G --run-timeout 1h -- python3 report.py",
		DisableFlagsInUseLine: true,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.kinds, "kind", nil, "the `kind` of the tasks to run; may be repeated")
	flags.StringArrayVar(&f.queues, "queue", []string{midge.DefaultQueue},
		"the `queue` to serve; may be repeated, the first queue is emptied first")
	flags.IntVar(&f.concurrency, "concurrency", runtime.GOMAXPROCS(0),
		fmt.Sprintf("how many programs run at once, at most %d (default: the number of processors)", mostAtOnce))
	flags.Lookup("concurrency").DefValue = "0" // which help leaves out: golden files are of any machine
	flags.Var(&f.timeout, "run-timeout", "end a program of a task without a timeout of its own after this time")
	flags.Var(&f.grace, "grace", "the time from SIGTERM to SIGKILL for a program that has to end")
	flags.Var(&f.drain, "drain", "the time that running programs have when work ends, before they get SIGTERM")
	flags.Var(&f.memory, "memory", "bound the data of each process by this size, such as 2G (Linux)")
	flags.StringVar(&f.dir, "dir", "", "the `folder` in which the programs run (default: the current folder)")
	flags.StringArrayVar(&f.env, "env", nil,
		"pass on the variable of this `name`, though it may hold a password; may be repeated")
	flags.StringVar(&f.result, "result", "fd3",
		"where the result comes from: fd3, or stdout for the whole standard output as text")
	flags.BoolVar(&f.verbose, "verbose", false,
		"write what the programs write to standard output and standard error, and log each task")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || cmd.ArgsLenAtDash() != 0 {
			return usage(cmd, "midge work wants the program behind --")
		}
		return nil
	}
	cmd.RunE = a.long(func(ctx context.Context, args []string) error { return a.runProgram(ctx, &f, args) })
	return cmd
}

// runProgram runs a program for each task until ctx ends.
func (a *app) runProgram(ctx context.Context, f *workFlags, program []string) error {
	if err := f.check(); err != nil {
		return err
	}
	cfg := command.Config{
		Path: program[0], Args: program[1:], Dir: f.dir, Grace: orNone(f.grace), Memory: int64(f.memory),
		ResultFromStdout: f.result == "stdout", Reaper: a.std.Reaper,
	}
	if err := cfg.Check(); err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	cfg.Env = a.childEnvironment(os.Environ(), f.env)
	runner, err := midge.NewRunner(a.store, midge.RunnerConfig{
		Queues: f.queues, Concurrency: f.concurrency, Timeout: f.timeout.Duration, Grace: orNone(f.drain),
		ReturnWithin: f.grace.Duration + reapTime, Slog: slog.New(a.workLog(f.verbose)),
	})
	if err != nil {
		return err
	}
	if f.verbose {
		cfg.Stdout, cfg.Stderr = a.std.Out, a.std.Err
	}
	for _, kind := range f.kinds {
		if err := command.Handle(runner, kind, cfg); err != nil {
			return err
		}
	}
	a.notef("runs %s for %s of %s on %s", show.Text(program[0]), strings.Join(f.kinds, ", "),
		strings.Join(f.queues, ", "), a.target)
	return runner.Run(ctx)
}

func (f *workFlags) check() error {
	if len(f.kinds) == 0 {
		return badInput("midge work wants the kind of the tasks to run: give --kind")
	}
	for _, kind := range f.kinds {
		if err := storage.CheckName("--kind", kind); err != nil {
			return err
		}
	}
	switch {
	case f.concurrency < 1 || f.concurrency > mostAtOnce: // in Go, 0 means the default
		return storage.Invalid("--concurrency", f.concurrency, "1 to %d", mostAtOnce)
	case f.timeout.Duration != 0 && f.timeout.Duration < storage.MinSpan:
		return storage.Invalid("--run-timeout", f.timeout.Duration, "0s for none, or %v or more", storage.MinSpan)
	case f.grace.Duration > storage.MaxDelay-reapTime:
		return storage.Invalid("--grace", f.grace.Duration, "at most %v", storage.MaxDelay-reapTime)
	}
	if !slices.Contains(resultSources(), f.result) {
		return storage.Invalid("--result", f.result, "%s", show.OneOf(resultSources()...))
	}
	for _, name := range f.env { // one with "=" may hold a password, which the error does not quote
		if name == "" || strings.Contains(name, "=") {
			return badInput("midge work wants the name of a variable for --env, without = and a value")
		}
	}
	for _, queue := range f.queues {
		if err := checkOwn(queue); err != nil {
			return err
		}
	}
	return nil
}

// orNone returns the time of a flag, in which 0 means none.
func orNone(s span) time.Duration {
	if s.Duration == 0 {
		return midge.None
	}
	return s.Duration
}

// childEnvironment returns the variables that a program sees: not those that name a storage or may hold a
// password, unless they are passed on by name.
func (a *app) childEnvironment(all, passed []string) []string {
	clean := command.Environment(all)
	return slices.DeleteFunc(slices.Clone(all), func(given string) bool {
		name, value, _ := strings.Cut(given, "=")
		if slices.Contains(passed, name) {
			return false
		}
		return a.target.Is(value) || !slices.Contains(clean, given)
	})
}

// workLog returns the log of a worker. It leaves out the errors of attempts, because they hold what programs
// have written: the tasks have them.
func (a *app) workLog(verbose bool) slog.Handler {
	level := slog.LevelWarn
	switch {
	case a.quiet:
		level = slog.LevelError
	case verbose:
		level = slog.LevelInfo
	}
	return discreet{slog.NewTextHandler(a.std.Err, &slog.HandlerOptions{Level: level})}
}

// discreet logs only the outcome of an attempt, with the fields that name it.
type discreet struct{ slog.Handler }

// WithAttrs returns a handler that adds fields.
func (d discreet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return discreet{d.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler that groups fields.
func (d discreet) WithGroup(name string) slog.Handler { return discreet{d.Handler.WithGroup(name)} }

// Handle writes the record.
func (d discreet) Handle(ctx context.Context, record slog.Record) error {
	record.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "outcome" {
			record.Message = attr.Value.String()
		}
		return attr.Key != "outcome"
	})
	return d.Handler.Handle(ctx, record)
}
