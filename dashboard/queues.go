package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// queuesData is what the list of queues shows.
type queuesData struct {
	Queues []*queueNow
	Filter string
	Sort   string
	Page   pager
}

// pager leads through a list that is longer than a page.
type pager struct {
	From, To, Of int
	Prev, Next   string // addresses, "" where there is none
}

// pageSize is how many rows a list shows.
const pageSize = 50

func (s *server) queues(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title, v.Watch = "queues", "Queues", "Queues", "all.mark"
	query := r.URL.Query()
	d := queuesData{Filter: strings.TrimSpace(query.Get("name")), Sort: query.Get("sort")}
	queues := v.Sample.byNames()
	if d.Sort == "" {
		queues = troubleFirst(v.Sample)
	}
	if d.Filter != "" {
		queues = slices.DeleteFunc(queues, func(q *queueNow) bool {
			return !strings.Contains(strings.ToLower(q.Queue), strings.ToLower(d.Filter))
		})
	}
	if d.Sort != "" {
		by, err := sortBy(d.Sort)
		if err != nil {
			return err
		}
		slices.SortStableFunc(queues, by)
	}
	var err error
	d.Page, err = pageOf(v, query.Get("page"), len(queues), "/queues", "name", d.Filter, "sort", d.Sort)
	if err != nil {
		return err
	}
	d.Queues = queues[max(0, d.Page.From-1):d.Page.To]
	v.Command = queuesCommand(&d)
	v.Data = d
	return nil
}

// sortBy gives the order of queues by a column. Numbers come the largest first.
func sortBy(column string) (func(a, b *queueNow) int, error) {
	switch column {
	case "name":
		return func(a, b *queueNow) int { return cmp.Compare(a.Queue, b.Queue) }, nil
	case "done":
		return func(a, b *queueNow) int { return cmp.Compare(b.done, a.done) }, nil
	case "oldest":
		return func(a, b *queueNow) int { return cmp.Compare(b.Oldest, a.Oldest) }, nil
	}
	if state := storage.State(column); state.Valid() {
		return func(a, b *queueNow) int { return cmp.Compare(b.Size(state), a.Size(state)) }, nil
	}
	return nil, storage.Invalid("sort", column, "name, done, oldest or a state")
}

// queueData is what the page of a queue shows.
type queueData struct {
	*queueNow

	Now       *queueNow // the same, for the parts of pages that show a queue
	Chart     *chart
	Runners   []storage.RunnerInfo
	Schedules []scheduleNow
	Running   []runningTask
	Exists    bool
}

func (s *server) queue(r *http.Request, v *view) error {
	name := r.PathValue("queue")
	if err := storage.CheckName("queue name", name); err != nil {
		return err
	}
	q := v.Sample.byName[name]
	if q == nil {
		return &statusError{http.StatusNotFound, "There is no queue " + name + "."}
	}
	v.Page, v.Nav, v.Kind, v.Title, v.Watch = "queue", "Queues", "Queue", name, q.Key("mark")+" all.tick"
	v.Command = commandLine("midge", "queue", "show", name)
	d := queueData{queueNow: q, Now: q, Exists: true, Chart: v.chartOf(name, r.URL.Query().Get("span"))}
	for i := range v.Sample.runners {
		if slices.Contains(v.Sample.runners[i].Queues, name) {
			d.Runners = append(d.Runners, v.Sample.runners[i])
		}
	}
	for _, c := range v.Sample.schedules {
		if c.Queue == name {
			d.Schedules = append(d.Schedules, c)
		}
	}
	for _, t := range longest(v.Sample.runners, storage.MaxRunning) {
		if t.Ref.Queue == name && len(d.Running) < 10 {
			d.Running = append(d.Running, t)
		}
	}
	v.Data = d
	return nil
}
