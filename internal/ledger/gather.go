package ledger

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"
)

// hourBytes is about the largest room of a queue and a kind in a page of hours.
const hourBytes = 1100

// gather adds up the minutes of the hours before hour, which are over, and writes them into the pages of hours.
// An hour that another process has written without a gap stays.
func (l *Ledger) gather(ctx context.Context, hour int64, maxPayload int) error {
	if l.gathered == 0 {
		if err := l.gatheredTo(ctx, hour); err != nil {
			return err
		}
	}
	// Older minutes are not kept, and an hour that a clock ahead of this one has gathered may not be over.
	l.gathered = min(max(l.gathered, hour-keptHours), hour)
	if l.gathered >= hour {
		return nil
	}
	g := &grid{from: l.gathered * 60, step: 60, n: int(hour - l.gathered)}
	pages, err := l.readParts(ctx, minutePages, numbers(g.from, g.end(), pageMinutes)...)
	if err != nil {
		return err
	}
	g.add(pages, g.from, g.end())
	if err := l.behind(ctx, g, g.from, hour*60+59); err != nil {
		return err
	}
	s := g.series()
	var damaged []error
	for from := l.gathered; from < hour; {
		to := min(hour, (from/24+1)*24)
		switch err := l.gatherDay(ctx, s, from, to, l.gathered, maxPayload); {
		case goesOn(err): // the other parts and days are gathered
			damaged = append(damaged, err)
		case err != nil:
			l.gathered = 0 // the next call reads how far hours are gathered
			return err
		}
		from = to
	}
	l.gathered = hour
	return errors.Join(damaged...)
}

// gatheredTo finds out up to which hour minutes were gathered: up to the hour of the last sample, or as far
// back as minutes are kept.
func (l *Ledger) gatheredTo(ctx context.Context, hour int64) error {
	l.gathered = hour - keptHours
	for day := (hour - 1) / 24; day >= l.gathered/24; day-- {
		pages, err := l.readParts(ctx, hourPages, day)
		if err != nil {
			l.gathered = 0
			return err
		}
		first := int64(0)
		for i := range pages {
			if p := pages[i].page; p != nil && p.count > 0 {
				if next := p.lastMinute()/60 + 1; first == 0 || next < first {
					first = next // the part that is furthest behind decides
				}
			}
		}
		if first > 0 {
			l.gathered = max(l.gathered, first)
			return nil
		}
	}
	return nil
}

// gatherDay writes the hours of one day from a series, which begins with the hour first.
func (l *Ledger) gatherDay(ctx context.Context, s *Series, from, to, first int64, maxPayload int) error {
	pages, err := l.readParts(ctx, hourPages, from/24)
	if err != nil {
		return err
	}
	pages = opened(pages, partsFor(len(s.Queues), len(s.Kinds), hourBytes, maxPayload))
	queues, kinds := names(s.Queues), names(s.Kinds)
	var fresh []stored
	for i := range pages {
		p := &pages[i]
		if p.page == nil {
			continue
		}
		before := p.encode()
		p.setHours(s, from, to, first, queues, kinds)
		if !bytes.Equal(p.encode(), before) {
			p.sawDay(s.builds)
			fresh = append(fresh, *p)
		}
	}
	if _, err := l.write(ctx, fresh, maxPayload); err != nil {
		return err
	}
	return damage(pages)
}

// names returns the keys of a map, sorted.
func names[P any](of map[string]P) []string {
	all := make([]string, 0, len(of))
	for name := range of {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// setHours writes hours of a series, which begins with the hour first, into the page. An hour that the page has
// without a gap stays, and an hour with a gap is replaced. A later hour with a gap is deleted: the clock was
// ahead when it was gathered, and the hour is not over.
func (s *stored) setHours(of *Series, from, to, first int64, queues, kinds []string) {
	had := s.samples()
	s.raw, s.count, s.last = nil, 0, -1
	for slot := range s.slots() {
		sm, hour := had[slot], s.start/60+int64(slot)
		if sm == nil || sm.gap {
			switch {
			case hour >= to:
				sm = nil
			case hour >= from && of.All[hour-first].Known:
				sm = s.hour(of, int(hour-first), slot, queues, kinds)
			}
		}
		if sm != nil {
			s.append(sm)
		}
	}
}

// samples returns copies of the samples of the page by their slots.
func (p *page) samples() []*sample {
	all := make([]*sample, p.slots())
	_ = p.each(func(s *sample) { // no error: the page was checked when it was read
		one := *s
		one.queues, one.kinds = slices.Clone(s.queues), slices.Clone(s.kinds)
		all[s.slot] = &one
	})
	return all
}

// hour makes the sample of an hour from a place of the series.
func (s *stored) hour(of *Series, at, slot int, queues, kinds []string) *sample {
	sm := &sample{slot: slot, span: 1, gap: of.All[at].Gap}
	places := s.places()
	for _, name := range queues {
		p := &of.Queues[name][at]
		f := queueFigures{
			totals: totals{p.Enqueued, p.Done, p.Failed, p.Dead}, waiting: p.Waiting, oldest: int64(p.Oldest / time.Second),
		}
		if part(name, s.parts) != s.part || f == (queueFigures{}) {
			continue
		}
		f.at = s.find(name, places)
		sm.queues = append(sm.queues, f)
	}
	places = s.kindPlaces()
	for _, name := range kinds {
		p := &of.Kinds[name][at]
		if part(name, s.parts) != s.part || p.Runs == 0 {
			continue
		}
		sm.kinds = append(sm.kinds, kindFigures{
			at: s.findKind(name, places), runs: p.Runs, failed: p.Failed,
			p50: packDuration(p.P50), p95: packDuration(p.P95), p99: packDuration(p.P99),
		})
	}
	slices.SortFunc(sm.queues, func(a, b queueFigures) int { return a.at - b.at })
	slices.SortFunc(sm.kinds, func(a, b kindFigures) int { return a.at - b.at })
	return sm
}
