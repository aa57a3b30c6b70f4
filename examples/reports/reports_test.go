package main

import (
	"bytes"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/examples/internal/store"
)

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, err := store.Open(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := run(t.Context(), opened, &out); err != nil {
			t.Fatal(err, "\n", out.String())
		}
		for _, want := range []string{
			`daily +cron 0 3 \* \* \* +Europe/Paris +never +03:00:00 *\n`,
			`daily +cron 0 3 \* \* \* +Europe/Paris +never +03:00:00 +orphaned`,
			`report daily of \d\d:\d\d:\d\d`,
			`report audit of`,
			`4 schedules removed`,
		} {
			if !regexp.MustCompile(want).Match(out.Bytes()) {
				t.Errorf("got no line like %s in\n%s", want, out.String())
			}
		}
		eachOnce(t, out.String(), "stock", time.Second)
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
}

// eachOnce checks that there is one report for each tick from the first to the last.
func eachOnce(t *testing.T, out, about string, every time.Duration) {
	t.Helper()
	var ticks []string
	for _, m := range regexp.MustCompile(`report `+about+` of (\S+)`).FindAllStringSubmatch(out, -1) {
		ticks = append(ticks, m[1])
	}
	if len(ticks) < 6 {
		t.Errorf("got %d ticks of %s, want 6 or more in\n%s", len(ticks), about, out)
		return
	}
	slices.Sort(ticks)
	at, err := time.Parse(time.TimeOnly, ticks[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range ticks {
		if want := at.Format(time.TimeOnly); got != want {
			t.Fatalf("got a report of %s for %s, want the one for %s in\n%s", about, got, want, out)
		}
		at = at.Add(every)
	}
}
