package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// check finds problems of a page.
type check struct {
	scenes, themes []string // the scenes and themes in which it is made
	widths         []int64  // the widths at which it is made, of the widths of walked
	find           func(*tab) []string
}

// applies reports whether the check is made on the pages of a scene in a theme and at a width.
func (c check) applies(of, theme string, width int64) bool {
	return slices.Contains(c.scenes, of) && slices.Contains(c.themes, theme) && slices.Contains(c.widths, width)
}

// walked are the widths of a page that is walked, in pixels.
var walked = []int64{1440, 1280, 1024, 900, 768, 700, 360}

// checksWith returns the checks of each page. script is that of axe-core.
func checksWith(script string) []check {
	found := func(code string) func(*tab) []string {
		return func(tb *tab) []string { return eval[[]string](tb, code) }
	}
	judged := func(script, only string) func(*tab) []string {
		return func(tb *tab) []string { return tb.judge(script, only) }
	}
	wide, narrow, light, dark, night := walked[:1], walked[len(walked)-1:], themes[:1], themes[1:], []string{"night"}
	return []check{
		{scene.Names, light, wide, found(unwanted)},
		{scene.Names, themes, widths, found(problems)},
		// The font is that of the machine, which may be a wide font.
		{night, light, []int64{1440, 1280, 1024, 900, 700, 360}, found(overflows)},
		{[]string{"night", "empty"}, light, wide, judged(script, wcag)},
		// The same document again, because colours depend on the theme, and sizes on the width.
		{night, dark, wide, judged("", `['color-contrast', 'link-in-text-block']`)},
		{[]string{"night", "empty"}, light, narrow, judged("", `['target-size', 'scrollable-region-focusable']`)},
		{night, dark, wide, found(unseen)},
	}
}

// TestEachPage opens each page of each scene once, and makes all checks of the page while it is open.
func TestEachPage(t *testing.T) {
	t.Parallel()
	checks := checksWith(axe(t))
	for _, name := range scene.Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, name)
			if name == "night" {
				r.boundPartitions()
			}
			tb, reported := r.tab("/", "light"), map[string]bool{}
			for _, p := range pagesOf(t.Context(), name, r.Scene) {
				for _, problem := range tb.problemsOf(p, name, checks) {
					if !reported[problem] { // a problem that several pages have is reported once
						t.Errorf("%s %s", p.name, problem)
					}
					reported[problem] = true
				}
			}
		})
	}
}

// boundPartitions pauses a partition of the scene "night" and bounds each. One rests then, and one is at its limit,
// so that a page shows partitions of all kinds.
func (r *rig) boundPartitions() {
	r.t.Helper()
	ctx := r.t.Context()
	set := func(key string, p storage.Pause) {
		r.t.Helper()
		if err := r.Session.Configure(ctx, "payments", storage.Settings{Partition: key, Pause: &p}); err != nil {
			r.t.Fatal(err)
		}
	}
	set("", storage.Pause{})
	set("acme", storage.Pause{On: true, For: time.Hour})
	err := r.Session.SetLimit(ctx, "payments", storage.Limit{
		Partition: storage.PartitionLimit{Concurrency: 1, Rate: storage.Rate{N: 1000, Per: time.Hour}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	claimed, err := r.Session.Claim(ctx, storage.ClaimRequest{
		Runner: r.Runners[0].ID, Queues: []storage.ClaimQueue{{Name: "payments"}}, Start: 4, Lease: time.Hour,
	})
	i := slices.IndexFunc(claimed.Tasks, func(t storage.Task) bool { return t.Partition != "" })
	if err != nil || i < 0 {
		r.t.Fatalf("claimed %d tasks: %v", len(claimed.Tasks), err)
	}
	rest := storage.Settle{Fence: claimed.Fences[i], Outcome: storage.Release, Delay: time.Hour}
	if _, err := r.Session.ApplyOne(ctx, storage.Tx{Settles: []storage.Settle{rest}}); err != nil {
		r.t.Fatal(err)
	}
	set("", storage.Pause{On: true})
}

// problemsOf opens a page of a scene, and returns the problems that the checks find.
func (tb *tab) problemsOf(p named, of string, checks []check) (problems []string) {
	tb.t.Helper()
	tb.hush(p.name == "error") // the browser logs that there is no such page
	tb.open(p.path, themes[0], walked[0])
	tb.live()
	tb.hush(false)
	for _, width := range walked {
		for _, theme := range themes {
			now := slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return !c.applies(of, theme, width) })
			if len(now) == 0 {
				continue
			}
			tb.as(theme, width)
			for _, c := range now {
				for _, problem := range c.find(tb) {
					problems = append(problems, fmt.Sprintf("at %d, %s: %s", width, theme, problem))
				}
			}
		}
	}
	return problems
}

// as changes the theme and the width of the page that the tab shows.
func (tb *tab) as(theme string, width int64) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, as(theme, width)); err != nil {
		tb.t.Fatal(err)
	}
}
