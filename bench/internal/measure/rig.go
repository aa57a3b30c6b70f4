package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/bench/internal/process"
	"github.com/midgehq/midge/bench/internal/server"
	"github.com/midgehq/midge/bench/internal/system"
)

// Rig is what a measurement works with: one system on one server, which is empty.
type Rig struct {
	System system.System
	Server server.Server
	Sizes  Sizes
	// Known gives what was measured before of this system on this server.
	Known func(metric string) (float64, bool)
}

// The usual queue and concurrency.
const (
	defaultQueue = "default"
	concurrency  = 100
)

// target is where a process of the harness works.
type target struct {
	System string
	Place  system.Place
	// ServerPid is the server's process, 0 where there is none.
	ServerPid int
}

func (r *Rig) target() target {
	return target{System: r.System.Name, Place: r.Server.Place(), ServerPid: r.Server.Pid()}
}

func (t target) open(ctx context.Context) (system.Instance, error) {
	s, err := system.Named(t.System)
	if err != nil {
		return nil, err
	}
	return s.Open(ctx, t.Place)
}

// inProcess reports whether the storage is that of the process alone.
func (t target) inProcess() bool { return t.Place.Storage == system.Memory }

// play runs a role in a process of its own until it comes to its end.
func play(ctx context.Context, role string, spec, report any) error {
	child, err := process.Start(ctx, role, spec)
	if err != nil {
		return err
	}
	return child.Wait(report)
}

// payloadSize is how many random bytes a job carries.
const payloadSize = 64

func payload() []byte {
	b := make([]byte, 0, payloadSize)
	for len(b) < payloadSize {
		word := rand.Uint64()
		for range 8 {
			b = append(b, byte(word))
			word >>= 8
		}
	}
	return b
}

// fill enqueues jobs of one queue in the harness's process, in the quickest way that the
// system has.
func (r *Rig) fill(ctx context.Context, queue string, jobs int, due time.Time) error {
	if r.target().inProcess() {
		return nil // the worker's process does it
	}
	instance, err := r.target().open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fill(ctx, instance, queue, jobs, due), instance.Close())
}

// The ways of filling.
const (
	fillers   = 16
	bulkItems = 1000
)

func fill(ctx context.Context, instance system.Instance, queue string, jobs int, due time.Time) error {
	bulk, ok := instance.(system.Bulk)
	if !ok {
		return produce(ctx, fillers, jobs, func() error { return instance.Enqueue(ctx, queue, payload(), due) })
	}
	return enqueueBulk(ctx, bulk, queue, jobs, due)
}

// enqueueBulk enqueues by the thousand.
func enqueueBulk(ctx context.Context, bulk system.Bulk, queue string, jobs int, due time.Time) error {
	for jobs > 0 {
		payloads := make([][]byte, min(jobs, bulkItems))
		for i := range payloads {
			payloads[i] = payload()
		}
		if err := bulk.EnqueueMany(ctx, queue, payloads, due); err != nil {
			return err
		}
		jobs -= len(payloads)
	}
	return nil
}

// produce calls enqueue so many times, by producers that work at once.
func produce(ctx context.Context, producers, jobs int, enqueue func() error) error {
	var left atomic.Int64
	left.Store(int64(jobs))
	errs := make([]error, producers)
	var working sync.WaitGroup
	for i := range producers {
		working.Go(func() {
			for left.Add(-1) >= 0 && errs[i] == nil && ctx.Err() == nil {
				errs[i] = enqueue()
			}
		})
	}
	working.Wait()
	return errors.Join(errors.Join(errs...), ctx.Err())
}

// waits checks that exactly so many jobs wait for a worker.
func (r *Rig) waits(ctx context.Context, queue string, jobs int) error {
	instance, err := r.target().open(ctx)
	if err != nil {
		return err
	}
	totals, err := instance.Totals(ctx, queue)
	if want := (system.Totals{Waiting: int64(jobs)}); err == nil && totals != want {
		err = fmt.Errorf("after the enqueueing the totals are %+v, want %+v", totals, want)
	}
	return errors.Join(err, instance.Close())
}

// workTime is how long a worker may work that pauses after each fetch.
const workTime = 20 * time.Second

// worked is how many of so many jobs a worker with so many slots is given: no more than
// its pauses let it do in workTime.
func (r *Rig) worked(jobs, slots int) int {
	if r.System.Fetch == 0 {
		return jobs
	}
	return min(jobs, slots*int(workTime/r.System.Fetch))
}

// perSecond is a rate.
func perSecond(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

// milliseconds is a time as the table has it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
