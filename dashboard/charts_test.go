package dashboard

import (
	"strings"
	"testing"
	"time"
)

// TestAChartNeverHidesAGap: what is not known is hatched and no zero, an average over a gap keeps its height, and
// the minute that goes on is scaled by what of it has passed.
func TestAChartNeverHidesAGap(t *testing.T) {
	known := point{Done: 120, Seen: true}
	c := &chart{
		From: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Step: time.Minute, Part: 0.5,
		Points: []point{known, {}, {Done: 60, Seen: true, Gap: true}, {Done: 30, Seen: true}},
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
	if got := c.most(); got != 2 {
		t.Errorf("at most %v a second, want 2", got)
	}
	c.Points[1], c.Points[3] = known, point{}
	if c.Part = 0.1; c.Blank() {
		t.Error("the minute that has just begun counts as not known")
	}
}

func TestTheMarksOfATimeAxis(t *testing.T) {
	for span, want := range map[time.Duration]string{
		5 * time.Minute: "12:31 12:32 12:33 12:34", time.Hour: "12:45 13:00 13:15", 6 * time.Hour: "14:00 16:00 18:00",
		7 * 24 * time.Hour: "May\u00a05 May\u00a07 May\u00a09",
	} {
		c := &chart{From: time.Date(2026, 5, 4, 12, 30, 0, 0, time.UTC), Step: span / points, Points: make([]point, points)}
		var got []string
		for _, m := range c.marks() {
			got = append(got, m.text)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("over %v: %q, want %q", span, got, want)
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

// TestAChartShowsWhereNearlyAllFails: what failed has its height, however little was done.
func TestAChartShowsWhereNearlyAllFails(t *testing.T) {
	for _, failed := range []float64{10, 290, 300, 5000} {
		c := &chart{Step: time.Minute, Part: 1, Points: []point{{Seen: true}, {Failed: failed * 60, Seen: true}, {Seen: true}}}
		if pl := c.plane(); failed*pl.scale < chartHeight/2 || float64(pl.axis)+failed*pl.scale > chartHeight+1 {
			t.Errorf("%v failures a second are %.0f pixels high below an axis at %d", failed, failed*pl.scale, pl.axis)
		}
	}
}

// TestAChartOfSteadyWorkIsLevel: however far the storage's clock is from that of this process.
func TestAChartOfSteadyWorkIsLevel(t *testing.T) {
	const rate = 10
	began := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for _, skew := range []time.Duration{0, 2500 * time.Millisecond, -1700 * time.Millisecond, time.Hour + 3*time.Second} {
		s := &sampler{rings: rings{}}
		var before *sample
		for i := range 40 {
			now := &sample{at: began.Add(time.Duration(i) * time.Second), skew: skew, queues: make([]queueNow, 1)}
			now.queues[0].Queue, now.queues[0].Totals.Completed = "q", int64(rate*i)
			now.byName = map[string]*queueNow{"q": &now.queues[0]}
			s.rings.add(before, now)
			before = now
			v := &view{server: &server{sampler: s}, Sample: now, Now: now.at.Add(skew)}
			s.now = func() time.Time { return now.at }
			if most := v.chartOf("q", "5m").most(); most > 1.1*rate {
				t.Errorf("a clock %v ahead, after %d seconds: %v a second, want %d", skew, i, most, rate)
			}
		}
	}
}
