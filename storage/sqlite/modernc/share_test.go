package modernc_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// hold claims all tasks that the queue admits, for an hour. It returns their fences by id.
func (s *side) hold(t *testing.T) map[string]storage.Fence {
	t.Helper()
	fences := make(map[string]storage.Fence)
	for more := true; more; {
		c, err := s.session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "runner", Queues: []storage.ClaimQueue{{Name: queue}}, Start: 10, Lease: time.Hour, Suspect: true,
		})
		must(t, err)
		for i, fence := range c.Fences {
			fences[c.Tasks[i].ID] = fence
		}
		more = c.More
	}
	return fences
}

// wantHeld fails the test unless these tasks are all that the queue admits. It returns their fences by id.
func (s *side) wantHeld(t *testing.T, when string, want ...string) map[string]storage.Fence {
	t.Helper()
	fences, ids := s.hold(t), []string{}
	for id := range fences {
		ids = append(ids, id)
	}
	if slices.Sort(ids); !slices.Equal(ids, want) {
		t.Errorf("%s: claimed %q, want %q", when, ids, want)
	}
	return fences
}

// oneInEach bounds each partition to one pending task.
func (s *side) oneInEach(t *testing.T) {
	t.Helper()
	s.limit(t, storage.Limit{Partition: storage.PartitionLimit{Concurrency: 1}})
}

// TestADamagedSlotOfAPartitionIsMended damages the data of partitions while a task of each runs, and the data
// behind which others wait. Within a minute each partition counts its tasks again, and no row is left at the
// end.
func TestADamagedSlotOfAPartitionIsMended(t *testing.T) {
	const nine = "x'00000000000000000000000000000000000000000000000900'"
	for _, damage := range []string{
		"UPDATE midge_lines SET kept = x''", "UPDATE midge_lines SET kept = 'abc'", "UPDATE midge_lines SET kept = 7",
		"UPDATE midge_lines SET kept = zeroblob(23)", "UPDATE midge_lines SET kept = zeroblob(25)",
		"UPDATE midge_lines SET kept = " + nine, "DELETE FROM midge_lines",
		"UPDATE midge_lines SET sort = 0", "UPDATE midge_lines SET sort = 9223372036854775807",
		"UPDATE midge_lines SET tasks = 0", "UPDATE midge_lines SET tasks = 7",
	} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s, ahead := aheadOf(t, path)
			s.oneInEach(t)
			s.keyed(t, 2, "a", "b")
			s.keyed(t, 1, "c")
			first := s.wantHeld(t, "at first", "a0", "b0", "c0")
			execute(t, path, damage)
			*ahead = 61 * time.Second
			s.wantHeld(t, "beside the first")
			for _, fence := range first {
				must(t, s.complete(t.Context(), fence))
			}
			for _, fence := range s.wantHeld(t, "after the first", "a1", "b1") {
				must(t, s.complete(t.Context(), fence))
			}
			*ahead *= 2
			s.wantHeld(t, "at the end")
			wantLines(t, path, 0)
		})
	}
}

// TestADamagedTaskFreesItsSlot damages a task that runs. The next task of its partition starts.
func TestADamagedTaskFreesItsSlot(t *testing.T) {
	for _, damage := range []string{"record = 'garbage'", "priority = 'high'", "sort = 'abc'", "flags = 'abc'", "lease = 7"} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			s.oneInEach(t)
			s.keyed(t, 3, "a")
			s.wantHeld(t, "at first", "a0")
			execute(t, path, "UPDATE midge_tasks SET "+damage+" WHERE id = 'a0'")
			s.hold(t) // finds the damage, perhaps once it has read the waiting tasks
			s.hold(t)
			p, err := storage.PartitionOf(t.Context(), s.store, queue, "a")
			must(t, err)
			if p.Running != 1 || p.Waiting != 1 {
				t.Errorf("%d tasks of the partition run, and %d wait; want one each", p.Running, p.Waiting)
			}
		})
	}
}

// TestAPauseOutlivesADamagedPlace damages the place of a paused partition and of a partition that rests. Both
// stay as they are until the pause and the rest end.
func TestAPauseOutlivesADamagedPlace(t *testing.T) {
	for _, damage := range []string{
		"sort = 'abc'", "sort = 0", "sort = -1", "sort = 0.5", "turn = 'abc'", "turn = -1", "sort = 1, turn = 9223372036854775807",
		"sort = 9223372036854775807",
	} {
		t.Run(damage, func(t *testing.T) {
			path := file(t)
			s, ahead := aheadOf(t, path)
			s.keyed(t, 1, "a", "b", "c")
			s.pause(t, "a", 30*time.Second)
			s.throttle(t, s.wantHeld(t, "at first", "b0", "c0")["b0"], 30*time.Second)
			execute(t, path, "UPDATE midge_lines SET "+damage)
			s.wantHeld(t, "at once")
			*ahead = 31 * time.Second
			s.wantHeld(t, "at the end", "a0", "b0")
		})
	}
}

// throttle releases a task and lets others rest.
func (s *side) throttle(t *testing.T, fence storage.Fence, delay time.Duration) {
	t.Helper()
	_, err := s.session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{
		{Fence: fence, Outcome: storage.Release, Delay: delay},
	}})
	must(t, err)
}

// TestAnotherProcessSeesARest throttles a task of a partition and one without, and counts starts for a rate,
// through a storage that is closed then. Another one goes by them.
func TestAnotherProcessSeesARest(t *testing.T) {
	path := file(t)
	s, _ := aheadOf(t, path)
	s.limit(t, storage.Limit{Partition: storage.PartitionLimit{Rate: storage.Rate{N: 1, Per: time.Minute}}})
	s.keyed(t, 2, "a", "b")
	must(t, s.insert(t.Context(), "x"))
	fences := s.wantHeld(t, "at first", "a0", "b0", "x")
	s.throttle(t, fences["a0"], 2*time.Minute)
	s.throttle(t, fences["x"], 3*time.Minute)
	must(t, s.store.Close())
	var ahead time.Duration
	s = opened(t, sqlite.Config{
		Path: path, Driver: modernc.Driver, Now: func() time.Time { return time.Now().Add(ahead) },
	})
	p, err := storage.PartitionOf(t.Context(), s.store, queue, "a")
	must(t, err)
	if p.Waiting != 2 || p.Rests.IsZero() || storage.Started(p.Counts) != 1 || p.Next.IsZero() {
		t.Errorf("got %+v, want one start and a rest", p)
	}
	for _, step := range []struct {
		ahead time.Duration
		want  []string
	}{{0, nil}, {65 * time.Second, []string{"b1"}}, {125 * time.Second, []string{"a0"}}, {185 * time.Second, []string{"x"}}} {
		ahead = step.ahead
		s.wantHeld(t, step.ahead.String(), step.want...)
	}
}

// TestNoRowIsLeftOfStarts has many partitions each start a task under a rate. Their rows go once these starts
// count no more.
func TestNoRowIsLeftOfStarts(t *testing.T) {
	const n = 300
	path := file(t)
	s, ahead := aheadOf(t, path)
	s.limit(t, storage.Limit{Partition: storage.PartitionLimit{Rate: storage.Rate{N: 1, Per: time.Minute}}})
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	s.single(t, keys...)
	s.endAll(t, n)
	wantLines(t, path, n)
	*ahead = 65 * time.Second
	s.wantHeld(t, "at the end")
	wantLines(t, path, 0)
}
