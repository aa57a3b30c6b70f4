package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// splitAt is about the largest number of queues, or of kinds, in a page.
const splitAt = 500

// pageBytes is about the largest room of a queue and a kind in a page of minutes. Their names and totals take
// some 280 bytes and the figures of a minute some 20. The rest is for parts with more than their share.
const pageBytes = 400 + 27*pageMinutes

// remembered has what this process or another one has last written about each queue.
type remembered struct {
	queues map[string]mark
	newest mark // the last sample of all; zero if none is known
	builds knownBuilds
	whole  bool // it has all queues that existed at the last sample
}

// mark has the totals of a queue in a page. Of two pages the one with the greater version was written later,
// whatever the clock showed: versions only grow.
type mark struct {
	totals

	version int64 // of the page; 0 for no page
	minute  int64 // of the sample
}

// learn takes in a page that was read or written.
func (m *remembered) learn(p *page, version int64) {
	if p.count == 0 {
		return
	}
	at := mark{version: version, minute: p.lastMinute()}
	if version > m.newest.version {
		m.newest = at
	}
	m.builds.learn(p, version)
	for _, q := range p.queues {
		if version > m.queues[q.name].version {
			at.totals = q.totals
			m.queues[q.name] = at
		}
	}
}

// recall reads what other processes may have written since the last sample of this process. It is called when a
// process or a page begins, and after a jump of the clock. It reads the pages before, back to that of the last
// sample that is known, and also that page if it lies ahead. A process that begins reads back to the last
// page that exists.
func (l *Ledger) recall(ctx context.Context, number int64) error {
	m, begins := l.known, l.known == nil
	if begins {
		m = &remembered{queues: make(map[string]mark), builds: make(knownBuilds)}
	}
	newest := m.newest.minute / pageMinutes
	if newest == number {
		return nil
	}
	oldest, found := max(number-keptPages, min(newest, number-1)), false
	for end := number; end > oldest && !found; end -= readers {
		pages, err := l.readParts(ctx, minutePages, numbers(max(end-readers, oldest), end, 1)...)
		if err != nil {
			return err
		}
		if begins {
			m.builds.learnAll(pages)
			pages = lastOf(pages)
			found = len(pages) > 0
			m.whole = found && !slices.ContainsFunc(pages, func(s stored) bool { return s.page == nil })
		}
		m.learnAll(pages)
	}
	if newest > number {
		pages, err := l.readParts(ctx, minutePages, newest)
		if err != nil {
			return err
		}
		m.learnAll(pages)
	}
	l.known = m
	return nil
}

// Bounds of the pages of minutes that exist, and of the hours that they cover.
const (
	keptHours = int64(MinutesKept / time.Hour)
	keptPages = int64(MinutesKept/time.Minute) / pageMinutes
)

// lastOf returns all parts of the last page that has a part, and nothing if there is no page.
func lastOf(pages []stored) []stored {
	number := int64(-1)
	for i := range pages {
		if pages[i].page != nil {
			number = max(number, pages[i].number)
		}
	}
	return slices.DeleteFunc(slices.Clone(pages), func(s stored) bool { return s.number != number })
}

// learnAll takes in pages that were read, and reports whether one of them exists.
func (m *remembered) learnAll(pages []stored) (some bool) {
	for i := range pages {
		if pages[i].page != nil {
			some = true
			m.learn(pages[i].page, pages[i].version)
		}
	}
	return some
}

// sample writes the sample of a minute into each part that does not have it yet.
func (l *Ledger) sample(ctx context.Context, minute int64, maxPayload int) error {
	if err := l.kinds.look(ctx, l.store, minute); err != nil {
		return err
	}
	if err := l.recall(ctx, minute/pageMinutes); err != nil {
		return err
	}
	pages, err := l.readParts(ctx, minutePages, minute/pageMinutes)
	if err != nil {
		return err
	}
	if l.known.learnAll(pages) && !slices.ContainsFunc(pages, func(s stored) bool { return s.page == nil }) {
		l.known.whole = true // another writer began the page
	}
	if !slices.ContainsFunc(pages, func(s stored) bool { return s.lacks(minute) }) {
		return nil
	}
	stats, err := l.stats(ctx)
	if err != nil {
		return err
	}
	l.known.forget(stats)
	pages = opened(pages, partsFor(len(stats), l.kinds.most(), pageBytes, maxPayload))
	split := make([][]storage.Stats, pages[0].parts)
	for _, s := range stats {
		i := part(s.Queue, len(split))
		split[i] = append(split[i], s)
	}
	var fresh []stored
	for i := range pages {
		if s := &pages[i]; s.lacks(minute) && s.page != nil {
			l.measure(s, minute, split[s.part])
			fresh = append(fresh, *s)
		}
	}
	won, err := l.write(ctx, fresh, maxPayload)
	if err != nil && !errors.Is(err, errLarge) {
		return err
	}
	l.known.whole = l.known.whole || won == len(pages)
	return errors.Join(err, damage(pages))
}

// damage returns an error that names the pages that can be neither read nor written, or nil.
func damage(pages []stored) error {
	var names []string
	for i := range pages {
		if pages[i].page == nil {
			names = append(names, pages[i].id())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", errDamaged, strings.Join(names, ", "))
}

// forget drops queues that were removed. A queue that later has the same name is another queue.
func (m *remembered) forget(stats []storage.Stats) {
	there := make(map[string]bool, len(stats))
	for i := range stats {
		there[stats[i].Queue] = true
	}
	for name := range m.queues {
		if !there[name] {
			delete(m.queues, name)
		}
	}
}

// partsFor returns into how many parts queues and kinds are split, if each takes so many bytes.
func partsFor(queues, kinds, bytes, maxPayload int) int {
	each := max(min(splitAt, maxPayload/bytes), 1)
	return min(max(1, (queues+each-1)/each, (kinds+each-1)/each), maxParts)
}

// opened returns all parts of a page. A part that is missing, or damaged and replaceable, is empty. A page that
// no process has begun gets the given number of parts.
func opened(pages []stored, parts int) []stored {
	for i := range pages {
		if pages[i].page != nil {
			parts = pages[i].parts
		}
	}
	all := make([]stored, parts)
	for i := range all {
		all[i] = stored{of: pages[0].of, number: pages[0].number, part: i}
		if at := slices.IndexFunc(pages, func(s stored) bool { return s.part == i }); at >= 0 {
			all[i] = pages[at]
		}
		if s := &all[i]; s.page == nil && (!s.damaged || s.version > 0) {
			s.page = newPage(s.of, s.number, parts)
		}
	}
	return all
}

// stats reads the totals and sizes of all queues of applications.
func (l *Ledger) stats(ctx context.Context) (all []storage.Stats, err error) {
	var names []string
	for name, err := range storage.EachQueue(ctx, l.store, "") {
		if err != nil {
			return nil, err
		}
		if !storage.Reserved(name) {
			names = append(names, name)
		}
	}
	for some := range slices.Chunk(names, splitAt) {
		stats, err := l.store.Stats(ctx, some...)
		if err != nil {
			return nil, err
		}
		all = append(all, stats...)
	}
	return all, nil
}

// of returns the totals that the ledger keeps.
func of(t *storage.Totals) totals {
	f := FlowOf(t)
	return totals{f.In, f.Done, f.Failed, f.Dead}
}

// measure appends the sample of a minute to a part: the growth of the totals since the last sample that is
// remembered.
func (l *Ledger) measure(s *stored, minute int64, stats []storage.Stats) {
	since := l.known.newest
	if s.count > 0 {
		since = mark{version: s.version, minute: s.lastMinute()}
	}
	places := s.places()
	for i := range s.page.queues { // a queue that was removed and comes back begins anew
		s.page.queues[i].totals = totals{}
	}
	sm := &sample{slot: int(minute - s.start)}
	for i := range stats {
		st := &stats[i]
		now := of(&st.Totals)
		before, known := l.known.queues[st.Queue]
		if before.version > since.version {
			since = before
		}
		if !known && !l.known.whole { // it is not known how much of the totals is new
			before.totals = now
		}
		grown, back := now.since(before.totals)
		sm.gap = sm.gap || back
		at := s.find(st.Queue, places)
		s.page.queues[at].totals = now
		sm.queues = append(sm.queues, queueFigures{
			at: at, totals: grown, waiting: st.Waiting, oldest: int64(st.Oldest.Seconds()),
		})
	}
	span := int64(1)
	if since.version > 0 {
		span = min(max(minute-since.minute, 1), maxSpan)
	}
	sm.span, sm.gap = int(span), sm.gap || span > 1 || since.version == 0
	slices.SortFunc(sm.queues, func(a, b queueFigures) int { return a.at - b.at })
	l.kinds.figures(s, sm, minute-span)
	l.sawAll(s, minute, since.version == 0)
	s.append(sm)
}

// places returns the place of each queue of the page.
func (p *page) places() map[string]int {
	places := make(map[string]int, len(p.queues))
	for i := range p.queues {
		places[p.queues[i].name] = i
	}
	return places
}

// kindPlaces returns the place of each kind of the page.
func (p *page) kindPlaces() map[string]int {
	places := make(map[string]int, len(p.kinds))
	for i, name := range p.kinds {
		places[name] = i
	}
	return places
}

// since returns how much the totals have grown since o. back reports that one of them has become smaller: a
// failover has lost the last steps of the queue, or the queue was removed and made again between two samples.
// The growth is then not known exactly, and a smaller total counts as no growth.
func (t totals) since(o totals) (grown totals, back bool) {
	grown = totals{
		max(t.enqueued-o.enqueued, 0), max(t.done-o.done, 0), max(t.failed-o.failed, 0), max(t.dead-o.dead, 0),
	}
	return grown, t.enqueued < o.enqueued || t.done < o.done || t.failed < o.failed || t.dead < o.dead
}

// errLarge is the error of a page that has outgrown its record, because more queues have come than were expected
// when it was begun. The next page averages the time until then.
var errLarge = errors.New("ledger: a page is larger than a payload may be")

// write stores pages, each at its version, and learns those that were written. It returns their number. The
// others are too large, or another process has written them first.
func (l *Ledger) write(ctx context.Context, pages []stored, maxPayload int) (won int, err error) {
	var large error
	txs := make([]storage.Tx, 0, len(pages))
	pages = slices.DeleteFunc(pages, func(s stored) bool {
		tx := s.tx()
		if tx.Bytes() > maxPayload {
			large = fmt.Errorf("%w: %s", errLarge, s.id())
			return true
		}
		txs = append(txs, tx)
		return false
	})
	if len(txs) == 0 {
		return 0, large
	}
	applied, err := l.session.Apply(ctx, txs...)
	if err != nil {
		return 0, err
	}
	for i := range applied {
		a := &applied[i]
		if a.Err != nil && !raced(a.Err) {
			return won, a.Err
		}
		if a.Err != nil {
			continue
		}
		won++
		if pages[i].of == minutePages {
			l.known.learn(pages[i].page, slices.Concat(a.Inserted, a.Changed)[0].Version)
		}
	}
	return won, large
}
