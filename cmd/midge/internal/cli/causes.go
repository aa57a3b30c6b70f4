package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/scan"
)

var causeList = show.List[scan.Group]{
	Columns: []show.Column[scan.Group]{
		{Name: "tasks", Right: true, Text: func(_ *show.Printer, g scan.Group) string {
			return show.Number(g.Tasks)
		}},
		{Name: "kinds", Text: func(_ *show.Printer, g scan.Group) string { return show.Text(counted(g.Kinds)) }},
		{Name: "queues", Wide: true, Text: func(_ *show.Printer, g scan.Group) string { return counted(g.Queues) }},
		{Name: "since", Text: func(p *show.Printer, g scan.Group) string { return p.Moment(g.First) }},
		{Name: "last", Text: func(p *show.Printer, g scan.Group) string { return p.Moment(g.Last) }},
		{Name: "cause", Text: func(_ *show.Printer, g scan.Group) string { return cause(g) }},
		{Name: "error", Text: func(_ *show.Printer, g scan.Group) string { return dash(show.Text(g.LastError())) }},
	},
	Record: func(g scan.Group) any { return show.CauseOf(g) },
	ID:     cause,
}

// cause returns the word of a filter that matches the tasks of a group.
func cause(g scan.Group) string {
	if g.ID == "" {
		return `cause:""`
	}
	return "cause:" + g.ID
}

func counted(of map[string]int64) string {
	return strings.Join(slices.Sorted(maps.Keys(of)), ",")
}

// listCauses lists the causes of death of the tasks of a request, which are the dead tasks unless it names
// other states. most is the maximum number of causes.
func (a *app) listCauses(ctx context.Context, req scan.Request, text string, most int) error {
	g := scan.NewGrouping(a.store, req)
	for {
		done, err := g.Read(ctx)
		if err != nil {
			return err
		}
		if done {
			break
		}
		if a.std.Person {
			a.notef("searched %s of %s", show.Number(g.Searched), show.Number(g.Total))
		}
	}
	groups := g.Groups()
	if err := list(ctx, a, causeList, groups[:min(len(groups), most)], "no dead task matches"); err != nil {
		return err
	}
	if left := len(groups) - most; left > 0 {
		a.notef("showing %s of %s", show.Number(int64(most)), show.Count(int64(len(groups)), "cause"))
	}
	if len(groups) > 0 {
		words := cause(groups[0])
		if len(req.Queues) > 0 {
			words += " queue:" + strings.Join(req.Queues, ",")
		}
		next := scan.Proposal(strings.TrimSpace(words+" "+text), groups[0].Tasks, groups[0].Discarded)
		if show.Text(next) == next { // a command that Text has changed would match other tasks
			a.notef("next: %s", next)
		}
	}
	return nil
}
