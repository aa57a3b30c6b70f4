package survey

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Level is how much a finding matters.
type Level string

// The levels.
const (
	Problem Level = "problem" // has to be repaired: doctor exits with 1
	Notice  Level = "notice"  // can wait
)

// Sort is a level and a code that a finding can have.
type Sort struct {
	Level Level
	Code  string
}

// Sorts lists the sorts of findings in the order of the findings, the worst first.
func Sorts() []Sort {
	return []Sort{
		{Level: Problem, Code: "full"},
		{Level: Problem, Code: "read-only"},
		{Level: Problem, Code: "no-runners"},
		{Level: Problem, Code: "no-runner"},
		{Level: Problem, Code: "dead"},
		{Level: Notice, Code: "cause"},
		{Level: Notice, Code: "causes"},
		{Level: Notice, Code: "unread"},
		{Level: Problem, Code: "evicted"},
		{Level: Notice, Code: "dead-limit"},
		{Level: Problem, Code: "paused"},
		{Level: Notice, Code: "paused"},
		{Level: Problem, Code: "orphaned"},
		{Level: Problem, Code: "damaged-schedule"},
		{Level: Problem, Code: "clash"},
		{Level: Notice, Code: "unread-schedules"},
		{Level: Problem, Code: "limit-clash"},
		{Level: Notice, Code: "undeclared-limit"},
		{Level: Problem, Code: "unknown-kind"},
		{Level: Problem, Code: "undecodable"},
		{Level: Problem, Code: "unstopped"},
		{Level: Problem, Code: "oldest"},
		{Level: Problem, Code: "damaged"},
		{Level: Notice, Code: "storage"},
	}
}

// ProblemsFirst puts the problems before the notices, and leaves both in their order.
func ProblemsFirst(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(b.Level, a.Level) })
}

// Finding is something that needs attention. JSON shows its fields unchanged.
type Finding struct {
	Level Level `json:"level"`
	// Code names the kind of finding, for programs.
	Code string `json:"code"`
	// Queue, Kind, Schedule, Task and Runner are what the finding is about, "" for none.
	Queue    string `json:"queue"`
	Kind     string `json:"kind"`
	Schedule string `json:"schedule"`
	Task     string `json:"task"`
	Runner   string `json:"runner"`
	// Text is the finding in a few words, without a full stop. Detail adds how much of it there is and what
	// that means, in sentences.
	Text   string `json:"text"`
	Detail string `json:"detail"`
	// Next is a command that shows more, or that repairs the problem.
	Next string `json:"next"`
	// Accept is the name of the finding in Bounds.Accepted, such as "paused:reports" or "no-runners"; "" if it
	// cannot be accepted.
	Accept string `json:"accept"`
	// Since is when the finding began to hold, and Last when it last happened; nil if that is not known. Who
	// is the person who caused it, "" if nobody is known.
	Since *time.Time `json:"since"`
	Last  *time.Time `json:"last"`
	Who   string     `json:"who"`
	// Tasks is how many tasks the finding is about. Cause, Kinds and Error describe a cause of death: its ID,
	// the tasks of each kind that died of it, and the error of the task that died last.
	Tasks int64            `json:"tasks"`
	Cause string           `json:"cause"`
	Kinds map[string]int64 `json:"kinds"`
	Error string           `json:"error"`
}

// Moment returns a time in UTC for JSON. It returns nil, which JSON shows as null, for the zero time and
// for a year outside 0 to 9999, which RFC 3339 cannot express.
func Moment(t time.Time) *time.Time {
	t = t.UTC()
	if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}

// Bounds are the limits that a storage should keep to, and what is known to break them.
type Bounds struct {
	// Oldest is how long a task may wait. Default DefaultOldest.
	Oldest time.Duration
	// Dead is the maximum number of dead tasks in all queues, or AnyNumber. Tasks of an accepted cause do not
	// count.
	Dead int64
	// Accepted lists the known findings, each by its Finding.Accept. The caller has checked them with
	// CheckAccepted.
	Accepted []string
}

// AnyNumber is the value of Bounds.Dead that allows any number of dead tasks.
const AnyNumber = -1

// DefaultOldest is how long a task may wait by default.
const DefaultOldest = 5 * time.Minute

// TooOld reports whether the oldest task of a queue has waited for longer than the bounds allow.
func (b *Bounds) TooOld(q *Queue) bool { return q.Oldest > cmp.Or(b.Oldest, DefaultOldest) }

// Accepts reports whether the finding of a name is known.
func (b *Bounds) Accepts(name string) bool { return name != "" && slices.Contains(b.Accepted, name) }

// Words writes the numbers and times of findings. The zero Words write them plainly.
type Words struct {
	Number func(int64) string
	Span   func(time.Duration) string
	Gap    string // between a number and its noun
}

func (w Words) withDefaults() Words {
	if w.Number == nil {
		w.Number = func(n int64) string { return strconv.FormatInt(n, 10) }
	}
	if w.Span == nil {
		w.Span = func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	}
	if w.Gap == "" {
		w.Gap = " "
	}
	return w
}

// count writes how many there are of something, such as "2 tasks".
func (w Words) count(n int64, one string) string {
	if n != 1 {
		one += "s"
	}
	return w.Number(n) + w.Gap + one
}

// Waits returns a text that states how many tasks wait.
func (w Words) Waits(n int64) string {
	switch n {
	case 0:
		return "no task waits"
	case 1:
		return w.Number(1) + w.Gap + "task waits"
	}
	return w.count(n, "task") + " wait"
}

// sentence capitalizes a text and adds a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// sentences joins the texts that are not empty, each as a sentence.
func sentences(texts ...string) string {
	var all []string
	for _, text := range texts {
		if text != "" {
			all = append(all, sentence(text))
		}
	}
	return strings.Join(all, " ")
}
