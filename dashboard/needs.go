package dashboard

import (
	"cmp"
	"context"
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

// calm returns the text if nothing needs anybody, without its end about the oldest task, which is a live
// cell. If today's work is known, the text has it.
func (v *view) calm(ctx context.Context) string {
	s := v.Sample
	switch {
	case len(s.Queues) == 0:
		return "Nothing needs you. There is no queue yet."
	case len(s.Runners) == 0:
		return "Nothing needs you. No task waits, and no runner is alive."
	}
	work := verb(format.Count(len(s.Runners), "runner"), len(s.Runners), "work")
	text := "Nothing needs you. " + cmp.Or(v.doneToday(ctx), work+" on "+format.Count(len(s.Queues), "queue"))
	if s.Oldest() == 0 {
		return text + ", and no task waits."
	}
	return text
}

// day caches the history of today, so that it is not read for each viewer.
type day struct {
	mu    sync.Mutex
	until time.Time // when the history has to be read again
	past  *ledger.Series
}

// read returns the history of the day that begins at a moment, nil if it is not known.
func (d *day) read(ctx context.Context, history *sampler.Sampler, begin, now time.Time) *ledger.Series {
	d.mu.Lock()
	past, until := d.past, d.until
	d.mu.Unlock()
	if now.Before(until) {
		return past
	}
	const length = 24 * time.Hour
	past, err := history.Series(ctx, sampler.Range{
		End: begin.Add(length), Length: length, Step: time.Minute, Sums: true,
	})
	if err != nil { // the page is shown without the history
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until, d.past = now.Add(time.Minute), past
	return past
}

// doneToday writes the text about the work of today in UTC, "" if none is known. Its last hour is the hour
// of the figures on the same page, which know more than the history, so that the text and the figures never
// contradict each other.
func (v *view) doneToday(ctx context.Context) string {
	begin := v.Now.UTC().Truncate(24 * time.Hour)
	hour := v.chartOf("", "1h")
	var done, failed float64
	var since time.Time
	add := func(at time.Time, known bool, d, f float64) {
		if known && !at.Before(begin) {
			if done, failed = done+d, failed+f; since.IsZero() {
				since = at
			}
		}
	}
	if past := v.server.day.read(ctx, v.server.sampler, begin, v.Now); past != nil {
		for _, p := range past.All {
			add(p.At, p.Known && p.At.Before(hour.From), float64(p.Done), float64(p.Failed))
		}
	}
	for i, p := range hour.Points {
		add(hour.From.Add(time.Duration(i)*hour.Step), p.Seen, p.Done, p.Failed)
	}
	if since.IsZero() {
		return ""
	}
	text := format.Count(int64(done), "task") + " done "
	if since.Sub(begin) <= 2*time.Minute {
		text += "today"
	} else {
		text += "since " + since.UTC().Format("15:04")
	}
	if done+failed > 0 {
		text += ", " + format.Percent(done/(done+failed)) + " of the attempts succeeded"
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
