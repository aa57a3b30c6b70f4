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

// envWorker is the environment variable that makes the test binary a worker; it
// holds a workerConfig.
const envWorker = "MIDGE_FAULT_WORKER"

// workerConfig says what a worker process does.
type workerConfig struct {
	Name    string
	Events  string // the file of its record
	Storage dialing
	// Queues that its runner serves; with none it runs no runner.
	Queues      []string
	Concurrency int
	Lease       time.Duration
	Grace       time.Duration
	// Fair shares the claims among the queues alike, where strict order would let the last of
	// them stand still as long as there is more to do than the runners can.
	Fair bool
	// Blind leaves its runner without the kind drift.
	Blind bool
	// Every makes it declare a schedule in its first queue, with catch-up all.
	Every time.Duration
	// Gates that are open from the start.
	Gates []string
	// Death is the storage call at which it kills itself.
	Death death
	// Mortal says that its jobs may kill it.
	Mortal bool
	// Skew puts its clock ahead of the storage's.
	Skew time.Duration
	// Client names what it does as a client, beside its runner: "" or one of
	// clientPrograms.
	Client string
	// IdleExit ends it once its client is done and its queues hold nothing live.
	IdleExit bool
}

// workerProcess is a worker from the inside.
type workerProcess struct {
	cfg   workerConfig
	rec   *recorder
	led   *ledger
	gates *gates
	books *books       // nil but on PostgreSQL
	runs  atomic.Int64 // that are under way
	log   *zap.Logger  // nil logs nothing
}

// workerMain is the main of a worker process and gives its exit code.
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
		go w.obey()
		err = w.run()
		w.rec.record(event{What: workerStopped, Err: text(err)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// obey reads orders from the standard input, which is open for as long as the test
// lives. It ends with the process.
func (w *workerProcess) obey() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if gate, ok := strings.CutPrefix(lines.Text(), "open "); ok {
			w.gates.open(gate)
		}
	}
	os.Exit(9)
}

// run opens the storage and runs the client and the runner until SIGTERM.
func (w *workerProcess) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := w.cfg.Storage.open(ctx)
	for unanswered(err) && ctx.Err() == nil { // as whoever supervises it would try again
		store, err = w.cfg.Storage.open(ctx)
	}
	if ctx.Err() != nil {
		return nil // told to end before it had begun
	}
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if w.cfg.Storage.Kind == onePostgres {
		if w.books, err = openBooks(ctx, w.cfg.Storage, store); err != nil {
			return err
		}
		defer w.books.db.Close()
	}
	seen := store
	if w.cfg.Skew != 0 {
		seen = &skewed{Storage: store, by: w.cfg.Skew}
	}
	w.led = newLedger(w.cfg.Death.of(seen), w.rec)

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

// runRunner runs a runner until ctx ends. One that cannot start because the storage is away is made anew, as
// whoever watches over processes does.
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
		w.rec.record(event{What: runnerStopped, Err: text(err)}) // what outlives the grace period is for the tests to judge
		return nil
	}
}

func (w *workerProcess) newRunner() (*midge.Runner, error) {
	var weights map[string]int
	if w.cfg.Fair {
		weights = make(map[string]int) // each has weight 1
	}
	runner, err := midge.NewRunner(w.led, midge.RunnerConfig{
		Queues: w.cfg.Queues, Weights: weights, Concurrency: w.cfg.Concurrency, Lease: w.cfg.Lease, Grace: w.cfg.Grace,
		Backoff: midge.Constant(50 * time.Millisecond), Logger: w.log, Middleware: []midge.Middleware{w.watch},
	})
	if err != nil {
		return nil, err
	}
	if err := midge.Handle(runner, w.act); err != nil {
		return nil, err
	}
	if err := midge.Handle(runner, func(ctx context.Context, job gale) error { return w.act(ctx, act(job)) }); err != nil {
		return nil, err
	}
	if !w.cfg.Blind {
		if err := midge.Handle(runner, func(ctx context.Context, job drift) error { return w.act(ctx, act(job)) }); err != nil {
			return nil, err
		}
	}
	if err := midge.Handle(runner, w.sell); err != nil {
		return nil, err
	}
	if err := midge.Handle(runner, func(context.Context, tick) error { return nil }); err != nil {
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

// awaitIdle waits until nothing lives in the worker's queues.
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

// watch records the start and end of each run, and the end of its context.
func (w *workerProcess) watch(next func(context.Context) error) func(context.Context) error {
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

// gates are what jobs wait at until the test lets them through.
type gates struct {
	mu    sync.Mutex
	gates map[string]chan struct{}
}

func newGates() *gates { return &gates{gates: make(map[string]chan struct{})} }

// at gives the channel that is closed when the gate is open.
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
