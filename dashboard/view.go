package dashboard

import (
	"cmp"
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/states"
	"github.com/midgehq/midge/storage"
)

// view is the data of a template. Its fields are for the frame, which all pages share. Data is for the page
// itself.
type view struct {
	Page   string // the name of the template
	Nav    string // the entry of the navigation to mark
	Title  string
	Kind   string // what the title names, such as "Runner"; above the title
	Ref    string // the task that the page shows, "" on other pages
	Data   any
	Now    time.Time // by the storage's clock, in the time zone of the page
	Sample *sampler.Sample
	User   access.User
	Theme  string
	// Command is the command line that prints the same data.
	Command string
	// Watch has keys of the live stream, separated by spaces. The page is fetched again when one of their cells
	// changes.
	Watch  string
	Notice *notice
	Bare   bool // without navigation
	Broken bool // the page stands for a page that may be there later, and is fetched again

	server *server
}

// view makes the view of a request, without a sample.
func (s *server) view(r *http.Request) *view {
	return &view{
		server: s, User: userOf(r.Context()), Theme: themeOf(r), Now: s.sampler.StorageNow().In(zoneOf(r)),
	}
}

// Zone returns the time zone in which the page shows moments: UTC or that of the viewer.
func (v *view) Zone() *time.Location { return v.Now.Location() }

// sampled returns the storage for a page that reads tasks itself. The sample answers for queues and runners.
// tasks are the tasks that the page has read already.
func (v *view) sampled(tasks ...storage.Task) *sampler.Cached {
	return v.Sample.Cached(v.server.store, v.Now, tasks...)
}

// URL returns an address of the dashboard, made of a path and pairs of a parameter's name and value. It
// leaves out empty parameters.
func (v *view) URL(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	at := v.server.cfg.Base + path
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	return at
}

// QueueURL returns the address of the page of a queue.
func (v *view) QueueURL(queue string) string { return v.URL("/queues/" + url.PathEscape(queue)) }

// TaskURL returns the permanent address of the page of a task.
func (v *view) TaskURL(ref storage.Ref) string {
	return v.URL("/r/" + url.PathEscape(ref.Queue) + "/" + url.PathEscape(ref.ID))
}

// Asset returns the address of a file of the dashboard.
func (v *view) Asset(name string) string {
	return v.URL("/assets/" + v.server.pages.version + "/" + name)
}

// Base returns the path under which the dashboard is mounted.
func (v *view) Base() string { return v.server.cfg.Base }

// Installation returns the name of the installation.
func (v *view) Installation() string { return v.server.cfg.Name }

// ReadOnly reports whether all actions are forbidden.
func (v *view) ReadOnly() bool { return v.server.cfg.ReadOnly }

// May reports whether the viewer may do the actions of a verb.
func (v *view) May(verb string) bool {
	does := access.Verb(verb)
	return v.User.May(does) && (!v.ReadOnly() || does == access.Read || does == access.Payloads)
}

// Login reports whether the dashboard has a login of its own.
func (v *view) Login() bool { return v.server.cfg.Who == nil }

// Since returns how long ago a moment was.
func (v *view) Since(at time.Time) time.Duration { return max(0, v.Now.Sub(at)) }

// navEntry is an entry of the navigation.
type navEntry struct {
	Name, Path, Key string
	Cell            string // the name of the cell beside it, "" for none
	Bad             bool   // the cell counts trouble
}

// Navigation returns the entries of the navigation.
func (v *view) Navigation() []navEntry {
	return []navEntry{
		{Name: "Overview", Path: "/", Key: "o"},
		{Name: "Queues", Path: "/queues", Key: "q", Cell: "queues"},
		{Name: "Tasks", Path: "/tasks", Key: "t", Cell: "live"},
		{Name: "Dead", Path: "/dead", Key: "d", Cell: "dead", Bad: true},
		{Name: "Schedules", Path: "/schedules", Key: "s", Cell: "schedules"},
		{Name: "Runners", Path: "/runners", Key: "r", Cell: "runners"},
		{Name: "Metrics", Path: "/metrics", Key: "m"},
		{Name: "Audit", Path: "/audit", Key: "a"},
	}
}

// Away reports whether the storage does not answer, so that the page shows an earlier state.
func (v *view) Away() bool { return v.Sample != nil && v.Sample.Err != nil }

// Cell returns the current text of a cell of the whole installation.
func (v *view) Cell(name string) string {
	if v.Sample == nil {
		return ""
	}
	return installationCell(v.Sample, name)
}

// stateLook is how pages show a state: always with a glyph, a word and a colour.
type stateLook struct {
	State storage.State
	Glyph string
	Word  string
}

// looksOf returns how pages show some states.
func looksOf(some []storage.State) []stateLook {
	looks := make([]stateLook, len(some))
	for i, state := range some {
		looks[i] = lookOf(state)
	}
	return looks
}

// lookOf returns how pages show a state.
func lookOf(state storage.State) stateLook {
	return stateLook{
		State: state, Glyph: cmp.Or(states.Named(string(state)).Glyph, noGlyph), Word: filter.StateWord(state),
	}
}

// noGlyph is the glyph of a moment or state that has none of its own.
const noGlyph = "·"

// lookOfTask returns how pages show the state of a task.
func lookOfTask(t *storage.Task) stateLook {
	l := lookOf(t.State)
	l.Word = filter.TaskWord(t)
	return l
}

// exactly writes how many tasks are in a state, and notes what the number includes.
func exactly(state storage.State, n int64) string {
	text := format.Exact(n)
	if state == storage.Pending {
		text += ", " + filter.RunningNote
	}
	return text
}

// notice shows the viewer the result of an action.
type notice struct {
	Text string
	Bad  bool
}

// mostNotices is how many notices are kept.
const mostNotices = 256

// notices keeps the results of actions, for the page that follows each action.
type notices struct {
	mu    sync.Mutex
	order []string
	texts map[string]notice
}

// with keeps a notice, and returns the address of the page with the notice.
func (s *notices) with(address string, n notice) string {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string]notice{}
	}
	s.texts[id] = n
	if s.order = append(s.order, id); len(s.order) > mostNotices {
		delete(s.texts, s.order[0])
		s.order = s.order[1:]
	}
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	q := u.Query()
	q.Set("said", id)
	u.RawQuery = q.Encode()
	return u.String()
}

// of returns a notice by its id, nil if there is none.
func (s *notices) of(id string) *notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.texts[id]; ok {
		return &n
	}
	return nil
}

// columnOrder is the order of a list by one of its columns. The heads of the columns have links that change
// it.
type columnOrder struct {
	By    string // a column, "" for the order that the list has by itself
	path  string
	pairs []string // other parameters of the address
}

// Of returns the address of the list in the order of a column.
func (o *columnOrder) Of(v *view, column string) string {
	return v.URL(o.path, append(slices.Clip(o.pairs), "sort", column)...)
}

// Sorted returns for a screen reader how a column orders the list, "" if the list has another order. Names
// and the next ticks begin with the lowest, and all else with the highest.
func (o *columnOrder) Sorted(column string) string {
	switch {
	case column != o.By:
		return ""
	case column == "name" || column == "queue" || column == "next":
		return "ascending"
	}
	return "descending"
}

// page returns a page of the list in its order, which has n rows.
func (o *columnOrder) page(v *view, number string, n int) (pager, error) {
	return pageOf(v, number, n, o.path, append(slices.Clip(o.pairs), "sort", o.By)...)
}

// sortColumn sorts a list by the column of its order. It fails with a *storage.InvalidError if the list has
// no such column.
func sortColumn[T any](list []T, o *columnOrder, columns map[string]func(a, b T) int) error {
	if o.By == "" {
		return nil
	}
	compare := columns[o.By]
	if compare == nil {
		return storage.Invalid("sort", o.By, "one of %v", slices.Sorted(maps.Keys(columns)))
	}
	slices.SortStableFunc(list, compare)
	return nil
}

// pageSize is how many rows a list shows.
const pageSize = 50

// pager is a page of a longer list: its rows From to To, counted from 1, of all rows.
type pager struct {
	From, To, Of int
	Prev, Next   string // the addresses of the pages beside it, "" for none
}

// pageOf returns a page of a list of n rows. The addresses in it keep the pairs of parameters. It fails with
// a *storage.InvalidError if number is not the number of a page.
func pageOf(v *view, number string, n int, path string, pairs ...string) (pager, error) {
	page := 1
	if number != "" {
		var err error
		if page, err = strconv.Atoi(number); err != nil || page < 1 || page > 1<<20 {
			return pager{}, storage.Invalid("page", number, "the number of a page, from 1")
		}
	}
	p := pager{From: min((page-1)*pageSize+1, n), To: min(page*pageSize, n), Of: n}
	if (page-1)*pageSize >= n && page > 1 {
		p.From, p.To = n+1, n
	}
	at := func(page int) string { return v.URL(path, append(pairs, "page", strconv.Itoa(page))...) }
	if page > 1 {
		p.Prev = at(page - 1)
	}
	if page*pageSize < n {
		p.Next = at(page + 1)
	}
	return p, nil
}
