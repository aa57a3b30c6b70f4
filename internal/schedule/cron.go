package schedule

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/midgehq/midge/storage"
)

// cronSpec is a parsed crontab line in a zone. github.com/robfig/cron/v3 parses it. Its ticks are
// computed here, because that library leaves out times that daylight saving skips.
type cronSpec struct {
	fields cron.SpecSchedule
	zone   *time.Location
	// interval means that the second, minute or hour of the line names an interval.
	interval bool
}

// maxLine bounds the text of a line, in bytes.
const maxLine = 1 << 10

// parseCron parses a line whose fields are separated by single spaces. spec is the line without 7 as Sunday.
func parseCron(line, spec string) (*cronSpec, error) {
	const want = "five or six cron fields, or a descriptor such as @daily"
	switch {
	case strings.Contains(line, "TZ="):
		return nil, storage.Invalid("Cron", line, "%s; the option Zone names the zone", want)
	case len(line) > maxLine || len(spec) > maxLine:
		return nil, storage.Invalid("Cron", line, want)
	}
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour |
		cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	parsed, err := parser.Parse(spec)
	if err != nil {
		text := strings.Replace(err.Error(), "above maximum (6)", "above maximum (7)", 1) // where 7 is read as 0
		return nil, storage.Invalid("Cron", line, "%s (%s)", want, text)
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, storage.Invalid("Cron", line, want)
	}
	f := fields
	if slices.Contains([]uint64{f.Second, f.Minute, f.Hour, f.Dom, f.Month, f.Dow}, 0) { // only commas
		return nil, storage.Invalid("Cron", line, want)
	}
	c := &cronSpec{fields: *fields, zone: time.UTC, interval: line == "@hourly"}
	if text := strings.Split(line, " "); len(text) >= 5 {
		clock := strings.Join(text[:len(text)-3], " ") // the second, if any, the minute and the hour
		c.interval = strings.ContainsAny(clock, "*?/")
	}
	return c, nil
}

// days and months are the names of values in lines, each at three times its number.
const (
	days   = "sunmontuewedthufrisat"
	months = "   janfebmaraprmayjunjulaugsepoctnovdec"
)

// numberOf returns the number of a value in a line, which may have one of the names.
func numberOf(text, names string) (int, bool) {
	if i := strings.Index(names, strings.ToLower(text)); len(text) == 3 && i >= 0 && i%3 == 0 {
		return i / 3, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// sundays returns a line in whose last field, the day of the week, Sunday is 0 and never 7, which the
// parser refuses, and programs of an earlier version of midge.
func sundays(line string) string {
	last := strings.LastIndexByte(line, ' ') + 1
	parts := strings.Split(line[last:], ",")
	for i, part := range parts {
		parts[i] = sunday(part)
	}
	return line[:last] + strings.Join(parts, ",")
}

// sunday lists the days of a part that ends with 7. Any other part is left to the parser.
func sunday(part string) string {
	const week = 7
	base, text, stepped := strings.Cut(part, "/")
	low, high, ranged := strings.Cut(base, "-")
	step := 1
	switch {
	case stepped:
		step, _ = strconv.Atoi(text) // 0 if it is none
	case !ranged:
		high = low
	}
	first, ok := numberOf(low, days)
	if last, _ := numberOf(high, days); last != week || !ok || first > week || step < 1 {
		return part
	}
	var named []string
	for day := first; day <= week; day += step {
		named = append(named, strconv.Itoa(day%week))
	}
	return strings.Join(named, ",")
}

// sizes are the numbers of values that the fields of a line have, beginning with the second, and highest
// are the highest values.
var (
	sizes   = [...]int{60, 60, 24, 31, 12, 7}
	highest = [...]int{59, 59, 23, 31, 12, 6}
)

// checkSteps refuses a step that is longer than the field or the range in which it is taken. Only the
// first value is left of these: */70 would tick once an hour, as 0 does, and 20/50 as 20 does. A step that
// comes back to its value, as 5/60 does, is none of them.
func checkSteps(line string) error {
	fields := strings.Fields(line)
	if len(fields) < len(sizes)-1 {
		return nil // a descriptor
	}
	for i, field := range fields {
		at := len(sizes) - len(fields) + i
		for part := range strings.SplitSeq(field, ",") {
			base, text, _ := strings.Cut(part, "/")
			step, err := strconv.Atoi(text)
			if err != nil {
				continue // no step
			}
			if most, ranged := longest(base, at); step > most && (ranged || step != sizes[at]) {
				return storage.Invalid("Cron", line, "in %s a step of at most %d", part, most)
			}
		}
	}
	return nil
}

// longest returns the number of values from which a step takes some, and whether base, the text before
// the step, is a range. at is the index of the field in sizes.
func longest(base string, at int) (values int, ranged bool) {
	low, high, ranged := strings.Cut(base, "-")
	if low == "*" || low == "?" {
		return sizes[at], false
	}
	names := days
	if sizes[at] == 12 {
		names = months
	}
	first, _ := numberOf(low, names) // the line was parsed
	last := highest[at]
	if ranged {
		last, _ = numberOf(high, names)
	}
	return last - first + 1, ranged
}

// next returns the first tick strictly after a moment, zero if there is none.
//
// Between two changes of the zone's offset the wall clock advances evenly, so that each such period
// is searched by itself: first the wall times that the clock skipped at its beginning, then those
// that it shows.
func (c *cronSpec) next(after time.Time) time.Time {
	from := after.In(c.zone).Truncate(time.Second).Add(time.Second)
	last := from.Year() + searchYears
	for from.Year() <= last {
		begin, end := bounds(from)
		offset := offsetOf(from)
		wall := from.Add(offset).UTC()
		if !begin.IsZero() {
			before := begin.Add(offsetOf(begin.Add(-time.Second))).UTC() // what the old offset would show
			shows := begin.Add(offset).UTC()
			if leapt := c.match(before); from.Equal(begin) && before.Before(shows) &&
				!leapt.IsZero() && leapt.Before(shows) {
				return begin.UTC()
			}
			if !c.interval && wall.Before(before) {
				wall = before // the clock showed these times before it fell back
			}
		}
		wall = c.match(wall)
		if wall.IsZero() {
			return time.Time{}
		}
		if tick := wall.Add(-offset); end.IsZero() || tick.Before(end) {
			return tick
		}
		from = end.In(c.zone)
	}
	return time.Time{}
}

// bounds returns when the offset at t began to hold and when it ends, zero for no beginning and no end.
// If Go computes the changes of the clock by a rule, it takes each year for 365 days: on the last day of
// a leap year ZoneBounds returns the beginning of that day as the end, and a search never went on.
func bounds(t time.Time) (begin, end time.Time) {
	begin, end = t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = end.Add(24 * time.Hour)
	}
	return begin, end
}

// offsetOf returns how far the wall clock is ahead of UTC.
func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// searchYears is how far ahead to search, in years: the 29th of February can be eight years away.
const searchYears = 9

// match returns the first wall time from t on that the fields name, zero if there is none within
// searchYears. Wall times are represented as if they were UTC.
func (c *cronSpec) match(t time.Time) time.Time {
	f := &c.fields
	for last := t.Year() + searchYears; t.Year() <= last; {
		switch year, month, day := t.Date(); {
		case f.Month&(1<<month) == 0:
			t = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.day(t):
			t = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case f.Hour&(1<<t.Hour()) == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		case f.Minute&(1<<t.Minute()) == 0:
			t = t.Truncate(time.Minute).Add(time.Minute)
		case f.Second&(1<<t.Second()) == 0:
			t = t.Add(time.Second)
		default:
			return t
		}
	}
	return time.Time{}
}

// day reports whether the fields name the day of t. If both the day of the month and the day of
// the week are restricted, one of them must match, as crontab defines it. A field with a step such as
// */2 is restricted here, while crontab(5) takes each field that begins with * for unrestricted.
func (c *cronSpec) day(t time.Time) bool {
	const star = 1 << 63
	dom := c.fields.Dom&(1<<t.Day()) != 0
	dow := c.fields.Dow&(1<<t.Weekday()) != 0
	if c.fields.Dom&star != 0 || c.fields.Dow&star != 0 {
		return dom && dow
	}
	return dom || dow
}
