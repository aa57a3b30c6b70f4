package dashboard

import (
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"time"

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
	d.Chart = s.chartOf("", r.URL.Query().Get("span"))
	d.Figures = []figure{
		{Name: "Done", Cell: "done", Spark: d.Chart.spark(func(p point) float64 { return p.Done })},
		{
			Name: "Failed", Cell: "share", Note: "of attempts",
			Spark: d.Chart.spark(func(p point) float64 { return p.Failed }),
		},
		{Name: "Backlog", Cell: "backlog", Note: "tasks wait"},
		{Name: "Oldest", Cell: "oldest", Note: "has waited"},
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

// troubleFirst orders queues: what is in trouble first, then what has died, then what is busy.
func troubleFirst(s *sample) []*queueNow {
	queues := make([]*queueNow, len(s.queues))
	for i := range s.queues {
		queues[i] = &s.queues[i]
	}
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
			if !reserved(t.Ref.Queue) {
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

// chartOf gives the points of a queue, or of all, over the last five minutes or hour.
func (s *server) chartOf(queue, which string) chart {
	span := 1
	if which == "5m" {
		span = 0
	} else if which == "" && s.sampler.knownFor() < 10*time.Minute {
		span = 0
	}
	c := chart{
		Points: s.sampler.seen(queue, span), Span: spans[span] * points, Which: []string{"5m", "1h"}[span],
		End: s.sampler.storageNow(),
	}
	for _, p := range c.Points {
		c.Max = max(c.Max, p.Done, p.Failed)
	}
	c.Max /= spans[span].Seconds()
	return c
}
