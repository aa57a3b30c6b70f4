package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// span is a flag that takes a duration, also in days and weeks.
type span struct{ time.Duration }

// Set parses the duration.
func (s *span) Set(text string) (err error) {
	s.Duration, err = filter.ParseDuration(text)
	return err
}

// Type names the values of the flag.
func (*span) Type() string { return "time" }

// String returns the duration, "" for 0.
func (s *span) String() string {
	if s.Duration == 0 {
		return ""
	}
	return s.Duration.String()
}

var _ pflag.Value = (*span)(nil)

// moment is a flag that takes a time.
type moment struct{ time.Time }

// Set parses the time. Without an offset, it is local time.
func (m *moment) Set(text string) (err error) {
	m.Time, err = filter.ParseMoment(text, time.Local) //nolint:gosmopolitan // where the user is
	return err
}

// Type names the values of the flag.
func (*moment) Type() string { return "moment" }

// String returns the time, "" for the zero time.
func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339)
}

// retries is a flag that takes a number of retries, or none. As in Go, 0 does not mean none.
type retries int

// Set parses the number.
func (n *retries) Set(text string) error {
	*n = 0
	if text == noRetries {
		return nil
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 || number > storage.MaxLimit {
		return storage.Invalid("--retries", text, "1 to %d, or %s", storage.MaxLimit, noRetries)
	}
	*n = retries(number)
	return nil
}

const noRetries = "none"

// Type names the values of the flag.
func (*retries) Type() string { return "number" }

// String returns the number, or none.
func (n *retries) String() string {
	if *n == 0 {
		return noRetries
	}
	return strconv.Itoa(int(*n))
}

// addFlags are the flags of task add.
type addFlags struct {
	kind, queue, params, id, encoding, unique string
	in, timeout, keep, uniqueFor, within      span
	at                                        moment
	retries                                   retries
	priority, crashes, cost                   int
	partition                                 partitionKey
	headers                                   []string
}

// optionsHelp is the sentence about the options of a job's type, which only a program knows.
const optionsHelp = "The command does not know the options that a program sets for the job's type, such\n" +
	"as its queue, unique key, priority, retries, timeout or partition: give the flags."

func (a *app) taskAdd() *cobra.Command {
	f := addFlags{retries: bulk.DefaultRetries}
	cmd := &cobra.Command{
		Use: "add KIND", Aliases: []string{"enqueue"}, Short: "Enqueue a task",
		Long: "add enqueues a task and prints its ref. The parameters are JSON: the text\n" +
			"itself, @file, or - for standard input. If you repeat a command with the same\n" +
			"--id, it enqueues no second task while the first task exists.\n\n" +
			optionsHelp,
		Example: "  midge task add send_mail --queue mail --params '{\"to\":\"ann@example.org\"}'\n  midge " +
			"task add report --params @report.json --in 2h",
		Args: wants(0, 1, "the kind of the job"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "kind", "", "the `kind`, instead of the argument KIND")
	flags.StringVar(&f.queue, "queue", "default", "the `queue`")
	f.content(flags)
	flags.StringVar(&f.id, "id", "", "the `id` of the task (default: a new id)")
	flags.Var(&f.in, "in", "run the task after this time, such as 10m or 2d")
	flags.Var(&f.at, "at", "run the task at this time, such as 2026-11-23T15:00:00Z")
	flags.Var(&f.within, "deadline",
		"the task is dead if it does not start within this time; a job that runs then is ended")
	flags.StringVar(&f.unique, "unique", "", "enqueue nothing while a live task of the kind has this `key`")
	flags.Var(&f.uniqueFor, "unique-for",
		"with --unique: reserve the key for this time, whether or not the task is live")
	a.partitionFlag(cmd, &f.partition,
		"the key of the partition of its queue in which the task waits; partitions are served in turn")
	cmd.RunE = a.quick(func(ctx context.Context, args []string) error {
		switch {
		case (f.kind == "") == (len(args) == 0):
			return usage(cmd, "midge task add wants the kind of the job, once")
		case f.kind == "":
			f.kind = args[0]
		}
		f.ofRunTimeout(cmd)
		if cmd.Flags().Changed("deadline") && f.within.Duration <= 0 {
			return storage.Invalid("--deadline", f.within.Duration, "more than 0, such as 1h")
		}
		return a.addTask(ctx, f.kind, &f)
	})
	return cmd
}

// content adds the flags that describe a task, without its kind, its id and its moment.
func (f *addFlags) content(flags *pflag.FlagSet) {
	flags.StringVar(&f.params, "params", "{}", "the parameters, as `JSON`, @file or -")
	f.properties(flags)
}

// properties adds the flags of content without the parameters.
func (f *addFlags) properties(flags *pflag.FlagSet) {
	flags.StringVar(&f.encoding, "encoding", "json",
		"the encoding of the stored parameters: json or msgpack; jobs read both")
	flags.IntVar(&f.priority, "priority", 0,
		"the priority, -9 to 9; tasks with a higher priority start first")
	flags.IntVar(&f.cost, "cost", 1, "how much of the rate of its queue a start uses up, 0 to 1000000")
	flags.Var(&f.retries, "retries", "the largest number of retries after failures, 1 or more, or none")
	flags.IntVar(&f.crashes, "crash-limit", 3,
		"the number of crashes of its runners after which the task is dead")
	flags.Var(&f.timeout, "run-timeout",
		"the longest time that an attempt may take, 0s for any (default: the runner's)")
	flags.Var(&f.keep, "keep", "how long the completed task is kept")
	flags.StringArrayVar(&f.headers, "header", nil, "a header, as `name=value`; may be repeated")
}

// ofRunTimeout makes a given --run-timeout of 0 no timeout.
func (f *addFlags) ofRunTimeout(cmd *cobra.Command) {
	if cmd.Flags().Changed("run-timeout") && f.timeout.Duration == 0 {
		f.timeout.Duration = storage.NoTimeout
	}
}

func (a *app) addTask(ctx context.Context, kind string, f *addFlags) error {
	if f.id == "" {
		f.id = storage.NewID() // a repetition of the printed command names the same task
	}
	in, err := a.insertOf(kind, f)
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	if f.within.Duration > 0 {
		now, err := a.session.Now(ctx)
		if err != nil {
			return err
		}
		in.Headers[storage.DeadlineHeader] = now.Add(f.within.Duration).UTC().Format(time.RFC3339Nano)
	}
	described, err := a.store.Describe(ctx)
	if err != nil {
		return err
	}
	if err := storage.CheckInsert(described.Limits, &in); err != nil {
		return err
	}
	a.warnOf(ctx, &in, "the task waits")
	a.write("midge task show " + in.Ref.String() + ", and where it is not there the same line with --id " +
		in.Ref.ID)
	placed, err := a.enqueue(ctx, in)
	if err != nil {
		return err
	}
	if placed.Existing {
		a.notef("nothing was enqueued: the task exists already, and is %s",
			filter.StateWord(placed.State))
	}
	return a.placed(placed)
}

// placed writes the ref of a task that was enqueued, or was there already.
func (a *app) placed(t storage.Placed) error {
	if p := a.printer(zeroTime); !p.People() && a.output != "ids" {
		return p.Value(show.Added{Ref: t.Ref.String(), State: string(t.State), Existing: t.Existing})
	}
	_, err := fmt.Fprintln(a.std.Out, t.Ref)
	return err
}

// warnUnusual warns of fields of new parameters that no task of the kind has. before are the parameters that
// the new ones replace, if there are such. It reports no failure of the storage: the command itself does.
func (a *app) warnUnusual(
	ctx context.Context, queue, kind string, params payload.Part, before ...payload.Part,
) {
	text, err := params.JSON()
	if err != nil {
		return
	}
	fields, _ := bulk.Unusual(ctx, a.store, queue, kind, text, before...)
	for _, field := range fields {
		a.notef("warning: no other task of kind %s in %s has the field %s",
			show.Text(kind), queue, show.Text(field))
	}
}

// warnOf prints a warning if a new task has unusual fields, and if no live runner can run it.
func (a *app) warnOf(ctx context.Context, in *storage.Insert, so string) {
	a.warnUnusual(ctx, in.Ref.Queue, in.Kind, payload.Part{Encoding: in.Encoding, Data: in.Payload})
	a.warnUnserved(ctx, in.Ref.Queue, in.Kind, so)
}

// enqueue enqueues a task, unless the task exists already.
func (a *app) enqueue(ctx context.Context, in storage.Insert) (placed storage.Placed, err error) {
	e := ledger.Entry{
		Action: "enqueue", Queue: in.Ref.Queue, IDs: []string{in.Ref.String()}, Note: "of kind " + in.Kind,
	}
	return a.place(ctx, e, func() (storage.Insert, error) { return in, nil })
}

// place enqueues the task that insert returns, unless the task exists already, with e in the audit.
func (a *app) place(
	ctx context.Context, e ledger.Entry, insert func() (storage.Insert, error),
) (placed storage.Placed, err error) {
	err = a.audit().Do(ctx, e, func() (int64, error) {
		in, err := insert()
		if err != nil {
			return 0, err
		}
		applied, err := a.session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{in}})
		if err != nil {
			return 0, err
		}
		if placed = applied.Inserted[0]; placed.Existing {
			return 0, nil
		}
		return 1, nil
	})
	return placed, err
}

// insertOf makes the insert that the flags describe.
func (a *app) insertOf(kind string, f *addFlags) (storage.Insert, error) {
	if err := checkOwn(f.queue); err != nil {
		return storage.Insert{}, err
	}
	text, err := a.text(f.params)
	if err != nil {
		return storage.Insert{}, err
	}
	headers, err := headersOf(f.headers)
	if err != nil {
		return storage.Insert{}, err
	}
	cost, err := storage.CostOf("--cost", f.cost)
	if err != nil {
		return storage.Insert{}, err //nolint:wrapcheck // it names the flag
	}
	if f.unique == "" && f.uniqueFor.Duration > 0 {
		return storage.Insert{}, storage.Invalid("flags", "--unique-for alone", "--unique with it")
	}
	add := bulk.Add{
		Ref: storage.Ref{Queue: f.queue, ID: f.id}, Kind: kind, Encoding: f.encoding, Params: text,
		Priority: f.priority, Partition: string(f.partition), Cost: cost, In: f.in.Duration, At: f.at.Time,
		Retries: int(f.retries), CrashLimit: f.crashes, Timeout: f.timeout.Duration, Keep: f.keep.Duration,
		Unique: f.unique, UniqueFor: f.uniqueFor.Duration, Headers: headers,
	}
	return add.Insert()
}

// headersOf parses headers, each as name=value.
func headersOf(lines []string) (map[string]string, error) {
	headers := make(map[string]string)
	for _, line := range lines {
		name, text, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			return nil, storage.Invalid("header", line, "name=value")
		}
		if _, twice := headers[name]; twice {
			return nil, storage.Invalid("header", name+" twice", "each header once")
		}
		headers[name] = text
	}
	return headers, nil
}

// maxInput bounds, in bytes, the parameters that are read from a file or from standard input.
const maxInput = 64 << 20

// text returns a JSON text of the command line: given itself, the file after an "@", or standard input for
// "-". It returns an error if the text is no JSON.
func (a *app) text(given string) ([]byte, error) {
	text := []byte(given)
	var err error
	switch {
	case given == "-":
		text, err = readParams(a.input(a.std.In))
	case strings.HasPrefix(given, "@"):
		text, err = readParamsFile(given[1:])
	}
	if err != nil {
		return nil, badInput("the parameters cannot be read: %v", err)
	}
	if err := payload.CheckJSON(given, text); err != nil {
		return nil, err
	}
	return text, nil
}

func readParamsFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readParams(file)
}

// readParams reads parameters to their end. It returns an error if they are longer than maxInput, because a
// part of them could be valid JSON with another meaning.
func readParams(in io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err == nil && len(text) > maxInput {
		return nil, fmt.Errorf("they are longer than %d MiB", maxInput>>20)
	}
	return text, err
}
