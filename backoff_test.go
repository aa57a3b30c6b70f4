package midge

import (
	"math"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestGeometricDelays(t *testing.T) {
	none := Geometric{Jitter: -1}
	cases := []struct {
		name   string
		g      Geometric
		retry  int
		random float64
		want   time.Duration
	}{
		{"first", none, 1, 0, 2 * time.Second},
		{"second", none, 2, 0, 4 * time.Second},
		{"retry 0 is the first", none, 0, 0, 2 * time.Second},
		{"a negative retry is the first", none, -7, 0, 2 * time.Second},
		{"tenth", none, 10, 0, 1024 * time.Second},
		{"bounded", none, 100, 0, 6 * time.Hour},
		{"jitter down", Geometric{}, 1, 0, 1800 * time.Millisecond},
		{"jitter middle", Geometric{}, 1, 0.5, 2 * time.Second},
		{"bounded with jitter", Geometric{Max: 11 * time.Minute}, 100, 0.5, 10 * time.Minute},
		{"own", Geometric{First: time.Second, Factor: 3, Max: time.Minute, Jitter: -1}, 3, 0.9, 9 * time.Second},
		{"constant", Geometric{First: time.Second, Factor: 1, Jitter: -1}, 1000, 0, time.Second},
		{"max below first", Geometric{First: time.Hour, Max: time.Minute, Jitter: -1}, 1, 0, time.Minute},
	}
	for _, c := range cases {
		if got := c.g.delay(c.retry, c.random); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// An overflowing delay would make retries loop without a pause.
func TestGeometricStaysWithinBounds(t *testing.T) {
	factors := []float64{0, 1, 1.0001, 2, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), -3, 0.5}
	durations := []time.Duration{0, -1, 1, time.Millisecond, 2 * time.Second, storage.MaxDelay, math.MaxInt64, math.MinInt64}
	jitters := []float64{0, -1, 0.1, 1, 5, math.NaN(), math.Inf(1), math.Inf(-1)}
	retries := []int{math.MinInt, -1, 0, 1, 2, 13, 14, 62, 63, 64, 65, 1000, 1e6, math.MaxInt}
	for _, factor := range factors {
		for _, first := range durations {
			for _, longest := range durations {
				for _, jitter := range jitters {
					g := Geometric{First: first, Factor: factor, Max: longest, Jitter: jitter}
					for _, retry := range retries {
						checkBounds(t, g, retry)
					}
				}
			}
		}
	}
}

func TestDefaultBackoffStaysWithinBounds(t *testing.T) {
	for retry := range 1_000_000 {
		checkBounds(t, Geometric{}, retry)
	}
}

func checkBounds(t *testing.T, g Geometric, retry int) {
	limit := g.Max
	if limit <= 0 {
		limit = 6 * time.Hour
	}
	limit = min(limit, storage.MaxDelay)
	for _, random := range []float64{0, 0.5, 1 - 1e-16} {
		if d := g.delay(retry, random); d <= 0 || d > limit {
			t.Helper() // only here, because it takes longer than the check
			t.Fatalf("%+v retry %d: got %v, want more than 0 and at most %v", g, retry, d, limit)
		}
	}
}

func TestDelayVaries(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 100 {
		d := Geometric{}.Delay(1)
		if d < 1800*time.Millisecond || d > 2200*time.Millisecond {
			t.Fatalf("got %v, want 2s ± 10 %%", d)
		}
		seen[d] = true
	}
	if len(seen) < 90 {
		t.Errorf("got %d different delays of 100, want jitter", len(seen))
	}
}

func TestBackoffIsRecorded(t *testing.T) {
	g := Geometric{First: 1500 * time.Millisecond, Factor: 1.5, Max: time.Hour, Jitter: -1}
	b := recordedBackoff(map[string]string{backoffHeader: g.header()})
	if b == nil || b(3) != g.delay(3, 0) {
		t.Errorf("got %v, want the backoff that was recorded", b)
	}
	for _, text := range []string{"", "x", "1s 2", "1s 2 x 0", "x 2 1s 0", "1s y 1s 0"} {
		if b := recordedBackoff(map[string]string{backoffHeader: text}); b != nil {
			t.Errorf("%q: got a backoff, want none", text)
		}
	}
	if recordedBackoff(nil) != nil {
		t.Error("got a backoff of no headers, want none")
	}
}

func TestAFirstDelayAboveTheLongestIsRefused(t *testing.T) {
	for g, fine := range map[Geometric]bool{
		{First: time.Hour, Max: time.Minute}: false, {First: 7 * time.Hour}: false, {Max: time.Second}: true,
		{First: time.Hour, Max: time.Hour}: true, {}: true, {First: 7 * time.Hour, Max: 8 * time.Hour}: true,
	} {
		if err := g.check(); (err == nil) != fine {
			t.Errorf("%+v: got %v", g, err)
		}
	}
}
