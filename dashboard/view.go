package dashboard

import (
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/storage"
)

// view is what a template shows: the frame that all pages have, and the page's own Data.
type view struct {
	Page   string // the template
	Nav    string // the entry of the navigation that is marked
	Title  string
	Kind   string // above the title: of what it is
	Ref    string // of the task that the page is about, "" for none
	Data   any
	Now    time.Time // by the storage's clock
	Sample *sample
	User   access.User
	Theme  string
	// Command is the line of the command that tells the same.
	Command string
	// Watch are the keys of the live stream with which the page is to be read anew.
	Watch  string
	Notice *notice
	Bare   bool // without navigation

	server *server
}

// notice tells what an act did.
type notice struct {
	Text string
	Bad  bool
}

func (s *server) view(r *http.Request) *view {
	return &view{
		server: s, User: userOf(r.Context()), Theme: themeOf(r), Now: s.sampler.storageNow(),
	}
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
	return v.Sample.cell(name)
}

// stateLook is how a state looks: always glyph, word and colour.
type stateLook struct {
	State storage.State
	Glyph string
	Word  string
}

// looks are those of all states that tasks have, in the order of a task's life.
var looks = []stateLook{
	{storage.Waiting, "○", "waiting"},
	{storage.Pending, "▶", "pending"},
	{storage.Scheduled, "◷", "scheduled"},
	{storage.Retry, "↻", "retry"},
	{storage.Completed, "✓", "completed"},
	{storage.Cancelled, "–", "cancelled"},
	{storage.Dead, "✕", "dead"},
}

func lookOf(state storage.State) stateLook {
	for _, l := range looks {
		if l.State == state {
			return l
		}
	}
	return stateLook{State: state, Glyph: "·", Word: string(state)}
}

// svg marks what this package drew itself as markup. Nothing that came from elsewhere is in it but numbers.
func svg(text *strings.Builder) template.HTML {
	return template.HTML(text.String()) //nolint:gosec // numbers and names of classes alone
}

// hourOf is what a queue did in the last hour.
type hourOf struct {
	Attempts, Failed int64
	Spark            template.HTML // what was done, with its maximum
}

// Hour tells of the last hour of a queue.
func (v *view) Hour(queue string) hourOf {
	c := v.chartOf(queue, "1h")
	done, failed := c.sums()
	return hourOf{
		Attempts: int64(done + failed), Failed: int64(failed),
		Spark: c.spark(func(p point) float64 { return p.Done / c.Step.Seconds() }, 1, format.Rate),
	}
}

// Share is the part of the attempts that failed.
func (h hourOf) Share() string {
	if h.Attempts == 0 {
		return format.Dash
	}
	return format.Percent(float64(h.Failed) / float64(h.Attempts))
}

// outlookText says when the backlog of a queue is gone.
type outlookText struct {
	Text, Exact string
	Gone        bool // the text is in how long, and no sentence of its own
	Bad         bool // the backlog does not shrink
}

// Outlook tells when the backlog of a queue is gone.
func (v *view) Outlook(q *queueNow) outlookText {
	switch o := v.Sample.outlook(q); {
	case q.Waiting == 0:
		return outlookText{Text: format.Dash}
	case !o.Known:
		return outlookText{Text: "…", Exact: "It is measured over the next seconds.", Gone: true}
	case o.Backlog == 0:
		return outlookText{Text: format.Dash, Exact: "What waits is of kinds that no runner knows.", Gone: true}
	case o.Gone > 0:
		exact := format.Duration(o.Gone) + ", as fast as it shrinks now"
		return outlookText{Text: format.Age(o.Gone), Exact: exact, Gone: true}
	case o.Growth > 0:
		return outlookText{Text: "grows", Exact: "by " + format.Rate(o.Growth), Bad: true}
	}
	return outlookText{Text: "stands" + format.NBSP + "still", Exact: "It does not shrink.", Bad: true}
}
