package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// Point has the figures of one or several queues in a step of time.
type Point struct {
	// At is when the step begins.
	At time.Time
	// Known is false if nothing was written about the step. All figures are zero then.
	Known bool
	// Gap means that a part of the step is not known, or is averaged over a longer time in which no process
	// wrote.
	Gap bool
	// Enqueued counts tasks that joined the queue, requeues included, Done tasks that completed, Failed
	// attempts that failed or lost their runner, and Dead tasks that died.
	Enqueued, Done, Failed, Dead int64
	// Waiting is the largest number of waiting tasks that a sample of the step saw.
	Waiting int64
	// Oldest is the greatest age of a waiting task that a sample saw, in whole seconds.
	Oldest time.Duration
}

// KindPoint has the figures of a kind in a step of time.
type KindPoint struct {
	// At, Known and Gap are as in Point.
	At    time.Time
	Known bool
	Gap   bool
	// Runs counts the runs of jobs that ended, and Failed the runs that failed.
	Runs, Failed int64
	// P50, P95 and P99 are percentiles of the durations of the runs in a minute. In a longer step, each is that
	// of the minute in which it was the greatest: percentiles are never averaged. They are right to within a
	// fifth.
	P50, P95, P99 time.Duration
}

// Add adds the runs of another step: it sums up the counts, and keeps the greatest of each percentile.
func (p *KindPoint) Add(q *KindPoint) {
	p.Runs, p.Failed = p.Runs+q.Runs, p.Failed+q.Failed
	p.P50, p.P95, p.P99 = max(p.P50, q.P50), max(p.P95, q.P95), max(p.P99, q.P99)
}

// Series are figures of a span of time, step by step.
type Series struct {
	// From is when the first step begins.
	From time.Time
	Step time.Duration
	// All has the figures of all requested queues together: the sums of their counts, and the greatest age.
	All []Point
	// Queues and Kinds have the figures of each queue and kind. All slices are as long as All.
	Queues map[string][]Point
	Kinds  map[string][]KindPoint
	// Deploys are the versions of runners that were first seen in the span, in the order of time. The first
	// versions of the history, versions that were seen before the span, and versions that come back within an
	// hour are no deploys. Only the first 20 versions of each quarter of an hour, and of each day, are kept.
	Deploys []Deploy
	// Damaged names the pages that could not be read. Their figures are missing.
	Damaged []string

	builds map[string]build
}

// maxPoints bounds the steps of a Series.
const maxPoints = 5000

// Series returns the history from a moment to another one, in steps. A step has whole minutes or whole hours.
// The history of hours reaches back 90 days, and that of minutes 7 days. The first step begins at or before
// from, at a whole number of steps since 1970 in UTC. Without queues, Series returns the history of all queues.
// It returns an *[storage.InvalidError] for a span or step that is not possible.
func (l *Ledger) Series(
	ctx context.Context, from, to time.Time, step time.Duration, queues ...string,
) (*Series, error) {
	return l.series(ctx, &grid{wanted: queues}, from, to, step)
}

// Sums returns a Series that only has the figures of all queues together, without the figures of each queue
// and kind. It needs little memory, however many queues there are. Waiting is not known, and zero.
func (l *Ledger) Sums(ctx context.Context, from, to time.Time, step time.Duration) (*Series, error) {
	return l.series(ctx, &grid{sums: true}, from, to, step)
}

func (l *Ledger) series(
	ctx context.Context, g *grid, from, to time.Time, step time.Duration,
) (*Series, error) {
	g.step = int64(step / time.Minute)
	switch {
	case step < time.Minute || step%time.Minute != 0 || step > time.Hour && step%time.Hour != 0 || step > HoursKept:
		return nil, storage.Invalid("step", step, "whole minutes up to an hour, or whole hours up to %v", HoursKept)
	case !from.Before(to) || from.Unix() < 0:
		return nil, storage.Invalid("from", from, "a time before %v", to)
	}
	g.from = from.Unix() / 60 / g.step * g.step
	if steps := (to.Unix()/60-g.from)/g.step + 1; steps > maxPoints {
		return nil, storage.Invalid("step", step, "a longer one: at most %d steps from %v to %v", maxPoints, from, to)
	}
	g.n = int((to.Unix()+59)/60-g.from+g.step-1) / int(g.step)
	if err := l.collect(ctx, g); err != nil {
		return nil, fmt.Errorf("ledger: read the history: %w", err)
	}
	return g.series(), nil
}

// collect reads the pages of the grid: pages of hours if its steps are hours, and pages of minutes from the
// last gathered hour on.
func (l *Ledger) collect(ctx context.Context, g *grid) error {
	d, err := l.store.Describe(ctx) // a session's clock stands still while this machine sleeps
	if err != nil {
		return err
	}
	now := d.Now
	minutes := g.from // earlier minutes come from pages of hours
	if g.step%60 == 0 {
		// Only a clock that was ahead has gathered an hour that is not over. Older pages of hours are not kept.
		oldest, over := now.Add(-HoursKept).Unix()/60-2*24*60, now.Unix()/3600*60
		end := min(g.end(), over)
		pages, err := l.readParts(ctx, hourPages, numbers(max(g.from, oldest), end, 24*60)...)
		if err != nil {
			return err
		}
		for i := range pages {
			if p := pages[i].page; p != nil && p.count > 0 {
				minutes = min(max(minutes, p.lastMinute()+60), over)
			}
		}
		g.add(pages, g.from, end)
	}
	// Older pages of minutes are not kept, and only a wrong clock has written a page ahead of now.
	minutes = max(minutes, now.Add(-MinutesKept).Unix()/60-pageMinutes)
	end := min(g.end(), now.Unix()/60+pageMinutes)
	if minutes >= end {
		return nil
	}
	pages, err := l.readParts(ctx, minutePages, numbers(minutes, end, pageMinutes)...)
	if err != nil {
		return err
	}
	g.add(pages, minutes, g.end())
	return l.behind(ctx, g, minutes, now.Unix()/60)
}

// behind reads the first page behind the grid if the end of the grid lies in a gap. The first sample of that
// page covers the gap.
func (l *Ledger) behind(ctx context.Context, g *grid, minutes, now int64) error {
	if g.latest >= g.end()-1 {
		return nil
	}
	last := now / pageMinutes
	for first := (g.end() + pageMinutes - 1) / pageMinutes; first <= last; first += readers {
		pages, err := l.readParts(ctx, minutePages, numbers(first, min(first+readers, last+1), 1)...)
		if err != nil {
			return err
		}
		slices.SortFunc(pages, func(a, b stored) int { return int(a.number - b.number) })
		for i := range pages {
			if pages[i].page != nil && pages[i].count > 0 {
				number := pages[i].number
				g.add(slices.DeleteFunc(pages, func(s stored) bool { return s.number != number }), minutes, g.end())
				return nil
			}
		}
	}
	return nil
}

// numbers returns the numbers of the pages from a minute to another one. Each page has size minutes.
func numbers(from, to, size int64) (all []int64) {
	for n := from / size; n*size < to; n++ {
		all = append(all, n)
	}
	return all
}

// grid adds up figures in steps of time.
type grid struct {
	from, step int64 // minutes
	n          int
	wanted     []string // the requested queues, none for all
	sums       bool     // only add up all

	all     line
	queues  map[string]*line
	kinds   map[string][]KindPoint
	builds  map[string]build
	latest  int64 // the last minute that has a sample
	damaged []string
}

// line has the points of a queue, and how many minutes of each point are known.
type line struct {
	points []Point
	known  []float64
}

func (g *grid) end() int64 { return g.from + g.step*int64(g.n) }

func (g *grid) wants(queue string) bool {
	return len(g.wanted) == 0 || slices.Contains(g.wanted, queue)
}

// init makes the lines at its first call.
func (g *grid) init() {
	if g.queues != nil {
		return
	}
	g.all, g.queues, g.kinds = g.newLine(), make(map[string]*line), make(map[string][]KindPoint)
	g.builds = make(map[string]build)
	for _, name := range g.wanted {
		l := g.newLine()
		g.queues[name] = &l
	}
}

func (g *grid) newLine() line { return line{make([]Point, g.n), make([]float64, g.n)} }

// add adds the samples of pages from a minute to another one.
func (g *grid) add(pages []stored, from, to int64) {
	g.init()
	for i := range pages {
		p := pages[i].page
		if p == nil {
			if pages[i].damaged {
				g.damaged = append(g.damaged, pages[i].id())
			}
			continue
		}
		g.addBuilds(p.builds)
		if g.sums {
			continue
		}
		for _, q := range p.queues {
			if g.queues[q.name] == nil && g.wants(q.name) {
				l := g.newLine()
				g.queues[q.name] = &l
			}
		}
		for _, name := range p.kinds {
			if g.kinds[name] == nil {
				g.kinds[name] = make([]KindPoint, g.n)
			}
		}
	}
	for i := range pages {
		if pages[i].page != nil {
			g.addPage(&pages[i], from, to)
		}
	}
}

// addPage adds the samples of a page.
func (g *grid) addPage(s *stored, from, to int64) {
	lines := make([]*line, len(s.queues)) // nil for a queue that was not requested
	for i, q := range s.queues {
		if lines[i] = g.queues[q.name]; g.sums {
			lines[i] = &g.all
		}
	}
	kinds := make([][]KindPoint, len(s.kinds)) // nil for a sum
	for i, name := range s.kinds {
		kinds[i] = g.kinds[name]
	}
	var covered []*line // the queues that belong to this part, also those that the page does not name
	for name, l := range g.queues {
		if part(name, s.parts) == s.part {
			covered = append(covered, l)
		}
	}
	_ = s.each(func(sm *sample) { // no error: the page was checked when it was read
		last := s.start + int64(sm.slot)*s.step
		if last+s.step-1 < to {
			g.latest = max(g.latest, last+s.step-1)
		}
		for k := range int64(sm.span) {
			minute := last - (int64(sm.span)-1-k)*s.step
			if minute < max(from, g.from) || minute >= min(to, g.end()) {
				continue
			}
			g.addSlot(s, sm, int((minute-g.from)/g.step), k, lines, covered, kinds)
		}
	})
}

// addSlot adds the figures of a sample for one slot, the k-th that it covers, to the points at a place.
func (g *grid) addSlot(
	s *stored, sm *sample, at int, k int64, lines, covered []*line, kinds [][]KindPoint,
) {
	span := int64(sm.span)
	g.all.cover(at, float64(s.step)/float64(s.parts), sm.gap)
	for _, l := range covered {
		l.cover(at, float64(s.step), sm.gap)
	}
	for _, f := range sm.queues {
		if lines[f.at] == nil {
			continue
		}
		t := totals{
			share(f.enqueued, k, span), share(f.done, k, span), share(f.failed, k, span), share(f.dead, k, span),
		}
		waiting := f.waiting
		if g.sums { // the sum of the largest sizes of each queue takes the figures of each queue
			waiting = 0
		}
		lines[f.at].points[at].add(t, waiting, f.oldest)
	}
	for _, f := range sm.kinds {
		l := kinds[f.at]
		if l == nil {
			continue
		}
		p := &l[at]
		p.Known, p.Gap = true, p.Gap || sm.gap
		p.Add(&KindPoint{
			Runs: share(f.runs, k, span), Failed: share(f.failed, k, span),
			P50: unpackDuration(f.p50), P95: unpackDuration(f.p95), P99: unpackDuration(f.p99),
		})
	}
}

// share returns the k-th of equal parts. The sum of all parts is the whole.
func share(whole, k, parts int64) int64 {
	if parts == 1 {
		return whole
	}
	each, rest := whole/parts, whole%parts
	return each + rest*(k+1)/parts - rest*k/parts
}

// cover notes that some minutes of a step are known.
func (l *line) cover(at int, minutes float64, gap bool) {
	l.known[at] += minutes
	l.points[at].Known = true
	l.points[at].Gap = l.points[at].Gap || gap
}

// add adds totals and keeps the largest sizes.
func (p *Point) add(t totals, waiting, oldest int64) {
	p.Enqueued += t.enqueued
	p.Done += t.done
	p.Failed += t.failed
	p.Dead += t.dead
	p.Waiting = max(p.Waiting, waiting)
	p.Oldest = max(p.Oldest, time.Duration(oldest)*time.Second)
}

// series returns the figures as a Series.
func (g *grid) series() *Series {
	g.init()
	s := &Series{
		From: time.Unix(g.from*60, 0).UTC(), Step: time.Duration(g.step) * time.Minute, All: g.all.points,
		Queues: make(map[string][]Point, len(g.queues)), Kinds: make(map[string][]KindPoint, len(g.kinds)),
		Deploys: g.deploys(), Damaged: g.damaged, builds: g.builds,
	}
	for name, l := range g.queues {
		g.finish(l)
		s.Queues[name] = l.points
		for i := range l.points {
			p, sum := &l.points[i], &s.All[i]
			waiting := sum.Waiting + p.Waiting
			sum.add(totals{p.Enqueued, p.Done, p.Failed, p.Dead}, waiting, int64(p.Oldest/time.Second))
		}
	}
	g.finish(&g.all)
	for name, points := range g.kinds {
		for i := range points {
			p := &points[i]
			p.At = g.at(i)
			p.Known, p.Gap = g.all.points[i].Known, p.Gap || g.all.points[i].Gap
		}
		s.Kinds[name] = points
	}
	slices.Sort(s.Damaged)
	return s
}

func (g *grid) at(i int) time.Time { return time.Unix((g.from+int64(i)*g.step)*60, 0).UTC() }

// finish sets when each step begins, and marks the steps of which a part is not known. The last step that has
// begun is not marked for its future part.
func (g *grid) finish(l *line) {
	for i := range l.points {
		p := &l.points[i]
		p.At = g.at(i)
		begin := g.from + int64(i)*g.step
		want := min(g.step, g.latest+1-begin)
		p.Gap = p.Known && (p.Gap || l.known[i] < float64(want)-0.01)
	}
}
