// Package ledger keeps two records in the storage itself, without another database: the history of queues and
// kinds, as figures of minutes for 7 days and of hours for 90 days, and the audit of what people did.
//
// The history consists of pages in the queue midge.ledger. A page of minutes has a quarter of an hour, a page
// of hours has a day, each of up to about 500 queues and kinds. Any number of processes may write. Once a
// minute each of them reads the totals of all queues, and appends what has happened since the last sample to
// the page, at the version that it read. The first process succeeds, and the others find the minute written.
// A page keeps the totals of its last sample, so that nothing is counted twice or lost, whichever process
// writes next. If no process wrote for a while, the next sample covers that time. Its figures are averaged
// over that time and marked as a gap.
//
// Records are tasks that are scheduled for a moment far in the future. Listings are in the order of these
// moments: the page that expires first comes first, and the newest action comes first.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// Queue is the queue that holds the pages.
const Queue = storage.ReservedQueues + "ledger"

// How long pages of minutes and pages of hours are kept.
const (
	MinutesKept = 7 * 24 * time.Hour
	HoursKept   = 90 * 24 * time.Hour
)

// Ledger writes and reads the history. It is safe for concurrent use.
type Ledger struct {
	store   storage.Storage
	session *storage.Session

	mu       sync.Mutex  // guards the fields below; only one sample is written at a time
	known    *remembered // nil before the first sample
	kinds    kindMemory
	gathered int64 // minutes were gathered into the hours before this hour; 0 if that is not known
	swept    int64 // the hour in which expired pages were last deleted
	trimmed  int64 // the day in which the audit was last trimmed
	clock    clock
}

// New returns the ledger of a storage. It does no I/O.
func New(store storage.Storage) *Ledger {
	return &Ledger{store: store, session: storage.NewSession(store, 0)}
}

// settle is how long after the end of a minute its sample is written.
const settle = 2 * time.Second

// Run writes a sample at the beginning of each minute, by the storage's clock, until ctx ends. It calls
// trouble with an error, such as that of a storage that does not answer, once for as long as the error stays
// the same. The next sample covers the minutes that could not be written.
func (l *Ledger) Run(ctx context.Context, trouble func(error)) {
	wait, last := time.Duration(0), ""
	for sleep.For(ctx, wait) {
		now, err := l.Write(ctx)
		switch {
		case err == nil:
			last = ""
		case ctx.Err() == nil && err.Error() != last:
			last = err.Error()
			trouble(err)
		}
		if wait = time.Minute; !now.IsZero() {
			wait = now.Truncate(time.Minute).Add(time.Minute + settle).Sub(now)
		}
	}
}

// Write writes the sample of the last full minute, unless it is written already. It also gathers full hours,
// and once the storage's clock is steady it deletes pages and actions that have been kept for long enough. It
// returns the storage's time, or zero if the storage did not report it.
func (l *Ledger) Write(ctx context.Context) (now time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := l.store.Describe(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("ledger: %w", err)
	}
	minute, steady := d.Now.Unix()/60-1, l.clock.steady(d.Now)
	most := d.Limits.WithDefaults().MaxPayload
	err = l.sample(ctx, minute, most)
	if err == nil || goesOn(err) {
		err = errors.Join(err, l.gather(ctx, (minute+1)/60, most))
	}
	if steady && l.swept != minute/60 && (err == nil || goesOn(err)) {
		swept := errors.Join(l.sweep(ctx, d.Now), l.trim(ctx, d.Now))
		if err = errors.Join(err, swept); swept == nil {
			l.swept = minute / 60
		}
	}
	if err != nil {
		err = fmt.Errorf("ledger: %w", err)
	}
	return d.Now, err
}

// goesOn reports whether an error concerns only single pages, so that the rest of the work goes on.
func goesOn(err error) bool { return errors.Is(err, errDamaged) || errors.Is(err, errLarge) }

// far is how much later than its end a page is due: so far ahead that nobody claims it.
const far = 100 * 365 * 24 * time.Hour

// sweepPage is how many pages are listed at a time, because each may be large.
const sweepPage = 10

// sweep deletes expired pages. A listing begins with the pages that expire first.
func (l *Ledger) sweep(ctx context.Context, now time.Time) error {
	for {
		page, err := l.store.Tasks(ctx, storage.TasksQuery{Queue: Queue, State: storage.Scheduled, Limit: sweepPage})
		if err != nil {
			return err
		}
		var txs []storage.Tx
		for i := range page.Tasks {
			if t := &page.Tasks[i]; t.Due.Add(-far).Before(now) {
				txs = append(txs, storage.Tx{Deletes: []storage.Delete{{Ref: t.Ref, Version: t.Version}}})
			}
		}
		if len(txs) == 0 {
			return nil
		}
		applied, err := l.session.Apply(ctx, txs...)
		if err != nil {
			return err
		}
		for i := range applied {
			if err := applied[i].Err; err != nil && !raced(err) {
				return err
			}
		}
	}
}

// trim trims the audit, once a day and whenever it has too many actions.
func (l *Ledger) trim(ctx context.Context, now time.Time) error {
	day := now.Unix() / (24 * 60 * 60)
	stats, err := l.store.Stats(ctx, AuditQueue)
	if err != nil || l.trimmed == day && stats[0].Scheduled <= MaxActions {
		return err
	}
	err = (&Audit{store: l.store, session: l.session}).Trim(ctx, now)
	if err == nil {
		l.trimmed = day
	}
	return err
}

// raced reports whether a Tx was refused because another process was first.
func raced(err error) bool {
	var dependency *storage.DependencyError
	return errors.As(err, &dependency)
}

// The prefixes of the ids of pages: of minutes, and of hours.
const (
	minutePages = "m"
	hourPages   = "h"
)

// expires returns until when a page is kept.
func (p *page) expires() time.Time {
	end := time.Unix((p.start+p.step*int64(p.slots()))*60, 0)
	if p.step == 1 {
		return end.Add(MinutesKept)
	}
	return end.Add(HoursKept)
}

// stored is a page with its record.
type stored struct {
	*page // nil if there is no record, or the record is damaged

	of      string // minutePages or hourPages
	number  int64  // its number since 1970, in quarters of an hour or in days
	part    int
	version int64 // of the record; 0 if there is none, or it cannot be read
	damaged bool
}

func (s *stored) id() string { return fmt.Sprintf("%s.%d.%d", s.of, s.number, s.part) }

// lacks reports whether the page has no sample of a minute or a later one.
func (s *stored) lacks(minute int64) bool { return s.page == nil || s.lastMinute() < minute }

// lastMinute returns the minute of the last sample. It lies before the page if the page has no sample.
func (p *page) lastMinute() int64 { return p.start + int64(p.last)*p.step }

// fill reads the page.
func (s *stored) fill(ctx context.Context, store storage.Storage) error {
	t, err := store.Task(ctx, storage.Ref{Queue: Queue, ID: s.id()})
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case errors.Is(err, storage.ErrDamaged):
		s.damaged = true
		return nil
	case err != nil:
		return err
	}
	s.version = t.Version
	fresh := newPage(s.of, s.number, 1)
	p, err := decode(t.Payload)
	if s.damaged = err != nil || p.start != fresh.start || p.step != fresh.step || s.part >= p.parts; !s.damaged {
		s.page = p
	}
	return nil
}

// newPage makes an empty page of minutes, or of the hours of a day.
func newPage(of string, number int64, parts int) *page {
	if of == minutePages {
		return &page{start: number * pageMinutes, step: 1, parts: parts, last: -1}
	}
	return &page{start: number * 24 * 60, step: 60, parts: parts, last: -1}
}

// readers is how many pages are read at a time.
const readers = 8

// readAll reads pages, several at a time.
func (l *Ledger) readAll(ctx context.Context, pages []stored) error {
	errs := make([]error, readers)
	var all sync.WaitGroup
	for first := range min(readers, len(pages)) {
		all.Go(func() {
			for i := first; i < len(pages) && errs[first] == nil; i += readers {
				errs[first] = pages[i].fill(ctx, l.store)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// readParts reads all parts of pages. The first part of a page holds the number of its parts. If that part
// is damaged, parts are read until one does not exist. If it is missing, no other part is read.
func (l *Ledger) readParts(ctx context.Context, of string, numbers ...int64) ([]stored, error) {
	pages := make([]stored, 0, len(numbers))
	for _, number := range numbers {
		pages = append(pages, stored{of: of, number: number})
	}
	if err := l.readAll(ctx, pages); err != nil {
		return nil, err
	}
	var rest []stored
	for i := range numbers {
		for part := 1; pages[i].page != nil && part < pages[i].parts; part++ {
			rest = append(rest, stored{of: of, number: numbers[i], part: part})
		}
	}
	if err := l.readAll(ctx, rest); err != nil {
		return nil, err
	}
	for i := range numbers {
		for part := 1; pages[i].damaged; part++ {
			s := stored{of: of, number: numbers[i], part: part}
			if err := s.fill(ctx, l.store); err != nil {
				return nil, err
			}
			if s.page == nil && !s.damaged {
				break
			}
			rest = append(rest, s)
		}
	}
	return append(pages, rest...), nil
}

// tx returns the Tx that stores a page: at the version at which it was read, or as a new record.
func (s *stored) tx() storage.Tx {
	ref := storage.Ref{Queue: Queue, ID: s.id()}
	payload := s.encode()
	if s.version > 0 {
		return storage.Tx{Changes: []storage.Change{{
			Ref: ref, Version: s.version, Encoding: encoding, Payload: payload,
		}}}
	}
	return storage.Tx{Inserts: []storage.Insert{{
		Ref: ref, Kind: kind, Encoding: encoding, Payload: payload, CrashLimit: 1, At: s.expires().Add(far),
	}}}
}

// The properties of the records of the ledger.
const (
	kind     = "midge.page"
	encoding = "midge.ledger"
)
