// Package memory is the storage that lives in the process: for tests, for programs
// of one process, and as the implementation that shows the contract to readers. Its rules
// stand in storage/internal/engine, which PostgreSQL shares; this package keeps the
// records. Authors of a new storage need to read only these two packages.
//
// # The shape
//
// One mutex guards everything, so each step is atomic, and a Tx may span any queues.
// A step checks everything before it writes anything: nothing is ever undone. No code
// waits, sends or does I/O under the mutex, and no goroutine runs in the background:
// the next Claim promotes, recovers and removes tasks, as the contract states. That makes
// the storage exact under the virtual time of testing/synctest, with one exception:
// after more than JumpAfter without a step, timed work happens only JumpWait later.
//
// # The files
//
//	memory.go    Open, the clock, Close
//	clone.go     Clone
//	lane.go      the last call of each lane, and its outcome
//	sorted.go    the only data structure: values in order, O(log n)
//	records.go   queues with their records, lines and unique keys, for the engine
//	apply.go     Apply
//	claim.go     Claim: maintenance, then tasks and ticks
//	extend.go    Extend: leases, and the runners' heartbeats
//	wait.go      Wait, and the events that end it
//	configure.go settings, and the life of a queue
//	read.go      Task, Tasks, Queues, Stats
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// Config holds the options of Open. A field that is zero means its default.
type Config struct {
	// Limits bounds payloads, the keeping of dead tasks, and how long declined tasks
	// wait; see storage.Limits for the defaults.
	Limits storage.Limits
	// Now is the wall clock, for tests of clocks that are wrong; nil means time.Now.
	Now func() time.Time
}

// Open makes an empty storage. It returns a *storage.InvalidError if a limit is out of
// range.
func Open(cfg Config) (*Storage, error) {
	if err := cfg.Limits.Check(); err != nil {
		return nil, fmt.Errorf("memory: open: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return empty(cfg.Now, cfg.Limits.WithDefaults()), nil
}

// empty returns an empty storage with a clock and limits.
func empty(now func() time.Time, limits storage.Limits) *Storage {
	s := &Storage{
		clock:   now,
		queues:  make(map[string]*queue),
		lanes:   make(map[[16]byte]*lane),
		runners: make(map[string]*runner),
	}
	own := (*records)(s)
	s.step = engine.Step{Store: own, Lines: own, Local: own, Limits: limits}
	return s
}

// Storage keeps tasks in the memory of this process. It is safe for concurrent use.
type Storage struct {
	clock func() time.Time

	mu     sync.Mutex // guards the fields below; no waiting and no I/O under it
	closed bool
	step   engine.Step // the step under way; its limits never change
	seen   int64       // the clock's time at the last step that wrote

	queues  map[string]*queue
	names   []string         // of the queues, sorted
	inspect int              // the index in names of the queue that was inspected last
	taken   []*engine.Record // memory for the next claim

	lanes      map[[16]byte]*lane
	laneAges   sorted[*lane] // by when they were opened
	runners    map[string]*runner
	runnerEnds sorted[*runner] // by when their heartbeat expires

	events wakeup.Stream
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Located = (*Storage)(nil)
)

// Location names this storage, since no other has its tasks.
func (s *Storage) Location() string { return fmt.Sprintf("memory at %p", s) }

// Describe returns the storage's time and limits, and reports that no task outlives the process.
func (s *Storage) Describe(ctx context.Context) (storage.Description, error) {
	if err := s.look(ctx); err != nil {
		return storage.Description{}, fmt.Errorf("memory: describe: %w", err)
	}
	defer s.mu.Unlock()
	return storage.Description{
		Storage:    "memory",
		Now:        engine.Time(s.step.Now),
		Durability: "none: tasks are lost when the process ends",
		Limits:     s.step.Limits,
		Warnings: storage.ClockWarnings(
			engine.Time(s.step.Now), engine.Time(s.step.Mark), engine.Time(s.step.Jumped)),
	}, nil
}

// Close ends every Wait and forgets every task. Closing again is harmless.
func (s *Storage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.events.Close()
	s.queues, s.names = nil, nil
	return nil
}

// begin locks the storage for a step that writes, and advances its mark. It returns the lane of the call,
// nil for a call without an identity, and reports repeated if the lane remembers this call. If it returns
// an error, nothing is locked.
func (s *Storage) begin(
	ctx context.Context, call storage.Call, verb engine.Verb,
) (ln *lane, repeated bool, err error) {
	if err := s.look(ctx); err != nil {
		return nil, false, err
	}
	s.step.Begin(s.step.Now, s.seen)
	s.seen = s.step.Now
	ln, repeated, err = s.admit(call, verb)
	if err != nil {
		s.mu.Unlock()
	}
	return ln, repeated, err
}

// look locks the storage for reading. It refuses a call whose context has ended, before
// anything happens. If it returns an error, nothing is locked.
func (s *Storage) look(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return storage.ErrClosed
	}
	s.step.Now = engine.Moment(s.clock())
	return nil
}

// at returns a place in an order of moments, after all other places of that moment.
func (s *Storage) at(moment int64) place {
	s.step.Turn++
	return place{Sort: moment, Turn: s.step.Turn}
}
