// Package memory is the storage that lives in the process: for tests, for programs
// of one process, and as the reading copy of the contract. What package storage says
// in words stands here in plain Go, and a storage of another kind can be written by
// reading this one beside it.
//
// # The shape
//
// One mutex guards everything, so a step is atomic because nobody else is there, and
// a Tx may span any queues. A step checks everything before it writes anything:
// nothing is ever undone. Nobody waits, sends or does I/O under the mutex, and no
// goroutine runs in the background: what is due, expired or kept too long is seen to
// by the next Claim, as the contract has it. That makes the storage exact under the
// virtual time of testing/synctest, but that an hour in which nobody looked is believed
// only JumpWait later.
//
// # The files
//
//	memory.go    Open, the clock, Close
//	lane.go      which calls happened, and with what outcome
//	sorted.go    the one data structure: values in order, O(log n)
//	task.go      a record, and the copies of it that callers get
//	queue.go     a queue: its states, orders, unique keys, totals; every arrow
//	             between states ends here
//	apply.go     Apply: each Tx checked whole, then written
//	check.go     what stands in the way of a Tx
//	write.go     inserts, changes, deletes
//	settle.go    the ends of a claim: settles and recoveries
//	claim.go     Claim: maintenance, then tasks and ticks
//	extend.go    Extend: leases, and the runners' heartbeats
//	wait.go      Wait, and the wake-ups that end it
//	configure.go settings, and the life of a queue
//	read.go      Task, Tasks, Queues, Stats
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// Config is how a storage is opened. The zero value works.
type Config struct {
	// Limits bounds payloads and what is kept of dead tasks; see storage.Limits for
	// the defaults.
	Limits storage.Limits
	// Now is the wall clock, for tests of clocks that are wrong; nil means time.Now.
	Now func() time.Time
}

// Open makes an empty storage. It gives a *storage.InvalidError where a limit is out
// of range.
func Open(cfg Config) (*Storage, error) {
	if err := cfg.Limits.Check(); err != nil {
		return nil, fmt.Errorf("memory: open: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Storage{
		limits:  cfg.Limits.WithDefaults(),
		clock:   cfg.Now,
		queues:  make(map[string]*queue),
		lanes:   make(map[[16]byte]*lane),
		runners: make(map[string]*runner),
		waiters: make(map[string][]*waiter),
	}, nil
}

// Storage keeps tasks in the memory of this process. It is safe for concurrent use.
type Storage struct {
	limits storage.Limits
	clock  func() time.Time

	mu     sync.Mutex // guards all that follows; nobody waits or does I/O under it
	closed bool
	now    moment // of the step under way, by the clock
	come   moment // up to which the step under way may find things due: now, or 0 in a wait
	mark   moment // the last version, turn or fence; it only grows
	jumped moment // when a wait began because the clock had jumped ahead; 0: none is on
	// Places in the order of a queue: last grows, first shrinks.
	first, last int64

	queues   map[string]*queue
	names    []string // of the queues, sorted
	inspect  int      // which of names is inspected next
	overfull []*queue // those with more dead tasks than the limit
	plan     plan     // of the Tx under way

	lanes      map[[16]byte]*lane
	laneAges   sorted[*lane] // by when they were opened
	runners    map[string]*runner
	runnerEnds sorted[*runner] // by when their heartbeat expires

	events  storage.Since // numbers what Wait may wait for
	waiters map[string][]*waiter
}

var _ storage.Storage = (*Storage)(nil)

// Describe tells the storage's time and limits. Nothing outlives the process.
func (s *Storage) Describe(ctx context.Context) (storage.Description, error) {
	if err := s.look(ctx); err != nil {
		return storage.Description{}, fmt.Errorf("memory: describe: %w", err)
	}
	defer s.mu.Unlock()
	return storage.Description{
		Storage:    "memory",
		Now:        s.now.time(),
		Durability: "none: tasks are lost when the process ends",
		Limits:     s.limits,
		Warnings:   storage.ClockWarnings(s.now.time(), s.mark.time(), s.jumped.time()),
	}, nil
}

// Close ends every Wait and forgets every task. Closing again is harmless.
func (s *Storage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for name := range s.waiters {
		s.wake(name, true)
	}
	s.queues, s.names = nil, nil
	return nil
}

// begin locks the storage for a step that writes, which moves its mark. Where it returns an
// error nothing is locked.
func (s *Storage) begin(ctx context.Context) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	switch { // see JumpAfter
	case s.jumped == 0 && s.mark != 0 && s.now > s.mark.after(storage.JumpAfter):
		s.jumped = s.now
	case s.now < s.jumped, s.now >= s.jumped.after(storage.JumpWait):
		s.jumped = 0
	}
	s.come = s.now
	if s.jumped != 0 {
		s.come = 0
	}
	s.mark = max(s.mark+1, s.now)
	return nil
}

// look locks the storage for reading. It refuses a call whose context has ended, before
// anything happens. Where it returns an error nothing is locked.
func (s *Storage) look(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return storage.ErrClosed
	}
	s.now = momentOf(s.clock())
	return nil
}
