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
	Page   string // the page about the finding, if URL is another address
	Alike  []need // the equal findings for which this one stands, at most mostFolded
	Others int    // further equal findings
}

// needLook is how the overview shows a need: its glyph, and a class that sets the colour of the glyph.
type needLook struct{ Glyph, Look string }

// Title returns the text of the need: the error, for a cause of death.
func (n need) Title() string { return cmp.Or(n.Error, n.Text) }

// alike has the text of several equal findings, behind their number, and the page that lists their objects.
var alike = map[string]struct{ text, page string }{
	"no-runner":        {"queues have no runner", "queues"},
	"paused":           {"queues are paused", "queues"},
	"oldest":           {"queues have tasks that wait too long", "queues"},
	"damaged":          {"queues have records that could not be read", "queues"},
	"dead-limit":       {"queues have nearly as many dead tasks as they keep", "queues"},
	"evicted":          {"queues delete dead tasks early", "queues"},
	"unknown-kind":     {"kinds have no runner that handles them", "queues"},
	"undecodable":      {"kinds have tasks that runners cannot decode", "queues"},
	"orphaned":         {"schedules are orphaned", "schedules"},
	"damaged-schedule": {"schedules are damaged", "schedules"},
	"clash":            {"schedules have two owners", "schedules"},
	"unread-schedules": {"queues have schedules that were not checked", "queues"},
	"limit-clash":      {"queues have runners that declare different limits", "queues"},
	"undeclared-limit": {"queues have a limit that no live runner declares", "queues"},
}

// mostAlike is how many equal findings stand by themselves. One line stands for more of them, and unfolds.
const mostAlike = 2

// joined returns the needs with one need for more than mostAlike equal ones, which are neighbours.
func (v *view) joined(needs []need) (all []need) {
	for len(needs) > 0 {
		n := 1
		for n < len(needs) && needs[n].Code == needs[0].Code && needs[n].Level == needs[0].Level {
			n++
		}
		some := needs[:n]
		if of, ok := alike[some[0].Code]; ok && n > mostAlike {
			one := need{Finding: survey.Finding{Code: some[0].Code}, needLook: some[0].needLook}
			for i := range some {
				one.Tasks += some[i].Tasks
			}
			one.Text = format.Number(int64(n)) + format.NBSP + of.text
			if one.Tasks > 0 {
				one.Detail = format.Count(one.Tasks, "task") + " in all."
			}
			one.Action, one.URL = "View "+of.page, v.URL("/"+of.page)
			one.Alike, one.Others = some[:min(n, mostFolded)], max(0, n-mostFolded)
			some = []need{one}
		}
		all, needs = append(all, some...), needs[n:]
	}
	return all
}

// words writes the numbers and times of findings as pages show them.
var words = survey.Words{Number: format.Number, Span: format.Duration, Gap: format.NBSP}

// findings returns what needs attention, the worst first.
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
	return v.joined(needs)
}

// need returns a finding with its glyph, its button and the address of the button.
func (v *view) need(f survey.Finding) need {
	n := need{Finding: f, needLook: needLook{"!", "retry"}, Action: "View queue"}
	switch f.Code {
	case "no-runners", "no-runner", "full", "read-only", "damaged", "evicted", "undecodable", "unstopped":
		n.Look = "dead"
	case "dead", "cause", "causes", "unread":
		n.needLook = needLook{lookOf(storage.Dead).Glyph, "dead"}
	case "paused":
		n.Glyph = "‖"
	case "orphaned", "damaged-schedule", "clash", "unread-schedules":
		n.Glyph = lookOf(storage.Scheduled).Glyph
	}
	switch f.Code {
	case "storage", "full", "read-only":
		n.Action, n.URL = "View storage", v.URL("/runners")+"#storage"
	case "no-runners":
		n.Action, n.URL = "View runners", v.URL("/runners")
	case "cause":
		n.Action, n.URL = "View cause", v.CauseURL(f.Cause)
		n = v.needOfCause(n)
	case "dead", "causes", "unread":
		n.Action, n.URL = "View causes", v.URL("/dead")
	case "paused":
		n = v.needOfQueue(n, "Resume", "resume")
	case "undeclared-limit":
		n = v.needOfQueue(n, "Clear limit", "clear-limit")
	case "unknown-kind":
		n.Action = "View tasks"
		n.URL = v.URL("/tasks", "queue", f.Queue, "state", "waiting", "filter", "kind:"+f.Kind, "only", "1")
	case "undecodable":
		n.Action = "View tasks"
		n.URL = v.URL("/tasks", "queue", f.Queue, "filter", "kind:"+f.Kind+" reason:undecodable")
	case "orphaned", "damaged-schedule", "clash":
		cursor := storage.Ref{Queue: f.Queue, ID: storage.CursorPrefix + f.Schedule}
		n.Action, n.URL = "View schedule", v.URL("/schedules")+"#"+anchor(cursor)
		if f.Schedule == "" { // several kept ones
			n.Action, n.URL = "View schedules", v.URL("/schedules")
		}
		if f.Code == "orphaned" && f.Schedule != "" && v.May("alter") {
			n = n.asking("Remove", v.URL("/action", "do", "unschedule", "ref", cursor.String()))
		}
	case "unstopped":
		n.Action, n.URL = "View task", v.URL("/r/"+f.Task)
	case "dead-limit", "evicted":
		n.Action = "View tasks"
		n.URL = v.URL("/tasks", "queue", f.Queue, "state", "dead")
	default:
		n.URL = v.QueueURL(f.Queue)
	}
	return n
}

// needOfQueue returns the need with a button for an action on its queue, for users who may do that.
func (v *view) needOfQueue(n need, title, do string) need {
	if n.URL = v.QueueURL(n.Queue); v.May("operate") {
		n = n.asking(title, v.URL("/action", "do", do, "queue", n.Queue))
	}
	return n
}

// asking returns the need with a button that opens a dialog. The page of its button so far is the page about
// it.
func (n need) asking(action, address string) need {
	n.Action, n.Ask, n.URL, n.Page = action, true, address, n.URL
	return n
}

// needOfCause completes the need of a cause of death: its title is that of all its tasks, and its button
// requeues them, unless their job discarded them all.
func (v *view) needOfCause(n need) need {
	if v.Sample.Dead == nil || n.Cause == "" {
		return n
	}
	at := slices.IndexFunc(v.Sample.Dead.Groups, func(g *survey.Cause) bool { return g.ID == n.Cause })
	if at < 0 {
		return n
	}
	g := causeView{v.Sample.Dead.Groups[at]}
	if n.Error = g.Title(); v.May("operate") && !g.AllDiscarded() {
		n = n.asking("Requeue", v.URL("/action", "do", "requeue", "all", "1", "state", "dead", "filter", g.Filter))
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

// calm returns the text if nothing needs attention, without its end about the oldest task, which is a live
// cell. If today's work is known, the text has it.
func (v *view) calm(ctx context.Context) string {
	s := v.Sample
	switch {
	case len(s.Queues) == 0:
		return "All clear. No queues yet."
	case len(s.Runners) == 0:
		return "All clear. No task is waiting, and no runner is alive."
	}
	work := verb(format.Count(len(s.Runners), "runner"), len(s.Runners), "work")
	text := "All clear. " + cmp.Or(v.doneToday(ctx), work+" on "+format.Count(len(s.Queues), "queue"))
	if s.Oldest() == 0 {
		return text + ", and no task is waiting."
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
	if since.Sub(begin) <= 2*time.Minute && v.Zone() == time.UTC {
		text += "today"
	} else {
		layout := "15:04"
		if since = since.In(v.Zone()); since.Day() != v.Now.Day() {
			layout = "Jan" + format.NBSP + "2" + format.NBSP + "15:04"
		}
		text += "since " + since.Format(layout)
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
