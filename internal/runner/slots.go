package runner

import (
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// slots are the attempts in flight: which of them run, and which were claimed ahead. All
// methods are short and do no I/O.
type slots struct {
	inFlight inFlight
	budget   time.Duration // how long the attempts ahead may take

	mu       sync.Mutex // guards all below
	limit    int        // how many may run
	active   int        // how many workers run
	outlived int        // how many of the workers were given up on
	suspects int        // how many suspects are in flight, but for those that are given back at once
	draining bool
	over     bool            // nothing more is settled
	pace     time.Duration   // from the end of a job to the next one's, smoothed; 0 before the first
	ahead    []*Attempt      // claimed, not started, in the order of their claim
	parked   []*worker       // with nothing to do
	coming   bool            // a worker was woken and has not yet asked for its first attempt
	shards   []*shard        // who may claim; see granted.go
	served   map[string]bool // their queues
	strict   bool            // in their order
	empty    *sync.Cond      // signalled when no attempt may be in flight, or active, any more
}

func newSlots(limit int, budget time.Duration) *slots {
	s := &slots{limit: limit, budget: budget, inFlight: inFlight{some: make(chan struct{}, 1)}}
	s.empty = sync.NewCond(&s.mu)
	return s
}

// claimMost bounds what one call claims: a storage that hands out twice as many at once is busy
// twice as long, for next to nothing. aheadMost bounds what is claimed ahead, however short the
// jobs are: some claims' worth to work on while the next is under way. aheadStale is how long it
// may wait before it is given back to others.
const (
	claimMost  = storage.MaxClaim / 2
	aheadMost  = 4 * claimMost
	aheadStale = 100 * time.Millisecond
)

// aheadWanted is how many tasks are worked off in the budget, as fast as jobs end now.
func (s *slots) aheadWanted() int {
	if s.pace == 0 {
		return 0
	}
	return int(min(s.budget/s.pace, aheadMost))
}

// low reports whether no more than half of the wanted attempts are ahead.
func (s *slots) low() bool {
	return len(s.ahead) <= s.aheadWanted()/2
}

// add adds claimed attempts, in order. They wait ahead for a worker, and one is to be woken. In
// back, to be released, is a suspect that came when one was here already, and the attempts of
// queues that are served no more. Without attempts it finds a worker for free slots.
func (s *slots) add(attempts ...*Attempt) (woken *worker, back []*Attempt) {
	s.inFlight.add(attempts)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		if a.suspect && s.suspects > 0 || !s.served[a.Fence.Queue] {
			back = append(back, a)
			continue
		}
		if a.suspect {
			a.counted = true
			s.suspects++
		}
		s.ahead = append(s.ahead, a)
	}
	return s.nextWorker(), back
}

// ready is how many of those ahead have a slot and only wait for a worker. The mutex is held.
func (s *slots) ready() int {
	if s.draining {
		return 0
	}
	return min(len(s.ahead), max(s.limit-s.active, 0))
}

// nextWorker gives a worker to be woken where more attempts may run. There is one at a time, and
// each has the next one woken before it runs its job: so a few of them run all short jobs,
// and a job that blocks keeps no other from starting. The mutex is held.
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

// park keeps a worker for later, or tells it to end. The mutex is held.
func (s *slots) park(w *worker) {
	if s.draining || s.active+len(s.parked) >= s.limit {
		close(w.wake)
		return
	}
	s.parked = append(s.parked, w)
}

// pop activates the oldest attempt ahead. The mutex is held.
func (s *slots) pop() *Attempt {
	a := s.ahead[0]
	s.ahead[0] = nil
	s.ahead = s.ahead[1:]
	s.active++
	return a
}

// next gives a worker an attempt to run, or parks it, and the worker to be woken before
// that attempt runs. The worker was woken, or has done an attempt, which took so long. Where a
// claim should follow it wakes the shards that may have work.
func (s *slots) next(w *worker, done *Attempt, took time.Duration) (a *Attempt, woken *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done != nil {
		s.end(took)
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

// end counts a job as no longer running. Jobs that ran beside it share the time that it took.
// The mutex is held.
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

// wakeShards wakes the shards that may have work. The mutex is held.
func (s *slots) wakeShards() {
	for _, d := range s.shards {
		if d.grant.wanting {
			d.wakeUp.slotFree()
		}
	}
}

// wakeWithheld wakes the shards whose last claim could not ask for all. They keep that mark until
// the next claim: one that is about to wait looks at it, and must not miss this. The mutex is held.
func (s *slots) wakeWithheld() {
	for _, d := range s.shards {
		if d.grant.withheld {
			d.wakeUp.slotFree()
		}
	}
}

// settled forgets attempts whose lease has ended. Too many that wait for their settle keep a
// claim back, so that this frees slots too. A suspect counts until then: while the storage has not
// acknowledged its settle, the next one could end the process and both would be charged.
func (s *slots) settled(attempts ...*Attempt) {
	left := s.inFlight.remove(attempts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if left == 0 {
		s.empty.Broadcast()
	}
	for _, a := range attempts {
		s.returned(a)
		if a.counted {
			a.counted = false
			s.suspects--
			s.wakeWithheld()
		}
	}
	s.wakeShards()
}

// returning marks attempts that are given back. Until the storage has them their shard claims
// nothing: the tasks behind them in its queues must not overtake them.
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

// unreturned ends the wait for attempts that the storage refuses to take back for now.
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

// removeStale removes every attempt of a shard that is ahead and has no slot, where the oldest
// has waited too long: a job that turned out slow blocks them, and other runners may be free.
func (s *slots) removeStale(d *shard) (out []*Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.ready()
	oldest := s.oldestAhead(d, n)
	if oldest == nil || time.Since(oldest.arrived) < aheadStale {
		return nil
	}
	out = s.removeAhead(n, func(a *Attempt) bool { return a.shard == d })
	s.pace = max(s.pace, aheadStale/time.Duration(s.limit)) // claims ahead begin anew, smaller
	return out
}

// removeAhead removes the attempts ahead that match, but the first n, and gives them. The mutex
// is held.
func (s *slots) removeAhead(n int, match func(*Attempt) bool) (out []*Attempt) {
	rest := slices.DeleteFunc(s.ahead[n:], func(a *Attempt) bool {
		matches := match(a)
		if matches {
			out = append(out, a)
		}
		return matches
	})
	s.ahead = s.ahead[:n+len(rest)]
	return out
}

// untilStale is how soon an attempt of a shard that is ahead has waited too long, 0 for never.
func (s *slots) untilStale(d *shard) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := s.oldestAhead(d, s.ready())
	if oldest == nil {
		return 0
	}
	return max(aheadStale-time.Since(oldest.arrived), 1)
}

// oldestAhead is the first attempt of a shard among those ahead, but the first n, or nil. The
// mutex is held.
func (s *slots) oldestAhead(d *shard, n int) *Attempt {
	for _, a := range s.ahead[n:] {
		if a.shard == d {
			return a
		}
	}
	return nil
}

// removeAllAhead removes every attempt ahead, of one shard or, with nil, of all, and gives them.
func (s *slots) removeAllAhead(d *shard) []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeAhead(0, func(a *Attempt) bool { return d == nil || a.shard == d })
}

// running lists the running attempts for the heartbeat; now is the storage's time, and elapsed the
// runner's.
func (s *slots) running(now time.Time, elapsed time.Duration) []storage.Running {
	var list []storage.Running
	for _, a := range s.inFlight.snapshot(nil) {
		if started, ok := a.runningSince(); ok && len(list) < storage.MaxRunning {
			since := now.Add(started - elapsed)
			list = append(list, storage.Running{Ref: a.Fence.Ref, Kind: a.Kind, Since: since})
		}
	}
	return list
}

// busy is how many jobs run, those given up on included.
func (s *slots) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	for _, d := range s.shards { // slots may be free
		d.wakeUp.queuesChanged()
	}
}

func (s *slots) limitNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// drain lets nothing start any more, and tells how many jobs run.
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

// waitEmpty waits until no attempt is in flight and no job runs, but those given up on.
func (s *slots) waitEmpty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && (s.inFlight.count() > 0 || s.active > s.outlived) {
		s.empty.Wait()
	}
}

// giveUp forgets everything, and what a claim under way may still bring: the leases
// will expire. It tells how many tasks that are.
func (s *slots) giveUp() (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = s.inFlight.forget()
	s.over = true
	s.empty.Broadcast()
	return left
}
