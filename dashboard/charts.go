package dashboard

import (
	"html/template"
	"slices"

	"github.com/midgehq/midge/dashboard/internal/chart"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/ledger"
)

// chartOf returns the chart of a queue, or of all queues if queue is empty. It covers the last five minutes,
// as this process saw them, if which is "5m". Else it covers the last hour, of which the history may know
// more than this process saw.
func (v *view) chartOf(queue, which string) *chart.Chart {
	span := 1
	if which == "5m" {
		span = 0
	}
	step := sampler.Spans[span]
	last := v.Now.Truncate(step)
	c := &chart.Chart{
		Points: v.server.sampler.Seen(queue, span, v.Now), Which: []string{"5m", "1h"}[span],
		From: last.Add(-(sampler.Points - 1) * step), Step: step, Part: float64(v.Now.Sub(last)) / float64(step),
	}
	if span == 1 {
		v.Sample.Recall(queue, c.From, c.Points)
	}
	if v.Sample.Hour != nil {
		c.Versions = v.Sample.Hour.Deploys
	}
	return c
}

// past draws a number over the last hour until now, with its maximum. It returns "" if the history knows
// nothing of that hour.
func (v *view) past(now float64, of func(ledger.Point) float64, text func(float64) string) template.HTML {
	if v.Sample.KnownMinutes() == 0 {
		return ""
	}
	values := make([]float64, len(v.Sample.Hour.All))
	for i, p := range v.Sample.Hour.All {
		values[i] = of(p)
		if !p.Known {
			values[i] = -1
		}
	}
	for len(values) > 0 && values[len(values)-1] < 0 { // now stands for the newest minutes, which are not known
		values = values[:len(values)-1]
	}
	return chart.Sparkline(slices.Concat(values, []float64{now}), 1, text)
}

// hourOf has the figures of a queue for the last hour.
type hourOf struct {
	Attempts, Failed int64
	Spark            template.HTML // the rate of work, with its maximum
}

// Hour returns the figures of a queue for the last hour.
func (v *view) Hour(queue string) hourOf {
	c := v.chartOf(queue, "1h")
	done, failed := c.Sums()
	return hourOf{
		Attempts: int64(done + failed), Failed: int64(failed),
		Spark: c.Spark(func(p sampler.Point) float64 { return p.Done / c.Step.Seconds() }, 1, format.Rate),
	}
}

// Share returns the part of the attempts that failed.
func (h hourOf) Share() string {
	if h.Attempts == 0 {
		return format.Dash
	}
	return format.Percent(float64(h.Failed) / float64(h.Attempts))
}
