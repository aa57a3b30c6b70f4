package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// run sets the living runners: so many of each version.
func (w *world) run(versions map[string]int) {
	w.runners = nil
	for version, n := range versions {
		for i := range n {
			w.runners = append(w.runners, storage.RunnerInfo{ID: fmt.Sprint(version, i), Version: version})
		}
	}
}

// deploysIn returns the deploys of a span as a text, with their times since noon.
func (w *world) deploysIn(from, to time.Time, step time.Duration) string {
	w.Helper()
	var all []string
	for _, d := range w.read(from, to, step).Deploys {
		all = append(all, fmt.Sprintf("%v %s %d", d.At.Sub(noon), d.Version, d.Runners))
	}
	return strings.Join(all, ", ")
}

func TestAVersionThatWasNotSeenBeforeIsADeploy(t *testing.T) {
	w := newWorld(t)
	w.queue("mail").Waiting = 1
	l := New(w)
	minutes := func(n int) {
		for range n {
			w.pass(time.Minute)
			w.write(l)
		}
	}
	w.run(map[string]int{"v1": 3, "": 2})
	minutes(10)
	w.want("what was there when the history began", w.deploysIn(noon, noon.Add(time.Hour), time.Minute), "")
	w.run(map[string]int{"v1": 2, "v2": 1})
	minutes(2)
	w.run(map[string]int{"v2": 3})
	l = New(w) // another process goes on
	minutes(60)
	w.run(nil) // all runners are stopped for two hours
	minutes(120)
	w.run(map[string]int{"v2": 3, "v3": 1})
	minutes(2)
	now := w.clock()
	all := "10m0s v2 3, 3h12m0s v3 1"
	w.want("all", w.deploysIn(noon, now, time.Minute), all)
	w.want("from hours", w.deploysIn(noon, now, time.Hour), all)
	w.want("since v2 is there", w.deploysIn(noon.Add(30*time.Minute), noon.Add(time.Hour), time.Minute), "")
	w.want("the last hour", w.deploysIn(noon.Add(3*time.Hour), now, time.Minute), "3h12m0s v3 1")
}

// TestAVersionThatComesBackIsNoDeploy has runners of one version run for five minutes of each hour, beside
// others. That is no deploy, also if another process writes the history. A version that was away for more
// than an hour is a deploy.
func TestAVersionThatComesBackIsNoDeploy(t *testing.T) {
	w := newWorld(t)
	w.queue("mail").Waiting = 1
	l := New(w)
	for hour := range 6 {
		w.run(map[string]int{"v1": 3, "nightly": 1})
		w.minutes(l, 5, func() {})
		now := w.clock()
		w.want("deploys of half an hour", w.deploysIn(now.Add(-30*time.Minute), now, time.Minute), "")
		if hour%2 == 0 {
			l = New(w)
		}
		w.run(map[string]int{"v1": 3})
		w.minutes(l, 55, func() {})
		if hour%3 == 0 {
			l = New(w)
		}
	}
	w.want("deploys", w.deploysIn(noon, w.clock(), time.Minute), "")
	w.minutes(l, 60, func() {})
	w.run(map[string]int{"v1": 3, "nightly": 1})
	w.minutes(l, 5, func() {})
	w.want("deploys then", w.deploysIn(w.clock().Add(-time.Hour), w.clock(), time.Minute), "7h0m0s nightly 1")
}

// TestThePageThatWasWrittenLaterTellsOfVersions checks that the page that was written last decides about a
// version, even if the clock was ahead when an earlier page was written.
func TestThePageThatWasWrittenLaterTellsOfVersions(t *testing.T) {
	at := func(minute int64, versions ...string) *page {
		p := newPage(minutePages, minute/pageMinutes, 1)
		for _, version := range versions {
			p.builds = append(p.builds, build{version, minute, 1})
		}
		return p
	}
	known := make(knownBuilds)
	known.learn(at(600, "v2"), 5)
	known.learn(at(0, "v1", "v2"), 6)
	known.learn(at(600, "v2"), 5) // the earlier page is read again
	if v1, v2 := known["v1"], known["v2"]; v1.version != 6 || v2.version != 6 || v2.first != 0 {
		t.Errorf("got %v, want v1 and v2 of the page that was written last", known)
	}
}

// TestManyVersionsAreBounded checks the bound of the versions in a page. A page with more versions must not
// be read.
func TestManyVersionsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.queue("mail").Waiting = 1
	l := New(w)
	w.pass(time.Minute)
	w.write(l)
	w.run(map[string]int{"first": 1})
	w.pass(time.Minute)
	w.write(l)
	w.want("the first of all, which replaces nothing", w.deploysIn(noon, w.clock(), time.Minute), "")
	many := make(map[string]int)
	for i := range 3 * maxBuilds {
		many[fmt.Sprintf("v%02d-%s", i, strings.Repeat("x", 100))] = 1
	}
	w.run(many)
	w.pass(time.Minute)
	w.write(l)
	w.want("versions", len(w.read(noon, w.clock(), time.Minute).Deploys), maxBuilds-1)
	p := newPage(minutePages, 7, 1)
	p.builds = make([]build, maxBuilds+1)
	if _, err := decode(p.encode()); err == nil {
		t.Error("a page with more versions than there may be is read")
	}
}
