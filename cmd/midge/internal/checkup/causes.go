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

// What a checkup reads of the dead, and how many causes it tells by themselves.
const (
	readTasks  = 20_000
	readTime   = time.Second
	toldCauses = 5
)

// acceptable are the codes of the findings that can be accepted, with what names one of them.
var acceptable = []string{
	"paused:QUEUE", "cause:ID", "no-runner:QUEUE", "unknown-kind:QUEUE/KIND", "orphaned:QUEUE/SCHEDULE",
}

// AcceptSyntax says how findings are named that are accepted, for people.
var AcceptSyntax = "  " + strings.Join(acceptable, "\n  ") + "\n"

// CheckAccepted gives a *[storage.InvalidError] for a text that can name no finding. from says where it
// was given.
func CheckAccepted(from, text string) error {
	code, what, _ := strings.Cut(text, ":")
	known := func(a string) bool { return strings.HasPrefix(a, code+":") }
	if what == "" || !slices.ContainsFunc(acceptable, known) {
		return storage.Invalid(from, text, "one of %s", strings.Join(acceptable, ", "))
	}
	return nil
}

// causes says of what tasks died, where that is too many of them, or where no number is.
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
		// Those that were not read may all be of accepted causes, and the others few enough.
		again = !done && known && dead > r.bounds.Dead && g.Searched-accepted <= r.bounds.Dead
	}
	if r.bounds.Dead >= 0 && dead > r.bounds.Dead {
		r.add(Finding{Level: Problem, Code: "dead", Next: "midge task ls --by-cause"},
			"%s died, and --max-dead allows %s", show.Count(dead, "task"), show.Number(r.bounds.Dead))
	}
	told, left, leftTasks := 0, 0, g.Others
	for _, of := range groups {
		switch accepted := r.accepts(causeName(of)); {
		case !accepted && r.bounds.Dead >= 0 && dead <= r.bounds.Dead: // few enough died of the others
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

// accepted is how many tasks died of causes that are accepted.
func (r *Report) accepted(groups []scan.Group) (tasks int64) {
	for _, of := range groups {
		if r.accepts(causeName(of)) {
			tasks += of.Tasks
		}
	}
	return tasks
}

// causeName names a cause as the filter does, and as it is accepted.
func causeName(of scan.Group) string { return "cause:" + of.ID }

// cause tells of one cause.
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

// kinds names up to three kinds, and counts more.
func kinds(of map[string]int64) string {
	names := slices.Sorted(maps.Keys(of))
	switch len(names) {
	case 1:
		return "kind " + names[0]
	case 2, 3:
		return "kinds " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	}
	return fmt.Sprintf("%d kinds", len(names))
}
