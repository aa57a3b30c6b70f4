package runner

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/midgehq/midge/storage"
)

// shard is a runner's part for queues that can share an atomic step: all queues on most storages,
// the queues of one hash slot on a Redis Cluster. Each shard has its own actors, and no call of
// theirs names queues of two shards, so that a part of the storage that does not answer does not
// delay the others.
type shard struct {
	member   string // one of its queues
	wakeUp   wakeUp // for the claimer
	claimer  *claimer
	settler  *settler
	keeper   *keeper
	declarer *declarer
	ticker   *ticker

	grant grant // guarded by slots.mu

	belief  belief // used by the claimer
	contact contact

	hard context.Context // for calls that outlive a drain; ends with the actors

	mu      sync.Mutex // guards the fields below
	served  []string   // in order
	weights map[string]int
	ticking []string // queues that are only maintained, for example because their schedules are declared here
}

func newShard(w *workers, schedules *schedules, member string) *shard {
	s := &shard{member: member, belief: belief{told: w.made}} // until the storage reports its time
	of := func(loop string) *pulse { return w.shared.pulse(loop + " of queue " + member) }
	s.claimer = &claimer{shared: w.shared, shard: s, workers: w, pulse: of("claimer")}
	s.settler = &settler{shared: w.shared, shard: s, judge: w.judge, kick: make(chan struct{}, 1), pulse: of("settler")}
	s.keeper = &keeper{
		shared: w.shared, shard: s, kick: make(chan struct{}, 1), failed: make(chan struct{}, 1), pulse: of("keeper"),
	}
	s.declarer = &declarer{
		shared: w.shared, shard: s, schedules: schedules, looked: make(map[string]look), pulse: of("declarer"),
	}
	s.ticker = &ticker{
		shared: w.shared, schedules: schedules, kick: make(chan struct{}, 1), taken: make(chan struct{}, 1), pulse: of("ticker"),
	}
	return s
}

// start starts the actors of the shard. The claimer ends with draining, the others with hard.
func (s *shard) start(draining, hard context.Context, all *crew) {
	s.hard = hard
	all.others.Go(func() { s.settler.loop(hard) })
	all.others.Go(func() { s.keeper.loop(hard) })
	all.others.Go(func() { s.declarer.loop(hard) })
	all.ticks.Go(func() { s.ticker.loop(hard) })
	all.claims.Go(func() { s.claimer.loop(draining, hard) })
}

func (s *shard) serve(queues []string, weights map[string]int, ticking []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served, s.weights, s.ticking = queues, maps.Clone(weights), ticking
}

// queues returns the queues of the next claim, which asks for start tasks and some ahead: the
// served queues, in order or shared by weight, then the queues that are only maintained.
func (s *shard) queues(start, ahead int) []storage.ClaimQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]storage.ClaimQueue, 0, len(s.served)+len(s.ticking))
	if s.weights == nil {
		for _, n := range s.served {
			list = append(list, storage.ClaimQueue{Name: n})
		}
	} else {
		list = shares(s.served, s.weights, start+ahead, ahead/4, rand.ExpFloat64)
	}
	for _, n := range s.ticking {
		list = append(list, storage.ClaimQueue{Name: n, Max: storage.MaxNone})
	}
	return list
}

// shares distributes most tasks among the queues by weight, and returns the queues in the order of
// a weighted draw. No share is less than least while tasks are left, because a few large shares
// cost the storage less than many small ones, and later draws make up for it. A queue without a
// share comes last and may still take what the others leave, so that no slot stays free while there
// are tasks.
//
// The order is that of random numbers with an exponential distribution, divided by the weights, which
// is a weighted draw without replacement: Efraimidis and Spirakis, Weighted random sampling with a
// reservoir, 2006. draw returns the random numbers.
func shares(
	names []string, weights map[string]int, most, least int, draw func() float64,
) []storage.ClaimQueue {
	type drawn struct {
		name   string
		weight int
		at     float64
	}
	order := make([]drawn, len(names))
	total := 0
	for i, n := range names {
		w := max(weights[n], 1)
		order[i] = drawn{n, w, draw() / float64(w)}
		total += w
	}
	slices.SortStableFunc(order, func(a, b drawn) int { return cmp.Compare(a.at, b.at) })
	list := make([]storage.ClaimQueue, 0, len(names))
	for _, q := range order {
		share := max((most*q.weight+total-1)/total, least)
		list = append(list, storage.ClaimQueue{Name: q.name, Max: max(share, 1)})
		most -= min(share, most)
		total -= q.weight
	}
	if n := len(list); n > 0 {
		list[n-1].Max = 0 // all that is left
	}
	return list
}
