package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// editFlags are the flags of task edit.
type editFlags struct {
	changeFlags

	params    string
	set       []string
	priority  int
	partition string
	cost      int
	now       bool
	requeue   bool
	start     bool
	in        span
	at        moment
}

func (a *app) taskEdit() *cobra.Command {
	f := &editFlags{}
	cmd := &cobra.Command{
		Use:   "edit TASK...|FILTER|-",
		Short: "Change the parameters, priority, partition, cost or due time of tasks",
		Long: "edit changes the parameters of one task, or fields of the parameters, the\n" +
			"priority, the partition, the cost or the due time of any number of tasks. Values\n" +
			"keep their types, so that the job can read them. Without a flag, the program\n" +
			"that VISUAL or EDITOR names opens the parameters. With --params or --set, the\n" +
			"flags for the priority, the partition, the cost, the due time and --requeue take\n" +
			"effect in the same step." + changeLong,
		Example: "  midge task edit mail/01JABCDEF\n  midge task edit mail/01JABCDEF --params " +
			"'{\"to\":\"bob\"}' --requeue\n" +
			"  midge task edit 'state:dead kind:send_mail' --set user.host=mail2 --requeue\n" +
			"  midge task edit 'kind:report state:waiting' --priority 5 --partition acme\n" +
			"  midge task edit 'kind:report state:retry' --in 2h",
		Args: wants(0, -1, "tasks, a filter or -"),
	}
	f.add(cmd, "live but not running")
	flags := cmd.Flags()
	flags.StringVar(&f.params, "params", "", "the new parameters of one task, as `JSON`, @file or -")
	flags.StringArrayVar(&f.set, "set", nil,
		"set a field of the parameters, as `path=value`, such as user.name=bob or lines.0.n=7; may be repeated")
	flags.BoolVar(&f.requeue, "requeue", false,
		"with new parameters: run ended tasks again, and tasks that are due later now")
	flags.BoolVar(&f.start, "from-start", false,
		"with --requeue: forget finished steps, checkpoint and progress")
	flags.IntVar(&f.priority, "priority", 0, "the new priority, -9 to 9")
	flags.StringVar(&f.partition, "partition", "", "the `key` of the new partition, '' for none")
	_ = cmd.RegisterFlagCompletionFunc("partition", a.ofQueue)
	flags.IntVar(&f.cost, "cost", 1, "the new cost of a start, 0 to 1000000")
	flags.Var(&f.in, "in", "run the tasks after this time, such as 10m or 2d")
	flags.Var(&f.at, "at", "run the tasks at this time, such as 2026-11-23T15:00:00Z")
	flags.BoolVar(&f.now, "now", false, "run the tasks now")
	cmd.MarkFlagsMutuallyExclusive("in", "at", "now", "requeue")
	cmd.MarkFlagsMutuallyExclusive("params", "set")
	cmd.RunE = a.long(func(ctx context.Context, args []string) error { return a.edit(ctx, cmd, args, f) })
	return cmd
}

func (a *app) edit(ctx context.Context, cmd *cobra.Command, args []string, f *editFlags) error {
	changed := cmd.Flags().Changed
	action := bulk.Action{
		Verb: bulk.Edit, Requeue: f.requeue, FromStart: f.start,
		Prioritised: changed("priority"), Priority: f.priority,
		Rescheduled: f.now || changed("at") || changed("in"), At: f.at.Time,
	}
	if changed("partition") {
		action.Partition = &f.partition
	}
	if changed("cost") {
		cost, err := storage.CostOf("--cost", f.cost)
		if err != nil {
			return err //nolint:wrapcheck // it names the flag
		}
		action.Cost = &cost
	}
	placed := action.Prioritised || action.Partition != nil || action.Cost != nil
	for _, text := range f.set {
		setting, err := payload.SettingOf(text)
		if err != nil {
			return err
		}
		action.Set = append(action.Set, setting)
	}
	if changed("in") {
		if err := a.open(ctx); err != nil {
			return err
		}
		now, err := a.session.Now(ctx)
		if err != nil {
			return err
		}
		action.At = now.Add(f.in.Duration)
	}
	switch {
	case len(action.Set) > 0:
		return a.editFields(ctx, cmd, args, f, action)
	case f.requeue && placed && !changed("params"):
		return storage.Invalid("flags", "--requeue with --priority, --partition or --cost alone",
			"--params or --set with them")
	case changed("params") || f.requeue || !placed && !action.Rescheduled:
		return a.editParams(ctx, cmd, args, f, action)
	case placed && action.Rescheduled:
		return storage.Invalid("flags", "--priority, --partition or --cost with a moment",
			"one of them, or both with --params or --set")
	case action.Prioritised:
		action.Verb, action.Prioritised = bulk.Prioritise, false
	case action.Partition != nil:
		action.Verb = bulk.Partition
	case placed:
		action.Verb = bulk.Cost
	default:
		action.Verb, action.Rescheduled = bulk.Reschedule, false
	}
	return a.change(ctx, cmd, action, args, &f.changeFlags)
}

// editFields sets fields of the parameters of any number of tasks. It warns of unusual fields by the first of
// these tasks.
func (a *app) editFields(
	ctx context.Context, cmd *cobra.Command, args []string, f *editFlags, action bulk.Action,
) error {
	req, err := a.changeRequest(cmd, action, args, &f.changeFlags)
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	look, err := bulk.Look(ctx, a.session, req, bulk.Budget{Time: time.Second / 5})
	if err != nil {
		return err
	}
	if len(look.Samples) > 0 {
		t := look.Samples[0]
		if encoded, err := payload.Set(&t, action.Set); err == nil {
			params := payload.Part{Encoding: t.Encoding, Data: encoded}
			a.warnUnusual(ctx, t.Queue, t.Kind, params, payload.Params(t))
			a.noteTexts(params, action.Set)
		}
	}
	return a.changeOn(ctx, req, &f.changeFlags) // standard input can be read only once
}

// noteTexts prints which of the fields that were set to numbers have texts all the same, because they had
// texts before, and which command stores a number.
func (a *app) noteTexts(params payload.Part, set []payload.Setting) {
	values := payload.ValuesOf(params.Encoding, params.Data)
	for _, s := range set {
		if json.Unmarshal([]byte(s.Value), new(json.Number)) != nil {
			continue
		}
		text := func(is payload.Scalar) bool { return is.Text == s.Value && !is.Number }
		if values.Find(strings.Split(s.Path, "."), text) {
			a.notef("%s has a text, so %s is stored as a text: an edit keeps types; "+
				"midge task add takes a number", show.Text(s.Path), s.Value)
		}
	}
}

// editParams changes the parameters of one task. The change applies only to the version of the task that
// was shown.
func (a *app) editParams(
	ctx context.Context, cmd *cobra.Command, args []string, f *editFlags, action bulk.Action,
) (err error) {
	if len(args) != 1 {
		return usage(cmd, "the parameters of one task can be changed: give its ref, or --set for single fields")
	}
	ref, err := refOf(args[0])
	if err != nil {
		return err
	}
	if f.params != "" {
		if action.Params, err = a.text(f.params); err != nil {
			return err
		}
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	t, err := a.find(ctx, ref.String())
	if err != nil {
		return err
	}
	if action.Params == nil {
		var path string
		if action.Params, path, err = a.editor(ctx, t); err != nil || action.Params == nil {
			return err
		}
		defer func() { a.keep(path, ref, f.dry, err) }()
		if err := payload.CheckJSON(string(action.Params), action.Params); err != nil {
			return err
		}
	}
	// The audit keeps the error of an action, and this error has a parameter, so it comes before the action.
	encoded, err := payload.Edit(&t, action.Params)
	if err != nil {
		return fmt.Errorf("edit: %w", err)
	}
	a.notef("on %s", a.target)
	a.notef("was  %s", show.Cut(value(payload.Params(t)), 1000))
	a.notef("is   %s", show.Cut(show.Text(string(action.Params)), 1000))
	a.warnUnusual(ctx, t.Queue, t.Kind, payload.Part{Encoding: t.Encoding, Data: encoded}, payload.Params(t))
	if f.dry {
		one := show.Action{Matched: 1, DryRun: true, Reasons: []show.ActionReason{}}
		return a.unchanged(&preview{record: one, tasks: 1}, true)
	}
	req := bulk.Request{Action: action, Tasks: []bulk.Target{{Ref: ref, Version: t.Version}}}
	err = a.done(ctx, req, sameAgain)
	if err == nil && t.State == storage.Dead && !f.requeue {
		a.notef("it stays dead\nnext: midge task requeue %s", ref)
	}
	return err
}

// keep removes the file of an editor. If the text did not become the parameters, keep reports where the
// file is, because the user may have spent much time on it.
func (a *app) keep(path string, ref storage.Ref, dry bool, failed error) {
	when := "to make the change"
	switch {
	case failed != nil:
		when = "once it is mended"
	case !dry:
		_ = os.RemoveAll(filepath.Dir(path))
		return
	}
	a.notef("your text is kept in %s; %s: midge task edit %s --params @%s", path, when, ref, path)
}

// editor lets the user edit the parameters of a task in a file. If nothing was changed, the text is nil and
// the file is removed.
func (a *app) editor(ctx context.Context, t storage.Task) (text []byte, path string, err error) {
	program := a.std.Env("VISUAL")
	if program == "" {
		program = a.std.Env("EDITOR")
	}
	asked, err := a.ask()
	if program == "" || err != nil {
		return nil, "", badInput("give --params JSON, or set EDITOR at a terminal")
	}
	defer func() { _ = asked.Close() }()
	shown, err := payload.Params(t).JSON()
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "midge")
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if text == nil {
			_ = os.RemoveAll(dir)
		}
	}()
	path = filepath.Join(dir, "params.json")
	before := indented(shown)
	if err := os.WriteFile(path, before, 0o600); err != nil {
		return nil, "", err
	}
	// the user's own program
	cmd := exec.CommandContext(ctx, "sh", "-c", program+` "$1"`, "sh", path) //nolint:gosec // G204:
	cmd.Stdin, cmd.Stdout, cmd.Stderr = asked.In, asked.Out, a.std.Err
	if err := cmd.Run(); err != nil {
		return nil, "", fmt.Errorf("%s: %w", program, err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	if bytes.Equal(bytes.TrimSpace(before), bytes.TrimSpace(after)) {
		a.notef("nothing was changed")
		return nil, "", nil
	}
	return append([]byte{}, bytes.TrimSpace(after)...), path, nil // not nil if the user deleted everything
}
