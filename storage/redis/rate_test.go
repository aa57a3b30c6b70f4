package redis_test

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestARateOnRedis: the script reads and writes the starts on a real server as the engine does, and no span
// has more of them.
func TestARateOnRedis(t *testing.T) {
	const tasks, n, per = 20, 4, 200 * time.Millisecond
	_, store, session := started(t)
	fill(t, session, tasks, nil)
	l := storage.Limit{Concurrency: tasks - 1, Rate: storage.Rate{N: n, Per: per}}
	err := session.Configure(t.Context(), "main", storage.Settings{Declared: &storage.DeclaredLimit{Limit: l}})
	if err != nil {
		t.Fatal(err)
	}
	var starts []time.Time
	for end := time.Now().Add(time.Minute); len(starts) < tasks-1 && time.Now().Before(end); {
		c, err := session.Claim(t.Context(), claimOf(tasks))
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Tasks {
			starts = append(starts, c.Tasks[i].Claimed)
		}
		if len(c.Bounded) != 1 || c.More || c.NextDue.IsZero() != (len(starts) == tasks-1) {
			t.Fatalf("after %d: bounded %v, more %v, next at %v", len(starts), c.Bounded, c.More, c.NextDue)
		}
	}
	if len(starts) != tasks-1 {
		t.Fatalf("%d tasks started, want %d", len(starts), tasks-1)
	}
	for i := n; i < len(starts); i++ {
		if span := starts[i].Sub(starts[i-n]); span < per {
			t.Errorf("%d starts in %v, want %d in %v", n+1, span, n, per)
		}
	}
	stats, err := store.Stats(t.Context(), "main")
	if err != nil || stats[0].Damaged != 0 {
		t.Fatalf("got %+v, %v; want no damage", stats, err)
	}
	d, err := store.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last := starts[len(starts)-1]; stats[0].Limit.Started == 0 && d.Now.Before(last.Add(per)) {
		t.Errorf("no start counts before %v, of which the last was at %v; want it counted for %v", d.Now, last, per)
	}
}
