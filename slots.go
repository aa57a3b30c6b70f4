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
	mu       sync.Mutex // guards all below
	limit    int        // how many may run
	active   int        // how many workers run
	suspects int        // how many of those run a suspect
	outlived int        // how many of those were given up on
	draining bool
	over     bool            // nothing more is settled
	average  time.Duration   // of a job, smoothed; 0 before the first
	held     []*attempt      // each knows its place
	ahead    []*attempt      // claimed, not started, in the order of their claim
	parked   []chan *attempt // workers with nothing to do
	domains  []*domain       // who may claim; see credit.go
	strict   bool            // in their order
	empty    *sync.Cond      // signalled when held or active may have fallen to zero
}

func newSlots(limit int) *slots {
	s := &slots{limit: limit}
	s.empty = sync.NewCond(&s.mu)
	return s
}

// aheadMost bounds what is claimed ahead, however short the jobs are: a claim's worth to
// work on while the next is under way. aheadStale is how long it may wait before it is given back
// to others.
const (
	aheadMost  = 2 * storage.MaxClaim
	aheadStale = 100 * time.Millisecond
)

// aheadWanted is how many tasks make budget's worth of work for all slots, once the
// jobs are known to be shorter than that.
func (s *slots) aheadWanted(budget time.Duration) int {
	if s.average == 0 || budget == 0 {
		return 0
	}
	wanted := float64(s.limit) * float64(budget) / float64(s.average) // which no int holds
	return int(min(wanted, aheadMost))
}

// low reports whether what is held ahead has fallen under half of what is wanted.
func (s *slots) low(budget time.Duration) bool {
	return len(s.ahead) <= s.aheadWanted(budget)/2
}

// add takes in claimed attempts, in order, and lets those run that may, the ones that
// waited ahead first; the rest waits ahead. Without attempts it lets run what more room
// lets. It hands them to workers that are parked, and gives those for which a new worker
// is wanted; and in back a suspect that came when one was here already, to be released.
func (s *slots) add(attempts ...*attempt) (run, back []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdLocked(attempts)
	for _, a := range attempts {
		if a.suspect && s.suspectLocked() {
			back = append(back, a)
		} else {
			s.ahead = append(s.ahead, a)
		}
	}
	for s.active < s.limit && len(s.ahead) > 0 && !s.draining {
		a := s.pop()
		if n := len(s.parked) - 1; n >= 0 {
			s.parked[n] <- a // has room for one
			s.parked = s.parked[:n]
		} else {
			run = append(run, a)
		}
	}
	return run, back
}

// park keeps a worker for later, or reports that it is to end.
func (s *slots) park(handed chan *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.active+len(s.parked) >= s.limit {
		return false
	}
	s.parked = append(s.parked, handed)
	return true
}

// hold takes in claimed attempts that are to be given back.
func (s *slots) hold(attempts ...*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdLocked(attempts)
}

func (s *slots) holdLocked(attempts []*attempt) {
	for _, a := range attempts {
		a.place = len(s.held)
		s.held = append(s.held, a)
	}
}

// suspectLocked reports whether a suspect runs, or waits ahead.
func (s *slots) suspectLocked() bool {
	// One that was to start may wait ahead where the limit was lowered meanwhile.
	return s.suspects > 0 || slices.ContainsFunc(s.ahead, func(a *attempt) bool { return a.suspect })
}

// pop begins the oldest attempt that waits ahead. The mutex is held.
func (s *slots) pop() *attempt {
	a := s.ahead[0]
	s.ahead[0] = nil
	s.ahead = s.ahead[1:]
	s.begin(a)
	return a
}

// begin counts a as running. The mutex is held.
func (s *slots) begin(a *attempt) {
	s.active++
	if a.suspect {
		s.suspects++
	}
}

// next ends a worker's attempt that took so long, and gives the worker another one
// claimed ahead, or nil: then the worker ends. Where a claim should follow it wakes the
// domains that may have work.
func (s *slots) next(a *attempt, took, budget time.Duration) (next *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if a.suspect {
		s.suspects--
	}
	if s.average == 0 {
		s.average = max(took, 1)
	} else {
		s.average = max(s.average+(took-s.average)/16, 1)
	}
	if len(s.ahead) > 0 && s.active < s.limit && !s.draining {
		next = s.pop()
	}
	if s.active <= s.outlived {
		s.empty.Broadcast()
	}
	if next == nil || s.low(budget) {
		s.wake()
	}
	if next == nil || a.suspect {
		s.wakeWithheld()
	}
	return next
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
// its settle, so that this too is room.
func (s *slots) settled(attempts ...*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		if a.place < len(s.held) && s.held[a.place] == a {
			last := s.held[len(s.held)-1]
			last.place, s.held[a.place] = a.place, last
			s.held[len(s.held)-1] = nil
			s.held = s.held[:len(s.held)-1]
		}
	}
	if len(s.held) == 0 {
		s.empty.Broadcast()
	}
	s.wake()
}

// abandoned counts a worker whose job will not return in time.
func (s *slots) abandoned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outlived++
}

// all is a snapshot of what is held, of one domain or, with nil, of all.
func (s *slots) all(of *domain) []*attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*attempt, 0, len(s.held))
	for _, a := range s.held {
		if of == nil || a.domain == of {
			all = append(all, a)
		}
	}
	return all
}

// any reports whether something is held.
func (s *slots) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) > 0
}

// stale takes out everything held ahead where the oldest has waited too long: a
// job that turned out slow blocks it, and other runners may be free.
func (s *slots) stale() (out []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ahead) == 0 || time.Since(s.ahead[0].arrived) < aheadStale {
		return nil
	}
	out, s.ahead = s.ahead, nil
	s.average = max(s.average, aheadStale) // claims ahead begin anew, smaller
	return out
}

// untilStale is how soon something held ahead has waited too long, 0 for never.
func (s *slots) untilStale() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ahead) == 0 {
		return 0
	}
	return max(aheadStale-time.Since(s.ahead[0].arrived), 1)
}

// takeAhead takes out everything held ahead.
func (s *slots) takeAhead() []*attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.ahead
	s.ahead = nil
	return out
}

// running lists what runs, for the heartbeat; now is the storage's.
func (s *slots) running(now time.Time) []storage.Running {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []storage.Running
	for _, a := range s.held {
		if begun, ok := a.runningSince(); ok && len(list) < storage.MaxRunning {
			since := now.Add(-time.Since(begun))
			list = append(list, storage.Running{Ref: a.fence.Ref, Kind: a.task.Kind, Since: since})
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
	for _, worker := range s.parked {
		close(worker)
	}
	s.parked = nil
	return s.active
}

// waitEmpty waits until nothing is held and no job runs, but those given up on.
func (s *slots) waitEmpty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && (len(s.held) > 0 || s.active > s.outlived) {
		s.empty.Wait()
	}
}

// giveUp forgets everything, and what a claim under way may still bring: the leases
// will expire. It tells how many tasks that are.
func (s *slots) giveUp() (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = len(s.held)
	clear(s.held)
	s.held = nil
	s.over = true
	s.empty.Broadcast()
	return left
}
