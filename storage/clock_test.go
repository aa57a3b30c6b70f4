package storage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

func TestClockWarnings(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	const wait, ahead = "at once: from 2030-01-01", "shows 2030-01-01 12:00:00 UTC after it had shown"
	for what, c := range map[string]struct {
		mark, began time.Time
		want        []string
	}{
		"never written":              {},
		"right":                      {mark: now},
		"a little ahead":             {mark: now.Add(storage.JumpAfter)},
		"ahead once":                 {mark: now.Add(storage.JumpAfter + 1), want: []string{ahead}},
		"a wait begins":              {mark: now, began: now, want: []string{wait}},
		"a wait ends":                {mark: now, began: now.Add(1 - storage.JumpWait), want: []string{wait}},
		"a wait is over":             {mark: now, began: now.Add(-storage.JumpWait)},
		"the clock jumped back":      {mark: now, began: now.Add(1)},
		"the clock jumped back far":  {mark: now.Add(time.Hour), began: now.Add(time.Hour), want: []string{ahead}},
		"ahead once, and once again": {mark: now.Add(time.Hour), began: now, want: []string{wait, ahead}},
	} {
		got := storage.ClockWarnings(now, c.mark, c.began)
		if len(got) != len(c.want) {
			t.Errorf("%s: got %q, want %d warnings", what, got, len(c.want))
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%s: got %q, want %q in it", what, got[i], c.want[i])
			}
		}
	}
}
