// Package schedule computes the moments of schedules, which are intervals or crontab lines in the
// time zones of the world, and the ticks that are due for a stored cursor.
package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
	_ "time/tzdata" // zones for schedules, on machines without zone files

	"github.com/midgehq/midge/storage"
)

// Schedule is a series of moments. [Every], [Cron] or [Parse] makes it. The zero value is not a
// schedule.
type Schedule struct {
	Spec   string        // its text, as cursors store it
	every  time.Duration // set by Every
	cron   *cronSpec     // set by Cron
	jitter time.Duration // set by Spread; 0 for none
	offset time.Duration // from a moment to its tick, below jitter; set by Of
	err    error         // what is wrong with it, returned by In
}

// Every returns a schedule that ticks each d, a second or more in whole milliseconds, aligned to
// the Unix epoch.
func Every(d time.Duration) Schedule {
	s := Schedule{Spec: "every " + d.String(), every: d}
	if d < time.Second || d > storage.MaxDelay || d%time.Millisecond != 0 {
		s.err = storage.Invalid("Every", d, "1s to 100 years, in whole milliseconds")
	}
	return s
}

// Cron returns a schedule that ticks by a crontab line of five or six fields, or by a descriptor.
// The line is read in UTC unless [Schedule.In] sets another zone.
func Cron(line string) Schedule {
	s := stored(line)
	if s.err == nil {
		s.err = checkSteps(line)
	}
	return s
}

// stored is Cron for a line that a cursor holds. It may have been declared by a version of midge that
// allowed every step.
func stored(line string) Schedule {
	line = strings.Join(strings.Fields(line), " ")
	if every, ok := strings.CutPrefix(line, "@every "); ok {
		d, err := time.ParseDuration(every)
		if err != nil {
			return Schedule{err: storage.Invalid("Cron", line, "a duration after @every")}
		}
		return Every(d)
	}
	spec := sundays(line)
	cron, err := parseCron(line, spec)
	return Schedule{Spec: "cron " + spec, cron: cron, err: err}
}

// jitterWord stands before the jitter in the text of a schedule. The jitter is a part of that text so that a
// program of an earlier version, which would tick without it, cannot read the schedule and does not tick.
const jitterWord = " jitter "

// MaxJitter is the longest time over which a schedule is spread.
const MaxJitter = 24 * time.Hour

// Spread returns the schedule with each tick later than its moment, by an offset below d that [Of] chooses.
func (s Schedule) Spread(d time.Duration) Schedule {
	if s.err == nil && (d < storage.MinSpan || d > MaxJitter) {
		s.err = storage.Invalid("Jitter", d, "%v to 24h", storage.MinSpan)
	}
	s.Spec, s.jitter = s.Spec+jitterWord+d.String(), d
	return s
}

// Of returns the schedule that is declared as d, with the offset that the name of its cursor chooses: a whole
// number of milliseconds, the same each time.
func Of(cursor storage.Ref, d *storage.Declaration) (Schedule, error) {
	s, err := Parse(d.Spec, d.Zone)
	if err == nil && s.jitter > 0 {
		sum := sha256.Sum256([]byte(Name(cursor)))
		chosen := binary.BigEndian.Uint64(sum[:]) % uint64(s.jitter.Milliseconds())
		s.offset = time.Duration(chosen) * time.Millisecond
	}
	return s, err
}

// Parse parses the text of a schedule as cursors store it: "every 1h0m0s", "cron 0 3 * * *", or with a jitter,
// "every 1h0m0s jitter 30m0s". The result has no offset; see [Of]. zone is the name of a zone, "" for UTC.
func Parse(spec, zone string) (Schedule, error) {
	moments, jitter, spread := strings.Cut(spec, jitterWord)
	how, what, _ := strings.Cut(moments, " ")
	var s Schedule
	switch how {
	case "every":
		d, err := time.ParseDuration(what)
		if err != nil {
			return Schedule{}, storage.Invalid("schedule", spec, "every and a duration")
		}
		s = Every(d)
	case "cron":
		s = stored(what)
	default:
		return Schedule{}, storage.Invalid("schedule", spec, `"every …" or "cron …"`)
	}
	if spread {
		d, err := time.ParseDuration(jitter)
		if err != nil {
			return Schedule{}, storage.Invalid("schedule", spec, "a duration behind jitter")
		}
		s = s.Spread(d)
	}
	return s.In(zone)
}

// Short returns the text of a schedule as people write it: "every 5m" for "every 5m0s".
func Short(spec string) string {
	moments, jitter, spread := strings.Cut(spec, jitterWord)
	if strings.HasPrefix(moments, "every ") {
		moments = withoutZeros(moments)
	}
	if spread {
		moments += jitterWord + withoutZeros(jitter)
	}
	return moments
}

// withoutZeros cuts the zeros at the end of a duration.
func withoutZeros(text string) string {
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// In returns the schedule in a zone, or an error that names the fault of the schedule or the zone.
func (s Schedule) In(zone string) (Schedule, error) {
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
	return s.at(location), nil
}

// at returns the schedule with its line, if it has one, read in a zone.
func (s Schedule) at(location *time.Location) Schedule {
	if s.cron != nil {
		cron := *s.cron
		cron.zone = location
		s.cron = &cron
	}
	return s
}

// Local is Next with the line read in the zone of after. The result is in that zone too.
func (s Schedule) Local(after time.Time) time.Time {
	t := s.at(after.Location()).Next(after)
	if t.IsZero() {
		return t
	}
	return t.In(after.Location())
}

// Next returns the first tick strictly after a moment, or the zero time if there is none, as for
// the 30th of February, and for an invalid schedule.
func (s Schedule) Next(after time.Time) time.Time {
	var t time.Time
	after = after.Add(-s.offset)
	switch {
	case s.err != nil || s.every == 0 && s.cron == nil:
		return t
	case s.cron != nil:
		t = s.cron.next(after)
	default:
		// In milliseconds, because nanoseconds since the epoch overflow in 2262.
		period, ms := s.every.Milliseconds(), after.UnixMilli()
		whole := ms / period
		if ms < 0 && ms%period != 0 {
			whole--
		}
		t = time.UnixMilli((whole + 1) * period).UTC()
	}
	if !t.IsZero() {
		t = t.Add(s.offset)
	}
	if t.Year() >= LastYear {
		return time.Time{}
	}
	return t
}

// LastYear is the first year that storages need not represent.
const LastYear = 2200

// latest returns the last tick from first to now; first itself is a tick. It searches by bisection
// for the last moment whose next tick is not after now, so that its steps do not grow with the
// number of ticks.
func (s Schedule) latest(first, now time.Time) time.Time {
	latest := first
	// A tick until now follows first+low; none follows first+high.
	low, high := int64(0), now.Sub(first).Microseconds()
	for low < high {
		middle := low + (high-low)/2
		tick := s.Next(first.Add(time.Duration(middle) * time.Microsecond))
		if tick.IsZero() || tick.After(now) {
			high = middle
			continue
		}
		latest = tick
		low = tick.Sub(first).Microseconds()
	}
	return latest
}
