package runner

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/contain"
	"github.com/midgehq/midge/storage"
)

// Ended is the end of an attempt, or of a task that ended without an attempt. The root package
// documents it.
type Ended struct {
	Task                *storage.Task // valid during the call
	Outcome             Outcome
	Final               bool
	Err                 error
	RetryIn, Wait, Took time.Duration
	Runner              string
}

// ends calls the hooks for each end, from a few goroutines, in no order. The drain waits for the queue.
// If waitMost ends wait, because hooks block or are too slow, ends drops the newest ends.
type ends struct {
	hooks []func(ctx context.Context, e *Ended) error // they return their panics as errors
	log   *lifeLog
	ctx   context.Context // for the calls
	// inline makes add call the hooks itself; see Runner.Step.
	inline bool

	left   atomic.Int64 // how many ends were added and are not reported yet
	gaveUp atomic.Bool  // the remaining ends are not reported any more

	mu      sync.Mutex // guards the fields below
	queue   []end
	dropped int           // ends that were dropped since the hooks last kept up
	taken   time.Time     // when a goroutine last took ends from the queue
	closed  bool          // nothing is added any more
	first   int           // index in queue of the first end that no goroutine has taken
	tellers int           // number of goroutines that call the hooks
	spare   []*teller     // memory of ended tellers
	idle    chan struct{} // closed when the last teller ends, if somebody waits for it; else nil
}

// end is an end that is yet to be reported.
type end struct {
	made *Ended // for a task that no attempt of this runner ended; nil for an attempt

	settlement

	state   storage.State // in which the settle left the task; "" if the lease was lost
	version int64
}

// tellersMost bounds how many calls of the hooks run at once. batchMost bounds how many ends a
// goroutine takes from the queue at once. waitMost bounds how many ends wait, at about a kilobyte each.
const (
	tellersMost = 8
	batchMost   = 32
	waitMost    = 10_000
)

// newEnds returns nil if there are no hooks.
func newEnds(hooks []func(context.Context, *Ended) error, log *lifeLog) *ends {
	if len(hooks) == 0 {
		return nil
	}
	return &ends{hooks: hooks, log: log}
}

// open sets the context of the hooks. It is called before the first end.
func (e *ends) open(ctx context.Context) {
	if e != nil {
		e.ctx = ctx
	}
}

// add queues ends to be reported. After wait it drops them: they belong to jobs that outlived the
// runner.
func (e *ends) add(ended ...end) {
	if e.inline {
		e.left.Add(int64(len(ended)))
		for i := range ended {
			e.say(&teller{batch: ended[i:]})
		}
		return
	}
	if waiting, tellers, since := e.enqueue(ended); waiting > 0 {
		e.log.endsDropped(waiting, tellers, since)
	}
}

// enqueue queues ends. If it drops the first end since the hooks last kept up, it returns how many ends
// wait, how many goroutines call hooks, and for how long none of them has taken an end.
func (e *ends) enqueue(ended []end) (waiting, tellers int, since time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, 0, 0
	}
	if room := max(waitMost-(len(e.queue)-e.first), 0); len(ended) > room {
		if e.dropped == 0 {
			waiting, tellers, since = waitMost, e.tellers, time.Since(e.taken)
		}
		e.dropped += len(ended) - room
		ended = ended[:room]
	}
	e.left.Add(int64(len(ended)))
	e.queue = append(e.queue, ended...)
	for e.tellers < min(tellersMost, len(e.queue)-e.first) {
		e.tellers++
		go e.work(e.hire()) // ends when the queue is empty
	}
	return waiting, tellers, since
}

// teller is a goroutine that reports ends, a batch at a time.
type teller struct {
	room  [batchMost]end
	batch []end // a part of room: the ends that are yet to be reported
	made  Ended // the report of the first of them, if that is an attempt
	told  int   // how many hooks were called with it
}

// report returns the report of the first end of the batch.
func (t *teller) report() *Ended {
	if made := t.batch[0].made; made != nil {
		return made
	}
	return &t.made
}

// work reports ends until the queue is empty.
func (e *ends) work(t *teller) {
	over := false
	defer func() {
		if !over { // runtime.Goexit in a hook: another goroutine goes on with the hooks after it
			e.failed(t.report(), contain.ErrGoexit)
			go e.work(t)
		}
	}()
	for {
		for len(t.batch) > 0 {
			e.say(t)
			t.batch[0] = end{} // it may hold large values
			t.batch, t.told = t.batch[1:], 0
		}
		if !e.next(t) {
			over = true
			return
		}
	}
}

// say calls the hooks, without the hooks that were called before, with the first end of a batch.
func (e *ends) say(t *teller) {
	one := &t.batch[0]
	if one.made == nil && t.told == 0 && !e.gaveUp.Load() {
		one.fill(&t.made)
	}
	for t.told < len(e.hooks) && !e.gaveUp.Load() {
		hook := e.hooks[t.told]
		t.told++
		if err := hook(e.ctx, t.report()); err != nil {
			e.failed(t.report(), err)
		}
	}
	if one.made == nil {
		one.attempt.claimed.told()
	}
	e.left.Add(-1)
}

// failed logs that a hook panicked, or ended its goroutine.
func (e *ends) failed(made *Ended, err error) {
	e.log.hookFailed("OnEnd", made.Task.Kind, made.Task.Ref, err)
}

// next hands a teller the ends that have waited longest: its share of the queue, so that slow hooks
// run concurrently. It returns false, and counts the teller as ended, if the queue is empty.
func (e *ends) next(t *teller) bool {
	t.made = Ended{}
	some, dropped := e.take(t)
	if dropped > 0 {
		e.log.endsResumed(dropped)
	}
	return some
}

// take is next without the log. Once half of the queue is free it returns how many ends were dropped.
func (e *ends) take(t *teller) (some bool, dropped int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := len(e.queue) - e.first
	if waiting <= waitMost/2 {
		dropped, e.dropped = e.dropped, 0
	}
	if waiting == 0 {
		if e.queue, e.first = e.queue[:0], 0; cap(e.queue) > spareMost {
			e.queue = nil
		}
		e.spare = append(e.spare, t)
		if e.tellers--; e.tellers == 0 && e.idle != nil {
			close(e.idle)
			e.idle = nil
		}
		return false, dropped
	}
	e.taken = time.Now()
	taken := e.queue[e.first:][:min(max(waiting/tellersMost, 1), batchMost)]
	t.batch = append(t.room[:0], taken...)
	clear(taken)
	if e.first += len(taken); e.first >= spareMost && 2*e.first >= len(e.queue) { // bounds a busy queue
		n := copy(e.queue, e.queue[e.first:])
		clear(e.queue[n:])
		e.queue, e.first = e.queue[:n], 0
	}
	return true, dropped
}

// hire returns a teller, reusing the memory of an ended one. The mutex is held.
func (e *ends) hire() *teller {
	n := len(e.spare)
	if n == 0 {
		return new(teller)
	}
	t := e.spare[n-1]
	e.spare = e.spare[:n-1]
	return t
}

// wait waits until all ends are reported, but not longer than most, nor than hooksTail once cut is closed.
// It returns how many ends are not reported, with the ends that were dropped before.
// Those still in the queue are dropped, and later ends are not reported.
func (e *ends) wait(most time.Duration, cut <-chan struct{}) (left int) {
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
	if awaits(idle, most, cut) {
		return 0
	}
	e.gaveUp.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	return int(e.left.Load()) + e.dropped
}

// awaits reports whether idle was closed within most, and within hooksTail once cut was closed.
func awaits(idle <-chan struct{}, most time.Duration, cut <-chan struct{}) bool {
	begun, t := time.Now(), time.NewTimer(most)
	defer t.Stop()
	for {
		select {
		case <-idle:
			return true
		case <-t.C:
			return false
		case <-cut:
			cut = nil
			t.Reset(min(most-time.Since(begun), hooksTail))
		}
	}
}

// fill fills in the report of an attempt. It makes the task in the memory of the claim.
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
	t.Runner, t.Claimed, t.LeaseUntil, t.Started, t.Snoozes = "", time.Time{}, time.Time{}, false, 0
	if settle.Outcome == storage.Fail {
		t.Retries++
	}
	switch t.State {
	case storage.Dead:
		t.Reason = cmp.Or(settle.Reason, storage.ReasonRetries)
	case storage.Scheduled:
		t.Snoozes, t.Reason, e.RetryIn = a.Snoozes+1, settle.Reason, settle.Delay
	case storage.Retry, storage.Waiting: // a throttled task waits
		e.RetryIn = settle.Delay
	default:
	}
}

// claimedTasks holds the tasks of a claim until the ends of their attempts are reported.
type claimedTasks struct {
	tasks []storage.Task
	left  atomic.Int64 // how many ends are yet to be reported
}

// keep keeps the tasks of a claim, which its caller must then not free.
func keep(claimed *storage.Claimed) *claimedTasks {
	k := &claimedTasks{tasks: claimed.Tasks}
	k.left.Store(int64(len(k.tasks)))
	return k
}

// told frees the memory of the tasks after the last end. That is safe because an attempt has at
// most one end, and nobody reads its task after that. Tasks whose end is never reported are left to
// the garbage collector.
func (k *claimedTasks) told() {
	if k.left.Add(-1) == 0 {
		(&storage.Claimed{Tasks: k.tasks}).Free()
	}
}

// waited returns how long the task of an attempt had been due when its job began, or 0 if that
// is not known.
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

// settledEnds appends the end of an attempt whose settle the storage has acknowledged.
func (s *shared) settledEnds(all []end, sm *settlement, placed *storage.Placed) []end {
	if s.ends == nil || !placed.State.Ended() && !sm.attempt.hasRun() {
		return all // the task was declined, or claimed ahead and given back
	}
	one := end{settlement: *sm, state: placed.State, version: placed.Version}
	one.as = sm.ending(placed.State)
	return append(all, one)
}

// tell reports ends.
func (s *shared) tell(all []end) {
	if len(all) > 0 {
		s.ends.add(all...)
	}
}

// ending returns the outcome of an attempt whose settle left its task in a state.
func (sm *settlement) ending(state storage.State) Outcome {
	switch {
	case sm.outcome() == storage.Complete:
		return OutcomeSucceeded
	case state == storage.Cancelled: // the storage knew of the cancel before the runner did
		return OutcomeCancelled
	}
	return sm.as
}

// tellLost reports an attempt whose job has returned and whose lease was lost.
func (s *shared) tellLost(a *Attempt, err error, took time.Duration) {
	if s.ends == nil || !a.hasRun() {
		return
	}
	if err == nil {
		err = storage.ErrLeaseLost
	}
	s.ends.add(end{settlement: settlement{attempt: a, as: OutcomeLeaseLost, err: err, took: took}})
}

// tellEnded logs and reports the tasks that the storage has ended by itself.
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

// outcomeOf returns the outcome of a task that the storage has ended by itself.
func outcomeOf(t *storage.Ended) Outcome {
	switch {
	case t.State == storage.Cancelled:
		return OutcomeCancelled
	case t.Reason == storage.ReasonKind:
		return OutcomeUnknownKind
	}
	return OutcomeCrashed
}

// tellCrash reports the run before this attempt if its runner died or was cut off. It reads the
// task, under the lease of this attempt, to learn of that run.
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
