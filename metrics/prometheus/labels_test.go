package prometheus_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/metrics/prometheus"
	"github.com/midgehq/midge/storage"
)

// matcher is a matcher of a label in a file.
type matcher struct{ file, label, values string }

// matchers returns the matchers of labels in the alert rules, their tests and the board.
func matchers(t *testing.T) (all []matcher) {
	t.Helper()
	pattern := regexp.MustCompile(`\b(outcome|level|code|state|event)[=!]~?\\?"([^"\\]*)\\?"`)
	for _, file := range []string{"alerts.yml", "alerts_test.yml", "grafana.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
			all = append(all, matcher{file, m[1], m[2]})
		}
	}
	return all
}

// TestRulesAndBoardMatchValuesThatThereAre compares each value of a label in the alert rules, their tests and
// the board with the values that the code sets for the label.
func TestRulesAndBoardMatchValuesThatThereAre(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		a.enqueue(work{"first"})
		values := make(map[string]map[string]bool)
		add := func(label, value string) {
			if values[label] == nil {
				values[label] = make(map[string]bool)
			}
			values[label][value] = true
		}
		for _, o := range outcomes {
			add("outcome", string(o))
		}
		for _, sort := range survey.Sorts() {
			add("level", string(sort.Level))
			add("code", sort.Code)
		}
		for metric, label := range map[string]string{"midge_tasks": "state", "midge_queue_events_total": "event"} {
			for value := range a.gathered(metric, label, gauge) {
				add(label, value)
			}
		}
		matched := 0
		for _, m := range matchers(t) {
			for value := range strings.SplitSeq(m.values, "|") {
				if matched++; !values[m.label][value] {
					t.Errorf("%s: no metric has the %s %q", m.file, m.label, value)
				}
			}
		}
		if matched < 15 {
			t.Errorf("the files have %d values of labels, want 15 and more", matched)
		}
	})
}

// TestFindingsAreCounted counts the findings of a storage without a runner, and accepts one of them.
func TestFindingsAreCounted(t *testing.T) {
	bubble(t, storage.Limits{}, func(a *app) {
		a.enqueue(work{"first"}, midge.To("mail"))
		a.must(a.client.Queue("mail").Pause(a.Context()))
		a.shows("midge_findings", "code", map[string]float64{"no-runners": 1, "paused": 1, "full": 0, "undecodable": 0})
		a.shows("midge_findings", "level", map[string]float64{"problem": 1, "notice": 1})
		var err error
		a.metrics, err = prometheus.New(a.store, prometheus.Config{Accepted: []string{"paused:mail"}})
		a.must(err)
		a.shows("midge_findings", "code", map[string]float64{"no-runners": 1, "paused": 0})
	})
}
