package midge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// Version of midge.
const Version = "0.1.0"

// DefaultQueue is the queue of jobs and runners that do not say otherwise.
const DefaultQueue = "default"

// The other defaults of a runner.
const (
	defaultLease = 30 * time.Second
	defaultGrace = 25 * time.Second
	defaultAhead = 5 * time.Millisecond
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
	// Timeout ends the context of an attempt that takes longer, where neither the job's type nor
	// its task has a timeout: default none, at least a millisecond.
	Timeout time.Duration
	// Backoff delays retries of jobs whose type does not say. Default: that of the zero
	// Geometric.
	Backoff Backoff
	// Logger gets the lifecycle lines, without caller and stack: a line says all there
	// is to say, and the stack of a job's panic is kept with its task. Beside its sentence a line
	// has the fields runner and, where they apply, kind, queue, task (the id), attempt, outcome
	// and took. Without Logger and Slog the warnings and errors go to slog.Default;
	// zap.NewNop() logs nothing.
	Logger *zap.Logger
	// Slog gets the lines in the place of Logger. What stands in the fields is left out of its messages:
	// "succeeded", "failed: disk full, retry 1 of 20 in 2s at …". Giving both is refused.
	Slog *slog.Logger
	// SuccessLevel is the level of the lines about successes, for Slog too: default info. A busy
	// runner may want them at zapcore.DebugLevel.
	SuccessLevel zapcore.Level
	// Middleware wraps each attempt, the first outermost.
	Middleware []Middleware
	// EnqueueMiddleware wraps what enqueues follow-ups and the tasks of ticks, the first outermost.
	EnqueueMiddleware []EnqueueMiddleware
	// Version names the build of this program, such as v1.4.2: lists of runners show it, and the charts of the
	// dashboard show a new one as a deploy. Default: the version that Go has built into the program, or the
	// first twelve digits of its revision; where it has neither, "midge " and [Version]. At most 128 bytes.
	Version string
	// OnEnd are told how each attempt ended, once the storage has acknowledged that, and of the
	// tasks that the storage ended by itself in a claim of this runner. Default: none, which costs
	// nothing.
	//
	// An end is told to one function after the other, in their order. Ends come from up to eight
	// goroutines, in no order, and nothing of the runner waits for the calls: ends that come faster
	// than the functions return are kept in memory, so they must not block.
	// Their context ends when Run is about to return. A drain waits for the calls that are left,
	// for the rest of the grace period and a quarter of a second at least. A panic is logged, and
	// keeps nothing from the functions behind it.
	//
	// A runner tells of an attempt once at most: an end that its process could not tell any more
	// is lost. An attempt that was cut off from the storage may be told of twice, as
	// [OutcomeLeaseLost] by its runner and as [OutcomeCrashed] by the runner that starts the task
	// again; and a crash is told of again where the attempt that followed it was given back.
	OnEnd []func(ctx context.Context, end Ended)
}

// Runner claims tasks and runs their jobs. Make it with [NewRunner], register the
// jobs, then call Run once.
type Runner struct {
	actors *runner.Runner
	jobs   *jobs
	log    runner.Log

	mu      sync.Mutex // guards what follows
	running bool
	steps   bool     // a test kit makes them in the place of Run
	queues  []string // none for those of the jobs and schedules, until Run
	weights map[string]int
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
	log := logOf(&cfg)
	jobs := &jobs{handlers: make(map[string]*handler), middleware: cfg.Middleware, backoff: cfg.Backoff}
	jobs.enqueuing = slices.Clone(cfg.EnqueueMiddleware)
	r := &Runner{
		actors: runner.New(runner.Config{
			Store: store, Jobs: jobs, Log: log, Version: cfg.Version, Concurrency: cfg.Concurrency,
			Lease: cfg.Lease, Grace: cfg.Grace, Ahead: cfg.Ahead, Timeout: cfg.Timeout, OnEnd: tellers(cfg.OnEnd),
			SuccessLevel: slogLevel(cfg.SuccessLevel),
		}),
		jobs: jobs, log: log, queues: cfg.Queues, weights: cfg.Weights,
	}
	if s, ok := store.(runner.Stepped); ok {
		s.Stepped(r.step, r.jobs.types)
	}
	return r, nil
}

// fill checks what was given and sets the defaults.
func (c *RunnerConfig) fill() error {
	c.Queues, c.Weights = slices.Clone(c.Queues), maps.Clone(c.Weights)
	c.Concurrency = cmp.Or(c.Concurrency, runtime.GOMAXPROCS(0)*4)
	c.Lease = cmp.Or(c.Lease, defaultLease)
	if err := c.check(); err != nil {
		return err
	}
	c.Version = cmp.Or(c.Version, built())
	c.Grace = durationOr(c.Grace, defaultGrace)
	c.Ahead = durationOr(c.Ahead, defaultAhead)
	if c.Backoff == nil {
		c.Backoff = Geometric{}.Delay
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
	case len(c.Version) > storage.MaxName || c.Version != storage.CleanText(c.Version, storage.MaxName):
		return storage.Invalid("RunnerConfig.Version", c.Version,
			"at most %d bytes of text, or none", storage.MaxName)
	case c.Logger != nil && c.Slog != nil:
		return storage.Invalid("RunnerConfig.Slog", "beside Logger", "one of them")
	case c.SuccessLevel < zapcore.DebugLevel || c.SuccessLevel > zapcore.ErrorLevel:
		return storage.Invalid("RunnerConfig.SuccessLevel", c.SuccessLevel, "debug to error")
	case slices.ContainsFunc(c.Middleware, func(m Middleware) bool { return m == nil }):
		return storage.Invalid("RunnerConfig.Middleware", "with a nil", "functions alone")
	case slices.ContainsFunc(c.OnEnd, func(f func(context.Context, Ended)) bool { return f == nil }):
		return storage.Invalid("RunnerConfig.OnEnd", "with a nil", "functions alone")
	}
	if err := checkSpan("RunnerConfig.Timeout", c.Timeout, "0 for none"); err != nil {
		return err
	}
	if err := enqueueChain(c.EnqueueMiddleware).check("RunnerConfig.EnqueueMiddleware"); err != nil {
		return err
	}
	return checkDurationOrNone("RunnerConfig.Grace", c.Grace)
}

// built names the build of this program as Go does: by its version, and by its revision alone where the
// version is made of that.
func built() string {
	const unknown, digits = "(devel)", 12
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "midge " + Version
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key != "vcs.revision" || len(s.Value) < digits {
			continue
		}
		if short := s.Value[:digits]; version == "" || version == unknown || strings.Contains(version, short) {
			return short
		}
	}
	if version == "" || version == unknown {
		return "midge " + Version
	}
	return storage.CleanText(version, storage.MaxName)
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

// ErrRunning is returned where something has to be done before the runner is started, or by a second
// Run or Start.
var ErrRunning = errors.New("midge: the runner has been started")

// add registers a handler for its kind.
func (r *Runner) add(h *handler) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return wrap(ErrRunning, "register %s", h.kind)
	}
	for _, kind := range h.kinds() {
		if other, ok := r.jobs.handlers[kind]; ok {
			return fmt.Errorf("midge: register: %w", storage.Invalid("kind", kind,
				"each kind registered once: %v and %v both have it", other.typ, h.typ))
		}
	}
	for _, kind := range h.kinds() {
		r.jobs.handlers[kind] = h
	}
	return nil
}

// ID is the runner's id, as tasks and lists of runners show it.
func (r *Runner) ID() string { return r.actors.ID() }

// SetConcurrency changes how many jobs run at once, 1 to 1,000,000, also while the runner
// runs. What waits ahead starts at once where there is more room; lowering it lets running
// jobs finish.
func (r *Runner) SetConcurrency(n int) error {
	if err := checkConcurrency("concurrency", n); err != nil {
		return fmt.Errorf("midge: set concurrency: %w", err)
	}
	r.actors.SetConcurrency(n)
	return nil
}

// ErrGraceExceeded is what Run returns where jobs had not returned a second after the
// grace period, when their contexts ended: their tasks were released, but their
// goroutines may still run.
var ErrGraceExceeded = runner.ErrGraceExceeded

// Run claims tasks and runs their jobs until ctx ends, and drains: it is Start and, when ctx has ended,
// Shutdown without a bound of its own. It returns what Start or Shutdown returned, and earlier where
// the storage is closed meanwhile. Where ctx ends before the runner has started Run returns nil.
func (r *Runner) Run(ctx context.Context) error {
	if err := r.begin(); err != nil {
		return err
	}
	return r.actors.Run(ctx)
}

// Start has the runner claim tasks and run their jobs, and returns once the storage lists it. ctx
// bounds the start alone: the contexts of jobs carry its values but do not end with it. Every Start
// that returned nil wants a [Runner.Shutdown].
//
// Start returns ErrRunning when it, or Run, was called before, or what kept it from starting: the
// storage refused, or did not answer, or more than storage.MaxKinds kinds are registered (an
// *[InvalidError]). A program that is to wait for its storage makes a new runner then.
func (r *Runner) Start(ctx context.Context) error {
	if err := r.begin(); err != nil {
		return err
	}
	return r.actors.Start(ctx)
}

// Shutdown drains the runner: it claims no more, gives back what it claimed ahead, lets running jobs
// finish for the grace period, ends their contexts with ErrShutdown, and releases what is left,
// uncharged. Where ctx ends before the grace period does, that is over at once; Shutdown returns
// within two seconds then. Other calls of it wait too, and have the same answer.
//
// It returns nil after a drain, and for a runner that was not started, or ErrGraceExceeded. A Start that is
// under way ends with an error that wraps ErrShutdown. Tasks
// that could not be settled because the storage was away run again; the log names them, the error
// does not. Where the storage was closed before, the runner has stopped by itself, and the error
// wraps storage.ErrClosed.
func (r *Runner) Shutdown(ctx context.Context) error { return r.actors.Shutdown(ctx) }

// Healthy fails where a loop of the runner stands still, such as one whose line of the log a logger
// does not take: the process should be started anew. It says nothing of the storage, without which
// all loops go on, and is nil before the start and from the drain on. It does no I/O: the answer for
// a liveness probe.
func (r *Runner) Healthy() error { return r.actors.Healthy() }

// Ready fails where the runner claims no tasks now: it is not started yet, drains, or has stopped, the
// last call found the storage away or no heartbeat went through for the time of a lease (an
// [ErrUnavailable]), or it is not Healthy. It does no I/O: the answer for a readiness probe.
func (r *Runner) Ready() error { return r.actors.Ready() }

// step makes one attempt, for a test kit.
func (r *Runner) step(ctx context.Context, want storage.Ref) (runner.Step, error) {
	r.mu.Lock()
	first := !r.steps
	r.mu.Unlock()
	if first {
		if err := r.begin(); err != nil {
			return runner.Step{}, err
		}
		r.mu.Lock()
		r.steps = true
		r.mu.Unlock()
	}
	return r.actors.Step(ctx, want)
}

// begin marks the runner as started, and logs what will not run here.
func (r *Runner) begin() error {
	unserved, err := r.settleQueues()
	if err != nil {
		return err
	}
	for _, line := range unserved {
		r.warn(line)
	}
	if len(r.jobs.handlers) == 0 {
		r.warn("no job is registered: this runner only maintains queues and keeps schedules")
	}
	return nil
}

// maxLine is what a line of names that may be long is cut to.
const maxLine = 8 << 10

// warn logs a line about what will not run here.
func (r *Runner) warn(line string) {
	r.log.Write(slog.LevelWarn, storage.PrintableText(line, maxLine), slog.String("runner", r.ID()))
}

// settleQueues marks the runner as started, settles its queues and says what goes to queues that it
// does not serve.
func (r *Runner) settleQueues() (unserved []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return nil, fmt.Errorf("%w: it can be started once; make a new runner", ErrRunning)
	}
	r.running = true
	if n := len(r.jobs.handlers); n > storage.MaxKinds {
		return nil, fmt.Errorf("midge: start the runner: %w",
			storage.Invalid("kinds", fmt.Sprintf("%d registered", n), "at most %d in a runner", storage.MaxKinds))
	}
	r.jobs.kinds = slices.Sorted(maps.Keys(r.jobs.handlers))
	declared := map[string]int{DefaultQueue: 1}
	for _, h := range r.jobs.handlers {
		declared[h.queue] = 1
	}
	for _, d := range r.actors.Declared() {
		declared[d.Ref.Queue] = 1
	}
	if len(r.queues) == 0 {
		r.queues = slices.Sorted(maps.Keys(declared))
		if len(r.queues) > 1 {
			r.weights = declared
		}
	}
	if err := r.serve("queues", r.queues, r.weights); err != nil {
		return nil, fmt.Errorf("midge: start the runner: %w", err)
	}
	return r.unserved(), nil
}

// unserved says which jobs and schedules go to queues that are not served. The mutex is held.
func (r *Runner) unserved() []string {
	var lines []string
	const not = "queue %s, which this runner does not serve"
	for _, kind := range slices.Sorted(maps.Keys(r.jobs.handlers)) {
		h := r.jobs.handlers[kind]
		if queue := h.queue; kind == h.kind && !slices.Contains(r.queues, queue) {
			lines = append(lines, fmt.Sprintf("jobs of kind %s go to "+not, kind, queue))
		}
	}
	for _, d := range r.actors.Declared() {
		if !slices.Contains(r.queues, d.Ref.Queue) {
			lines = append(lines, fmt.Sprintf("schedule %s enqueues to "+not, schedule.Name(d.Ref), d.Ref.Queue))
		}
	}
	return lines
}

// SetQueues changes the queues that are served, also while the runner runs. With
// weights nil they are served in strict order. Once it has returned no job of a queue that is
// served no more begins: what was claimed there is given back. Jobs that have begun go on.
// [Client.Runners] tells of the change with the next heartbeat, which goes out at once. The log
// warns of the jobs and schedules whose queue is served no more.
func (r *Runner) SetQueues(queues []string, weights map[string]int) error {
	if len(queues) == 0 {
		return fmt.Errorf("midge: set queues: %w", storage.Invalid("queues", "none", "at least one queue"))
	}
	if err := checkQueues("queues", queues, "weights", weights); err != nil {
		return fmt.Errorf("midge: set queues: %w", err)
	}
	unserved, err := r.serveOthers(queues, weights)
	if err != nil {
		return fmt.Errorf("midge: set queues: %w", err)
	}
	for _, line := range unserved {
		r.warn(line)
	}
	return nil
}

// serveOthers has the runner serve other queues and says what goes to those that it serves no
// more. Before Run, which says that itself, it says nothing.
func (r *Runner) serveOthers(queues []string, weights map[string]int) (unserved []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.unserved()
	if err := r.serve("queues", queues, weights); err != nil || !r.running {
		return nil, err
	}
	known := func(line string) bool { return slices.Contains(before, line) }
	return slices.DeleteFunc(r.unserved(), known), nil
}

// serve has the runner serve queues, given under such a name. With the queues of the declared
// schedules they are no more than a runner may name. The mutex is held.
func (r *Runner) serve(what string, queues []string, weights map[string]int) error {
	named := make(map[string]bool, len(queues))
	for _, q := range queues {
		named[q] = true
	}
	for _, d := range r.actors.Declared() {
		named[d.Ref.Queue] = true
	}
	if len(named) > storage.MaxNames {
		return storage.Invalid(what, fmt.Sprintf("%d of them, those of schedules included", len(named)),
			"at most %d", storage.MaxNames)
	}
	r.queues, r.weights = slices.Clone(queues), maps.Clone(weights)
	r.actors.SetQueues(queues, weights)
	return nil
}
