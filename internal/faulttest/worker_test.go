//go:build unix

package faulttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// envWorker is the environment variable that makes the test binary run as a worker. It holds a
// workerConfig as JSON.
const envWorker = "MIDGE_FAULT_WORKER"

// workerConfig is the configuration of a worker process.
type workerConfig struct {
	Name    string
	Events  string // the file of its record
	Storage dialing
	// Queues are the queues that its runner serves. If there are none, it runs no runner.
	Queues      []string
	Concurrency int
	Lease       time.Duration
	Grace       time.Duration
	// Fair divides the claims equally among the queues. In strict order the last queue would wait
	// while there is more work than the runners can do.
	Fair bool
	// Declines leaves out the handler of declinedJob.
	Declines bool
	// Every makes it declare a schedule with this interval in its first queue. All missed ticks are
	// made up for.
	Every time.Duration
	// Gates are the gates that are open from the start.
	Gates []string
	// KillAt is the storage call at which the process kills itself.
	KillAt killPoint
	// MayDie means that its jobs may kill the process.
	MayDie bool
	// Skew is how far its clock is ahead of the storage's.
	Skew time.Duration
	// Client names the program that it runs as a client, beside its runner: one of clientPrograms,
	// or "" for none.
	Client string
	// IdleExit ends the process once its client is done and its queues have no live tasks.
	IdleExit bool
}

// workerProcess is the state of a worker inside its own process.
type workerProcess struct {
	cfg         workerConfig
	rec         *recorder
	store       *recordingStorage
	gates       *gates
	orderTables *orderTables // nil except on PostgreSQL
	runs        atomic.Int64 // number of runs under way
	log         *zap.Logger  // nil logs nothing
}

// workerMain is the main function of a worker process. It returns the exit code.
func workerMain(config string) int {
	w := &workerProcess{gates: newGates()}
	err := json.Unmarshal([]byte(config), &w.cfg)
	if err == nil {
		w.rec, err = newRecorder(w.cfg.Name, w.cfg.Events)
	}
	if err == nil {
		lines := zap.NewDevelopmentConfig()
		lines.DisableStacktrace = true
		w.log, err = lines.Build()
	}
	if err == nil {
		for _, g := range w.cfg.Gates {
			w.gates.open(g)
		}
		go w.readCommands()
		go w.recordStarvation()
		err = w.run()
		w.rec.record(event{What: workerStopped, Err: text(err)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// readCommands reads commands from the standard input, which stays open as long as the test lives. When
// it is closed, readCommands ends the process.
func (w *workerProcess) readCommands() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if gate, ok := strings.CutPrefix(lines.Text(), "open "); ok {
			w.gates.open(gate)
		}
	}
	os.Exit(9)
}

// starvedAfter is how late a timer may fire in a process that has a processor. It is a part of the
// shortest lease after which the lease is still extended in time.
const starvedAfter = 300 * time.Millisecond

// recordStarvation records when the process had no processor. It runs as long as the process.
func (w *workerProcess) recordStarvation() {
	const every = 50 * time.Millisecond
	for last := time.Now(); ; {
		<-time.NewTimer(every).C
		now := time.Now()
		if now.Sub(last) > every+starvedAfter {
			w.rec.record(event{What: starved, From: last})
		}
		last = now
	}
}

// run opens the storage and runs the client and the runner until SIGTERM.
func (w *workerProcess) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := w.cfg.Storage.open(ctx)
	for unanswered(err) && ctx.Err() == nil { // try again, as a process supervisor would
		store, err = w.cfg.Storage.open(ctx)
	}
	if ctx.Err() != nil {
		return nil // asked to end before it had begun
	}
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if w.cfg.Storage.Kind == onePostgres {
		if w.orderTables, err = openOrderTables(ctx, w.cfg.Storage, store); err != nil {
			return err
		}
		defer w.orderTables.db.Close()
	}
	seen := store
	if w.cfg.Skew != 0 {
		seen = &skewed{Storage: store, by: w.cfg.Skew}
	}
	w.store = newRecordingStorage(w.cfg.KillAt.of(seen), w.rec)

	ctx, end := context.WithCancel(ctx)
	defer end()
	var client sync.WaitGroup
	var clientErr error
	client.Go(func() {
		if w.cfg.Client != "" {
			clientErr = clientPrograms[w.cfg.Client](ctx, w)
		}
		if w.cfg.IdleExit {
			w.awaitIdle(ctx, store)
			end()
		}
	})
	if len(w.cfg.Queues) > 0 {
		err = w.runRunner(ctx)
	}
	client.Wait()
	if err == nil {
		err = clientErr
	}
	return err
}

// runRunner runs a runner until ctx ends. If the runner cannot start because the storage is
// unavailable, a new runner is made, as a process supervisor would do.
func (w *workerProcess) runRunner(ctx context.Context) error {
	ready := false
	for {
		runner, err := w.newRunner()
		if err != nil {
			return err
		}
		if !ready {
			w.rec.record(event{What: workerReady})
			ready = true
		}
		err = runner.Run(ctx)
		away := errors.Is(err, midge.ErrUnavailable) || errors.Is(err, midge.ErrUnknown)
		if away && ctx.Err() == nil {
			continue
		}
		w.rec.record(event{What: runnerStopped, Err: text(err)}) // the tests check for an exceeded grace period
		return nil
	}
}

func (w *workerProcess) newRunner() (*midge.Runner, error) {
	var weights map[string]int
	if w.cfg.Fair {
		weights = make(map[string]int) // every queue has weight 1
	}
	runner, err := midge.NewRunner(w.store, midge.RunnerConfig{
		Queues: w.cfg.Queues, Weights: weights, Concurrency: w.cfg.Concurrency, Lease: w.cfg.Lease, Grace: w.cfg.Grace,
		Backoff: midge.Constant(50 * time.Millisecond), Logger: w.log, Middleware: []midge.Middleware{w.recordRuns},
	})
	if err != nil {
		return nil, err
	}
	if err := midge.Handle(runner, w.runSteps); err != nil {
		return nil, err
	}
	if err := midge.Handle(runner, func(ctx context.Context, job stormJob) error { return w.runSteps(ctx, stepJob(job)) }); err != nil {
		return nil, err
	}
	if !w.cfg.Declines {
		if err := midge.Handle(runner, func(ctx context.Context, job declinedJob) error { return w.runSteps(ctx, stepJob(job)) }); err != nil {
			return nil, err
		}
	}
	if err := midge.Handle(runner, w.runDurable); err != nil {
		return nil, err
	}
	if err := midge.Handle(runner, w.completeOrder); err != nil {
		return nil, err
	}
	if err := midge.Handle(runner, func(context.Context, tick) error { return nil }); err != nil {
		return nil, err
	}
	if err := midge.Handle(runner, func(context.Context, keptTick) error { return nil }); err != nil {
		return nil, err
	}
	if w.cfg.Every > 0 {
		err := runner.Periodic(midge.Every(w.cfg.Every), tick{}, midge.To(w.cfg.Queues[0]), midge.AllMissed(0))
		if err != nil {
			return nil, err
		}
	}
	return runner, nil
}

// awaitIdle waits until the worker's queues have no live tasks.
func (w *workerProcess) awaitIdle(ctx context.Context, store storage.Storage) {
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		stats, err := store.Stats(ctx, w.cfg.Queues...)
		live := err != nil
		for _, s := range stats {
			live = live || s.Live() > 0
		}
		if !live {
			return
		}
	}
}

// recordRuns is a middleware that records the start and end of each run, and the end of its context.
func (w *workerProcess) recordRuns(next func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		info, _ := midge.Current(ctx)
		note := func(what string, err error) {
			e := event{
				What: what, Ref: info.Ref, Fence: info.Fence, Retries: info.Retries, Crashes: info.Crashes,
				Tick: info.Headers["midge.tick"], Err: text(err),
			}
			if until, ok := ctx.Deadline(); ok && what == runStart {
				e.Begun = until.Add(-noTimeout)
			}
			w.rec.record(e)
		}
		w.runs.Add(1)
		defer w.runs.Add(-1)
		note(runStart, nil)
		noted := make(chan struct{})
		forget := context.AfterFunc(ctx, func() {
			defer close(noted)
			note(ctxDone, context.Cause(ctx))
		})
		err := next(ctx)
		if !forget() {
			<-noted
		}
		note(runEnd, err)
		return err
	}
}

// gates are the points at which jobs wait until the test lets them continue.
type gates struct {
	mu    sync.Mutex
	gates map[string]chan struct{}
}

func newGates() *gates { return &gates{gates: make(map[string]chan struct{})} }

// at returns the channel that is closed when the gate is open.
func (g *gates) at(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates[name] == nil {
		g.gates[name] = make(chan struct{})
	}
	return g.gates[name]
}

func (g *gates) open(name string) {
	gate := g.at(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}
