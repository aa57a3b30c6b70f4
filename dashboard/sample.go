package dashboard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scan"
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
		return "tasks wait; " + middle(still.Queue) + " is paused"
	case still != nil:
		return "tasks wait; " + middle(still.Queue) + " does not shrink"
	case longest == 0 || !known:
		return "tasks wait"
	}
	return "tasks wait, gone in " + duration(longest)
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

// readSince finds who paused queues, and since when those are paused that were before this process looked,
// in the audit, and since when tasks of unknown kinds wait.
func (s *sampler) readSince(ctx context.Context, before, fresh *sample) {
	var paused, unknown []*queueNow
	for i := range fresh.queues {
		q := &fresh.queues[i]
		if len(q.unknown) > 0 && before != nil && before.byName[q.Queue] != nil {
			q.unknownSince = before.byName[q.Queue].unknownSince
		}
		if q.pauseUnknown(fresh.at.Add(fresh.skew)) {
			paused = append(paused, q)
		}
		if len(q.unknown) > 0 && q.unknownSince.IsZero() {
			unknown = append(unknown, q)
		}
	}
	if len(paused)+len(unknown) == 0 || before != nil && fresh.at.Sub(s.sinceAt) < sinceFor {
		return
	}
	s.sinceAt = fresh.at
	for _, q := range unknown[:min(len(unknown), 10)] {
		q.unknownSince = s.declinedSince(ctx, q.Queue)
	}
	if len(paused) > 0 {
		s.readPauses(ctx, paused)
	}
}

// pauseUnknown reports whether the queue is paused, and the audit may tell more of that than is known.
func (q *queueNow) pauseUnknown(now time.Time) bool {
	return q.Paused && (q.pausedSeen.IsZero() || q.pausedBy == "" && now.Sub(q.pausedSeen) < 2*pausedWithin)
}

// readPauses finds in the audit who paused queues, and when.
func (s *sampler) readPauses(ctx context.Context, paused []*queueNow) {
	acts, _, err := s.audit.List(ctx, "", 200)
	if err != nil {
		return
	}
	for _, q := range paused {
		i := slices.IndexFunc(acts, func(e ledger.Entry) bool { // the newest first
			return (e.Act == "pause" || e.Act == "resume") && e.Queue == q.Queue && e.Outcome == ledger.Done
		})
		if i < 0 || acts[i].Act == "resume" { // a program paused it, which no audit knows
			continue
		}
		by := &acts[i]
		switch {
		case q.pausedSeen.IsZero():
			q.pausedSeen, q.pausedBy = by.At, by.Who
		case q.pausedSeen.Sub(by.At).Abs() < pausedWithin:
			q.pausedBy = by.Who
		}
	}
}

// pausedWithin is how far the moment of an act may lie from the look that first saw its pause.
const pausedWithin = 30 * time.Second

// declinedSince is since when a task of a queue waits in the line of its kind, zero where none is found soon.
func (s *sampler) declinedSince(ctx context.Context, queue string) time.Time {
	f, err := filter.Parse("is:declined queue:" + queue)
	if err != nil {
		return time.Time{}
	}
	found, err := scan.Next(ctx, s.store, scan.Request{
		Filter: f, States: []storage.State{storage.Waiting}, Limit: 1, Time: 100 * time.Millisecond,
	})
	if err != nil || len(found.Tasks) == 0 {
		return time.Time{}
	}
	return found.Tasks[0].Declined
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

// queueCursors are the schedules of a queue as they were read.
type queueCursors struct {
	at    time.Time
	count int64
	due   time.Time // when the first of them ticks, by the storage's clock; zero for never
	tasks []storage.Task
	as    map[storage.Declared]bool // how they are declared
}

// old reports whether the schedules have to be read again: there are more or fewer of them, or one has
// ticked. What ticks late, or stands still, is looked at now and then.
func (c *queueCursors) old(count int64, at, now time.Time) bool {
	ticked := !c.due.IsZero() && now.After(c.due) && at.Sub(c.at) >= schedulesFor
	return c.count != count || ticked || at.Sub(c.at) >= schedulesAgain
}

// redeclared gives the queues of which runners declare schedules that are others than those that were read:
// one has taken the place of its predecessor since, or soon does.
func (s *sampler) redeclared(runners []storage.RunnerInfo) map[string]bool {
	queues := make(map[string]bool)
	for i := range runners {
		for _, d := range runners[i].Schedules {
			if c := s.cursors[d.Ref.Queue]; c != nil && !c.as[d] {
				queues[d.Ref.Queue] = true
			}
		}
	}
	return queues
}

// readSchedules reads the schedules of the queues in which they may have changed.
func (s *sampler) readSchedules(ctx context.Context, before, fresh *sample) error {
	var old []*queueNow
	now := s.storageNow()
	var others map[string]bool
	if before != nil && fresh.readRunners != before.readRunners {
		others = s.redeclared(fresh.runners)
	}
	for i := range fresh.queues {
		q := &fresh.queues[i]
		was := s.cursors[q.Queue]
		if was == nil && q.Cursors > 0 || was != nil && (others[q.Queue] || was.old(q.Cursors, fresh.at, now)) {
			old = append(old, q)
		}
	}
	same := before != nil && len(fresh.queues) == len(before.queues) && fresh.readRunners == before.readRunners
	if same && len(old) == 0 {
		fresh.schedules = before.schedules
		return nil
	}
	read := make([]*queueCursors, len(old))
	err := side(len(old), func(i int) (err error) {
		read[i], err = s.cursorsOf(ctx, old[i], fresh.at)
		return err
	})
	if err != nil {
		return err
	}
	if s.cursors == nil {
		s.cursors = make(map[string]*queueCursors)
	}
	for i, q := range old {
		s.cursors[q.Queue] = read[i]
	}
	var tasks []storage.Task
	for i := range fresh.queues {
		if c := s.cursors[fresh.queues[i].Queue]; c != nil && len(tasks) < maxSchedules {
			tasks = append(tasks, c.tasks...)
		}
	}
	fresh.schedules = schedulesOf(tasks[:min(len(tasks), maxSchedules)], fresh.runners)
	return nil
}

// cursorsOf reads the schedules of a queue.
func (s *sampler) cursorsOf(ctx context.Context, q *queueNow, at time.Time) (*queueCursors, error) {
	c := &queueCursors{at: at, count: q.Cursors, as: make(map[storage.Declared]bool)}
	if q.Cursors == 0 {
		return c, nil
	}
	for t, err := range storage.Each(ctx, s.store, q.Queue, storage.Cursors) {
		if err != nil {
			return nil, err
		}
		if t.Cursor != nil && !t.Cursor.Next.IsZero() && (c.due.IsZero() || t.Cursor.Next.Before(c.due)) {
			c.due = t.Cursor.Next
		}
		if t.Cursor != nil {
			if d, err := t.Cursor.Decode(); err == nil {
				c.as[storage.Declared{Ref: t.Ref, Hash: d.Hash}] = true
			}
		}
		if c.tasks = append(c.tasks, t); len(c.tasks) >= maxSchedules {
			break
		}
	}
	return c, nil
}

// schedulesOf says of each cursor who declares it. The next that ticks is the first.
func schedulesOf(cursors []storage.Task, runners []storage.RunnerInfo) []scheduleNow {
	declared := map[storage.Declared]bool{}
	for i := range runners {
		for _, d := range runners[i].Schedules {
			declared[d] = true
		}
	}
	schedules := make([]scheduleNow, 0, len(cursors))
	for _, t := range cursors {
		if t.Cursor == nil {
			continue
		}
		d, err := t.Cursor.Decode()
		schedules = append(schedules, scheduleNow{
			Task: t, declaration: d, damaged: err != nil,
			orphaned: err == nil && !declared[storage.Declared{Ref: t.Ref, Hash: d.Hash}],
		})
	}
	slices.SortStableFunc(schedules, func(a, b scheduleNow) int {
		never := func(s scheduleNow) int {
			if s.Cursor.Next.IsZero() {
				return 1
			}
			return 0
		}
		return cmp.Or(never(a)-never(b), a.Cursor.Next.Compare(b.Cursor.Next), cmp.Compare(a.ID, b.ID))
	})
	return schedules
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
