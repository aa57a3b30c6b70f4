package dashboard

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// sample is what a look at the storage found. It is not changed once it is made.
type sample struct {
	at      time.Time     // by this process's clock
	acts    int64         // before it, of this process
	skew    time.Duration // how far the storage's clock was ahead of it
	trip    time.Duration
	queues  []queueNow // by name, without those of midge's own
	byName  map[string]*queueNow
	runners []storage.RunnerInfo
	serving map[string]*serving // by queue
	// readRunners counts how often the runners were read.
	readRunners int
	kinds       []string // those that live runners know, by name
	info        storage.Description
	// schedules are those of all queues, the next first.
	schedules []scheduleNow
	// hour is the history of the last hour, nil where it cannot be read.
	hour *ledger.Series
	dead *deadGroups
	// then is what queues were some seconds before, for forecasts, and later what is to be in its place; nil
	// where that is not known.
	then, later *past

	// err says why the storage did not answer, and lost since when: the rest is of the look before.
	err  error
	lost time.Time
}

// past is what the queues were at a moment.
type past struct {
	at     time.Time // by this process's clock
	queues map[string]storage.Stats
}

// pastFor is how far a forecast looks back, at least.
const pastFor = 10 * time.Second

// remember gives a sample that follows this one what queues were: pastFor before it, where this process has
// looked for as long.
func (s *sample) remember(fresh *sample) {
	switch {
	case s == nil:
	case s.later == nil:
		fresh.later = s.past()
		fresh.then = fresh.later
	case fresh.at.Sub(s.later.at) < pastFor:
		fresh.then, fresh.later = s.then, s.later
	default:
		fresh.then, fresh.later = s.later, s.past()
	}
}

// past is what the queues were in this sample.
func (s *sample) past() *past {
	p := &past{at: s.at, queues: make(map[string]storage.Stats, len(s.queues))}
	for i := range s.queues {
		p.queues[s.queues[i].Queue] = s.queues[i].Stats
	}
	return p
}

// before gives what a queue was some seconds before the sample, by the storage's clock, and none where that
// is not known.
func (s *sample) before(queue string) []storage.Sample {
	if s.then == nil {
		return nil
	}
	stats, ok := s.then.queues[queue]
	if !ok {
		return nil
	}
	return []storage.Sample{{At: s.then.at.Add(s.skew), Stats: stats}}
}

// outlook tells when the backlog of a queue is gone.
func (s *sample) outlook(q *queueNow) storage.Outlook {
	before := s.before(q.Queue)
	if before == nil {
		return storage.Outlook{Backlog: q.Waiting}
	}
	return storage.Forecast(before[0], storage.Sample{At: s.at.Add(s.skew), Stats: q.Stats})
}

// gone says when the backlog of all queues is gone.
func (s *sample) gone() string {
	var longest time.Duration
	var still *queueNow // the largest that does not shrink
	known := true
	for i := range s.queues {
		q := &s.queues[i]
		o := s.outlook(q)
		switch {
		case q.Waiting == 0:
		case q.Paused || o.Known && o.Gone < 0:
			if still == nil || q.Waiting > still.Waiting {
				still = q
			}
		case !o.Known:
			known = false
		default:
			longest = max(longest, o.Gone)
		}
	}
	switch {
	case still != nil && still.Paused:
		return "tasks wait; " + format.Middle(still.Queue) + " is paused"
	case still != nil:
		return "tasks wait; " + format.Middle(still.Queue) + " does not shrink"
	case longest == 0 || !known:
		return "tasks wait"
	}
	return "tasks wait, gone in " + format.Duration(longest)
}

// queueNow is a queue as a sample found it.
type queueNow struct {
	storage.Stats

	// done and failed are attempts a second, averaged over the last seconds; -1 where one look alone
	// has been made.
	done, failed float64
	// runners are the live ones that serve the queue.
	runners int
	// unknown are the declined kinds that no live runner of the queue can run.
	unknown []storage.KindSize
	// pausedSeen is when this process saw the pause begin, by the storage's clock; zero where it did not.
	pausedSeen time.Time
	// pausedBy is who paused it, by the audit; "" where nobody knows.
	pausedBy string
	// unknownSince is since when a task of an unknown kind waits, zero where nobody knows.
	unknownSince time.Time
}

// scheduleNow is a schedule as a sample found it.
type scheduleNow struct {
	storage.Task

	declaration storage.Declaration
	damaged     bool
	orphaned    bool // no live runner declares it
}

// How old what a sample repeats from the one before it may be.
const (
	namesFor     = 2 * time.Second
	runnersFor   = 2 * time.Second
	infoFor      = 15 * time.Second
	schedulesFor = 5 * time.Second
	// schedulesAgain is when the schedules of a queue are read again although nothing tells that they changed.
	schedulesAgain = time.Minute
	historyFor     = 30 * time.Second
	deadFor        = 5 * time.Second
	sinceFor       = 15 * time.Second
	// smoothing is over how long rates are averaged.
	smoothing = 8 * time.Second
	// maxSchedules bounds the schedules that are read.
	maxSchedules = 2000
)

// look reads the storage for a new sample. before is the one before it, nil for the first.
func (s *sampler) look(ctx context.Context, before *sample) (*sample, error) {
	fresh := &sample{at: s.now()}
	before.remember(fresh)
	var stats []storage.Stats
	err := errors.Join(beside(
		func() (err error) { stats, err = s.sizes(ctx, before, fresh); return err },
		func() error { return s.rest(ctx, before, fresh) },
	)...)
	if err != nil {
		return nil, err
	}
	fresh.skew = time.Duration(s.skew.Load())
	fresh.queues = make([]queueNow, len(stats))
	fresh.byName = make(map[string]*queueNow, len(stats))
	for i := range stats {
		q := &fresh.queues[i]
		q.Stats = stats[i]
		fresh.byName[q.Queue] = q
		q.measure(before, fresh.at, fresh.skew)
		q.served(fresh.serving[q.Queue])
	}
	s.readHistory(ctx, before, fresh)
	s.readSince(ctx, before, fresh)
	if err := s.readDead(ctx, before, fresh); err != nil {
		return nil, err
	}
	return fresh, s.readSchedules(ctx, before, fresh)
}

// beside calls functions side by side.
func beside(calls ...func() error) []error {
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { errs[i] = call() }) // ends with the call
	}
	all.Wait()
	return errs
}

// sizes reads the sizes of all queues.
func (s *sampler) sizes(ctx context.Context, before, fresh *sample) ([]storage.Stats, error) {
	names, err := s.names(ctx, before, fresh.at)
	if err != nil {
		return nil, err
	}
	began := s.now()
	stats := make([]storage.Stats, 0, len(names))
	for chunk := range slices.Chunk(names, storage.MaxNames) {
		some, err := s.store.Stats(ctx, chunk...)
		if err != nil {
			return nil, err
		}
		stats = append(stats, some...)
	}
	fresh.trip = s.now().Sub(began)
	return stats, nil
}

// readHistory reads the last hour. A history that cannot be read takes no page from anybody.
func (s *sampler) readHistory(ctx context.Context, before, fresh *sample) {
	if before != nil {
		fresh.hour = before.hour
	}
	if before != nil && fresh.at.Sub(s.historyAt) < historyFor {
		return
	}
	s.historyAt = fresh.at
	end := s.storageNow().Truncate(time.Minute).Add(time.Minute)
	hour, err := s.ledger.Series(ctx, end.Add(-time.Hour), end, time.Minute)
	if err != nil {
		return
	}
	fresh.hour = hour
	if before != nil {
		return
	}
	// One look alone tells no rates: those of the last minute that the history knows stand in for them.
	for i := len(hour.All) - 1; i >= max(0, len(hour.All)-4); i-- {
		if !hour.All[i].Known {
			continue
		}
		for j := range fresh.queues {
			q := &fresh.queues[j]
			q.done, q.failed = 0, 0
			if steps := hour.Queues[q.Queue]; i < len(steps) {
				q.done, q.failed = float64(steps[i].Done)/60, float64(steps[i].Failed)/60
			}
		}
		return
	}
}

// names lists the queues, or gives those of a moment ago.
func (s *sampler) names(ctx context.Context, before *sample, now time.Time) ([]string, error) {
	if before != nil && now.Sub(s.namesAt) < namesFor {
		names := make([]string, len(before.queues))
		for i := range before.queues {
			names[i] = before.queues[i].Queue
		}
		return names, nil
	}
	var names []string
	for name, err := range storage.EachQueue(ctx, s.store, "") {
		if err != nil {
			return nil, err
		}
		if !storage.Reserved(name) {
			names = append(names, name)
		}
	}
	s.namesAt = now
	return names, nil
}

// rest reads the runners and the description where those of the sample before are too old.
func (s *sampler) rest(ctx context.Context, before, fresh *sample) (err error) {
	if before != nil {
		fresh.runners, fresh.kinds, fresh.serving = before.runners, before.kinds, before.serving
		fresh.info, fresh.readRunners = before.info, before.readRunners
	}
	if before == nil || fresh.at.Sub(s.runnersAt) >= runnersFor {
		if fresh.runners, err = s.store.Runners(ctx); err != nil {
			return err
		}
		fresh.kinds, fresh.serving = kindsOf(fresh.runners), servingOf(fresh.runners)
		s.runnersAt = fresh.at
		fresh.readRunners++
	}
	if before == nil || fresh.at.Sub(s.infoAt) >= infoFor {
		if fresh.info, err = s.store.Describe(ctx); err != nil {
			return err
		}
		s.infoAt = fresh.at
		s.skew.Store(int64(fresh.info.Now.Sub(s.now())))
	}
	return nil
}

// kindsOf gives the kinds that runners know, each once.
func kindsOf(runners []storage.RunnerInfo) []string {
	known := map[string]bool{}
	for i := range runners {
		for _, kind := range runners[i].Kinds {
			known[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// measure computes the rates of a queue from what the sample before it counted.
func (q *queueNow) measure(before *sample, now time.Time, skew time.Duration) {
	q.done, q.failed = -1, -1
	if before == nil {
		return
	}
	was := before.byName[q.Queue]
	if was == nil { // it is new: all that it counted happened since
		was = &queueNow{}
	}
	switch {
	case q.Paused && was.Paused:
		q.pausedSeen, q.pausedBy = was.pausedSeen, was.pausedBy
	case q.Paused:
		q.pausedSeen = now.Add(skew)
	}
	passed := now.Sub(before.at).Seconds()
	if passed <= 0 {
		q.done, q.failed = was.done, was.failed
		return
	}
	weight := 1 - math.Exp(-passed/smoothing.Seconds())
	q.done = smoothed(was.done, q.Totals.Completed-was.Totals.Completed, passed, weight)
	q.failed = smoothed(was.failed, q.failures()-was.failures(), passed, weight)
}

// failures are the attempts of a queue that failed or crashed.
func (q *queueNow) failures() int64 { return q.Totals.Failed + q.Totals.Crashed }

// smoothed joins what happened since the sample before to the average so far.
func smoothed(average float64, events int64, passed, weight float64) float64 {
	now := float64(max(0, events)) / passed
	if average < 0 {
		return now
	}
	if average += (now - average) * weight; average < 0.004 {
		return 0
	}
	return average
}

// serving is what the live runners of a queue can run.
type serving struct {
	runners int
	all     bool // kinds of any name
	kinds   map[string]bool
}

// servingOf tells it of each queue that a runner serves.
func servingOf(runners []storage.RunnerInfo) map[string]*serving {
	by := make(map[string]*serving)
	for i := range runners {
		for _, queue := range runners[i].Queues {
			of := by[queue]
			if of == nil {
				of = &serving{kinds: make(map[string]bool)}
				by[queue] = of
			}
			of.runners++
			of.all = of.all || len(runners[i].Kinds) == 0
			for _, kind := range runners[i].Kinds {
				of.kinds[kind] = true
			}
		}
	}
	return by
}

// served tells how many live runners the queue has, and finds the kinds that none of them knows.
func (q *queueNow) served(by *serving) {
	if by == nil {
		by = &serving{}
	}
	q.runners = by.runners
	for _, kind := range q.Declined {
		if !by.all && !by.kinds[kind.Kind] {
			q.unknown = append(q.unknown, kind)
		}
	}
}
