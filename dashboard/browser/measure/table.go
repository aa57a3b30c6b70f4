package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// table has the results, with a column for each storage.
type table struct {
	columns []string
	rows    []*row
}

type row struct {
	name, want string
	cells      map[string]string
}

// set writes a cell of the last column. A cell that misses the budget of its row (met is false) is marked.
func (t *table) set(name, want, cell string, met bool) {
	t.setIn(t.columns[len(t.columns)-1], name, want, cell, met)
}

func (t *table) setIn(column, name, want, cell string, met bool) {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{name: name, want: want, cells: map[string]string{}})
	}
	if !met {
		cell = "**" + cell + "**"
	}
	t.rows[i].cells[column] = cell
}

// text returns the table as Markdown.
func (t *table) text() string {
	columns := slices.Clone(t.columns)
	for _, r := range t.rows {
		if _, ok := r.cells[everywhere]; ok && !slices.Contains(columns, everywhere) {
			columns = append(columns, everywhere)
		}
	}
	lines := make([][]string, 0, 2+len(t.rows))
	lines = append(lines, append([]string{"", "budget"}, columns...))
	lines = append(lines, append([]string{"---"}, slices.Repeat([]string{"--:"}, 1+len(columns))...))
	for _, r := range t.rows {
		line := append(make([]string, 0, 2+len(columns)), r.name, r.want)
		for _, c := range columns {
			line = append(line, r.cells[c])
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// everywhere is the column of the results that do not depend on a storage.
const everywhere = "all"

// quantile returns the value at or below which the given part of the values lies, and 0 without values.
func quantile[T int | int64 | float64 | time.Duration](values []T, part float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
