package midge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge/storage"
)

// Version of midge, as runners report it.
const Version = "0.1.0"

// Defaults of a runner.
const (
	DefaultQueue = "default"
	DefaultLease = 30 * time.Second
	DefaultGrace = 25 * time.Second
	DefaultAhead = 5 * time.Millisecond
)

// None is for settings whose zero value means the default: it says none, such as
// no grace period, no retries, nothing claimed ahead.
const None = -1

// RunnerConfig configures a [Runner]. The zero value works.
type RunnerConfig struct {
	// Queues to serve, in strict order: the first is emptied before the second.
	// Default: "default" and the queues of the registered jobs and of the schedules,
	// with equal weights.
	Queues []string
	// Weights shares the claims among the queues by weight, 1 to 1,000,000, instead of
	// in strict order; a queue that is not in it has weight 1. Nil keeps strict order.
	Weights map[string]int
	// Concurrency is how many jobs run at once, up to 1,000,000. Default: GOMAXPROCS × 4.
	Concurrency int
	// Lease is how long a task stays this runner's without a heartbeat: default
	// 30 s, at least 1 s. Heartbeats go out every third of it; where none that was sent
	// within the last five sixths of it went through, the job's context ends with
	// storage.ErrLeaseLost. After a crash another runner starts its tasks that much later.
	Lease time.Duration
	// Grace is how long running jobs may finish once the runner stops, before
	// their contexts end: default 25 s, None for none. Jobs then have a second to
	// return: allow a process two seconds more than Grace before it is killed.
	Grace time.Duration
	// Ahead is how much work may be claimed ahead of free slots, as the time that
	// it will take: default 5 ms, None claims nothing ahead. It matters for jobs
	// shorter than that; slow jobs are never claimed ahead. At most a third of the
	// lease.
	Ahead time.Duration
	// Backoff delays retries of jobs whose type does not say. Default:
	// DefaultBackoff.
	Backoff Backoff
	// Logger gets the lifecycle lines, without caller and stack: a line says all there
	// is to say, and the stack of a job's panic is kept with its task. Nil logs nothing.
	Logger *zap.Logger
	// Middleware wraps each attempt, the first outermost.
	Middleware []Middleware
}

// Runner claims tasks and runs their jobs. Make it with [NewRunner], register the
// jobs, then call Run once.
type Runner struct {
	store     *watched
	cfg       RunnerConfig
	log       *lifeLog
	id        string
	made      time.Time
	skew      func() time.Duration // of the wall clock, in tests; nil for none
	slots     *slots
	jobs      *storage.Session // claims and settles: repeats for as long as a lane lives
	beats     *storage.Session // heartbeats: the next one makes up for a lost one
	heart     *heart
	schedules *schedules
	released  atomic.Int64 // tasks given back, since the drain began
	unsure    atomic.Bool  // a last claim may have taken tasks, and nobody was told
	closed    atomic.Bool  // the storage is

	large    chan struct{} // held while a large value is written; capacity 1
	changed  chan struct{} // concurrency or queues changed; capacity 1
	stop     chan struct{} // closed by Stop
	stopOnce sync.Once

	mu              sync.Mutex // guards what follows
	running         bool
	jobContexts     context.Context //nolint:containedctx // what those of jobs end with; nil before Run
	describedLimits storage.Limits
	warnings        []string // of the storage, when the runner started
	definitions     definitions
	handlers        map[string]*handler
	queues          []string
	weights         map[string]int
	domains         []*domain       // of the queues above and of the schedules; grows only
	warned          map[string]bool // kinds and why they cannot run here, that were logged
}

// Middleware wraps the run of an attempt. It calls next, once, or returns without
// it; what it returns is the attempt's verdict. [Current] tells the task.
//
// Where the job panics, next returns a *[PanicError]. Where the job succeeded and the
// middleware returns an error all the same, the task has failed: it is retried, and the
// job runs again. A middleware whose own work must not re-run the job logs its error and
// returns nil. A middleware that adds to an error wraps it with %w: what [Snooze], [Discard],
// [RetryIn] and parameters that do not fit return is told by its type. A task whose kind is
// not registered here does not pass the middleware.
type Middleware func(next func(context.Context) error) func(context.Context) error

// NewRunner checks the configuration and makes a runner on store. It does no I/O. Its
// errors are *[InvalidError].
func NewRunner(store storage.Storage, cfg RunnerConfig) (*Runner, error) {
	if isNil(store) {
		return nil, fmt.Errorf("midge: new runner: %w", storage.Invalid("store", "nil", "an opened storage"))
	}
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("midge: new runner: %w", err)
	}
	log := newLifeLog(cfg.Logger)
	r := &Runner{
		store:    &watched{Storage: store, log: log},
		cfg:      cfg,
		log:      log,
		id:       storage.NewID(),
		made:     time.Now(),
		slots:    newSlots(cfg.Concurrency),
		large:    make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
		stop:     make(chan struct{}),
		handlers: make(map[string]*handler),
		queues:   cfg.Queues,
		weights:  cfg.Weights,
		warned:   make(map[string]bool),
	}
	r.store.closed = func() { r.closed.Store(true); r.Stop() }
	r.jobs = storage.NewSession(r.store, storage.LaneLife)
	r.beats = storage.NewSession(r.store, min(cfg.Lease, DefaultLease)/2)
	r.heart = &heart{r: r, kick: make(chan struct{}, 1)}
	r.schedules = &schedules{}
	return r, nil
}

// fill checks what was given and sets the defaults.
func (c *RunnerConfig) fill() error {
	c.Queues, c.Weights = slices.Clone(c.Queues), maps.Clone(c.Weights)
	c.Concurrency = cmp.Or(c.Concurrency, runtime.GOMAXPROCS(0)*4)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	if err := c.check(); err != nil {
		return err
	}
	c.Grace = durationOr(c.Grace, DefaultGrace)
	c.Ahead = durationOr(c.Ahead, DefaultAhead)
	if c.Backoff == nil {
		c.Backoff = DefaultBackoff()
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return nil
}

// check looks at what was given, with the defaults of Concurrency and Lease.
func (c *RunnerConfig) check() error {
	if len(c.Queues) == 0 && len(c.Weights) > 0 {
		return storage.Invalid("RunnerConfig.Weights", "without Queues", "the queues that they weigh")
	}
	if err := checkQueues("RunnerConfig.Queues", c.Queues, "RunnerConfig.Weights", c.Weights); err != nil {
		return err
	}
	if err := checkConcurrency("RunnerConfig.Concurrency", c.Concurrency); err != nil {
		return err
	}
	switch {
	case c.Lease < storage.MinLease || c.Lease > storage.MaxDelay:
		return storage.Invalid("RunnerConfig.Lease", c.Lease, "%v to "+longest, storage.MinLease)
	case c.Ahead != None && (c.Ahead < 0 || c.Ahead > c.Lease/3):
		return storage.Invalid("RunnerConfig.Ahead", c.Ahead,
			"0 to a third of the lease, %v, or None; 0 means the default", c.Lease/3)
	case slices.ContainsFunc(c.Middleware, func(m Middleware) bool { return m == nil }):
		return storage.Invalid("RunnerConfig.Middleware", "with a nil", "functions alone")
	}
	return checkDurationOrNone("RunnerConfig.Grace", c.Grace)
}

// durationOr gives d, the default for 0, and 0 for None.
func durationOr(d, byDefault time.Duration) time.Duration {
	if d == None {
		return 0
	}
	return cmp.Or(d, byDefault)
}

// mostAtOnce bounds the concurrency of a runner, and the weight of a queue.
const mostAtOnce = 1_000_000

func checkConcurrency(what string, n int) error { return checkRange(what, n, 1, mostAtOnce, "") }

// ErrRunning is returned where something has to be done before Run, or by a second
// Run.
var ErrRunning = errors.New("midge: the runner has been started")

// add registers a handler for its kind.
func (r *Runner) add(h *handler) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return wrap(ErrRunning, "register %s", h.kind)
	}
	if other, ok := r.handlers[h.kind]; ok {
		return fmt.Errorf("midge: register: %w", storage.Invalid("kind", h.kind,
			"each kind registered once: %v and %v both have it", other.typ, h.typ))
	}
	r.handlers[h.kind] = h
	return nil
}

// ID is the runner's id, as tasks and lists of runners show it.
func (r *Runner) ID() string { return r.id }

// SetConcurrency changes how many jobs run at once, 1 to 1,000,000, also while the runner
// runs. What waits ahead starts at once where there is more room; lowering it lets running
// jobs finish.
func (r *Runner) SetConcurrency(n int) error {
	if err := checkConcurrency("concurrency", n); err != nil {
		return fmt.Errorf("midge: set concurrency: %w", err)
	}
	r.slots.resize(n)
	r.mu.Lock()
	jobs := r.jobContexts
	r.mu.Unlock()
	if jobs != nil {
		r.launch(jobs)
	}
	return nil
}

// ErrGraceExceeded is what Run returns where jobs had not returned a second after the
// grace period, when their contexts ended: their tasks were released, but their
// goroutines may still run.
var ErrGraceExceeded = errors.New("midge: jobs outlived the grace period")

// Run claims tasks and runs their jobs until ctx ends or Stop is called. Then it
// claims no more, gives back what it claimed ahead, lets running jobs finish for the
// grace period, ends their contexts with ErrShutdown, and releases what is left,
// uncharged. The contexts of jobs carry the values of ctx but do not end with it.
//
// Run returns nil after a drain, ErrGraceExceeded, ErrRunning when it was called
// before, or what kept it from starting: the storage refused, or did not answer. A program
// that is to wait for its storage makes a new runner then. Tasks that could not be settled
// because the storage was away run again; the log names them, Run's error does not. Where the
// storage is closed before Run has returned, it stops as by Stop and returns an error that
// wraps storage.ErrClosed.
func (r *Runner) Run(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	// Everything below outlives ctx: hard ends storage calls once the drain is over.
	base := context.WithoutCancel(ctx)
	hard, hardStop := context.WithCancel(base)
	jobs, endJobs := context.WithCancelCause(base)
	defer endJobs(nil)
	defer hardStop()
	r.mu.Lock()
	r.jobContexts = jobs
	r.mu.Unlock()

	draining, drain := context.WithCancel(ctx)
	defer drain()
	var all crew
	all.others.Go(func() { r.heart.loop(hard) })
	all.others.Go(func() { r.guard(hard) })
	all.others.Go(func() { (&sweeper{r}).loop(draining) })
	all.others.Go(func() { r.watchWarnings(draining) })
	r.spread(draining, hard, jobs, &all)
	drain()
	left, err := r.drain(&all.claims, endJobs, hardStop)
	hardStop()
	all.others.Wait()
	r.heart.leave(base) // last: a heartbeat behind it would bring the runner back
	if r.closed.Load() {
		err = errors.Join(errClosed, err)
	}
	r.log.stopped(r, left, err)
	return err
}

var errClosed = fmt.Errorf(
	"midge: the storage was closed while the runner ran: close it after Run has returned: %w", storage.ErrClosed)

// spread gives each domain its actors, also those that come with a change of the queues,
// until the runner is to stop.
func (r *Runner) spread(draining, hard, jobs context.Context, all *crew) {
	for started := 0; ; {
		r.mu.Lock()
		fresh := r.domains[started:]
		r.mu.Unlock()
		for _, d := range fresh {
			d.begin(draining, hard, jobs, all)
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

// Stop stops the runner and cuts the grace period short: the contexts of running
// jobs end at once. It does not wait; Run returns soon after.
func (r *Runner) Stop() { r.stopOnce.Do(func() { close(r.stop) }) }

// start marks the runner as started and asks the storage what it is worth.
func (r *Runner) start(ctx context.Context) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return fmt.Errorf("%w: Run can be called once; make a new runner", ErrRunning)
	}
	r.running = true
	unserved := r.settleQueues()
	err := r.checkNamed("queues", r.queues)
	if err == nil {
		r.arrange()
	}
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("midge: start the runner: %w", err)
	}
	for _, h := range unserved {
		r.log.unserved(h)
	}
	if len(r.handlers) == 0 {
		r.log.nothing()
	}
	d, err := r.store.Describe(ctx)
	if err != nil {
		return fmt.Errorf("midge: start the runner: %w", err)
	}
	r.mu.Lock()
	r.describedLimits, r.warnings = d.Limits, d.Warnings
	r.mu.Unlock()
	r.heart.sawTime(d.Now)
	// The first heartbeat comes before the first claim: no task names a runner that nobody lists.
	if err := r.heart.send(ctx); err != nil {
		return fmt.Errorf("midge: start the runner: %w", err)
	}
	r.log.started(r, d)
	return nil
}

// limits are those of the storage.
func (r *Runner) limits() storage.Limits {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.describedLimits.WithDefaults()
}

// kick wakes a loop that selects on a channel of capacity 1.
func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
