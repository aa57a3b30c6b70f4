package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// editFlags are the flags of task edit.
type editFlags struct {
	actFlags

	params   string
	priority int
	now      bool
	requeue  bool
	in       span
	at       moment
}

func (a *app) taskEdit() *cobra.Command {
	f := &editFlags{}
	cmd := &cobra.Command{
		Use: "edit TASK...|FILTER|-", Short: "Change the parameters, the priority or the due time of tasks",
		Long: "edit changes the parameters of one task, or the priority or the due time of any\n" +
			"number of tasks. Values keep their types, so that the job can read them. Without\n" +
			"a flag, the program that VISUAL or EDITOR names opens the parameters." + actLong,
		Example: "  midge task edit mail/01JABCDEF\n  midge task edit mail/01JABCDEF --params " +
			"'{\"to\":\"bob\"}' --requeue\n" +
			"  midge task edit 'kind:report state:waiting' --priority 5\n  midge task edit 'kind:report " +
			"state:retry' --in 2h",
		Args: wants(0, -1, "tasks, a filter or -"),
	}
	f.add(cmd, "live but not running")
	flags := cmd.Flags()
	flags.StringVar(&f.params, "params", "", "the new parameters of one task, as `JSON`, @file or -")
	flags.BoolVar(&f.requeue, "requeue", false, "with new parameters: run the task again if it has ended")
	flags.IntVar(&f.priority, "priority", 0, "the new priority, -9 to 9")
	flags.Var(&f.in, "in", "run the tasks after this time, such as 10m or 2d")
	flags.Var(&f.at, "at", "run the tasks at this time, such as 2026-11-23T15:00:00Z")
	flags.BoolVar(&f.now, "now", false, "run the tasks now")
	cmd.MarkFlagsMutuallyExclusive("params", "priority", "in", "at", "now")
	cmd.RunE = a.long(func(ctx context.Context, args []string) error { return a.edit(ctx, cmd, args, f) })
	return cmd
}

func (a *app) edit(ctx context.Context, cmd *cobra.Command, args []string, f *editFlags) error {
	var act bulk.Act
	changed := cmd.Flags().Changed
	switch {
	case f.requeue && (changed("priority") || changed("in") || changed("at") || f.now):
		return storage.Invalid("flags", "--requeue with a priority or a moment", "midge task requeue for that")
	case changed("priority"):
		act = bulk.Act{Verb: bulk.Prioritise, Priority: f.priority}
	case f.now:
		act = bulk.Act{Verb: bulk.Reschedule}
	case changed("at"):
		act = bulk.Act{Verb: bulk.Reschedule, At: f.at.Time}
	case changed("in"):
		if err := a.open(ctx); err != nil {
			return err
		}
		now, err := a.session.Now(ctx)
		if err != nil {
			return err
		}
		act = bulk.Act{Verb: bulk.Reschedule, At: now.Add(f.in.Duration)}
	default:
		return a.editParams(ctx, cmd, args, f)
	}
	return a.act(ctx, cmd, act, args, &f.actFlags)
}

// editParams changes the parameters of one task. The change applies only to the version of the task that
// was shown.
func (a *app) editParams(
	ctx context.Context, cmd *cobra.Command, args []string, f *editFlags,
) (err error) {
	if len(args) != 1 {
		return usage(cmd, "the parameters of one task can be changed: give its ref")
	}
	ref, err := refOf(args[0])
	if err != nil {
		return err
	}
	var text []byte
	if f.params != "" {
		if text, err = a.text(f.params); err != nil {
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
	if text == nil {
		var path string
		if text, path, err = a.editor(ctx, t); err != nil || text == nil {
			return err
		}
		defer func() { a.keep(path, ref, f.dry, err) }()
		if err := payload.CheckJSON(string(text), text); err != nil {
			return err
		}
	}
	// The audit keeps the error of an act, and this error has a parameter, so it comes before the act.
	if _, err := payload.Edit(&t, text); err != nil {
		return fmt.Errorf("edit: %w", err)
	}
	a.notef("on %s", a.target)
	a.notef("was  %s", show.Cut(value(payload.Params(t)), 1000))
	a.notef("is   %s", show.Cut(show.Text(string(text)), 1000))
	if f.dry {
		one := show.Act{Matched: 1, DryRun: true, Reasons: []show.ActReason{}}
		return a.unchanged(&preview{record: one, tasks: 1}, true)
	}
	err = a.done(ctx, bulk.Request{
		Act:   bulk.Act{Verb: bulk.Edit, Params: text, Requeue: f.requeue},
		Tasks: []bulk.Target{{Ref: ref, Version: t.Version}},
	}, sameAgain)
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
