package midge

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/midgehq/midge/storage"
)

// domain is a runner's part for queues that can share an atomic step: all of them on
// most storages, those of one slot on a Redis Cluster. Each domain has actors of its
// own and no call of theirs names queues of two, so that a part of the storage that does
// not answer holds up no other.
type domain struct {
	r      *Runner
	member string // a queue of it
	sleep  sleeper
	claims *claimer
	settle *settler
	keep   *keeper
	ticks  *ticker

	stake stake // guarded by slots.mu

	hard context.Context //nolint:containedctx // of calls that outlive a drain; ends with the actors

	mu      sync.Mutex // guards what follows
	served  []string   // in order
	weights map[string]int
	ticking []string // queues not served whose schedules are declared here
}

func newDomain(r *Runner, member string) *domain {
	d := &domain{r: r, member: member}
	d.claims = &claimer{d: d}
	d.settle = &settler{d: d, kick: make(chan struct{}, 1)}
	d.keep = &keeper{d: d, kick: make(chan struct{}, 1), failed: make(chan struct{}, 1)}
	d.ticks = &ticker{d: d, kick: make(chan struct{}, 1)}
	return d
}

// crew is who works for a runner: the claim loops, which end when it drains, and the
// other actors, which see it out.
type crew struct{ claims, others sync.WaitGroup }

// begin starts the actors of the domain. The claim loop ends with draining, the others
// with hard; jobs run under jobs.
func (d *domain) begin(draining, hard, jobs context.Context, all *crew) {
	d.hard = hard
	all.others.Go(func() { d.settle.loop(hard) })
	all.others.Go(func() { d.keep.loop(hard) })
	all.others.Go(func() { d.ticks.loop(hard) })
	all.claims.Go(func() { d.claims.loop(draining, hard, jobs) })
}

// arrange deals the queues that are served, and those of declared schedules, out to
// their domains. In back is what is held ahead of queues that are served no more. The caller
// holds r.mu.
func (r *Runner) arrange() (back []*attempt) {
	served := make(map[*domain][]string, 1)
	for _, q := range r.queues {
		d := r.domainOf(q)
		served[d] = append(served[d], q)
	}
	ticking := make(map[*domain][]string)
	for _, s := range r.schedules.declared() {
		d, q := r.domainOf(s.Ref.Queue), s.Ref.Queue
		if !slices.Contains(r.queues, q) && !slices.Contains(ticking[d], q) {
			ticking[d] = append(ticking[d], q)
		}
	}
	order := slices.Clone(r.domains)
	rank := func(d *domain) int { // those that are not served come last, and take nothing
		if len(served[d]) == 0 {
			return len(r.queues)
		}
		return slices.Index(r.queues, served[d][0])
	}
	slices.SortStableFunc(order, func(a, b *domain) int { return rank(a) - rank(b) })
	shares := make([]int, len(order))
	for i, d := range order {
		d.serve(served[d], r.weights, ticking[d])
		for _, q := range served[d] {
			shares[i] += max(r.weights[q], 1)
		}
	}
	back = r.slots.arrange(order, shares, r.weights == nil, r.queues)
	for _, d := range r.domains { // now that all know
		d.sleep.change()
	}
	return back
}

// domainOf gives the domain of a queue, a new one where it shares a step with no other.
// The caller holds r.mu.
func (r *Runner) domainOf(queue string) *domain {
	for _, d := range r.domains {
		if d.member == queue || storage.Spans(r.store, d.member, queue) {
			return d
		}
	}
	d := newDomain(r, queue)
	r.domains = append(r.domains, d)
	return d
}

func (d *domain) serve(queues []string, weights map[string]int, ticking []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served, d.weights, d.ticking = queues, maps.Clone(weights), ticking
}

// queues lists the queues of the next claim, of tasks to start and some ahead: those
// served, in their order or shared by weight, then those whose schedules tick here.
func (d *domain) queues(start, ahead int) []storage.ClaimQueue {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]storage.ClaimQueue, 0, len(d.served)+len(d.ticking))
	if d.weights == nil {
		for _, n := range d.served {
			list = append(list, storage.ClaimQueue{Name: n})
		}
	} else {
		list = shares(d.served, d.weights, start+ahead, ahead/4, rand.IntN)
	}
	for _, n := range d.ticking {
		list = append(list, storage.ClaimQueue{Name: n, Max: -1})
	}
	return list
}

// shares deals most tasks out to the queues by weight, one draw each, and lists the
// queues in the order drawn. None is given less than least while there is something
// left: a few of many queues at a time cost the storage less, and the draws make up for
// it. A queue that drew none comes last and may still take what the others leave, so
// that no slot stays free while there is work.
func shares(
	names []string, weights map[string]int, most, least int, draw func(int) int,
) []storage.ClaimQueue {
	left := make(map[string]int, len(names))
	total := 0
	for _, n := range names {
		left[n] = max(weights[n], 1)
		total += left[n]
	}
	list := make([]storage.ClaimQueue, 0, len(names))
	for len(left) > 0 {
		pick, at := "", draw(total)
		for _, n := range names {
			if w := left[n]; w > 0 {
				if pick = n; at < w {
					break
				}
				at -= w
			}
		}
		w := left[pick]
		share := max((most*w+total-1)/total, least)
		list = append(list, storage.ClaimQueue{Name: pick, Max: max(share, 1)})
		most -= min(share, most)
		total -= w
		delete(left, pick)
	}
	if n := len(list); n > 0 {
		list[n-1].Max = 0 // whatever is left
	}
	return list
}
