package filter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// kind is how the value of a field is read and compared.
type kind int

const (
	ofWord   kind = iota // a word without a field
	ofQueue              // the whole name of a queue, which also chooses the queues that are listed
	ofText               // the whole text
	ofPart               // a part of the text, whatever its case
	ofState              // states
	ofFlag               // a name behind "is:"
	ofNumber             // an integer
	ofAge                // a duration
	ofPast               // a moment that has passed, or none
	ofFuture             // a moment to come, or none
	ofHeader             // the whole value of a header
	ofParams             // a value in the parameters
)

// field is a property of a task that a word can name.
type field struct {
	name   string // ends in a dot if more names follow
	kind   kind
	states []storage.State // the only states in which the field has a value; nil for all
	text   func(t *storage.Task) string
	number func(t *storage.Task) int
	moment func(t *storage.Task) time.Time
}

// ops returns the operators that may follow the field.
func (f field) ops() []string {
	switch f.kind {
	case ofNumber, ofAge, ofPast, ofFuture, ofParams:
		return []string{":", ">", "<", ">=", "<="}
	default:
		return []string{":"}
	}
}

var (
	live  = storage.StatesWhere(storage.State.Live)
	ended = storage.StatesWhere(storage.State.Ended)
	timed = append(storage.StatesWhere(storage.State.Timed), storage.Cursors)
)

// partition is the name of the field that [Filter.Partition] reads.
const partition = "partition"

// fields lists each field that a filter may name.
var fields = []field{
	{name: "queue", kind: ofQueue},
	{name: "state", kind: ofState},
	{name: "kind", kind: ofText, text: func(t *storage.Task) string { return t.Kind }},
	{name: "id", kind: ofText, text: func(t *storage.Task) string { return t.ID }},
	{name: partition, kind: ofText, text: func(t *storage.Task) string { return t.Partition }},
	{name: "error", kind: ofPart, text: func(t *storage.Task) string { return t.LastError() }},
	{name: "cause", kind: ofText, text: func(t *storage.Task) string { return fingerprint.Of(*t).ID }},
	{name: "reason", kind: ofPart, text: func(t *storage.Task) string { return t.CurrentReason() }},
	{name: "header.", kind: ofHeader},
	{name: "params.", kind: ofParams},
	{name: "runner", kind: ofText, text: lastRunner},
	{name: "encoding", kind: ofText, text: func(t *storage.Task) string { return t.Encoding }},
	{name: "is", kind: ofFlag},
	{name: "priority", kind: ofNumber, number: func(t *storage.Task) int { return t.Priority }},
	{name: "cost", kind: ofNumber, number: func(t *storage.Task) int { return t.Cost.N() }},
	{name: "retries", kind: ofNumber, number: func(t *storage.Task) int { return t.Retries }},
	{name: "crashes", kind: ofNumber, number: func(t *storage.Task) int { return t.Crashes }},
	{name: "snoozes", kind: ofNumber, number: func(t *storage.Task) int { return t.Snoozes }},
	{name: "attempts", kind: ofNumber, number: func(t *storage.Task) int { return len(t.Attempts) }},
	{name: "size", kind: ofNumber, number: func(t *storage.Task) int { return len(t.Payload) }},
	{name: "age", kind: ofAge, moment: func(t *storage.Task) time.Time { return t.Created }},
	{name: "created", kind: ofPast, moment: func(t *storage.Task) time.Time { return t.Created }},
	{
		name: "started", kind: ofPast, states: []storage.State{storage.Pending},
		moment: func(t *storage.Task) time.Time { return t.StartedAt() },
	},
	{
		name: "declined", kind: ofPast, states: []storage.State{storage.Waiting},
		moment: func(t *storage.Task) time.Time { return t.Declined },
	},
	{name: "ended", kind: ofPast, states: ended, moment: func(t *storage.Task) time.Time { return t.Ended }},
	{name: "due", kind: ofFuture, states: timed, moment: due},
	{name: "expires", kind: ofFuture, states: ended, moment: func(t *storage.Task) time.Time { return t.Expires }},
}

// lastRunner returns the id of the runner that runs the task, or else of the last that ran it.
func lastRunner(t *storage.Task) string {
	if t.Runner != "" {
		return t.Runner
	}
	for _, a := range slices.Backward(t.Attempts) {
		if a.Runner != "" {
			return a.Runner
		}
	}
	return ""
}

func due(t *storage.Task) time.Time {
	if t.Cursor != nil {
		return t.Cursor.Next
	}
	return t.Due
}

// flag is a name behind "is:".
type flag struct {
	name  string
	state storage.State // the only state in which it holds, "" for any
	holds func(t *storage.Task) bool
}

var flags = []flag{
	{"declined", storage.Waiting, func(t *storage.Task) bool { return !t.Declined.IsZero() }},
	{"suspect", storage.Waiting, func(t *storage.Task) bool { return storage.Suspect(t.Crashes, t.CrashLimit) }},
	{"start-only", storage.Waiting, func(t *storage.Task) bool { return t.PassedOver == storage.PassedOverStartOnly }},
	{"cancel-asked", storage.Pending, func(t *storage.Task) bool { return t.CancelAsked }},
	{"started", storage.Pending, func(t *storage.Task) bool { return t.Started }},
	{"ahead", storage.Pending, func(t *storage.Task) bool { return !t.Started }},
	{"unique", "", func(t *storage.Task) bool { return t.Unique.Key != "" }},
}

// build makes the test of a term from its field, operator and values.
func (w *word) build(t *term) error {
	t.states = nil
	if !t.not {
		t.states = t.field.states
	}
	switch t.field.kind {
	case ofWord, ofPart:
		return w.buildPart(t)
	case ofQueue:
		t.test = func(s *subject) bool { return matchAny(t.value, s.Queue) }
	case ofText:
		text, values := t.field.text, t.value
		t.test = func(s *subject) bool { return matchAny(values, text(&s.Task)) }
	case ofHeader:
		name, values := strings.Join(t.path, "."), t.value
		t.test = func(s *subject) bool {
			value, ok := s.Headers[name]
			return ok && matchAny(values, value)
		}
	case ofState:
		return w.buildState(t)
	case ofFlag:
		return w.buildFlag(t)
	case ofNumber:
		return w.buildNumber(t)
	case ofAge, ofPast, ofFuture:
		return w.buildMoment(t)
	case ofParams:
		return w.buildParams(t)
	}
	return nil
}

func matchAny(values []pattern, text string) bool {
	return slices.ContainsFunc(values, func(p pattern) bool { return p.match(text) })
}

// matchScalar reports whether a value in the parameters matches. Bytes, which have no text, match only "*".
func matchScalar(values []pattern, is payload.Scalar) bool {
	return slices.ContainsFunc(values, func(p pattern) bool {
		return p.match(is.Text) && (!is.NoText || !p.none())
	})
}

// buildPart tests whether the text of the field contains a value, or whether there is no text if the value
// is "". A word without a field is looked for in the ref, the kind and the last error.
func (w *word) buildPart(t *term) error {
	text, parts := t.field.text, make([]pattern, len(t.value))
	for i, p := range t.value {
		if text == nil && p.none() {
			return w.wrong("the word", "a text between the quotes")
		}
		parts[i] = p.within()
	}
	t.test = func(s *subject) bool {
		if text != nil {
			return matchAny(parts, strings.ToLower(text(&s.Task)))
		}
		return matchAny(parts, strings.ToLower(s.Ref.String())) || matchAny(parts, strings.ToLower(s.Kind)) ||
			matchAny(parts, strings.ToLower(s.LastError()))
	}
	return nil
}

func (w *word) buildState(t *term) error {
	named := make(map[storage.State]bool)
	for _, p := range t.value {
		name, _ := p.exact()
		switch state, valid := ParseState(name); {
		case name == "live":
			mark(named, live)
		case name == "ended":
			mark(named, ended)
		case name == "all":
			mark(named, storage.TaskStates())
		case len(p.parts) == 1 && valid:
			named[state] = true
		default:
			return w.wrong("the state", "one of %s, live, ended or all", strings.Join(StateWords(), ", "))
		}
	}
	t.states = slices.DeleteFunc(storage.States(), func(s storage.State) bool { return named[s] == t.not })
	t.test = func(s *subject) bool { return named[s.State] }
	return nil
}

func mark(named map[storage.State]bool, states []storage.State) {
	for _, s := range states {
		named[s] = true
	}
}

func (w *word) buildFlag(t *term) error {
	var asked []flag
	for _, p := range t.value {
		name, _ := p.exact()
		at := slices.IndexFunc(flags, func(f flag) bool { return f.name == name })
		if len(p.parts) > 1 || at < 0 {
			names := make([]string, len(flags))
			for i, f := range flags {
				names[i] = f.name
			}
			return w.wrong("the value", "one of %s", strings.Join(names, " "))
		}
		asked = append(asked, flags[at])
	}
	anywhere := slices.ContainsFunc(asked, func(f flag) bool { return f.state == "" })
	for _, s := range storage.States() {
		if !anywhere && !t.not && slices.ContainsFunc(asked, func(f flag) bool { return f.state == s }) {
			t.states = append(t.states, s)
		}
	}
	t.test = func(s *subject) bool {
		return slices.ContainsFunc(asked, func(f flag) bool {
			return (f.state == "" || f.state == s.State) && f.holds(&s.Task)
		})
	}
	return nil
}

// holds reports whether two values stand as an operator demands. order is what [cmp.Compare] returns for
// them.
func holds(op string, order int) bool {
	switch op {
	case ">":
		return order > 0
	case "<":
		return order < 0
	case ">=":
		return order >= 0
	case "<=":
		return order <= 0
	default:
		return order == 0
	}
}

// single returns the value of a word that compares with > or <, which takes exactly one and no "*".
func (w *word) single(t *term) (string, error) {
	text, ok := t.value[0].exact()
	if !ok || len(t.value) > 1 {
		return "", w.wrong("the value", "one value without * behind %s", t.op)
	}
	return text, nil
}

func (w *word) buildNumber(t *term) error {
	if t.op != ":" {
		if _, err := w.single(t); err != nil {
			return err
		}
	}
	numbers := make([]int, len(t.value))
	for i, p := range t.value {
		text, _ := p.exact()
		n, err := strconv.Atoi(text)
		if err != nil || len(p.parts) > 1 {
			return w.wrong("the value", "an integer")
		}
		numbers[i] = n
	}
	number, op := t.field.number, t.op
	t.test = func(s *subject) bool {
		is := number(&s.Task)
		return slices.ContainsFunc(numbers, func(n int) bool { return holds(op, cmp.Compare(is, n)) })
	}
	return nil
}

// buildMoment compares a moment of the task with a duration, a moment, a day, "yes" or "no".
func (w *word) buildMoment(t *term) error {
	text, err := w.single(t)
	if err != nil {
		return err
	}
	moment, op := t.field.moment, t.op
	if t.field.kind != ofAge && op == ":" && (text == "yes" || text == "no") {
		if text == "no" {
			t.states = nil
		}
		t.test = func(s *subject) bool { return moment(&s.Task).IsZero() == (text == "no") }
		return nil
	}
	if d, err := ParseDuration(text); err == nil && op != ":" {
		future := t.field.kind == ofFuture
		t.test = func(s *subject) bool {
			at := moment(&s.Task)
			away := s.now.Sub(at)
			if future {
				away = at.Sub(s.now)
			}
			return !at.IsZero() && holds(op, cmp.Compare(away, d))
		}
		return nil
	}
	at, day, ok := parseMoment(text)
	switch {
	case t.field.kind == ofAge:
		return w.wrong("the value", "a duration with its unit behind > or <, such as age>90s, age>1h or age>2d")
	case !ok || op == ":" && !day:
		return w.wrong("the value", "%s>1h, %s>2026-11-23 or %s>2026-11-23T10:00:00Z, or behind : a day, yes or no",
			t.field.name, t.field.name, t.field.name)
	}
	t.test = func(s *subject) bool {
		is := moment(&s.Task)
		if op == ":" {
			return !is.Before(at) && is.Before(at.AddDate(0, 0, 1))
		}
		return !is.IsZero() && holds(op, is.Compare(at))
	}
	return nil
}

// parseMoment reads a moment; without an offset it is in UTC. day reports that the text names a whole day.
func parseMoment(text string) (at time.Time, day, ok bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), layout == time.DateOnly, true
		}
	}
	return time.Time{}, false, false
}

// ParseMoment reads a moment as a person types it: RFC 3339 with an offset, or a date and a time of day in
// zone, with seconds or without. For any other text it returns a *[storage.InvalidError].
func ParseMoment(text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04",
	} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	where := zone.String()
	if zone == time.Local { //nolint:gosmopolitan // it is named
		where = "the zone of this machine"
	}
	return time.Time{}, storage.Invalid("moment", text,
		"one such as 2026-11-23T15:00:00Z, or 2026-11-23 15:00 in %s", where)
}

// ParseRate parses a rate such as "100/1m". An error names from, the flag or the field that has the text.
func ParseRate(from, text string) (storage.Rate, error) {
	digits, span, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(digits)
	per, bad := ParseDuration(span)
	r := storage.Rate{N: n, Per: per}
	if err != nil || bad != nil || r == (storage.Rate{}) || storage.CheckLimit("", storage.Limit{Rate: r}) != nil {
		return storage.Rate{}, storage.Invalid(from, text, "starts/time such as 100/1m: 1 to %d starts in %v to 31d",
			storage.MaxRate, storage.MinSpan)
	}
	return r, nil
}

// ParseDuration reads a duration as [time.ParseDuration] does. The text may also have weeks (w) and days (d),
// before all other units: 2d12h. It returns a *[storage.InvalidError] for a negative duration, a duration
// without a unit, and a duration longer than [storage.MaxDelay].
func ParseDuration(text string) (time.Duration, error) {
	rest, whole := text, time.Duration(0)
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		digits, more, ok := strings.Cut(rest, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil || time.Duration(n) > (storage.MaxDelay-whole)/unit.is {
			return 0, badDuration(text)
		}
		whole, rest = whole+time.Duration(n)*unit.is, more
	}
	if rest == "" && text != "" {
		return whole, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || rest == "0" || d > storage.MaxDelay-whole {
		return 0, badDuration(text)
	}
	return whole + d, nil
}

func badDuration(text string) error {
	return storage.Invalid("duration", text, "a number with its unit, such as 500ms, 90s, 10m, 2h, 3d or 1w, at most %dd",
		storage.MaxDelay/(24*time.Hour))
}

// span is the time that a text names: a whole day in UTC, or a moment alone.
type span struct{ from, to time.Time }

// spansOf returns the times among values.
func spansOf(values []pattern) (spans []span) {
	for _, p := range values {
		text, whole := p.exact()
		at, day, ok := parseMoment(text)
		switch {
		case whole && ok && day:
			spans = append(spans, span{at, at.AddDate(0, 0, 1)})
		case whole && ok:
			spans = append(spans, span{at, at.Add(1)})
		}
	}
	return spans
}

// within reports whether a moment lies in one of the spans. A zero one, which is none, lies in no span.
func within(spans []span, at time.Time) bool {
	return !at.IsZero() && slices.ContainsFunc(spans, func(s span) bool { return !at.Before(s.from) && at.Before(s.to) })
}

// momentIn returns the moment that a value in the parameters is. It is zero if the value is none. A day, as
// programs store it in a text, is its first moment in UTC.
func momentIn(is payload.Scalar) time.Time {
	if is.Number || !is.Moment.IsZero() {
		return is.Moment
	}
	at, _, _ := parseMoment(is.Text)
	return at
}

// buildParams compares a value in the parameters. Behind ":" the value is compared as a text, a number also
// as a number, and a moment also as a moment. Behind the other operators it is compared as a number or as a
// moment.
func (w *word) buildParams(t *term) error {
	path, op := t.path, t.op
	if op == ":" {
		values, numbers, spans := t.value, numbersOf(t.value), spansOf(t.value)
		t.test = func(s *subject) bool {
			return s.values().Find(path, func(is payload.Scalar) bool {
				equals := func(n number) bool {
					order, ok := n.compare(is.Text)
					return ok && order == 0
				}
				return matchScalar(values, is) || is.Number && slices.ContainsFunc(numbers, equals) ||
					spans != nil && within(spans, momentIn(is))
			})
		}
		return nil
	}
	text, err := w.single(t)
	if err != nil {
		return err
	}
	given, isNumber := parseNumber(text)
	at, _, isMoment := parseMoment(text)
	if !isNumber && !isMoment { // a parameter does not show whether a duration lies ahead or behind
		return w.wrong("the value",
			"a number or a moment such as 2026-11-23 or 2026-11-23T10:00:00Z behind %s", op)
	}
	t.test = func(s *subject) bool {
		return s.values().Find(path, func(is payload.Scalar) bool {
			if isNumber {
				order, ok := given.compare(is.Text)
				return is.Number && ok && holds(op, order)
			}
			moment := momentIn(is)
			return !moment.IsZero() && holds(op, moment.Compare(at))
		})
	}
	return nil
}
