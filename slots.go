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
	over     bool          // nothing more is settled
	average  time.Duration // of a job, smoothed; 0 before the first
	held     map[storage.Ref]*attempt
	ahead    []*attempt // claimed, not started, in the order of their claim
	empty    *sync.Cond // signalled when held or active may have fallen to zero
}

func newSlots(limit int) *slots {
	s := &slots{limit: limit, held: make(map[storage.Ref]*attempt)}
	s.empty = sync.NewCond(&s.mu)
	return s
}

// aheadMost bounds what is claimed ahead, however short the jobs are, and
// aheadStale is how long it may wait before it is given back to others.
const (
	aheadMost  = storage.MaxClaim
	aheadStale = 100 * time.Millisecond
)

// room says how many tasks to claim: start at once, and ahead as much as takes
// budget to run; and whether a suspect may be among them.
func (s *slots) room(budget time.Duration) (start, ahead int, suspect bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0, 0, false
	}
	start = max(s.limit-s.active-len(s.ahead), 0)
	ahead = s.aheadWanted(budget) - len(s.ahead)
	// Finished tasks whose settle is under way are held too: a storage that is slow
	// to settle is not asked for more.
	if spare := 2*s.limit + 2*aheadMost - len(s.held); start+max(ahead, 0) > spare {
		start, ahead = max(min(start, spare), 0), 0
	}
	// A suspect that was to start may wait ahead where the limit was lowered meanwhile.
	suspect = s.suspects == 0 && !slices.ContainsFunc(s.ahead, func(a *attempt) bool { return a.suspect })
	return min(start, storage.MaxClaim), max(min(ahead, storage.MaxClaim-start), 0), suspect
}

// aheadWanted is how many tasks make budget's worth of work for all slots, once the
// jobs are known to be shorter than that.
func (s *slots) aheadWanted(budget time.Duration) int {
	if s.average == 0 || budget == 0 {
		return 0
	}
	return int(min(time.Duration(s.limit)*budget/s.average, aheadMost))
}

// low reports whether what is held ahead has fallen under half of what is wanted.
func (s *slots) low(budget time.Duration) bool {
	return len(s.ahead) <= s.aheadWanted(budget)/2
}

// add takes in claimed attempts, in order, and gives those that are to run now, the
// ones that waited ahead first; the rest waits ahead. Without attempts it gives what
// more room lets run.
func (s *slots) add(attempts ...*attempt) (run []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdLocked(attempts)
	s.ahead = append(s.ahead, attempts...)
	for s.active < s.limit && len(s.ahead) > 0 && !s.draining {
		run = append(run, s.pop())
	}
	return run
}

// hold takes in claimed attempts that are to be given back.
func (s *slots) hold(attempts []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdLocked(attempts)
}

func (s *slots) holdLocked(attempts []*attempt) {
	for _, a := range attempts {
		s.held[a.task.Ref] = a
	}
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
// claimed ahead, or nil: then the worker ends. refill says that a claim should
// follow.
func (s *slots) next(a *attempt, took, budget time.Duration) (next *attempt, refill bool) {
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
	return next, next == nil || s.low(budget)
}

// settled forgets attempts whose lease has ended.
func (s *slots) settled(attempts ...*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attempts {
		if s.held[a.task.Ref] == a { // not a later claim of the same task
			delete(s.held, a.task.Ref)
		}
	}
	if len(s.held) == 0 {
		s.empty.Broadcast()
	}
}

// abandoned counts a worker whose job will not return in time.
func (s *slots) abandoned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outlived++
}

// all is a snapshot of what is held.
func (s *slots) all() []*attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*attempt, 0, len(s.held))
	for _, a := range s.held {
		all = append(all, a)
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
	if len(s.ahead) == 0 || time.Since(s.ahead[0].claimed) < aheadStale {
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
	return max(aheadStale-time.Since(s.ahead[0].claimed), 1)
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
			list = append(list, storage.Running{Ref: a.task.Ref, Kind: a.task.Kind, Since: since})
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
}

func (s *slots) limitNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// drain lets nothing start any more.
func (s *slots) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
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
// will expire.
func (s *slots) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.held)
	s.over = true
	s.empty.Broadcast()
}
