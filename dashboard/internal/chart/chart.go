// Package chart draws SVG: the attempts of queues over time, sparklines, and bars of shares. Classes set the
// style of the drawings, because the pages permit no styles within markup.
package chart

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/ledger"
)

// Chart has the completed and the failed attempts over a time, point by point.
type Chart struct {
	Points []sampler.Point
	From   time.Time     // when the first point begins, in the time zone of the chart
	Step   time.Duration // from a point to the next
	Part   float64       // how much of the last point has passed, 1 for all of it
	Which  string        // the name of the span in the address of the page
	// Versions are the versions of runners, each with the moment at which it was first seen.
	Versions []ledger.Deploy
}

// span returns the time that the chart covers.
func (c *Chart) span() time.Duration { return c.Step * time.Duration(len(c.Points)) }

// End returns the moment at which the chart ends.
func (c *Chart) End() time.Time { return c.From.Add(c.span()) }

// Zone returns the name of the time zone in which the chart shows moments: that of From. If summer time
// begins or ends in the chart, Zone returns both names, such as "CET/CEST".
func (c *Chart) Zone() string {
	const abbreviation = "MST"
	name := c.From.Format(abbreviation)
	for i := range c.Points {
		if other := c.From.Add(time.Duration(i) * c.Step).Format(abbreviation); other != name {
			return name + "/" + other
		}
	}
	return name
}

// least is the part of a point that must have passed before the point has a rate.
const least = 0.25

// at returns a point as it is drawn: it is assumed that the rest of the last point is like the part that has
// passed.
func (c *Chart) at(i int) sampler.Point {
	p := c.Points[i]
	if i != len(c.Points)-1 || c.Part <= 0 || c.Part >= 1 {
		return p
	}
	if c.Part < least {
		return sampler.Point{}
	}
	p.Done, p.Failed = p.Done/c.Part, p.Failed/c.Part
	return p
}

// soon is how long the history may take to know a minute that is over.
const soon = 90 * time.Second

// coming reports whether a point is not known yet because it has only just ended, or has not ended.
func (c *Chart) coming(i int) bool {
	missing := float64(len(c.Points)-1-i) - 1 + c.Part // in points, from its end until now
	return !c.at(i).Seen && time.Duration(missing*float64(c.Step)) < soon
}

// mean returns the mean of some points as one point, in attempts a second. The mean is known if one of the
// points is.
func (c *Chart) mean(from, each int) (mean sampler.Point) {
	n := 0.0
	for i := from; i < min(from+each, len(c.Points)); i++ {
		p := c.at(i)
		if !p.Seen {
			mean.Gap = mean.Gap || !c.coming(i)
			continue
		}
		n++
		mean.Done, mean.Failed = mean.Done+p.Done, mean.Failed+p.Failed
		mean.Seen, mean.Gap = true, mean.Gap || p.Gap
	}
	mean.Done, mean.Failed = mean.Done/max(1, n)/c.Step.Seconds(), mean.Failed/max(1, n)/c.Step.Seconds()
	return mean
}

// Sums returns the attempts of the whole chart.
func (c *Chart) Sums() (done, failed float64) {
	for _, p := range c.Points {
		done, failed = done+p.Done, failed+p.Failed
	}
	return done, failed
}

// Max returns the highest rates of the chart, in attempts a second.
func (c *Chart) Max() (done, failed float64) {
	for i := range c.Points {
		if p := c.at(i); p.Seen {
			done, failed = max(done, p.Done), max(failed, p.Failed)
		}
	}
	return done / c.Step.Seconds(), failed / c.Step.Seconds()
}

// Top returns the highest rate of completed attempts as text, "" if none completed.
func (c *Chart) Top() string {
	if done, _ := c.Max(); done > 0 {
		return format.PerSecond(done)
	}
	return ""
}

// Bottom returns the highest rate of failed attempts as text, "" if none failed.
func (c *Chart) Bottom() string {
	if _, failed := c.Max(); failed > 0 {
		return format.PerSecond(failed)
	}
	return ""
}

// Blank reports whether a part of the time is not known.
func (c *Chart) Blank() bool {
	for i := range c.Points {
		if !c.at(i).Seen && !c.coming(i) {
			return true
		}
	}
	return false
}

// Averaged reports whether some points are averages over a time in which nobody looked.
func (c *Chart) Averaged() bool {
	return slices.ContainsFunc(c.Points, func(p sampler.Point) bool { return p.Seen && p.Gap })
}

// Deploys returns the versions of runners that were first seen within the chart.
func (c *Chart) Deploys() []ledger.Deploy {
	return slices.DeleteFunc(slices.Clone(c.Versions), func(d ledger.Deploy) bool {
		return d.At.Before(c.From) || !d.At.Before(c.End())
	})
}

// Row is a point of the table beside a chart.
type Row struct {
	At           time.Time
	Done, Failed int64
	Seen, Gap    bool
	Deployed     string // the versions that were first seen in its time
}

// Rows returns the chart as a table, the newest point first.
func (c *Chart) Rows() []Row {
	rows := make([]Row, 0, len(c.Points))
	for i, p := range slices.Backward(c.Points) {
		at := c.From.Add(time.Duration(i) * c.Step)
		row := Row{
			At: at, Done: int64(math.Round(p.Done)), Failed: int64(math.Round(p.Failed)), Seen: p.Seen, Gap: p.Gap,
		}
		var versions []string
		for _, d := range c.Deploys() {
			if !d.At.Before(at) && d.At.Before(at.Add(c.Step)) {
				versions = append(versions, d.Version)
			}
		}
		row.Deployed = strings.Join(versions, ", ")
		rows = append(rows, row)
	}
	return rows
}
