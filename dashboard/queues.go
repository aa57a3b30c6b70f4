package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/dashboard/internal/chart"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// queuesData is the data of the list of queues.
type queuesData struct {
	Queues []queueView
	Filter string
	Order  *columnOrder
	Page   pager
}

func (s *server) queues(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "queues", "Queues", "Queues", "all.mark"
	query := r.URL.Query()
	d := queuesData{Filter: strings.TrimSpace(query.Get("name"))}
	d.Order = &columnOrder{By: query.Get("sort"), path: "/queues", pairs: []string{"name", d.Filter}}
	queues := queueViews(v.Sample)
	if d.Order.By == "" {
		queues = troubleFirst(v.Sample)
	}
	if d.Filter != "" {
		queues = slices.DeleteFunc(queues, func(q queueView) bool {
			return !strings.Contains(strings.ToLower(q.Queue), strings.ToLower(d.Filter))
		})
	}
	err := sortColumn(queues, d.Order, queueColumns())
	if err != nil {
		return err
	}
	if d.Page, err = d.Order.page(v, query.Get("page"), len(queues)); err != nil {
		return err
	}
	d.Queues = queues[max(0, d.Page.From-1):d.Page.To]
	v.Command = queuesCommand(&d)
	v.Data = &d
	return nil
}

// Orders returns the orders of the list. The empty order puts queues in trouble first.
func (*queuesData) Orders() []string {
	return slices.Concat([]string{"", "name"}, namesOf(filter.Outstanding()), []string{"done", "oldest"})
}

// sizeClass returns the class of the column of a state in the list of queues: the widths of a page that have
// the column, or the colour of its numbers.
func sizeClass(state storage.State) string {
	switch state {
	case storage.Waiting:
		return "n"
	case storage.Pending:
		return "n from-1280"
	case storage.Retry, storage.Dead:
		return "n " + string(state)
	default:
		return "n wide"
	}
}

// queueColumns returns the comparison of queues for the order by each column. Large numbers come first.
func queueColumns() map[string]func(a, b queueView) int {
	columns := map[string]func(a, b queueView) int{
		"name":   func(a, b queueView) int { return cmp.Compare(a.Queue, b.Queue) },
		"done":   func(a, b queueView) int { return cmp.Compare(b.Done, a.Done) },
		"oldest": func(a, b queueView) int { return cmp.Compare(b.Oldest, a.Oldest) },
	}
	for _, state := range storage.TaskStates() {
		columns[string(state)] = func(a, b queueView) int { return cmp.Compare(b.Size(state), a.Size(state)) }
	}
	return columns
}

// queueData is the data of the page of a queue.
type queueData struct {
	queueView

	Now       queueView // the same queue, for templates that show any queue
	Chart     *chart.Chart
	Runners   []storage.RunnerInfo
	Schedules []scheduleView
	Running   []runningTask

	Partitions partitionsData
}

func (s *server) queue(r *http.Request, v *view) error {
	name := r.PathValue("queue")
	if err := storage.CheckName("queue name", name); err != nil {
		return err
	}
	q := queueView{v.Sample.Queue(name)}
	if q.sampledQueue == nil {
		return noQueue(name)
	}
	v.Page, v.Nav, v.Kind, v.Title, v.Watch = "queue", "Queues", "Queue", name, v.watchQueue(name)+" all.tick"
	v.Command = commandLine("midge", "queue", "show", name)
	d := queueData{queueView: q, Now: q, Chart: v.chartOf(name, r.URL.Query().Get("span"))}
	for i := range v.Sample.Runners {
		if slices.Contains(v.Sample.Runners[i].Queues, name) {
			d.Runners = append(d.Runners, v.Sample.Runners[i])
		}
	}
	for _, c := range scheduleViews(v.Sample) {
		if c.Queue == name {
			d.Schedules = append(d.Schedules, c)
		}
	}
	d.Running = longest(v.Sample.Runners, name, 10)
	var err error
	d.Partitions, err = s.partitions(r, v, q)
	v.Data = &d
	return err
}

// queueView is a queue as pages show it.
type queueView struct {
	*sampledQueue
}

// sampledQueue is an alias, because an embedded field named Queue would hide the name of the queue.
type sampledQueue = survey.Queue

// queueViews returns the queues in the order of their names.
func queueViews(s *sampler.Sample) []queueView {
	queues := make([]queueView, len(s.Queues))
	for i := range s.Queues {
		queues[i] = queueView{&s.Queues[i]}
	}
	return queues
}

// Trouble returns the trouble of a queue in a word or two, "" for none.
func (q queueView) Trouble() string { return strings.ReplaceAll(q.sampledQueue.Trouble(), "-", " ") }

// Waited returns the text beside the age of the oldest task.
func (q queueView) Waited() string {
	switch {
	case q.Oldest > 0:
		return "wait of the oldest task"
	case q.Waiting > 0: // the age ignores tasks that runners have declined
		return "no runner handles the waiting tasks"
	}
	return "no task is waiting"
}

// troubleFirst orders queues as the overview orders needs: queues on which nobody works, queues with dead
// tasks, paused queues, queues in other trouble, and then busy queues.
func troubleFirst(s *sampler.Sample) []queueView {
	queues := queueViews(s)
	weight := func(q queueView) int {
		switch {
		case q.Idle():
			return 0
		case q.Dead > 0:
			return 1
		case q.Paused:
			return 2
		case q.Trouble() != "":
			return 3
		case q.Live() > 0 || q.Done > 0:
			return 4
		}
		return 5
	}
	slices.SortStableFunc(queues, func(a, b queueView) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(b.Dead, a.Dead))
	})
	return queues
}

// SizeOf is like Size, for the name of a state.
func (q queueView) SizeOf(state string) int64 { return q.Size(storage.State(state)) }

// Exactly writes Size for the name of a state in full.
func (q queueView) Exactly(state string) string {
	return exactly(storage.State(state), q.SizeOf(state))
}

// Rate returns how many tasks of the queue are completed in a second.
func (q queueView) Rate() float64 { return q.Done }

// segment is a part of a queue's bar.
type segment struct {
	stateLook

	Tasks    int64
	X, Width int
}

// barWidth is the width of a queue's bar, in the units of its viewBox.
const barWidth = 120

// Tasks returns how many tasks the queue's bar shows: those that have not ended, and the dead ones.
func (q queueView) Tasks() int64 { return q.Size(filter.Outstanding()...) }

// Bar returns the parts of the queue's bar, by state.
func (q queueView) Bar() []segment {
	var segments []segment
	for _, l := range looksOf(filter.Outstanding()) {
		if n := q.Size(l.State); n > 0 {
			segments = append(segments, segment{stateLook: l, Tasks: n})
		}
	}
	// Each segment is wide enough to be seen. The tasks share the rest of the width.
	const least = 5
	free := barWidth - least*len(segments)
	x := 0
	for i := range segments {
		w := least + int(float64(free)*float64(segments[i].Tasks)/float64(q.Tasks()))
		if i == len(segments)-1 {
			w = barWidth - x
		}
		segments[i].X, segments[i].Width = x, w
		if i < len(segments)-1 {
			segments[i].Width = max(1, w-1)
		}
		x += w
	}
	return segments
}

// outlookText is the text about when the backlog of a queue clears.
type outlookText struct {
	Text, Exact string
	Gone        bool // the text may follow the words "clears in", and is no sentence of its own
	Bad         bool // the backlog does not shrink, and its oldest task has waited for too long
}

// Outlook returns the text about when the backlog of a queue clears.
func (v *view) Outlook(q queueView) outlookText {
	old := v.server.bounds.TooOld(q.sampledQueue)
	switch o := v.Sample.Outlook(q.sampledQueue); {
	case q.Waiting == 0:
		return outlookText{Text: format.Dash}
	case o.Flows:
		exact := "No task has waited for 10" + format.NBSP + "seconds, so no time is estimated."
		return outlookText{Text: format.Dash, Exact: exact, Gone: true}
	case !o.Known:
		return outlookText{Text: "…", Exact: "The dashboard estimates the time within seconds.", Gone: true}
	case o.Backlog == 0:
		exact := "No live runner of the queue handles the waiting tasks."
		return outlookText{Text: format.Dash, Exact: exact, Gone: true}
	case o.Gone > 0:
		exact := format.Duration(o.Gone) + ", if the backlog continues to shrink at this rate"
		return outlookText{Text: format.Age(o.Gone), Exact: exact, Gone: true}
	case o.Growth > 0:
		return outlookText{Text: "grows", Exact: "The backlog grows by " + format.Rate(o.Growth) + ".", Bad: old}
	}
	return outlookText{Text: "not" + format.NBSP + "draining", Exact: "The backlog is not draining.", Bad: old}
}

// backlogGone returns a text about when the backlogs of all queues clear.
func backlogGone(s *sampler.Sample) string {
	var longest time.Duration
	var still *survey.Queue // the queue with the largest backlog that does not shrink
	known := true
	for i := range s.Queues {
		q := &s.Queues[i]
		o := s.Outlook(q)
		switch {
		case q.Waiting == 0 || o.Flows && !q.Paused:
		case q.Paused || o.Known && o.Gone < 0:
			if still == nil || q.Waiting > still.Waiting {
				still = q
			}
		case !o.Known:
			known = false
		default:
			longest = max(longest, o.Gone)
		}
	}
	switch {
	case still != nil && still.Paused:
		return "waiting; " + format.Middle(still.Queue) + " is paused"
	case still != nil:
		return "waiting; " + format.Middle(still.Queue) + " is not draining"
	case longest == 0 || !known:
		return "waiting"
	}
	return "waiting; clears in " + format.Duration(longest)
}
