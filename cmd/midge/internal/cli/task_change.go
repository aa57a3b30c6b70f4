package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/storage"
)

// changeFlags are the flags of the commands that change tasks.
type changeFlags struct {
	choice

	dry    bool
	limit  int
	rate   float64
	backup string
	canary bool
	yes    *bool
}

func (f *changeFlags) add(cmd *cobra.Command, states string) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.queues, "queue", nil, "only tasks of these `queues` (default all)")
	flags.StringSliceVar(&f.states, "state", nil, "only tasks in these `states` (default "+states+")")
	flags.BoolVar(&f.dry, "dry-run", false, "show the tasks that would change, and change nothing")
	flags.IntVar(&f.limit, "limit", 0, "change at most this number of tasks")
	flags.Float64Var(&f.rate, "rate", 0, "change at most this number of tasks a second")
	f.yes = yesFlag(cmd)
}

// changeLong is the end of the help of all commands that change tasks.
const changeLong = "\n\nName the tasks by their refs (queue/id), by - for refs on standard input, or by\n" +
	"a filter (midge task ls --help). The command shows several tasks and asks before\n" +
	"it changes them. If a run was interrupted, repeat it with the same arguments: it\n" +
	"changes the remaining tasks."

// changeExample returns examples of a command: on one task, on the tasks of a filter, and on the tasks of a
// list.
func changeExample(verb, filter string) string {
	return "  midge task " + verb + " mail/01JABCDEF\n  midge task " + verb + " '" + filter + "' --dry-run\n" +
		"  midge task ls '" + filter + "' -o ids | midge task " + verb + " -"
}

func (a *app) taskRequeue() *cobra.Command {
	cmd := &cobra.Command{
		Use: "requeue TASK...|FILTER|-", Aliases: []string{"retry"}, Short: "Run tasks again, or run them now",
		Long: "requeue runs ended tasks again, and runs tasks now that are due later. A filter\n" +
			"without a state chooses dead tasks.\n\n" +
			"With --canary one task goes first. If its attempt completes, or goes on for a\n" +
			"minute longer than its earlier attempts, the others follow at the rate. If it\n" +
			"fails, times out or crashes, or does not start within ten minutes, the command\n" +
			"stops and names the reason. It also stops once more than a tenth of the last 20\n" +
			"first attempts failed.\n\n" +
			"A dead or cancelled task keeps its finished steps and its checkpoint, so that its\n" +
			"job resumes where it was. A completed task forgets them, and with --from-start\n" +
			"every task does." + changeLong,
		Example: changeExample("requeue", "state:dead error:timeout") +
			"\n  midge task requeue 'state:dead error:timeout' --canary --rate 50",
		Args: wants(0, -1, "tasks, a filter or -"),
	}
	f := &changeFlags{}
	cmd.Flags().BoolVar(&f.canary, "canary", false,
		fmt.Sprintf("requeue one task first, the others if it does not fail (default rate %d)", bulk.CanaryRate))
	fromStart := cmd.Flags().Bool("from-start", false, "forget finished steps, checkpoint and progress")
	return a.changesWith(cmd, f, "dead", func() (bulk.Action, error) {
		return bulk.Action{Verb: bulk.Requeue, FromStart: *fromStart}, nil
	})
}

func (a *app) taskCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel TASK...|FILTER|-", Short: "Cancel tasks; a running task ends through its context",
		Long:    "cancel ends tasks. It asks a running task to end: it cancels the task's context." + changeLong,
		Example: changeExample("cancel", "kind:report age>1d"), Args: wants(0, -1, "tasks, a filter or -"),
	}
	return a.changes(cmd, "live", func() (bulk.Action, error) { return bulk.Action{Verb: bulk.Cancel}, nil })
}

func (a *app) taskRm() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm TASK...|FILTER|-", Aliases: []string{"delete", "remove"}, Short: "Delete tasks",
		Long: "rm deletes tasks with their parameters, history and results. It keeps running\n" +
			"tasks: cancel them first. --backup writes the deleted tasks to a new file, and\n" +
			"midge task restore enqueues them again from it. A repeat needs another file." + changeLong,
		Example: changeExample("rm", "state:dead ended>30d"), Args: wants(0, -1, "tasks, a filter or -"),
	}
	f := &changeFlags{}
	cmd.Flags().StringVar(&f.backup, "backup", "", "write the tasks to this new `file` before they are deleted")
	return a.changesWith(cmd, f, "live but not running", func() (bulk.Action, error) {
		return bulk.Action{Verb: bulk.Delete}, nil
	})
}

func (a *app) taskMove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "move --to QUEUE TASK...|FILTER|-", Short: "Move tasks to another queue",
		Long:    "move moves tasks to another queue. They keep their states." + changeLong,
		Example: "  midge task move --to slow 'kind:report'", Args: wants(0, -1, "tasks, a filter or -"),
	}
	to := cmd.Flags().String("to", "", "the `queue` to which the tasks move")
	return a.changes(cmd, "live but not running", func() (bulk.Action, error) {
		if *to == "" {
			return bulk.Action{}, usage(cmd, "midge task move wants --to QUEUE")
		}
		return bulk.Action{Verb: bulk.Move, Queue: *to}, nil
	})
}

// changes makes the function of a command that changes tasks. states names the states that a filter matches
// by default.
func (a *app) changes(cmd *cobra.Command, states string, action func() (bulk.Action, error)) *cobra.Command {
	return a.changesWith(cmd, &changeFlags{}, states, action)
}

func (a *app) changesWith(
	cmd *cobra.Command, f *changeFlags, states string, action func() (bulk.Action, error),
) *cobra.Command {
	f.add(cmd, states)
	cmd.RunE = a.long(func(ctx context.Context, args []string) error {
		what, err := action()
		if err != nil {
			return err
		}
		return a.change(ctx, cmd, what, args, f)
	})
	return cmd
}

// change executes an action on the tasks that the arguments choose. Unless the arguments are the ref of one
// task, it first shows a preview and asks for a confirmation. With --dry-run it shows the preview and does
// nothing else.
func (a *app) change(
	ctx context.Context, cmd *cobra.Command, action bulk.Action, args []string, f *changeFlags,
) error {
	req, err := a.changeRequest(cmd, action, args, f)
	if err != nil {
		return err
	}
	return a.changeOn(ctx, req, f)
}

// changeOn does the same as change, for a request.
func (a *app) changeOn(ctx context.Context, req bulk.Request, f *changeFlags) error {
	if _, err := os.Lstat(f.backup); err == nil && !f.dry { // before anybody is asked
		return a.existing(f.backup)
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	if err := a.named(ctx, req.Scan); err != nil {
		return err
	}
	a.notef("on %s", a.target)
	if req.Action.Verb == bulk.Move {
		a.warnUnserved(ctx, req.Action.Queue, "", "its tasks wait")
	}
	if len(req.Tasks) != 1 || f.dry {
		p, err := a.preview(ctx, req)
		if err != nil {
			return err
		}
		if p.record.DryRun = f.dry; f.dry || p.tasks == 0 {
			return a.unchanged(&p, len(req.Tasks) > 0)
		}
		verb := string(req.Action.Verb)
		question := strings.ToUpper(verb[:1]) + verb[1:] + " " + p.count + "?"
		if err := a.confirm(*f.yes, question, p.tasks, p.word); err != nil {
			return err
		}
		if !*f.yes {
			req.Tasks, req.Seen = p.targets, p.seen // the user did not confirm tasks that came or changed later
		}
		if !*f.yes && !p.more && len(req.Tasks) == 0 {
			req.Limit = int(p.tasks)
		}
	}
	if f.backup != "" {
		return a.backedUp(ctx, req, f.backup)
	}
	return a.done(ctx, req, sameAgain)
}

// backedUp executes a request with a backup in a new file. It leaves no file if there was nothing to back up.
func (a *app) backedUp(ctx context.Context, req bulk.Request, path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return a.existing(path)
	case err != nil:
		return badInput("the backup cannot be written: %v", err)
	}
	defer func() {
		info, err := file.Stat()
		_ = file.Close() // bulk.Run synced it before each deletion
		if err == nil && info.Size() == 0 {
			_ = os.Remove(path)
		}
	}()
	req.Backup = file
	return a.done(ctx, req, a.with("--backup", free(path)))
}

// existing refuses a file as a backup, because it may be the only copy of tasks that an earlier run deleted.
func (a *app) existing(path string) error {
	return &exitError{
		code: BadInput, text: "the backup has to be a new file, and " + path + " exists already",
		next: a.with("--backup", free(path)),
	}
}

// free returns the name of a file that does not exist, for a further backup beside path.
func free(path string) string {
	for n := 2; ; n++ {
		name := fmt.Sprintf("%s.%d", path, n)
		if _, err := os.Lstat(name); err != nil {
			return name
		}
	}
}

// changeRequest parses the arguments and the flags that choose tasks.
func (a *app) changeRequest(
	cmd *cobra.Command, action bulk.Action, args []string, f *changeFlags,
) (bulk.Request, error) {
	req := bulk.Request{Action: action, Limit: f.limit, Rate: f.rate, Canary: f.canary}
	if f.canary && !cmd.Flags().Changed("rate") {
		req.Rate = bulk.CanaryRate
	}
	if f.limit < 0 {
		return req, storage.Invalid("--limit", f.limit, "0 or more tasks")
	}
	if f.rate < 0 || math.IsNaN(f.rate) || math.IsInf(f.rate, 0) {
		return req, storage.Invalid("--rate", f.rate, "0 or more tasks a second")
	}
	if err := action.Check(); err != nil {
		return req, err
	}
	if len(args) == 0 && f.queues == nil && f.states == nil {
		return req, usage(cmd, "%s wants tasks, a filter, or - for standard input", cmd.CommandPath())
	}
	if refs, err := a.refs(args); err == nil && len(args) > 0 {
		if f.queues != nil || f.states != nil {
			return req, storage.Invalid("flags", "--queue or --state beside refs", "them with a filter")
		}
		req.Tasks = bulk.Refs(refs...)
		return req, nil
	} else if len(args) == 1 && args[0] == "-" {
		return req, err
	}
	var err error
	if req.Scan, err = f.request(strings.Join(args, " ")); err != nil {
		return req, err
	}
	if req.Scan.Filter.IsZero() && f.queues == nil && f.states == nil {
		return req, &exitError{
			code: BadInput, text: "the filter is empty, and would choose every task of all queues",
			next: "give a filter, --queue or --state; all tasks that have not ended are --state live",
		}
	}
	return req, nil
}

// preview describes an action before it happens: the largest number of its tasks, the number in words,
// whether there may be more tasks than were counted, the word to type if the tasks are many, the named tasks
// as they were shown, and the moment at which the tasks were counted.
type preview struct {
	record      show.Action
	tasks       int64
	count, word string
	more        bool
	targets     []bulk.Target
	seen        int64
}

// preview shows what an action would change.
func (a *app) preview(ctx context.Context, req bulk.Request) (preview, error) {
	p, err := bulk.Look(ctx, a.session, req, bulk.Budget{})
	if err != nil {
		return preview{}, err
	}
	if p.None() {
		why := "no such task"
		switch {
		case p.Kept > 0:
			why = "no task can be changed"
		case len(req.Tasks) > 0 && p.Gone == 0:
			why = "it was so already"
		}
		a.notef("%s; nothing was changed", why)
		a.noteReasons(p.Reasons)
		return preview{record: show.ActionTo(p)}, nil
	}
	count, what := previewed(&p)
	queues := slices.Sorted(maps.Keys(p.Queues))
	what += queuesText(queues) + ". " + p.Consequence
	a.notef("%s", a.printer(zeroTime).Wrapped(what, 0))
	for _, t := range p.Samples {
		line := fmt.Sprintf("%s  %s  %s  %s", t.Ref, show.Text(t.Kind), standing(t), show.Cut(firstLine(t), 60))
		a.notef("  %s", show.Cut(strings.TrimSpace(line), max(0, a.width()-2)))
	}
	if int64(len(p.Samples)) < p.Count {
		a.notef("  …")
	}
	a.noteReasons(p.Reasons)
	found := preview{
		record: show.ActionTo(p), tasks: p.Most, count: count, word: string(req.Action.Verb), more: p.More,
		targets: p.Targets, seen: p.Seen,
	}
	if len(queues) == 1 {
		found.word = queues[0]
	}
	return found, nil
}

// noteReasons writes why tasks are not changed.
func (a *app) noteReasons(reasons []bulk.Reason) {
	for _, r := range reasons {
		a.notef("  %s: %s", r.Ref, show.Text(r.Text))
	}
}

// unchanged ends a command that only showed a preview, or that found no task. named is set if the arguments
// named tasks.
func (a *app) unchanged(p *preview, named bool) error {
	if out := a.printer(zeroTime); !out.People() {
		if err := out.Value(p.record); err != nil {
			return err
		}
	}
	switch {
	case p.tasks > 0:
		a.notef("nothing was changed (--dry-run)")
	case named:
		return verdict(bulk.Result{Gone: p.record.Gone, Kept: p.record.Kept}, false)
	}
	return nil
}

// previewed returns the number of tasks of a preview as text, for a question, and the same with the extent
// of the search.
func previewed(p *bulk.Preview) (count, searched string) {
	count = show.Count(p.Count, "task")
	if !p.More {
		return count, count
	}
	searched = fmt.Sprintf(" (searched %s of %s; the command searches all)", show.Number(p.Searched),
		show.Number(p.Total))
	switch {
	case p.Count > 0:
		count += " or more"
	case p.Most < math.MaxInt64: // the arguments name tasks
		count = "up to " + show.Count(p.Most, "task")
	default:
		return "all that match", "no such task so far" + searched
	}
	return count, count + searched
}

// queuesText returns a text that names queues. It names only the first of many queues.
func queuesText(queues []string) string {
	const most = 5
	switch {
	case len(queues) == 0:
		return ""
	case len(queues) == 1:
		return " of queue " + queues[0]
	case len(queues) > most:
		return fmt.Sprintf(" of %d queues (%s, …)", len(queues), strings.Join(queues[:most], ", "))
	}
	return " of queues " + strings.Join(queues, ", ")
}

// sameAgain describes how to go on after a command that can be repeated.
const sameAgain = "the same command again: it does what is left"

// done executes a request and reports the outcome. again describes how to go on if only a part of it is done.
func (a *app) done(ctx context.Context, req bulk.Request, again string) error {
	a.writing, a.again = true, again
	told := time.Now()
	canary := a.canaryNotes(req.Rate)
	req.Progress = func(r bulk.Result) {
		canary(r)
		if a.std.Person && time.Since(told) > time.Second {
			told = time.Now()
			a.notef("%s %s", show.Number(r.Done), req.Action.Done())
		}
	}
	r, err := a.audit().Run(ctx, a.session, req)
	if err != nil && r.Done == 0 && (stopped(ctx) == 0 || errors.Is(err, storage.ErrUnknown)) {
		return err
	}
	p := a.printer(zeroTime)
	if !p.People() {
		if perr := p.Value(show.ActionOf(r)); perr != nil {
			return perr
		}
	} else if !a.quiet {
		if perr := p.Line("%s", outcome(req.Action, r)); perr != nil {
			return perr
		}
	}
	a.noteReasons(r.Reasons)
	var stop *bulk.CanaryError
	if told := show.Count(r.Done, "task") + " " + req.Action.Done(); errors.As(err, &stop) {
		return stoppedBy(told, stop)
	} else if err != nil {
		return a.partial(ctx, told, err)
	}
	return verdict(r, len(req.Tasks) == 1)
}

// canaryNotes makes a function that reports the progress of a canary.
func (a *app) canaryNotes(rate float64) func(bulk.Result) {
	var began, passed bool
	return func(r bulk.Result) {
		if r.Canary.ID != "" && !began {
			began = true
			a.notef("%s goes first; the others wait for its attempt", r.Canary)
		}
		if r.Passed && !passed {
			passed = true
			speed := "the others follow"
			if rate > 0 {
				speed = fmt.Sprintf("%s at %g a second", speed, rate)
			}
			a.notef("its attempt did not fail; %s", speed)
		}
	}
}

// stoppedBy returns the error of a requeue that its canary, or a later first attempt, has stopped.
func stoppedBy(told string, stop *bulk.CanaryError) error {
	text, next := told+", then: "+stop.Error(), "midge task show "+stop.Ref.String()
	if stop.Detail != "" {
		text += ": " + show.Text(stop.Detail)
	}
	if stop.Waits {
		next = "midge task why " + stop.Ref.String()
	}
	return &exitError{code: Partly, text: text, next: next}
}

// outcome describes the outcome of an action, such as "matched 300, requeued 297, 3 changed meanwhile".
func outcome(action bulk.Action, r bulk.Result) string {
	if r.Matched == 0 && r.Kept == 0 {
		return "nothing to do: it was so already"
	}
	parts := []string{"matched " + show.Number(r.Matched), action.Done() + " " + show.Number(r.Done)}
	for _, c := range []struct {
		n    int64
		text string
	}{
		{r.Asked, "of these still running and asked to stop"},
		{r.Changed, "changed meanwhile"},
		{r.Gone, "gone"},
		{r.Kept, "kept"},
	} {
		if c.n > 0 {
			parts = append(parts, show.Number(c.n)+" "+c.text)
		}
	}
	return strings.Join(parts, ", ")
}

// verdict returns the exit code for the outcome of an action as an error without a text, because the output
// shows everything. one is set if the command named one task.
func verdict(r bulk.Result, one bool) error {
	var code int
	switch {
	case r.Done > 0 && r.Changed+r.Gone+r.Kept > 0:
		code = Partly
	case r.Done > 0:
		return nil
	case r.Gone > 0 && (one || r.Kept+r.Changed == 0):
		code = NotFound
	case r.Kept+r.Changed > 0:
		code = Refused
	default:
		return nil
	}
	return &exitError{code: code}
}
