package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// plan is a stored schedule.
type plan struct {
	storage.Task

	name     string
	declared storage.Declaration
	damaged  bool
	ticked   bool // by a live runner, if it is not paused
	orphaned bool
}

var scheduleList = show.List[plan]{
	Columns: []show.Column[plan]{
		{Name: "schedule", Text: func(_ *show.Printer, s plan) string { return s.ref() }},
		{Name: "status", Text: func(_ *show.Printer, s plan) string { return s.status() }, Style: plan.style},
		{Name: "owner", Text: func(_ *show.Printer, s plan) string { return s.owner() }},
		{Name: "kind", Text: func(_ *show.Printer, s plan) string { return show.Text(s.Kind) }},
		{Name: "next", Text: func(p *show.Printer, s plan) string { return p.Moment(s.ticks()) }},
		{Name: "last", Text: func(p *show.Printer, s plan) string { return p.Moment(s.last()) }},
		{Name: "zone", Text: func(_ *show.Printer, s plan) string { return show.Text(s.zone()) }},
		{Name: "missed", Wide: true, Text: func(_ *show.Printer,
			s plan,
		) string {
			return show.Text(s.declared.CatchUp)
		}},
		{Name: "overlap", Wide: true, Text: func(_ *show.Printer,
			s plan,
		) string {
			return show.Text(s.declared.Overlap)
		}},
		{Name: "spec", Text: func(_ *show.Printer, s plan) string { return s.spec() }},
	},
	Record: func(s plan) any { return s.record() },
	ID:     plan.ref,
}

// ref returns the name of the schedule in commands: its queue and its own name.
func (s plan) ref() string { return s.Queue + "/" + s.name }

func (s plan) status() string {
	switch {
	case s.damaged:
		return "damaged"
	case s.declared.Paused:
		return "paused"
	case s.orphaned:
		return "orphaned"
	}
	return "live"
}

// owner returns to whom the name of the schedule belongs: to a program that declares it, or to nobody.
func (s plan) owner() string {
	switch {
	case s.damaged:
		return "-"
	case s.declared.Kept:
		return "kept"
	}
	return "code"
}

func (s plan) style() show.Style {
	if s.damaged || s.orphaned {
		return show.Bad
	}
	return show.Plain
}

func (s plan) next() time.Time {
	if s.Cursor == nil {
		return time.Time{}
	}
	return s.Cursor.Next
}

// ticks returns the time of the next tick, zero if the schedule does not tick.
func (s plan) ticks() time.Time {
	if s.damaged || s.orphaned {
		return time.Time{}
	}
	return s.next()
}

func (s plan) last() time.Time {
	if s.Cursor == nil {
		return time.Time{}
	}
	return s.Cursor.Last
}

func (s plan) zone() string {
	if s.declared.Zone == "" {
		return "UTC"
	}
	return s.declared.Zone
}

// spec returns the specification of the schedule as people write it.
func (s plan) spec() string { return show.Text(schedule.Short(s.declared.Spec)) }

func (s plan) record() show.Schedule {
	return show.Schedule{
		Schedule: s.name, Queue: s.Queue, Kind: s.Kind, Spec: s.declared.Spec, Zone: s.zone(),
		CatchUp: s.declared.CatchUp,
		Overlap: s.declared.Overlap, Next: survey.Moment(s.next()), Last: survey.Moment(s.last()),
		Kept: s.declared.Kept, Paused: s.declared.Paused, Orphaned: s.orphaned, Damaged: s.damaged,
	}
}

// shownTicks is the number of ticks that the page about a schedule shows.
const shownTicks = 10

// moments returns the next n ticks of a schedule, none if it is damaged.
func (s plan) moments(n int) (moments []time.Time) {
	if s.damaged {
		return nil
	}
	parsed, err := schedule.Of(s.Ref, &s.declared)
	if err != nil {
		return nil
	}
	for at := s.next(); len(moments) < n && !at.IsZero(); at = parsed.Next(at) {
		moments = append(moments, at)
	}
	return moments
}

func (a *app) schedule() *cobra.Command {
	return noun("schedule", "See and change periodic schedules", []string{"schedules"},
		a.scheduleLs(), a.scheduleShow(), a.scheduleRun(), a.scheduleSet(), a.schedulePause(), a.scheduleResume(),
		a.scheduleRm())
}

func (a *app) scheduleLs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List schedules and the times of their ticks",
		Example: "  midge schedule ls\n  midge schedule ls --queue reports -o wide", Args: noArguments,
	}
	queues := cmd.Flags().StringSlice("queue", nil, "only schedules of these `queues`")
	orphaned := cmd.Flags().Bool("orphaned", false,
		"only schedules that no live runner declares, or can run; they do not tick")
	watch := watchFlag(cmd)
	cmd.RunE = a.watched(watch, func(ctx context.Context, _ []string) error {
		if err := a.open(ctx); err != nil {
			return err
		}
		plans, err := a.plans(ctx, *queues)
		if err != nil {
			return err
		}
		if *orphaned {
			plans = slices.DeleteFunc(plans, func(s plan) bool { return !s.orphaned })
		}
		return list(ctx, a, scheduleList, plans, "no schedule matches")
	})
	return cmd
}

// plans reads the schedules of queues, or of all queues if none is named.
func (a *app) plans(ctx context.Context, queues []string) ([]plan, error) {
	runners, err := a.store.Runners(ctx)
	if err != nil {
		return nil, err
	}
	if len(queues) == 0 {
		rows, err := a.rows(ctx, nil, false)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r.Cursors > 0 {
				queues = append(queues, r.Queue)
			}
		}
	}
	var plans []plan
	tickers := storage.TickersOf(runners)
	for _, queue := range slices.Compact(slices.Sorted(slices.Values(queues))) {
		for t, err := range storage.Each(ctx, a.store, queue, storage.Cursors) {
			if err != nil {
				return nil, err
			}
			plans = append(plans, planOf(t, tickers))
		}
	}
	return plans, nil
}

// planOf decodes a cursor.
func planOf(t storage.Task, tickers *storage.Tickers) plan {
	s := plan{Task: t, name: strings.TrimPrefix(t.ID, storage.CursorPrefix)}
	var err error
	s.declared, err = t.Cursor.Decode()
	s.damaged = err != nil
	s.ticked, s.orphaned = tickers.Tick(&t, &s.declared), tickers.Orphaned(&t, &s.declared)
	return s
}

// cursorOf parses the name of a schedule as schedule ls prints it: its queue and its own name.
func cursorOf(text string) (storage.Ref, error) {
	queue, name, ok := strings.Cut(text, "/")
	ref := storage.Ref{Queue: queue, ID: storage.CursorPrefix + name} // a name may begin with the prefix too
	if !ok || storage.CheckRef(ref) != nil {
		return storage.Ref{}, storage.Invalid("schedule", text, "queue/name, as midge schedule ls prints it")
	}
	return ref, nil
}

// findPlan opens the storage and reads a schedule.
func (a *app) findPlan(ctx context.Context, text string) (plan, error) {
	ref, err := cursorOf(text)
	if err != nil {
		return plan{}, err
	}
	if err := a.open(ctx); err != nil {
		return plan{}, err
	}
	runners, err := a.store.Runners(ctx)
	if err != nil {
		return plan{}, err
	}
	t, err := a.store.Task(ctx, ref)
	if errors.Is(err, storage.ErrNotFound) {
		return plan{}, notFound("midge schedule ls", "schedule %q not found on %s", text, a.target)
	}
	return planOf(t, storage.TickersOf(runners)), err
}

// ownPlan does the same as findPlan, for a schedule that a command changes.
func (a *app) ownPlan(ctx context.Context, text string) (plan, error) {
	if queue, _, ok := strings.Cut(text, "/"); ok {
		if err := checkOwn(queue); err != nil {
			return plan{}, err
		}
	}
	return a.findPlan(ctx, text)
}

func (a *app) scheduleShow() *cobra.Command {
	return &cobra.Command{
		Use: "show QUEUE/NAME", Short: "Show a schedule and its next ten ticks",
		Args: wants(1, 1, "a schedule, as queue/name"),
		RunE: a.quick(func(ctx context.Context, args []string) error {
			s, err := a.findPlan(ctx, args[0])
			if err != nil {
				return err
			}
			p, err := a.shown(ctx)
			if err != nil {
				return err
			}
			if !p.People() {
				record := s.record()
				for _, at := range s.moments(shownTicks) {
					record.Moments = append(record.Moments, at.UTC())
				}
				return p.One(s.ref(), record)
			}
			return show.Fields(p, scheduleFields(p, s)...)
		}),
	}
}

// scheduleFields returns the page about a schedule.
func scheduleFields(p *show.Printer, s plan) []show.Field {
	status := s.status()
	switch {
	case s.damaged:
		status += ": its declaration cannot be read; a runner that declares it anew mends it"
	case s.declared.Paused:
		status += ": it does not tick until midge schedule resume " + s.ref()
	case s.orphaned && s.declared.Kept:
		status += ": no live runner of the queue handles the kind, so it does not tick"
	case s.orphaned:
		status += ": no live runner declares it, so it does not tick"
	}
	zone, err := time.LoadLocation(s.declared.Zone)
	if err != nil {
		zone = time.UTC
	}
	moments := make([]string, 0, shownTicks)
	switch {
	case s.declared.Paused:
		moments = append(moments, "none until it is resumed")
	case s.orphaned:
		moments = append(moments, "none while it is orphaned; after that:")
	}
	for _, at := range s.moments(shownTicks) {
		moments = append(moments, at.In(zone).Format("Mon 2006-01-02 15:04:05 -0700")+"  ("+p.Moment(at)+")")
	}
	return []show.Field{
		{Name: "schedule", Text: s.ref(), Style: show.Strong},
		{Name: "status", Text: status, Style: s.style()},
		{Name: "owner", Text: s.owner()},
		{Name: "kind", Text: show.Text(s.Kind)},
		{Name: "spec", Text: s.spec()},
		{Name: "zone", Text: show.Text(s.zone())},
		{Name: "missed", Text: show.Text(s.declared.CatchUp)},
		{Name: "overlap", Text: show.Text(s.declared.Overlap)},
		{Name: "last", Text: p.Exact(s.last())},
		{Name: "next", Text: strings.Join(moments, "\n")},
	}
}

func (a *app) scheduleRun() *cobra.Command {
	return &cobra.Command{
		Use: "run QUEUE/NAME", Short: "Enqueue the task of a schedule now, in addition to its ticks",
		Example: "  midge schedule run reports/nightly", Args: wants(1, 1, "a schedule, as queue/name"),
		RunE: a.quick(func(ctx context.Context, args []string) error {
			s, err := a.ownPlan(ctx, args[0])
			if err != nil {
				return err
			}
			a.write("midge task ls --queue " + s.Queue)
			placed, err := a.runSchedule(ctx, s)
			if err != nil {
				return err
			}
			if placed.Existing {
				a.notef("nothing was enqueued: %s allows one task at a time, and this one has not ended", s.ref())
			} else {
				a.notef("enqueued a task of %s", s.ref())
				a.warnUnserved(ctx, s.Queue, s.Kind, "the task waits")
			}
			return a.placed(placed)
		}),
	}
}

// runSchedule enqueues the task of a schedule now. It enqueues nothing while the schedule has a task and
// allows one at a time.
func (a *app) runSchedule(ctx context.Context, s plan) (storage.Placed, error) {
	e := ledger.Entry{Action: "run", IDs: []string{s.Ref.String()}}
	return a.place(ctx, e, func() (storage.Insert, error) { return a.session.ScheduleInsert(ctx, s.Ref) })
}

func (a *app) scheduleRm() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm QUEUE/NAME", Aliases: []string{"delete", "remove"}, Short: "Remove a schedule; its tasks stay",
		Long: "rm removes a schedule. The tasks that it enqueued stay. If a live runner\n" +
			"declares the schedule, its next heartbeat creates the schedule again.",
		Args: wants(1, 1, "a schedule, as queue/name"),
	}
	yes := yesFlag(cmd)
	dry := cmd.Flags().Bool("dry-run", false, "show what would be removed, and change nothing")
	cmd.RunE = a.long(func(ctx context.Context, args []string) error {
		s, err := a.ownPlan(ctx, args[0])
		if err != nil {
			return err
		}
		if s.ticked && !s.declared.Kept {
			a.notef("a live runner declares %s and will bring it back: take it out of that program", s.ref())
		}
		if *dry {
			a.notef("on %s\n%s would be removed\nnothing was changed (--dry-run)", a.target, s.ref())
			return nil
		}
		a.write("midge schedule ls")
		if err := a.confirm(*yes, "Remove the schedule "+s.ref()+"?", 1, s.name); err != nil {
			return err
		}
		e := ledger.Entry{Action: "unschedule", IDs: []string{s.Ref.String()}}
		err = a.audit().Do(ctx, e, audit.One(func() error { return a.session.DeleteTask(ctx, s.Ref) }))
		if err != nil {
			return err
		}
		a.notef("removed %s", s.ref())
		return nil
	})
	return cmd
}
