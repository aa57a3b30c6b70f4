package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table writes the results as a Markdown table that is aligned so that it can be read as
// plain text. It has a row for each metric on each storage, with the ratio of midge to
// the peer that its target names, else to the storage's peer, and the target.
func Table(w io.Writer, results []Result) error {
	values := make(map[place]float64)
	var systems []string
	var rows []place // without a system
	for _, r := range results {
		values[place{r.Storage, r.Metric, r.System}] = r.Value
		if !slices.Contains(systems, r.System) {
			systems = append(systems, r.System)
		}
		if row := (place{storage: r.Storage, metric: r.Metric}); !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	head := slices.Concat([]string{"storage", "metric", "unit"}, systems,
		[]string{self + " ÷ peer", self + " must", "met"})
	cells := append(make([][]string, 0, 1+len(rows)), head)
	for _, row := range rows {
		cells = append(cells, cellsOf(row, systems, values))
	}
	return Write(w, cells)
}

// cellsOf returns the cells of one row.
func cellsOf(row place, systems []string, values map[place]float64) []string {
	find := func(system, metric string) (float64, bool) {
		v, ok := values[place{row.storage, metric, system}]
		return v, ok
	}
	cells := []string{row.storage, row.metric, Unit(row.metric)}
	for _, s := range systems {
		cell := "–"
		if v, ok := find(s, row.metric); ok {
			cell = Number(v)
		}
		cells = append(cells, cell)
	}
	own, measured := find(self, row.metric)
	ratio, must, met := "–", "–", "–"
	t, ok := targetOf(row.storage, row.metric)
	peer := peerOn(row.storage)
	if t.system != "" && t.metric == "" {
		peer = t.system
	}
	if other, ok := find(peer, row.metric); ok && measured && other != 0 {
		ratio = Number(own / other)
	}
	if ok {
		must = t.String()
		if reached, known := t.met(row.metric, own, find); known && measured {
			met = map[bool]string{true: "yes", false: "no"}[reached]
		}
	}
	return append(cells, ratio, must, met)
}

// Write writes the cells as a Markdown table, whose first row is the head. Its first three
// columns, which hold names, are aligned to the left, and figures to the right.
func Write(w io.Writer, cells [][]string) error {
	widths := make([]int, len(cells[0]))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	const names = 3 // columns of names
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width-1) + map[bool]string{true: "-", false: ":"}[i < names]
	}
	for _, row := range slices.Insert(slices.Clone(cells), 1, rule) {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < names {
				line.WriteString("| " + cell + space + " ")
			} else {
				line.WriteString("| " + space + cell + " ")
			}
		}
		if _, err := fmt.Fprintln(w, line.String()+"|"); err != nil {
			return err
		}
	}
	return nil
}
