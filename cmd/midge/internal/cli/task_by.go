package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// byDeath is the value of --by for the causes of death.
const byDeath = "cause"

// mostTallies bounds the values that are counted, because each task may have its own.
const mostTallies = 10_000

// property returns the value of a property of a task, and whether the task has it.
type property func(t *storage.Task) (value string, ok bool)

// tallyOf returns the property that --by names; nil for the causes of death, and for none.
func tallyOf(by string) (property, error) {
	header, isHeader := strings.CutPrefix(by, "header.")
	switch {
	case by == "" || by == byDeath:
		return nil, nil //nolint:nilnil // these are not counted here
	case by == "kind":
		return func(t *storage.Task) (string, bool) { return t.Kind, true }, nil
	case isHeader && header != "":
		return func(t *storage.Task) (string, bool) { value, ok := t.Headers[header]; return value, ok }, nil
	}
	return nil, storage.Invalid("--by", by, "kind, header.NAME or cause")
}

// tallyList returns the list of the values of a property.
func tallyList(by string) show.List[show.Tally] {
	return show.List[show.Tally]{
		Columns: []show.Column[show.Tally]{
			{Name: "tasks", Right: true, Text: func(_ *show.Printer, c show.Tally) string {
				return show.Number(c.Tasks)
			}},
			{Name: by, Text: func(_ *show.Printer, c show.Tally) string {
				if c.Value == nil {
					return "(none)"
				}
				return dash(show.Text(*c.Value))
			}},
			{Name: "filter", Text: func(_ *show.Printer, c show.Tally) string {
				if !printable(c) {
					return "-"
				}
				return c.Filter
			}},
		},
		Record: func(c show.Tally) any { return c },
		ID:     func(c show.Tally) string { return c.Filter },
	}
}

// printable reports whether a filter can be printed as it is. Printed in another way, it would choose other
// tasks.
func printable(c show.Tally) bool { return storage.PrintableText(c.Filter, len(c.Filter)) == c.Filter }

// listTallies counts the tasks of a request by a property. given is the filter of the request, and most the
// maximum number of values.
func (a *app) listTallies(
	ctx context.Context, req scan.Request, given, by string, of property, most int,
) error {
	tallies, without, rest := make(map[string]int64), int64(0), int64(0)
	var page scan.Page
	for req.Limit = storage.MaxPage; ; req.Cursor = page.Cursor {
		var err error
		if page, err = scan.Next(ctx, a.store, req); err != nil {
			return err
		}
		for i := range page.Tasks {
			value, ok := of(&page.Tasks[i])
			switch _, known := tallies[value]; {
			case !ok:
				without++
			case known || len(tallies) < mostTallies:
				tallies[value]++
			default:
				rest++
			}
		}
		if page.Done() {
			break
		}
		if a.std.Person {
			a.notef("searched %s of %s", show.Number(page.Searched), show.Number(page.Total))
		}
	}
	rows := talliesOf(given, by, tallies, without)
	unprinted := 0
	if show.Format(a.output) == show.IDs {
		all := len(rows)
		rows = slices.DeleteFunc(rows, func(c show.Tally) bool { return !printable(c) })
		unprinted = all - len(rows)
	}
	if err := list(ctx, a, tallyList(by), rows[:min(len(rows), most)], "no task matches"); err != nil {
		return err
	}
	if unprinted > 0 {
		a.notef("left out: %s whose filter cannot be printed", show.Count(int64(unprinted), "value"))
	}
	if len(rows) > most {
		a.notef("showing %s of %s", show.Number(int64(most)), show.Count(int64(len(rows)), "value"))
	}
	if rest > 0 {
		a.notef("%s of further values", show.Count(rest, "task"))
	}
	return nil
}

// talliesOf returns the counts of values, the most frequent first, and the number of tasks without a value.
// Each filter chooses among the tasks of the filter given.
func talliesOf(given, by string, tallies map[string]int64, without int64) []show.Tally {
	if given != "" {
		given += " "
	}
	rows, word := make([]show.Tally, 0, len(tallies)+1), by+":"
	if header, ok := strings.CutPrefix(by, "header."); ok {
		word = "header." + filter.Quote(header) + ":"
	}
	for value, n := range tallies {
		rows = append(rows, show.Tally{By: by, Value: &value, Tasks: n, Filter: given + word + filter.Quote(value)})
	}
	slices.SortFunc(rows, func(a, b show.Tally) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(*a.Value, *b.Value))
	})
	if without > 0 {
		rows = append(rows, show.Tally{By: by, Tasks: without, Filter: given + "-" + word + "*"})
	}
	return rows
}
