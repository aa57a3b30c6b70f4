package scene_test

import (
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// TestTheMillionHasAllStates checks that the scene has tasks in each state and a
// history of its queues.
func TestTheMillionHasAllStates(t *testing.T) {
	sc, err := scene.Open(t.Context(), "million", 20_000)
	if err != nil {
		t.Fatal(err)
	}
	var queues []string
	for name, err := range storage.EachQueue(t.Context(), sc.Store, "tenant") {
		if err != nil {
			t.Fatal(err)
		}
		queues = append(queues, name)
	}
	stats, err := sc.Store.Stats(t.Context(), queues...)
	if err != nil {
		t.Fatal(err)
	}
	sizes, all, paused, declined := map[storage.State]int64{}, int64(0), 0, 0
	for i := range stats {
		for _, state := range storage.States() {
			sizes[state] += stats[i].Size(state)
			if state != storage.Cursors {
				all += stats[i].Size(state)
			}
		}
		declined += len(stats[i].Declined)
		if stats[i].Paused {
			paused++
		}
	}
	if len(queues) != 100 || all < 20_000 || paused != 2 || declined == 0 {
		t.Errorf("%d queues, %d paused, %d with declined kinds, %d tasks", len(queues), paused, declined, all)
	}
	for _, state := range storage.States() {
		if sizes[state] < 100 {
			t.Errorf("%d tasks are %s, want a hundred or more", sizes[state], state)
		}
	}
	const days = 7
	if err := sc.History(t.Context(), days*24*time.Hour, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Truncate(time.Hour).Add(time.Hour)
	history, err := ledger.New(sc.Store).Series(t.Context(), end.Add(-days*24*time.Hour), end, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	known := len(slices.DeleteFunc(history.All, func(p ledger.Point) bool { return !p.Known || p.Done == 0 }))
	if len(history.Queues) != 100 || len(history.Kinds) != 2 || known < (days-1)*24 {
		t.Errorf("the history has %d queues, %d kinds and %d hours", len(history.Queues), len(history.Kinds), known)
	}
}
