package runner

import (
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// slots holds the attempts in flight: which of them run, and which were claimed ahead. Its methods
// are short and do no I/O.
type slots struct {
	inFlight inFlight
	budget   time.Duration // how long the attempts ahead may take to run

	mu       sync.Mutex // guards the fields below
	limit    int        // how many workers may run a job
	active   int        // how many workers run a job
	outlived int        // how many of these workers were given up
	checking int        // how many of these workers check, after the job, whether its transaction was committed
	suspects int        // how many suspects are in flight, without those that are given back at once
	draining bool
	over     bool            // nothing more is settled
	pace     time.Duration   // smoothed time from the end of one job to the next; 0 before the first
	ahead    []*Attempt      // claimed and not started, in the order of their claims
	parked   []*worker       // idle workers
	coming   bool            // a worker was woken and has not yet asked for its first attempt
	shards   []*shard        // the shards that may claim; see grant.go
	served   map[string]bool // the queues of the shards
	strict   bool            // the shards claim in their order
	bounds   map[string]*bound
	rested   []*Attempt      // throttled since their shards sent the claims that are under way
	limited  map[string]bool // the queues whose limit, or that of their partitions, has kept tasks waiting
	empty    *sync.Cond      // signalled when perhaps no attempt is in flight, or active, any more
}

func newSlots(limit int, budget time.Duration) *slots {
	s := &slots{limit: limit, budget: budget, inFlight: inFlight{some: make(chan struct{}, 1)}}
	s.empty = sync.NewCond(&s.mu)
	return s
}

// claimMost bounds what one call claims: a storage that hands out twice as many tasks at once is
// busy twice as long, for almost no gain. aheadMost bounds what is claimed ahead, however short the
// jobs are: a few claims, to run while the next claim is under way. aheadStale is how long an
// attempt may wait ahead before it is given back to other runners.
const (
	claimMost  = storage.MaxClaim / 2
	aheadMost  = 4 * claimMost
	aheadStale = 100 * time.Millisecond
)

// aheadWanted returns how many tasks fit into the budget at the current pace.
func (s *slots) aheadWanted() int {
	if s.pace == 0 {
		return 0
	}
	return int(min(s.budget/s.pace, aheadMost))
}

// low reports whether at most half of the wanted attempts are ahead.
func (s *slots) low() bool {
	return len(s.ahead) <= s.aheadWanted()/2
}

// add adds claimed attempts, in order. They wait ahead for a worker; woken is one to be woken. back
// holds the attempts to be released: a suspect if another one is here already, and the attempts
// whose queue is no longer served or was closed by its gate, or whose partition was throttled after their
// claim was sent. Without attempts, add finds a worker for free slots.
func (s *slots) add(attempts ...*Attempt) (woken *worker, back []*Attempt) {
	s.inFlight.add(attempts)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		if a.suspect && s.suspects > 0 || !s.served[a.Fence.Queue] || slices.ContainsFunc(s.rested, a.isBeside) ||
			!s.admits(a) {
			back = append(back, a)
			continue
		}
		if a.suspect {
			a.counted = true
			s.suspects++
			for _, d := range s.shards { // other suspects may wait for its end
				d.grant.withheld = d.grant.weight > 0
			}
		}
		s.ahead = append(s.ahead, a)
	}
	return s.nextWorker(), back
}

// ready returns how many attempts ahead have a slot and only wait for a worker. The mutex is held.
func (s *slots) ready() int {
	if s.draining {
		return 0
	}
	return min(len(s.ahead), max(s.limit-s.active, 0))
}

// nextWorker returns a worker to be woken if more attempts may run. Only one is woken at a time,
// and each wakes the next one before it runs its job. So a few workers run all short jobs, and a
// job that blocks does not keep others from starting. The mutex is held.
func (s *slots) nextWorker() *worker {
	if s.coming || s.ready() == 0 {
		return nil
	}
	s.coming = true
	n := len(s.parked) - 1
	if n < 0 {
		return &worker{wake: make(chan struct{}, 1)}
	}
	w := s.parked[n]
	s.parked = s.parked[:n]
	return w
}

// park keeps a worker for later, or makes it end. The mutex is held.
func (s *slots) park(w *worker) {
	if s.draining || s.active+len(s.parked) >= s.limit {
		close(w.wake)
		return
	}
	s.parked = append(s.parked, w)
}

// pop starts the oldest attempt ahead. The mutex is held.
func (s *slots) pop() *Attempt {
	a := s.ahead[0]
	s.ahead[0] = nil
	s.ahead = s.ahead[1:]
	s.active++
	return a
}

// next returns an attempt for a worker to run, or parks the worker, and returns another worker that
// must be woken before that attempt runs. The worker has just been woken (done is nil), or has
// finished done, which took that long. If a claim should follow, next wakes the shards that may
// have work.
func (s *slots) next(w *worker, done *Attempt, took time.Duration) (a *Attempt, woken *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done != nil {
		s.end(took)
		s.leaves(done)
		if done.checks {
			s.checking--
		}
	} else {
		s.coming = false
	}
	if s.ready() > 0 {
		a = s.pop()
	} else {
		s.park(w)
	}
	if done != nil && (a == nil || s.low()) {
		s.wakeShards()
	}
	if done != nil && a == nil {
		s.wakeWithheld()
	}
	return a, s.nextWorker()
}

// end counts a job as no longer running. Concurrent jobs share the time that it took. The mutex is
// held.
func (s *slots) end(took time.Duration) {
	took /= time.Duration(s.active)
	if s.pace == 0 {
		s.pace = took
	}
	s.pace = max(s.pace+(took-s.pace)/16, 1)
	s.active--
	if s.active <= s.outlived {
		s.empty.Broadcast()
	}
}

// wakeShards wakes the shards that may have work, or wait for a slot. The mutex is held.
func (s *slots) wakeShards() {
	for _, d := range s.shards {
		if d.grant.wanting || d.grant.resting {
			d.wakeUp.slotFree()
		}
	}
}

// wakeWithheld wakes the shards whose last claim could not ask for all tasks. Their mark stays
// until their next claim, because a claimer that is about to wait reads it and must not miss this.
// The mutex is held.
func (s *slots) wakeWithheld() {
	for _, d := range s.shards {
		if d.grant.withheld {
			d.wakeUp.slotFree()
		}
	}
}

// settled removes attempts whose lease has ended. It wakes shards too, because attempts that wait
// for their settle limit the next claim. A suspect counts until it is settled: before that, the
// next suspect could kill the process, and both would be charged.
func (s *slots) settled(attempts ...*Attempt) {
	left := s.inFlight.remove(attempts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if left == 0 {
		s.empty.Broadcast()
	}
	for _, a := range attempts {
		s.returned(a)
		if s.limited[a.Fence.Queue] { // the limit of the queue may admit another task
			a.shard.wakeUp.queuesChanged()
		}
		if a.counted {
			a.counted = false
			s.suspects--
			s.wakeWithheld()
		}
	}
	s.wakeShards()
}

// returning marks attempts that are given back. Until the storage has them, their shard claims
// nothing, so that later tasks in their queues do not overtake them.
func (s *slots) returning(attempts ...*Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		if !a.returns {
			a.returns = true
			a.shard.grant.returning++
		}
	}
}

// unreturned ends the wait for attempts that the storage refuses to accept for now.
func (s *slots) unreturned(attempts ...*Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		s.returned(a)
	}
	s.wakeShards()
}

// returned ends the wait for an attempt that was given back. The mutex is held.
func (s *slots) returned(a *Attempt) {
	if a.returns {
		a.returns = false
		a.shard.grant.returning--
	}
}

// abandoned counts a worker whose job will not return in time.
func (s *slots) abandoned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outlived++
}

// removeStale removes and returns every attempt of a shard that is ahead and has no slot, if the
// oldest of them has waited too long: a slow job blocks them, and other runners may be free.
func (s *slots) removeStale(d *shard) (out []*Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.ready()
	oldest := s.oldestAhead(d, n)
	if oldest == nil || time.Since(oldest.arrived) < aheadStale {
		return nil
	}
	out = s.removeAhead(n, func(a *Attempt) bool { return a.shard == d })
	s.pace = max(s.pace, aheadStale/time.Duration(s.limit)) // later claims ahead start smaller
	return out
}

// removeAhead removes and returns the attempts ahead that match, without the first n. The mutex is
// held.
func (s *slots) removeAhead(n int, match func(*Attempt) bool) (out []*Attempt) {
	rest := slices.DeleteFunc(s.ahead[n:], func(a *Attempt) bool {
		matches := match(a)
		if matches {
			s.leaves(a)
			out = append(out, a)
		}
		return matches
	})
	s.ahead = s.ahead[:n+len(rest)]
	return out
}

// untilStale returns when removeStale will remove attempts of a shard, as a duration from now; 0
// for never.
func (s *slots) untilStale(d *shard) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := s.oldestAhead(d, s.ready())
	if oldest == nil {
		return 0
	}
	return max(aheadStale-time.Since(oldest.arrived), 1)
}

// oldestAhead returns the first attempt ahead of a shard, without looking at the first n, or nil.
// The mutex is held.
func (s *slots) oldestAhead(d *shard, n int) *Attempt {
	for _, a := range s.ahead[n:] {
		if a.shard == d {
			return a
		}
	}
	return nil
}

// removeAllAhead removes and returns every attempt ahead, of one shard or, with nil, of all.
func (s *slots) removeAllAhead(d *shard) []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeAhead(0, func(a *Attempt) bool { return d == nil || a.shard == d })
}

// throttle removes and returns the attempts ahead that share a's queue and partition. Those that a claim
// under way brings go back.
func (s *slots) throttle(a *Attempt) []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.shard.grant.asked.IsZero() {
		s.rested = append(s.rested, a)
	}
	return s.removeAhead(0, a.isBeside)
}

// isBeside reports whether two attempts share a queue and a partition.
func (a *Attempt) isBeside(b *Attempt) bool {
	return b.Fence.Queue == a.Fence.Queue && b.Partition == a.Partition
}

// running returns the running attempts for the heartbeat, and how many there are. now is the storage's
// time, and elapsed the runner's at the same moment. Attempts whose jobs ignore the end of their context come
// first, because the list is bounded.
func (s *slots) running(now time.Time, elapsed time.Duration) (list []storage.Running, n int) {
	var later []storage.Running
	for _, a := range s.inFlight.snapshot(nil) {
		started, over, ok := a.runningSince()
		if !ok {
			continue
		}
		n++
		of := storage.Running{Ref: a.Fence.Ref, Kind: a.Kind, Since: now.Add(started - elapsed)}
		switch {
		case over > 0:
			of.Unstopped = now.Add(over - elapsed)
			list = append(list, of)
		case len(later) < storage.MaxRunning:
			later = append(later, of)
		}
	}
	list = append(list, later...)
	return list[:min(len(list), storage.MaxRunning)], n
}

// busy returns how many jobs run, including those that were given up.
func (s *slots) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active - s.checking
}

// checks counts the worker of an attempt as checking, until it asks for its next attempt.
func (s *slots) checks(a *Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.checks {
		a.checks = true
		s.checking++
	}
}

func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.roomChanged()
}

func (s *slots) limitNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// drain lets no more attempts start, and returns how many jobs run.
func (s *slots) drain() (running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, w := range s.parked {
		close(w.wake)
	}
	s.parked = nil
	return s.active
}

// waitEmpty waits until no attempt is in flight and no job runs except those that were given up.
func (s *slots) waitEmpty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && (s.inFlight.count() > 0 || s.active > s.outlived) {
		s.empty.Wait()
	}
}

// giveUp removes all attempts and returns how many there were; their leases will expire. A claim
// under way may still bring tasks, whose leases expire too.
func (s *slots) giveUp() (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = s.inFlight.forget()
	s.over = true
	s.empty.Broadcast()
	return left
}
