package main

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestBoxesDecideWhatButtonsDo checks the buttons above a list of dead tasks: they are disabled until a task is
// selected, and a button that no dead task permits stays disabled.
func TestBoxesDecideWhatButtonsDo(t *testing.T) {
	t.Parallel()
	tb := newRig(t, "night").tab("/tasks?state=dead", "light")
	tb.live()
	const enabled = `[...document.querySelectorAll('[name=do]')].filter(e => !e.disabled).map(e => e.value).join()`
	is := func(want, after string) {
		t.Helper()
		if got := eval[string](tb, enabled); got != want {
			t.Errorf("%s, the buttons %q are enabled, want %q", after, got, want)
		}
	}
	is("", "while no task is selected")
	tb.click("tbody [name=ref]")
	is("requeue,delete", "with one task selected")
	tb.click("tbody [name=ref]")
	is("", "after that task")
	tb.click("[data-select-page]")
	is("requeue,delete", "with the page selected")
	if n := eval[int](tb, `document.querySelectorAll('[name=ref]:checked').length`); n != 50 {
		t.Errorf("%d tasks of the page are selected, want 50", n)
	}
	tb.click("[data-select-page]")
	tb.click("[name=all]")
	is("requeue,delete", "with all that match selected")
	tb.click("[name=all]")
	tb.keys("j")
	is("requeue,delete", "on a current row")
}

// TestLocalTimesAreRemembered switches the page to the time zone of the browser and back.
func TestLocalTimesAreRemembered(t *testing.T) {
	t.Parallel()
	tb := newRig(t, "night").tab("/dead", "light")
	err := chromedp.Do(tb.ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	tb.open("/dead", "light", 1440)
	tb.live()
	tb.shows("Times in UTC")
	died := eval[string](tb, `document.querySelector('.cause .small + .small').textContent`)
	tb.click("[data-local]")
	tb.at("/dead")
	tb.shows("Times in Asia/Tokyo")
	if eval[string](tb, `document.querySelector('.cause .small + .small').textContent`) == died {
		t.Errorf("the moments in Tokyo are those in UTC: %s", died)
	}
	tb.open("/", "light", 1440)
	tb.shows("Times in Asia/Tokyo")
	tb.shows("JST") // at the chart
	tb.click(".zone [name=zone]")
	tb.shows("Times in UTC")
}
