package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// causeData is what the page of a cause shows: all that died of it.
type causeData struct {
	Group  *deadGroup // nil where nothing is dead of it
	Known  bool       // all dead are counted, so that the first of them is known
	Rows   []taskRow
	Newest storage.Task
	Whole  string // the newest error, whole
	Stack  string
	List   string // address of the list of all of them
}

// CauseURL is the page of a cause. The tasks that died of none have no page: it is their list.
func (v *view) CauseURL(id string) string {
	if id == "" {
		return v.URL("/tasks", "state", "dead")
	}
	return v.URL("/dead", "cause", id)
}

// cause shows what died of a cause.
func (s *server) cause(r *http.Request, v *view, id string) error {
	if _, err := strconv.ParseUint(id, 36, 64); err != nil {
		return storage.Invalid("cause", id, "the id of a cause, as the list of the dead has it")
	}
	c := chosen{State: string(storage.Dead), Filter: "cause:" + id}
	f, err := filter.Parse(c.Text())
	if err != nil {
		return err
	}
	v.Page, v.Nav, v.Watch = "cause", "Dead", "all.dead"
	v.Kind, v.Title = "Cause of death", "Nothing is dead of this cause"
	v.Command = listCommand(c, "")
	d := &causeData{List: v.listURL(c, "")}
	v.Data = d
	if v.Sample.dead != nil {
		at := slices.IndexFunc(v.Sample.dead.Groups, func(g *deadGroup) bool { return g.ID == id })
		if at >= 0 {
			d.Group, d.Known = v.Sample.dead.Groups[at], v.Sample.dead.Whole
			v.Title = d.Group.Error
		}
	}
	req := scan.Request{Filter: f, Limit: pageSize, Newest: true}
	if d.Group != nil { // which has all that are counted so far
		req.Queues = d.Group.Queues
	}
	tasks, err := d.search(r.Context(), v.sampled(), req)
	if err != nil {
		return err
	}
	if d.Group == nil && len(tasks) > 0 { // the count of the dead has not come to them yet
		d.Group = groupOf(tasks)
		v.Title = d.Group.Error
	}
	for _, t := range tasks {
		d.Rows = append(d.Rows, v.row(t))
		if t.Ended.After(d.Newest.Ended) {
			d.Newest = t
		}
	}
	if v.May("read") && len(d.Rows) > 0 {
		// Lists have no stacks. A task that is gone since takes no page from anybody.
		if t, err := s.store.Task(r.Context(), d.Newest.Ref); err == nil {
			d.Newest = t
		}
		d.Whole, d.Stack = cmp.Or(d.Newest.LastError(), d.Newest.Reason), d.Newest.Stack
	}
	return nil
}

// groupOf groups tasks of one cause.
func groupOf(tasks []storage.Task) *deadGroup {
	count := deadCount{queues: make(map[string]*queueCauses)}
	for _, t := range tasks {
		q := count.queues[t.Queue]
		if q == nil {
			q = &queueCauses{queue: t.Queue, groups: make(map[string]*deadGroup)}
			count.queues[t.Queue] = q
		}
		q.add(t)
	}
	return count.groups().Groups[0]
}

// causeFor is for how long a page goes on to look for tasks that were counted.
const causeFor = time.Second

// search finds a page of the tasks. One step of a scan may end before the first of them, where many others
// died later or the machine is busy; it goes on while fewer are found than were counted.
func (d *causeData) search(ctx context.Context, store scan.Source, req scan.Request) ([]storage.Task, error) {
	var tasks []storage.Task
	wanted := 0
	if d.Group != nil {
		wanted = int(min(pageSize, d.Group.Tasks))
	}
	for end := time.Now().Add(causeFor); ; {
		req.Limit = pageSize - len(tasks)
		page, err := scan.Next(ctx, store, req)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, page.Tasks...)
		if page.Done() || len(tasks) >= wanted || time.Now().After(end) {
			return tasks, nil
		}
		req.Cursor = page.Cursor
	}
}

// KindURL is the list of the tasks of a kind that died of a cause.
func (v *view) KindURL(g *deadGroup, kind string) string {
	return v.URL("/tasks", "state", string(storage.Dead), "filter", g.Filter+" kind:"+kind)
}

// shownKinds is how many kinds of a cause a list names.
const shownKinds = 3

// ShownKinds are the most frequent kinds.
func (g *deadGroup) ShownKinds() []storage.KindSize { return g.Kinds[:min(shownKinds, len(g.Kinds))] }

// MoreKinds is how many others there are.
func (g *deadGroup) MoreKinds() int { return len(g.Kinds) - len(g.ShownKinds()) }

// QueueURL is the list of the tasks of a queue that died of the cause.
func (d *causeData) QueueURL(v *view, queue string) string {
	return v.URL("/tasks", "state", string(storage.Dead), "queue", queue, "filter", d.Group.Filter)
}
