// Package report turns measured values into medians, a table and lines of JSON.
package report

import (
	"encoding/json"
	"io"
	"slices"
)

// Result is the value of one metric.
type Result struct {
	System  string  `json:"system"`
	Storage string  `json:"storage"`
	Metric  string  `json:"metric"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
}

// Results collects values round by round. The zero value is empty.
type Results struct {
	order  []place
	values map[place][]float64
}

// place identifies what was measured.
type place struct{ storage, metric, system string }

// Add adds the value of one round.
func (r *Results) Add(system, storage, metric string, value float64) {
	if r.values == nil {
		r.values = make(map[place][]float64)
	}
	at := place{storage, metric, system}
	if _, ok := r.values[at]; !ok {
		r.order = append(r.order, at)
	}
	r.values[at] = append(r.values[at], value)
}

// Median returns the median of the rounds so far, and whether there are any.
func (r *Results) Median(system, storage, metric string) (float64, bool) {
	values := r.values[place{storage, metric, system}]
	return Median(values), len(values) > 0
}

// Medians returns all medians, in the order of their first values.
func (r *Results) Medians() []Result {
	all := make([]Result, 0, len(r.order))
	for _, at := range r.order {
		all = append(all, Result{
			System: at.system, Storage: at.storage, Metric: at.metric,
			Value: Median(r.values[at]), Unit: Unit(at.metric),
		})
	}
	return all
}

// Median returns the middle value. For an even number of values it returns the mean of
// the two in the middle, and for none 0.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// JSON writes one object a line.
func JSON(w io.Writer, results []Result) error {
	lines := json.NewEncoder(w)
	for _, r := range results {
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
