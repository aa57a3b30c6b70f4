// Package runner claims tasks, runs them concurrently and settles them with the storage. It has one
// actor per file: a claimer, a settler, a keeper of leases and a ticker for each shard of the
// queues, the workers, and for the whole runner a heartbeat, a guard of the leases and a sweeper.
// It knows the storage, and the interface [Jobs] to run a task. Types of jobs, options and
// encodings belong to the root package.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// Config configures a Runner. Its fields are already checked and have no defaults here.
type Config struct {
	Store storage.Storage
	Jobs  Jobs
	Log   Log
	// SuccessLevel is the level of the lines about successes.
	SuccessLevel slog.Level
	Version      string // of the program's build, as heartbeats report it
	Concurrency  int
	// QueueConcurrency bounds the running jobs of single queues, and Gates open and close queues.
	QueueConcurrency map[string]int
	Gates            map[string]func() bool
	// QueueLimits are the limits that the runner declares, by queue.
	QueueLimits map[string]storage.Limit
	Lease       time.Duration
	Grace       time.Duration
	// ReturnWithin is how long jobs may take to return after Grace has ended their contexts.
	ReturnWithin time.Duration
	Ahead        time.Duration
	Timeout      time.Duration // of tasks without a timeout; 0 for none
	// OnEnd functions are called for each end, one after the other. They return their panic as an
	// error.
	OnEnd []func(context.Context, *Ended) error
}

// Jobs runs tasks and interprets the errors of jobs.
type Jobs interface {
	// Kinds lists the kinds of the jobs, sorted. The list does not change after the last SetQueues
	// before Run.
	Kinds() []string
	// Name returns the current kind for one of the Kinds, which may be an earlier kind.
	Name(kind string) string
	// Run runs the job of a task of one of the Kinds. Its errors include a *CannotRunError. It does
	// not panic.
	Run(ctx context.Context, a *Attempt) error
	// Enqueue returns the inserts that are to be enqueued, possibly altered, and checked, or why
	// none is. It does not panic.
	Enqueue(ctx context.Context, inserts []storage.Insert) ([]storage.Insert, error)
	// Judge interprets an error that Run returned. It does not panic, even if the error's
	// methods do.
	Judge(err error) Judgement
	// Backoff returns how long a failed task waits for its next retry, or why its backoff returns no delay.
	Backoff(a *Attempt) (time.Duration, error)
	// DefaultBackoff returns that delay if the backoff and the job name none.
	DefaultBackoff(retry int) time.Duration
}

// Runner runs the tasks of queues.
type Runner struct {
	*shared

	heartbeat *heartbeat
	schedules *schedules
	queues    *queues
	workers   *workers
	gates     *gates
	grace     time.Duration
	changed   chan struct{} // capacity 1; signals that the queues have changed
	stop      chan struct{} // closed by stopNow
	stopOnce  sync.Once
	done      chan struct{} // closed after the drain
	err       error         // what Run and Shutdown return; read after done is closed

	begun    sync.Mutex         // guards the fields below
	shut     bool               // Shutdown was called, so that no start succeeds any more
	starting *startUnderWay     // nil before the call of Start
	mayDrain context.CancelFunc // starts the drain; nil before the runner was started
}

// shared is the state that all actors of a runner share.
type shared struct {
	clock

	id      string
	lease   time.Duration
	tail    time.Duration // how long jobs may take to return after a drain has ended their contexts
	timeout time.Duration // of tasks without a timeout; 0 for none
	jobs    Jobs
	log     *lifeLog
	slots   *slots
	health  *health
	ends    *ends // nil if there are no hooks
	store   *watched
	// declaredLimits are the limits of queues that the runner declares.
	declaredLimits []storage.RunnerLimit
	tasks          *storage.Session // claims and settles: a call is repeated for as long as its lane lives
	beats          *storage.Session // heartbeats: a lost one is replaced by the next

	troubles troubles                       // what could lately not be decoded
	limits   atomic.Pointer[storage.Limits] // of the storage; nil before Describe
	counters *vitals.Counters               // nil before the start, which fixes the kinds
	large    chan struct{}                  // held while a large value is written; capacity 1
	released atomic.Int64                   // tasks given back since the drain began
	unsure   atomic.Bool                    // a last claim may have claimed tasks, and its reply is lost
	closed   atomic.Bool                    // the storage is closed
}

// counterOf returns the counter of a kind, or nil if its runs are not counted.
func (s *shared) counterOf(kind string) *vitals.Counter {
	i, known := slices.BinarySearch(s.jobs.Kinds(), kind)
	if !known || s.counters == nil {
		return nil
	}
	return s.counters.At(i)
}

// These errors end the contexts of jobs, or name the way in which a run ended. The root package
// documents them.
var (
	ErrShutdown      = errors.New("midge: the runner is shutting down")
	ErrTimeout       = errors.New("midge: job timed out")
	ErrExpired       = errors.New("midge: the deadline of the task is over")
	ErrCancelled     = errors.New("midge: task cancelled")
	ErrGraceExceeded = errors.New("midge: jobs outlived the grace period")

	errNeverStarts = fmt.Errorf("midge: start the runner: %w", shutBeforeError{})

	errClosed = fmt.Errorf(
		"midge: the storage was closed while the runner ran: close it after Run has returned: %w", storage.ErrClosed)
)

// shutBeforeError is the ErrShutdown of a runner that has never started.
type shutBeforeError struct{}

func (shutBeforeError) Error() string {
	return "Shutdown was called before it had started; make a new runner"
}
func (shutBeforeError) Unwrap() error { return ErrShutdown }

// New returns a runner. It does no I/O.
func New(cfg Config) *Runner {
	host, _ := os.Hostname() // an unnamed host is left out of the id
	id := storage.NewRunnerID(host, os.Getpid())
	log := &lifeLog{cfg.Log, id, cfg.SuccessLevel, WallClock(cfg.Store)}
	s := &shared{
		clock: clock{made: time.Now()},
		id:    id, lease: cfg.Lease, tail: cfg.ReturnWithin, timeout: cfg.Timeout, jobs: cfg.Jobs, log: log,
		health: new(health), slots: newSlots(cfg.Concurrency, cfg.Ahead), ends: newEnds(cfg.OnEnd, log), store: &watched{Storage: cfg.Store, log: log},
		large: make(chan struct{}, 1), declaredLimits: limitsOf(cfg.QueueLimits),
	}
	s.tasks = storage.NewSession(s.store, storage.LaneLife)
	s.beats = storage.NewSession(s.store, min(cfg.Lease/2, heartbeatPatience))
	r := &Runner{
		shared: s, schedules: &schedules{shared: s}, grace: cfg.Grace,
		changed: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	r.heartbeat = &heartbeat{
		shared: s, schedules: r.schedules, version: cfg.Version, kick: make(chan struct{}, 1),
		pulse: s.pulse("heartbeat"),
	}
	judge := &judge{shared: s, warned: make(map[string]bool)}
	r.workers = &workers{shared: s, judge: judge}
	r.queues = &queues{shared: s, workers: r.workers, schedules: r.schedules}
	r.schedules.serves = r.queues.serves
	r.heartbeat.queues = r.queues
	for queue, most := range cfg.QueueConcurrency {
		s.slots.bind(queue, most)
	}
	for i := range s.declaredLimits {
		s.slots.declares(s.declaredLimits[i].Queue)
	}
	r.gates = newGates(s, r.heartbeat, cfg.Gates)
	s.store.closed = func() { s.closed.Store(true); r.stopNow() }
	return r
}

// SkewWallClock sets a function that is added to the wall clock but not to the monotonic one, which
// simulates a suspension of the machine. It is for tests, which call it before Run.
func (r *Runner) SkewWallClock(skew func() time.Duration) { r.skew = skew }

// ID returns the runner's id, as tasks and lists of runners show it.
func (r *Runner) ID() string { return r.id }

// SetConcurrency changes how many jobs run at once. With a higher limit, attempts that wait ahead
// start at once; with a lower limit, running jobs still finish.
func (r *Runner) SetConcurrency(n int) {
	r.slots.resize(n)
	r.workers.launch()
}

// SetQueueConcurrency changes how many jobs of a queue run at once, 0 for no limit of its own.
func (r *Runner) SetQueueConcurrency(queue string, n int) {
	r.slots.bind(queue, n)
	kick(r.heartbeat.kick)
}

// SetQueues changes the queues that are served: in strict order, or with weights. Once it has
// returned, no job of a queue that is no longer served begins: tasks claimed there are given back.
func (r *Runner) SetQueues(names []string, weights map[string]int) {
	r.releaseAll(r.queues.set(names, weights))
	for _, a := range r.slots.inFlight.snapshot(nil) { // a worker may have an attempt that has not begun
		if !slices.Contains(names, a.Fence.Queue) {
			a.keepBack(errServedNoMore)
		}
	}
	kick(r.changed)
	kick(r.heartbeat.kick)
}

// Declare makes the runner store a schedule, keep it declared and enqueue the tasks of its ticks.
// It must be called before Run.
func (r *Runner) Declare(in storage.Insert) error { return r.schedules.declare(in) }

// Declared returns the schedules, as heartbeats declare them.
func (r *Runner) Declared() []storage.Declared { return r.schedules.declared() }

// Run starts the runner, waits until ctx ends or the runner must stop, and drains. If ctx ends
// or Shutdown is called before the runner has started, there is nothing to drain, and Run returns
// nil.
func (r *Runner) Run(ctx context.Context) error {
	switch err := r.Start(ctx); {
	case errors.Is(err, ErrShutdown), ctx.Err() != nil && interrupted(err):
		return nil
	case err != nil:
		return err
	}
	defer context.AfterFunc(ctx, r.drainSoon)()
	<-r.done
	return r.err
}

// interrupted reports whether an error of the start means only that its context has ended.
func interrupted(err error) bool {
	return Unanswered(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// startUnderWay is a call of Start that has not yet returned.
type startUnderWay struct {
	abort context.CancelCauseFunc
	over  chan struct{} // closed when the call returns
}

// Start makes the runner claim tasks of the queues and run them until Shutdown. It returns once the
// storage lists the runner, and may be called once. ctx bounds only the start.
func (r *Runner) Start(ctx context.Context) error {
	starting, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	under := &startUnderWay{abort, make(chan struct{})}
	defer close(under.over)
	if !r.begins(under) {
		return errNeverStarts
	}
	warnings, err := r.start(starting)
	// From now on the runner's work must outlive ctx.
	base := context.WithoutCancel(ctx)
	draining, drain := context.WithCancel(base)
	if err = r.started(err, drain); err != nil {
		drain()
		if r.limits.Load() != nil { // a heartbeat may have reached the storage
			r.heartbeat.leave(base)
		}
		return fmt.Errorf("midge: start the runner: %w", err)
	}
	go func() { // ends when the runner has drained
		defer close(r.done)
		defer drain()
		r.err = r.work(base, draining, warnings)
		r.health.comeTo(isOver)
	}()
	return nil
}

// begins records a start, unless Shutdown was called before.
func (r *Runner) begins(under *startUnderWay) bool {
	r.begun.Lock()
	defer r.begun.Unlock()
	if !r.shut {
		r.starting = under
	}
	return !r.shut
}

// started records how a start ended, and returns its error. A start that Shutdown has overtaken
// fails, however it ended by itself.
func (r *Runner) started(err error, drain context.CancelFunc) error {
	r.begun.Lock()
	defer r.begun.Unlock()
	switch {
	case r.shut && err != nil:
		return fmt.Errorf("%w: %w", shutBeforeError{}, err)
	case r.shut:
		return shutBeforeError{}
	case err != nil:
		return err
	}
	r.health.comeTo(isRunning)
	r.mayDrain = drain
	return nil
}

// MayStart returns an ErrShutdown if Shutdown was called before any start.
func (r *Runner) MayStart() error {
	r.begun.Lock()
	defer r.begun.Unlock()
	if r.shut && r.starting == nil {
		return errNeverStarts
	}
	return nil
}

// drainSoon starts the drain of a started runner, without waiting for it.
func (r *Runner) drainSoon() {
	r.begun.Lock()
	defer r.begun.Unlock()
	if r.mayDrain != nil {
		r.health.comeTo(isDraining)
		r.mayDrain()
	}
}

// Shutdown drains the runner and returns its error. The end of ctx ends the grace period. A start
// that is under way is aborted, and a later start fails; in both cases there is nothing to drain.
func (r *Runner) Shutdown(ctx context.Context) error {
	r.begun.Lock()
	r.shut = true
	under, drains := r.starting, r.mayDrain != nil
	r.begun.Unlock()
	switch {
	case under == nil:
		r.health.comeTo(isOver)
		return nil
	case !drains:
		under.abort(ErrShutdown)
		select {
		case <-under.over:
		case <-ctx.Done():
		}
		return nil
	}
	if ctx.Err() != nil {
		r.stopNow()
	}
	r.drainSoon()
	select {
	case <-r.done:
	case <-ctx.Done():
		r.stopNow()
		<-r.done
	}
	return r.err
}

// work runs the actors until draining ends, and then drains.
func (r *Runner) work(base, draining context.Context, warnings []string) error {
	hard, hardStop := context.WithCancel(base) // ends the calls of the storage once the drain is over
	jobs, endJobs := context.WithCancelCause(base)
	defer endJobs(nil)
	defer hardStop()
	r.workers.open(jobs)
	hooks, endHooks := context.WithCancel(base)
	defer endHooks()
	r.ends.open(hooks)

	draining, drain := context.WithCancel(draining)
	defer drain()
	var all crew
	g := &guard{shared: r.shared, pulse: r.pulse("guard")}
	all.others.Go(func() { r.heartbeat.loop(hard) })
	all.others.Go(func() { g.loop(hard) })
	all.others.Go(func() { r.gates.loop(draining) })
	sweep := &sweeper{r.shared, r.queues, r.schedules, r.pulse("sweeper")}
	all.ticks.Go(func() { sweep.loop(draining) })
	all.others.Go(func() { r.watchWarnings(draining, warnings) })
	r.spread(draining, hard, &all)
	drain()
	begun := r.elapsed()
	left, err := r.drain(&all.claims, endJobs, hardStop)
	hardStop()
	all.others.Wait()
	ticked := r.awaitTicks(&all.ticks)
	r.log.untold(r.ends.wait(r.graceLeft(begun), r.stop))
	endHooks()
	if !<-ticked {
		r.log.warn("an EnqueueMiddleware has not returned in time: ticks may be made up for by another runner")
	}
	r.heartbeat.leave(base) // last: a later heartbeat would list the runner again
	if r.closed.Load() {
		err = errors.Join(errClosed, err)
	}
	r.log.stopped(r.shared, left, err)
	return err
}

// startTries is how often the first heartbeat is tried: a refusal may be temporary.
const startTries = 3

// start reads the storage's description, sends the first heartbeat, and returns the storage's
// warnings. The first heartbeat precedes the first claim, so that no task names a runner that is
// not listed.
func (r *Runner) start(ctx context.Context) (warnings []string, err error) {
	d, err := r.store.Describe(ctx)
	if err != nil {
		return nil, err
	}
	limits := d.Limits.WithDefaults()
	r.limits.Store(&limits)
	r.heartbeat.sawTime(d.Now)
	r.counters = vitals.NewCounters(r.jobs.Kinds())
	first := storage.NewSession(r.store, heartbeatPatience) // there is no lease yet that a slow answer could cost
	for try := 1; ; try++ {
		if err = r.heartbeat.send(ctx, first); err == nil {
			break
		}
		if try == startTries {
			return nil, err
		}
	}
	r.log.started(r, d)
	return d.Warnings, nil
}

// crew waits for the goroutines of a runner: the claimers, which end when the drain begins, the actors that
// make ticks, and the other actors, which end after the drain.
type crew struct{ claims, ticks, others sync.WaitGroup }

// spread starts the actors of each shard, also of shards that a change of the queues adds, until
// the runner must stop.
func (r *Runner) spread(draining, hard context.Context, all *crew) {
	for started := 0; ; {
		fresh := r.queues.from(started)
		for _, s := range fresh {
			s.start(draining, hard, all)
		}
		started += len(fresh)
		select {
		case <-r.changed:
		case <-draining.Done():
			return
		case <-r.stop:
			return
		}
	}
}

// stopNow stops the runner and ends the grace period. It does not wait.
func (r *Runner) stopNow() {
	r.health.comeTo(isDraining)
	r.stopOnce.Do(func() { close(r.stop) })
}

// kick wakes a loop that waits on a channel of capacity 1.
func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
