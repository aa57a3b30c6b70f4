package sampler

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/queues"
	"github.com/midgehq/midge/storage"
)

// The times for which samples repeat data of an earlier sample, and other bounds of a look.
const (
	namesFor     = 2 * time.Second
	runnersFor   = 2 * time.Second
	infoFor      = 15 * time.Second
	schedulesFor = 5 * time.Second
	// schedulesAgain is the time after which the schedules of a queue are read again, even if nothing indicates
	// a change.
	schedulesAgain = time.Minute
	historyFor     = 30 * time.Second
	deadFor        = 5 * time.Second
	sinceFor       = 15 * time.Second
	// historyTimeout limits the reading of the history, so that a look ends in time without it.
	historyTimeout = LookTimeout / 2
	// smoothing is the time over which rates are averaged.
	smoothing = 8 * time.Second
	// maxSchedules limits the schedules of a sample.
	maxSchedules = 2000
)

// look reads the storage for a new sample. before is the sample before it, nil for the first.
func (s *Sampler) look(ctx context.Context, before *Sample) (*Sample, error) {
	fresh := &Sample{At: s.now()}
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
	fresh.Queues = make([]Queue, len(stats))
	fresh.byName = make(map[string]*Queue, len(stats))
	for i := range stats {
		q := &fresh.Queues[i]
		q.Stats = stats[i]
		fresh.byName[q.Queue] = q
		q.measure(before, fresh.At, fresh.skew)
		of := fresh.serving[q.Queue]
		q.Runners, q.Unknown = len(of), of.Unknown(q.Declined)
	}
	fresh.mark()
	s.readHistory(ctx, before, fresh)
	s.readSince(ctx, before, fresh)
	if err := s.readDead(ctx, before, fresh); err != nil {
		return nil, err
	}
	return fresh, s.readSchedules(ctx, before, fresh)
}

// beside calls functions concurrently, waits for them, and returns their errors.
func beside(calls ...func() error) []error {
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { errs[i] = call() }) // ends with the call
	}
	all.Wait()
	return errs
}

// concurrency limits the calls that Concurrently makes at a time.
const concurrency = 8

// Concurrently calls a function for each number below n, in up to eight goroutines, and waits for them. After
// a call that fails it begins no further calls. Concurrently returns one of the errors.
func Concurrently(n int, do func(i int) error) error {
	errs := make([]error, min(n, concurrency))
	var all sync.WaitGroup
	var failed atomic.Bool
	for first := range errs {
		all.Go(func() { // ends with its share of the numbers, or after a call that fails
			for i := first; i < n && !failed.Load(); i += len(errs) {
				if errs[first] = do(i); errs[first] != nil {
					failed.Store(true)
				}
			}
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

// sizes reads the sizes of all queues.
func (s *Sampler) sizes(ctx context.Context, before, fresh *Sample) ([]storage.Stats, error) {
	names, err := s.names(ctx, before, fresh.At)
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
	fresh.RoundTrip = s.now().Sub(began)
	return stats, nil
}

// names lists the queues, or repeats the names in the sample before.
func (s *Sampler) names(ctx context.Context, before *Sample, now time.Time) ([]string, error) {
	if before != nil && now.Sub(s.namesAt) < namesFor {
		names := make([]string, len(before.Queues))
		for i := range before.Queues {
			names[i] = before.Queues[i].Queue
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

// rest reads the runners and the description of the storage, unless the sample before has recent ones.
func (s *Sampler) rest(ctx context.Context, before, fresh *Sample) (err error) {
	if before != nil {
		fresh.Runners, fresh.Kinds, fresh.serving = before.Runners, before.Kinds, before.serving
		fresh.Info, fresh.runnersRead = before.Info, before.runnersRead
	}
	if before == nil || fresh.At.Sub(s.runnersAt) >= runnersFor {
		if fresh.Runners, err = s.store.Runners(ctx); err != nil {
			return err
		}
		fresh.Kinds, fresh.serving = kindsOf(fresh.Runners), queues.ServingOf(fresh.Runners)
		s.runnersAt = fresh.At
		fresh.runnersRead++
	}
	if before == nil || fresh.At.Sub(s.infoAt) >= infoFor {
		if fresh.Info, err = s.store.Describe(ctx); err != nil {
			return err
		}
		s.infoAt = fresh.At
		s.skew.Store(int64(fresh.Info.Now.Sub(s.now())))
	}
	return nil
}

// readHistory reads the history of the last hour. If it cannot be read, pages show everything else.
func (s *Sampler) readHistory(ctx context.Context, before, fresh *Sample) {
	if before != nil {
		fresh.Hour = before.Hour
	}
	if before != nil && fresh.At.Sub(s.historyAt) < historyFor {
		return
	}
	s.historyAt = fresh.At
	end := s.StorageNow().Truncate(time.Minute).Add(time.Minute)
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	hour, err := s.ledger.Series(ctx, end.Add(-time.Hour), end, time.Minute)
	if err != nil {
		return
	}
	fresh.Hour = hour
	if before != nil {
		return
	}
	// One look gives no rates: the rates of the last minute that the history knows stand in for them.
	for i := len(hour.All) - 1; i >= max(0, len(hour.All)-4); i-- {
		if !hour.All[i].Known {
			continue
		}
		for j := range fresh.Queues {
			q := &fresh.Queues[j]
			q.Done, q.Failed = 0, 0
			if steps := hour.Queues[q.Queue]; i < len(steps) {
				q.Done, q.Failed = float64(steps[i].Done)/60, float64(steps[i].Failed)/60
			}
		}
		return
	}
}

// kindsOf returns the kinds that runners know, sorted and each once.
func kindsOf(runners []storage.RunnerInfo) []string {
	known := map[string]bool{}
	for i := range runners {
		for _, kind := range runners[i].Kinds {
			known[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// measure computes the rates and the pause of a queue by comparison with the sample before.
func (q *Queue) measure(before *Sample, now time.Time, skew time.Duration) {
	q.Done, q.Failed = -1, -1
	if before == nil {
		return
	}
	was := before.byName[q.Queue]
	if was == nil { // a new queue: everything that it counted happened since
		was = &Queue{}
	}
	switch {
	case q.Paused && was.Paused:
		q.PausedSince, q.PausedBy = was.PausedSince, was.PausedBy
	case q.Paused:
		q.PausedSince = now.Add(skew)
	}
	passed := now.Sub(before.At).Seconds()
	if passed <= 0 {
		q.Done, q.Failed = was.Done, was.Failed
		return
	}
	weight := 1 - math.Exp(-passed/smoothing.Seconds())
	q.Done = smoothed(was.Done, q.Totals.Completed-was.Totals.Completed, passed, weight)
	q.Failed = smoothed(was.Failed, q.failures()-was.failures(), passed, weight)
}

// smoothed returns the average rate after so many events in the time passed, in seconds. The new rate has the
// given weight in it. A negative average means that there is none yet.
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
