package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// Point is what happened in a step of time.
type Point struct {
	// At is when the step begins.
	At time.Time
	// Known is false where nothing was written of the step: all figures are zero then.
	Known bool
	// Gap says that a part of the step is averaged over a longer time, in which nobody wrote, or
	// not known.
	Gap bool
	// Enqueued counts tasks that joined the queue, requeues included, Done those that completed, Failed
	// attempts that failed or lost their runner, and Dead tasks that died.
	Enqueued, Done, Failed, Dead int64
	// Waiting is the largest number of waiting tasks that a sample of the step saw.
	Waiting int64
	// Oldest is the greatest age of a waiting task that a sample saw, in whole seconds.
	Oldest time.Duration
}

// KindPoint is what ran in a step of time.
type KindPoint struct {
	// At, Known and Gap are as in Point.
	At    time.Time
	Known bool
	Gap   bool
	// Runs counts the runs of jobs that ended, and Failed those that failed.
	Runs, Failed int64
	// P50, P95 and P99 are durations that so many percent of the runs of a minute stayed below, and of a
	// longer step their mean, weighted by runs. They are right to within a fifth.
	P50, P95, P99 time.Duration
}

// Series are figures of a span of time, step by step.
type Series struct {
	// From is when the first step begins.
	From time.Time
	Step time.Duration
	// All has the figures of all queues that were asked for together: the sums of theirs, and the
	// greatest age.
	All []Point
	// Queues and Kinds have those of each; all slices are as long as All.
	Queues map[string][]Point
	Kinds  map[string][]KindPoint
	// Deploys are the versions of runners that were first seen in the span, in the order of time. The
	// first versions that the history knows, versions that were seen before the span, and versions that come
	// back within an hour are no deploys. Each quarter of an hour, and each day, knows its first 20 versions.
	Deploys []Deploy
	// Damaged names pages that could not be read: what they had is missing.
	Damaged []string

	builds map[string]build
}

// maxPoints bounds the steps of Series.
const maxPoints = 5000

// Series reads the history from a moment to another one, step by step. A step has whole minutes, or
// whole hours; hours reach back 90 days, and less 7. The first step begins at or before from, at a
// whole number of steps since 1970, UTC. Without queues it is of all queues. What does not fit is an
// *[storage.InvalidError].
func (l *Ledger) Series(
	ctx context.Context, from, to time.Time, step time.Duration, queues ...string,
) (*Series, error) {
	g := &grid{step: int64(step / time.Minute)}
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
	g.wanted = queues
	if err := l.collect(ctx, g); err != nil {
		return nil, fmt.Errorf("ledger: read the history: %w", err)
	}
	return g.series(), nil
}

// collect reads the pages of the grid: of hours, where its steps are hours, and of minutes from where
// hours were gathered on.
func (l *Ledger) collect(ctx context.Context, g *grid) error {
	d, err := l.store.Describe(ctx) // a session's time stands still while this machine sleeps
	if err != nil {
		return err
	}
	now := d.Now
	minutes := g.from // what is before comes from hours
	if g.step%60 == 0 {
		// An hour that is not over was gathered by a clock that was ahead. No page of hours is older than kept.
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
	// No page of minutes is older, and none is ahead of the clock, but for one by a clock that was wrong.
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

// behind reads the first page behind the grid, where the end of the grid lies in a gap, which the
// sample behind it covers.
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

// numbers lists those of the pages from a minute to another one, of which each has so many.
func numbers(from, to, size int64) (all []int64) {
	for n := from / size; n*size < to; n++ {
		all = append(all, n)
	}
	return all
}

// grid is what figures are added up in.
type grid struct {
	from, step int64 // minutes
	n          int
	wanted     []string // queues; none for all

	all     line
	queues  map[string]*line
	kinds   map[string]*kindLine
	builds  map[string]build
	latest  int64 // the last minute of which there is a sample
	damaged []string
}

// line has the points of a queue, and how many minutes of each are known.
type line struct {
	points []Point
	known  []float64
}

// kindLine has the points of a kind. The durations are sums over runs.
type kindLine struct {
	points []KindPoint
	sums   [][3]float64
}

func (g *grid) end() int64 { return g.from + g.step*int64(g.n) }

func (g *grid) wants(queue string) bool {
	return len(g.wanted) == 0 || slices.Contains(g.wanted, queue)
}

// init makes the lines, once.
func (g *grid) init() {
	if g.queues != nil {
		return
	}
	g.all, g.queues, g.kinds = g.newLine(), make(map[string]*line), make(map[string]*kindLine)
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
		for _, q := range p.queues {
			if g.queues[q.name] == nil && g.wants(q.name) {
				l := g.newLine()
				g.queues[q.name] = &l
			}
		}
		for _, name := range p.kinds {
			if g.kinds[name] == nil {
				g.kinds[name] = &kindLine{make([]KindPoint, g.n), make([][3]float64, g.n)}
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
	lines := make([]*line, len(s.queues)) // nil for what is not wanted
	for i, q := range s.queues {
		lines[i] = g.queues[q.name]
	}
	kinds := make([]*kindLine, len(s.kinds))
	for i, name := range s.kinds {
		kinds[i] = g.kinds[name]
	}
	var covered []*line // the queues of this part, whether the page names them or not
	for name, l := range g.queues {
		if part(name, s.parts) == s.part {
			covered = append(covered, l)
		}
	}
	_ = s.each(func(sm *sample) { // it was read before
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

// addSlot adds what a sample says of one slot, the k-th that it covers, to the points at a place.
func (g *grid) addSlot(
	s *stored, sm *sample, at int, k int64, lines, covered []*line, kinds []*kindLine,
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
		lines[f.at].points[at].add(t, f.waiting, f.oldest)
	}
	for _, f := range sm.kinds {
		l := kinds[f.at]
		p, runs := &l.points[at], share(f.runs, k, span)
		p.Known, p.Gap = true, p.Gap || sm.gap
		p.Runs += runs
		p.Failed += share(f.failed, k, span)
		for i, d := range [3]byte{f.p50, f.p95, f.p99} {
			l.sums[at][i] += float64(unpackDuration(d)) * float64(runs)
		}
	}
}

// share returns the k-th of so many equal parts, whose sum is the whole.
func share(whole, k, parts int64) int64 {
	if parts == 1 {
		return whole
	}
	each, rest := whole/parts, whole%parts
	return each + rest*(k+1)/parts - rest*k/parts
}

// cover notes that so many minutes of a step are known.
func (l *line) cover(at int, minutes float64, gap bool) {
	l.known[at] += minutes
	l.points[at].Known = true
	l.points[at].Gap = l.points[at].Gap || gap
}

// add adds totals, and keeps the largest sizes.
func (p *Point) add(t totals, waiting, oldest int64) {
	p.Enqueued += t.enqueued
	p.Done += t.done
	p.Failed += t.failed
	p.Dead += t.dead
	p.Waiting = max(p.Waiting, waiting)
	p.Oldest = max(p.Oldest, time.Duration(oldest)*time.Second)
}

// series returns what was added up.
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
	for name, l := range g.kinds {
		for i := range l.points {
			p := &l.points[i]
			p.At = g.at(i)
			p.Known, p.Gap = g.all.points[i].Known, p.Gap || g.all.points[i].Gap
			for j, d := range [3]*time.Duration{&p.P50, &p.P95, &p.P99} {
				*d = time.Duration(l.sums[i][j] / float64(max(p.Runs, 1)))
			}
		}
		s.Kinds[name] = l.points
	}
	slices.Sort(s.Damaged)
	return s
}

func (g *grid) at(i int) time.Time { return time.Unix((g.from+int64(i)*g.step)*60, 0).UTC() }

// finish fills in when each step begins, and marks steps of which a part is not known. Of the last one
// that has begun the rest is still to come.
func (g *grid) finish(l *line) {
	for i := range l.points {
		p := &l.points[i]
		p.At = g.at(i)
		begin := g.from + int64(i)*g.step
		want := min(g.step, g.latest+1-begin)
		p.Gap = p.Known && (p.Gap || l.known[i] < float64(want)-0.01)
	}
}
