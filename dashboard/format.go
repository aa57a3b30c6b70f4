package dashboard

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// nbsp keeps a number and its unit on one line.
const nbsp = "\u00a0"

// dash stands where there is no value.
const dash = "–"

// exact writes a number with its thousands apart.
func exact(n int64) string {
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

// number writes up to five digits whole, and what is longer in three digits and a unit.
func number(n int64) string {
	if n > -100_000 && n < 100_000 {
		return exact(n)
	}
	v, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G", "T", "P", "E"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, unit = v/1000, u
	}
	return threeDigits(v) + nbsp + unit
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

// rate writes how often something happens in a second, or in a minute where that is seldom.
func rate(perSecond float64) string {
	switch {
	case perSecond < 0:
		return dash
	case perSecond == 0:
		return "0" + nbsp + "/s"
	case perSecond < 0.095:
		return number(int64(math.Ceil(perSecond*60-0.5))) + nbsp + "/min"
	case perSecond < 9.95:
		return strconv.FormatFloat(perSecond, 'f', 1, 64) + nbsp + "/s"
	}
	return number(int64(perSecond+0.5)) + nbsp + "/s"
}

// percent writes a share of one. What is not all never reads as all, nor what is something as nothing.
func percent(share float64) string {
	p := share * 100
	switch {
	case p <= 0:
		return "0" + nbsp + "%"
	case p < 0.01:
		return "<" + nbsp + "0.01" + nbsp + "%"
	case p >= 100:
		return "100" + nbsp + "%"
	case p >= 99.99:
		return "99.99" + nbsp + "%"
	case p < 1 || p > 99:
		return strconv.FormatFloat(math.Floor(p*100)/100, 'f', 2, 64) + nbsp + "%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + nbsp + "%"
}

// units of durations, the longest first.
var units = []struct {
	of   time.Duration
	name string
}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}

// duration writes a duration in its two largest units: "4 m 12 s", or in milliseconds below a second.
func duration(d time.Duration) string {
	if d < 0 {
		return "-" + duration(-d)
	}
	switch {
	case d == 0:
		return "0" + nbsp + "s"
	case d < time.Millisecond:
		return "<" + nbsp + "1" + nbsp + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + nbsp + "ms"
	}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := exact(int64(d/u.of)) + nbsp + u.name
		if i+1 < len(units) {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += nbsp + strconv.FormatInt(int64(rest), 10) + nbsp + units[i+1].name
			}
		}
		return text
	}
	return dash
}

// age is a duration of which one unit is enough.
func age(d time.Duration) string {
	if d < time.Second {
		return duration(d)
	}
	for _, u := range units {
		if d >= u.of {
			return exact(int64(d/u.of)) + nbsp + u.name
		}
	}
	return dash
}

// moment writes a time as it is read beside others of the day or the year of now, in UTC.
func moment(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	switch {
	case at.IsZero():
		return dash
	case at.YearDay() == now.YearDay() && at.Year() == now.Year():
		return at.Format("15:04:05")
	case at.Year() == now.Year():
		return at.Format("Jan" + nbsp + "2" + nbsp + "15:04")
	}
	return at.Format("2006-01-02" + nbsp + "15:04")
}

// whole writes a time exactly.
func whole(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// away says how far a moment is from now, ahead or behind.
func away(at, now time.Time) string {
	switch d := at.Sub(now); {
	case at.IsZero():
		return dash
	case d > -time.Second && d < time.Second:
		return "now"
	case d > 0:
		return "in" + nbsp + duration(d)
	default:
		return age(-d) + nbsp + "ago"
	}
}

// count writes how many there are of something: "1 task", "12,345 tasks".
func count[N int | int64](n N, one string) string {
	if n == 1 {
		return "1" + nbsp + one
	}
	switch {
	case strings.HasSuffix(one, "y"):
		one = one[:len(one)-1] + "ies"
	case strings.HasSuffix(one, "sh"):
		one += "es"
	default:
		one += "s"
	}
	return number(int64(n)) + nbsp + one
}

// bytesOf writes a size in bytes.
func bytesOf(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + nbsp + "bytes"
	case n < 1<<20:
		return threeDigits(float64(n)/(1<<10)) + nbsp + "KiB"
	case n < 1<<30:
		return threeDigits(float64(n)/(1<<20)) + nbsp + "MiB"
	}
	return threeDigits(float64(n)/(1<<30)) + nbsp + "GiB"
}

// tail is how many characters of a long name are never cut off.
const tail = 10

// halves gives the two parts of a name between which a narrow column cuts it. A short name is one part.
func halves(name string) [2]string {
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

// mostInside is how many characters of a name stand in a sentence.
const mostInside = 32

// middle cuts a long name in its middle, for a sentence.
func middle(name string) string {
	if utf8.RuneCountInString(name) <= mostInside {
		return name
	}
	runes := []rune(name)
	return string(runes[:mostInside-tail-1]) + "…" + string(runes[len(runes)-tail:])
}

// firstLine gives what a list shows of a longer text.
func firstLine(text string) string {
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
