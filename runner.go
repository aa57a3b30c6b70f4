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
	"github.com/midgehq/midge/storage"
)

// Version is the version of midge.
const Version = "0.1.0"

// DefaultQueue is the queue of jobs and runners that name no queue.
const DefaultQueue = "default"

// These are the other defaults of a runner.
const (
	defaultLease  = 30 * time.Second
	defaultGrace  = 25 * time.Second
	defaultReturn = time.Second
	defaultAhead  = 5 * time.Millisecond
)

// None disables a setting whose zero value means the default: no grace period, no retries, no tasks
// claimed ahead.
const None = -1

// RunnerConfig configures a [Runner]. The zero value works.
type RunnerConfig struct {
	// Queues are the queues to serve, in strict order: the first one is emptied before the second.
	// Default: "default" and the queues of the registered jobs and of the schedules, with equal
	// weights.
	Queues []string
	// Weights shares the claims among the queues by weight, 1 to 1,000,000, instead of in strict
	// order. A queue without a weight has weight 1. Nil keeps strict order.
	Weights map[string]int
	// Concurrency is how many jobs run at once, up to 1,000,000. Default: GOMAXPROCS × 4.
	Concurrency int
	// QueueConcurrency is how many jobs of single queues run at once in this runner, 1 to 1,000,000.
	// A queue without a number may take all of Concurrency. The slots that are left of Concurrency stay
	// free for other queues. It counts tasks that were claimed ahead too. As in Gates and QueueLimits, a queue
	// that is not served yet may have a number, because [Runner.SetQueues] may add it later; at its start the
	// runner warns of it.
	QueueConcurrency map[string]int
	// Gates are functions that report whether jobs of a queue may start now, for example whether a device
	// is free. The runner calls each every two seconds, one call at a time, and the queue is closed until
	// the first call has returned true. A gate that panics, or has not returned when the next call is due,
	// counts as closed, and the log has a warning. While a queue is closed, running jobs go on, and tasks
	// that were claimed ahead are released.
	Gates map[string]func() bool
	// QueueLimits bounds the jobs of single queues over all runners that use the storage: how many run at
	// once, and how many start in a span of time. [Limit.Partition] bounds each partition. The runner stores
	// each limit before it claims the first task of the queue, and checks every third of the lease whether it is
	// still stored. As with a schedule, the limit of a later version of the program replaces the stored one, and
	// an earlier limit returns only if no live runner declares the later one. [Queue.SetLimit] overrides a
	// declared limit. A limit that no program declares any more stays in force until [Queue.ClearLimit].
	QueueLimits map[string]Limit
	// Lease is how long a task belongs to this runner without a heartbeat: default 30 s, at least 1
	// s. The runner sends a heartbeat every third of the lease. If no heartbeat that it sent within
	// the last five sixths of the lease was acknowledged, the context of the job ends with
	// storage.ErrLeaseLost. After a crash it takes one lease before another runner starts the
	// tasks. On SQLite a shorter lease than sqlite.Config.MinLease, by default 10 s, lasts as long as
	// MinLease, without a warning. A runner that has just started takes over no tasks of other
	// runners for three seconds.
	Lease time.Duration
	// Grace is how long running jobs may finish once the runner stops, before their contexts end:
	// default 25 s, None for no time. The jobs then have ReturnWithin to return. Allow a process
	// Grace, ReturnWithin and one second before it is killed.
	Grace time.Duration
	// ReturnWithin is how long jobs may take to return once the end of Grace has ended their contexts:
	// default 1 s. Meanwhile their tasks stay theirs, so that they can store a checkpoint. Raise it if a job
	// has to end another process in an orderly way.
	ReturnWithin time.Duration
	// Ahead bounds the work that may be claimed before a slot is free, as the time that this work
	// will take: default 5 ms, at most a third of the lease; None claims nothing ahead. It matters
	// for jobs shorter than Ahead; slower jobs are never claimed ahead.
	Ahead time.Duration
	// Timeout ends the context of an attempt that takes longer, if neither the job's type nor its task
	// sets a timeout: default none, at least a millisecond.
	Timeout time.Duration
	// Backoff delays the retries of jobs whose type has no backoff. Default: that of the zero
	// Geometric.
	Backoff Backoff
	// Logger gets the lines about starts, stops and attempts, without caller and stack: each line
	// is complete in itself, and the stack of a job's panic is kept with its task. Besides its
	// sentence a line has the field runner and, if they apply, the fields kind, queue, task (the
	// id), attempt, outcome and took. Without Logger and Slog, warnings and errors go to
	// slog.Default. zap.NewNop() logs nothing. A line with which the logger panics is lost; the
	// first one is reported to slog.Default.
	Logger *zap.Logger
	// Slog gets the lines instead of Logger. Its messages leave out the values of the fields:
	// "succeeded", "failed: disk full, retry 1 of 20 in 2s at …". It is an error to set both.
	Slog *slog.Logger
	// SuccessLevel is the level of the lines about successes, for Slog too: default info. A busy
	// runner may use zapcore.DebugLevel.
	SuccessLevel zapcore.Level
	// Middleware wraps each attempt; the first is the outermost.
	Middleware []Middleware
	// EnqueueMiddleware wraps the enqueueing of follow-ups and of the tasks of ticks; the first is the
	// outermost.
	EnqueueMiddleware []EnqueueMiddleware
	// Version names the build of this program, such as v1.4.2. Lists of runners show it, and the
	// charts of the dashboard show a new version as a deploy. Default: the version that Go has
	// built into the program, or the first twelve digits of its revision; without either, "midge "
	// and [Version]. At most 128 bytes.
	Version string
	// OnEnd functions are called with the end of each attempt, once the storage has acknowledged
	// that end, and with the end of tasks that the storage ended by itself during a claim of this
	// runner. Default: none, which costs nothing.
	//
	// For one end, the functions are called one after the other, in their order. The ends come from
	// up to eight goroutines, in no order. The runner does not wait for the calls: ends that come
	// faster than the functions return are kept in memory, so the functions must not block. While
	// 10,000 ends wait, later ones are dropped. The log has one warning when that begins, and one
	// with the number of dropped ends when half of the waiting ones have been reported. The
	// context of the functions ends when Run is about to return. A drain waits for the remaining
	// calls for the rest of the grace period, and for a quarter of a second at least. A panic or a
	// runtime.Goexit is logged, and the functions after it are still called.
	//
	// A runner reports an attempt once at most. An end that its process could not report any more
	// is lost. An attempt that was cut off from the storage may be reported twice: as
	// [OutcomeLeaseLost] by its runner, and as [OutcomeCrashed] by the runner that starts the task
	// again. A crash is reported again if the attempt that followed it was released or throttled.
	OnEnd []func(ctx context.Context, end Ended)
}

// Runner claims tasks and runs their jobs. Make it with [NewRunner], register the jobs, then call
// Run once.
type Runner struct {
	actors *runner.Runner
	jobs   *jobs
	log    runner.Log

	mu      sync.Mutex // guards the fields below
	running bool
	steps   bool              // a test kit makes the attempts instead of Run
	queues  []string          // until the start, none means those of the jobs and schedules
	bounded map[string]string // by queue, the field of RunnerConfig that bounds it
	weights map[string]int
}

// Middleware wraps the run of an attempt. It calls next once, or returns without calling it: a second call
// runs the job again within the attempt, and counts no retry. Its error is the attempt's verdict. [Current]
// returns the information about the task.
//
// If the job panics, next returns a *[PanicError]. If the job succeeded and the middleware
// returns an error all the same, the task has failed: it is retried, and the job runs again. A
// middleware whose own work must not run the job again logs its error and returns nil. A middleware
// that adds to an error wraps it with %w, because midge recognizes [Snooze], [Throttle], [Discard],
// [RetryIn] and undecodable parameters by the type of the error. A task whose kind is not registered with
// this runner does not pass the middleware.
type Middleware func(next func(context.Context) error) func(context.Context) error

// NewRunner checks the configuration and returns a runner on store. It does no I/O. Its errors are
// *[InvalidError].
func NewRunner(store storage.Storage, cfg RunnerConfig) (*Runner, error) {
	if isNil(store) {
		return nil, fmt.Errorf("midge: new runner: %w", storage.Invalid("store", "nil", "an opened storage"))
	}
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("midge: new runner: %w", err)
	}
	log := logOf(&cfg, store)
	jobs := &jobs{handlers: make(map[string]*handler), middleware: cfg.Middleware, backoff: cfg.Backoff}
	jobs.enqueuing = slices.Clone(cfg.EnqueueMiddleware)
	jobs.definitions.verify(store)
	r := &Runner{
		actors: runner.New(runner.Config{
			Store: store, Jobs: jobs, Log: log, Version: cfg.Version, Concurrency: cfg.Concurrency,
			Lease: cfg.Lease, Grace: cfg.Grace, ReturnWithin: cfg.ReturnWithin,
			Ahead: cfg.Ahead, Timeout: cfg.Timeout, OnEnd: tellers(cfg.OnEnd),
			SuccessLevel: slogLevel(cfg.SuccessLevel), QueueConcurrency: cfg.QueueConcurrency, Gates: cfg.Gates,
			QueueLimits: cfg.QueueLimits,
		}),
		jobs: jobs, log: log, queues: cfg.Queues, weights: cfg.Weights, bounded: make(map[string]string),
	}
	for queue := range cfg.Gates {
		r.bounded[queue] = "Gates"
	}
	for queue := range cfg.QueueLimits {
		r.bounded[queue] = "QueueLimits"
	}
	for queue := range cfg.QueueConcurrency {
		r.bounded[queue] = "QueueConcurrency"
	}
	if s, ok := store.(runner.Stepped); ok {
		s.Stepped(r.step, r.jobs.types)
	}
	return r, nil
}

// fill checks the configuration and sets the defaults.
func (c *RunnerConfig) fill() error {
	c.Queues, c.Weights = slices.Clone(c.Queues), maps.Clone(c.Weights)
	c.QueueConcurrency, c.Gates = maps.Clone(c.QueueConcurrency), maps.Clone(c.Gates)
	c.QueueLimits = maps.Clone(c.QueueLimits)
	for queue, l := range c.QueueLimits {
		c.QueueLimits[queue] = wholeLimit(l)
	}
	c.Concurrency = cmp.Or(c.Concurrency, runtime.GOMAXPROCS(0)*4)
	c.Lease = cmp.Or(c.Lease, defaultLease)
	if err := c.check(); err != nil {
		return err
	}
	c.Version = cmp.Or(c.Version, built())
	c.Grace = durationOr(c.Grace, defaultGrace)
	c.Ahead = durationOr(c.Ahead, defaultAhead)
	c.ReturnWithin = cmp.Or(c.ReturnWithin, defaultReturn)
	return nil
}

// check checks the configuration after Concurrency and Lease got their defaults.
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
	if err := checkSpan("RunnerConfig.ReturnWithin", c.ReturnWithin, "0 for the default"); err != nil {
		return err
	}
	if err := c.checkBounds(); err != nil {
		return err
	}
	if err := enqueueChain(c.EnqueueMiddleware).check("RunnerConfig.EnqueueMiddleware"); err != nil {
		return err
	}
	return checkDurationOrNone("RunnerConfig.Grace", c.Grace)
}

// checkBounds checks the bounds of single queues.
func (c *RunnerConfig) checkBounds() error {
	for _, queue := range slices.Sorted(maps.Keys(c.QueueConcurrency)) {
		n := c.QueueConcurrency[queue]
		if err := checkQueueConcurrency("RunnerConfig.QueueConcurrency", queue, n); err != nil {
			return err
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(c.QueueLimits)) {
		if err := checkQueue("name in RunnerConfig.QueueLimits", queue); err != nil {
			return err
		}
		what, l := fmt.Sprintf("RunnerConfig.QueueLimits[%q]", queue), c.QueueLimits[queue]
		if l.IsZero() {
			return storage.Invalid(what, "the zero Limit", "a Concurrency, a Rate or a Partition")
		}
		if err := storage.CheckLimit(what, l); err != nil {
			return err
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(c.Gates)) {
		if err := checkQueue("name in RunnerConfig.Gates", queue); err != nil {
			return err
		}
		if c.Gates[queue] == nil {
			return storage.Invalid(fmt.Sprintf("RunnerConfig.Gates[%q]", queue), "nil", "a function")
		}
	}
	return nil
}

func checkQueueConcurrency(what, queue string, n int) error {
	if err := checkQueue("name in "+what, queue); err != nil {
		return err
	}
	return checkRange(fmt.Sprintf("%s[%q]", what, queue), n, 1, mostAtOnce, "")
}

// built names the build of this program as Go does: by its version, or by the first digits of its
// revision if the version contains only these.
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

// durationOr returns d, byDefault for a d of 0, and 0 for None.
func durationOr(d, byDefault time.Duration) time.Duration {
	if d == None {
		return 0
	}
	return cmp.Or(d, byDefault)
}

// mostAtOnce bounds the concurrency of a runner, and the weight of a queue.
const mostAtOnce = 1_000_000

func checkConcurrency(what string, n int) error { return checkRange(what, n, 1, mostAtOnce, "") }

// ErrRunning is returned by functions that must be called before the runner is started, and by a
// second Run or Start.
var ErrRunning = errors.New("midge: the runner has been started")

// add registers a handler for its kinds.
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

// ID returns the runner's id, as tasks and lists of runners show it.
func (r *Runner) ID() string { return r.actors.ID() }

// SetConcurrency changes how many jobs run at once, 1 to 1,000,000, also while the runner runs.
// With a higher limit, tasks that were claimed ahead start at once; with a lower limit, running
// jobs still finish.
func (r *Runner) SetConcurrency(n int) error {
	if err := checkConcurrency("concurrency", n); err != nil {
		return fmt.Errorf("midge: set concurrency: %w", err)
	}
	r.actors.SetConcurrency(n)
	return nil
}

// SetQueueConcurrency changes how many jobs of a queue run at once in this runner, 1 to 1,000,000, also while
// the runner runs; None removes the limit. With a lower limit, tasks of the queue that the runner has claimed
// still run. See RunnerConfig.QueueConcurrency.
func (r *Runner) SetQueueConcurrency(queue string, n int) error {
	most := n
	if n == None {
		n, most = 1, 0
	}
	if err := checkQueueConcurrency("concurrency", queue, n); err != nil {
		return fmt.Errorf("midge: set queue concurrency: %w", err)
	}
	r.actors.SetQueueConcurrency(queue, most)
	return nil
}

// ErrGraceExceeded is returned by Run if jobs had not returned within RunnerConfig.ReturnWithin after
// their contexts ended with the grace period. Their tasks were released, but their goroutines may still run.
var ErrGraceExceeded = runner.ErrGraceExceeded

// Run claims tasks and runs their jobs until ctx ends, and then drains. It is Start followed, when
// ctx has ended, by a Shutdown without a bound of its own. It returns the error of Start or
// Shutdown; if the storage is closed meanwhile, it returns earlier. If ctx ends or Shutdown is
// called before the runner has started, Run returns nil.
func (r *Runner) Run(ctx context.Context) error {
	switch err := r.begin(); {
	case errors.Is(err, ErrShutdown):
		return nil
	case err != nil:
		return err
	}
	return r.actors.Run(ctx)
}

// Start makes the runner claim tasks and run their jobs, and returns once the storage lists the
// runner. ctx bounds only the start: the contexts of jobs carry its values but do not end with it.
// Every Start that returned nil needs a [Runner.Shutdown].
//
// Start returns ErrRunning after an earlier call of Start or Run, and an error that wraps
// ErrShutdown if Shutdown was called before, or is called meanwhile. Its other errors name the cause that
// kept the runner from starting: the storage refused or did not answer, or more than storage.MaxKinds kinds
// are registered (an *[InvalidError]). To wait for its storage, a program then makes a new runner.
func (r *Runner) Start(ctx context.Context) error {
	if err := r.begin(); err != nil {
		return err
	}
	return r.actors.Start(ctx)
}

// Shutdown drains the runner. The runner claims no more tasks, releases the tasks that it claimed ahead, lets
// running jobs finish for the grace period, then ends their contexts with ErrShutdown, and releases the
// remaining tasks without counting a retry. If ctx ends before the grace period, that period is over at
// once, and Shutdown returns within RunnerConfig.ReturnWithin and one second. Further calls of Shutdown wait
// too, and return the same error.
//
// Shutdown returns nil after a drain, or ErrGraceExceeded. For a runner that was not started it
// returns nil at once, and the runner never starts: a Start that is under way or follows returns an
// error that wraps ErrShutdown, and Run returns nil. Tasks that could not be settled
// because the storage was away run again; the log names them, the error does not. If the storage
// was closed before, the runner has stopped by itself, and the error wraps storage.ErrClosed.
func (r *Runner) Shutdown(ctx context.Context) error { return r.actors.Shutdown(ctx) }

// Healthy returns an error if a loop of the runner stands still, for example because a logger
// does not accept a line of the log. The process should then be started anew. It ignores the state
// of the storage, without which all loops go on, and returns nil before the start and from the
// drain on. It does no I/O, so that it suits a liveness probe.
func (r *Runner) Healthy() error { return r.actors.Healthy() }

// Ready returns an error if the runner claims no tasks now: it is not started yet, drains, or
// has stopped; the last call found the storage away, or no heartbeat was acknowledged for the time
// of a lease (an [ErrUnavailable]); the storage is full, so that nothing can be enqueued (an [ErrFull]), of
// which the runner asks it with every third heartbeat; or it is not Healthy. It does no I/O, so that it
// suits a readiness probe.
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

// begin marks the runner as started, and logs the jobs and schedules that will not run here. It
// returns an ErrShutdown, and marks nothing, if Shutdown was called before.
func (r *Runner) begin() error {
	if err := r.actors.MayStart(); err != nil {
		return err
	}
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

// maxLine bounds a log line that lists names, in bytes.
const maxLine = 8 << 10

// warn logs a warning about jobs or schedules that will not run here.
func (r *Runner) warn(line string) {
	r.log.Write(slog.LevelWarn, storage.PrintableText(line, maxLine), slog.String("runner", r.ID()))
}
