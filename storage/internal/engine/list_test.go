package engine

import (
	"math"
	"testing"

	"github.com/midgehq/midge/storage"
)

func TestMarkIsReadBack(t *testing.T) {
	for _, m := range []Mark{
		{Place{Sort: -9, Turn: 7}, 0, None, ""},
		{Place{Sort: 9, Turn: -7}, 3, None, ""},
		{Place{Sort: math.MaxInt64, Turn: math.MinInt64}, math.MaxInt64, Declined, "mail"},
		{Place{Sort: 1}, -1, Keyed, "a.b.3"},
	} {
		got, err := ParseMark(&storage.TasksQuery{After: m.String()})
		if err != nil || got != m {
			t.Errorf("mark %v: got %v, error %v", m, got, err)
		}
	}
	for _, text := range []string{"1", "1.", "1.2", "1.2.", "1.2.3.", "x.1.2", " 1.2.3", "01.2.3", "1.2.3 ", "1.2.3.4", "1.2.3.x.a"} {
		if m, err := ParseMark(&storage.TasksQuery{After: text}); err == nil {
			t.Errorf("mark %q: got %v, want an error", text, m)
		}
	}
}
