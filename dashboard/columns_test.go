package dashboard

import (
	"html"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/scene"
)

// head matches the head of a column that orders its list.
var head = regexp.MustCompile(`<th[^>]*?(?: aria-sort="(\w+)")?><a href="([^"]*)">`)

// heads returns the columns to whose order the heads of a list lead, with the order that each head shows now.
func heads(t *testing.T, path, page string) map[string]string {
	t.Helper()
	sorted := map[string]string{}
	for _, m := range head.FindAllStringSubmatch(page, -1) {
		u, err := url.Parse(html.UnescapeString(m[2]))
		named := strings.Contains(path, "name=a")
		if err != nil || !strings.HasPrefix(path, u.Path+"?") || named != (u.Query().Get("name") == "a") {
			t.Errorf("a head of %s leads to %q", path, m[2])
		}
		sorted[u.Query().Get("sort")] = m[1]
	}
	return sorted
}

// TestAColumnOrdersItsList checks that the link in the head of a column orders the list by it and keeps the
// filter of names, and that the head shows the order.
func TestAColumnOrdersItsList(t *testing.T) {
	sc, err := scene.Open(t.Context(), "night", 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Handler(sc.Store, asAdmin())
	if err != nil {
		t.Fatal(err)
	}
	for path, columns := range map[string][]string{
		"/queues?name=a&": (&queuesData{}).Orders()[1:],
		"/runners?":       slices.Collect(maps.Keys(runnerColumns)),
		"/schedules?":     slices.Collect(maps.Keys(scheduleColumns)),
	} {
		for _, order := range append(columns, "") {
			w := fetch(t.Context(), d, path+"sort="+order)
			sorted := heads(t, path, w.Body.String())
			want := map[string]string{}
			for _, column := range columns {
				want[column] = (&columnOrder{By: order}).Sorted(column)
			}
			if !maps.Equal(sorted, want) || order != "" && want[order] == "" {
				t.Errorf("%s by %q: the heads are sorted %v, want %v", path, order, sorted, want)
			}
			chosen := `<option value="` + order + `" selected>`
			if strings.HasPrefix(path, "/queues") && !strings.Contains(w.Body.String(), chosen) {
				t.Errorf("by %q: the choice of the order does not show it", order)
			}
		}
		if w := fetch(t.Context(), d, path+"sort=nothing"); w.Code != 400 {
			t.Errorf("%s by a column that it does not have: %d, want 400", path, w.Code)
		}
	}
}

// TestRowsAreInTheOrderOfTheirColumn checks the rows of runners and of schedules.
func TestRowsAreInTheOrderOfTheirColumn(t *testing.T) {
	sc, err := scene.Open(t.Context(), "night", 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Handler(sc.Store, asAdmin())
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`<tr [^>]*data-key="([^"]*)"`)
	keys := func(path string) (keys []string) {
		for _, m := range key.FindAllStringSubmatch(fetch(t.Context(), d, path).Body.String(), -1) {
			keys = append(keys, m[1])
		}
		return keys
	}
	byName := keys("/runners?sort=name")
	if byMemory := keys("/runners?sort=memory"); len(byName) != 3 || !slices.Equal(byMemory, []string{byName[2], byName[1], byName[0]}) {
		t.Errorf("the runners are %q by name and %q by memory, which grows with their numbers", byName, byMemory)
	}
	want := []string{"s.default.cursor.clean_up", "s.mail.cursor.daily_digest", "s.default.cursor.nightly_report", "s.exports.cursor.weekly_export"}
	if got := keys("/schedules?sort=name"); !slices.Equal(got, want) {
		t.Errorf("the schedules by name are %q, want %q", got, want)
	}
	if got := keys("/schedules?sort=queue"); len(got) != 4 || got[2] != want[3] || got[3] != want[1] {
		t.Errorf("the schedules by queue are %q, want those of default, exports and mail", got)
	}
}
