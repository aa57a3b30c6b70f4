package dashboard

import (
	"net/http"
	"slices"
	"strings"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// chosen is the choice of tasks that a list shows, or that an action is on. It stands in the address of the
// page.
type chosen struct {
	Queue, State, Filter string
}

// stateLive is the state of the list that shows all tasks which have not ended.
const stateLive = "live"

func chosenOf(r *http.Request) chosen {
	c := chosen{r.FormValue("queue"), r.FormValue("state"), strings.TrimSpace(r.FormValue("filter"))}
	switch c.State {
	case stateLive:
		c.State = ""
	default:
		if state, ok := filter.ParseState(c.State); ok {
			c.State = string(state)
		}
	}
	return c
}

// Text returns a filter that chooses the same tasks by itself.
func (c chosen) Text() string {
	var words []string
	if c.Queue != "" {
		words = append(words, "queue:"+c.Queue)
	}
	if c.State != "" {
		words = append(words, "state:"+c.State)
	}
	if c.Filter != "" {
		words = append(words, c.Filter)
	}
	return strings.Join(words, " ")
}

// parse checks the choice, and returns it as a filter.
func (c chosen) parse() (filter.Filter, error) {
	if c.Queue != "" {
		if err := storage.CheckName("queue", c.Queue); err != nil {
			return filter.Filter{}, err
		}
	}
	if c.State != "" && !storage.State(c.State).Valid() {
		return filter.Filter{}, storage.Invalid("state", c.State, "live, or one of %v", filter.StateWords())
	}
	f, err := filter.Parse(c.Text())
	if err == nil && f.NamesHidden() {
		err = errHidden
	}
	return f, err
}

// errHidden is the answer to requests for midge's own queues. Their records repeat what people searched for
// and did, so that only the pages of the audit and of the history show them, to those who may see it.
var errHidden = &statusError{http.StatusNotFound, "The dashboard does not show the queues of midge itself."}

// request returns the request for a page of the chosen tasks. Without a filter it asks by queue and state, so
// that no more tasks are read than the page shows.
func (c chosen) request(f filter.Filter, after string) scan.Request {
	req := scan.Request{Filter: f, Limit: pageSize, Cursor: after, Newest: true}
	if !c.plain() {
		return req
	}
	req.Filter = filter.Filter{}
	if c.Queue != "" {
		req.Queues = []string{c.Queue}
	}
	if c.State != "" {
		req.States = []storage.State{storage.State(c.State)}
	}
	return req
}

// plain reports whether there is no filter, so that the storage counts the chosen tasks itself.
func (c chosen) plain() bool { return c.Filter == "" }

// size returns the number of tasks that are chosen by the queue and the state, without the filter.
func (c chosen) size(s *sampler.Sample) (n int64) {
	for i := range s.Queues {
		q := &s.Queues[i]
		switch {
		case c.Queue != "" && c.Queue != q.Queue:
		case c.State == "":
			n += q.Live()
		default:
			n += q.Size(storage.State(c.State))
		}
	}
	return n
}

// tab is a link to the list of the tasks in one state.
type tab struct {
	stateLook

	URL     string
	Tasks   int64
	Key     string // the key of its cell
	Current bool
}

// Exactly writes Tasks in full.
func (t tab) Exactly() string { return exactly(t.State, t.Tasks) }

// tasksData is the data of a list of tasks.
type tasksData struct {
	chosen

	Tabs    []tab
	Rows    []taskRow
	Verbs   []listVerb // the actions on selected tasks
	Problem string     // what is wrong with the filter
	Syntax  string
	Of      string // how many tasks there are
	Scanned string // the progress of a search
	Read    int64  // tasks that the search has read, of Total
	Total   int64
	First   string // the address of the first page, "" on that page
	Next    string
	Widen   string
}

// listVerb is an action on selected tasks of a list.
type listVerb struct {
	Do, Text, Key string
	Needs         access.Verb // the permission that it needs
	Off           string      // why it is not possible on the tasks of this list, "" if it may be
}

// verbs returns the actions on tasks, of which those are off that no task of a filter permits.
func verbs(f filter.Filter) []listVerb {
	states := f.States()
	if len(states) == 0 {
		states = storage.StatesWhere(storage.State.Live)
	}
	verbs := []listVerb{{Do: "requeue", Key: "r"}, {Do: "cancel", Key: "c"}, {Do: "delete"}}
	for i := range verbs {
		l := &verbs[i]
		a := actions[l.Do]
		able := (&bulk.Action{Verb: a.bulk}).States()
		if !slices.ContainsFunc(states, func(s storage.State) bool { return slices.Contains(able, s) }) {
			l.Off = "not possible in this state"
		}
		l.Text, l.Needs = a.title, a.verb
	}
	return verbs
}

// taskRow is a task in a list.
type taskRow struct {
	storage.Task

	Look stateLook
	Note string // the last error, or the reason for its state
	// Params is the beginning of its parameters, if there is no note and the viewer may see them.
	Params string
	When   string
	At     string // the exact moment
}

func (s *server) tasks(r *http.Request, v *view) error {
	v.Page, v.Nav, v.Title = "tasks", "Tasks", "Tasks"
	c := chosenOf(r)
	d := tasksData{chosen: c, Syntax: filter.Syntax}
	v.Data = &d
	v.Watch = "all.mark"
	if c.Queue != "" {
		v.Kind, v.Watch = "Queue "+c.Queue, v.watchQueue(c.Queue)
	}
	d.tabs(v)
	f, err := c.parse()
	if err != nil {
		if d.Problem = err.Error(); c.Filter == "" {
			return err
		}
		return nil
	}
	if err := s.mayFilter(v, f); err != nil {
		return err
	}
	d.Verbs = verbs(f)
	after := r.FormValue("after")
	v.Command = v.listCommand(c, after)
	req := c.request(f, after)
	page, err := scan.Next(r.Context(), v.sampled(), req)
	if err != nil {
		return err
	}
	for _, t := range page.Tasks {
		d.Rows = append(d.Rows, v.row(t))
	}
	if r.FormValue("only") != "" && len(page.Tasks) == 1 && page.Done() {
		return redirectError(v.TaskURL(page.Tasks[0].Ref))
	}
	if after != "" {
		d.First = v.listURL(c, "")
	}
	if page.Cursor != "" {
		d.Next = v.listURL(c, page.Cursor)
	}
	if d.tell(v, &page); len(d.Rows) > 1 && req.Order() != "" {
		d.Of += ", " + req.Order()
	}
	return nil
}

// tell sets the texts about how many tasks there are, or how far the search for them has come.
func (d *tasksData) tell(v *view, page *scan.Page) {
	if d.plain() {
		shown := int64(len(d.Rows))
		d.Of = "showing " + format.Exact(shown) + " of " + format.Exact(max(d.size(v.Sample), shown))
		return
	}
	d.Read, d.Total = page.Searched, page.Total
	d.Scanned = "searched " + format.Exact(page.Searched) + " of " + format.Exact(page.Total)
	d.Of = format.Exact(page.Matched) + " found so far"
	if page.Done() {
		d.Of = "showing " + format.Exact(int64(len(d.Rows))) + " of " + format.Exact(page.Matched)
	}
	if d.State == "" && len(d.Rows) == 0 {
		d.Widen = v.listURL(chosen{Queue: d.Queue, Filter: "state:all " + d.Filter}, "")
	}
}

// mayFilter refuses a filter on payloads or fields that are hidden from the viewer, which its matches would
// reveal.
func (s *server) mayFilter(v *view, f filter.Filter) error {
	fields := f.Fields()
	if len(fields) > 0 && !v.May("payloads") {
		return &statusError{
			http.StatusForbidden, "Your role does not permit you to see parameters and headers, or to filter by them.",
		}
	}
	for _, field := range fields {
		if s.cfg.Redact.Hides(field...) {
			return &statusError{
				http.StatusForbidden, "The field " + strings.Join(field, ".") + " is hidden, so no filter may use it.",
			}
		}
	}
	return nil
}

// tabs makes the tabs of all states.
func (d *tasksData) tabs(v *view) {
	add := func(l stateLook, state, key string) {
		c := d.chosen
		c.State = state
		d.Tabs = append(d.Tabs, tab{
			stateLook: l, URL: v.listURL(c, ""), Tasks: chosen{Queue: d.Queue, State: state}.size(v.Sample),
			Current: d.State == state, Key: key,
		})
	}
	key := func(name string) string {
		if d.Queue != "" {
			return queueKey(d.Queue, name)
		}
		return "all." + name
	}
	add(stateLook{Word: stateLive}, "", key("live"))
	for _, l := range looksOf(storage.TaskStates()) {
		add(l, string(l.State), key(string(l.State)))
	}
}

// listURL returns the address of a list.
func (v *view) listURL(c chosen, after string) string {
	return v.URL("/tasks", "queue", c.Queue, "state", c.State, "filter", c.Filter, "after", after)
}

// row returns the row of a task in a list.
func (v *view) row(t storage.Task) taskRow {
	row := taskRow{Task: t, Look: lookOfTask(&t)}
	at := t.Created
	switch {
	case t.State == storage.Pending && t.Started:
		at, row.When = t.StartedAt(), "for "+format.Duration(v.Since(t.StartedAt()))
	case t.State == storage.Pending:
		at, row.When = t.Claimed, "for "+format.Duration(v.Since(t.Claimed))
	case t.State.Live() && t.State.Timed() && !payload.Records(t):
		at, row.When = t.Due, format.Away(t.Due, v.Now)
	case t.State.Ended():
		at, row.When = t.Ended, format.Away(t.Ended, v.Now)
	case t.State == storage.Cursors && t.Cursor != nil:
		at, row.When = t.Cursor.Next, format.Away(t.Cursor.Next, v.Now)
	default:
		row.When = "for " + format.Duration(v.Since(t.Created))
	}
	row.At = format.Whole(at)
	if v.May("read") {
		row.Note = format.FirstLine(t.LastError())
	}
	if row.Note == "" || t.State == storage.Scheduled || payload.Records(t) {
		row.Note = payload.Reason(t)
	}
	if t.PassedOver == storage.PassedOverKind {
		row.Note = "no runner that saw the task handles its kind"
	}
	if row.Note == "" && v.May("payloads") {
		row.Params = v.server.shortly(t)
	}
	return row
}

// mostShort limits the payloads whose beginning a list shows, and mostShown that beginning, both in bytes.
const mostShort, mostShown = 8 << 10, 160

// shortly returns the beginning of a task's parameters, without hidden fields. It returns "" for long or
// empty parameters.
func (s *server) shortly(t storage.Task) string {
	if len(t.Payload) == 0 || len(t.Payload) > mostShort {
		return ""
	}
	text, err := s.readable(payload.Params(t))
	if err != nil || string(text) == "{}" || string(text) == "null" {
		return ""
	}
	return storage.PrintableText(string(text), mostShown)
}
