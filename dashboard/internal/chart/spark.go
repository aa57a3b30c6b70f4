package chart

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/midgehq/midge/dashboard/internal/sampler"
)

// The size of a sparkline, and the width of the bar of a share, in pixels.
const (
	sparkWidth, sparkHigh = 96, 24
	shareWidth            = 64
)

// Spark draws a value of each point, with the maximum beside it. See Sparkline.
func (c *Chart) Spark(
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
	return Sparkline(values, least, text)
}

// Sparkline draws values with their maximum beside them. A value below zero is unknown. The ceiling of the
// drawing is the maximum, or least if that is higher. text writes the maximum.
func Sparkline(values []float64, least float64, text func(float64) string) template.HTML {
	var b strings.Builder
	b.WriteString(`<span class="sparkbox">` + string(line(values, least)))
	most := template.HTMLEscapeString(text(max(0, slices.Max(append(values, 0)))))
	b.WriteString(`<span title="the maximum">` + most + `</span></span>`)
	return svg(&b)
}

// line draws the line of a sparkline, and the area below it.
func line(values []float64, least float64) template.HTML {
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

// ShareBar draws how much of something is in use.
func ShareBar(used, of int) template.HTML {
	var b strings.Builder
	filled := min(shareWidth, (used*shareWidth+of-1)/max(1, of))
	fmt.Fprintf(&b, `<svg class="share" width="%d" height="8" aria-hidden="true">`, shareWidth)
	fmt.Fprintf(&b, `<rect width="%d" height="8"/><rect class="used" width="%d" height="8"/></svg>`,
		shareWidth, filled)
	return svg(&b)
}
