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

// Rig is the environment of a measurement: one system on one empty server.
type Rig struct {
	System system.System
	Server server.Server
	Sizes  Sizes
	// Known returns the earlier result of a metric for this system on this server, if there
	// is one.
	Known func(metric string) (float64, bool)
}

// The usual queue and concurrency.
const (
	defaultQueue = "default"
	concurrency  = 100
)

// target is the system and storage that a process of the harness works on.
type target struct {
	System string
	Place  system.Place
	// ServerPid is the server's process id, 0 if there is no server.
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

// inProcess reports whether each process has a storage of its own.
func (t target) inProcess() bool { return t.Place.Storage == system.Memory }

// play runs a role in a process of its own, waits until it ends and reads its report.
func play(ctx context.Context, role string, spec, report any) error {
	child, err := process.Start(ctx, role, spec)
	if err != nil {
		return err
	}
	return child.Wait(report)
}

// payloadSize is the number of random bytes in a job.
const payloadSize = 64

func payload() []byte { return randomBytes(payloadSize) }

func randomBytes(n int) []byte {
	b := make([]byte, 0, n)
	for len(b) < n {
		word := rand.Uint64()
		for range 8 {
			b = append(b, byte(word))
			word >>= 8
		}
	}
	return b
}

// fill enqueues jobs of one queue from the harness's process, in the fastest way that
// the system has.
func (r *Rig) fill(ctx context.Context, queue string, jobs int, due time.Time) error {
	if r.target().inProcess() {
		return nil // the worker's process fills its own storage
	}
	instance, err := r.target().open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fill(ctx, instance, queue, jobs, due), instance.Close())
}

// The number of producers that fill one by one, and of jobs in a bulk call.
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

// enqueueBulk enqueues jobs in calls of a thousand.
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

// produce calls enqueue as often as there are jobs, from several goroutines.
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

// holds checks that the totals of a queue are exactly these.
func (r *Rig) holds(ctx context.Context, queue string, want system.Totals) error {
	instance, err := r.target().open(ctx)
	if err != nil {
		return err
	}
	totals, err := instance.Totals(ctx, queue)
	if err == nil && totals != want {
		err = fmt.Errorf("after the enqueueing the totals are %+v, want %+v", totals, want)
	}
	return errors.Join(err, instance.Close())
}

// workTime is how long a worker may work that pauses after each fetch.
const workTime = 20 * time.Second

// worked returns how many of the jobs a worker with the given slots gets: no more than
// its pauses let it do in workTime.
func (r *Rig) worked(jobs, slots int) int {
	if r.System.Fetch == 0 {
		return jobs
	}
	return min(jobs, slots*int(workTime/r.System.Fetch))
}

// perSecond returns a rate per second.
func perSecond(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

// milliseconds returns a time in the unit of the table.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// microseconds returns a time for each of n jobs in the unit of the table.
func microseconds(d time.Duration, n int) float64 { return d.Seconds() * 1e6 / float64(n) }
