package dashboard

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/queues"
)

// mostNeeds is how many needs the overview shows at once, and mostFolded how many more it unfolds.
const mostNeeds, mostFolded = 5, 45

// need is something that somebody should look at.
type need struct {
	rank   int    // 0 is the worst
	Glyph  string // shown with the class Look, which gives the colour
	Look   string
	Text   string    // what is wrong
	Small  string    // how much of it, and what that means
	Since  time.Time // zero if it is not known
	Last   time.Time // when it last happened, zero for a state that lasts
	Action string    // the text of its button
	Ask    bool      // URL is the address of a dialog
	URL    string
}

// The ranks, the worst first.
const (
	rankIdle = iota
	rankDead
	rankPaused
	rankOrphaned
	rankUnknown
	rankOld
	rankDamaged
	rankWarning
)

// needs returns everything that somebody should look at, the worst first.
func (v *view) needs() []need {
	s := v.Sample
	needs := v.runnerNeeds()
	for i := range s.Queues {
		needs = append(needs, v.queueNeeds(&s.Queues[i])...)
	}
	needs = append(needs, v.deadNeeds()...)
	for i := range s.Schedules {
		if n, ok := v.scheduleNeed(&s.Schedules[i]); ok {
			needs = append(needs, n)
		}
	}
	for _, warning := range s.Info.Warnings {
		needs = append(needs, need{
			rank: rankWarning, Glyph: "!", Look: "retry", Text: "The storage warns", Small: warning,
			Action: "Show", URL: v.URL("/runners") + "#storage",
		})
	}
	slices.SortStableFunc(needs, func(a, b need) int { return cmp.Compare(a.rank, b.rank) })
	return needs
}

// urgent returns at most as many of the needs as most, and the others, both the worst first. It takes needs
// of all ranks in turn, so that many needs of one rank do not hide the others.
func urgent(needs []need, most int) (first, others []need) {
	var ranks [][]need
	for i, n := range needs {
		if i == 0 || n.rank != needs[i-1].rank {
			ranks = append(ranks, nil)
		}
		last := &ranks[len(ranks)-1]
		*last = append(*last, n)
	}
	return dealt(ranks, most)
}

// runnerNeeds returns one need if no runner is alive although there is something to run. It stands for what
// would be said of each queue and of each schedule: the schedules of a process that has just crashed are not
// orphaned.
func (v *view) runnerNeeds() []need {
	var unserved queues.Unserved
	for i := range v.Sample.Queues {
		unserved.Add(&v.Sample.Queues[i].Stats)
	}
	text := unserved.Text(func(n int64) string { return format.Number(n) + format.NBSP })
	if len(v.Sample.Runners) > 0 || text == "" {
		return nil
	}
	return []need{{
		rank: rankIdle, Glyph: "!", Look: "dead", Text: "No runner is alive", Small: text + ".", Action: "Open",
		URL: v.URL("/runners"),
	}}
}

// queueNeeds returns what is wrong with a queue.
func (v *view) queueNeeds(q *sampler.Queue) (needs []need) {
	add := func(rank int, look, text, small string, since time.Time, action, url string) {
		needs = append(needs, need{
			rank: rank, Glyph: "!", Look: look, Text: text, Small: small, Since: since, Action: action, URL: url,
		})
	}
	oldest := v.Now.Add(-q.Oldest)
	switch {
	case q.Paused:
		add(rankPaused, "retry", "The queue "+q.Queue+" is paused", sentence(waits(q.Waiting)+" in it"),
			q.PausedSince, "Resume", v.URL("/act", "do", "resume", "queue", q.Queue))
		if q.PausedBy != "" {
			needs[0].Small += " Paused by " + q.PausedBy + "."
		}
		if !q.PausedUntil.IsZero() {
			needs[0].Small += " It resumes by itself " + format.Away(q.PausedUntil, v.Now) + "."
		}
		needs[0].Glyph, needs[0].Ask = "‖", true
		if !v.May("operate") {
			needs[0].Action, needs[0].URL, needs[0].Ask = "Open", v.QueueURL(q.Queue), false
		}
	case q.Waiting > 0 && len(v.Sample.Runners) == 0: // see runnerNeeds
	case q.Waiting > 0 && q.Runners == 0:
		small := waits(q.Waiting) + " in it"
		if q.Oldest > 0 {
			small += ", the oldest for " + format.Duration(q.Oldest)
		}
		// It is not known when the last runner left: the oldest task may have come before or after that.
		add(rankIdle, "dead", "No live runner serves the queue "+q.Queue, sentence(small), time.Time{}, "Open",
			v.QueueURL(q.Queue))
	case q.Oldest > v.server.cfg.TooOld:
		add(rankOld, "retry", "The oldest task of "+q.Queue+" has waited for "+format.Duration(q.Oldest),
			sentence(waits(q.Waiting)+" in it"), oldest, "Open", v.QueueURL(q.Queue))
	}
	for _, kind := range q.Unknown {
		add(rankUnknown, "retry", "No live runner of "+q.Queue+" knows the kind "+kind.Kind,
			sentence(waits(kind.Tasks)+" for a runner that knows it"), q.UnknownSince, "Show",
			v.URL("/tasks", "queue", q.Queue, "state", "waiting", "filter", "kind:"+kind.Kind))
	}
	if q.Damaged > 0 {
		add(rankDamaged, "dead", format.Count(q.Damaged, "record")+" of "+q.Queue+" could not be read",
			"Damaged records are set apart, and all other tasks run.", time.Time{}, "Open", v.QueueURL(q.Queue))
	}
	return needs
}

// sentence capitalizes a text and adds a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// waits says how many tasks wait.
func waits(n int64) string {
	switch n {
	case 0:
		return "no task waits"
	case 1:
		return "1" + format.NBSP + "task waits"
	}
	return format.Number(n) + format.NBSP + "tasks wait"
}

// deadNeeds returns the causes of death.
func (v *view) deadNeeds() (needs []need) {
	if v.Sample.Dead == nil {
		return nil
	}
	for _, g := range v.Sample.Dead.Groups {
		cause := causeView{g}
		small := cause.Died() + "."
		if cause.AllGaveUp() {
			small += " The jobs gave up by themselves."
		}
		needs = append(needs, need{
			rank: rankDead, Glyph: "✕", Look: "dead", Text: g.Error, Small: small,
			Since: g.First, Last: g.Last, Action: "Review", URL: v.CauseURL(g.ID),
		})
	}
	return needs
}

// scheduleNeed says what is wrong with a schedule, if anything is.
func (v *view) scheduleNeed(c *sampler.Schedule) (need, bool) {
	n := need{
		rank: rankOrphaned, Glyph: "◷", Look: "retry",
		Action: "Open", URL: v.URL("/schedules") + "#" + anchor(c.Ref),
	}
	switch {
	case c.Damaged:
		n.Text = "The schedule " + c.Name() + " is damaged"
		n.Small = "It never ticks. It belongs to the queue " + c.Queue + "."
		return n, true
	case c.Orphaned && len(v.Sample.Runners) == 0: // see runnerNeeds
	case c.Orphaned:
		n.Text = "The schedule " + c.Name() + " is orphaned"
		n.Small = "No live runner declares it, so it stands still. It belongs to the queue " + c.Queue + "."
		if !c.Cursor.Next.IsZero() && c.Cursor.Next.Before(v.Now) {
			n.Since = c.Cursor.Next
		}
		return n, true
	}
	return n, false
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
	if s.Sum(func(q *sampler.Queue) int64 { return q.Waiting }) == 0 {
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
