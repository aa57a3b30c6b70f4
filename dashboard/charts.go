package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/ledger"
)

// The sizes of charts, in pixels: all paths run along whole ones.
const (
	chartStep, chartHeight = 10, 160
	sparkWidth, sparkHigh  = 96, 24
	chartTop               = 12 // above the highest point, for its line
	barLeast               = 3  // what failed is high enough to be seen
)

// plane is where a chart is drawn: up from its axis what was done, down from it what failed, on one scale.
type plane struct {
	axis  int     // how far below the top it is
	scale float64 // pixels for one a second
	lines []int   // where the grid has lines above the axis, and
	rates []float64
}

// plane finds the scale of the chart. Its ceiling is at least one a second, so that noise is no storm.
func (c *chart) plane() plane {
	done, failed := 1.0, 0.0
	for i := range c.Points {
		p := c.at(i)
		done, failed = max(done, p.Done/c.Step.Seconds()), max(failed, p.Failed/c.Step.Seconds())
	}
	room := float64(chartHeight - chartTop)
	pl := plane{axis: chartHeight - 1, scale: room / done}
	if failed > 0 {
		pl.scale = room / (done + failed)
		above := max(1, int(math.Round(done*pl.scale))) // where nearly all fails
		pl.axis = min(chartTop+above, chartHeight-4*barLeast)
		pl.scale = min(pl.scale, float64(pl.axis-chartTop)/done)
	}
	step := roundRate(done / 2)
	for r := step; r <= done*1.001; r += step {
		pl.lines, pl.rates = append(pl.lines, pl.axis-int(math.Round(r*pl.scale))), append(pl.rates, r)
	}
	return pl
}

// roundRate is the largest of 1, 2 and 5 and their tens that is not above a rate.
func roundRate(rate float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(rate)))
	for _, n := range []float64{5, 2} {
		if n*ten <= rate {
			return n * ten
		}
	}
	return ten
}

// SVG draws the chart: what was done as an area, what failed as bars below the axis. The points are drawn one
// by one, and again three at a time for a narrow window.
func (c *chart) SVG() template.HTML {
	pl := c.plane()
	var b strings.Builder
	b.WriteString(`<svg class="chart" aria-hidden="true"><defs>` +
		`<pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse">` +
		`<path d="M-2 2 2-2M0 8 8 0M6 10 10 6"/></pattern></defs>`)
	for _, y := range pl.lines {
		fmt.Fprintf(&b, `<line class="grid" x2="100%%" y1="%d.5" y2="%d.5"/>`, y, y)
	}
	for _, m := range c.marks() {
		fmt.Fprintf(&b, `<line class="grid" x1="%s" x2="%s" y1="%d" y2="%d"/>`, m.x, m.x, pl.axis, pl.axis+4)
	}
	for _, d := range c.Deploys() {
		x := strconv.FormatFloat(100*float64(d.At.Sub(c.From))/float64(c.span()), 'f', 3, 64) + "%"
		fmt.Fprintf(&b, `<line class="deploy" x1="%s" x2="%s" y1="0" y2="%d"/>`, x, x, pl.axis)
	}
	c.drawGaps(&b, pl)
	c.draw(&b, pl, "fine", 1)
	c.draw(&b, pl, "coarse", 3)
	fmt.Fprintf(&b, `<line class="axis" x2="100%%" y1="%d.5" y2="%d.5"/></svg>`, pl.axis, pl.axis)
	return svg(&b)
}

// Rates writes the rates of the grid, at the left of the chart.
func (c *chart) Rates() template.HTML {
	pl := c.plane()
	var b strings.Builder
	b.WriteString(`<svg class="rates" aria-hidden="true">`)
	for i, y := range pl.lines {
		fmt.Fprintf(&b, `<text x="100%%" y="%d">%s</text>`, y+4, format.Rate(pl.rates[i]))
	}
	fmt.Fprintf(&b, `<text x="100%%" y="%d">0</text></svg>`, pl.axis+4)
	return svg(&b)
}

// drawGaps hatches, behind everything, the time of which nothing is known.
func (c *chart) drawGaps(b *strings.Builder, pl plane) {
	for i := 0; i < len(c.Points); i++ {
		from := i
		for i < len(c.Points) && !c.at(i).Seen && !c.coming(i) {
			i++
		}
		if i > from {
			fmt.Fprintf(b, `<rect class="none" x="%s" width="%s" y="%d" height="%d"/>`,
				c.share(from), c.share(i-from), chartTop, pl.axis-chartTop)
		}
	}
}

// share writes a number of points as a part of the chart's width.
func (c *chart) share(n int) string {
	return strconv.FormatFloat(100*float64(n)/float64(len(c.Points)), 'f', 3, 64) + "%"
}

// draw draws so many points at a time as one. An average over a gap is hatched in the place of a full area.
func (c *chart) draw(b *strings.Builder, pl plane, class string, each int) {
	var area, gaps, line, bars strings.Builder
	was := sampler.Point{}
	for i := 0; i < len(c.Points); i += each {
		p, n := c.mean(i, each), min(each, len(c.Points)-i)
		x, wide := i*chartStep, n*chartStep
		if high := int(math.Round(p.Failed * pl.scale)); p.Failed > 0 {
			fmt.Fprintf(&bars, "M%d %dh%dv%dh-%dz", x+1, pl.axis+1, wide-2, max(barLeast, high), wide-2)
		}
		y := pl.axis - int(math.Round(p.Done*pl.scale))
		if p.Done > 0 {
			y = min(y, pl.axis-1)
		}
		if p.Seen {
			part := &area
			if p.Gap {
				part = &gaps
			}
			fmt.Fprintf(part, "M%d %dV%dh%dV%dz", x, pl.axis, y, wide, pl.axis)
			if was.Seen {
				fmt.Fprintf(&line, "V%dh%d", y, wide)
			} else {
				fmt.Fprintf(&line, "M%d %dh%d", x, y, wide)
			}
		}
		was = p
	}
	fmt.Fprintf(b, `<svg class="%s" viewBox="0 0 %d %d" preserveAspectRatio="none">`,
		class, len(c.Points)*chartStep, chartHeight)
	fmt.Fprintf(b, `<path class="area" d="%s"/><path class="mean" d="%s"/>`, area.String(), gaps.String())
	fmt.Fprintf(b, `<path class="edge" d="%s"/><path class="bars" d="%s"/></svg>`, line.String(), bars.String())
}

// mean joins points into one, in rates. It is known where one of them is.
func (c *chart) mean(from, each int) (mean sampler.Point) {
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

// mark is a moment of the time axis.
type mark struct {
	x, text string
	class   string // of one that a narrow window has no room for
}

// markSteps are how far the moments of a time axis may be apart.
var markSteps = []time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// marks are the moments of the time axis, at most five, none at an edge.
func (c *chart) marks() (marks []mark) {
	span := c.span()
	step := markSteps[len(markSteps)-1]
	for _, s := range slices.Backward(markSteps) {
		if span <= 5*s {
			step = s
		}
	}
	for at := c.From.UTC().Truncate(step).Add(step); at.Before(c.end()); at = at.Add(step) {
		x := float64(at.Sub(c.From)) / float64(span)
		if x < 0.05 || x > 0.92 {
			continue
		}
		text := at.Format("15:04")
		if step >= 24*time.Hour {
			text = at.Format("Jan" + format.NBSP + "2")
		}
		m := mark{x: strconv.FormatFloat(100*x, 'f', 2, 64) + "%", text: text}
		if x > 0.8 {
			m.class = ` class="fourth"`
		}
		marks = append(marks, m)
	}
	return marks
}

// Axis writes the moments below the chart.
func (c *chart) Axis() template.HTML {
	var b strings.Builder
	b.WriteString(`<svg class="moments" aria-hidden="true">`)
	for _, m := range c.marks() {
		fmt.Fprintf(&b, `<text%s x="%s" y="12">%s</text>`, m.class, m.x, m.text)
	}
	b.WriteString(`<text class="end" x="100%" y="12">UTC</text></svg>`)
	return svg(&b)
}

func (c *chart) span() time.Duration { return c.Step * time.Duration(len(c.Points)) }

func (c *chart) end() time.Time { return c.From.Add(c.span()) }

// Top is the maximum, for the corner of the chart.
func (c *chart) Top() string { return format.Rate(c.Max) }

// sums are the attempts of the whole chart.
func (c *chart) sums() (done, failed float64) {
	for _, p := range c.Points {
		done, failed = done+p.Done, failed+p.Failed
	}
	return done, failed
}

// chartRow is a point of the table beside a chart.
type chartRow struct {
	At           time.Time
	Done, Failed int64
	Seen, Gap    bool
	Deployed     string // the versions that were first seen then
}

// Rows gives the chart as a table, the newest first.
func (c *chart) Rows() []chartRow {
	rows := make([]chartRow, 0, len(c.Points))
	for i, p := range slices.Backward(c.Points) {
		at := c.From.Add(time.Duration(i) * c.Step)
		row := chartRow{
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

// Deploys are the versions of runners that were first seen within the chart.
func (c *chart) Deploys() []ledger.Deploy {
	return slices.DeleteFunc(slices.Clone(c.deploys), func(d ledger.Deploy) bool {
		return d.At.Before(c.From) || !d.At.Before(c.end())
	})
}

// End is the moment at which the chart ends, for the days of its rows.
func (c *chart) End() time.Time { return c.end() }

// Blank reports whether nothing is known of a part of the time.
func (c *chart) Blank() bool {
	for i := range c.Points {
		if !c.at(i).Seen && !c.coming(i) {
			return true
		}
	}
	return false
}

// Averaged reports whether a part of the points are averages over a time in which nobody looked.
func (c *chart) Averaged() bool {
	return slices.ContainsFunc(c.Points, func(p sampler.Point) bool { return p.Seen && p.Gap })
}

// spark draws a value of each point, with its maximum. least is the lowest ceiling.
func (c *chart) spark(
	of func(sampler.Point) float64, least float64, text func(float64) string,
) template.HTML {
	values := make([]float64, 0, len(c.Points))
	for i := range c.Points {
		switch p := c.at(i); {
		case p.Seen:
			values = append(values, of(p))
		case !c.coming(i):
			values = append(values, -1)
		}
	}
	return sparkbox(values, least, text)
}

// sparkbox draws values with their maximum beside.
func sparkbox(values []float64, least float64, text func(float64) string) template.HTML {
	var b strings.Builder
	b.WriteString(`<span class="sparkbox">` + string(sparkline(values, least)))
	b.WriteString(`<span title="the maximum">` + text(max(0, slices.Max(append(values, 0)))) + `</span></span>`)
	return svg(&b)
}

// sparkline draws values, of which one below zero is unknown. Its ceiling is at least the least one.
func sparkline(values []float64, least float64) template.HTML {
	top := max(least, slices.Max(append(values, least)))
	var path, fill, gaps strings.Builder
	open := 0
	at := func(i int) int { return i * (sparkWidth - 1) / max(1, len(values)-1) }
	for i, v := range values {
		x := at(i)
		if v < 0 {
			if open > 0 {
				fmt.Fprintf(&fill, "V%dz", sparkHigh-1)
			}
			open = 0
			fmt.Fprintf(&gaps, "M%d %dl3-6", x, sparkHigh-1)
			continue
		}
		y := sparkHigh - 2 - int(math.Round(v/top*float64(sparkHigh-4)))
		if open == 0 {
			fmt.Fprintf(&path, "M%d %d", x, y)
			fmt.Fprintf(&fill, "M%d %dV%d", x, sparkHigh-1, y)
		} else {
			fmt.Fprintf(&path, "L%d %d", x, y)
			fmt.Fprintf(&fill, "L%d %d", x, y)
		}
		open++
	}
	if open > 0 {
		fmt.Fprintf(&fill, "V%dz", sparkHigh-1)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" width="%d" height="%d" viewBox="0 0 %d %d"`,
		sparkWidth, sparkHigh, sparkWidth, sparkHigh)
	b.WriteString(` preserveAspectRatio="none" aria-hidden="true">`)
	fmt.Fprintf(&b, `<path class="none" d="%s"/><path class="fill" d="%s"/><path class="run" d="%s"/></svg>`,
		gaps.String(), fill.String(), path.String())
	return svg(&b)
}

// shareWidth is that of the bar of a share, in pixels.
const shareWidth = 64

// shareBar draws how much of something is in use.
func shareBar(used, of int) template.HTML {
	var b strings.Builder
	filled := min(shareWidth, (used*shareWidth+of-1)/max(1, of))
	fmt.Fprintf(&b, `<svg class="share" width="%d" height="8" aria-hidden="true">`, shareWidth)
	fmt.Fprintf(&b, `<rect width="%d" height="8"/><rect class="used" width="%d" height="8"/></svg>`,
		shareWidth, filled)
	return svg(&b)
}
