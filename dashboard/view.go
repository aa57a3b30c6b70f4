package dashboard

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/storage"
)

// view is what a template shows: the frame that all pages have, and the page's own Data.
type view struct {
	Page   string // the template
	Nav    string // the entry of the navigation that is marked
	Title  string
	Kind   string // of what the page tells, above the title
	Ref    string // of the task that the page is about, "" for none
	Data   any
	Now    time.Time // by the storage's clock
	Sample *sampler.Sample
	User   access.User
	Theme  string
	// Command is the line of the command that tells the same.
	Command string
	// Watch are keys of the live stream: the page is read anew when one of them changes.
	Watch  string
	Notice *notice
	Bare   bool // without navigation

	server *server
}

// view makes the view of a request, without a sample.
func (s *server) view(r *http.Request) *view {
	return &view{
		server: s, User: userOf(r.Context()), Theme: themeOf(r), Now: s.sampler.StorageNow(),
	}
}

// sampled gives the storage behind the sample, for a page that reads further tasks, and has read some.
func (v *view) sampled(tasks ...storage.Task) *sampler.Cached {
	return v.Sample.Cached(v.server.store, v.Now, tasks...)
}

// URL makes an address of the dashboard from a path and pairs of parameters; empty ones are left out.
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

// QueueURL is the page of a queue.
func (v *view) QueueURL(queue string) string { return v.URL("/queues/" + url.PathEscape(queue)) }

// TaskURL is the stable page of a task.
func (v *view) TaskURL(ref storage.Ref) string {
	return v.URL("/r/" + url.PathEscape(ref.Queue) + "/" + url.PathEscape(ref.ID))
}

// Asset is the address of a file of the dashboard.
func (v *view) Asset(name string) string {
	return v.URL("/assets/" + v.server.pages.version + "/" + name)
}

// Base is where the dashboard is mounted.
func (v *view) Base() string { return v.server.cfg.Base }

// Installation is the name of the installation.
func (v *view) Installation() string { return v.server.cfg.Name }

// ReadOnly says that nobody may act.
func (v *view) ReadOnly() bool { return v.server.cfg.ReadOnly }

// May says whether the viewer may do what a verb names.
func (v *view) May(verb string) bool {
	does := access.Verb(verb)
	return v.User.May(does) && (!v.ReadOnly() || does == access.Read || does == access.Payloads)
}

// Login reports whether the dashboard has a login of its own.
func (v *view) Login() bool { return v.server.cfg.Users != nil && v.server.cfg.Who == nil }

// Since is how long ago a moment was.
func (v *view) Since(at time.Time) time.Duration { return max(0, v.Now.Sub(at)) }

// navEntry is an entry of the navigation.
type navEntry struct {
	Name, Path, Key string
	Cell            string // the cell beside it, "" for none
	Bad             bool   // what the cell counts is trouble
}

// Navigation gives the entries.
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

// Cell gives the text of a cell of the whole installation as it is now.
func (v *view) Cell(name string) string {
	if v.Sample == nil {
		return ""
	}
	return installationCell(v.Sample, name)
}

// stateLook is how a state looks: always glyph, word and colour.
type stateLook struct {
	State storage.State
	Glyph string
	Word  string
}

// looks are the looks of all states that tasks have, in the order of a task's life.
var looks = []stateLook{
	{storage.Waiting, "○", "waiting"},
	{storage.Pending, "▶", "pending"},
	{storage.Scheduled, "◷", "scheduled"},
	{storage.Retry, "↻", "retry"},
	{storage.Completed, "✓", "completed"},
	{storage.Cancelled, "–", "cancelled"},
	{storage.Dead, "✕", "dead"},
}

// lookOf gives the look of a state.
func lookOf(state storage.State) stateLook {
	for _, l := range looks {
		if l.State == state {
			return l
		}
	}
	return stateLook{State: state, Glyph: "·", Word: string(state)}
}

// notice tells what an act did.
type notice struct {
	Text string
	Bad  bool
}

// mostNotices is how many notices are kept.
const mostNotices = 256

// notices keeps what acts have told, for the page that follows each act.
type notices struct {
	mu    sync.Mutex
	order []string
	texts map[string]notice
}

// with keeps a notice and gives the address that shows it.
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

// of gives a notice by its id, nil where there is none.
func (s *notices) of(id string) *notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.texts[id]; ok {
		return &n
	}
	return nil
}

// pageSize is how many rows a list shows.
const pageSize = 50

// pager leads through a list that is longer than a page.
type pager struct {
	From, To, Of int
	Prev, Next   string // addresses, "" where there is none
}

// pageOf gives the page of a list of n rows. Its addresses keep the pairs of parameters.
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
