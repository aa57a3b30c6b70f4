package midge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// Schedule is a series of moments. [Every] and [Cron] make it, [Runner.Periodic] declares it,
// and [Queue.SetSchedule] keeps it in the storage.
type Schedule struct{ moments schedule.Schedule }

// Every returns a schedule that ticks each d, a second or more in whole milliseconds, aligned to
// the Unix epoch: Every(time.Hour) ticks on the hour in UTC, whenever it was declared.
func Every(d time.Duration) Schedule { return Schedule{schedule.Every(d)} }

// Cron returns a schedule that ticks by a crontab line of five fields (minute, hour, monthday,
// month, weekday), of six fields with the second in front, or by a descriptor such as "@daily" or
// "@every 1h30m". Days of the week are 0 to 7, where 0 and 7 are Sunday, or names. A step that is
// longer than its field or range, such as */70 or 20/50 minutes, is refused; 5/60 is once an hour.
// If both the monthday and the weekday are restricted, a day has to match one of them; unlike in
// crontab(5), a step such as */2 restricts its field.
//
// The line is read in UTC unless [Zone] sets another zone. If the clock of a zone leaps forward,
// a tick at a time that does not exist moves to the first moment that does. If the clock falls
// back, a time that exists twice ticks once, the first time. However, lines with an interval (*, ?
// or /) as their second, minute or hour, such as "*/10 * * * *" or "0 * * * *", tick both times.
//
// [Runner.Periodic] and [Queue.SetSchedule] refuse an invalid line with an *[InvalidError].
func Cron(line string) Schedule { return Schedule{schedule.Cron(line)} }

// Next returns the first tick strictly after a moment, in the zone of that moment; a [Cron] line is
// read in that zone too. It returns the zero time if no tick follows, or if the schedule is
// invalid.
func (s Schedule) Next(after time.Time) time.Time { return s.moments.Local(after) }

// Periodic declares that a schedule enqueues a job, once per tick however many runners declare it.
// The runner stores the declaration when it starts, and checks it every third of the lease. A runner with
// twenty schedules in a queue, or more, then checks only the number of the queue's schedules, and each of
// them if the number has changed, and every five minutes. A schedule that no live runner declares stands
// still. A later version of the declaration replaces the stored one and keeps its last tick. A name that
// [Queue.SetSchedule] has taken stays as it is: the runner logs that as an error, and does not tick its own
// schedule. The partition and the cost that the job names are stored with the schedule, for the tasks of all
// its ticks.
func (r *Runner) Periodic(s Schedule, job any, opts ...PeriodicOption) error {
	d, err := r.jobs.definitions.of(job)
	if err != nil {
		return wrap(err, "periodic")
	}
	in, err := cursorInsert(d, "", job, s, opts)
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

// PeriodicOption sets a property of a schedule. Every [Option] is also a PeriodicOption, for the
// tasks that the schedule enqueues, except the options that name a moment, an id or a unique key.
type PeriodicOption interface {
	declare(d *scheduleTerms)
}

type periodicOption func(d *scheduleTerms)

func (o periodicOption) declare(d *scheduleTerms) { o(d) }

// scheduleTerms holds the options of a schedule.
type scheduleTerms struct {
	call
	name, zone       string
	catchUp, overlap string
	catchUpCap       int
	missed           string         // the option that set what happens to missed ticks
	jitter           *time.Duration // nil for none
}

// Zone sets the time zone in which a [Cron] line is read, such as "Europe/Paris". The rules of the
// zone are those of the machine, as [time.LoadLocation] finds them, or else of the Go release that
// built the program. Update them on all machines before a rule changes, or the ticks depend on which
// runner computes them.
func Zone(name string) PeriodicOption {
	return periodicOption(func(d *scheduleTerms) { d.zone = name })
}

// Named sets the name of the schedule within its queue: default the job's oldest kind. Of two
// schedules of one kind, one needs a name.
func Named(name string) PeriodicOption {
	return periodicOption(func(d *scheduleTerms) { d.fail(checkScheduleName("Named", name)); d.name = name })
}

// Jitter makes each tick later than its moment by an offset below d, a millisecond to 24 hours. The names
// of the schedule and its queue choose the offset, so that it is the same each time, and schedules
// of one moment are spread evenly over d. The task's [RunInfo].Tick is the later moment.
func Jitter(d time.Duration) PeriodicOption {
	return periodicOption(func(t *scheduleTerms) { t.jitter = &d })
}

// SkipMissed leaves out the ticks that were missed: the ticks that were not made within five seconds, because
// no runner lived or because the runners were late, and all but the last of several due ticks. The runner
// logs them. Without it, one task makes up for all of them.
func SkipMissed() PeriodicOption {
	return periodicOption(func(d *scheduleTerms) {
		d.catchUp = schedule.SkipMissed
		d.either(&d.missed, "SkipMissed")
	})
}

// AllMissed makes up for each tick that was missed, but only for the latest limit of them: 1 to 100; 0
// means 100.
func AllMissed(limit int) PeriodicOption {
	return periodicOption(func(d *scheduleTerms) {
		if limit < 0 || limit > schedule.MaxCatchUp {
			d.fail(storage.Invalid("AllMissed", limit, "0 to %d", schedule.MaxCatchUp))
		}
		d.catchUp, d.catchUpCap = schedule.AllMissed, cmp.Or(limit, schedule.MaxCatchUp)
		d.either(&d.missed, "AllMissed")
	})
}

// NoOverlap leaves out a tick while the task of an earlier tick has not ended.
func NoOverlap() PeriodicOption {
	return periodicOption(func(d *scheduleTerms) { d.overlap = schedule.SkipOverlap })
}

// cursorInsert makes and checks the insert of a schedule. Its Cursor.Next is set when it is stored. A name
// is that of a kept schedule; without one, a program declares the schedule.
func cursorInsert(
	d *definition, name string, job any, s Schedule, opts []PeriodicOption,
) (storage.Insert, error) {
	terms := scheduleTerms{call: newCall(d), catchUp: schedule.OneMissed}
	if err := terms.read(opts); err != nil {
		return storage.Insert{}, err
	}
	if name != "" && terms.name != "" {
		return storage.Insert{}, storage.Invalid("option Named", "beside the name "+name, "one name")
	}
	terms.name = cmp.Or(name, terms.name, d.oldest())
	moments := s.moments
	if terms.jitter != nil {
		moments = moments.Spread(*terms.jitter)
	}
	moments, err := moments.In(terms.zone)
	if err != nil {
		return storage.Insert{}, err
	}
	if err := checkScheduleName("schedule name", terms.name); err != nil {
		return storage.Insert{}, err
	}
	payload, err := d.encode(string(d.options.Encoding), job)
	if err != nil {
		return storage.Insert{}, err
	}
	in, err := terms.insertOf(d, job, payload)
	if err != nil {
		return storage.Insert{}, err
	}
	in.Ref.ID = storage.CursorPrefix + terms.name
	if moments.Next(time.Unix(0, 0)).IsZero() {
		return storage.Insert{}, storage.Invalid("schedule", moments.Spec, "one that ticks at all")
	}
	schedule.Declare(&in, storage.Declaration{
		Spec: moments.Spec, Zone: terms.zone,
		CatchUp: terms.catchUp, CatchUpCap: terms.catchUpCap, Overlap: terms.overlap, Kept: name != "",
	})
	return in, storage.CheckInsert(highestLimits(), &in)
}

// read applies options and returns the first error.
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

// checkScheduleName checks a name, which must leave room for the prefix of the cursor's id. what
// names it in errors.
func checkScheduleName(what, name string) error {
	if err := storage.CheckName(what, name); err != nil {
		return err
	}
	if most := storage.MaxName - len(storage.CursorPrefix); len(name) > most {
		return storage.Invalid(what, name, "at most %d characters, see Named", most)
	}
	return nil
}
