package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/live"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/contain"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// Config configures a dashboard. It requires Who, Users or Token. The zero values of all other fields work.
type Config struct {
	// Base is the path under which the handler is mounted, such as "/midge": it begins with a slash and does not
	// end with one. The empty Base is the root. The handler takes requests with and without Base, so that
	// http.StripPrefix and proxies may cut it off. A Base that begins like a path of the dashboard, such as
	// "/tasks", is refused.
	Base string
	// Name is shown beside the name of midge, to distinguish installations: "production". Default none.
	Name string
	// ReadOnly forbids every action, for every user.
	ReadOnly bool
	// Who returns the user of a request, according to the application's own login. If it returns false, or a
	// user whose role may not read, the request is refused with 403. It is called for each request, and once in
	// five seconds for the live stream of a page, which ends with the first refusal.
	Who func(*http.Request) (access.User, bool)
	// Users makes the dashboard show a login page of its own. It is used only if Who is nil. A logout stands in
	// the storage, so that it holds in all dashboards of the storage within five seconds, except if ReadOnly is
	// set.
	Users *access.Users
	// Token admits all who have it, as an admin named "local". It is used and required only if Who and Users
	// are nil. It is as for [access.OneUser]: the text that crypto/rand.Text returns, or a longer one. Print the
	// path Base + "/login?token=" + Token to the person who started the process. Processes with the same
	// Token share their sessions.
	Token string
	// TrustedProxies are the addresses of proxies in front of the dashboard, whose X-Forwarded-For names the
	// client. Failed logins count by the client's address. Default none: the client is the connection's peer.
	TrustedProxies []netip.Prefix
	// TrustedOrigins are further origins, such as "https://jobs.example.org", whose pages may send forms. The
	// origin of the dashboard itself is known by the host of each request. Name it here if a proxy in front
	// replaces that host. Default none.
	TrustedOrigins []string
	// Redact hides fields of payloads from all users. nil hides none.
	Redact *access.Redaction
	// TooOld is how long a task may wait before the overview reports it. Default five minutes.
	TooOld time.Duration
	// Accepted lists findings that the overview does not report, because somebody has accepted them, such as
	// "paused:reports": the names that midge doctor --accept takes. Default none.
	Accepted []string
	// Log receives faults that no viewer caused, such as panics and failures of the storage. nil means
	// slog.Default.
	Log *slog.Logger
}

func (c Config) check() error {
	if c.Base != "" {
		u, err := url.Parse(c.Base)
		if err != nil || u.Path != c.Base || c.Base[0] != '/' || strings.HasSuffix(c.Base, "/") {
			return storage.Invalid("Config.Base", c.Base, `"" or a path such as "/midge"`)
		}
	}
	if c.TooOld < 0 {
		return storage.Invalid("Config.TooOld", c.TooOld, "0 for five minutes, or a longer time than none")
	}
	for _, origin := range c.TrustedOrigins {
		if err := http.NewCrossOriginProtection().AddTrustedOrigin(origin); err != nil {
			return storage.Invalid("Config.TrustedOrigins", origin, `an origin such as "https://jobs.example.org"`)
		}
	}
	for _, name := range c.Accepted {
		if err := survey.CheckAccepted("Config.Accepted", name); err != nil {
			return err
		}
	}
	return nil
}

// server is the handler of one dashboard.
type server struct {
	cfg       Config
	byToken   bool          // the login takes Config.Token
	bounds    survey.Bounds // of the findings
	store     storage.Storage
	session   *storage.Session
	history   *ledger.Ledger
	sampler   *sampler.Sampler
	live      *live.Hub
	streams   streams
	audit     *ledger.Audit
	notices   notices
	day       day
	jobs      jobs
	forms     forms
	downloads downloads
	pages     pages
	rendered  rendered
	logouts   logouts
	mux       *http.ServeMux
	now       func() time.Time
}

// Dashboard is the http.Handler that serves the pages of a dashboard.
type Dashboard struct {
	http.Handler

	server *server
}

// Run writes the history until ctx ends. If no process calls it, the charts cover only the times in which
// there were viewers. When ctx ends, Run ends the live streams, for which a server that shuts down would
// wait. It stops the actions on many tasks that are in progress, and waits for them. A handler for which Run
// is not called serves all pages; its streams end with their requests, and its actions run to their end. A
// read-only dashboard writes no history.
func (d *Dashboard) Run(ctx context.Context) {
	s := d.server
	defer s.jobs.close()
	context.AfterFunc(ctx, s.live.Close)
	if s.cfg.ReadOnly {
		<-ctx.Done()
		return
	}
	var flushing sync.WaitGroup
	flushing.Go(func() { s.flush(ctx) }) // ends with ctx
	defer flushing.Wait()
	s.history.Run(ctx, func(err error) {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "midge: the history of the dashboard cannot be written",
			slog.Any("error", err))
	})
}

// Handler returns the dashboard of a storage. It fails with a *storage.InvalidError if store is nil, if cfg
// is out of range, or if it has none of Who, Users and Token. The handler does not read the storage while
// it has no viewer.
func Handler(store storage.Storage, cfg Config) (*Dashboard, error) {
	if store == nil {
		return nil, storage.Invalid("storage", "nil", "an opened storage")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	byToken := cfg.Who == nil && cfg.Users == nil
	if byToken {
		var err error
		if cfg.Users, err = access.OneUser(access.User{Name: "local", Role: access.Admin}, cfg.Token); err != nil {
			return nil, fmt.Errorf("dashboard.Config wants Who, Users or Token: %w", err)
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Log = slog.New(contain.Handler(cfg.Log.Handler()))
	parsed, err := parsePages()
	if err != nil {
		return nil, err
	}
	store = &recovering{Storage: store, log: cfg.Log, redact: cfg.Redact}
	history := ledger.New(store)
	s := &server{
		cfg: cfg, byToken: byToken,
		bounds: survey.Bounds{Oldest: cfg.TooOld, Dead: survey.AnyNumber, Accepted: cfg.Accepted},
		store:  store, session: storage.NewSession(store, 0), audit: ledger.NewAudit(store),
		history: history, sampler: sampler.New(store, history, time.Now), live: live.New(),
		pages: parsed, mux: http.NewServeMux(), now: time.Now,
	}
	s.logouts = logouts{session: s.session, log: cfg.Log, readOnly: cfg.ReadOnly}
	first := firstOf(cfg.Base)
	taken := func(pattern string) bool { return first != "" && firstOf(pattern) == first }
	if slices.ContainsFunc(s.routes(), taken) {
		return nil, storage.Invalid("Config.Base", cfg.Base, `a path that begins as no page does, such as "/midge"`)
	}
	return &Dashboard{s.guard(http.HandlerFunc(s.serve)), s}, nil
}

// serve cuts Base off the path of a request, and calls the handler of the page.
func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if path := s.path(r); path != r.URL.Path {
		r2, u := *r, *r.URL
		u.Path, u.RawPath = path, ""
		r2.URL = &u
		r = &r2
	}
	s.mux.ServeHTTP(w, r)
}

// path returns the path of a request without Base.
func (s *server) path(r *http.Request) string {
	rest, cut := strings.CutPrefix(r.URL.Path, s.cfg.Base)
	if !cut || rest != "" && rest[0] != '/' {
		return r.URL.Path
	}
	return "/" + strings.TrimPrefix(rest, "/")
}

// firstOf returns the first element of a path, or of the path of a pattern.
func firstOf(path string) string {
	_, path, _ = strings.Cut(path, "/")
	name, _, _ := strings.Cut(path, "/")
	return name
}

// routes registers the handlers of all paths, and returns their patterns.
func (s *server) routes() (patterns []string) {
	handle := func(pattern string, serve http.HandlerFunc) {
		patterns = append(patterns, pattern)
		s.mux.HandleFunc(pattern, serve)
	}
	page := func(pattern string, show filler) {
		handle("GET "+pattern, func(w http.ResponseWriter, r *http.Request) { s.show(w, r, show) })
	}
	// These pages show only the sample and the history, so that viewers can share one rendering.
	lookPage := func(pattern string, show filler) {
		handle("GET "+pattern, func(w http.ResponseWriter, r *http.Request) { s.showLook(w, r, show) })
	}
	lookPage("/{$}", s.overview)
	lookPage("/queues", s.queues)
	lookPage("/queues/{queue}", s.queue)
	page("/queues/{queue}/add", s.addForm)
	page("/tasks", s.tasks)
	page("/r/{queue}/{id}", s.task)
	page("/action", s.ask)
	page("/edit", s.editForm)
	page("/actions/{job}", s.job)
	handle("GET /dead", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cause") == "" {
			s.showLook(w, r, s.dead)
			return
		}
		s.show(w, r, s.dead)
	})
	lookPage("/metrics", s.metrics)
	page("/audit", s.audits)
	lookPage("/schedules", s.schedules)
	lookPage("/runners", s.runners)
	lookPage("/runners/{runner}", s.runner)
	page("/", func(*http.Request, *view) error { return errNoPage })
	handle("GET /r/{queue}/{id}/{part}", s.download)
	handle("GET /action/download", s.downloadTasks)
	handle("GET /search", s.search)
	handle("GET /suggest", s.suggest)
	handle("GET /events", s.events)
	handle("GET /assets/{version}/{name}", s.asset)
	if s.cfg.Who == nil {
		handle("GET /login", s.login)
		handle("POST /login", s.login)
		handle("POST /logout", s.logout)
	}
	handle("POST /action", lasting(s.does))
	handle("POST /edit", lasting(s.edit))
	handle("POST /queues/{queue}/add", lasting(s.add))
	handle("POST /actions/{job}/stop", s.halt)
	handle("POST /preferences", s.preferences)
	handle("/", func(w http.ResponseWriter, r *http.Request) {
		text := "This address does not accept the method " + r.Method + "."
		s.fail(w, r, &statusError{http.StatusMethodNotAllowed, text})
	})
	return patterns
}

// statusError is an error whose text is shown to the viewer, with an HTTP status.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

var errNoPage = &statusError{http.StatusNotFound, "Page not found."}

// notFound is the sentence about a task, a schedule or a queue that the storage does not have.
const notFound = "Task, schedule or queue not found. A task that has ended is kept for a limited time only."

// noQueue returns the answer to requests for a queue that does not exist.
func noQueue(name string) error {
	return &statusError{http.StatusNotFound, "Queue " + strconv.Quote(name) + " not found."}
}

// away is the sentence about an error of the storage itself. Such an error names addresses and users of
// servers, which no page shows. The log has it.
const away = "The storage does not answer. The log of the dashboard's process has the reason."

// status returns the HTTP status for an error, and the sentence about it that the viewer sees.
func status(err error) (int, string) {
	var known *statusError
	var invalid *storage.InvalidError
	var full *storage.NotEmptyError
	var panicked *panicError
	var damaged *payload.DamagedError
	switch {
	case errors.As(err, &panicked):
		return http.StatusInternalServerError, failed
	case errors.As(err, &full):
		return http.StatusConflict, full.Error() + "."
	case errors.As(err, &known):
		return known.status, known.text
	case errors.As(err, &invalid):
		return http.StatusBadRequest, invalid.Error()
	case errors.As(err, &damaged):
		return http.StatusUnprocessableEntity, "This value cannot be read: " + damaged.Error() + "."
	case errors.Is(err, storage.ErrNotFound):
		return http.StatusNotFound, notFound
	case errors.Is(err, storage.ErrFull):
		return http.StatusServiceUnavailable,
			"The storage is full and refuses this action. Delete tasks to make room."
	case errors.Is(err, storage.ErrDamaged):
		return http.StatusInternalServerError, "The record of this task in the storage is damaged: " + err.Error()
	case errors.Is(err, context.Canceled):
		return 499, "The browser ended the request before the answer was ready."
	}
	return http.StatusServiceUnavailable, away
}
