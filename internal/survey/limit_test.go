package survey

import (
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestAQueueIsAtItsLimit checks when a limit admits no other start, and the words for that.
func TestAQueueIsAtItsLimit(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	two := storage.Limit{Concurrency: 2, Rate: storage.Rate{N: 100, Per: time.Minute}}
	for _, c := range []struct {
		pending int64
		limit   *storage.QueueLimit
		want    string
	}{
		{5, nil, ""},
		{5, &storage.QueueLimit{}, ""},
		{1, &storage.QueueLimit{Operator: &two}, ""},
		{2, &storage.QueueLimit{Operator: &two}, "2 of 2 run"},
		{3, &storage.QueueLimit{Declared: &storage.DeclaredLimit{Limit: two}}, "3 of 2 run"},
		{3, &storage.QueueLimit{Operator: new(storage.Limit), Declared: &storage.DeclaredLimit{Limit: two}}, ""},
		{0, &storage.QueueLimit{Operator: &two, Next: now.Add(12 * time.Second)}, "next start in 12s"},
		{2, &storage.QueueLimit{Operator: &two, Next: now.Add(-time.Second)}, "2 of 2 run, next start in 0s"},
	} {
		s := storage.Stats{Pending: c.pending, Limit: c.limit}
		if got := (Words{}).AtLimit(&s, now); got != c.want || AtLimit(&s) != (c.want != "") {
			t.Errorf("%d run, limit %v: got %q and %v, want %q", c.pending, c.limit.InForce(), got, AtLimit(&s), c.want)
		}
	}
	for want, l := range map[string]storage.Limit{
		"none": {}, "2 at once, 100 in 1m0s": two, "2 at once": {Concurrency: 2}, "100 in 1m0s": {Rate: two.Rate},
		"2 at once in a partition": {Partition: storage.PartitionLimit{Concurrency: 2}},
		"2 at once, 100 in 1m0s, 3 at once in a partition, 9 in 1s in a partition": {
			Concurrency: 2, Rate: two.Rate,
			Partition: storage.PartitionLimit{Concurrency: 3, Rate: storage.Rate{N: 9, Per: time.Second}},
		},
	} {
		if got := (Words{}).Limit(l); got != want || got != l.String() {
			t.Errorf("%v: got %q, want %q", l, got, want)
		}
	}
}

// TestLimitsThatDifferOrThatNobodyDeclaresAreFindings checks the findings on the limits of a queue.
func TestLimitsThatDifferOrThatNobodyDeclaresAreFindings(t *testing.T) {
	runner := func(id string, limits ...storage.RunnerLimit) storage.RunnerInfo {
		return storage.RunnerInfo{ID: id, Host: "h-" + id, PID: 7, Limits: limits}
	}
	of := func(n int) storage.RunnerLimit {
		return storage.RunnerLimit{Queue: "api", Limit: storage.Limit{Concurrency: n}}
	}
	each := func(n int) storage.RunnerLimit {
		l := of(50)
		l.Limit.Partition.Concurrency = n
		return l
	}
	const partitions = "problem limit-clash: Runners declare different limits of the queue api. " +
		"a on h-a, process 7, declares 50 at once, 3 at once in a partition. b on h-b, process 7, declares 50 at once. " +
		"In force is 50 at once, 3 at once in a partition. During a deploy this ends by itself."
	const undeclared = "notice undeclared-limit: The limit of the queue api is declared by no live runner. " +
		"It holds all the same: 50 at once."
	const clash = "problem limit-clash: Runners declare different limits of the queue api. " +
		"a on h-a, process 7, declares 50 at once. c on h-c, process 7, declares 20 at once. " +
		"In force is 50 at once. During a deploy this ends by itself."
	for _, c := range []struct {
		what    string
		runners []storage.RunnerInfo
		want    []string
		limit   storage.Limit
	}{
		{"no runner is alive", nil, nil, of(50).Limit},
		{"nobody declares it", []storage.RunnerInfo{runner("a"), runner("b")}, []string{undeclared}, of(50).Limit},
		{"all declare it", []storage.RunnerInfo{runner("a", of(50)), runner("b", of(50))}, nil, of(50).Limit},
		{"two differ", []storage.RunnerInfo{runner("a", of(50)), runner("b", of(50)), runner("c", of(20))}, []string{clash}, of(50).Limit},
		{"partitions differ", []storage.RunnerInfo{runner("a", each(3)), runner("b", of(50))}, []string{partitions}, each(3).Limit},
	} {
		queue := Queue{Stats: storage.Stats{Queue: "api"}}
		queue.Limit = &storage.QueueLimit{Declared: &storage.DeclaredLimit{Limit: c.limit}}
		found, _ := (&Survey{Queues: []Queue{queue}, Runners: c.runners, Dead: &Causes{}}).Findings(Bounds{}, Words{})
		var got []string
		for _, f := range found {
			got = append(got, string(f.Level)+" "+f.Code+": "+f.Text+". "+f.Detail)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}

// TestAnOldTaskBehindALimitHasItsReason checks that the finding on the oldest task names the limit.
func TestAnOldTaskBehindALimitHasItsReason(t *testing.T) {
	queue := Queue{Stats: storage.Stats{Queue: "api", Waiting: 3, Pending: 1, Oldest: time.Hour}, Runners: 1}
	queue.Limit = &storage.QueueLimit{Operator: &storage.Limit{Concurrency: 1}}
	s := &Survey{Queues: []Queue{queue}, Runners: make([]storage.RunnerInfo, 1), Dead: &Causes{}}
	found, _ := s.Findings(Bounds{}, Words{})
	if len(found) != 1 || found[0].Detail != "3 tasks wait in it. Its limit keeps them waiting: 1 of 1 run." {
		t.Errorf("got %+v, want the finding on the oldest task with the limit", found)
	}
	queue.Limit.Operator = &storage.Limit{Concurrency: 9, Partition: storage.PartitionLimit{Concurrency: 1}}
	for partitioned, want := range map[int64]Finding{
		0: {Detail: "3 tasks wait in it.", Next: "midge queue show api"},
		3: {Detail: "3 tasks wait in it. Its limit may keep partitions waiting: 1 at once in a partition.", Next: "midge queue partitions api"},
	} {
		queue.Partitioned = partitioned
		s.Queues = []Queue{queue}
		found, _ := s.Findings(Bounds{}, Words{})
		if len(found) != 1 || found[0].Detail != want.Detail || found[0].Next != want.Next {
			t.Errorf("%d in partitions: got %+v, want %+v", partitioned, found, want)
		}
	}
}

// TestTheLimitChangesTheMark checks that pages are drawn again as soon as a limit or its starts change.
func TestTheLimitChangesTheMark(t *testing.T) {
	one := storage.Limit{Concurrency: 1}
	marks := make(map[uint64]bool)
	all := []*storage.QueueLimit{
		nil,
		{Operator: &one},
		{Operator: new(storage.Limit)},
		{Declared: &storage.DeclaredLimit{Limit: one}},
		{Operator: &storage.Limit{Concurrency: 1, Partition: storage.PartitionLimit{Concurrency: 1}}},
		{Declared: &storage.DeclaredLimit{Limit: storage.Limit{Partition: storage.PartitionLimit{Concurrency: 1}}}},
		{Operator: &one, Started: 1},
		{Operator: &one, Started: 1, Next: time.Unix(1, 0)},
	}
	for _, l := range all {
		q := Queue{Stats: storage.Stats{Limit: l}}
		marks[q.mark()] = true
	}
	if len(marks) != len(all) {
		t.Errorf("got %d marks of %d limits", len(marks), len(all))
	}
}
