package midge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones of schedules, on machines that have none

	"github.com/midgehq/midge/storage"
)

// Schedule is a series of moments: made by [Every] or [Cron], declared by
// [Runner.Periodic].
type Schedule struct {
	spec  string
	every time.Duration // of Every
	cron  *cronSpec     // of Cron
	err   error         // what is wrong with it, told where it is declared
}

// Every ticks each d, a second or more in whole milliseconds, aligned to the Unix
// epoch: Every(time.Hour) ticks on the hour in UTC, whenever it was declared.
func Every(d time.Duration) Schedule {
	s := Schedule{spec: "every " + d.String(), every: d}
	if d < time.Second || d > storage.MaxDelay || d%time.Millisecond != 0 {
		s.err = storage.Invalid("Every", d, "1s to "+longest+", in whole milliseconds")
	}
	return s
}

// Cron ticks by a crontab line of five fields (minute, hour, monthday, month, weekday)
// or six with the second in front, or by a descriptor such as "@daily" or
// "@every 1h30m". Days of the week are 0 (Sunday) to 6, or names.
//
// The line is read in UTC unless [Zone] says otherwise. Where a zone's clock leaps
// forward, a time that does not exist ticks at the first moment that does. Where it
// falls back, a time that exists twice ticks once, the first time; but lines that have
// an interval (*, ? or /) as their second, minute or hour, such as "*/10 * * * *" or
// "0 * * * *", tick both times.
//
// An invalid line is an *[InvalidError] where the schedule is declared.
func Cron(line string) Schedule {
	line = strings.Join(strings.Fields(line), " ")
	if every, ok := strings.CutPrefix(line, "@every "); ok {
		d, err := time.ParseDuration(every)
		if err != nil {
			return Schedule{err: storage.Invalid("Cron", line, "a duration after @every")}
		}
		return Every(d)
	}
	cron, err := parseCron(line)
	return Schedule{spec: "cron " + line, cron: cron, err: err}
}

// parseSchedule reads the text of a schedule as cursors keep it: "every 1h0m0s" or
// "cron 0 3 * * *", and the name of a zone, "" for UTC.
func parseSchedule(spec, zone string) (Schedule, error) {
	how, what, _ := strings.Cut(spec, " ")
	var s Schedule
	switch how {
	case "every":
		d, err := time.ParseDuration(what)
		if err != nil {
			return Schedule{}, storage.Invalid("schedule", spec, "every and a duration")
		}
		s = Every(d)
	case "cron":
		s = Cron(what)
	default:
		return Schedule{}, storage.Invalid("schedule", spec, `"every …" or "cron …"`)
	}
	return s.in(zone)
}

// in gives the schedule in a zone.
func (s Schedule) in(zone string) (Schedule, error) {
	switch {
	case s.err != nil:
		return s, s.err
	case s.every == 0 && s.cron == nil:
		return s, storage.Invalid("schedule", "that is empty", "one made by Every or Cron")
	case zone == "" || zone == "UTC":
		return s, nil
	case s.cron == nil:
		return s, storage.Invalid("Zone", zone, "none beside Every, which ticks by UTC")
	}
	if zone == "Local" || len(zone) > storage.MaxName {
		return s, storage.Invalid("Zone", zone, `a name such as "Europe/Paris", the same on every machine`)
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return s, storage.Invalid("Zone", zone, `a name such as "Europe/Paris"`)
	}
	cron := *s.cron
	cron.zone = location
	s.cron = &cron
	return s, nil
}

// next gives the first tick strictly after a moment, or the zero time where there is
// none, as for the 30th of February.
func (s Schedule) next(after time.Time) time.Time {
	var t time.Time
	if s.cron != nil {
		t = s.cron.next(after)
	} else {
		// Milliseconds, as nanoseconds since the epoch end in 2262.
		period, ms := s.every.Milliseconds(), after.UnixMilli()
		whole := ms / period
		if ms < 0 && ms%period != 0 {
			whole--
		}
		t = time.UnixMilli((whole + 1) * period).UTC()
	}
	if t.Year() >= lastYear {
		return time.Time{}
	}
	return t
}

// lastYear is the first that storages do not have to represent.
const lastYear = 2200

// PeriodicOption says more about a schedule. Every [Option] is one, for the tasks that
// it enqueues, except those that name a moment, an id or a unique key.
type PeriodicOption interface {
	declare(d *scheduleTerms)
}

type periodicOption func(d *scheduleTerms)

func (o periodicOption) declare(d *scheduleTerms) { o(d) }

// scheduleTerms is what the options of a schedule say.
type scheduleTerms struct {
	call
	name, zone       string
	catchUp, overlap string
	catchUpCap       int
	missed           string // the option that said what becomes of missed ticks
}

// Zone is the time zone in which a [Cron] line is read, such as "Europe/Paris". The
// zones' rules are part of the program.
func Zone(name string) PeriodicOption {
	return periodicOption(func(d *scheduleTerms) { d.zone = name })
}

// Named names the schedule, within its queue: default the kind. A kind with two
// schedules names one of them.
func Named(name string) PeriodicOption {
	return periodicOption(func(d *scheduleTerms) { d.fail(checkScheduleName("Named", name)); d.name = name })
}

// SkipMissed leaves out ticks that were missed while no runner lived, instead of
// making up for all of them by one task. A tick within the last five seconds is late,
// not missed.
func SkipMissed() PeriodicOption {
	return periodicOption(func(d *scheduleTerms) {
		d.catchUp = catchUpSkip
		d.either(&d.missed, "SkipMissed")
	})
}

// AllMissed makes up for each tick that was missed while no runner lived, the latest
// limit of them: 1 to 100, 0 means 100.
func AllMissed(limit int) PeriodicOption {
	return periodicOption(func(d *scheduleTerms) {
		if limit < 0 || limit > maxCatchUp {
			d.fail(storage.Invalid("AllMissed", limit, "0 to %d", maxCatchUp))
		}
		d.catchUp, d.catchUpCap = catchUpAll, cmp.Or(limit, maxCatchUp)
		d.either(&d.missed, "AllMissed")
	})
}

// NoOverlap leaves a tick out while the task of an earlier one has not ended.
func NoOverlap() PeriodicOption {
	return periodicOption(func(d *scheduleTerms) { d.overlap = overlapSkip })
}

// The policies, as cursors name them.
const (
	catchUpSkip = "skip"
	catchUpOne  = "one"
	catchUpAll  = "all"
	overlapSkip = "skip"
)

const (
	// maxCatchUp bounds the tasks of one catching up, which is one transaction.
	maxCatchUp = 100
	// lateAfter is how old a tick may be before SkipMissed counts it as missed: long
	// enough for another runner to take it up from one that died with it.
	lateAfter = 5 * time.Second
)

// cursorInsert makes the insert of a schedule, checked. now is the storage's time; zero
// leaves Cursor.Next to be filled.
func cursorInsert(
	d *definition, job any, s Schedule, opts []PeriodicOption, now time.Time,
) (storage.Insert, error) {
	terms := scheduleTerms{call: newCall(d), name: d.kind, catchUp: catchUpOne}
	if err := terms.read(opts); err != nil {
		return storage.Insert{}, err
	}
	s, err := s.in(terms.zone)
	if err != nil {
		return storage.Insert{}, err
	}
	if err := checkScheduleName("schedule name", terms.name); err != nil {
		return storage.Insert{}, err
	}
	payload, err := d.encode(job)
	if err != nil {
		return storage.Insert{}, err
	}
	in := terms.insert(d, payload)
	in.Ref.ID = storage.CursorPrefix + terms.name
	in.Cursor = &storage.Cursor{
		Spec: s.spec, Zone: terms.zone,
		CatchUp: terms.catchUp, CatchUpCap: terms.catchUpCap, Overlap: terms.overlap,
	}
	if s.next(time.Unix(0, 0)).IsZero() {
		return storage.Insert{}, storage.Invalid("schedule", s.spec, "one that ticks at all")
	}
	in.Cursor.Declaration = declaration(&in)
	if !now.IsZero() {
		in.Cursor.Next = s.next(now)
	}
	return in, checkInsert(in)
}

// read takes in options.
func (t *scheduleTerms) read(opts []PeriodicOption) error {
	for _, o := range opts {
		if isNil(o) {
			return storage.Invalid("option", "nil", "an option")
		}
		o.declare(t)
	}
	switch {
	case t.err != nil:
		return t.err
	case t.timed != "" || t.id != nil || t.unique:
		return storage.Invalid("option", t.barred(), "none of In, At, ID and Unique with a schedule; see NoOverlap")
	}
	return nil
}

// barred names the option that does not go with a schedule.
func (t *scheduleTerms) barred() string {
	switch {
	case t.timed != "":
		return t.timed
	case t.id != nil:
		return "ID"
	}
	return "Unique"
}

// checkScheduleName leaves room for the prefix of the cursor's id. what says what gave the
// name.
func checkScheduleName(what, name string) error {
	if err := storage.CheckName(what, name); err != nil {
		return err
	}
	if most := storage.MaxName - len(storage.CursorPrefix); len(name) > most {
		return storage.Invalid(what, name, "at most %d characters, see Named", most)
	}
	return nil
}

// scheduleRef prints a cursor's ref as its schedule is known to those who declare it.
func scheduleRef(cursor storage.Ref) string {
	return cursor.Queue + "/" + strings.TrimPrefix(cursor.ID, storage.CursorPrefix)
}

// declaration hashes all that is declared of a schedule.
func declaration(in *storage.Insert) string {
	c := in.Cursor
	parts := [][]byte{
		[]byte(in.Kind), []byte(in.Encoding), in.Payload,
		fmt.Append(nil, in.Priority, in.MaxRetries, in.CrashLimit, in.Timeout, in.Keep.For, in.Keep.UntilRead),
		[]byte(c.Spec), []byte(c.Zone), []byte(c.CatchUp), fmt.Append(nil, c.CatchUpCap), []byte(c.Overlap),
	}
	parts = slices.Grow(parts, 2*len(in.Headers))
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		parts = append(parts, []byte(name), []byte(in.Headers[name]))
	}
	return storage.UniqueKey(parts...)
}

// ticks decides what a due cursor enqueues at the storage's time now: the ticks that
// are due by its policy, oldest first, and the next one, strictly later than now; zero
// where there will be none.
func ticks(c storage.Cursor, now time.Time) (due []time.Time, next time.Time, err error) {
	s, err := parseSchedule(c.Spec, c.Zone)
	if err != nil {
		return nil, time.Time{}, err
	}
	if c.Next.IsZero() || c.Next.After(now) {
		return nil, c.Next, nil
	}
	next = s.next(now)
	latest := s.latest(c.Next, now)
	switch {
	case c.CatchUp == catchUpSkip && now.Sub(latest) > lateAfter:
		return nil, next, nil
	case c.CatchUp != catchUpAll || c.Overlap == overlapSkip: // of tasks that must not overlap one is enough
		return []time.Time{latest}, next, nil
	}
	most := c.CatchUpCap
	if most < 1 || most > maxCatchUp {
		most = maxCatchUp
	}
	due = []time.Time{latest}
	for len(due) < most && latest.After(c.Next) {
		latest = s.latest(c.Next, latest.Add(-time.Microsecond))
		due = append(due, latest)
	}
	slices.Reverse(due)
	return due, next, nil
}

// latest gives the last tick from first, a tick itself, to now. It looks for the last
// moment whose next tick is not after now, in steps that do not grow with the number
// of ticks between.
func (s Schedule) latest(first, now time.Time) time.Time {
	latest := first
	// first+low is followed by a tick until now, first+high is not.
	low, high := int64(0), now.Sub(first).Microseconds()
	for low < high {
		middle := low + (high-low)/2
		tick := s.next(first.Add(time.Duration(middle) * time.Microsecond))
		if tick.IsZero() || tick.After(now) {
			high = middle
			continue
		}
		latest = tick
		low = tick.Sub(first).Microseconds()
	}
	return latest
}
