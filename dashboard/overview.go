package dashboard

import (
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// overviewData is what the overview shows.
type overviewData struct {
	Needs   []need
	Needing int // how many needs there are
	More    int // of these, how many are not shown
	Calm    string
	Figures []figure
	Chart   *chart
	Queues  []*queueNow
	Others  int // queues that are not shown
	Running []runningTask
	Next    []scheduleNow
	Still   int // schedules that never tick, as they are
}

// figure is a large number with its hour: a text, or a cell, which changes while it is looked at.
type figure struct {
	Name, Text, Cell string
	Note             string
	Now              string // a cell behind the note, which says how it is now
	Spark            template.HTML
}

// mostQueues is how many queues the overview shows.
const mostQueues = 12

func (s *server) overview(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "overview", "Overview", "Overview", "all.tick all.mark"
	v.Command = "midge stats"
	d := overviewData{Needs: v.needs()}
	d.Needing = len(d.Needs)
	if len(d.Needs) > mostNeeds {
		d.More = len(d.Needs) - mostNeeds
		d.Needs = d.Needs[:mostNeeds]
	}
	if len(d.Needs) == 0 {
		d.Calm = v.calm(r.Context())
	}
	d.Chart = v.chartOf("", r.URL.Query().Get("span"))
	d.Figures = v.figures()
	d.Queues = troubleFirst(v.Sample)
	if len(d.Queues) > mostQueues {
		d.Others = len(d.Queues) - mostQueues
		d.Queues = d.Queues[:mostQueues]
	}
	d.Running = longest(v.Sample.runners, 5)
	for _, c := range v.Sample.schedules {
		switch {
		case c.orphaned || c.damaged:
			d.Still++
		case len(d.Next) < 5 && !c.Cursor.Next.IsZero():
			d.Next = append(d.Next, c)
		}
	}
	v.Data = d
	return nil
}

// figures are the four large numbers, each with its hour.
func (v *view) figures() []figure {
	hour := v.chartOf("", "1h")
	done, failed := hour.sums()
	share := func(p point) float64 { return p.Failed / max(1, p.Done+p.Failed) }
	within := " in the last hour"
	if hour.Blank() {
		within = " seen in the last hour"
	}
	figures := []figure{
		{
			Name: "Done", Cell: "done", Note: format.Number(int64(done)) + within,
			Spark: hour.spark(func(p point) float64 { return p.Done / hour.Step.Seconds() }, 1, atMost(format.Rate)),
		},
		{
			Name: "Failed", Text: format.Percent(failed / max(1, done+failed)), Now: "share",
			Note: "of attempts" + within, Spark: hour.spark(share, 0.01, atMost(format.Percent)),
		},
		{Name: "Backlog", Cell: "backlog", Note: v.Sample.gone(), Spark: v.past(
			float64(v.Sample.sum(func(q *queueNow) int64 { return q.Waiting })),
			func(p ledger.Point) float64 { return float64(p.Waiting) },
			atMost(func(n float64) string { return format.Number(int64(n)) }),
		)},
		{Name: "Oldest", Cell: "oldest", Note: "nothing waits", Spark: v.past(
			v.Sample.oldest().Seconds(), func(p ledger.Point) float64 { return p.Oldest.Seconds() },
			atMost(func(s float64) string { return format.Age(time.Duration(s * float64(time.Second))) }),
		)},
	}
	if q := v.Sample.oldestQueue(); q != "" {
		figures[3].Note = "has waited in " + format.Middle(q)
	}
	return figures
}

// atMost says of a text of a number that it is the maximum.
func atMost(text func(float64) string) func(float64) string {
	return func(n float64) string { return "max" + format.NBSP + text(n) }
}

// oldestQueue is the queue whose oldest task has waited for the longest, "" where nothing waits.
func (s *sample) oldestQueue() (queue string) {
	var oldest time.Duration
	for i := range s.queues {
		if q := &s.queues[i]; q.Oldest > oldest {
			queue, oldest = q.Queue, q.Oldest
		}
	}
	return queue
}

// Trouble says in a word what is wrong with a queue, "" for nothing.
func (q *queueNow) Trouble() string {
	switch {
	case q.Paused:
		return "paused"
	case q.Waiting > 0 && q.runners == 0:
		return "no runner"
	case len(q.unknown) > 0:
		return "unknown kind"
	case q.Damaged > 0:
		return "damaged"
	}
	return ""
}

// byNames gives the queues in the order of their names.
func (s *sample) byNames() []*queueNow {
	queues := make([]*queueNow, len(s.queues))
	for i := range s.queues {
		queues[i] = &s.queues[i]
	}
	return queues
}

// PausedSince is when the queue was paused, zero where nobody knows.
func (q *queueNow) PausedSince() time.Time { return q.pausedSeen }

// troubleFirst orders queues as what needs somebody is ordered: where nobody works, what died, what is
// paused, what else is in trouble, then what is busy.
func troubleFirst(s *sample) []*queueNow {
	queues := s.byNames()
	weight := func(q *queueNow) int {
		switch {
		case !q.Paused && q.Waiting > 0 && q.runners == 0:
			return 0
		case q.Dead > 0:
			return 1
		case q.Paused:
			return 2
		case q.Trouble() != "":
			return 3
		case q.Live() > 0 || q.done > 0:
			return 4
		}
		return 5
	}
	slices.SortStableFunc(queues, func(a, b *queueNow) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(b.Dead, a.Dead))
	})
	return queues
}

// runningTask is a task that a runner runs.
type runningTask struct {
	storage.Running

	Runner string
}

// longest gives the tasks that run for the longest.
func longest(runners []storage.RunnerInfo, most int) []runningTask {
	var all []runningTask
	for i := range runners {
		for _, t := range runners[i].Running {
			if !storage.Reserved(t.Ref.Queue) {
				all = append(all, runningTask{t, runners[i].ID})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b runningTask) int { return a.Since.Compare(b.Since) })
	return all[:min(most, len(all))]
}

// chart is the points of a span, ready to be drawn.
type chart struct {
	Points []point
	From   time.Time // when the first point begins
	Step   time.Duration
	Part   float64 // how much of the last point has passed, 1 for all of it
	Which  string  // its name in the address
	Max    float64 // a second

	deploys []ledger.Deploy
}

// chartOf gives the points of a queue, or of all, over the last hour, of which the history tells more than
// this process saw, or where it is asked for over the last five minutes, as this process saw them.
func (v *view) chartOf(queue, which string) *chart {
	span := 1
	if which == "5m" {
		span = 0
	}
	step := spans[span]
	last := v.Now.Truncate(step)
	c := &chart{
		Points: v.server.sampler.seen(queue, span, v.Now), Which: []string{"5m", "1h"}[span],
		From: last.Add(-(points - 1) * step), Step: step, Part: float64(v.Now.Sub(last)) / float64(step),
	}
	if span == 1 {
		v.Sample.recall(queue, c)
	}
	if v.Sample.hour != nil {
		c.deploys = v.Sample.hour.Deploys
	}
	c.Max = c.most()
	return c
}

// most is the highest rate of the chart.
func (c *chart) most() (most float64) {
	for i := range c.Points {
		if p := c.at(i); p.Seen {
			most = max(most, p.Done, p.Failed)
		}
	}
	return most / c.Step.Seconds()
}

// least is which part of a point has to have passed before it tells a rate.
const least = 0.25

// at gives a point as it is drawn: what of the last one is still to come is supposed to be like what was.
func (c *chart) at(i int) point {
	p := c.Points[i]
	if i != len(c.Points)-1 || c.Part <= 0 || c.Part >= 1 {
		return p
	}
	if c.Part < least {
		return point{}
	}
	p.Done, p.Failed = p.Done/c.Part, p.Failed/c.Part
	return p
}

// coming reports whether nothing is known of a point yet, because it has only just been.
func (c *chart) coming(i int) bool {
	missing := float64(len(c.Points)-1-i) - 1 + c.Part // in points, from its end until now
	return !c.at(i).Seen && time.Duration(missing*float64(c.Step)) < soon
}

// soon is how late the history may tell of a minute.
const soon = 90 * time.Second

// known is of how many minutes the history tells.
func (s *sample) known() (n int) {
	if s.hour == nil {
		return 0
	}
	for _, p := range s.hour.All {
		if p.Known {
			n++
		}
	}
	return n
}

// recall puts what the history tells in the place of what this process saw.
func (s *sample) recall(queue string, c *chart) {
	if s.hour == nil {
		return
	}
	for i, all := range s.hour.All {
		at := int(all.At.Sub(c.From) / c.Step)
		if !all.Known || all.At.Before(c.From) || at >= len(c.Points)-1 { // the history knows whole minutes
			continue
		}
		p := all
		if queue != "" {
			p = ledger.Point{} // the queue was idle
			if steps := s.hour.Queues[queue]; i < len(steps) {
				p = steps[i]
			}
		}
		c.Points[at] = point{Done: float64(p.Done), Failed: float64(p.Failed), Seen: true, Gap: all.Gap}
	}
}

// past draws the hour of a figure until now, with its maximum.
func (v *view) past(now float64, of func(ledger.Point) float64, text func(float64) string) template.HTML {
	if v.Sample.known() == 0 {
		return ""
	}
	values := make([]float64, len(v.Sample.hour.All))
	for i, p := range v.Sample.hour.All {
		values[i] = of(p)
		if !p.Known {
			values[i] = -1
		}
	}
	for len(values) > 0 && values[len(values)-1] < 0 { // what has only just been, for which now stands
		values = values[:len(values)-1]
	}
	return sparkbox(slices.Concat(values, []float64{now}), 1, text)
}
