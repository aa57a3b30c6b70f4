package dashboard

import (
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
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
	Queues  []queueView
	Others  int // queues that are not shown
	Running []runningTask
	Next    []scheduleView
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
	d.Running = longest(v.Sample.Runners, 5)
	for _, c := range scheduleViews(v.Sample) {
		switch {
		case c.Orphaned || c.Damaged:
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
	speed := func(p sampler.Point) float64 { return p.Done / hour.Step.Seconds() }
	share := func(p sampler.Point) float64 { return p.Failed / max(1, p.Done+p.Failed) }
	within := " in the last hour"
	if hour.Blank() {
		within = " seen in the last hour"
	}
	figures := []figure{
		{
			Name: "Done", Cell: "done", Note: format.Number(int64(done)) + within,
			Spark: hour.spark(speed, 1, atMost(format.Rate)),
		},
		{
			Name: "Failed", Text: format.Percent(failed / max(1, done+failed)), Now: "share",
			Note: "of attempts" + within, Spark: hour.spark(share, 0.01, atMost(format.Percent)),
		},
		{Name: "Backlog", Cell: "backlog", Note: backlogGone(v.Sample), Spark: v.past(
			float64(v.Sample.Sum(func(q *sampler.Queue) int64 { return q.Waiting })),
			func(p ledger.Point) float64 { return float64(p.Waiting) },
			atMost(func(n float64) string { return format.Number(int64(n)) }),
		)},
		{Name: "Oldest", Cell: "oldest", Note: "nothing waits", Spark: v.past(
			v.Sample.Oldest().Seconds(), func(p ledger.Point) float64 { return p.Oldest.Seconds() },
			atMost(func(s float64) string { return format.Age(time.Duration(s * float64(time.Second))) }),
		)},
	}
	if q := v.Sample.OldestQueue(); q != "" {
		figures[3].Note = "has waited in " + format.Middle(q)
	}
	return figures
}

// atMost says of a text of a number that it is the maximum.
func atMost(text func(float64) string) func(float64) string {
	return func(n float64) string { return "max" + format.NBSP + text(n) }
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
	Points []sampler.Point
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
	step := sampler.Spans[span]
	last := v.Now.Truncate(step)
	c := &chart{
		Points: v.server.sampler.Seen(queue, span, v.Now), Which: []string{"5m", "1h"}[span],
		From: last.Add(-(sampler.Points - 1) * step), Step: step, Part: float64(v.Now.Sub(last)) / float64(step),
	}
	if span == 1 {
		v.Sample.Recall(queue, c.From, c.Points)
	}
	if v.Sample.Hour != nil {
		c.deploys = v.Sample.Hour.Deploys
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
func (c *chart) at(i int) sampler.Point {
	p := c.Points[i]
	if i != len(c.Points)-1 || c.Part <= 0 || c.Part >= 1 {
		return p
	}
	if c.Part < least {
		return sampler.Point{}
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

// past draws the hour of a figure until now, with its maximum.
func (v *view) past(now float64, of func(ledger.Point) float64, text func(float64) string) template.HTML {
	if v.Sample.KnownMinutes() == 0 {
		return ""
	}
	values := make([]float64, len(v.Sample.Hour.All))
	for i, p := range v.Sample.Hour.All {
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
