package format

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestEachDurationIsWritten also checks the lowest and the highest duration. The lowest has no opposite.
func TestEachDurationIsWritten(t *testing.T) {
	for d, want := range map[time.Duration]string{
		math.MinInt64:                "-106,751 d 23 h",
		math.MinInt64 + 1:            "-106,751 d 23 h",
		-90 * time.Second:            "-1 m 30 s",
		0:                            "0 s",
		time.Microsecond:             "< 1 ms",
		12 * time.Millisecond:        "12 ms",
		4*time.Minute + time.Second:  "4 m 1 s",
		25 * time.Hour:               "1 d 1 h",
		math.MaxInt64:                "106,751 d 23 h",
		48*time.Hour + 5*time.Second: "2 d",
	} {
		if got := strings.ReplaceAll(Duration(d), NBSP, " "); got != want {
			t.Errorf("the duration %d: got %q, want %q", d, got, want)
		}
	}
	for _, d := range []time.Duration{math.MinInt64, math.MaxInt64} {
		if got := strings.ReplaceAll(Age(d), NBSP, " "); !strings.Contains(got, "106,751 d") {
			t.Errorf("the age %d: got %q, want 106,751 days", d, got)
		}
	}
}

// TestEachMomentIsSomewhereFromNow also checks moments that are further from now than a duration reaches.
func TestEachMomentIsSomewhereFromNow(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Time{}, Dash},
		{time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), "106,751 d ago"},
		{time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC), "106,751 d ago"},
		{now.Add(math.MinInt64), "106,751 d ago"},
		{now.Add(-time.Hour), "1 h ago"},
		{now, "now"},
		{now.Add(90 * time.Second), "in 1 m 30 s"},
		{now.Add(math.MaxInt64), "in 106,751 d 23 h"},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), "in 106,751 d 23 h"},
	} {
		if got := strings.ReplaceAll(Away(c.at, now), NBSP, " "); got != c.want {
			t.Errorf("%v: got %q, want %q", c.at, got, c.want)
		}
	}
}

// TestNoRateOfSomethingReadsAsNone checks rates from a few an hour to many a second.
func TestNoRateOfSomethingReadsAsNone(t *testing.T) {
	for rate, want := range map[float64]string{
		-1: Dash, 0: "0 /s", 1.0 / 3600: "< 1 /min", 0.5 / 60: "< 1 /min", 0.6 / 60: "1 /min", 5.0 / 60: "5 /min",
		0.2: "0.2 /s", 9.96: "10 /s", 120_000: "120 k /s",
	} {
		if got := strings.ReplaceAll(Rate(rate), NBSP, " "); got != want {
			t.Errorf("the rate %v: got %q, want %q", rate, got, want)
		}
	}
}
