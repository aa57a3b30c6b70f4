package schedule

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// at parses times of 2026 such as "03-08 02:30:00 -0500".
func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse("2006-01-02 15:04 -0700", "2026-"+text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

func mustSchedule(t testing.TB, spec, zone string) Schedule {
	t.Helper()
	s, err := Parse(spec, zone)
	if err != nil {
		t.Fatalf("%s in %q: %v", spec, zone, err)
	}
	return s
}

// between returns the ticks after from until to.
func between(s Schedule, from, to time.Time) (ticks []time.Time) {
	for tick := s.Next(from); !tick.IsZero() && !tick.After(to); tick = s.Next(tick) {
		ticks = append(ticks, tick)
	}
	return ticks
}

// The crontab lines are: a fixed time within the change, one at its end, two fixed times, an
// interval of minutes, one of hours, and an interval within one hour. Each row lists the ticks of
// the hours around a change of the clock, as local times with their offsets.
func TestCronAcrossClockChanges(t *testing.T) {
	cases := []struct {
		zone, from, to string
		line           string
		want           string
	}{
		// New York leaps on 8 March from 02:00 -0500 to 03:00 -0400.
		{"America/New_York", "03-08 00:59 -0500", "03-08 03:59 -0400", "30 2 * * *", "03-08 03:00 -0400"},
		{"America/New_York", "03-08 00:59 -0500", "03-08 03:59 -0400", "0 3 * * *", "03-08 03:00 -0400"},
		{"America/New_York", "03-08 00:59 -0500", "03-08 03:59 -0400", "15,45 2 * * *", "03-08 03:00 -0400"},
		{"America/New_York", "03-08 00:59 -0500", "03-08 03:59 -0400", "*/30 * * * *", "03-08 01:00 -0500, 03-08 01:30 -0500, 03-08 03:00 -0400, 03-08 03:30 -0400"},
		{"America/New_York", "03-08 00:59 -0500", "03-08 03:59 -0400", "0 */1 * * *", "03-08 01:00 -0500, 03-08 03:00 -0400"},
		{"America/New_York", "03-08 00:59 -0500", "03-08 03:59 -0400", "*/30 2 * * *", "03-08 03:00 -0400"},
		// New York falls back on 1 November from 02:00 -0400 to 01:00 -0500.
		{"America/New_York", "11-01 00:59 -0400", "11-01 02:59 -0500", "30 1 * * *", "11-01 01:30 -0400"},
		{"America/New_York", "11-01 00:59 -0400", "11-01 02:59 -0500", "0 2 * * *", "11-01 02:00 -0500"},
		{"America/New_York", "11-01 00:59 -0400", "11-01 02:59 -0500", "15,45 1 * * *", "11-01 01:15 -0400, 11-01 01:45 -0400"},
		{"America/New_York", "11-01 00:59 -0400", "11-01 02:59 -0500", "*/30 * * * *", "11-01 01:00 -0400, 11-01 01:30 -0400, 11-01 01:00 -0500, 11-01 01:30 -0500, 11-01 02:00 -0500, 11-01 02:30 -0500"},
		{"America/New_York", "11-01 00:59 -0400", "11-01 02:59 -0500", "0 */1 * * *", "11-01 01:00 -0400, 11-01 01:00 -0500, 11-01 02:00 -0500"},
		{"America/New_York", "11-01 00:59 -0400", "11-01 02:59 -0500", "*/30 1 * * *", "11-01 01:00 -0400, 11-01 01:30 -0400, 11-01 01:00 -0500, 11-01 01:30 -0500"},
		// Berlin leaps on 29 March from 02:00 +0100 to 03:00 +0200.
		{"Europe/Berlin", "03-29 00:59 +0100", "03-29 03:59 +0200", "30 2 * * *", "03-29 03:00 +0200"},
		{"Europe/Berlin", "03-29 00:59 +0100", "03-29 03:59 +0200", "0 3 * * *", "03-29 03:00 +0200"},
		{"Europe/Berlin", "03-29 00:59 +0100", "03-29 03:59 +0200", "15,45 2 * * *", "03-29 03:00 +0200"},
		{"Europe/Berlin", "03-29 00:59 +0100", "03-29 03:59 +0200", "*/30 * * * *", "03-29 01:00 +0100, 03-29 01:30 +0100, 03-29 03:00 +0200, 03-29 03:30 +0200"},
		{"Europe/Berlin", "03-29 00:59 +0100", "03-29 03:59 +0200", "0 */1 * * *", "03-29 01:00 +0100, 03-29 03:00 +0200"},
		{"Europe/Berlin", "03-29 00:59 +0100", "03-29 03:59 +0200", "*/30 2 * * *", "03-29 03:00 +0200"},
		// Berlin falls back on 25 October from 03:00 +0200 to 02:00 +0100.
		{"Europe/Berlin", "10-25 01:59 +0200", "10-25 03:59 +0100", "30 2 * * *", "10-25 02:30 +0200"},
		{"Europe/Berlin", "10-25 01:59 +0200", "10-25 03:59 +0100", "0 3 * * *", "10-25 03:00 +0100"},
		{"Europe/Berlin", "10-25 01:59 +0200", "10-25 03:59 +0100", "15,45 2 * * *", "10-25 02:15 +0200, 10-25 02:45 +0200"},
		{"Europe/Berlin", "10-25 01:59 +0200", "10-25 03:59 +0100", "*/30 * * * *", "10-25 02:00 +0200, 10-25 02:30 +0200, 10-25 02:00 +0100, 10-25 02:30 +0100, 10-25 03:00 +0100, 10-25 03:30 +0100"},
		{"Europe/Berlin", "10-25 01:59 +0200", "10-25 03:59 +0100", "0 */1 * * *", "10-25 02:00 +0200, 10-25 02:00 +0100, 10-25 03:00 +0100"},
		{"Europe/Berlin", "10-25 01:59 +0200", "10-25 03:59 +0100", "*/30 2 * * *", "10-25 02:00 +0200, 10-25 02:30 +0200, 10-25 02:00 +0100, 10-25 02:30 +0100"},
		// Lord Howe leaps half an hour on 4 October, from 02:00 +1030 to 02:30 +1100.
		{"Australia/Lord_Howe", "10-04 01:29 +1030", "10-04 03:29 +1100", "15 2 * * *", "10-04 02:30 +1100"},
		{"Australia/Lord_Howe", "10-04 01:29 +1030", "10-04 03:29 +1100", "30 2 * * *", "10-04 02:30 +1100"},
		{"Australia/Lord_Howe", "10-04 01:29 +1030", "10-04 03:29 +1100", "10,50 2 * * *", "10-04 02:30 +1100, 10-04 02:50 +1100"},
		{"Australia/Lord_Howe", "10-04 01:29 +1030", "10-04 03:29 +1100", "*/15 * * * *", "10-04 01:30 +1030, 10-04 01:45 +1030, 10-04 02:30 +1100, 10-04 02:45 +1100, 10-04 03:00 +1100, 10-04 03:15 +1100"},
		{"Australia/Lord_Howe", "10-04 01:29 +1030", "10-04 03:29 +1100", "0 */1 * * *", "10-04 02:30 +1100, 10-04 03:00 +1100"},
		{"Australia/Lord_Howe", "10-04 01:29 +1030", "10-04 03:29 +1100", "*/15 2 * * *", "10-04 02:30 +1100, 10-04 02:45 +1100"},
		// Lord Howe falls back on 5 April, from 02:00 +1100 to 01:30 +1030.
		{"Australia/Lord_Howe", "04-05 00:59 +1100", "04-05 02:29 +1030", "45 1 * * *", "04-05 01:45 +1100"},
		{"Australia/Lord_Howe", "04-05 00:59 +1100", "04-05 02:29 +1030", "0 2 * * *", "04-05 02:00 +1030"},
		{"Australia/Lord_Howe", "04-05 00:59 +1100", "04-05 02:29 +1030", "15,45 1 * * *", "04-05 01:15 +1100, 04-05 01:45 +1100"},
		{"Australia/Lord_Howe", "04-05 00:59 +1100", "04-05 02:29 +1030", "*/15 * * * *", "04-05 01:00 +1100, 04-05 01:15 +1100, 04-05 01:30 +1100, 04-05 01:45 +1100, 04-05 01:30 +1030, 04-05 01:45 +1030, 04-05 02:00 +1030, 04-05 02:15 +1030"},
		{"Australia/Lord_Howe", "04-05 00:59 +1100", "04-05 02:29 +1030", "0 */1 * * *", "04-05 01:00 +1100, 04-05 02:00 +1030"},
		{"Australia/Lord_Howe", "04-05 00:59 +1100", "04-05 02:29 +1030", "*/15 1 * * *", "04-05 01:00 +1100, 04-05 01:15 +1100, 04-05 01:30 +1100, 04-05 01:45 +1100, 04-05 01:30 +1030, 04-05 01:45 +1030"},
		// UTC never changes.
		{"", "03-29 00:59 +0000", "03-29 03:29 +0000", "30 2 * * *", "03-29 02:30 +0000"},
		{"", "03-29 00:59 +0000", "03-29 03:29 +0000", "0 3 * * *", "03-29 03:00 +0000"},
		{"", "03-29 00:59 +0000", "03-29 03:29 +0000", "15,45 2 * * *", "03-29 02:15 +0000, 03-29 02:45 +0000"},
		{"", "03-29 00:59 +0000", "03-29 02:29 +0000", "*/30 * * * *", "03-29 01:00 +0000, 03-29 01:30 +0000, 03-29 02:00 +0000"},
		{"", "03-29 00:59 +0000", "03-29 03:29 +0000", "0 */1 * * *", "03-29 01:00 +0000, 03-29 02:00 +0000, 03-29 03:00 +0000"},
		{"", "03-29 00:59 +0000", "03-29 03:29 +0000", "*/30 2 * * *", "03-29 02:00 +0000, 03-29 02:30 +0000"},
	}
	for _, c := range cases {
		s := mustSchedule(t, "cron "+c.line, c.zone)
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tick := range between(s, at(t, c.from), at(t, c.to)) {
			got = append(got, tick.In(zone).Format("01-02 15:04 -0700"))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s in %s from %s:\n got %s\nwant %s", c.line, c.zone, c.from, text, c.want)
		}
	}
}

func TestCronNext(t *testing.T) {
	cases := []struct{ line, zone, after, want string }{
		{"0 3 * * *", "", "2026-01-31T03:00:00Z", "2026-02-01T03:00:00Z"},
		{"0 3 * * *", "", "2026-01-31T02:59:59.999999999Z", "2026-01-31T03:00:00Z"},
		{"0 0 29 2 *", "", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},  // 2100 is no leap year
		{"0 0 13 * 5", "", "2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"},  // the 13th or a Friday
		{"0 0 */2 * 1", "", "2026-01-03T00:00:00Z", "2026-01-05T00:00:00Z"}, // an odd day or a Monday: the 5th is both
		{"0 0 */2 * 1", "", "2026-01-11T00:00:00Z", "2026-01-12T00:00:00Z"}, // a Monday
		{"0 0 */2 * 1", "", "2026-01-05T00:00:00Z", "2026-01-07T00:00:00Z"}, // an odd day
		{"0 0 * * 5", "", "2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"},
		{"0 0 31 * *", "", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"*/20 * * * * *", "", "2026-01-01T00:00:41Z", "2026-01-01T00:01:00Z"},
		{"30 15 10 * * *", "", "2026-01-01T00:00:41Z", "2026-01-01T10:15:30Z"},
		{"@hourly", "Asia/Kathmandu", "2026-01-01T00:00:00Z", "2026-01-01T00:15:00Z"}, // UTC+5:45
		{"@daily", "Europe/Paris", "2026-07-01T00:00:00Z", "2026-07-01T22:00:00Z"},
		{"@weekly", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"@monthly", "", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"@yearly", "", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"@every 90m", "", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z"},
		{"0 12 * JAN-MAR mon", "", "2026-03-30T12:00:00Z", "2027-01-04T12:00:00Z"},
		{"30 12 30 12 *", "Pacific/Apia", "2011-01-01T00:00:00Z", "2011-12-30T10:00:00Z"}, // a skipped day
		{"0 3 * * *", "", "1960-01-01T12:00:00Z", "1960-01-02T03:00:00Z"},
		{"0 0 30 2 *", "", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z"}, // never
		{"0 0 30 2 *", "Europe/Berlin", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
		{"0 3 * * *", "", "2199-12-31T12:00:00Z", "0001-01-01T00:00:00Z"}, // beyond the times that storages keep
	}
	for _, c := range cases {
		s, err := Cron(c.line).In(c.zone)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		after, err := time.Parse(time.RFC3339Nano, c.after)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(after).Format(time.RFC3339Nano); got != c.want {
			t.Errorf("%s in %q after %s: got %s, want %s", c.line, c.zone, c.after, got, c.want)
		}
	}
}

func TestInvalidSchedules(t *testing.T) {
	cases := []struct {
		name string
		s    Schedule
		zone string
	}{
		{"no schedule", Schedule{}, ""},
		{"an empty line", Cron(""), ""},
		{"four fields", Cron("* * * *"), ""},
		{"seven fields", Cron("* * * * * * *"), ""},
		{"a minute of 60", Cron("60 * * * *"), ""},
		{"a step of 0", Cron("*/0 * * * *"), ""},
		{"a step of 70 minutes", Cron("*/70 * * * *"), ""},
		{"a step of 61 minutes from the fifth", Cron("5/61 * * * *"), ""},
		{"a step longer than its range", Cron("0-30/32 * * * *"), ""},
		{"a step of 61 seconds", Cron("*/61 * * * * *"), ""},
		{"a step of 25 hours", Cron("0 */25 * * *"), ""},
		{"a step of 32 days", Cron("0 0 */32 * *"), ""},
		{"a step of 13 months", Cron("0 0 1 */13 *"), ""},
		{"a step longer than its range of months", Cron("0 0 1 jan-mar/4 *"), ""},
		{"a step of 8 days of the week", Cron("0 0 ? * ?/8"), ""},
		{"a step longer than its range of days", Cron("0 0 * * 5-7/4"), ""},
		{"a step of 50 minutes from the twentieth", Cron("20/50 * * * *"), ""},
		{"a step of 20 hours from the fifth", Cron("0 5/20 * * *"), ""},
		{"a step of 20 days from the 15th", Cron("0 0 15/20 * *"), ""},
		{"a step of 11 months from March", Cron("0 0 1 feb/11,mar/11 *"), ""},
		{"a step of 3 days from Friday", Cron("0 0 * * fri/3"), ""},
		{"a step behind a good one", Cron("*/5,*/70 * * * *"), ""},
		{"a day of the week of 8", Cron("0 0 * * 8"), ""},
		{"days of the week backwards", Cron("0 0 * * 7-1"), ""},
		{"a step from Sunday on", Cron("0 0 * * 7/2"), ""},
		{"a step of 0 to Sunday", Cron("0 0 * * 1-7/0"), ""},
		{"7 as Sunday in another field", Cron("0 0 * 13 7"), ""},
		{"a field of commas", Cron(", * * * *"), ""},
		{"@reboot", Cron("@reboot"), ""},
		{"@every without a duration", Cron("@every soon"), ""},
		{"@every of too little", Cron("@every 10ms"), ""},
		{"a zone in the line", Cron("TZ=Europe/Paris 0 3 * * *"), ""},
		{"a zone that ends the line", Cron("CRON_TZ=0"), ""},
		{"an endless line", Cron(strings.Repeat("1,", 1000) + "1 * * * *"), ""},
		{"less than a second", Every(time.Millisecond), ""},
		{"less than nothing", Every(-time.Hour), ""},
		{"parts of a millisecond", Every(time.Second + time.Microsecond), ""},
		{"longer than ever", Every(1 << 62), ""},
		{"an unknown zone", Cron("0 3 * * *"), "Europe/Atlantis"},
		{"a zone outside", Cron("0 3 * * *"), "../../etc/localtime"},
		{"this machine's zone", Cron("0 3 * * *"), "Local"},
		{"a zone with Every", Every(time.Hour), "Europe/Paris"},
	}
	for _, c := range cases {
		_, err := c.s.In(c.zone)
		if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
			t.Errorf("%s: got %v, want an *InvalidError", c.name, err)
		}
	}
}

// A cursor comes from the storage: whatever it holds, the next tick is found within a millisecond,
// and the ticks of a zone ascend.
func FuzzSchedule(f *testing.F) {
	for _, seed := range []struct{ spec, zone string }{
		{"every 1h0m0s", ""},
		{"cron 0 3 * * *", "Europe/Paris"},
		{"cron */10 * * * * *", "Australia/Lord_Howe"},
		{"cron 0 0 30 2 *", "Africa/Casablanca"},
		{"cron 59 59 23 31 2,4,6,9,11 *", "Pacific/Apia"},
		{"cron @daily", "America/New_York"},
		{"cron TZ=0", "Local"},
		{"every -1s", "../x"},
	} {
		f.Add(seed.spec, seed.zone, int64(1774746000))
	}
	f.Fuzz(func(t *testing.T, spec, zone string, seconds int64) {
		s, err := Parse(spec, zone)
		if err != nil {
			return
		}
		after := time.Unix(seconds%(200*365*24*3600), 0)
		for range 3 {
			tick := s.Next(after)
			if tick.IsZero() {
				break
			}
			if !tick.After(after) {
				t.Fatalf("%q in %q after %v: got %v, want a later one", spec, zone, after, tick)
			}
			after = tick
		}
		again := s.Spec
		if s, err = Parse(again, zone); err != nil || s.Spec != again {
			t.Fatalf("%q reads back as %q, %v", again, s.Spec, err)
		}
	})
}

// The slowest known lines name days that none of their months has.
func TestImpossibleDatesAreFoundQuickly(t *testing.T) {
	for _, line := range []string{"59 59 23 31 2,4,6,9,11 *", "0 0 30 2 *", "0 0 29 2 *"} {
		for _, zone := range []string{"", "Africa/Casablanca", "America/New_York"} {
			s := mustSchedule(t, "cron "+line, zone)
			best := time.Hour
			for range 20 { // the best of several tries, because the garbage collector runs too
				begun := testserver.ProcessorTime(t)
				s.Next(time.Now())
				best = min(best, testserver.ProcessorTime(t)-begun)
			}
			if best > 10*time.Millisecond {
				t.Errorf("%s in %q: took %v, want at most 10ms", line, zone, best)
			}
		}
	}
}

// From the end of the table of a zone on, Go computes the changes of the clock by a rule. The table of the
// machine may end in 2037, or before today.
func TestTheLastDayOfALeapYear(t *testing.T) {
	for _, zone := range []string{"Europe/Paris", "America/New_York", "Australia/Sydney"} {
		for _, year := range []int{2028, 2040, 2044} {
			daily := mustSchedule(t, "cron 30 9 * * *", zone)
			var want []time.Time
			for day := range 6 {
				want = append(want, time.Date(year, 12, 29+day, 9, 30, 0, 0, daily.cron.zone).UTC())
			}
			if got := between(daily, want[0].Add(-time.Second), want[5]); !slices.Equal(got, want) {
				t.Errorf("%s: the ticks are %v, want %v", zone, got, want)
			}
			newYear := time.Date(year+1, 1, 1, 0, 0, 0, 0, daily.cron.zone)
			if got := mustSchedule(t, "cron 0 0 1 1 *", zone).Next(want[0]); !got.Equal(newYear) {
				t.Errorf("%s: the tick after %v is %v, want %v", zone, want[0], got, newYear)
			}
		}
	}
}

// Sunday is 0 and 7.
func TestSevenIsSunday(t *testing.T) {
	for line, same := range map[string]string{
		"0 0 * * 7":           "0 0 * * 0",
		"0 0 * * 5-7":         "0 0 * * 0,5,6",
		"0 0 * * 1-7":         "0 0 * * 0-6",
		"0 0 * * 0-7":         "0 0 * * 0-6",
		"0 0 * * 7-7":         "0 0 * * sun",
		"0 0 * * 1-7/2":       "0 0 * * 0,1,3,5",
		"0 0 * * 1-7/7":       "0 0 * * 1",
		"0 0 * * 0-7/7":       "0 0 * * 0",
		"0 0 * * 7,wed":       "0 0 * * 0,3",
		"0 0 * * SAT-7":       "0 0 * * 0,6",
		"0 0 1 * 7":           "0 0 1 * 0",
		"30 0 12 * jan-7 6-7": "30 0 12 * 1-7 6,0",
	} {
		a, b := mustSchedule(t, "cron "+line, ""), mustSchedule(t, "cron "+same, "")
		if _, err := Cron(line).In(""); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if a.cron.fields != b.cron.fields {
			t.Errorf("%s ticks as %+v, %s as %+v; want the same", line, a.cron.fields, same, b.cron.fields)
		}
		// A program that knows no 7 reads the stored text in a rolling deploy.
		known := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
		text, _ := strings.CutPrefix(a.Spec, "cron ")
		if _, err := known.Parse(text); err != nil || Cron(line).Spec != a.Spec {
			t.Errorf("%s: got the texts %q and %q, %v; want one without 7", line, a.Spec, Cron(line).Spec, err)
		}
	}
}

// The longest steps come back to their value: every 60 minutes is once an hour.
func TestLongestSteps(t *testing.T) {
	for _, line := range []string{
		"*/60 * * * *", "5/60 * * * *", "*/60 * * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *",
		"0 0 1 1/12 *", "0 0 * * */7", "20/40 * * * *", "0 0 12/20 * *", "0 0 1 feb/11 *", "0 0 * * fri/2", "0-30/31 * * * *", "0 0 1 jan-mar/3 *", "0 0 * * mon-fri/5", "0 0 * * 5-7/3",
	} {
		if _, err := Cron(line).In(""); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A cursor that was stored before long steps were refused goes on as it did.
func TestAStoredLineKeepsItsStep(t *testing.T) {
	for spec, next := range map[string]string{
		"cron */70 * * * *": "11-23 13:00 +0000", "cron 20/50 * * * *": "11-23 12:20 +0000",
	} {
		s := mustSchedule(t, spec, "")
		if want := at(t, next); !s.Next(at(t, "11-23 12:00 +0000")).Equal(want) {
			t.Errorf("%s: got %v, want %v", spec, s.Next(at(t, "11-23 12:00 +0000")), want)
		}
	}
}
