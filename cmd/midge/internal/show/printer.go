// Package show writes the results of a command: as a table for people, as JSON for programs, or as ids for
// the next command. It formats times, numbers and texts; the caller chooses which values to show.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// Format is a way to write rows.
type Format string

// The formats.
const (
	Table Format = "table" // columns that fit a terminal
	Wide  Format = "wide"  // all columns, nothing cut
	JSON  Format = "json"  // one array, or one object if the command is about one thing
	JSONL Format = "jsonl" // one object per line
	IDs   Format = "ids"   // the arguments for the next command, one per line
)

// Formats lists the formats.
func Formats() []string { return []string{"table", "wide", "json", "jsonl", "ids"} }

// Printer writes the output of one command.
type Printer struct {
	Out    io.Writer
	Format Format
	// Columns are the names of the columns that a table shows, in this order. If it is empty, a table shows
	// its usual columns.
	Columns []string
	// Color turns on the styles, which are escape sequences of terminals.
	Color bool
	// UTC shows times as dates in UTC, and not relative to Now.
	UTC bool
	// Width is the width of the terminal in characters; 0 means that rows may have any length.
	Width int
	// Now is the storage's time, to which relative times refer.
	Now time.Time
}

// Check returns a *[storage.InvalidError] for an unknown format, or for Columns with a format that has no
// columns.
func (p *Printer) Check() error {
	if !slices.Contains(Formats(), string(p.Format)) {
		return storage.Invalid("output format", string(p.Format), "%s", OneOf(Formats()...))
	}
	if len(p.Columns) > 0 && p.Format != Table && p.Format != Wide {
		return storage.Invalid("flags", "--columns with -o "+string(p.Format), "-o table or -o wide with it")
	}
	return nil
}

// People reports whether the output is for people, and not for a program.
func (p *Printer) People() bool { return p.Format == Table || p.Format == Wide }

// Line writes a line if the output is for people, and nothing otherwise.
func (p *Printer) Line(format string, args ...any) error {
	if !p.People() {
		return nil
	}
	_, err := fmt.Fprintf(p.Out, format+"\n", args...)
	return err
}

// Value writes one value as JSON. It escapes the characters that would command a terminal.
func (p *Printer) Value(v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if p.Format != JSONL {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := p.Out.Write(payload.Printable(text.Bytes()))
	return err
}

// One writes one thing that has an id: only the id in the format IDs, and v as JSON in any other format.
func (p *Printer) One(id string, v any) error {
	if p.Format != IDs {
		return p.Value(v)
	}
	_, err := fmt.Fprintln(p.Out, id)
	return err
}

// Style is the escape sequence that sets the colour or the weight of a text.
type Style string

// The styles.
const (
	Plain  Style = ""
	Bad    Style = "\x1b[31m" // red: needs action
	Warn   Style = "\x1b[33m" // yellow: worth a check
	Good   Style = "\x1b[32m" // green
	Strong Style = "\x1b[1m"
	Faint  Style = "\x1b[2m"
)

// Paint returns a text in a style if Color is set, and the bare text otherwise.
func (p *Printer) Paint(text string, style Style) string {
	if !p.Color || style == Plain || text == "" {
		return text
	}
	return string(style) + text + "\x1b[0m"
}

// Moment formats a time relative to Now, such as "3m ago" or "in 2h", or as a date if UTC is set. It
// returns "-" for the zero time.
func (p *Printer) Moment(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case p.UTC:
		return t.UTC().Format("2006-01-02 15:04:05Z")
	}
	d := t.Sub(p.Now)
	switch {
	case d <= -time.Second:
		return Span(d.Abs()) + " ago"
	case d >= time.Second:
		return "in " + Span(d)
	}
	return "now"
}

// Exact formats a time for a page about one thing: to the second, and relative to Now unless UTC is set.
func (p *Printer) Exact(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if p.UTC {
		return p.Moment(t)
	}
	return t.Local().Format("2006-01-02 15:04:05 -0700") + //nolint:gosmopolitan // for whoever reads it here
		" (" + p.Moment(t) + ")"
}

// Timeout formats the timeout of a task.
func Timeout(d time.Duration) string {
	if d == storage.NoTimeout {
		return "none"
	}
	return Span(d)
}

// Span formats a duration in at most two units, such as "3m", "2h 5m" or "340ms". It accepts every
// duration, because time.Time.Sub returns the longest or the shortest one for times that are further apart.
func Span(d time.Duration) string {
	if d < 0 {
		return "-" + Span(d.Abs()) // not -d, which overflows for the shortest duration
	}
	d = d.Round(time.Millisecond) // the moments that two clocks measure agree no better than this
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		text := strconv.FormatInt(int64(d/u.size), 10) + u.name
		if i+1 == len(units) || d >= 10*u.size {
			return text
		}
		if rest := d % u.size / units[i+1].size; rest > 0 {
			text += " " + strconv.FormatInt(int64(rest), 10) + units[i+1].name
		}
		return text
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// Number formats an integer with a comma between thousands.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Count formats a number and its noun, such as "1 task" or "12,345 tasks".
func Count(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + one + "s"
}

// OneOf formats words of which one is wanted: "a, b or c".
func OneOf(words ...string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Text makes a text from outside midge safe to print: an error, a header or a name may contain escape
// sequences that would command the terminal.
func Text(text string) string { return storage.PrintableText(text, 1<<10) }

// Lines does the same as Text for a text of several lines, such as a stack trace.
func Lines(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = Text(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// Wrapped breaks the lines of a text between words, so that they fit a terminal behind an indent. Do not
// pass a text that contains a command, because a user copies a command as one line.
func (p *Printer) Wrapped(text string, indent int) string {
	if p.Width == 0 {
		return text
	}
	most := max(20, p.Width-indent)
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		for utf8.RuneCountInString(line) > most {
			r := []rune(line)
			at := most
			for at > 0 && r[at] != ' ' {
				at--
			}
			if strings.TrimSpace(string(r[:at])) == "" { // a word that is longer than a line
				for at = most; at < len(r) && r[at] != ' '; {
					at++
				}
			}
			if at == len(r) {
				break
			}
			all, line = append(all, strings.TrimRight(string(r[:at]), " ")), strings.TrimLeft(string(r[at:]), " ")
		}
		all = append(all, line)
	}
	return strings.Join(all, "\n")
}

// Middle shortens a name to a number of characters. It cuts the middle, because names differ at either end.
func Middle(text string, most int) string {
	r := []rune(text)
	if most <= 0 || len(r) <= most {
		return text
	}
	end := (most - 1) / 2
	return string(r[:most-1-end]) + "…" + string(r[len(r)-end:])
}

// Cut shortens a text to a number of characters.
func Cut(text string, most int) string {
	if r := []rune(text); most > 0 && len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}
