package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/midgehq/midge/bench/internal/report"
)

// row is one metric on one storage. The values at one index were measured one right after the other.
type row struct {
	storage, metric, reference string
	before, after              []float64 // of the reference, of the working tree
}

// compare builds the sides and takes the rounds of each comparison: the reference, twice the tree, the
// reference. It returns the rows, also those of a run that was interrupted.
func compare(ctx context.Context, folder string, p plan, wanted []comparison) ([]row, error) {
	var commits []string
	for _, c := range wanted {
		if !slices.Contains(commits, c.reference) {
			commits = append(commits, c.reference)
		}
	}
	programs, err := build(ctx, folder, commits)
	if err != nil {
		return nil, err
	}
	var rows []row
	var failed []error
	for _, c := range wanted {
		got, err := c.turns(ctx, programs, p.times)
		rows, failed = append(rows, got...), append(failed, err)
		for _, r := range got {
			fmt.Fprintf(os.Stderr, "%-9s %-20s %.2f\n", r.storage, r.metric, r.ratio())
		}
	}
	return rows, errors.Join(failed...)
}

// turns takes the turns of one comparison.
func (c comparison) turns(ctx context.Context, programs builds, times int) ([]row, error) {
	rows := make([]row, len(c.metrics))
	for i, metric := range c.metrics {
		rows[i] = row{storage: c.storage, metric: metric, reference: c.reference}
	}
	for range times {
		for _, side := range []string{c.reference, tree, tree, c.reference} {
			values, err := c.once(ctx, programs[side])
			if err != nil {
				return nil, fmt.Errorf("%s on %s, %s: %w", c.metrics[0], c.storage, side, err)
			}
			for i := range rows {
				v, ok := values[rows[i].metric]
				switch {
				case !ok: // the storage does not have it, as memory has no server
				case side == tree:
					rows[i].after = append(rows[i].after, v)
				default:
					rows[i].before = append(rows[i].before, v)
				}
			}
		}
	}
	return slices.DeleteFunc(rows, func(r row) bool { return len(r.before) == 0 || len(r.after) == 0 }), nil
}

// once measures once, on a server of its own.
func (c comparison) once(ctx context.Context, program string) (map[string]float64, error) {
	args := []string{
		"-json", "-rounds", "1", "-systems", "midge", "-aof", "off",
		"-storages", c.storage, "-metrics", c.metrics[0],
	}
	if !c.full {
		args = append(args, "-quick")
	}
	text, err := output(ctx, ".", program, args...)
	if err != nil {
		return nil, err
	}
	values := make(map[string]float64)
	for lines := json.NewDecoder(strings.NewReader(text)); ; {
		var r report.Result
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return values, nil
		} else if err != nil {
			return nil, err
		}
		values[r.Metric] = r.Value
	}
}

// ratio returns the speed of the working tree as a part of the reference's, by the medians: more than 1
// is faster, or cheaper.
func (r row) ratio() float64 { return r.gain(report.Median(r.before), report.Median(r.after)) }

// gain returns how much better a value is than the one before, as a ratio.
func (r row) gain(before, after float64) float64 {
	if !higherIsBetter(r.metric) {
		before, after = after, before
	}
	if before == after {
		return 1 // both may be 0
	}
	return after / before
}

// spread returns the smallest and the largest ratio of two neighboring measurements.
func (r row) spread() (least, most float64) {
	ratios := make([]float64, 0, len(r.after))
	for i := range min(len(r.before), len(r.after)) {
		ratios = append(ratios, r.gain(r.before[i], r.after[i]))
	}
	return slices.Min(ratios), slices.Max(ratios)
}

// table writes the rows.
func table(w io.Writer, rows []row) error {
	cells := [][]string{{"storage", "metric", "unit", "reference", "median", "tree", "ratio", "pairs", "kept"}}
	for _, r := range rows {
		least, most := r.spread()
		kept := "yes"
		switch {
		case !r.judged():
			kept = "–"
		case r.ratio() < bound:
			kept = "no"
		}
		cells = append(cells, []string{
			r.storage, r.metric, report.Unit(r.metric), r.reference, report.Number(report.Median(r.before)),
			report.Number(report.Median(r.after)), fmt.Sprintf("%.2f", r.ratio()),
			fmt.Sprintf("%.2f to %.2f", least, most), kept,
		})
	}
	return report.Write(w, cells)
}
