package dashboard

import (
	"net/http"
	"strings"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// chosen is which tasks a list shows and an act concerns: what its address says.
type chosen struct {
	Queue, State, Filter string
}

// stateLive is the state of the list that shows all tasks which have not ended.
const stateLive = "live"

func chosenOf(r *http.Request) chosen {
	c := chosen{r.FormValue("queue"), r.FormValue("state"), strings.TrimSpace(r.FormValue("filter"))}
	if c.State == stateLive {
		c.State = ""
	}
	return c
}

// Text is the filter that chooses the same tasks without anything beside it.
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

// parse checks what was chosen, and gives its filter.
func (c chosen) parse() (filter.Filter, error) {
	if c.Queue != "" {
		if err := storage.CheckName("queue", c.Queue); err != nil {
			return filter.Filter{}, err
		}
	}
	if c.State != "" && !storage.State(c.State).Valid() {
		return filter.Filter{}, storage.Invalid("state", c.State, "live, or one of %v", storage.States())
	}
	return filter.Parse(c.Text())
}

// request asks for a page of what was chosen. Where no filter chooses among the tasks of a queue and a state,
// no more of them are read than the page shows.
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

// plain reports whether the storage counts what was chosen itself.
func (c chosen) plain() bool { return c.Filter == "" }

// size is how many tasks there are of what was chosen without its filter.
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

// tab is a state of the list.
type tab struct {
	stateLook

	URL     string
	Tasks   int64
	Key     string // of its cell
	Current bool
}

// tasksData is what a list of tasks shows.
type tasksData struct {
	chosen

	Tabs    []tab
	Rows    []taskRow
	Problem string // with the filter
	Syntax  string
	Of      string // how many there are
	Scanned string // how far a search is
	Read    int64  // tasks that it has read, of Total
	Total   int64
	First   string // address of the first page, "" there
	Next    string
	Widen   string
}

// taskRow is a task in a list.
type taskRow struct {
	storage.Task

	Look stateLook
	Note string // why it is where it is: the last error or the reason
	// Params are the begin of its parameters, where there is no note and the viewer may see them.
	Params string
	When   string
	At     string // the moment, whole
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
	after := r.FormValue("after")
	v.Command = listCommand(c, after)
	req := c.request(f, after)
	page, err := scan.Next(r.Context(), v.sampled(), req)
	if err != nil {
		return err
	}
	for _, t := range page.Tasks {
		d.Rows = append(d.Rows, v.row(t))
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

// tell says how many tasks there are, or how far a search for them is.
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

// mayFilter refuses a filter that would tell a viewer of payloads.
func (s *server) mayFilter(v *view, f filter.Filter) error {
	fields := f.Fields()
	if len(fields) > 0 && !v.May("payloads") {
		return &statusError{
			http.StatusForbidden, "Your role does not show parameters and headers, and so does not search them.",
		}
	}
	for _, field := range fields {
		if s.cfg.Redact.Hides(field...) {
			return &statusError{
				http.StatusForbidden, "The field " + strings.Join(field, ".") + " is hidden, and so cannot be searched.",
			}
		}
	}
	return nil
}

// tabs makes the tabs of the states.
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
	for _, l := range looks {
		add(l, string(l.State), key(string(l.State)))
	}
}

// listURL is the address of a list.
func (v *view) listURL(c chosen, after string) string {
	return v.URL("/tasks", "queue", c.Queue, "state", c.State, "filter", c.Filter, "after", after)
}

// row makes a row of a list.
func (v *view) row(t storage.Task) taskRow {
	row := taskRow{Task: t, Look: lookOf(t.State)}
	at := t.Created
	switch {
	case t.State == storage.Pending && t.Started:
		at, row.When = t.StartedAt(), "for "+format.Duration(v.Since(t.StartedAt()))
	case t.State == storage.Pending:
		row.When = "claimed ahead"
	case t.State == storage.Scheduled, t.State == storage.Retry:
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
	if row.Note == "" || t.State == storage.Scheduled {
		row.Note = t.Reason
	}
	if t.PassedOver == storage.PassedOverKind {
		row.Note = "no runner that looked knows its kind"
	}
	if row.Note == "" && v.May("payloads") {
		row.Params = v.server.shortly(t)
	}
	return row
}

// mostShort bounds the parameters of which a list shows the begin, in bytes, and mostShown that begin.
const mostShort, mostShown = 8 << 10, 160

// shortly gives the begin of a task's parameters, without what nobody may see; "" for long ones.
func (s *server) shortly(t storage.Task) string {
	if len(t.Payload) == 0 || len(t.Payload) > mostShort {
		return ""
	}
	text, err := s.readable(t, access.PartParams, t.Payload)
	if err != nil || string(text) == "{}" || string(text) == "null" {
		return ""
	}
	return storage.PrintableText(string(text), mostShown)
}
