package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/midgehq/midge/bench/internal/process"
	"github.com/midgehq/midge/bench/internal/system"
)

// limiter is an instance whose queues can have a limit. It is declared here, so that the guard can measure a
// reference without limits.
type limiter interface {
	// Limit sets the limit of a queue.
	Limit(ctx context.Context, queue string, b system.Bounds) error
}

// limit sets the limit of some queues.
func limit(ctx context.Context, instance system.Instance, b system.Bounds, queues ...string) error {
	own, ok := instance.(limiter)
	if !ok {
		return errors.New("the system has no limits of queues")
	}
	for _, queue := range queues {
		if err := own.Limit(ctx, queue, b); err != nil {
			return err
		}
	}
	return nil
}

// limitSpec is the specification of a process that measures how soon jobs start that a limit holds back.
type limitSpec struct {
	Target target
	Bounds system.Bounds
	Tasks  int // the first of which the limit admits at once
}

// The parts of the measurements.
const (
	freeSlots  = 10                      // the Concurrency of the limit; one worker has all slots
	freeLong   = 20 * time.Millisecond   // how long a job takes at most
	otherSlots = 200                     // the same; one worker has them, another waits for them
	otherOver  = 5 * time.Second         // the time over which it frees them
	otherRest  = 2 * time.Second         // for which the other worker has found no free slot before
	rateStarts = 50                      // in any span of ratePer
	ratePer    = 1280 * time.Millisecond // a 64th of it is 20 ms
)

// slotSame measures how soon the next job of a queue at its limit starts after a job of the same worker has
// returned.
func slotSame(ctx context.Context, r *Rig) (Values, error) {
	w, err := r.withheld(ctx, "slot", system.Bounds{Concurrency: freeSlots}, freeSlots+r.Sizes.Samples)
	return Values{"slot_p99": milliseconds(w.P99)}, err
}

// slotOther measures how soon a worker starts a job after a job of another worker, which takes no more, has
// returned.
func slotOther(ctx context.Context, r *Rig) (Values, error) {
	w, err := r.withheld(ctx, "slot-other", system.Bounds{Concurrency: otherSlots}, 2*otherSlots)
	return Values{"slot_other_p99": milliseconds(w.P99)}, err
}

// rateNext measures how soon a job starts after the moment from which the rate of its queue admits it,
// which is Per after the start that it follows by as many starts as the rate admits.
func rateNext(ctx context.Context, r *Rig) (Values, error) {
	b := system.Bounds{Starts: rateStarts, Per: ratePer}
	w, err := r.withheld(ctx, "rate", b, rateStarts+r.Sizes.Samples)
	return Values{"rate_p99": milliseconds(w.P99), "rate_worst": milliseconds(w.Worst)}, err
}

// withheld plays a role that measures how soon jobs start that a limit has held back.
func (r *Rig) withheld(ctx context.Context, role string, b system.Bounds, tasks int) (p pickup, err error) {
	err = play(ctx, role, limitSpec{Target: r.target(), Bounds: b, Tasks: tasks}, &p)
	return p, err
}

// limited is a worker of a queue with a limit, with the times at which its jobs start, at which the storage
// counts them, and at which they end.
type limited struct {
	limitSpec

	instance, look        system.Instance
	crew                  *crew
	epoch                 time.Time
	starts, counted, ends *log
}

// limitRole returns a role that runs jobs of a queue with a limit. late returns how late the jobs start
// that the limit has held back, and by how much they come after the moment before which the limit admits
// none.
func limitRole(
	run func(*limited, context.Context) error, late func(*limited) (late, past []time.Duration),
) process.Role {
	return func(ctx context.Context, text []byte, _ func()) (any, error) {
		var l limited
		if err := json.Unmarshal(text, &l.limitSpec); err != nil {
			return nil, err
		}
		instance, look, leave, err := l.Target.hire(ctx)
		if err != nil {
			return nil, err
		}
		l.instance, l.look, l.crew = instance, look, newCrew(instance, look, int64(l.Tasks), defaultQueue)
		l.epoch, l.starts, l.counted, l.ends = time.Now(), newLog(l.Tasks), newLog(l.Tasks), newLog(l.Tasks)
		if err = run(&l, ctx); err == nil {
			err = l.crew.check(ctx)
		}
		times, past := late(&l)
		if len(past) > 0 && slices.Min(past) < 0 {
			err = errors.Join(err, fmt.Errorf("a job started %v before the limit admits it", -slices.Min(past)))
		}
		slices.Sort(times)
		return pickup{P99: percentile(times, 0.99), Worst: percentile(times, 1)}, errors.Join(err, leave())
	}
}

// prepare enqueues jobs and sets the limit of their queue.
func (l *limited) prepare(ctx context.Context, jobs int) error {
	if err := fill(ctx, l.look, defaultQueue, jobs, time.Time{}); err != nil {
		return err
	}
	return limit(ctx, l.look, l.Bounds, defaultQueue)
}

// slots runs one worker, whose jobs take some time.
func (l *limited) slots(ctx context.Context) error {
	if err := l.prepare(ctx, l.Tasks); err != nil {
		return err
	}
	each := func([]byte) {
		l.starts.note(time.Since(l.epoch))
		time.Sleep(rand.N(freeLong))
		l.ends.note(time.Since(l.epoch))
	}
	return l.crew.during(ctx, concurrency, each, l.crew.settled)
}

// otherSlots runs a worker that fills all slots and then takes no more jobs, because it has been asked to
// end, and beside it another worker, whose jobs run until it has filled all slots.
func (l *limited) otherSlots(ctx context.Context) error {
	if err := l.prepare(ctx, l.Tasks); err != nil {
		return err
	}
	slots := l.Bounds.Concurrency
	working, free := context.WithCancel(ctx)
	held, release := context.WithCancel(ctx)
	defer release()
	first := system.Worker{Queues: l.crew.queues, Concurrency: slots, Run: l.crew.runner(func([]byte) {
		l.starts.note(time.Since(l.epoch))
		<-working.Done()
		time.Sleep(rand.N(otherOver))
		l.ends.note(time.Since(l.epoch))
	})}
	ended := make(chan error, 1)
	go func() { ended <- l.instance.Work(working, first) }() // awaited below
	err := l.starts.reaches(ctx, int64(slots))
	if err == nil {
		l.crew.instance = l.look
		second := func([]byte) {
			l.starts.note(time.Since(l.epoch))
			<-held.Done()
		}
		err = l.crew.during(ctx, slots, second, func(ctx context.Context) error {
			err := until(ctx, time.Now().Add(otherRest))
			free()
			if err == nil {
				err = l.starts.reaches(ctx, int64(l.Tasks))
			}
			release()
			return errors.Join(err, l.crew.settled(ctx))
		})
	}
	free()
	return errors.Join(err, <-ended)
}

// freed returns how long each slot was free: from the end of a job to the start of the job that took the
// slot.
func (l *limited) freed() (late, past []time.Duration) {
	late = behind(l.starts, l.ends, l.Bounds.Concurrency, 0)
	return late, late
}

// rate runs one worker. The first jobs are enqueued one after the other, so that the moments of the next
// starts are spread over Per.
func (l *limited) rate(ctx context.Context) error {
	if err := l.prepare(ctx, 1); err != nil { // the limit is that of an existing queue
		return err
	}
	first := l.Bounds.Starts - 1
	each := func([]byte) { l.starts.note(time.Since(l.epoch)) }
	l.crew.counted = func(at time.Time) { l.counted.note(at.Sub(l.epoch)) }
	return l.crew.during(ctx, concurrency, each, func(ctx context.Context) error {
		next := time.Now()
		for range first {
			if err := until(ctx, next); err != nil {
				return err
			}
			next = next.Add(l.Bounds.Per / time.Duration(l.Bounds.Starts))
			if err := l.look.Enqueue(ctx, defaultQueue, payload(), time.Time{}); err != nil {
				return err
			}
		}
		if err := fill(ctx, l.look, defaultQueue, l.Tasks-1-first, time.Time{}); err != nil {
			return err
		}
		return l.crew.settled(ctx)
	})
}

// next returns how long after the moment from which the rate admits it each job started, and was counted.
func (l *limited) next() (late, past []time.Duration) {
	n, per := l.Bounds.Starts, l.Bounds.Per
	return behind(l.starts, l.counted, n, per), behind(l.counted, l.counted, n, per)
}

// behind compares each later time with the earlier time that stands so many places before it in the order of
// the starts. It returns how much longer than the span each of these pairs is apart.
func behind(later, earlier *log, places int, span time.Duration) (by []time.Duration) {
	to, from := later.sorted(0), earlier.sorted(0)
	for i := 0; i < len(from) && i+places < len(to); i++ {
		by = append(by, to[i+places]-from[i]-span)
	}
	return by
}
