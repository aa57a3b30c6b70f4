// Package system holds the job frameworks that are measured, each behind the same few calls. To
// add one, add a file here and a line in [All].
package system

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// System is a framework with the settings with which it is measured.
type System struct {
	Name     string
	Storages []string // the names of the storages that it runs on
	// Tuned holds whether the settings differ from the defaults, and decides in which
	// measurements the system takes part.
	Tuned Tuning
	Bulk  bool // its instances implement [Bulk]
	// Fetch is the pause that a worker makes after each fetch, in which it fetches no more jobs than
	// it has free slots. 0 means no pause.
	Fetch time.Duration
	// Own means that the system is midge. Some measurements are only for midge.
	Own bool
	// Bare means that the system is not a framework. It takes part only if it is asked for by name,
	// and only in measurements with one queue.
	Bare bool
	// Asked means that the system is midge with something around its jobs. It takes part only if it
	// is asked for by name.
	Asked bool
	Open  func(ctx context.Context, at Place) (Instance, error)
}

// Tuning is the purpose of a system's settings.
type Tuning int

// The tunings.
const (
	Untuned   Tuning = iota
	ForPickUp        // the system takes part only in measurements of pick-up
	ForWork          // the system also takes part in measurements of a worker's rate
)

// Named returns the system with a name.
func Named(name string) (System, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return System{}, fmt.Errorf("no system is named %q", name)
}

// The storages' names.
const (
	Redis    = "redis"
	Memory   = "memory"
	Postgres = "postgres"
	SQLite   = "sqlite"
)

// Place is the address of a storage.
type Place struct {
	Storage string
	Addr    string // host and port, a URL of PostgreSQL, a path for SQLite, "" for memory
	// DeadMax is how many dead tasks a queue keeps; 0 means the default. Only midge uses it.
	DeadMax int
}

// Instance is an opened system. Its methods may be called from several goroutines.
type Instance interface {
	// Enqueue enqueues one job and returns when it is acknowledged. A zero due means now.
	Enqueue(ctx context.Context, queue string, payload []byte, due time.Time) error
	// Work runs a worker until ctx ends and the running jobs have finished.
	Work(ctx context.Context, w Worker) error
	// Totals returns the sum over queues, by the storage's own counters.
	Totals(ctx context.Context, queues ...string) (Totals, error)
	Close() error
}

// Bulk is an instance that can enqueue many jobs in one call.
type Bulk interface {
	EnqueueMany(ctx context.Context, queue string, payloads [][]byte, due time.Time) error
}

// Kinds is an instance whose queues may hold jobs of a second kind, which its workers do not
// know.
type Kinds interface {
	// Other returns an instance on the same storage that enqueues and runs only jobs of the second
	// kind. Closing it does nothing.
	Other() Instance
	// Decline adds n tasks of the second kind to a queue, which a worker of the first kind has
	// declined, and returns by how much the totals of the queue grow.
	Decline(ctx context.Context, queue string, n int) (Totals, error)
}

// Fleet is an instance that can count its living workers.
type Fleet interface {
	// Alive returns the number of workers that the storage lists as alive.
	Alive(ctx context.Context) (int, error)
}

// Worker describes how jobs are run. It serves several queues equally.
type Worker struct {
	Queues      []string
	Concurrency int
	Run         func(payload []byte) error
	// Counted, if it is not nil, is called for each start with the moment at which the storage has counted it.
	// Only midge calls it.
	Counted func(at time.Time)
}

// Bounds bound the jobs of a queue over all its workers. The zero Bounds set no bound.
type Bounds struct {
	Concurrency int           // jobs that run at once
	Starts      int           // in any span of Per
	Per         time.Duration // set together with Starts
	Each        int           // jobs of each partition that run at once
}

// ErrDiscard is the error that a Worker's Run returns for a job that must become dead at once.
var ErrDiscard = errors.New("discard")

// Totals are the sizes of queues and their lifetime counters.
type Totals struct {
	Waiting, Pending int64
	Declined         int64 // waiting, of a kind that a worker did not know; not part of Waiting
	Later            int64 // scheduled or to be retried
	Dead             int64
	Completed        int64 // settled as completed, over the lifetime
	Failed           int64 // attempts that failed, over the lifetime
}

// Plus returns the sum with the totals of another queue.
func (t Totals) Plus(other Totals) Totals {
	t.Waiting += other.Waiting
	t.Declined += other.Declined
	t.Pending += other.Pending
	t.Later += other.Later
	t.Dead += other.Dead
	t.Completed += other.Completed
	t.Failed += other.Failed
	return t
}

// Check returns an error unless exactly the given number of jobs were completed and nothing is
// left.
func (t Totals) Check(completed int64) error {
	if want := (Totals{Completed: completed}); t != want {
		return fmt.Errorf("the storage's totals are %+v, want %+v", t, want)
	}
	return nil
}
