package survey

import (
	"slices"
	"testing"
	"time"

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

// TestTheNewestReasonOfAllRunnersIsShown merges the reports of three runners.
func TestTheNewestReasonOfAllRunnersIsShown(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 5, 17, 12, minute, 0, 0, time.UTC) }
	report := func(since, last int, tasks int64, reason string) storage.RunnerInfo {
		return storage.RunnerInfo{Queues: []string{"hooks"}, Undecodable: []storage.KindTrouble{
			{Queue: "hooks", Kind: "webhook", Since: at(since), Last: at(last), Tasks: tasks, Reason: reason},
			{Queue: "other", Kind: "webhook", Since: at(0), Last: at(59), Tasks: 99, Reason: "another queue"},
		}}
	}
	by := ServingOf([]storage.RunnerInfo{report(5, 6, 3, "old"), report(7, 9, 1, "new"), report(4, 8, 2, "late")})
	want := storage.KindTrouble{Queue: "hooks", Kind: "webhook", Since: at(4), Last: at(9), Tasks: 3, Reason: "new"}
	if got := by["hooks"].Undecodable("hooks"); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
