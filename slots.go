package midge

import (
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// slots is what a runner holds: the attempts under its leases, which of them run,
// and what was claimed ahead. All methods are short and do no I/O.
type slots struct {
	held held

	mu       sync.Mutex // guards all below
	limit    int        // how many may run
	active   int        // how many workers run
	outlived int        // how many of those were given up on
	suspects int        // how many suspects are held; those that are given back at once do not count
	draining bool
	over     bool            // nothing more is settled
	pace     time.Duration   // from the end of a job to the next one's, smoothed; 0 before the first
	ahead    []*attempt      // claimed, not started, in the order of their claim
	parked   []*worker       // with nothing to do
	coming   bool            // a worker was roused and has not yet asked for its first attempt
	domains  []*domain       // who may claim; see credit.go
	served   map[string]bool // their queues
	strict   bool            // in their order
	empty    *sync.Cond      // signalled when what is held, or active, may have fallen to zero
}

// worker is a goroutine that runs attempts, one after the other.
type worker struct {
	wake  chan struct{} // has room for one; closed when it is to end
	begun bool
}

func newSlots(limit int) *slots {
	s := &slots{limit: limit, held: held{some: make(chan struct{}, 1)}}
	s.empty = sync.NewCond(&s.mu)
	return s
}

// claimMost bounds what one call claims: a storage that takes twice as many at once is held
// twice as long, for next to nothing. aheadMost bounds what is claimed ahead, however short the
// jobs are: some claims' worth to work on while the next is under way. aheadStale is how long it
// may wait before it is given back to others.
const (
	claimMost  = storage.MaxClaim / 2
	aheadMost  = 4 * claimMost
	aheadStale = 100 * time.Millisecond
)

// aheadWanted is how many tasks are worked off in budget, as fast as jobs end now.
func (s *slots) aheadWanted(budget time.Duration) int {
	if s.pace == 0 {
		return 0
	}
	return int(min(budget/s.pace, aheadMost))
}

// low reports whether what is held ahead has fallen under half of what is wanted.
func (s *slots) low(budget time.Duration) bool {
	return len(s.ahead) <= s.aheadWanted(budget)/2
}

// add takes in claimed attempts, in order. They wait ahead until a worker comes for them,
// who is to be roused. In back, to be released, is a suspect that came when one was here already,
// and what a claim brought of queues that are served no more. Without attempts it sees to what
// more room lets run.
func (s *slots) add(attempts ...*attempt) (roused *worker, back []*attempt) {
	s.held.add(attempts)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		if a.suspect && s.suspects > 0 || !s.served[a.fence.Queue] {
			back = append(back, a)
			continue
		}
		if a.suspect {
			a.counted = true
			s.suspects++
		}
		s.ahead = append(s.ahead, a)
	}
	return s.rouse(), back
}

// ready is how many of those ahead have a slot and only wait for a worker. The mutex is held.
func (s *slots) ready() int {
	if s.draining {
		return 0
	}
	return min(len(s.ahead), max(s.limit-s.active, 0))
}

// rouse gives a worker to be roused where more may run. There is one at a time, and each
// has the next one roused before it runs its job: so a few of them run all that is short,
// and one that blocks keeps nobody from starting. The mutex is held.
func (s *slots) rouse() *worker {
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

// hold takes in claimed attempts that are to be given back.
func (s *slots) hold(attempts ...*attempt) { s.held.add(attempts) }

// pop begins the oldest attempt that waits ahead. The mutex is held.
func (s *slots) pop() *attempt {
	a := s.ahead[0]
	s.ahead[0] = nil
	s.ahead = s.ahead[1:]
	s.active++
	return a
}

// next gives a worker an attempt to run, or parks it, and says who is to be roused before
// that one runs. The worker was roused, or has done an attempt, which took so long. Where a
// claim should follow it wakes the domains that may have work.
func (s *slots) next(w *worker, done *attempt, took, budget time.Duration) (a *attempt, roused *worker) {
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
	if done != nil && (a == nil || s.low(budget)) {
		s.wake()
	}
	if done != nil && a == nil {
		s.wakeWithheld()
	}
	return a, s.rouse()
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

// wake wakes the domains that may have work. The mutex is held.
func (s *slots) wake() {
	for _, d := range s.domains {
		if d.stake.hungry {
			d.sleep.free()
		}
	}
}

// wakeWithheld wakes the domains whose last claim could not ask for all. The mutex is held.
func (s *slots) wakeWithheld() {
	for _, d := range s.domains {
		if d.stake.withheld {
			d.stake.withheld = false
			d.sleep.free()
		}
	}
}

// settled forgets attempts whose lease has ended. Room says no while too much waits for
// its settle, so that this too is room. A suspect counts until then: while the storage has not
// acknowledged its settle, the next one could end the process and both would be charged.
func (s *slots) settled(attempts ...*attempt) {
	left := s.held.remove(attempts)
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
	s.wake()
}

// returning marks attempts that are given back. Until the storage has them their domain claims
// nothing: what is behind them in its queues must not overtake them.
func (s *slots) returning(attempts ...*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		if !a.returns {
			a.returns = true
			a.domain.stake.returning++
		}
	}
}

// unreturned ends the wait for attempts that the storage refuses to take back for now.
func (s *slots) unreturned(attempts ...*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		s.returned(a)
	}
	s.wake()
}

// returned ends the wait for an attempt that was given back. The mutex is held.
func (s *slots) returned(a *attempt) {
	if a.returns {
		a.returns = false
		a.domain.stake.returning--
	}
}

// abandoned counts a worker whose job will not return in time.
func (s *slots) abandoned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outlived++
}

// all is a snapshot of what is held, of one domain or, with nil, of all.
func (s *slots) all(of *domain) []*attempt { return s.held.snapshot(of) }

// any reports whether something is held.
func (s *slots) any() bool { return s.held.count() > 0 }

// stale takes out everything of a domain that is held ahead and has no slot, where the oldest
// of it has waited too long: a job that turned out slow blocks it, and other runners may be free.
func (s *slots) stale(d *domain) (out []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.ready()
	oldest := s.oldestAhead(d, n)
	if oldest == nil || time.Since(oldest.arrived) < aheadStale {
		return nil
	}
	out = s.takeFrom(n, func(a *attempt) bool { return a.domain == d })
	s.pace = max(s.pace, aheadStale/time.Duration(s.limit)) // claims ahead begin anew, smaller
	return out
}

// takeFrom takes out those held ahead that are wanted, but the first n. The mutex is held.
func (s *slots) takeFrom(n int, wanted func(*attempt) bool) (out []*attempt) {
	rest := slices.DeleteFunc(s.ahead[n:], func(a *attempt) bool {
		takes := wanted(a)
		if takes {
			out = append(out, a)
		}
		return takes
	})
	s.ahead = s.ahead[:n+len(rest)]
	return out
}

// untilStale is how soon something of a domain that is held ahead has waited too long, 0 for
// never.
func (s *slots) untilStale(d *domain) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := s.oldestAhead(d, s.ready())
	if oldest == nil {
		return 0
	}
	return max(aheadStale-time.Since(oldest.arrived), 1)
}

// oldestAhead is the first attempt of a domain among those ahead, but the first n, or nil. The
// mutex is held.
func (s *slots) oldestAhead(d *domain, n int) *attempt {
	for _, a := range s.ahead[n:] {
		if a.domain == d {
			return a
		}
	}
	return nil
}

// takeAhead takes out everything held ahead, of one domain or, with nil, of all.
func (s *slots) takeAhead(d *domain) []*attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeFrom(0, func(a *attempt) bool { return d == nil || a.domain == d })
}

// running lists what runs, for the heartbeat; now is the storage's.
func (s *slots) running(now time.Time) []storage.Running {
	var list []storage.Running
	for _, a := range s.held.snapshot(nil) {
		if begun, ok := a.runningSince(); ok && len(list) < storage.MaxRunning {
			since := now.Add(begun - a.r.clock())
			list = append(list, storage.Running{Ref: a.fence.Ref, Kind: a.kind, Since: since})
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
	for _, d := range s.domains { // there may be room for more
		d.sleep.change()
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

// waitEmpty waits until nothing is held and no job runs, but those given up on.
func (s *slots) waitEmpty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && (s.held.count() > 0 || s.active > s.outlived) {
		s.empty.Wait()
	}
}

// giveUp forgets everything, and what a claim under way may still bring: the leases
// will expire. It tells how many tasks that are.
func (s *slots) giveUp() (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = s.held.forget()
	s.over = true
	s.empty.Broadcast()
	return left
}
