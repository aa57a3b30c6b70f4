// Package system has the job frameworks that are measured, each behind the same few
// calls. A new one is a file here and a line in [All].
package system

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// System is a framework with the settings that it is measured with.
type System struct {
	Name     string
	Storages []string // the names of those that it runs on
	// Tuned says that the settings are not the defaults, and where it takes part.
	Tuned Tuning
	Bulk  bool // its instances are a [Bulk]
	// Fetch is the pause that a worker makes after each fetch, of no more jobs than it has
	// free slots; 0 is none.
	Fetch time.Duration
	// Own is midge: what it alone promises is measured on it alone.
	Own bool
	// Bare is no framework: it takes part where asked for by name, and only in what is
	// done with one queue.
	Bare bool
	// Asked is midge with something around its jobs: it takes part where asked for by name.
	Asked bool
	Open  func(ctx context.Context, at Place) (Instance, error)
}

// Tuning is what the settings of a system are made for.
type Tuning int

// The tunings.
const (
	Untuned   Tuning = iota
	ForPickUp        // it takes part only where pick-up is measured
	ForWork          // it takes part where a worker's rate is measured too
)

// All gives the systems in the order in which they take turns.
func All() []System {
	return []System{
		midgeSystem(), asynqSystem(), asynqTuned(), riverSystem(), riverTuned(), bareSystem(),
		watchedSystem("midge-onend", hooked), watchedSystem("midge-metrics", counted),
		watchedSystem("midge-traces", traced),
	}
}

// Named gives the system of a name.
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

// Place says where a storage is.
type Place struct {
	Storage string
	Addr    string // host and port, a URL of PostgreSQL, a path for SQLite, "" for memory
	// DeadMax is how many dead tasks a queue keeps, 0 being the default. Only midge
	// heeds it.
	DeadMax int
}

// Instance is an opened system. Its methods may be called from several goroutines.
type Instance interface {
	// Enqueue enqueues one job and returns once that is acknowledged. A zero due means now.
	Enqueue(ctx context.Context, queue string, payload []byte, due time.Time) error
	// Work runs a worker until ctx ends and what runs has finished.
	Work(ctx context.Context, w Worker) error
	// Totals sums up queues, by the storage's own counters.
	Totals(ctx context.Context, queues ...string) (Totals, error)
	Close() error
}

// Bulk is an instance that can enqueue many jobs in one call.
type Bulk interface {
	EnqueueMany(ctx context.Context, queue string, payloads [][]byte, due time.Time) error
}

// Kinds is an instance whose queues may have jobs of a second kind, which its workers do not know.
type Kinds interface {
	// Other gives an instance on the same storage that enqueues and runs jobs of the second kind
	// alone. Closing it does nothing.
	Other() Instance
	// Decline adds tasks of the second kind to a queue that a worker of the first has declined,
	// and gives what the totals of the queue gain.
	Decline(ctx context.Context, queue string, n int) (Totals, error)
}

// Worker says how jobs are run. Several queues are served equally.
type Worker struct {
	Queues      []string
	Concurrency int
	Run         func(payload []byte) error
}

// ErrDiscard is what a Worker's Run returns for a job that is to be dead at once.
var ErrDiscard = errors.New("discard")

// Totals are the sizes of queues and what they counted in their lifetime.
type Totals struct {
	Waiting, Pending int64
	Declined         int64 // waiting, of a kind that a worker did not know; Waiting leaves them out
	Later            int64 // scheduled or to be retried
	Dead             int64
	Completed        int64 // settled as completed, over the lifetime
	Failed           int64 // attempts that failed, over the lifetime
}

// Plus adds those of another queue.
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

// Check returns an error unless exactly so many jobs were completed and nothing is left.
func (t Totals) Check(completed int64) error {
	if want := (Totals{Completed: completed}); t != want {
		return fmt.Errorf("the storage's totals are %+v, want %+v", t, want)
	}
	return nil
}
