package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/load"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// loadFlags are the flags of load.
type loadFlags struct {
	task                           addFlags
	format, name, field, partition string
	types                          []string
	high                           int64
	reject, forget                 string
}

func (a *app) load() *cobra.Command {
	f := loadFlags{task: addFlags{retries: bulk.DefaultRetries}}
	cmd := &cobra.Command{
		Use: "load FILE", Short: "Enqueue a task for each row of a file, once",
		Long: "load enqueues a task for each row of a file, or of standard input if FILE is -.\n" +
			"The file may be compressed by gzip. In the format jsonl each line is the\n" +
			"parameters of a task as JSON; in csv the header names the fields; in lines each\n" +
			"line is a text. Blank lines are passed over.\n\n" +
			"If a run was killed or stopped, give the same command again: it goes on where\n" +
			"that run has stopped, and no row is enqueued twice, even if two runs load the\n" +
			"file at once. A task of the queue, which is never due, records how far the load\n" +
			"is. If you cancel this task, the load stops.\n\n" +
			"A wrong row stops the load, or goes to the file of --reject. The last row of a\n" +
			"pipe has to end with a newline.\n\n" + optionsHelp,
		Example: "  midge load orders.jsonl --kind send_mail --queue mail\n" +
			"  midge load orders.csv.gz --kind bill --queue bills --types id=int,paid=bool --reject wrong.csv\n" +
			"  zcat urls.txt.gz | midge load - --name urls --format lines --field url --kind fetch --queue fetch " +
			"--high-water 100000\n" +
			"  midge load --forget orders.jsonl --queue mail",
		Args: wants(0, 1, "a file, or - for standard input"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.task.kind, "kind", "", "the `kind` of the tasks")
	flags.StringVar(&f.task.queue, "queue", "default", "the `queue`")
	flags.StringVar(&f.format, "format", "", "jsonl, csv or lines (default: by the ending of the file's name)")
	flags.StringVar(&f.name, "name", "", "the `name` of the load in its queue (default: that of the file)")
	flags.StringVar(&f.field, "field", "",
		"with lines: the `field` of the parameters for the text (default: the text is the parameters)")
	flags.StringSliceVar(&f.types, "types", nil,
		"with csv: the types of columns, as `column=type`: int, float, bool, json or text; an empty value is null")
	flags.StringVar(&f.partition, "partition-field", "",
		"the `field` of a row whose value is the partition of the task")
	flags.Int64Var(&f.high, "high-water", 0, "wait while more than this `number` of tasks wait in the queue")
	flags.StringVar(&f.reject, "reject", "", "append the wrong rows to this `file`, and go on")
	f.task.properties(flags)
	flags.StringVar(&f.forget, "forget", "",
		"load nothing, but forget how far the load with this `name` is; its tasks stay")
	cmd.RunE = a.long(func(ctx context.Context, args []string) error {
		switch {
		case f.forget != "" && len(args) > 0:
			return usage(cmd, "midge load --forget wants no file")
		case f.forget != "":
			return a.forgetLoad(ctx, f.task.queue, f.forget)
		case len(args) == 0:
			return usage(cmd, "midge load wants a file, or - for standard input")
		}
		f.task.ofRunTimeout(cmd)
		if cmd.Flags().Changed("high-water") && f.high < 1 {
			return storage.Invalid("--high-water", f.high, "1 or more")
		}
		l, err := a.loader(args[0], &f)
		if err != nil {
			return err
		}
		return a.loadFile(ctx, l, f.reject)
	})
	return cmd
}

// loader makes the loader that the flags describe, without a session.
func (a *app) loader(path string, f *loadFlags) (*load.Loader, error) {
	if f.task.kind == "" {
		return nil, badInput("midge load wants the kind of the tasks: give --kind")
	}
	l := &load.Loader{Name: f.name, HighWater: f.high, Rows: load.Rows{
		Format: load.Format(f.format), Field: f.field, PartitionField: f.partition,
	}}
	if path == "-" {
		if l.Name == "" {
			return nil, badInput("standard input has no name: give --name, by which the next run knows the load")
		}
		l.Source = a.standardInput()
	} else {
		l.Source = fileSource(path)
		if l.Name == "" {
			l.Name = load.NameOf(path)
		}
	}
	if f.format == "" {
		if l.Rows.Format = load.FormatOf(path); l.Rows.Format == "" {
			return nil, badInput("the name %s does not tell the format: give --format, as jsonl, csv or lines",
				show.Text(path))
		}
	}
	var err error
	if l.Rows.Types, err = load.ParseTypes(f.types); err != nil {
		return nil, err
	}
	headers, err := headersOf(f.task.headers)
	if err != nil {
		return nil, err
	}
	cost, err := storage.CostOf("--cost", f.task.cost)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the flag
	}
	l.Rows.Task = bulk.Add{
		Ref: storage.Ref{Queue: f.task.queue}, Kind: f.task.kind, Encoding: f.task.encoding,
		Priority: f.task.priority, Cost: cost, Retries: int(f.task.retries), CrashLimit: f.task.crashes,
		Timeout: f.task.timeout.Duration, Keep: f.task.keep.Duration, Headers: headers,
	}
	return l, l.Check()
}

// fileSource returns the source for a file.
func fileSource(path string) load.Source {
	info, err := os.Stat(path)
	pipe := err == nil && !info.Mode().IsRegular()
	return load.Source{Name: path, Pipe: pipe, Open: func(context.Context) (io.ReadCloser, int64, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, 0, err
		}
		size := int64(0)
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		return file, size, nil
	}}
}

// standardInput returns the source for standard input, which can be read once.
func (a *app) standardInput() load.Source {
	opened, pipe := false, true
	if file, ok := a.std.In.(*os.File); ok {
		info, err := file.Stat()
		pipe = err != nil || !info.Mode().IsRegular()
	}
	return load.Source{Name: "-", Pipe: pipe, Open: func(ctx context.Context) (io.ReadCloser, int64, error) {
		if opened {
			return nil, 0, errors.New("standard input cannot be read again; give the same command again")
		}
		opened = true
		return io.NopCloser(&input{in: a.std.In, done: ctx.Done()}), 0, nil
	}}
}

// loadFile loads a file. reject is the path of the file for wrong rows, "" for none.
func (a *app) loadFile(ctx context.Context, l *load.Loader, reject string) (err error) {
	if err := readable(ctx, l.Source); err != nil {
		return badInput("%s cannot be read: %v", show.Text(l.Source.Name), err)
	}
	if reject != "" {
		if l.Reject, err = rejecting(reject, l.Source.Name); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Reject.Close()) }()
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	l.Session = storage.NewSession(graceful{a.store}, load.Patience)
	a.write("the same command again: it goes on where this one has stopped")
	shown := a.loadProgress()
	l.Progress = shown.told
	l.First = func(in *storage.Insert) { a.warnOf(ctx, in, "its tasks wait") }
	var r load.Report
	e := ledger.Entry{
		Action: "load", Queue: l.Rows.Task.Queue,
		Note: filepath.Base(l.Source.Name) + " as " + l.Name + ", of kind " + l.Rows.Task.Kind,
	}
	err = a.audit().Do(ctx, e, func() (int64, error) {
		var err error
		r, err = l.Run(ctx)
		return r.Loaded, err
	})
	shown.end()
	if err != nil {
		return a.loadError(ctx, l, r, err)
	}
	return a.loaded(r)
}

// readable returns an error if a file cannot be opened. A pipe is not tried, because it can be opened once.
func readable(ctx context.Context, s load.Source) error {
	if s.Name == "-" {
		return nil
	}
	info, err := os.Stat(s.Name)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return nil
	}
	file, _, err := s.Open(ctx)
	if err == nil {
		err = file.Close()
	}
	return err
}

// rejecting opens the file for wrong rows, which is not the file that is loaded.
func rejecting(path, loaded string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, badInput("the file for wrong rows cannot be written: %v", err)
	}
	own, err := file.Stat()
	if err == nil && !own.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if other, bad := os.Stat(loaded); bad == nil && err == nil && os.SameFile(own, other) {
		err = errors.New("it is the file that is loaded")
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, badInput("%s cannot take the wrong rows: %v", show.Text(path), err)
	}
	return file, nil
}

// loaded writes the report of a finished load.
func (a *app) loaded(r load.Report) error {
	if p := a.printer(zeroTime); !p.People() {
		return p.Value(show.Load{
			Rows: r.Rows, Loaded: r.Loaded, Existing: r.Existing, Rejected: r.Rejected, Before: r.Before,
		})
	}
	before, all := r.Before-r.RejectedBefore, r.Rows-r.Rejected
	text := "loaded " + show.Count(all-before, "row")
	switch {
	case r.Rows == r.Before && r.Rows > 0:
		text = "loaded before: " + show.Count(all, "row")
	case r.Before > 0:
		text += " after " + show.Number(before) + " before"
	}
	if r.Rejected > 0 {
		text += "; of all rows, rejected: " + show.Number(r.Rejected)
	}
	if r.Existing > 0 {
		text += "; there already: " + show.Number(r.Existing)
	}
	_, err := fmt.Fprintln(a.std.Out, text)
	return err
}

// recordNext returns the commands that a user may type next, once the record of a load or an import was
// shown.
func recordNext(kind string, marker storage.Ref) string {
	if kind == storage.ImportKind {
		return "the same midge import asynq command goes on; or with --abort it gives back what was not moved"
	}
	return "the same midge load command goes on; or to forget the load: " + forgetCommand(marker.Queue,
		load.NameOfMarker(marker))
}

// forgetCommand returns the command that forgets a load.
func forgetCommand(queue, name string) string {
	return "midge load --forget " + name + " --queue " + queue
}

// loadError returns the error for a load that did not come to the end of its file.
func (a *app) loadError(ctx context.Context, l *load.Loader, r load.Report, err error) error {
	told := show.Count(r.Rows-r.Rejected, "row") + " loaded"
	if r.Rejected > 0 {
		told += "; rejected: " + show.Number(r.Rejected)
	}
	forget := forgetCommand(l.Rows.Task.Queue, l.Name)
	var row *load.RowError
	var damaged *load.DamagedError
	var other *load.OtherFileError
	var mark *load.MarkerError
	var taken *load.TakenError
	var invalid *storage.InvalidError
	switch {
	case errors.As(err, &row):
		next := "correct the row and give the same command again"
		if row.Rejectable {
			next += ", or give it with --reject FILE"
		}
		return &exitError{code: Failed, text: row.Error() + "\n" + told, next: next}
	case errors.As(err, &damaged):
		return &exitError{
			code: Failed, text: err.Error() + "\n" + told,
			next: "bring the whole file (gzip -t tests it), and give the same command again",
		}
	case errors.As(err, &other):
		return &exitError{
			code: BadInput, text: other.Error(),
			next: "give it another --name; or to load it from its beginning under this one: " + forget,
		}
	case errors.As(err, &mark) && mark.Is == string(storage.Cancelled):
		return &exitError{
			code: Failed, text: told + ", then: " + mark.Error(), next: "to go on, give the same command again",
		}
	case errors.As(err, &mark):
		return &exitError{
			code: Refused, text: told + ", then: " + mark.Error(),
			next: "midge task ls 'state:all id:" + mark.Ref.ID + "'",
		}
	case errors.As(err, &taken):
		return &exitError{
			code: Refused, text: told + ", then: " + taken.Error(),
			next: "midge task show " + taken.Ref.String() + ", or give another --name",
		}
	case errors.As(err, &invalid):
		return err
	case stopped(ctx) != 0 && !errors.Is(err, storage.ErrUnknown), r.Rows > 0:
		return a.partial(ctx, told, err)
	}
	return err
}

// forgetLoad deletes the record of a load.
func (a *app) forgetLoad(ctx context.Context, queue, name string) error {
	if err := load.CheckName(name); err != nil {
		return err
	}
	if err := checkOwn(queue); err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	a.write("the same command again")
	var l payload.Load
	e := ledger.Entry{Action: "forget a load", Queue: queue, Note: name}
	err := a.audit().Do(ctx, e, audit.One(func() (err error) {
		l, err = load.Forget(ctx, a.session, queue, name)
		return err
	}))
	if errors.Is(err, storage.ErrNotFound) {
		return notFound("midge task ls --queue "+queue+" state:scheduled kind:"+storage.LoadKind,
			"the queue %s has no load %s", queue, name)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.std.Out, "forgot the load %s, of which %s had been loaded\n", name,
		show.Count(l.Rows-l.Rejected, "row"))
	return err
}

// loadProgress shows on standard error how far a load is.
type loadProgress struct {
	a     *app
	began time.Time
	last  time.Time
	first load.Report
	open  bool // a line of the terminal is not ended
}

func (a *app) loadProgress() *loadProgress { return &loadProgress{a: a} }

// How often the progress is shown: to a person, and in a log.
const (
	progressPerson = 200 * time.Millisecond
	progressLog    = 10 * time.Second
)

// told shows a report, unless the last one was shown a moment ago.
func (s *loadProgress) told(r load.Report) {
	now := time.Now()
	if s.began.IsZero() {
		s.began, s.last, s.first = now, now, r
		return
	}
	every := progressLog
	if s.a.std.Person {
		every = progressPerson
	}
	if now.Sub(s.last) < every || s.a.quiet {
		return
	}
	s.last = now
	line := s.line(r, now.Sub(s.began))
	if !s.a.std.Person {
		s.a.notef("%s", line)
		return
	}
	s.open = true
	_, _ = fmt.Fprintf(s.a.std.Err, "\r\x1b[K%s", line)
}

// line formats a report: the rows, their rate, the share and the time left.
func (s *loadProgress) line(r load.Report, took time.Duration) string {
	rate := float64(r.Rows-s.first.Rows) / took.Seconds()
	line := fmt.Sprintf("%s, %s/s", show.Count(r.Rows, "row"), show.Number(int64(rate)))
	if r.Rejected > 0 {
		line += ", " + show.Number(r.Rejected) + " rejected"
	}
	if r.Of > 0 && r.Done <= r.Of {
		line += fmt.Sprintf(", %.0f %%", 100*float64(r.Done)/float64(r.Of))
		if read := r.Done - s.first.Done; read > 0 {
			left := time.Duration(float64(took) * float64(r.Of-r.Done) / float64(read))
			line += ", about " + show.Span(left) + " left"
		}
	}
	if r.Waiting {
		line += ", waits for the queue"
	}
	return line
}

// end ends the line of a terminal.
func (s *loadProgress) end() {
	if s.open {
		_, _ = fmt.Fprintln(s.a.std.Err)
	}
}
