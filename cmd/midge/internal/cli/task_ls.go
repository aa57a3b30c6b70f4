package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// choice holds the flags that choose tasks.
type choice struct {
	queues, states []string
	partition      partitionKey // of task ls alone
}

func (c *choice) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&c.queues, "queue", nil, "only tasks of these `queues` (default all)")
	cmd.Flags().StringSliceVar(&c.states, "state", nil,
		"only tasks in these `states`, or live, ended, all (default live; with --by cause dead)")
}

// text returns the filter of the arguments, with the partition of the flag.
func (c *choice) text(args []string) string {
	if c.partition != "" {
		args = append(slices.Clone(args), "partition:"+filter.Quote(string(c.partition)))
	}
	return strings.Join(args, " ")
}

// whole returns a filter text with the queues and the states of the flags.
func (c *choice) whole(text string) string {
	if len(c.queues) > 0 {
		text = "queue:" + strings.Join(c.queues, ",") + " " + text
	}
	if len(c.states) > 0 {
		text = "state:" + strings.Join(c.states, ",") + " " + text
	}
	return strings.TrimSpace(text)
}

// request makes the request for the tasks that match the flags and the filter text.
func (c *choice) request(text string) (scan.Request, error) {
	for _, queue := range c.queues {
		if err := storage.CheckName("queue name", queue); err != nil {
			return scan.Request{}, err
		}
	}
	f, err := filter.Parse(text)
	if err != nil {
		return scan.Request{}, err
	}
	r := scan.Request{Filter: f, Queues: c.queues}
	if c.queues != nil {
		r.Filter = f.WithHidden()
	}
	if r.States, err = statesOf(c.states); err != nil {
		return r, err
	}
	return r, nil
}

// statesOf parses names of states.
func statesOf(names []string) (states []storage.State, err error) {
	for _, name := range names {
		switch name {
		case "live":
			states = append(states, storage.StatesWhere(storage.State.Live)...)
		case "ended":
			states = append(states, storage.StatesWhere(storage.State.Ended)...)
		case "all":
			states = append(states, storage.TaskStates()...)
		default:
			state, ok := filter.ParseState(name)
			if !ok {
				return nil, storage.Invalid("state", name, "%s",
					show.OneOf(append(filter.StateWords(), "live", "ended", "all")...))
			}
			states = append(states, state)
		}
	}
	return slices.Compact(states), nil
}

// stateHelp describes the states. docs/operating.md states the same.
const stateHelp = `The first four states are live, the others ended:
  waiting     a runner may claim the task now
  running     a runner has claimed the task: it runs, or starts next and is shown
              as claimed, not started; JSON calls the state pending
  scheduled   the task is due later, or has snoozed
  retry       an attempt failed, and the next attempt is due later
  completed   the job succeeded
  cancelled   somebody cancelled the task
  dead        midge has given the task up: it failed or crashed too often, its
              job discarded it, its deadline passed, or for a day no runner
              knew its kind or could read its parameters
The storage keeps a completed or cancelled task for the time that was given when
the task was enqueued.
`

func (a *app) taskLs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [FILTER]", Aliases: []string{"list"}, Short: "List the tasks that match a filter",
		Long: "ls lists the first 50 live tasks of all queues, unless a filter or a flag says\n" +
			"otherwise. Of the ended tasks of a queue, it lists the newest first.\n\n" +
			filter.Syntax + "\n" + stateHelp,
		Example: "  midge task ls\n  midge task ls 'state:dead error:timeout'\n  midge task ls 'kind:mail* " +
			"age>1h' --limit 200 -o wide\n" +
			"  midge task ls --by cause\n  midge task ls state:retry --by header.tenant\n" +
			"  midge task ls --queue mail --partition acme\n" +
			"  midge task ls state:dead -o ids | midge task requeue -",
		Args: wants(0, -1, "a filter"),
	}
	var c choice
	c.add(cmd)
	limit := cmd.Flags().Int("limit", scan.DefaultLimit,
		"list at most this number of tasks, or of counts; without it, -o ids and jsonl list all")
	after := cmd.Flags().String("after", "", "continue after this `cursor`, which the previous page printed")
	by := cmd.Flags().String("by", "",
		"count the tasks by kind, by header.`NAME`, or the dead tasks by cause; the most frequent first")
	cmd.MarkFlagsMutuallyExclusive("by", "after")
	a.partitionFlag(cmd, &c.partition, "only tasks of the partition with this key, as a filter partition:KEY")
	watch := watchFlag(cmd)
	cmd.RunE = a.watched(watch, func(ctx context.Context, args []string) error {
		text := c.text(args)
		req, err := c.request(text)
		if err != nil {
			return err
		}
		if *limit < 1 {
			return storage.Invalid("--limit", *limit, "1 or more")
		}
		p := a.printer(zeroTime)
		count, err := tallyOf(*by)
		if err == nil {
			err = checkColumns(p, *by)
		}
		if err != nil {
			return err
		}
		req.Limit, req.Cursor, req.Newest = *limit, *after, true
		if err := a.open(ctx); err != nil {
			return err
		}
		if err := a.named(ctx, req); err != nil {
			return err
		}
		switch {
		case *by == byDeath:
			return a.listCauses(ctx, req, text, a.most(cmd, *limit))
		case count != nil:
			return a.listTallies(ctx, req, c.whole(text), *by, count, a.most(cmd, *limit))
		}
		if a.most(cmd, *limit) == math.MaxInt {
			return a.streamTasks(ctx, req, p)
		}
		return a.listTasks(ctx, req)
	})
	return cmd
}

// checkColumns returns an error if p names a column that the list does not have. by is the value of --by.
func checkColumns(p *show.Printer, by string) (err error) {
	switch by {
	case "":
		_, err = taskList.Chosen(p)
	case byDeath:
		_, err = causeList.Chosen(p)
	default:
		_, err = tallyList(by).Chosen(p)
	}
	return err
}

// listTasks lists tasks. It reads pages until it has the wanted number of tasks, or until there are no
// more.
func (a *app) listTasks(ctx context.Context, req scan.Request) error {
	var tasks []storage.Task
	var page scan.Page
	var err error
	wanted := req.Limit
	req.Count = !req.Filter.IsZero()
	for {
		req.Limit = wanted - len(tasks)
		if page, err = scan.Next(ctx, a.store, req); err != nil {
			return err
		}
		tasks = append(tasks, page.Tasks...)
		if page.Done() || len(tasks) >= wanted {
			break
		}
		req.Cursor = page.Cursor
		if a.std.Person {
			a.notef("searched %s of %s", show.Number(page.Searched), show.Number(max(page.Searched, page.Total)))
		}
	}
	p := a.printer(page.Now)
	if len(tasks) == 0 && p.People() {
		if len(req.States) == 0 && len(req.Filter.States()) == 0 {
			a.notef("no task matches; searched %s; state:all also searches the tasks that have ended",
				show.Count(page.Searched, "live task"))
			return nil
		}
		a.notef("no task matches; searched %s", show.Count(page.Searched, "task"))
		return nil
	}
	if err := taskList.Write(p, tasks); err != nil {
		return err
	}
	a.notef("%s", showing(int64(len(tasks)), page, req))
	if next := cmp.Or(page.Rest, page.Cursor); next != "" {
		a.notef("next: %s", a.with("--after", next))
	}
	return nil
}

// streamTasks lists all tasks for another program, one page after the other.
func (a *app) streamTasks(ctx context.Context, req scan.Request, p *show.Printer) error {
	listed := 0
	for req.Limit = storage.MaxPage; ; {
		page, err := scan.Next(ctx, a.store, req)
		if err != nil {
			return err
		}
		if err := taskList.Write(p, page.Tasks); err != nil {
			return err
		}
		listed += len(page.Tasks)
		if req.Cursor = page.Cursor; page.Done() {
			a.notef("listed %s; searched %s", show.Count(int64(listed), "task"), show.Number(page.Searched))
			return nil
		}
	}
}

// named returns an error unless every queue exists that a request names without a pattern.
func (a *app) named(ctx context.Context, req scan.Request) error {
	names, _ := req.Filter.Queues()
	return a.exist(ctx, slices.Concat(req.Queues, names))
}

// showing returns how many of the matching tasks were listed.
func showing(shown int64, page scan.Page, req scan.Request) string {
	var text string
	switch {
	case !req.Count:
		text = fmt.Sprintf("showing %s of %s", show.Number(shown), show.Number(max(shown, page.Total)))
	case page.Done():
		text = fmt.Sprintf("showing %s of %s", show.Number(shown), show.Number(max(shown, page.Matched)))
	default:
		text = fmt.Sprintf("showing %s of %s or more; searched %s of %s", show.Number(shown),
			show.Number(max(shown, page.Matched)),
			show.Number(page.Searched), show.Number(page.Total))
	}
	if order := req.Order(); order != "" && shown > 1 {
		text += ", " + order
	}
	return text
}
