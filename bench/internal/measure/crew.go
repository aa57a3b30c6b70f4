package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/bench/internal/system"
)

// crew is a worker in this process that counts the jobs that it runs, and a second
// connection to the storage that the worker does not use. It serves one Work.
type crew struct {
	instance system.Instance // opened for the worker
	look     system.Instance
	queues   []string           // whose jobs are counted
	beside   []string           // further queues that the worker serves
	also     []system.Instance  // further workers'
	want     int64              // jobs
	dead     bool               // every job asks to be dead
	counted  func(at time.Time) // called for each start
	others   system.Totals      // of the tasks that were in the queues before; waiting ones count as jobs

	started time.Time
	first   atomic.Int64 // nanoseconds from the start to the first run, 0 before it
	runs    atomic.Int64
	all     chan struct{} // closed when want jobs have run
}

// hire opens the storage twice for a crew, so that its checks share nothing with the
// worker. The memory storage is opened only once. leave closes what was opened.
func (t target) hire(ctx context.Context) (instance, look system.Instance, leave func() error, err error) {
	instance, err = t.open(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if t.inProcess() {
		return instance, instance, instance.Close, nil
	}
	look, err = t.open(ctx)
	if err != nil {
		return nil, nil, nil, errors.Join(err, instance.Close())
	}
	return instance, look, func() error { return errors.Join(instance.Close(), look.Close()) }, nil
}

func newCrew(instance, look system.Instance, want int64, queues ...string) *crew {
	return &crew{instance: instance, look: look, queues: queues, want: want, all: make(chan struct{})}
}

// during runs the workers while action runs. If each is not nil, it is called with every
// payload. The error is action's, or that of a worker that ended before action returned.
func (c *crew) during(
	ctx context.Context, slots int, each func([]byte), action func(context.Context) error,
) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	acting, give := context.WithCancelCause(ctx)
	defer give(nil)
	w := system.Worker{
		Queues: slices.Concat(c.queues, c.beside), Concurrency: slots, Run: c.runner(each), Counted: c.counted,
	}
	var worker sync.WaitGroup
	c.started = time.Now()
	ended := make([]error, 1+len(c.also))
	for i, instance := range append([]system.Instance{c.instance}, c.also...) {
		worker.Go(func() {
			ended[i] = instance.Work(working, w)
			give(errors.Join(errEarly, ended[i]))
		})
	}
	err := action(acting)
	stop()
	worker.Wait()
	if err == nil {
		err = errors.Join(ended...)
	}
	return err
}

// errEarly is the cancellation cause of an action whose worker has ended.
var errEarly = errors.New("the worker ended early")

// runner returns the function of the job, which only counts.
func (c *crew) runner(each func([]byte)) func([]byte) error {
	return func(payload []byte) error {
		if each != nil {
			each(payload)
		}
		if c.first.Load() == 0 {
			c.first.CompareAndSwap(0, int64(time.Since(c.started)))
		}
		if c.runs.Add(1) == c.want {
			close(c.all)
		}
		if c.dead {
			return system.ErrDiscard
		}
		return nil
	}
}

// lookEvery is the pause between two readings of the totals. The readings begin when
// every job has run, so that they do not slow down the measured system.
const lookEvery = time.Millisecond

// settleLimit is how long the last settles may take.
const settleLimit = time.Minute

// settled waits until every job has run and the storage counts it as settled.
func (c *crew) settled(ctx context.Context) error {
	select {
	case <-c.all:
	case <-ctx.Done():
		return fmt.Errorf("%d of %d jobs have run: %w", c.runs.Load(), c.want, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		t, err := c.look.Totals(ctx, c.queues...)
		if err != nil {
			return err
		}
		if t.Completed+t.Dead-c.others.Dead >= c.want && t.Waiting == 0 && t.Pending == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("all have run, and the totals are %+v: %w", t, context.Cause(ctx))
		}
	}
}

// check checks, after the worker has ended, that each job ran once and that the totals
// agree.
func (c *crew) check(ctx context.Context) error {
	if got := c.runs.Load(); got != c.want {
		return fmt.Errorf("%d jobs were enqueued, and there were %d runs", c.want, got)
	}
	t, err := c.look.Totals(ctx, c.queues...)
	if err != nil {
		return err
	}
	t.Later, t.Dead, t.Failed = t.Later-c.others.Later, t.Dead-c.others.Dead, t.Failed-c.others.Failed
	t.Declined -= c.others.Declined
	if c.dead {
		t.Dead, t.Completed, t.Failed = 0, t.Dead, 0
	}
	return t.Check(c.want)
}
