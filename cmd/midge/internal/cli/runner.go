package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
)

var runnerList = show.List[storage.RunnerInfo]{
	Columns: []show.Column[storage.RunnerInfo]{
		{Name: "runner", Text: func(_ *show.Printer, r storage.RunnerInfo) string { return show.Text(r.ID) }},
		{Name: "host", Text: func(_ *show.Printer, r storage.RunnerInfo) string { return show.Text(r.Host) }},
		{Name: "pid", Right: true, Text: func(_ *show.Printer,
			r storage.RunnerInfo,
		) string {
			return strconv.Itoa(r.PID)
		}},
		{Name: "running", Right: true, Text: func(_ *show.Printer, r storage.RunnerInfo) string {
			return fmt.Sprintf("%d of %d", r.InUse(), r.Concurrency)
		}},
		{Name: "up", Right: true, Text: func(p *show.Printer,
			r storage.RunnerInfo,
		) string {
			return p.Moment(r.Started)
		}},
		{Name: "seen", Right: true, Text: func(p *show.Printer,
			r storage.RunnerInfo,
		) string {
			return p.Moment(r.Seen)
		}},
		{Name: "version", Wide: true, Text: func(_ *show.Printer,
			r storage.RunnerInfo,
		) string {
			return show.Text(r.Version)
		}},
		{Name: "schedules", Wide: true, Right: true, Text: func(_ *show.Printer, r storage.RunnerInfo) string {
			return strconv.Itoa(len(r.Schedules))
		}},
		{Name: "queues", Text: func(_ *show.Printer, r storage.RunnerInfo) string { return names(r.Queues) }},
		{Name: "kinds", Wide: true, Text: func(_ *show.Printer,
			r storage.RunnerInfo,
		) string {
			return names(r.Kinds)
		}},
	},
	Record: func(r storage.RunnerInfo) any { return show.RunnerOf(r) },
	ID:     func(r storage.RunnerInfo) string { return r.ID },
}

func names(list []string) string {
	shown := make([]string, len(list))
	for i, name := range list {
		shown[i] = show.Text(name)
	}
	return strings.Join(shown, ",")
}

func (a *app) runner() *cobra.Command {
	return noun("runner", "See the live runners", []string{"runners"}, a.runnerLs(), a.runnerShow())
}

func (a *app) runnerLs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the live runners",
		Example: "  midge runner ls\n  midge runner ls --queue mail", Args: noArguments,
	}
	queue := cmd.Flags().String("queue", "", "only runners that serve this `queue`")
	watch := watchFlag(cmd)
	cmd.RunE = a.watched(watch, func(ctx context.Context, _ []string) error {
		if err := a.open(ctx); err != nil {
			return err
		}
		runners, err := a.store.Runners(ctx)
		if err != nil {
			return err
		}
		if *queue != "" {
			runners = slices.DeleteFunc(runners, func(r storage.RunnerInfo) bool {
				return !slices.Contains(r.Queues,
					*queue)
			})
		}
		none := "no runner is alive: no task is worked on"
		if *queue != "" {
			none = "no live runner serves queue " + show.Text(*queue)
		}
		return list(ctx, a, runnerList, runners, none)
	})
	return cmd
}

func (a *app) runnerShow() *cobra.Command {
	return &cobra.Command{
		Use: "show RUNNER", Short: "Show a runner and its running tasks",
		Args: wants(1, 1, "the id of a runner, or how it begins"),
		RunE: a.quick(func(ctx context.Context, args []string) error {
			if args[0] == "" {
				return storage.Invalid("runner", "", "the id of a runner, or how it begins")
			}
			if err := a.open(ctx); err != nil {
				return err
			}
			r, err := a.findRunner(ctx, args[0])
			if err != nil {
				return err
			}
			p, err := a.shown(ctx)
			if err != nil {
				return err
			}
			if !p.People() {
				return p.One(r.ID, show.RunnerOf(r))
			}
			return show.Fields(p, runnerFields(p, r)...)
		}),
	}
}

// findRunner returns the live runner whose id is begin, or else the only live runner whose id begins so.
func (a *app) findRunner(ctx context.Context, begin string) (storage.RunnerInfo, error) {
	runners, err := a.store.Runners(ctx)
	if err != nil {
		return storage.RunnerInfo{}, err
	}
	var found []storage.RunnerInfo
	for _, r := range runners {
		if r.ID == begin {
			return r, nil
		}
		if strings.HasPrefix(r.ID, begin) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return storage.RunnerInfo{}, notFound("midge runner ls", "runner %q not found among the live runners",
			show.Text(begin))
	case 1:
		return found[0], nil
	}
	return storage.RunnerInfo{}, badInput("%d runners begin with %s: give more of the id", len(found),
		show.Text(begin))
}

// runnerFields returns the page about a runner.
func runnerFields(p *show.Printer, r storage.RunnerInfo) []show.Field {
	running := make([]string, 0, len(r.Running))
	for _, task := range r.Running {
		running = append(running, fmt.Sprintf("%s  %s  since %s", task.Ref, show.Text(task.Kind),
			p.Moment(task.Since)))
	}
	schedules := make([]string, 0, len(r.Schedules))
	for _, s := range r.Schedules {
		schedules = append(schedules, s.Ref.Queue+"/"+strings.TrimPrefix(s.Ref.ID, storage.CursorPrefix))
	}
	undecodable := make([]string, 0, len(r.Undecodable))
	for _, k := range r.Undecodable {
		undecodable = append(undecodable, fmt.Sprintf("%s of %s  at least %s  since %s\n%s", show.Text(k.Kind),
			show.Text(k.Queue), show.Count(k.Tasks, "task"), p.Moment(k.Since), show.Text(k.Reason)))
	}
	slots := make([]string, 0, len(r.Slots))
	for _, q := range r.Slots {
		slots = append(slots, show.Text(q.String()))
	}
	limits := make([]string, 0, len(r.Limits))
	for _, l := range r.Limits {
		limits = append(limits, show.Text(l.Queue)+": "+findingWords.Limit(l.Limit))
	}
	return []show.Field{
		{Name: "runner", Text: show.Text(r.ID), Style: show.Strong},
		{Name: "host", Text: fmt.Sprintf("%s, process %d", show.Text(r.Host), r.PID)},
		{Name: "version", Text: show.Text(r.Version)},
		{Name: "started", Text: p.Exact(r.Started)},
		{Name: "seen", Text: p.Exact(r.Seen)},
		{Name: "queues", Text: names(r.Queues)},
		{Name: "kinds", Text: names(r.Kinds)},
		{Name: "declares", Text: strings.Join(schedules, "\n")},
		{Name: "running", Text: fmt.Sprintf("%d of %d", r.InUse(), r.Concurrency)},
		{Name: "slots", Text: strings.Join(slots, "\n")},
		{Name: "limits", Text: strings.Join(limits, "\n")},
		{Name: "", Text: strings.Join(running, "\n")},
		{Name: "undecodable", Text: strings.Join(undecodable, "\n"), Style: show.Bad},
	}
}
