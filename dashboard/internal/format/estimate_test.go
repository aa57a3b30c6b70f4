package format

import (
	"strings"
	"testing"
	"time"
)

// TestAnEstimateHasTwoDigits checks durations below ten seconds. Longer ones are written as all durations
// are.
func TestAnEstimateHasTwoDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 300 * time.Microsecond: "< 1 ms", time.Millisecond: "1.0 ms", 9949 * time.Microsecond: "9.9 ms",
		9951 * time.Microsecond: "10 ms", 12_400 * time.Microsecond: "12 ms", 99_600 * time.Microsecond: "100 ms",
		451 * time.Millisecond: "450 ms", 994 * time.Millisecond: "990 ms", 996 * time.Millisecond: "1.0 s",
		time.Second: "1.0 s", 1240 * time.Millisecond: "1.2 s", 1900 * time.Millisecond: "1.9 s",
		9949 * time.Millisecond: "9.9 s", 9960 * time.Millisecond: "10 s", 12_600 * time.Millisecond: "13 s",
		72 * time.Second: "1 m 12 s", time.Hour + 62*time.Second: "1 h 1 m",
	} {
		if got := strings.ReplaceAll(Estimate(d), NBSP, " "); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
