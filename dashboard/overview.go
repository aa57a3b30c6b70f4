package dashboard

import (
	"html/template"
	"net/http"
	"time"

	"github.com/midgehq/midge/dashboard/internal/chart"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/survey"
)

// overviewData is the data of the overview.
type overviewData struct {
	Needs   []need
	Needing int    // how many needs there are
	Folded  []need // the needs after these
	Hidden  int    // how many needs are not shown at all
	Calm    string
	Figures []figure
	Chart   *chart.Chart
	Queues  []queueView
	Others  int // queues that are not shown
	Running []runningTask
	Next    []scheduleView
	Still   int // orphaned and damaged schedules, which do not tick
}

// figure is a large number with its last hour. It has a Text, or a Cell that stays live.
type figure struct {
	Name, Text, Cell string
	Note             string
	Now              string // a cell after the note, with the present value
	Spark            template.HTML
}

// mostQueues is how many queues the overview shows.
const mostQueues = 12

func (s *server) overview(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "overview", "Overview", "Overview", "all.tick all.mark all.oldest"
	v.Command = "midge stats"
	needs := v.needs()
	d := overviewData{Needing: len(needs)}
	d.Needs, needs = urgent(needs, mostNeeds)
	d.Folded, needs = urgent(needs, mostFolded)
	d.Hidden = len(needs)
	if d.Needing == 0 && !v.Away() {
		d.Calm = v.calm(r.Context())
	}
	d.Chart = v.chartOf("", r.URL.Query().Get("span"))
	d.Figures = v.figures()
	d.Queues = troubleFirst(v.Sample)
	if len(d.Queues) > mostQueues {
		d.Others = len(d.Queues) - mostQueues
		d.Queues = d.Queues[:mostQueues]
	}
	d.Running = longest(v.Sample.Runners, "", 5)
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

// More returns how many needs there are after the first ones.
func (d overviewData) More() int { return d.Needing - len(d.Needs) }

// figures returns the four large numbers, each with its last hour.
func (v *view) figures() []figure {
	hour := v.chartOf("", "1h")
	done, failed := hour.Sums()
	speed := func(p sampler.Point) float64 { return p.Done / hour.Step.Seconds() }
	share := func(p sampler.Point) float64 { return p.Failed / max(1, p.Done+p.Failed) }
	within := " in the last hour"
	if hour.Blank() {
		within = " seen in the last hour"
	}
	figures := []figure{
		{
			Name: "Done", Cell: "done", Note: format.Number(int64(done)) + within,
			Spark: hour.Spark(speed, 1, atMost(format.Rate)),
		},
		{
			Name: "Failed", Text: format.Percent(failed / max(1, done+failed)), Now: "share",
			Note: "of attempts" + within, Spark: hour.Spark(share, 0.01, atMost(format.Percent)),
		},
		{Name: "Backlog", Cell: "backlog", Note: backlogGone(v.Sample), Spark: v.past(
			float64(v.Sample.Sum(func(q *survey.Queue) int64 { return q.Waiting })),
			func(p ledger.Point) float64 { return float64(p.Waiting) },
			atMost(func(n float64) string { return format.Number(int64(n)) }),
		)},
		{Name: "Oldest", Cell: "oldest", Note: "no task is waiting", Spark: v.past(
			v.Sample.Oldest().Seconds(), func(p ledger.Point) float64 { return p.Oldest.Seconds() },
			atMost(func(s float64) string { return format.Age(time.Duration(s * float64(time.Second))) }),
		)},
	}
	if q := v.Sample.OldestQueue(); q != "" {
		figures[3].Note = "waiting in " + format.Middle(q)
	}
	return figures
}

// atMost returns a function that marks the text of a number as a maximum.
func atMost(text func(float64) string) func(float64) string {
	return func(n float64) string { return "max" + format.NBSP + text(n) }
}
