package runner

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

// Ended tells how an attempt ended, or a task that no attempt ended. The root package documents it.
type Ended struct {
	Task                *storage.Task // for the time of the call
	Outcome             Outcome
	Final               bool
	Err                 error
	RetryIn, Wait, Took time.Duration
	Runner              string
}

// ends tells of ends, each in one of a few goroutines, in no order. It drops none: those that wait
// are bounded by what the runner settles, and the drain waits for them.
type ends struct {
	hooks []func(ctx context.Context, e *Ended) error // their errors are panics
	log   *lifeLog
	ctx   context.Context // of the calls
	// inline has each end told by whoever adds it; see Runner.Step.
	inline bool

	left   atomic.Int64 // how many were added and are not told yet
	gaveUp atomic.Bool  // what is left is not told any more

	mu      sync.Mutex // guards what follows
	queue   []end
	closed  bool          // nothing is added any more
	first   int           // in queue, of those that no goroutine has taken
	tellers int           // goroutines that tell
	spare   []*teller     // memory of those that are over
	idle    chan struct{} // closed when there are none, if somebody waits for that; else nil
}

// end is an end that is yet to be told.
type end struct {
	made *Ended // of a task that no attempt of this runner ended; nil for an attempt

	settlement

	state   storage.State // where the settle left the task; "" where the lease was lost
	version int64
}

// tellersMost is how many calls of the hooks run at once, and batchMost how many ends a goroutine
// takes at once.
const (
	tellersMost = 8
	batchMost   = 32
)

// newEnds gives nil where nobody wants to hear of ends.
func newEnds(hooks []func(context.Context, *Ended) error, log *lifeLog) *ends {
	if len(hooks) == 0 {
		return nil
	}
	return &ends{hooks: hooks, log: log}
}

// open has the contexts of the hooks end with ctx. It comes before the first end.
func (e *ends) open(ctx context.Context) {
	if e != nil {
		e.ctx = ctx
	}
}

// add has ends told, unless those of jobs that outlived the runner.
func (e *ends) add(ended ...end) {
	if e.inline {
		for i := range ended {
			e.left.Add(1)
			e.say(&ended[i], new(Ended))
		}
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.left.Add(int64(len(ended)))
	e.queue = append(e.queue, ended...)
	for e.tellers < min(tellersMost, len(e.queue)-e.first) {
		e.tellers++
		go e.work(e.hire()) // ends when nothing is left to tell
	}
}

// teller is a goroutine that tells, a batch of ends at a time.
type teller struct {
	room  [batchMost]end
	batch []end // in room, what is yet to be told
	made  Ended
}

// work tells of ends until there are none.
func (e *ends) work(t *teller) {
	over := false
	defer func() {
		if !over { // runtime.Goexit: another goroutine takes the place of this one
			go e.work(t)
		}
	}()
	for {
		for len(t.batch) > 0 {
			one := &t.batch[0]
			t.batch = t.batch[1:]
			e.say(one, &t.made)
			*one = end{} // what it holds may be large
		}
		if !e.next(t) {
			over = true
			return
		}
	}
}

// say calls the hooks. What they are told of an attempt is made in the memory given.
func (e *ends) say(one *end, made *Ended) {
	defer e.left.Add(-1)
	switch {
	case e.gaveUp.Load():
		return
	case one.made != nil:
		made = one.made
	default:
		one.fill(made)
	}
	for _, hook := range e.hooks {
		if err := hook(e.ctx, made); err != nil {
			e.log.hookFailed("OnEnd", made.Task.Kind, made.Task.Ref, err)
		}
	}
	if one.made == nil {
		one.attempt.claimed.told()
	}
}

// next gives a teller the ends that have waited longest: its share of all that wait, so that slow hooks
// run beside each other. Where there are none it counts the teller as over.
func (e *ends) next(t *teller) bool {
	t.made = Ended{}
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := len(e.queue) - e.first
	if waiting == 0 {
		if e.queue, e.first = e.queue[:0], 0; cap(e.queue) > spareMost {
			e.queue = nil
		}
		e.spare = append(e.spare, t)
		if e.tellers--; e.tellers == 0 && e.idle != nil {
			close(e.idle)
			e.idle = nil
		}
		return false
	}
	taken := e.queue[e.first:][:min(max(waiting/tellersMost, 1), batchMost)]
	t.batch = append(t.room[:0], taken...)
	clear(taken)
	if e.first += len(taken); e.first >= spareMost && 2*e.first >= len(e.queue) { // a queue that is never empty stays as small
		n := copy(e.queue, e.queue[e.first:])
		clear(e.queue[n:])
		e.queue, e.first = e.queue[:n], 0
	}
	return true
}

// hire gives the memory of a teller. The mutex is held.
func (e *ends) hire() *teller {
	n := len(e.spare)
	if n == 0 {
		return new(teller)
	}
	t := e.spare[n-1]
	e.spare = e.spare[:n-1]
	return t
}

// wait waits until all is told, for so long at most, and gives how much is not told then. What
// waits for its turn is given up, and what comes from now on is not told.
func (e *ends) wait(most time.Duration) (left int) {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	e.closed = true
	if e.tellers == 0 {
		e.mu.Unlock()
		return 0
	}
	idle := make(chan struct{})
	e.idle = idle
	e.mu.Unlock()
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-idle:
		return 0
	case <-t.C:
	}
	e.gaveUp.Store(true)
	return int(e.left.Load())
}

// fill says what is told of an attempt. It makes the task in the memory of the claim.
func (d *end) fill(e *Ended) {
	a := d.attempt
	*e = Ended{
		Task: &a.claimed.tasks[a.index], Outcome: d.as, Final: d.state.Ended(), Err: d.err,
		Wait: a.waited(), Took: d.took, Runner: a.id,
	}
	if d.state == "" {
		return
	}
	settle, t := d.settle(), e.Task
	t.State, t.Version, t.Reason, t.Result = d.state, d.version, "", settle.Result
	t.Runner, t.LeaseUntil, t.Started, t.Snoozes = "", time.Time{}, false, 0
	if settle.Outcome == storage.Fail {
		t.Retries++
	}
	switch t.State {
	case storage.Dead:
		t.Reason = cmp.Or(settle.Reason, storage.ReasonRetries)
	case storage.Scheduled:
		t.Snoozes, t.Reason, e.RetryIn = a.Snoozes+1, settle.Reason, settle.Delay
	case storage.Retry:
		e.RetryIn = settle.Delay
	default:
	}
}

// claimedTasks are the tasks of a claim, kept until the ends of their attempts are told.
type claimedTasks struct {
	tasks []storage.Task
	left  atomic.Int64 // how many ends are yet to be told
}

// keep keeps the tasks of a claim, which is then no longer to be freed.
func keep(claimed *storage.Claimed) *claimedTasks {
	k := &claimedTasks{tasks: claimed.Tasks}
	k.left.Store(int64(len(k.tasks)))
	return k
}

// told gives the memory of the tasks back once all ends are told: an attempt has one end at most, and
// nobody looks at its task behind that. The tasks of ends that nobody is told of go with their attempts.
func (k *claimedTasks) told() {
	if k.left.Add(-1) == 0 {
		(&storage.Claimed{Tasks: k.tasks}).Free()
	}
}

// waited is how long the task of an attempt waited since it was due, 0 where that is not known.
func (a *Attempt) waited() time.Duration {
	due := a.Due()
	a.mu.Lock()
	ran, since := a.ran, a.startedAt
	a.mu.Unlock()
	if due.IsZero() || !ran {
		return 0
	}
	return max(a.told.Sub(due)+since-a.arrived.Sub(a.made), 0)
}

// settledEnds appends the end of an attempt whose settle the storage has acknowledged, to be told.
func (s *shared) settledEnds(all []end, sm *settlement, placed *storage.Placed) []end {
	if s.ends == nil || !placed.State.Ended() && !sm.attempt.hasRun() {
		return all // else the task was declined, or claimed ahead and given back
	}
	one := end{settlement: *sm, state: placed.State, version: placed.Version}
	one.as = sm.ending(placed.State)
	return append(all, one)
}

// tell has ends told.
func (s *shared) tell(all []end) {
	if len(all) > 0 {
		s.ends.add(all...)
	}
}

// ending is how the attempt ended whose settle left its task in a state.
func (sm *settlement) ending(state storage.State) Outcome {
	switch {
	case sm.outcome() == storage.Complete:
		return OutcomeSucceeded
	case state == storage.Cancelled: // the storage knew of it before the runner did
		return OutcomeCancelled
	}
	return sm.as
}

// tellLost tells of an attempt whose job has returned and whose lease was lost.
func (s *shared) tellLost(a *Attempt, err error, took time.Duration) {
	if s.ends == nil || !a.hasRun() {
		return
	}
	if err == nil {
		err = storage.ErrLeaseLost
	}
	s.ends.add(end{settlement: settlement{attempt: a, as: OutcomeLeaseLost, err: err, took: took}})
}

// tellEnded tells of the tasks that the storage has ended by itself.
func (s *shared) tellEnded(tasks []storage.Ended) {
	for i := range tasks {
		tasks[i].Kind = s.jobs.Name(tasks[i].Kind)
	}
	s.log.ended(tasks)
	if s.ends == nil {
		return
	}
	for i := range tasks {
		t := &tasks[i]
		s.ends.add(end{made: &Ended{
			Task:    &storage.Task{Ref: t.Ref, Kind: t.Kind, State: t.State, Reason: t.Reason},
			Outcome: outcomeOf(t), Final: true,
		}})
	}
}

// outcomeOf is how a task ended that the storage has ended by itself.
func outcomeOf(t *storage.Ended) Outcome {
	switch {
	case t.State == storage.Cancelled:
		return OutcomeCancelled
	case t.Reason == storage.ReasonKind:
		return OutcomeUnknownKind
	}
	return OutcomeCrashed
}

// tellCrash tells of the run of a task before this attempt, where its runner died with that or was
// cut off: what the task is now is read under the lease that this attempt has.
func (s *shared) tellCrash(a *Attempt) {
	if s.ends == nil || a.Crashes == 0 || a.Snoozes > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(a.shard.hard, s.lease/3)
	defer cancel()
	t, err := s.store.Task(ctx, a.Fence.Ref)
	if n := len(t.Attempts); err == nil && n > 0 && t.Attempts[n-1].Outcome == storage.AttemptCrashed {
		s.ends.add(end{made: &Ended{Task: &t, Outcome: OutcomeCrashed, Runner: t.Attempts[n-1].Runner}})
	}
}
