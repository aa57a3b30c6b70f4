package checkup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// The bounds of a checkup: how many dead tasks it reads at once and for how long, and how many causes get a
// finding of their own.
const (
	readTasks  = 20_000
	readTime   = time.Second
	toldCauses = 5
)

// acceptable lists the codes of the findings that can be accepted, each with the syntax of its subject if it
// has one.
var acceptable = []string{
	"paused:QUEUE", "cause:ID", "no-runners", "no-runner:QUEUE", "unknown-kind:QUEUE/KIND",
	"orphaned:QUEUE/SCHEDULE",
}

// AcceptSyntax is the part of the help that says how to name an accepted finding.
var AcceptSyntax = "  " + strings.Join(acceptable, "\n  ") + "\n"

// CheckAccepted returns a *[storage.InvalidError] for a text that cannot name a finding. from says where
// the text was given.
func CheckAccepted(from, text string) error {
	code, what, _ := strings.Cut(text, ":")
	known := func(a string) bool { return a == text || what != "" && strings.HasPrefix(a, code+":") }
	if !slices.ContainsFunc(acceptable, known) {
		return storage.Invalid(from, text, "one of %s", strings.Join(acceptable, ", "))
	}
	return nil
}

// causes adds findings on the causes of the dead tasks, if there are more dead tasks than the bound or if
// there is no bound.
func (r *Report) causes(ctx context.Context, store storage.Storage) error {
	if r.Dead <= max(0, r.bounds.Dead) {
		return nil
	}
	g := scan.NewGrouping(store, scan.Request{Tasks: readTasks, Time: readTime})
	var groups []scan.Group
	var dead int64
	isCause := func(name string) bool { return strings.HasPrefix(name, "cause:") }
	known := slices.ContainsFunc(r.bounds.Accepted, isCause)
	for again := true; again; {
		done, err := g.Read(ctx)
		if err != nil {
			return err
		}
		groups = g.Groups()
		accepted := r.accepted(groups)
		dead = r.Dead - accepted
		// The unread tasks may all be of accepted causes, and the other tasks within the bound: read on.
		again = !done && known && dead > r.bounds.Dead && g.Searched-accepted <= r.bounds.Dead
	}
	if r.bounds.Dead >= 0 && dead > r.bounds.Dead {
		r.add(Finding{Level: Problem, Code: "dead", Next: "midge task ls --by-cause"},
			"%s died, and --max-dead allows %s", show.Count(dead, "task"), show.Number(r.bounds.Dead))
	}
	told, left, leftTasks := 0, 0, g.Others
	for _, of := range groups {
		switch accepted := r.accepts(causeName(of)); {
		case !accepted && r.bounds.Dead >= 0 && dead <= r.bounds.Dead: // the other tasks are within the bound
		case !accepted && told == toldCauses:
			left, leftTasks = left+1, leftTasks+of.Tasks
		default:
			r.cause(of)
			if !accepted {
				told++
			}
		}
	}
	if leftTasks > 0 {
		r.add(Finding{Level: Notice, Code: "causes", Tasks: leftTasks, Next: "midge task ls --by-cause"},
			"%s died of %s", show.Count(leftTasks, "task"), show.Count(int64(left), "other cause"))
	}
	if rest := r.Dead - g.Searched; rest > 0 && told > 0 {
		r.add(Finding{Level: Notice, Code: "unread", Tasks: rest, Next: "midge task ls --by-cause"},
			"the causes are those of %s; %s more died", show.Count(g.Searched, "task"), show.Number(rest))
	}
	return nil
}

// accepted returns the number of tasks that died of accepted causes.
func (r *Report) accepted(groups []scan.Group) (tasks int64) {
	for _, of := range groups {
		if r.accepts(causeName(of)) {
			tasks += of.Tasks
		}
	}
	return tasks
}

// causeName returns the name of a cause in filters and in Bounds.Accepted.
func causeName(of scan.Group) string { return "cause:" + of.ID }

// cause adds the finding on one cause.
func (r *Report) cause(of scan.Group) {
	f := Finding{
		Level: Notice, Code: "cause", Accept: causeName(of),
		Next:  "midge task requeue " + causeName(of) + " --rate 50",
		Cause: of.ID, Tasks: of.Tasks, Kinds: of.Kinds, Since: show.Moment(of.First), Error: of.LastError(),
	}
	if len(of.Queues) == 1 {
		f.Queue = slices.Collect(maps.Keys(of.Queues))[0]
	}
	said := ": " + show.Cut(of.LastError(), 100)
	if of.ID == "" {
		f.Next, f.Accept, said = `midge task requeue 'cause:""' --rate 50`, "", " without an error"
	}
	since := ""
	if !of.First.IsZero() {
		since = ", the first " + show.Span(r.Now.Sub(of.First)) + " ago"
	}
	r.add(f, "%s of %s died%s%s", show.Count(of.Tasks, "task"), kinds(of.Kinds), since, said)
}

// kinds names up to three kinds, or gives the number of more kinds.
func kinds(of map[string]int64) string {
	names := slices.Sorted(maps.Keys(of))
	switch len(names) {
	case 1:
		return "kind " + names[0]
	case 2, 3:
		return "kinds " + list(names)
	}
	return fmt.Sprintf("%d kinds", len(names))
}
