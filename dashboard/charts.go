package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// The sizes of charts, in pixels: all paths run along whole ones.
const (
	chartStep, chartHeight = 10, 160
	sparkWidth, sparkHigh  = 96, 24
)

// SVG draws the chart: what was done as an area, what failed as bars below the axis, on one scale.
func (c chart) SVG() template.HTML {
	var done, failed float64
	for _, p := range c.Points {
		done, failed = max(done, p.Done), max(failed, p.Failed)
	}
	// The ceiling is at least one a second, so that noise is no storm.
	perPoint := (c.Span / time.Duration(max(1, len(c.Points)))).Seconds()
	done = max(done, perPoint)
	axis := chartHeight - 1
	if failed > 0 {
		axis = max(chartHeight/2, int(math.Round(float64(chartHeight-8)*done/(done+failed)))) - 1
		axis = min(axis, chartHeight-12)
	}
	scale := min(float64(axis-8)/done, float64(chartHeight-axis)/max(failed, 1e-9))
	var area, line, bars, gaps strings.Builder
	open := false
	for i, p := range c.Points {
		x := i * chartStep
		if !p.Seen || p.Gap {
			fmt.Fprintf(&gaps, "M%d 0h%dv%dh-%dz", x, chartStep, chartHeight, chartStep)
		}
		if p.Failed > 0 {
			high := max(2, int(math.Round(p.Failed*scale)))
			fmt.Fprintf(&bars, "M%d %dh%dv%dh-%dz", x+1, axis+1, chartStep-2, high, chartStep-2)
		}
		if !p.Seen {
			if open {
				fmt.Fprintf(&area, "V%dz", axis)
			}
			open = false
			continue
		}
		y := axis - int(math.Round(p.Done*scale))
		if p.Done > 0 {
			y = min(y, axis-1)
		}
		if open {
			fmt.Fprintf(&area, "V%dh%d", y, chartStep)
			fmt.Fprintf(&line, "V%dh%d", y, chartStep)
		} else {
			fmt.Fprintf(&area, "M%d %dV%dh%d", x, axis, y, chartStep)
			fmt.Fprintf(&line, "M%d %dh%d", x, y, chartStep)
		}
		open = true
	}
	if open {
		fmt.Fprintf(&area, "V%dz", axis)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`,
		len(c.Points)*chartStep, chartHeight)
	b.WriteString(`<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">` +
		`<path d="M0 6 6 0" class="hatch"/></pattern></defs>`)
	fmt.Fprintf(&b, `<path class="gap" d="%s"/><path class="area" d="%s"/><path class="edge" d="%s"/>`,
		gaps.String(), area.String(), line.String())
	fmt.Fprintf(&b, `<path class="bars" d="%s"/><path class="axis" d="M0 %d.5H%d"/></svg>`,
		bars.String(), axis, len(c.Points)*chartStep)
	return svg(&b)
}

// Top is the maximum, for the corner of the chart.
func (c chart) Top() string { return rate(c.Max) }

// Empty reports whether nothing was seen.
func (c chart) Empty() bool {
	for _, p := range c.Points {
		if p.Seen {
			return false
		}
	}
	return true
}

// Row is a point of the table beside a chart.
type chartRow struct {
	At           time.Time
	Done, Failed int64
	Seen, Gap    bool
}

// Rows gives the chart as a table, the newest first.
func (c chart) Rows() []chartRow {
	rows := make([]chartRow, 0, len(c.Points))
	step := c.Span / time.Duration(max(1, len(c.Points)))
	for i, p := range slices.Backward(c.Points) {
		at := c.End.Truncate(step).Add(-time.Duration(len(c.Points)-1-i) * step)
		rows = append(rows, chartRow{at, int64(math.Round(p.Done)), int64(math.Round(p.Failed)), p.Seen, p.Gap})
	}
	return rows
}

// Begin is the moment of the first point.
func (c chart) Begin() time.Time { return c.End.Add(-c.Span) }

func (c chart) spark(of func(point) float64) template.HTML {
	values := make([]float64, len(c.Points))
	for i, p := range c.Points {
		values[i] = of(p)
		if !p.Seen {
			values[i] = -1
		}
	}
	return sparkline(values, (c.Span / time.Duration(max(1, len(c.Points)))).Seconds())
}

// sparkline draws values, of which one below zero is unknown. Its ceiling is at least one a second.
func sparkline(values []float64, seconds float64) template.HTML {
	top := seconds
	for _, v := range values {
		top = max(top, v)
	}
	var path, gaps strings.Builder
	open := false
	for i, v := range values {
		x := i * sparkWidth / max(1, len(values)-1)
		if v < 0 {
			open = false
			fmt.Fprintf(&gaps, "M%d %dh1", x, sparkHigh-1)
			continue
		}
		y := sparkHigh - 2 - int(math.Round(v/top*float64(sparkHigh-4)))
		command := "L"
		if !open {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%d %d", command, x, y)
		open = true
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" width="%d" height="%d" viewBox="0 0 %d %d" aria-hidden="true">`+
		`<path class="none" d="%s"/><path class="run" d="%s"/></svg>`,
		sparkWidth, sparkHigh, sparkWidth, sparkHigh, gaps.String(), path.String())
	return svg(&b)
}

// segment is a part of a queue's bar.
type segment struct {
	stateLook

	Tasks    int64
	X, Width int
}

// barWidth is that of a queue's bar, in units of its own.
const barWidth = 120

// Bar gives the parts of the queue's bar: its states that are not ended well, and what died.
func (q *queueNow) Bar() []segment {
	var total int64
	var segments []segment
	for _, l := range looks {
		if l.State == storage.Completed || l.State == storage.Cancelled {
			continue
		}
		if n := q.Size(l.State); n > 0 {
			segments = append(segments, segment{stateLook: l, Tasks: n})
			total += n
		}
	}
	// Each segment is wide enough to be seen; the rest is shared by size.
	const least = 5
	free := barWidth - least*len(segments)
	x := 0
	for i := range segments {
		w := least + int(float64(free)*float64(segments[i].Tasks)/float64(total))
		if i == len(segments)-1 {
			w = barWidth - x
		}
		segments[i].X, segments[i].Width = x, max(1, w-1)
		x += w
	}
	return segments
}

// Gapped reports whether nobody looked for a part of the time.
func (c chart) Gapped() bool {
	for _, p := range c.Points {
		if !p.Seen || p.Gap {
			return true
		}
	}
	return false
}
