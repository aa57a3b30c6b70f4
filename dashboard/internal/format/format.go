// Package format writes numbers, durations, moments and names as the pages of the dashboard show them.
package format

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// NBSP keeps a number and its unit on one line.
const NBSP = "\u00a0"

// Dash stands for a missing value.
const Dash = "–"

// Exact writes a number with commas between its thousands.
func Exact(n int64) string {
	s := strconv.FormatInt(n, 10)
	from := 0
	if n < 0 {
		from = 1
	}
	for i := len(s) - 3; i > from; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Number writes a number of up to five digits whole, and a longer one with three digits and a unit.
func Number(n int64) string {
	if n > -100_000 && n < 100_000 {
		return Exact(n)
	}
	v, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G", "T", "P", "E"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, unit = v/1000, u
	}
	return threeDigits(v) + NBSP + unit
}

// threeDigits writes a number below 1,000 in three digits.
func threeDigits(v float64) string {
	switch a := math.Abs(v); {
	case a < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Quantity writes a quantity: a whole one as Number does, and another one in three digits.
func Quantity(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < math.MaxInt64 {
		return Number(int64(v))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Rate writes how often something happens in a second, or in a minute if it is rare.
func Rate(perSecond float64) string {
	switch {
	case perSecond < 0:
		return Dash
	case perSecond == 0:
		return "0" + NBSP + "/s"
	case perSecond*60 <= 0.5:
		return "<" + NBSP + "1" + NBSP + "/min"
	case perSecond < 0.095:
		return Number(int64(math.Ceil(perSecond*60-0.5))) + NBSP + "/min"
	case perSecond < 9.95:
		return strconv.FormatFloat(perSecond, 'f', 1, 64) + NBSP + "/s"
	}
	return Number(int64(perSecond+0.5)) + NBSP + "/s"
}

// PerSecond writes how often something happens in a second, however rare it is: all rates of a chart have one
// unit.
func PerSecond(rate float64) string {
	switch {
	case rate <= 0 || rate >= 0.095:
		return Rate(rate)
	case rate < 0.005:
		return "<" + NBSP + "0.01" + NBSP + "/s"
	}
	return strconv.FormatFloat(rate, 'f', 2, 64) + NBSP + "/s"
}

// Percent writes a share of one. A share below one never reads as all, and a share above zero never reads as
// nothing.
func Percent(share float64) string {
	p := share * 100
	switch {
	case p <= 0:
		return "0" + NBSP + "%"
	case p < 0.01:
		return "<" + NBSP + "0.01" + NBSP + "%"
	case p >= 100:
		return "100" + NBSP + "%"
	case p >= 99.99:
		return "99.99" + NBSP + "%"
	case p < 1 || p > 99:
		return strconv.FormatFloat(math.Floor(p*100)/100, 'f', 2, 64) + NBSP + "%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + NBSP + "%"
}

// units of durations, the longest first.
var units = []struct {
	of   time.Duration
	name string
}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}

// opposite returns -d for a negative duration. The lowest duration has no opposite, because its negative is
// negative again, so opposite returns the highest duration for it. The lowest duration is also the difference
// of moments that are further apart than a duration reaches, and anybody may write such a moment into a
// header.
func opposite(d time.Duration) time.Duration { return -max(d, -math.MaxInt64) }

// Duration writes a duration in its two largest units: "4 m 12 s", or in milliseconds below a second.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(opposite(d))
	}
	switch {
	case d == 0:
		return "0" + NBSP + "s"
	case d < time.Millisecond:
		return "<" + NBSP + "1" + NBSP + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + NBSP + "ms"
	}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := Exact(int64(d/u.of)) + NBSP + u.name
		if i+1 < len(units) {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += NBSP + strconv.FormatInt(int64(rest), 10) + NBSP + units[i+1].name
			}
		}
		return text
	}
	return Dash
}

// Estimate writes a duration that is known to within a fifth, as in "1.2 s": it has two digits below ten
// seconds.
func Estimate(d time.Duration) string {
	unit, name, digit := time.Second, "s", time.Second
	if d < 995*time.Millisecond {
		unit, name, digit = time.Millisecond, "ms", time.Millisecond
		if d >= 99_500*time.Microsecond {
			digit = 10 * time.Millisecond
		}
	}
	if n := float64(d) / float64(unit); n < 9.95 && d >= time.Millisecond {
		return strconv.FormatFloat(n, 'f', 1, 64) + NBSP + name
	} else if n < 1 {
		return Duration(d)
	}
	return Duration(d.Round(digit))
}

// Age writes a duration in its largest unit only.
func Age(d time.Duration) string {
	if d < time.Second {
		return Duration(d)
	}
	for _, u := range units {
		if d >= u.of {
			return Exact(int64(d/u.of)) + NBSP + u.name
		}
	}
	return Dash
}

// Moment writes a time in the zone of now: without the date if it is on the day of now, and without the year
// if it is in the same year.
func Moment(at, now time.Time) string {
	at = at.In(now.Location())
	switch {
	case at.IsZero():
		return Dash
	case at.YearDay() == now.YearDay() && at.Year() == now.Year():
		return at.Format("15:04:05")
	case at.Year() == now.Year():
		return at.Format("Jan" + NBSP + "2" + NBSP + "15:04")
	}
	return at.Format("2006-01-02" + NBSP + "15:04")
}

// Whole writes a time in full, to the millisecond.
func Whole(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// Away writes how far a moment is from now, in the future or the past.
func Away(at, now time.Time) string {
	switch d := at.Sub(now); {
	case at.IsZero():
		return Dash
	case d > -time.Second && d < time.Second:
		return "now"
	case d > 0:
		return "in" + NBSP + Duration(d)
	default:
		return Age(opposite(d)) + NBSP + "ago"
	}
}

// Count writes how many there are of something: "1 task", "12,345 tasks".
func Count[N int | int64](n N, one string) string {
	if n == 1 {
		return "1" + NBSP + one
	}
	switch {
	case strings.HasSuffix(one, "y"):
		one = one[:len(one)-1] + "ies"
	case strings.HasSuffix(one, "sh"):
		one += "es"
	default:
		one += "s"
	}
	return Number(int64(n)) + NBSP + one
}

// Bytes writes a size in bytes.
func Bytes(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + NBSP + "bytes"
	case n < 1<<20:
		return threeDigits(float64(n)/(1<<10)) + NBSP + "KiB"
	case n < 1<<30:
		return threeDigits(float64(n)/(1<<20)) + NBSP + "MiB"
	}
	return threeDigits(float64(n)/(1<<30)) + NBSP + "GiB"
}

// tail is how many characters at the end of a long name are never cut off.
const tail = 10

// Halves returns the two parts of a name between which a narrow column cuts it. A short name is one part.
func Halves(name string) [2]string {
	if utf8.RuneCountInString(name) <= 2*tail {
		return [2]string{name, ""}
	}
	at := len(name)
	for range tail {
		_, size := utf8.DecodeLastRuneInString(name[:at])
		at -= size
	}
	return [2]string{name[:at], name[at:]}
}

// mostInside is how many characters of a name stand in a sentence at most.
const mostInside = 32

// Middle cuts a long name in its middle, for a sentence.
func Middle(name string) string {
	if utf8.RuneCountInString(name) <= mostInside {
		return name
	}
	runes := []rune(name)
	return string(runes[:mostInside-tail-1]) + "…" + string(runes[len(runes)-tail:])
}

// FirstLine returns the first line of a text, cut after 240 bytes, as a list shows it.
func FirstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	const most = 240
	if len(text) <= most {
		return text
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
