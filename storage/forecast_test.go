package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestForecast(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	sample := func(after time.Duration, waiting, completed int64, declined ...storage.KindSize) storage.Sample {
		return storage.Sample{At: at.Add(after), Stats: storage.Stats{
			Queue: "q", Waiting: waiting, Declined: declined, Oldest: time.Minute,
			Totals: storage.Totals{Enqueued: 5000, Completed: completed, Failed: completed / 10},
		}}
	}
	other := sample(0, 1, 1)
	other.Queue = "other"
	young := func(s storage.Sample, oldest time.Duration) storage.Sample {
		s.Oldest = oldest
		return s
	}
	for _, c := range []struct {
		name          string
		before, after storage.Sample
		known         bool
		gone          time.Duration
		attempts      float64
		says          string
	}{
		{"shrinks", sample(0, 1000, 0), sample(10*time.Second, 900, 100), true, 90 * time.Second, 11, "900 waiting, clears in about 1m30s"},
		{"grows", sample(0, 1000, 0), sample(10*time.Second, 1250, 100), true, -1, 11, "1250 waiting, growing by 25 a second"},
		{"stands", sample(0, 10, 0), sample(10*time.Second, 10, 0), true, -1, 0, "10 waiting, not draining"},
		{"is empty", sample(0, 10, 0), sample(10*time.Second, 0, 10), true, 0, 1.1, "nothing waits"},
		{"creeps", sample(0, 1e15, 0), sample(1000*time.Hour, 1e15-1, 0), true, 100 * 365 * 24 * time.Hour, 0, "clears in about 36500d"},
		{"declined tasks do not count", sample(0, 120, 0), sample(10*time.Second, 110, 0, storage.KindSize{Kind: "k", Tasks: 100}), true, 909 * time.Millisecond, 0, "10 waiting, clears in about 909ms; 100 tasks of kinds that no runner knows wait"},
		{"declined tasks alone", sample(0, 1, 0, storage.KindSize{Kind: "k", Tasks: 1}), sample(10*time.Second, 1, 0, storage.KindSize{Kind: "k", Tasks: 1}), true, 0, 0, "1 task of a kind that no runner knows waits"},
		{"flows while it grows", sample(0, 1, 0), young(sample(10*time.Second, 3, 100), 451*time.Millisecond), true, -1, 11, "3 waiting, none of them for 10s"},
		{"grows after ten seconds", sample(0, 1, 0), young(sample(10*time.Second, 3, 100), 10*time.Second), true, -1, 11, "3 waiting, growing by 0.2 a second"},
		{"is not empty of declined tasks alone", sample(0, 1, 0), young(sample(10*time.Second, 1, 0, storage.KindSize{Kind: "k", Tasks: 1}), 0), true, 0, 0, "1 task of a kind that no runner knows waits"},
		{"too near", sample(0, 10, 0), sample(time.Millisecond, 5, 5), false, 0, 0, "5 waiting"},
		{"backwards", sample(time.Minute, 10, 0), sample(0, 5, 5), false, 0, 0, "5 waiting"},
		{"another queue", other, sample(time.Minute, 5, 5), false, 0, 0, "5 waiting"},
		{"removed in between", sample(0, 10, 50), sample(time.Minute, 5, 5), false, 0, 0, "5 waiting"},
	} {
		o := storage.Forecast(c.before, c.after)
		if o.Known != c.known || o.Gone.Round(time.Millisecond) != c.gone.Round(time.Millisecond) || o.Attempts != c.attempts ||
			!strings.Contains(o.String(), c.says) {
			t.Errorf("%s: got %+v, %s", c.name, o, o)
		}
	}
	o := storage.Forecast(sample(0, 1000, 0), sample(10*time.Second, 900, 100))
	if got := o.ETA(110); got != 10*time.Second {
		t.Errorf("got %v until the 110th starts, want 10s", got)
	}
	if got := (storage.Outlook{}).ETA(5); got != 0 {
		t.Errorf("got %v of nothing known, want 0", got)
	}
}

// A rate is a number that people read, in whatever unit.
func TestAnOutlookTellsItsRateInReadableUnits(t *testing.T) {
	const hour, day = 1.0 / 3600, 1.0 / 86400
	for growth, want := range map[float64]string{
		1234567: "1234567 a second", 1250: "1250 a second", 125.4: "125 a second", 25: "25 a second", 12.34: "12.3 a second",
		9.996: "10 a second", 2: "2 a second", 0.2: "0.2 a second", 0.1: "0.1 a second", 0.09: "5.4 a minute",
		10 * hour: "0.17 a minute", 1 * hour: "1 an hour", 2.5 * day: "0.1 an hour", day: "1 a day", 0.1001 * day: "0.1 a day",
		8.5e-08: "less than 0.1 a day", 1e-300: "less than 0.1 a day",
	} {
		o := storage.Outlook{Backlog: 3, Known: true, Gone: -1, Growth: growth}
		if got := o.String(); got != "3 waiting, growing by "+want {
			t.Errorf("%v: got %q, want %q", growth, got, want)
		}
	}
}

func TestRunnerIDsTellHostAndProcess(t *testing.T) {
	for host, want := range map[string]string{
		"web-1.example.org": "web-1.example.org", "a:b_c": "a-b_c", "-x": "x", "hé llo": "h--llo",
		strings.Repeat("a", 60) + "-pod-7f9": strings.Repeat("a", 55) + "-pod-7f9",
	} {
		id := storage.NewRunnerID(host, 4711)
		got, pid := storage.RunnerHost(id)
		if err := storage.CheckName("runner", id); err != nil || got != want || pid != 4711 {
			t.Errorf("%q: got %q, %d of %s, %v; want %q", host, got, pid, id, err, want)
		}
	}
	if a, b := storage.NewRunnerID("h", 1), storage.NewRunnerID("h", 1); a == b {
		t.Errorf("two runners of one process are %s", a)
	}
	for _, id := range []string{storage.NewRunnerID("", 1), storage.NewRunnerID("::", 1), storage.NewID(), "a:b:c", "runner-1", "a:-1:c", ":1:c"} {
		if host, pid := storage.RunnerHost(id); host != "" || pid != 0 {
			t.Errorf("%s: got %q, %d, want neither", id, host, pid)
		}
	}
}

func TestEachCauseHasASentence(t *testing.T) {
	seen := make(map[string]storage.Cause)
	for _, c := range storage.Causes() {
		text := storage.Verdict{Ref: ref("a"), Cause: c, Position: 1, Of: 2, Slots: 3}.String()
		if before, twice := seen[text]; twice || text == "" {
			t.Errorf("%s and %s say %q", c, before, text)
		}
		seen[text] = c
	}
	far := storage.Verdict{Cause: storage.CauseInLine, PositionAtLeast: 1000, Of: 5000, ETA: 3*time.Hour + 20*time.Minute}
	if got := far.String(); got != "it is behind the first 1000 of 5000 in line, and it starts in about 3h20m" {
		t.Errorf("got %q", got)
	}
	if !slices.Contains(storage.Causes(), storage.CauseBusy) {
		t.Error("a cause is missing")
	}
}

// A backlog and when it is gone, from two samples.
func ExampleForecast() {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	before := storage.Sample{At: at, Stats: storage.Stats{Queue: "mail", Waiting: 12_000}}
	after := storage.Sample{At: at.Add(time.Minute), Stats: storage.Stats{
		Queue: "mail", Waiting: 9_000, Oldest: 5 * time.Minute, Totals: storage.Totals{Enqueued: 600, Completed: 3_600},
	}}
	fmt.Println(storage.Forecast(before, after))
	// Output:
	// 9000 waiting, clears in about 3m
}
