package chart

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
)

// TestAChartNeverHidesAGap checks that unknown times are hatched and not drawn as zero, that an average over
// a gap keeps its height, and that the current minute is scaled by the part of it that has passed.
func TestAChartNeverHidesAGap(t *testing.T) {
	known := sampler.Point{Done: 120, Seen: true}
	c := &Chart{
		From: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Step: time.Minute, Part: 0.5,
		Points: []sampler.Point{known, {}, {Done: 60, Seen: true, Gap: true}, {Done: 30, Seen: true}},
	}
	drawn := string(c.SVG())
	for what, want := range map[string]string{
		"the unknown minute is hatched": `class="none" x="25.000%" width="25.000%"`,
		"the average has its height":    `class="mean" d="M20 159V85h10V159z"`,
		"the last minute is scaled":     `M30 159V85h10V159z"`,
		"the line leaves the gap out":   `class="edge" d="M0 11h10M20 85h10V85h10"`,
	} {
		if !strings.Contains(drawn, want) {
			t.Errorf("%s: no %s in %s", what, want, drawn)
		}
	}
	if !c.Blank() || !c.Averaged() {
		t.Errorf("blank %t, averaged %t: want both", c.Blank(), c.Averaged())
	}
	if got, _ := c.Max(); got != 2 {
		t.Errorf("at most %v a second, want 2", got)
	}
	c.Points[1], c.Points[3] = known, sampler.Point{}
	if c.Part = 0.1; c.Blank() {
		t.Error("the minute that has just begun counts as not known")
	}
}

func TestTheMarksOfATimeAxis(t *testing.T) {
	for span, want := range map[time.Duration]string{
		5 * time.Minute: "12:31 12:32 12:33 12:34", time.Hour: "12:45 13:00 13:15", 6 * time.Hour: "14:00 16:00 18:00",
		7 * 24 * time.Hour: "May\u00a05 May\u00a07 May\u00a09",
	} {
		c := &Chart{From: time.Date(2026, 5, 4, 12, 30, 0, 0, time.UTC), Step: span / sampler.Points, Points: make([]sampler.Point, sampler.Points)}
		var got []string
		for _, m := range c.marks() {
			got = append(got, m.text)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("over %v: %q, want %q", span, got, want)
		}
	}
}

// TestTheZoneOfAChart checks charts in which summer time begins, ends, and does neither.
func TestTheZoneOfAChart(t *testing.T) {
	for _, c := range []struct {
		zone, from string
		points     int
		want       string
	}{
		{"UTC", "2026-03-28 12:00", 48, "UTC"},
		{"Europe/Berlin", "2026-03-28 12:00", 12, "CET"},
		{"Europe/Berlin", "2026-03-28 12:00", 48, "CET/CEST"},
		{"Europe/Berlin", "2026-03-28 05:00", 48, "CET/CEST"},
		{"Europe/Berlin", "2026-10-24 12:00", 48, "CEST/CET"},
		{"Europe/Berlin", "2026-03-01 12:00", 365 * 24, "CET/CEST"},
		{"Asia/Tokyo", "2026-03-28 12:00", 365 * 24, "JST"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.ParseInLocation("2006-01-02 15:04", c.from, zone)
		if err != nil {
			t.Fatal(err)
		}
		of := &Chart{From: from, Step: time.Hour, Points: make([]sampler.Point, c.points)}
		if got := of.Zone(); got != c.want {
			t.Errorf("%d hours from %s in %s: the zone is %s, want %s", c.points, c.from, c.zone, got, c.want)
		}
		if got := string(of.Axis()); !strings.Contains(got, ">"+c.want+"</text>") || strings.Contains(c.want, "/") &&
			slices.ContainsFunc(of.marks(), func(m mark) bool { return len(m.x) == len("90.00%") && m.x > "85" }) {
			t.Errorf("%d hours from %s in %s: the axis is %s", c.points, c.from, c.zone, got)
		}
	}
}

func TestRoundRates(t *testing.T) {
	for rate, want := range map[float64]float64{0.5: 0.5, 0.7: 0.5, 21: 20, 49: 20, 51: 50, 999: 500, 1000: 1000} {
		if got := roundRate(rate); got != want {
			t.Errorf("%v: %v, want %v", rate, got, want)
		}
	}
}

// TestAChartShowsWhereNearlyAllFails checks that failed attempts have their height, however few were
// completed.
func TestAChartShowsWhereNearlyAllFails(t *testing.T) {
	for _, failed := range []float64{10, 290, 300, 5000} {
		c := &Chart{Step: time.Minute, Part: 1, Points: []sampler.Point{{Seen: true}, {Failed: failed * 60, Seen: true}, {Seen: true}}}
		if pl := c.plane(); failed*pl.scale < chartHeight/2 || float64(pl.axis)+failed*pl.scale > chartHeight+1 {
			t.Errorf("%v failures a second are %.0f pixels high below an axis at %d", failed, failed*pl.scale, pl.axis)
		}
	}
}

// TestTheRatesOfAChartStandApart checks that no rate at the left of a chart covers another one, that one of
// the two sides has rates, and that the legend distinguishes the completed and the failed attempts.
func TestTheRatesOfAChartStandApart(t *testing.T) {
	for _, done := range []float64{0, 0.3, 1, 9.9, 11, 120, 4999} {
		for _, failed := range []float64{0, 0.1, 1, 9.9, 75, 149, 4999, 1e6} {
			c := &Chart{Step: time.Second, Part: 1, Points: []sampler.Point{{Done: done, Failed: failed, Seen: true}}}
			pl := c.plane()
			ys := append([]int{pl.axis}, pl.lines...)
			slices.Sort(ys)
			for i := 1; i < len(ys); i++ {
				if ys[i]-ys[i-1] < rateHeight || ys[i] > chartHeight+1 {
					t.Errorf("%v done and %v failed a second: rates at %v", done, failed, ys)
				}
			}
			if len(pl.lines) == 0 {
				t.Errorf("%v done and %v failed a second: no rate but 0", done, failed)
			}
			top, bottom := format.PerSecond(done), format.PerSecond(failed)
			if done > 0 && c.Top() != top || done == 0 && c.Top() != "" || failed > 0 && c.Bottom() != bottom {
				t.Errorf("%v done and %v failed a second: at most %s and %s", done, failed, c.Top(), c.Bottom())
			}
		}
	}
}

// TestTheMaximumOfASparklineIsText checks that the maximum is escaped, because a small share is written with
// a sign that begins markup.
func TestTheMaximumOfASparklineIsText(t *testing.T) {
	got := string(Sparkline([]float64{0.00001}, 1, format.Percent))
	if !strings.Contains(got, ">&lt;"+format.NBSP+"0.01"+format.NBSP+"%</span>") {
		t.Errorf("the maximum is not escaped: %s", got)
	}
}

// TestAChartHasOneUnit checks that all rates of a chart are in seconds, however far they are apart, and that
// its legend has only the curves that are drawn.
func TestAChartHasOneUnit(t *testing.T) {
	for _, failed := range []float64{0, 0.0001, 0.02, 0.5, 40} {
		for _, done := range []float64{0, 0.0001, 0.02, 0.5, 40} {
			c := Chart{Points: make([]sampler.Point, 60), Step: time.Second, Part: 1}
			for i := range c.Points {
				c.Points[i] = sampler.Point{Done: done, Failed: failed, Seen: true}
			}
			if all := c.Top() + c.Bottom() + string(c.Rates()); strings.Contains(all, "/min") {
				t.Errorf("%v done and %v failed a second: not all of %s are in seconds", done, failed, all)
			}
			if (c.Top() != "") != (done > 0) || (c.Bottom() != "") != (failed > 0) {
				t.Errorf("%v done and %v failed a second: the legend has %q and %q", done, failed, c.Top(), c.Bottom())
			}
		}
	}
}
