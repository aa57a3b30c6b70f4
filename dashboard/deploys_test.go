package dashboard_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/midgehq/midge/dashboard"
)

func TestDeploysAreTicksOfTheCharts(t *testing.T) {
	s := open(t, "night", dashboard.Config{})
	row := regexp.MustCompile(`<td class="text mono">v0\.9\.1</td></tr>`)
	for _, path := range []string{"/", "/metrics", "/metrics?span=24h", "/queues/mail"} {
		page := s.get(path)
		if got := strings.Count(page, `class="deploy"`); got != 1 {
			t.Errorf("GET %s: %d ticks, want one", path, got)
		}
		if got := row.FindAllString(page, -1); len(got) != 1 {
			t.Errorf("GET %s: %d rows of the table name the version, want one", path, len(got))
		}
	}
	if page := open(t, "calm", dashboard.Config{}).get("/"); strings.Contains(page, "deploy\"") || strings.Contains(page, "<th>deployed</th>") {
		t.Error("a day without a deploy shows one")
	}
}
