package runner

import (
	"maps"
	"slices"
	"sync"

	"github.com/midgehq/midge/storage"
)

// queues holds the queues that a runner serves, distributed among its shards.
type queues struct {
	*shared

	workers   *workers
	schedules *schedules

	mu      sync.Mutex // guards the fields below
	names   []string
	weights map[string]int // nil for strict order
	shards  []*shard       // of the queues above, the schedules and the declared limits; never shrinks
}

// set changes the queues, distributes them and the queues of the schedules among the shards, and
// returns the attempts ahead whose queue is no longer served.
func (q *queues) set(names []string, weights map[string]int) (back []*Attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names, q.weights = slices.Clone(names), maps.Clone(weights)
	served := make(map[*shard][]string, 1)
	for _, name := range q.names {
		s := q.shardOf(name)
		served[s] = append(served[s], name)
	}
	ticking := make(map[*shard][]string)
	for _, name := range q.schedules.queues() {
		if s := q.shardOf(name); !slices.Contains(q.names, name) {
			ticking[s] = append(ticking[s], name)
		}
	}
	for i := range q.declaredLimits { // a declarer stores each, of a queue that is not served too
		q.shardOf(q.declaredLimits[i].Queue)
	}
	order := slices.Clone(q.shards)
	able := len(q.jobs.Kinds()) > 0 // a runner without a job only maintains its queues
	rank := func(s *shard) int {    // shards without a served queue come last, and are granted nothing
		if len(served[s]) == 0 {
			return len(q.names)
		}
		return slices.Index(q.names, served[s][0])
	}
	slices.SortStableFunc(order, func(a, b *shard) int { return rank(a) - rank(b) })
	shares := make([]int, len(order))
	for i, s := range order {
		if !able {
			s.serve(nil, nil, append(served[s], ticking[s]...))
			continue
		}
		s.serve(served[s], q.weights, ticking[s])
		for _, name := range served[s] {
			shares[i] += max(q.weights[name], 1)
		}
	}
	back = q.slots.arrange(order, shares, q.weights == nil, q.names)
	for _, s := range q.shards { // only now that every shard has its queues
		s.wakeUp.queuesChanged()
	}
	return back
}

// shardOf returns the shard of a queue, a new shard if the queue shares an atomic step with no
// other. The mutex is held.
func (q *queues) shardOf(queue string) *shard {
	for _, s := range q.shards {
		if s.member == queue || storage.Spans(q.store, s.member, queue) {
			return s
		}
	}
	s := newShard(q.workers, q.schedules, queue)
	q.shards = append(q.shards, s)
	return s
}

// claiming returns the shard that claims and shares the part of the storage with a queue, nil if
// there is none.
func (q *queues) claiming(queue string) *shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.shards {
		if len(s.queues(0, 0)) > 0 && (s.member == queue || storage.Spans(q.store, s.member, queue)) {
			return s
		}
	}
	return nil
}

// from returns the shards except the first n.
func (q *queues) from(n int) []*shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shards[n:]
}

// list returns the names of the queues.
func (q *queues) list() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.names)
}

// serves reports whether this runner claims tasks of a queue.
func (q *queues) serves(queue string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Contains(q.names, queue)
}

// maintains reports whether this runner claims tasks of a queue, or declares schedules in it.
func (q *queues) maintains(queue string) bool {
	return q.serves(queue) || slices.Contains(q.schedules.queues(), queue)
}
