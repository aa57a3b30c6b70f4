package chart

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
)

// The sizes of charts, in pixels. All paths run along whole pixels.
const (
	chartStep, chartHeight = 10, 160
	chartTop               = 12 // room above the highest point, for its line
	barLeast               = 3  // the least height of a bar, so that it can be seen
	rateHeight             = 16 // the height of a rate at the left of a chart
)

// plane has the coordinates of a chart: completed attempts go up from the axis, failed ones down, on one
// scale.
type plane struct {
	axis  int       // the distance of the axis from the top
	scale float64   // pixels for one attempt a second
	lines []int     // the y coordinates of the grid's lines, without the axis
	rates []float64 // the rates for which the lines stand
}

// plane computes the scale of the chart. Its ceiling is at least one attempt a second, so that a few attempts
// do not fill the chart.
func (c *Chart) plane() plane {
	done, failed := c.Max()
	done = max(1, done)
	room := float64(chartHeight - chartTop)
	pl := plane{axis: chartHeight - 1, scale: room / done}
	if failed > 0 {
		pl.scale = room / (done + failed)
		above := max(1, int(math.Round(done*pl.scale))) // if nearly all attempts fail
		pl.axis = min(chartTop+above, chartHeight-4*barLeast)
		pl.scale = min(pl.scale, float64(pl.axis-chartTop)/done)
	}
	// The larger side of the axis has at least two lines, and the smaller side those for which it has room.
	step := roundRate(max(done, failed) / 2)
	if step*pl.scale < rateHeight {
		step = roundRate(2.5 * step)
	}
	for r := step; r <= done*1.001; r += step {
		pl.lines, pl.rates = append(pl.lines, pl.axis-int(math.Round(r*pl.scale))), append(pl.rates, r)
	}
	for r := step; r <= failed*1.001; r += step {
		pl.lines, pl.rates = append(pl.lines, pl.axis+int(math.Round(r*pl.scale))), append(pl.rates, r)
	}
	return pl
}

// roundRate returns the largest of 1, 2 and 5, times a power of ten, that is not above a rate.
func roundRate(rate float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(rate)))
	for _, n := range []float64{5, 2} {
		if n*ten <= rate {
			return n * ten
		}
	}
	return ten
}

// SVG draws the chart: completed attempts as an area, failed ones as bars below the axis. The points are
// drawn one by one, and again in groups of three for a narrow window.
func (c *Chart) SVG() template.HTML {
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
func (c *Chart) Rates() template.HTML {
	pl := c.plane()
	var b strings.Builder
	b.WriteString(`<svg class="rates" aria-hidden="true">`)
	for i, y := range pl.lines {
		rate := template.HTMLEscapeString(format.PerSecond(pl.rates[i]))
		fmt.Fprintf(&b, `<text x="100%%" y="%d">%s</text>`, y+4, rate)
	}
	fmt.Fprintf(&b, `<text x="100%%" y="%d">0</text></svg>`, pl.axis+4)
	return svg(&b)
}

// drawGaps hatches the times that are not known, behind everything else.
func (c *Chart) drawGaps(b *strings.Builder, pl plane) {
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
func (c *Chart) share(n int) string {
	return strconv.FormatFloat(100*float64(n)/float64(len(c.Points)), 'f', 3, 64) + "%"
}

// draw draws each group of so many points as one. An average over a gap is hatched instead of filled.
func (c *Chart) draw(b *strings.Builder, pl plane, class string, each int) {
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

// mark is a moment of the time axis.
type mark struct {
	x, text string
	class   string // set if a narrow window has no room for the mark
}

// markSteps are the possible distances between the moments of a time axis.
var markSteps = []time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// marks returns the moments of the time axis, at most five, and none at an edge.
func (c *Chart) marks() (marks []mark) {
	span := c.span()
	step := markSteps[len(markSteps)-1]
	for _, s := range slices.Backward(markSteps) {
		if span <= 5*s {
			step = s
		}
	}
	last := 0.92 // behind it stands the zone
	if strings.Contains(c.Zone(), "/") {
		last = 0.85
	}
	zone, from := c.From.Location(), c.From
	clock := time.Date(from.Year(), from.Month(), from.Day(), from.Hour(), from.Minute(), 0, 0, time.UTC)
	clock = clock.Truncate(step)
	for { // the clock of the zone, in steps that begin at its midnight
		clock = clock.Add(step)
		at := time.Date(clock.Year(), clock.Month(), clock.Day(), clock.Hour(), clock.Minute(), 0, 0, zone)
		if !at.Before(c.End()) {
			break
		}
		x := float64(at.Sub(c.From)) / float64(span)
		if x < 0.05 || x > last {
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
func (c *Chart) Axis() template.HTML {
	var b strings.Builder
	b.WriteString(`<svg class="moments" aria-hidden="true">`)
	for _, m := range c.marks() {
		fmt.Fprintf(&b, `<text%s x="%s" y="12">%s</text>`, m.class, m.x, m.text)
	}
	fmt.Fprintf(&b, `<text class="end" x="100%%" y="12">%s</text></svg>`, template.HTMLEscapeString(c.Zone()))
	return svg(&b)
}

// svg declares a drawing of this package as markup. A drawing has only numbers, units, moments and escaped
// text.
func svg(text *strings.Builder) template.HTML {
	return template.HTML(text.String()) //nolint:gosec // numbers and names of classes alone
}
