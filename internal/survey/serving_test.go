package survey

import (
	"slices"
	"testing"

	"github.com/midgehq/midge/storage"
)

func TestUnknownKindsAreThoseThatNoRunnerOfTheQueueKnows(t *testing.T) {
	by := ServingOf([]storage.RunnerInfo{
		{ID: "old", Queues: []string{"mail", "jobs"}, Kinds: []string{"send"}},
		{ID: "new", Queues: []string{"mail"}, Kinds: []string{"send", "fresh"}},
		{ID: "idle", Queues: []string{"jobless"}},
	})
	declined := []storage.KindSize{{Kind: "fresh", Tasks: 2}, {Kind: "gone", Tasks: 1}}
	for _, c := range []struct {
		queue   string
		runners int
		unknown []storage.KindSize
	}{
		{"mail", 2, declined[1:]}, {"jobs", 1, declined}, {"jobless", 1, declined}, {"idle", 0, nil},
	} {
		of := by[c.queue]
		if unknown := of.Unknown(declined); len(of) != c.runners || !slices.Equal(unknown, c.unknown) {
			t.Errorf("%s: got %d runners and the unknown kinds %v, want %d and %v", c.queue, len(of), unknown, c.runners, c.unknown)
		}
	}
}
