package dashboard

import (
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// overviewData is what the overview shows.
type overviewData struct {
	Needs   []need
	More    int // needs that are not shown
	Calm    string
	Figures []figure
	Chart   chart
	Queues  []*queueNow
	Others  int // queues that are not shown
	Running []runningTask
	Next    []scheduleNow
}

// figure is a large number with its hour.
type figure struct {
	Name, Cell, Note, NoteCell string
	Spark                      template.HTML
}

// mostQueues is how many queues the overview shows.
const mostQueues = 12

func (s *server) overview(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "overview", "Overview", "Overview", "all.tick all.mark"
	v.Command = "midge stats"
	d := overviewData{Needs: v.needs()}
	if len(d.Needs) > mostNeeds {
		d.More = len(d.Needs) - mostNeeds
		d.Needs = d.Needs[:mostNeeds]
	}
	if len(d.Needs) == 0 {
		d.Calm = v.calm()
	}
	d.Chart = v.chartOf("", r.URL.Query().Get("span"))
	d.Figures = []figure{
		{Name: "Done", Cell: "done", Spark: d.Chart.spark(func(p point) float64 { return p.Done })},
		{
			Name: "Failed", Cell: "share", Note: "of attempts",
			Spark: d.Chart.spark(func(p point) float64 { return p.Failed }),
		},
		{Name: "Backlog", Cell: "backlog", Note: v.Sample.gone(), Spark: v.past(func(p ledger.Point) float64 {
			return float64(p.Waiting)
		})},
		{Name: "Oldest", Cell: "oldest", Note: "has waited", Spark: v.past(func(p ledger.Point) float64 {
			return p.Oldest.Seconds()
		})},
	}
	d.Queues = troubleFirst(v.Sample)
	if len(d.Queues) > mostQueues {
		d.Others = len(d.Queues) - mostQueues
		d.Queues = d.Queues[:mostQueues]
	}
	d.Running = longest(v.Sample.runners, 5)
	for _, c := range v.Sample.schedules {
		if len(d.Next) < 5 && !c.orphaned && !c.damaged && !c.Cursor.Next.IsZero() {
			d.Next = append(d.Next, c)
		}
	}
	v.Data = d
	return nil
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

// troubleFirst orders queues: what is in trouble first, then what has died, then what is busy.
func troubleFirst(s *sample) []*queueNow {
	queues := s.byNames()
	weight := func(q *queueNow) int {
		switch {
		case q.Trouble() != "":
			return 0
		case q.Dead > 0:
			return 1
		case q.Live() > 0 || q.done > 0:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(queues, func(a, b *queueNow) int { return cmp.Compare(weight(a), weight(b)) })
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
	Span   time.Duration // of all points together
	Which  string        // its name in the address
	End    time.Time
	Max    float64 // a second
}

// chartOf gives the points of a queue, or of all, over the last five minutes, as this process saw them, or
// over the last hour, of which the history tells more.
func (v *view) chartOf(queue, which string) chart {
	s := v.server.sampler
	span := 1
	if which == "5m" || which == "" && s.knownFor() < 10*time.Minute && v.Sample.known() < 5 {
		span = 0
	}
	c := chart{
		Points: s.seen(queue, span), Span: spans[span] * points, Which: []string{"5m", "1h"}[span], End: v.Now,
	}
	if span == 1 {
		v.Sample.recall(queue, c.Points)
	}
	for _, p := range c.Points {
		c.Max = max(c.Max, p.Done, p.Failed)
	}
	c.Max /= spans[span].Seconds()
	return c
}

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
func (s *sample) recall(queue string, seen []point) {
	if s.hour == nil {
		return
	}
	past := s.hour.All
	if queue != "" {
		past = s.hour.Queues[queue]
	}
	for i := range min(len(past), len(seen)) {
		// Both end with the minute that goes on.
		p, at := past[len(past)-1-i], len(seen)-1-i
		if p.Known {
			seen[at] = point{Done: float64(p.Done), Failed: float64(p.Failed), Seen: true, Gap: p.Gap}
		} else if s.hour.All[len(past)-1-i].Known { // the queue was idle
			seen[at] = point{Seen: true, Gap: s.hour.All[len(past)-1-i].Gap}
		}
	}
}

// past draws the hour of a figure.
func (v *view) past(of func(ledger.Point) float64) template.HTML {
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
	return sparkline(values, 1)
}
