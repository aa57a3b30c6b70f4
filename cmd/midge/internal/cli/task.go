package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

var taskList = show.List[storage.Task]{
	Columns: []show.Column[storage.Task]{
		{Name: "task", Text: func(_ *show.Printer, t storage.Task) string { return t.Ref.String() }},
		{Name: "kind", Text: func(_ *show.Printer, t storage.Task) string { return show.Text(t.Kind) }},
		{
			Name: "state", Text: func(_ *show.Printer, t storage.Task) string { return standing(t) },
			Style: stateStyle,
		},
		{Name: "when", Text: when},
		{Name: "created", Wide: true, Text: func(p *show.Printer,
			t storage.Task,
		) string {
			return p.Moment(t.Created)
		}},
		{Name: "priority", Wide: true, Right: true, Text: func(_ *show.Printer,
			t storage.Task,
		) string {
			return strconv.Itoa(t.Priority)
		}},
		{Name: "partition", Wide: true, Text: func(_ *show.Printer, t storage.Task) string {
			return dash(show.Text(t.Partition))
		}},
		{Name: "retries", Right: true, Text: func(_ *show.Printer, t storage.Task) string {
			return fmt.Sprintf("%d/%d", retried(t), t.MaxRetries)
		}},
		{Name: "crashes", Wide: true, Right: true, Text: func(_ *show.Printer,
			t storage.Task,
		) string {
			return strconv.Itoa(t.Crashes)
		}},
		{Name: "runner", Wide: true, Text: func(_ *show.Printer,
			t storage.Task,
		) string {
			return dash(show.Text(show.RanBy(t)))
		}},
		{Name: "reason", Wide: true, Text: func(_ *show.Printer,
			t storage.Task,
		) string {
			return dash(show.Text(payload.Reason(t)))
		}},
		{Name: "params", Wide: true, Text: func(_ *show.Printer, t storage.Task) string {
			return dash(show.Cut(string(show.Value(payload.Params(t))), 200))
		}},
		{Name: "error", Text: func(_ *show.Printer, t storage.Task) string { return firstLine(t) }},
	},
	Record: func(t storage.Task) any { return show.TaskOf(t) },
	ID:     func(t storage.Task) string { return t.Ref.String() },
}

// dash returns "-" for an empty text, so that the column is not blank.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// retried returns the number of retries that a task has used. The last failure of a dead task counts in
// Retries, but was not retried.
func retried(t storage.Task) int { return min(t.Retries, t.MaxRetries) }

// standing returns the state of a task, with what else matters about it.
func standing(t storage.Task) string {
	_, loads := payload.LoadOf(t)
	switch {
	case loads && payload.Records(t):
		return show.Text(payload.Reason(t))
	case t.PassedOver == storage.PassedOverKind:
		return "waiting (declined)"
	case t.PassedOver == storage.PassedOverSuspect:
		return "waiting (suspect)"
	case t.CancelAsked:
		return filter.TaskWord(&t) + " (cancel asked)"
	}
	return filter.TaskWord(&t)
}

func stateStyle(t storage.Task) show.Style {
	switch {
	case t.State == storage.Dead, t.PassedOver == storage.PassedOverKind:
		return show.Bad
	case t.State == storage.Retry:
		return show.Warn
	case t.State == storage.Completed:
		return show.Good
	}
	return show.Plain
}

// when returns the time that matters most in the state of a task: when the task ended, when it started to
// run, when it is due, or when it was created.
func when(p *show.Printer, t storage.Task) string {
	switch {
	case payload.Records(t):
		return p.Moment(t.Created)
	case t.State.Ended():
		return p.Moment(t.Ended)
	case t.State == storage.Pending && !t.StartedAt().IsZero():
		return p.Moment(t.StartedAt())
	case !t.Due.IsZero():
		return p.Moment(t.Due)
	}
	return p.Moment(t.Created)
}

// firstLine returns the first line of the last error of a task.
func firstLine(t storage.Task) string {
	line, _, _ := strings.Cut(strings.TrimSpace(t.LastError()), "\n")
	return show.Text(line)
}

func (a *app) task() *cobra.Command {
	return noun("task", "List, explain, add and repair tasks", []string{"tasks"}, a.taskLs(), a.taskShow(),
		a.taskWhy(), a.taskAdd(),
		a.taskWait(), a.taskResult(), a.taskRequeue(), a.taskCancel(), a.taskRm(),
		a.taskMove(), a.taskEdit(), a.taskRestore())
}

// taskFields returns the page about a task.
func taskFields(p *show.Printer, t storage.Task, why string) []show.Field {
	fields := []show.Field{
		{Name: "task", Text: t.Ref.String(), Style: show.Strong},
		{Name: "kind", Text: show.Text(t.Kind)},
		{Name: "state", Text: standing(t), Style: stateStyle(t)},
		{Name: "why", Text: show.Text(why)},
		{Name: "reason", Text: show.Text(payload.Reason(t))},
		{Name: "created", Text: p.Exact(t.Created)},
	}
	moment := func(name string, f func() string, set bool) {
		if set {
			fields = append(fields, show.Field{Name: name, Text: f()})
		}
	}
	moment("due", func() string { return p.Exact(t.Due) }, !t.Due.IsZero() && !payload.Records(t))
	moment("runs since", func() string { return p.Exact(t.StartedAt()) }, !t.StartedAt().IsZero())
	a, succeeded := t.Success()
	moment("started", func() string { return p.Exact(a.Claimed) }, succeeded)
	moment("took", func() string { return show.Span(a.Took()) }, succeeded)
	moment("runner", func() string { return show.Text(show.RanBy(t)) }, show.RanBy(t) != "")
	moment("lease until", func() string { return p.Exact(t.LeaseUntil) }, !t.LeaseUntil.IsZero())
	moment("declined", func() string { return p.Exact(t.Declined) }, !t.Declined.IsZero())
	moment("ended", func() string { return p.Exact(t.Ended) }, !t.Ended.IsZero())
	moment("kept until", func() string { return p.Exact(t.Expires) }, !t.Expires.IsZero())
	moment("deadline", func() string { return p.Exact(t.Deadline()) }, !t.Deadline().IsZero())
	moment("tick of", func() string { return p.Exact(t.Tick()) }, !t.Tick().IsZero())
	fields = append(fields, show.Field{Name: "retries", Text: fmt.Sprintf("%d of %d", retried(t), t.MaxRetries)})
	moment("crashes", func() string { return fmt.Sprintf("%d of %d", t.Crashes, t.CrashLimit) }, t.Crashes > 0)
	moment("snoozes", func() string { return strconv.Itoa(t.Snoozes) }, t.Snoozes > 0)
	moment("priority", func() string { return strconv.Itoa(t.Priority) }, t.Priority != 0)
	moment("partition", func() string { return show.Text(t.Partition) }, t.Partition != "")
	moment("cost", func() string { return strconv.Itoa(t.Cost.N()) }, t.Cost.N() != 1)
	moment("timeout", func() string { return show.Timeout(t.Timeout) }, t.Timeout > 0)
	moment("unique", func() string { return "by a key, for its " + string(t.Unique.Mode) }, t.Unique.Key != "")
	return append(append(fields, show.Field{Name: "params", Text: value(payload.Params(t))}),
		storyFields(p, t)...)
}

// storyFields returns the part of the page on what a task wrote and on its attempts.
func storyFields(p *show.Printer, t storage.Task) []show.Field {
	headers, attempts := make([]string, 0, len(t.Headers)), make([]string, 0, len(t.Attempts))
	for _, name := range sorted(t.Headers) {
		headers = append(headers, show.Text(name)+": "+show.Text(t.Headers[name]))
	}
	for _, a := range t.Attempts {
		line := p.Moment(a.At) + "  " + show.Text(a.Outcome)
		switch took, on := show.Span(a.Took()), " on "+show.Text(a.Runner); {
		case a.Runner == "":
		case a.Outcome == storage.AttemptCrashed: // nobody knows when the job ended
			line += on + ", found " + took + " after the start"
		case a.Outcome == storage.AttemptLeaseLost:
			line += on + ", found " + took + " after the claim"
		default:
			line += " after " + took + on
		}
		if a.Error != "" {
			line += "\n    " + strings.ReplaceAll(show.Lines(strings.TrimSpace(a.Error)), "\n", "\n    ")
		}
		attempts = append(attempts, line)
	}
	return []show.Field{
		{Name: "headers", Text: strings.Join(headers, "\n")},
		{Name: "progress", Text: progress(p, t)},
		{Name: "steps", Text: strings.Join(stepLines(p, t), "\n")},
		{Name: "checkpoint", Text: value(payload.Checkpoint(t))},
		{Name: "result", Text: value(payload.Result(t))},
		{Name: "attempts", Text: strings.Join(attempts, "\n")},
		{Name: "stack", Text: show.Lines(strings.TrimSpace(t.Stack))},
	}
}

// mostResult limits the result of a step in the page about a task, in bytes.
const mostResult = 1000

// stepLines returns a line for each finished step of a task, and one for its result.
func stepLines(p *show.Printer, t storage.Task) (lines []string) {
	steps, err := payload.Steps(t, nil)
	if err != nil {
		return []string{show.Text(err.Error())}
	}
	for _, s := range steps {
		did := "after " + show.Span(time.Duration(s.Took*float64(time.Second)))
		switch {
		case s.Until != nil && s.Until.After(p.Now):
			did = "sleeps until " + p.Exact(*s.Until)
		case s.Until != nil:
			did = "slept until " + p.Exact(*s.Until)
		}
		lines = append(lines, p.Moment(s.Ended)+"  "+show.Text(s.Name)+" "+did)
		switch {
		case s.Problem != "":
			lines = append(lines, "    "+show.Text(s.Problem))
		case len(s.Result) > 0:
			lines = append(lines, "    "+show.Cut(string(s.Result), mostResult))
		}
	}
	return lines
}
