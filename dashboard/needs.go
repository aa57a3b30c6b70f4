package dashboard

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// mostNeeds is how many needs the overview shows at once, and mostFolded how many more it unfolds.
const mostNeeds, mostFolded = 5, 45

// need is a finding as the overview shows it.
type need struct {
	survey.Finding

	needLook
	Action string // the text of its button
	Ask    bool   // URL is the address of a dialog
	URL    string
}

// needLook is how a need looks: its glyph, and a class that gives the glyph its colour.
type needLook struct{ Glyph, Look string }

// Title is what is wrong: the error, of a cause of death.
func (n need) Title() string { return cmp.Or(n.Error, n.Text) }

// words writes the numbers and times of findings as pages show them.
var words = survey.Words{Number: format.Number, Span: format.Duration, Gap: format.NBSP}

// findings returns what somebody should look at, the worst first.
func (v *view) findings() []survey.Finding {
	found, _ := v.Sample.Findings(v.server.bounds, words)
	return found
}

// needs returns the findings as the overview shows them.
func (v *view) needs() []need {
	found := v.findings()
	needs := make([]need, len(found))
	for i, f := range found {
		needs[i] = v.need(f)
	}
	return needs
}

// need returns a finding with its glyph, its button and the address of the button.
func (v *view) need(f survey.Finding) need {
	n := need{Finding: f, needLook: needLook{"!", "retry"}, Action: "Open"}
	switch f.Code {
	case "no-runners", "no-runner", "full", "read-only", "damaged", "evicted", "undecodable", "unstopped":
		n.Look = "dead"
	case "dead", "cause", "causes", "unread":
		n.needLook = needLook{"✕", "dead"}
	case "paused":
		n.Glyph = "‖"
	case "orphaned", "damaged-schedule":
		n.Glyph = "◷"
	}
	switch f.Code {
	case "storage", "full", "read-only":
		n.Action, n.URL = "Show", v.URL("/runners")+"#storage"
	case "no-runners":
		n.URL = v.URL("/runners")
	case "cause":
		n.Action, n.URL = "Review", v.CauseURL(f.Cause)
	case "dead", "causes", "unread":
		n.URL = v.URL("/dead")
	case "paused":
		n.URL = v.QueueURL(f.Queue)
		if v.May("operate") {
			n.Action, n.Ask, n.URL = "Resume", true, v.URL("/act", "do", "resume", "queue", f.Queue)
		}
	case "unknown-kind":
		n.Action = "Show"
		n.URL = v.URL("/tasks", "queue", f.Queue, "state", "waiting", "filter", "kind:"+f.Kind)
	case "undecodable":
		n.Action = "Show"
		n.URL = v.URL("/tasks", "queue", f.Queue, "filter", "kind:"+f.Kind+" reason:undecodable")
	case "orphaned", "damaged-schedule":
		cursor := storage.Ref{Queue: f.Queue, ID: storage.CursorPrefix + f.Schedule}
		n.URL = v.URL("/schedules") + "#" + anchor(cursor)
	case "unstopped":
		n.URL = v.URL("/r/" + f.Task)
	case "dead-limit", "evicted":
		n.URL = v.URL("/tasks", "queue", f.Queue, "state", "dead")
	default:
		n.URL = v.QueueURL(f.Queue)
	}
	return n
}

// urgent returns at most as many of the needs as most, and the others, both the worst first. It takes
// needs of all sorts in turn, so that many needs of one sort do not hide the others. All causes of death
// are one sort.
func urgent(needs []need, most int) (first, others []need) {
	sortOf := func(n *need) string {
		if n.Code == "causes" || n.Code == "unread" {
			return "cause"
		}
		return n.Code
	}
	var codes [][]need
	for i, n := range needs {
		if i == 0 || sortOf(&n) != sortOf(&needs[i-1]) {
			codes = append(codes, nil)
		}
		last := &codes[len(codes)-1]
		*last = append(*last, n)
	}
	return dealt(codes, most)
}

// calm returns the text if nothing needs anybody. If the history knows today's work, the text tells of it.
func (v *view) calm(ctx context.Context) string {
	s := v.Sample
	switch {
	case len(s.Queues) == 0:
		return "Nothing needs you. There is no queue yet."
	case len(s.Runners) == 0:
		return "Nothing needs you. No task waits, and no runner is alive."
	}
	work := verb(format.Count(len(s.Runners), "runner"), len(s.Runners), "work")
	text := "Nothing needs you. " + cmp.Or(v.server.day.tell(ctx, v.server.sampler, v.Now),
		work+" on "+format.Count(len(s.Queues), "queue"))
	if s.Sum(func(q *survey.Queue) int64 { return q.Waiting }) == 0 {
		return text + ", and no task waits."
	}
	return text + ", and the oldest task has waited for " + format.Duration(s.Oldest()) + "."
}

// day caches the text about today's work, so that the history is not read for each viewer.
type day struct {
	mu    sync.Mutex
	until time.Time // when the text has to be made again
	text  string
}

// tell returns the text about today's work, or "" if the work is not known. Days are in UTC.
func (d *day) tell(ctx context.Context, history *sampler.Sampler, now time.Time) string {
	if text, ok := d.last(now); ok {
		return text
	}
	const length = 24 * time.Hour
	past, err := history.Series(ctx, sampler.Range{
		End: now.UTC().Truncate(length).Add(length), Length: length, Step: time.Minute, Sums: true,
	})
	if err != nil { // the page is shown without the history
		return ""
	}
	text := doneToday(past)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until, d.text = now.Add(time.Minute), text
	return text
}

// last returns the cached text, and whether it is still valid.
func (d *day) last(now time.Time) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text, now.Before(d.until)
}

// doneToday writes the text about today's work from the history, "" if the history does not know it.
func doneToday(past *ledger.Series) string {
	first := slices.IndexFunc(past.All, func(p ledger.Point) bool { return p.Known })
	if first < 0 {
		return ""
	}
	var done, failed int64
	for _, p := range past.All {
		done, failed = done+p.Done, failed+p.Failed
	}
	since := "today"
	if first > 2 {
		since = "since " + past.All[first].At.Format("15:04")
	}
	text := format.Count(done, "task") + " done " + since
	if done+failed > 0 {
		text += ", " + format.Percent(float64(done)/float64(done+failed)) + " of the attempts succeeded"
	}
	return text
}

// verb appends a verb to a counted subject, with an s after a subject of one.
func verb(subject string, n int, verb string) string {
	if n == 1 {
		verb += "s"
	}
	return subject + " " + verb
}
