package survey

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// The times for which surveys repeat data of an earlier survey, and other bounds of a reading.
const (
	namesFor     = 2 * time.Second
	runnersFor   = 2 * time.Second
	infoFor      = 15 * time.Second
	schedulesFor = 5 * time.Second
	// schedulesAgain is the time after which the schedules of a queue are read again, even if nothing indicates
	// a change.
	schedulesAgain = time.Minute
	deadFor        = 5 * time.Second
	sinceFor       = 15 * time.Second
	// smoothing is the time over which rates are averaged.
	smoothing = 8 * time.Second
	// sizesMost limits the queues of one call of Stats. The calls of a reading run concurrently.
	sizesMost = 500
	// maxSchedules limits the schedules of a queue that a reading reads, and those of a survey that have no
	// finding.
	maxSchedules = 2000
)

// Config configures a Reader. The zero value works.
type Config struct {
	// Queues are the queues to read. Default: all but midge's own.
	Queues []string
	// Dead limits the dead tasks that one reading reads to group them by cause: the newest of the queues in
	// which dead tasks have changed. If more queues have changed, the reading reads one task of each. Default
	// MostDead.
	Dead int
	// AllSchedules means that a reading judges all schedules, and not only the first maxSchedules of each
	// queue.
	AllSchedules bool
	// Now returns this process's time. Default [time.Now].
	Now func() time.Time
}

// Reader reads a storage. Each reading repeats data of the reading before for some seconds, if it rarely
// changes. Only one goroutine may use a Reader at a time.
type Reader struct {
	store storage.Storage
	audit *ledger.Audit
	cfg   Config

	last *Survey // nil before the first
	of   noted
	// deadAt and sinceAt are when dead tasks, and the audit, were last read, or could not be read.
	deadAt, sinceAt time.Time
	// searched means that the whole audit was searched for pauses that began before the first reading.
	searched bool
	causes   deadCount
	cursors  map[string]*queueCursors
}

// noted is when parts of the last survey were read, and what was read with them.
type noted struct {
	names, runners, info time.Time
	skew                 time.Duration
}

// NewReader returns a reader of a storage. It does no I/O.
func NewReader(store storage.Storage, cfg Config) *Reader {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Dead == 0 {
		cfg.Dead = MostDead
	}
	return &Reader{store: store, audit: ledger.NewAudit(store), cfg: cfg}
}

// Forget makes the next reading read queues, runners and schedules again, and the dead tasks of queues in
// which they have changed, however recently they were read.
func (r *Reader) Forget() {
	r.of.names, r.of.runners, r.deadAt, r.cursors = time.Time{}, time.Time{}, time.Time{}, nil
}

// storageNow is the storage's time, as far as the last description of the storage shows.
func (r *Reader) storageNow() time.Time { return r.cfg.Now().Add(r.of.skew) }

// Read reads the storage. A reading that fails changes nothing of what the reader knows.
func (r *Reader) Read(ctx context.Context) (*Survey, error) {
	was := r.of
	fresh, err := r.read(ctx, r.last)
	if err != nil {
		r.of = was
		return nil, err
	}
	r.last = fresh
	return fresh, nil
}

// read reads the storage, after the survey before.
func (r *Reader) read(ctx context.Context, before *Survey) (*Survey, error) {
	fresh := &Survey{At: r.cfg.Now()}
	before.remember(fresh)
	var stats []storage.Stats
	err := cmp.Or(beside(
		func() (err error) { stats, err = r.sizes(ctx, before, fresh); return err },
		func() error { return r.rest(ctx, before, fresh) },
	)...)
	if err != nil {
		return nil, err
	}
	fresh.Skew = r.of.skew
	fresh.Queues = make([]Queue, len(stats))
	fresh.byName = make(map[string]*Queue, len(stats))
	for i := range stats {
		q := &fresh.Queues[i]
		*q = QueueOf(stats[i], fresh.serving[stats[i].Queue])
		fresh.byName[q.Queue] = q
		q.measure(before, fresh.At, fresh.Skew)
	}
	fresh.mark()
	if err := r.readLoads(ctx, before, fresh); err != nil {
		return nil, err
	}
	r.readSince(ctx, before, fresh)
	if err := r.readDead(ctx, before, fresh); err != nil {
		return nil, err
	}
	if err := r.readSchedules(ctx, before, fresh); err != nil {
		return nil, err
	}
	return fresh, nil
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
func (r *Reader) sizes(ctx context.Context, before, fresh *Survey) ([]storage.Stats, error) {
	names, err := r.names(ctx, before, fresh.At)
	if err != nil {
		return nil, err
	}
	began := r.cfg.Now()
	chunks := slices.Collect(slices.Chunk(names, sizesMost))
	read := make([][]storage.Stats, len(chunks))
	err = Concurrently(len(chunks), func(i int) (err error) {
		read[i], err = r.store.Stats(ctx, chunks[i]...)
		return err
	})
	if err != nil {
		return nil, err
	}
	fresh.RoundTrip = r.cfg.Now().Sub(began)
	return slices.Concat(read...), nil
}

// names lists the queues, or repeats the names in the survey before.
func (r *Reader) names(ctx context.Context, before *Survey, now time.Time) ([]string, error) {
	if len(r.cfg.Queues) > 0 {
		return r.cfg.Queues, nil
	}
	if before != nil && now.Sub(r.of.names) < namesFor {
		names := make([]string, len(before.Queues))
		for i := range before.Queues {
			names[i] = before.Queues[i].Queue
		}
		return names, nil
	}
	var names []string
	for name, err := range storage.EachQueue(ctx, r.store, "") {
		if err != nil {
			return nil, err
		}
		if !storage.Reserved(name) {
			names = append(names, name)
		}
	}
	r.of.names = now
	return names, nil
}

// rest reads the runners and the description of the storage, unless the survey before has recent ones.
func (r *Reader) rest(ctx context.Context, before, fresh *Survey) (err error) {
	if before != nil {
		fresh.Runners, fresh.Kinds, fresh.serving = before.Runners, before.Kinds, before.serving
		fresh.Info, fresh.runnersRead = before.Info, before.runnersRead
	}
	if before == nil || fresh.At.Sub(r.of.runners) >= runnersFor {
		if fresh.Runners, err = r.store.Runners(ctx); err != nil {
			return err
		}
		fresh.Kinds, fresh.serving = kindsOf(fresh.Runners), ServingOf(fresh.Runners)
		r.of.runners = fresh.At
		fresh.runnersRead++
	}
	if before == nil || fresh.At.Sub(r.of.info) >= infoFor {
		if fresh.Info, err = r.store.Describe(ctx); err != nil {
			return err
		}
		r.of.info = fresh.At
		r.of.skew = fresh.Info.Now.Sub(r.cfg.Now())
	}
	return nil
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

// measure computes the rates and the pause of a queue by comparison with the survey before.
func (q *Queue) measure(before *Survey, now time.Time, skew time.Duration) {
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
		q.In, q.Done, q.Failed = was.In, was.Done, was.Failed
		return
	}
	weight := 1 - math.Exp(-passed/smoothing.Seconds())
	grown := q.Flow().Since(was.Flow())
	q.In = smoothed(was.In, grown.In, passed, weight)
	q.Done = smoothed(was.Done, grown.Done, passed, weight)
	q.Failed = smoothed(was.Failed, grown.Failed, passed, weight)
}

// smoothed returns the average rate after so many events in the time passed, in seconds. The new rate has the
// given weight in it. A negative average means that there is none yet.
func smoothed(average float64, events int64, passed, weight float64) float64 {
	now := float64(events) / passed
	if average < 0 {
		return now
	}
	if average += (now - average) * weight; average < 0.004 {
		return 0
	}
	return average
}
