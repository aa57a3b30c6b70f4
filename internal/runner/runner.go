// Package runner claims tasks, runs them side by side and brings their verdicts to the storage.
// It has one actor a file: a claimer, a settler, a keeper of leases and a ticker for each shard
// of the queues, workers, and for the whole runner a heartbeat, a guard of the leases and a
// sweeper. It knows the storage and how to have a task run, see [Jobs]; types of jobs, options
// and encodings are the business of the root package.
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

// Config configures a Runner. It was checked, and has no defaults of its own.
type Config struct {
	Store storage.Storage
	Jobs  Jobs
	Log   Log
	// SuccessLevel is that of the lines of successes.
	SuccessLevel slog.Level
	Version      string // of midge, as heartbeats report it
	Concurrency  int
	Lease        time.Duration
	Grace        time.Duration
	Ahead        time.Duration
	Timeout      time.Duration // of tasks that have none; 0 none
	// OnEnd are told of ends, one after the other. Their errors are their own panics.
	OnEnd []func(context.Context, *Ended) error
}

// Jobs runs tasks and reads what they return.
type Jobs interface {
	// Kinds lists the kinds of the jobs, sorted. The list is fixed from the last SetQueues before
	// Run on.
	Kinds() []string
	// Name gives the kind of today of one of the Kinds, which may be an earlier name of it.
	Name(kind string) string
	// Run runs the job of a task of one of the Kinds. Its errors include a *CannotRunError; it does not panic.
	Run(ctx context.Context, a *Attempt) error
	// Enqueue gives those of the inserts that are to be enqueued, altered maybe and checked, or why
	// none is. It does not panic.
	Enqueue(ctx context.Context, inserts []storage.Insert) ([]storage.Insert, error)
	// Judge reads an error that Run returned. It does not panic, whatever the error's methods do.
	Judge(err error) Judgement
	// Backoff is how long a failed task waits for its next retry; an error says why the default
	// stands in for the task's own backoff.
	Backoff(a *Attempt) (time.Duration, error)
}

// Runner runs the tasks of queues.
type Runner struct {
	*shared

	heartbeat *heartbeat
	schedules *schedules
	queues    *queues
	workers   *workers
	grace     time.Duration
	changed   chan struct{} // the queues have; capacity 1
	stop      chan struct{} // closed by stopNow
	stopOnce  sync.Once
	starting  atomic.Pointer[startUnderWay]      // nil before Start was called
	mayDrain  atomic.Pointer[context.CancelFunc] // drains; nil before the runner was started
	done      chan struct{}                      // closed when it has drained
	err       error                              // what came of that; read behind done
}

// shared is what the actors of a runner have in common.
type shared struct {
	clock

	id      string
	lease   time.Duration
	timeout time.Duration // of tasks that have none; 0 none
	jobs    Jobs
	log     *lifeLog
	slots   *slots
	health  *health
	ends    *ends // nil where nobody wants to hear of them
	store   *watched
	tasks   *storage.Session // claims and settles: repeats for as long as a lane lives
	beats   *storage.Session // heartbeats: the next one makes up for a lost one

	limits   atomic.Pointer[storage.Limits] // of the storage; nil before it was asked
	counters *vitals.Counters               // nil before the start: the kinds are fixed then
	large    chan struct{}                  // filled while a large value is written; capacity 1
	released atomic.Int64                   // tasks given back since the drain began
	unsure   atomic.Bool                    // a last claim may have claimed tasks, and nobody was told
	closed   atomic.Bool                    // the storage is
}

// counterOf gives the counter of a kind, nil where its runs are not counted.
func (s *shared) counterOf(kind string) *vitals.Counter {
	i, known := slices.BinarySearch(s.jobs.Kinds(), kind)
	if !known || s.counters == nil {
		return nil
	}
	return s.counters.At(i)
}

// Errors that end the contexts of jobs, or tell how a run ended. The root package documents them.
var (
	ErrShutdown      = errors.New("midge: the runner is shutting down")
	ErrTimeout       = errors.New("midge: job timed out")
	ErrExpired       = errors.New("midge: the deadline of the task is over")
	ErrCancelled     = errors.New("midge: task cancelled")
	ErrGraceExceeded = errors.New("midge: jobs outlived the grace period")

	errClosed = fmt.Errorf(
		"midge: the storage was closed while the runner ran: close it after Run has returned: %w", storage.ErrClosed)
)

// New makes a runner. It does no I/O.
func New(cfg Config) *Runner {
	host, _ := os.Hostname() // an unnamed host is left out of the id
	id := storage.NewRunnerID(host, os.Getpid())
	log := &lifeLog{cfg.Log, id, cfg.SuccessLevel}
	s := &shared{
		clock: clock{made: time.Now()},
		id:    id, lease: cfg.Lease, timeout: cfg.Timeout, jobs: cfg.Jobs, log: log,
		health: new(health), slots: newSlots(cfg.Concurrency, cfg.Ahead), ends: newEnds(cfg.OnEnd, log), store: &watched{Storage: cfg.Store, log: log},
		large: make(chan struct{}, 1),
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
	r.heartbeat.queues = r.queues
	s.store.closed = func() { s.closed.Store(true); r.stopNow() }
	return r
}

// SkewWallClock has the wall clock read so much more than the monotonic one tells, as behind a
// suspension of the machine. It is for tests, and called before Run.
func (r *Runner) SkewWallClock(skew func() time.Duration) { r.skew = skew }

// ID is the runner's id, as tasks and lists of runners show it.
func (r *Runner) ID() string { return r.id }

// SetConcurrency changes how many jobs run at once. What waits ahead starts at once where more
// slots are free; lowering it lets running jobs finish.
func (r *Runner) SetConcurrency(n int) {
	r.slots.resize(n)
	r.workers.launch()
}

// SetQueues changes the queues that are served: in strict order, or with weights. Once it has
// returned no job of a queue that is served no more begins: what was claimed there is given back.
func (r *Runner) SetQueues(names []string, weights map[string]int) {
	r.releaseAll(r.queues.set(names, weights))
	for _, a := range r.slots.inFlight.snapshot(nil) { // a worker may have one that has not begun
		if !slices.Contains(names, a.Fence.Queue) {
			a.keepBack()
		}
	}
	kick(r.changed)
	kick(r.heartbeat.kick)
}

// Declare has the runner store a schedule, keep it declared and turn its ticks into tasks. It is
// called before Run.
func (r *Runner) Declare(in storage.Insert) error { return r.schedules.declare(in) }

// Declared lists the schedules, as heartbeats tell them.
func (r *Runner) Declared() []storage.Declared { return r.schedules.declared() }

// Run starts the runner, waits until ctx ends or the runner has to stop, and drains. Where ctx ends before
// the runner has started, or Shutdown is called, there is nothing to drain.
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

// interrupted reports whether an error of the start says no more than that its context has ended.
func interrupted(err error) bool {
	return Unanswered(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// startUnderWay is a call of Start that has not returned.
type startUnderWay struct {
	abort context.CancelCauseFunc
	over  chan struct{} // closed when it is
}

// Start has the runner claim tasks of the queues and run them until Shutdown. It returns once the
// storage knows of the runner, and is called once; ctx bounds that alone.
func (r *Runner) Start(ctx context.Context) error {
	starting, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	under := &startUnderWay{abort, make(chan struct{})}
	defer close(under.over)
	r.starting.Store(under)
	warnings, err := r.start(starting)
	if errors.Is(context.Cause(starting), ErrShutdown) { // Shutdown has not waited for more
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrShutdown, err)
		} else {
			err = ErrShutdown
		}
	}
	if err != nil {
		if r.limits.Load() != nil { // a heartbeat may have arrived
			r.heartbeat.leave(context.WithoutCancel(ctx))
		}
		return fmt.Errorf("midge: start the runner: %w", err)
	}
	// What the runner does from now on outlives ctx.
	base := context.WithoutCancel(ctx)
	draining, drain := context.WithCancel(base)
	r.health.comeTo(isRunning)
	r.mayDrain.Store(&drain)
	go func() { // ends when the runner has drained
		defer close(r.done)
		defer drain()
		r.err = r.work(base, draining, warnings)
		r.health.comeTo(isOver)
	}()
	return nil
}

// drainSoon has a runner that was started drain.
func (r *Runner) drainSoon() {
	if drain := r.mayDrain.Load(); drain != nil {
		r.health.comeTo(isDraining)
		(*drain)()
	}
}

// Shutdown drains and gives what came of it. When ctx ends the grace period is over. It ends a start that is
// under way; a runner that was not started has nothing to drain.
func (r *Runner) Shutdown(ctx context.Context) error {
	if under := r.starting.Load(); under != nil {
		under.abort(ErrShutdown)
		select {
		case <-under.over:
		case <-ctx.Done():
		}
	}
	if r.mayDrain.Load() == nil {
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

// work runs the actors until draining ends, and drains.
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
	all.others.Go(func() { (&sweeper{r.shared, r.queues, r.schedules}).loop(draining) })
	all.others.Go(func() { r.watchWarnings(draining, warnings) })
	r.spread(draining, hard, &all)
	drain()
	begun := r.elapsed()
	left, err := r.drain(&all.claims, endJobs, hardStop)
	hardStop()
	all.others.Wait()
	r.log.untold(r.ends.wait(r.graceLeft(begun)))
	endHooks()
	r.heartbeat.leave(base) // last: a heartbeat behind it would bring the runner back
	if r.closed.Load() {
		err = errors.Join(errClosed, err)
	}
	r.log.stopped(r.shared, left, err)
	return err
}

// startTries is how often the first heartbeat is sent: a refusal may be a moment's.
const startTries = 3

// start asks the storage what it is worth, tells it of the runner, and gives its warnings. The
// first heartbeat comes before the first claim: no task names a runner that nobody lists.
func (r *Runner) start(ctx context.Context) (warnings []string, err error) {
	d, err := r.store.Describe(ctx)
	if err != nil {
		return nil, err
	}
	limits := d.Limits.WithDefaults()
	r.limits.Store(&limits)
	r.heartbeat.sawTime(d.Now)
	r.counters = vitals.NewCounters(r.jobs.Kinds())
	for try := 1; ; try++ {
		if err = r.heartbeat.send(ctx); err == nil {
			break
		}
		if try == startTries {
			return nil, err
		}
	}
	r.log.started(r, d)
	return d.Warnings, nil
}

// crew is who works for a runner: the claimers, which end when it drains, and the other actors,
// which see it out.
type crew struct{ claims, others sync.WaitGroup }

// spread starts the actors of each shard, also of shards that come with a change of the queues,
// until the runner is to stop.
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

// stopNow stops the runner and cuts the grace period short. It does not wait.
func (r *Runner) stopNow() {
	r.health.comeTo(isDraining)
	r.stopOnce.Do(func() { close(r.stop) })
}

// kick wakes a loop that selects on a channel of capacity 1.
func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
