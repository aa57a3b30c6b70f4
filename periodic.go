package midge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// Schedule is a series of moments: made by [Every] or [Cron], declared by
// [Runner.Periodic].
type Schedule struct{ moments schedule.Schedule }

// Every ticks each d, a second or more in whole milliseconds, aligned to the Unix
// epoch: Every(time.Hour) ticks on the hour in UTC, whenever it was declared.
func Every(d time.Duration) Schedule { return Schedule{schedule.Every(d)} }

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
func Cron(line string) Schedule { return Schedule{schedule.Cron(line)} }

// Next gives the first tick strictly after a moment, in that moment's zone, in which a [Cron]
// line is read too. It is the zero time where none comes, or where the schedule is invalid.
func (s Schedule) Next(after time.Time) time.Time { return s.moments.Local(after) }

// Periodic declares that a job is enqueued by a schedule, once per tick however many
// runners declare it. It is stored when the runner runs, and again with each heartbeat:
// a schedule that no live runner declares stands still. A later version of it replaces
// the stored one, which keeps its last tick.
func (r *Runner) Periodic(s Schedule, job any, opts ...PeriodicOption) error {
	d, err := r.jobs.definitions.of(job)
	if err != nil {
		return wrap(err, "periodic")
	}
	in, err := cursorInsert(d, job, s, opts)
	if err != nil {
		return fmt.Errorf("midge: periodic %s: %w", d.kind, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return wrap(ErrRunning, "periodic %s", schedule.Name(in.Ref))
	}
	if err := r.actors.Declare(in); err != nil {
		return fmt.Errorf("midge: periodic %s: %w", d.kind, err)
	}
	return nil
}

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

// Named names the schedule, within its queue: default the kind, the oldest one. A kind with two
// schedules names one of them.
func Named(name string) PeriodicOption {
	return periodicOption(func(d *scheduleTerms) { d.fail(checkScheduleName("Named", name)); d.name = name })
}

// SkipMissed leaves out ticks that were missed while no runner lived, instead of
// making up for all of them by one task. A tick within the last five seconds is late,
// not missed.
func SkipMissed() PeriodicOption {
	return periodicOption(func(d *scheduleTerms) {
		d.catchUp = schedule.SkipMissed
		d.either(&d.missed, "SkipMissed")
	})
}

// AllMissed makes up for each tick that was missed while no runner lived, the latest
// limit of them: 1 to 100, 0 means 100.
func AllMissed(limit int) PeriodicOption {
	return periodicOption(func(d *scheduleTerms) {
		if limit < 0 || limit > schedule.MaxCatchUp {
			d.fail(storage.Invalid("AllMissed", limit, "0 to %d", schedule.MaxCatchUp))
		}
		d.catchUp, d.catchUpCap = schedule.AllMissed, cmp.Or(limit, schedule.MaxCatchUp)
		d.either(&d.missed, "AllMissed")
	})
}

// NoOverlap leaves a tick out while the task of an earlier one has not ended.
func NoOverlap() PeriodicOption {
	return periodicOption(func(d *scheduleTerms) { d.overlap = schedule.SkipOverlap })
}

// cursorInsert makes the insert of a schedule, checked. Cursor.Next is filled where it is stored.
func cursorInsert(d *definition, job any, s Schedule, opts []PeriodicOption) (storage.Insert, error) {
	terms := scheduleTerms{call: newCall(d), name: d.oldest(), catchUp: schedule.OneMissed}
	if err := terms.read(opts); err != nil {
		return storage.Insert{}, err
	}
	moments, err := s.moments.In(terms.zone)
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
	if moments.Next(time.Unix(0, 0)).IsZero() {
		return storage.Insert{}, storage.Invalid("schedule", moments.Spec, "one that ticks at all")
	}
	declaration := storage.Declaration{
		Spec: moments.Spec, Zone: terms.zone,
		CatchUp: terms.catchUp, CatchUpCap: terms.catchUpCap, Overlap: terms.overlap,
	}
	declaration.Hash = schedule.Hash(&in, &declaration)
	in.Cursor = &storage.Cursor{Declaration: declaration.Encode()}
	return in, storage.CheckInsert(highestLimits(), &in)
}

// read takes in options.
func (t *scheduleTerms) read(opts []PeriodicOption) error {
	for _, o := range opts {
		if isNil(o) {
			return storage.Invalid("option", "nil", "an option")
		}
		o.declare(t)
	}
	if t.err == nil && t.oneTask != "" {
		t.err = storage.Invalid("option", t.oneTask,
			"none of In, At, Deadline, ID and Unique with a schedule; see NoOverlap")
	}
	return t.err
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
