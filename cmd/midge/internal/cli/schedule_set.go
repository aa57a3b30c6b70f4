package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// setFlags are the flags of schedule set. The flags of its task are also flags of task add.
type setFlags struct {
	task       addFlags
	every      span
	cron, zone string
	jitter     span
	missed     string
	missedMost int // of --missed all; 0 for the default
	noOverlap  bool
}

func (a *app) scheduleSet() *cobra.Command {
	f := setFlags{task: addFlags{retries: bulk.DefaultRetries}}
	cmd := &cobra.Command{
		Use: "set QUEUE/NAME", Short: "Keep a schedule in the storage, or change a kept one",
		Long: "set keeps a schedule in the storage that no program declares. It ticks while a\n" +
			"live runner of its queue handles its kind. A kept schedule of the name is\n" +
			"replaced, and keeps its last tick and its pause. Without --kind its task, --missed\n" +
			"and --no-overlap stay as they are; zone and jitter do not: a flag that is not given\n" +
			"has its default. The name of a schedule that a program has declared is refused.\n" +
			"If no live runner of the queue handles the kind, a warning is printed; see also\n" +
			"midge schedule ls --orphaned.",
		Example: "  midge schedule set mail/ann --every 24h --jitter 6h --kind send_digest " +
			"--params '{\"to\":\"ann\"}'\n" +
			"  midge schedule set mail/ann --cron '0 9 * * 1-5' --zone Europe/Paris",
		Args: wants(1, 1, "a schedule, as queue/name"),
	}
	flags := cmd.Flags()
	flags.Var(&f.every, "every", "tick each time this time has passed since 1970, such as 1h")
	flags.StringVar(&f.cron, "cron", "", "tick by this crontab `line`, such as '0 3 * * *'")
	flags.StringVar(&f.zone, "zone", "", "the time `zone` of --cron, such as Europe/Paris (default: UTC)")
	flags.Var(&f.jitter, "jitter", "spread the ticks over this time, by the name of the schedule")
	flags.StringVar(&f.missed, "missed", schedule.OneMissed,
		"the ticks to make up for if several were missed: `one`, all or skip")
	flags.BoolVar(&f.noOverlap, "no-overlap", false,
		"leave out a tick while the task of an earlier one has not ended")
	flags.StringVar(&f.task.kind, "kind", "", "the `kind` of the tasks")
	f.task.content(flags)
	cmd.MarkFlagsMutuallyExclusive("every", "cron")
	cmd.RunE = a.quick(func(ctx context.Context, args []string) error {
		f.task.ofRunTimeout(cmd)
		return a.setSchedule(ctx, args[0], &f, cmd.Flags().Changed)
	})
	return cmd
}

// moments returns the schedule that the flags describe.
func (f *setFlags) moments(given func(string) bool) (schedule.Schedule, error) {
	var s schedule.Schedule
	switch {
	case given("every"):
		s = schedule.Every(f.every.Duration)
	case given("cron"):
		s = schedule.Cron(f.cron)
	default:
		return s, storage.Invalid("flags", "without --every and --cron", "one of them")
	}
	if given("jitter") {
		s = s.Spread(f.jitter.Duration)
	}
	s, err := s.In(f.zone)
	if err == nil && s.Next(time.Unix(0, 0)).IsZero() {
		err = storage.Invalid("schedule", s.Spec, "one that ticks at all")
	}
	return s, err
}

func (a *app) setSchedule(ctx context.Context, name string, f *setFlags, given func(string) bool) error {
	ref, err := cursorOf(name)
	if err != nil {
		return err
	}
	s, err := f.moments(given)
	if err != nil {
		return err
	}
	switch f.missed {
	case schedule.OneMissed, schedule.AllMissed, schedule.SkipMissed:
	default:
		return storage.Invalid("--missed", f.missed, "one, all or skip")
	}
	f.task.queue, f.task.id = ref.Queue, ref.ID
	in, err := a.insertOf(f.task.kind, &f.task)
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	if f.task.kind == "" {
		if in, err = a.sameTask(ctx, name, f, given); err != nil {
			return err
		}
	}
	d := storage.Declaration{Spec: s.Spec, Zone: f.zone, CatchUp: f.missed, Kept: true}
	if f.missed == schedule.AllMissed {
		d.CatchUpCap = cmp.Or(f.missedMost, schedule.MaxCatchUp)
	}
	if f.noOverlap {
		d.Overlap = schedule.SkipOverlap
	}
	schedule.Declare(&in, d)
	described, err := a.store.Describe(ctx)
	if err != nil {
		return err
	}
	if err := storage.CheckInsert(described.Limits, &in); err != nil {
		return err
	}
	a.write("midge schedule show " + name)
	err = a.changeSchedule(ctx, "set-schedule", ref, func() error { return schedule.Set(ctx, a.session, in) })
	if errors.Is(err, schedule.ErrDeclared) || errors.Is(err, schedule.ErrDamaged) {
		return &exitError{code: Refused, text: name + ": " + err.Error(), next: "midge schedule show " + name}
	}
	if err != nil {
		return err
	}
	a.notef("%s is set: %s", name, schedule.Short(s.Spec))
	a.warnUnserved(ctx, in.Ref.Queue, in.Kind, "the schedule does not tick")
	return nil
}

// warnUnserved prints a warning if no live runner of a queue handles a kind; none if the runners cannot be
// read. The kind "" stands for any kind, and then one runner of the queue is enough. so is what follows.
func (a *app) warnUnserved(ctx context.Context, queue, kind, so string) {
	runners, err := a.store.Runners(ctx)
	serving := survey.ServingOf(runners)[queue]
	switch {
	case err != nil, serving.Knows(kind), kind == "" && len(serving) > 0:
		return
	case len(serving) > 0:
		a.notef("warning: no live runner on %s handles %s, so %s until one does\n"+
			"next: midge runner ls --queue %s", queue, show.Text(kind), so, queue)
		return
	}
	a.notef("warning: no live runner serves the queue %s, so %s until one does\n"+
		"next: midge runner ls", queue, so)
}

// taskFlags are the flags of schedule set that describe the task, and need --kind.
var taskFlags = []string{
	"params", "encoding", "priority", "cost", "retries", "crash-limit", "run-timeout", "keep", "header",
}

// sameTask returns the insert of the tasks of a schedule that exists. It sets --missed and --no-overlap
// to the values of that schedule if they were not given.
func (a *app) sameTask(
	ctx context.Context, name string, f *setFlags, given func(string) bool,
) (storage.Insert, error) {
	for _, flag := range taskFlags {
		if given(flag) {
			return storage.Insert{}, storage.Invalid("flags", "--"+flag+" alone", "--kind with it")
		}
	}
	s, err := a.findPlan(ctx, name)
	if none := (*exitError)(nil); errors.As(err, &none) && none.code == NotFound {
		return storage.Insert{}, storage.Invalid("--kind", "", "the kind of the tasks of a new schedule")
	}
	if !given("missed") && s.declared.CatchUp != "" {
		f.missed, f.missedMost = s.declared.CatchUp, s.declared.CatchUpCap
	}
	if !given("no-overlap") {
		f.noOverlap = s.declared.Overlap == schedule.SkipOverlap
	}
	return s.TickInsert(s.ID, new(storage.Declaration)), err
}

// changeSchedule changes a schedule, with the change in the audit.
func (a *app) changeSchedule(ctx context.Context, action string, ref storage.Ref, do func() error) error {
	return a.audit().Do(ctx, ledger.Entry{Action: action, IDs: []string{ref.String()}}, audit.One(do))
}

func (a *app) schedulePause() *cobra.Command {
	return a.pausing("pause", "Stop the ticks of a schedule until it is resumed", true)
}

func (a *app) scheduleResume() *cobra.Command {
	return a.pausing("resume", "Let a paused schedule tick again, from its next tick on", false)
}

// pausing returns the command that pauses, or resumes, a schedule.
func (a *app) pausing(verb, short string, paused bool) *cobra.Command {
	return &cobra.Command{
		Use: verb + " QUEUE/NAME", Short: short, Example: "  midge schedule " + verb + " reports/nightly",
		Args: wants(1, 1, "a schedule, as queue/name"),
		RunE: a.quick(func(ctx context.Context, args []string) error {
			s, err := a.ownPlan(ctx, args[0])
			if err != nil {
				return err
			}
			a.write("midge schedule ls")
			err = a.changeSchedule(ctx, verb+"-schedule", s.Ref, func() error {
				return schedule.Pause(ctx, a.session, s.Ref, paused)
			})
			if err != nil {
				return err
			}
			a.notef("%sd %s", verb, s.ref())
			return nil
		}),
	}
}
