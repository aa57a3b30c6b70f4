package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// deadData is the data of the page of the dead tasks.
type deadData struct {
	Groups []causeView // by cause, the largest first
	Read   int64       // dead tasks that were counted by cause
	All    int64       // all dead tasks
	Whole  bool        // all dead tasks are counted, so the first death of each cause is known
	Page   pager
	Calm   string // the text if there are no causes
}

func (s *server) dead(r *http.Request, v *view) error {
	if cause := r.FormValue("cause"); cause != "" {
		return s.cause(r, v, cause)
	}
	v.Page, v.Nav, v.Title, v.Watch = "dead", "Dead", "Dead", "all.dead all.counted"
	v.Command = "midge task ls --by cause"
	d := deadData{All: v.Sample.Sum(func(q *survey.Queue) int64 { return q.Dead })}
	if v.Sample.Dead != nil {
		d.Read, d.Whole = v.Sample.Dead.Read, v.Sample.Dead.Whole
		groups := v.Sample.Dead.Groups
		var err error
		if d.Page, err = pageOf(v, r.URL.Query().Get("page"), len(groups), "/dead"); err != nil {
			return err
		}
		for _, g := range groups[max(0, d.Page.From-1):d.Page.To] {
			d.Groups = append(d.Groups, causeView{g})
		}
	}
	if len(d.Groups) == 0 {
		d.Calm = "The dead tasks are being counted by cause."
	}
	if d.All == 0 {
		d.Calm = s.unscathed(r.Context(), v.Now)
	}
	v.Data = d
	return nil
}

// unscathed returns for how long no task has died: since the last death, the last hour that is not known, or
// the beginning of the history. An hour that is averaged, or known in part, counts only if an earlier hour is
// known as a whole.
func (s *server) unscathed(ctx context.Context, now time.Time) string {
	const step = time.Hour
	end := now.Truncate(step).Add(step)
	past, err := s.sampler.Series(ctx, sampler.Range{
		End: end, Length: ledger.HoursKept, Step: step, Sums: true,
	})
	if err != nil || len(past.Damaged) > 0 { // the page does not need the history
		return "No task is dead."
	}
	since := now
	for i, p := range slices.Backward(past.All) {
		if p.Dead > 0 {
			since = p.At.Add(step)
			break
		}
		if !p.Known && i < len(past.All)-1 { // nothing is known yet of an hour that has just begun
			break
		}
		if p.Known && !p.Gap {
			since = p.At
		}
	}
	if now.Sub(since) < step {
		return "No task is dead."
	}
	return "Nothing has died for " + format.Age(now.Sub(since)) + "."
}

// causeView is a cause of death as pages show it.
type causeView struct {
	*survey.Cause
}

// Of names the most frequent kinds of the tasks, and counts the other kinds.
func (g causeView) Of() string { return g.Cause.Of(words) }

// AllDiscarded reports whether the job discarded all of the tasks, so that a requeue is not the first thing
// to do.
func (g causeView) AllDiscarded() bool { return g.Cause.Discarded == g.Tasks }

// Discarded returns a text about how many of the tasks their job discarded, with the remedy; "" for none.
func (g causeView) Discarded() string {
	const then = ". Fix the cause before you requeue them."
	switch n := g.Cause.Discarded; {
	case n == 0:
		return ""
	case g.AllDiscarded():
		return "The job discarded these tasks" + then
	default:
		return "The job discarded " + format.Number(n) + " of these tasks" + then
	}
}

// shownKinds is how many kinds of a cause a list names.
const shownKinds = 3

// ShownKinds returns the most frequent kinds of the tasks.
func (g causeView) ShownKinds() []storage.KindSize { return g.Kinds[:min(shownKinds, len(g.Kinds))] }

// MoreKinds returns how many further kinds there are.
func (g causeView) MoreKinds() int { return len(g.Kinds) - len(g.ShownKinds()) }

// CauseURL returns the address of the page of a cause. For tasks without a cause, it returns the address of
// the list of dead tasks.
func (v *view) CauseURL(id string) string {
	if id == "" {
		return v.URL("/tasks", "state", "dead")
	}
	return v.URL("/dead", "cause", id)
}

// KindURL returns the address of the list of the tasks of a kind that died of a cause.
func (v *view) KindURL(g causeView, kind string) string {
	return v.URL("/tasks", "state", string(storage.Dead), "filter", g.Filter+" kind:"+kind)
}

// causeData is the data of the page of a cause: the tasks that died of it.
type causeData struct {
	Group  *causeView // nil if no task is dead of the cause
	Known  bool       // all dead tasks are counted, so the first death of the cause is known
	Rows   []taskRow
	Newest storage.Task
	Whole  string // the whole text of the newest error
	Stack  string
	List   string // the address of the list of all tasks of the cause
}

// cause fills the page of a cause of death.
func (s *server) cause(r *http.Request, v *view, id string) error {
	if _, err := strconv.ParseUint(id, 36, 64); err != nil {
		return storage.Invalid("cause", id, "the id of a cause, as the page of the dead tasks shows it")
	}
	c := chosen{State: string(storage.Dead), Filter: "cause:" + id}
	f, err := filter.Parse(c.Text())
	if err != nil {
		return err
	}
	v.Page, v.Nav, v.Watch = "cause", "Dead", "all.dead"
	v.Kind, v.Title = "Cause of death", "No dead task has this cause"
	v.Command = v.listCommand(c, "")
	d := &causeData{List: v.listURL(c, "")}
	v.Data = d
	if v.Sample.Dead != nil {
		at := slices.IndexFunc(v.Sample.Dead.Groups, func(g *survey.Cause) bool { return g.ID == id })
		if at >= 0 {
			d.Group, d.Known = &causeView{v.Sample.Dead.Groups[at]}, v.Sample.Dead.Whole
			v.Title = d.Group.Title()
		}
	}
	req := scan.Request{Filter: f, Limit: pageSize, Newest: true}
	if d.Group != nil { // the group has the queues of all tasks that are counted so far
		req.Queues = d.Group.Queues
	}
	tasks, err := d.search(r.Context(), v.sampled(), req)
	if err != nil {
		return err
	}
	if d.Group == nil && len(tasks) > 0 { // these dead tasks are not counted yet
		d.Group = &causeView{survey.CauseOf(tasks)}
		v.Title = d.Group.Title()
	}
	for _, t := range tasks {
		d.Rows = append(d.Rows, v.row(t))
		if t.Ended.After(d.Newest.Ended) {
			d.Newest = t
		}
	}
	if v.May("read") && len(d.Rows) > 0 {
		// Lists of tasks have no stacks. If the task has gone since, the page shows no stack.
		if t, err := s.store.Task(r.Context(), d.Newest.Ref); err == nil {
			d.Newest = t
		}
		d.Whole, d.Stack = cmp.Or(d.Newest.LastError(), d.Newest.Reason), d.Newest.Stack
	}
	return nil
}

// causeFor limits how long a page searches for tasks that were counted.
const causeFor = time.Second

// search finds a page of the tasks. A step of a scan may end before it reaches the first of them, if many
// other tasks died later or the machine is busy. So search takes further steps while it has found fewer tasks
// than were counted.
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

// QueueURL returns the address of the list of the tasks of a queue that died of the cause.
func (d *causeData) QueueURL(v *view, queue string) string {
	return v.URL("/tasks", "state", string(storage.Dead), "queue", queue, "filter", d.Group.Filter)
}
