package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// Config configures a Model.
type Config struct {
	// Session is the session on the storage.
	Session *storage.Session
	// Reader reads the storage, and Bounds decide which findings it has.
	Reader *survey.Reader
	Bounds survey.Bounds
	// Audit records the actions of the user. Its Warn is not called: the screen shows the warnings.
	Audit audit.Writer
	// Target is the name of the storage, which stands above each screen.
	Target string
	// Every is the interval between two reads of the storage; default a second.
	Every time.Duration
	// Page returns the page about a task, its verdict included, and the version of the task that it shows.
	Page func(ctx context.Context, ref storage.Ref) (text string, version int64, err error)
	// Printer formats times and colours.
	Printer show.Printer
}

// screen is one of the screens of a Model.
type screen int

const (
	queuesScreen screen = iota
	tasksScreen
	taskScreen
)

// question asks the user to confirm an action.
type question struct {
	text string
	do   tea.Cmd
}

// Model is the state of the screen. It implements [tea.Model].
type Model struct {
	cfg           Config
	ctx           context.Context //nolint:containedctx // a model has no calls of its caller's to take one from
	width, height int
	screen        screen

	at       time.Time        // time of the last survey
	reading  bool             // the next survey is under way
	all      []queue          // of the last survey, by name
	queues   []queue          // the queues of all that the search chooses, in the order of sort
	search   string           // a part of the names of the queues
	sort     string           // the head of the column by which the queues are sorted
	total    survey.Queue     // sums over all queues
	findings []survey.Finding // what needs attention, the worst first
	away     string           // why the storage does not answer, "" if it does
	chosen   string           // name of the queue under the cursor, which stays on it when the rows move

	state  storage.State
	page   scan.Page
	task   int // index of the task under the cursor
	filter string
	loaded bool
	broken string // why there is no list, "" if there is one

	shown  storage.Task // the task of the page about a task: its ref, and its version on that page
	lines  []string     // of the page about a task
	scroll int

	help     bool // the keys are explained
	typing   bool // the user types a filter or a search
	typed    string
	question *question
	message  string
}

// New makes a model. ctx bounds every call to the storage.
func New(ctx context.Context, cfg Config) *Model {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	return &Model{cfg: cfg, ctx: ctx, width: 80, height: 24, state: storage.Waiting, sort: byName}
}

// The messages of a Model: the answers of the storage, and turn, at which the model reads the storage
// again.
type (
	sampled struct {
		survey *survey.Survey
		err    error
	}
	listed struct {
		queue  string
		state  storage.State
		filter string
		page   scan.Page
		err    error
	}
	paged struct {
		shown storage.Task
		text  string
		err   error
	}
	looked struct {
		req  bulk.Request
		word string // the word for the state of the tasks, such as "dead"
		look bulk.Preview
		err  error
	}
	changed struct {
		text string
		err  error
	}
	turn struct{}
)

// Init reads the storage for the first time and starts the turns.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.sample(), m.next()) }

// next schedules the next turn.
func (m *Model) next() tea.Cmd {
	return tea.Tick(m.cfg.Every, func(time.Time) tea.Msg { return turn{} })
}

// sample reads the storage, unless a reading is under way.
func (m *Model) sample() tea.Cmd {
	if m.reading {
		return nil
	}
	m.reading = true
	return func() tea.Msg {
		s, err := read(m.ctx, m.cfg.Reader)
		return sampled{s, err}
	}
}

func (m *Model) list() tea.Cmd {
	queue, state, text := m.chosen, m.state, m.filter
	return func() tea.Msg {
		page, err := tasks(m.ctx, m.cfg.Session, queue, state, text)
		return listed{queue, state, text, page, err}
	}
}

func (m *Model) look() tea.Cmd {
	shown := m.shown
	return func() tea.Msg {
		ctx, stop := context.WithTimeout(m.ctx, callTime)
		defer stop()
		text, version, err := m.cfg.Page(ctx, shown.Ref)
		shown.Version = version
		return paged{shown, text, err}
	}
}

// refresh reads what the current screen shows.
func (m *Model) refresh() tea.Cmd {
	switch m.screen {
	case tasksScreen:
		return tea.Batch(m.sample(), m.list())
	case taskScreen:
		return tea.Batch(m.sample(), m.look())
	case queuesScreen:
	}
	return m.sample()
}

// Update handles a message: a key, an answer of the storage, or a turn.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(20, msg.Width), max(6, msg.Height)
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.typing {
			m.typed += strings.TrimSpace(msg.Content)
		}
	case turn:
		return m, tea.Batch(m.refresh(), m.next())
	case sampled:
		m.sampled(msg)
	case listed:
		m.listed(msg)
	case paged:
		m.paged(msg)
	case looked:
		m.looked(msg)
	case changed:
		if m.message = msg.text; msg.err != nil {
			m.message = msg.err.Error()
		}
		return m, m.refresh()
	}
	return m, nil
}

func (m *Model) sampled(msg sampled) {
	if m.reading = false; msg.err != nil {
		m.away = msg.err.Error()
		return
	}
	now := msg.survey
	m.away, m.at = "", now.At.Add(now.Skew)
	m.cfg.Printer.Now = m.at
	m.findings, _ = now.Findings(m.cfg.Bounds, survey.Words{Number: show.Number, Span: show.Span})
	survey.ProblemsFirst(m.findings)
	m.all = merge(m.all, now, m.findings)
	m.arrange()
	m.total = survey.Queue{Runners: len(now.Runners)}
	t := &m.total
	for i := range now.Queues {
		q := &now.Queues[i]
		t.Add(&q.Stats)
		t.In, t.Done, t.Failed = t.In+max(q.In, 0), t.Done+max(q.Done, 0), t.Failed+max(q.Failed, 0)
	}
}

// byName sorts the queues by their names.
const byName = "QUEUE"

// arrange chooses and sorts the queues that the list shows, and keeps the cursor on one of them.
func (m *Model) arrange() {
	m.queues = slices.DeleteFunc(slices.Clone(m.all), func(q queue) bool {
		return !strings.Contains(strings.ToLower(q.Queue), strings.ToLower(m.search))
	})
	at := slices.IndexFunc(queueColumns, func(c queueColumn) bool { return c.head == m.sort })
	if at >= 0 {
		by := queueColumns[at].by
		slices.SortStableFunc(m.queues, func(a, b queue) int { return cmp.Compare(by(&b), by(&a)) })
	}
	if m.at0() < 0 && len(m.queues) > 0 && m.screen == queuesScreen {
		m.chosen = m.queues[0].Queue
	}
}

// sortNext sorts the queues by the next column that the terminal shows.
func (m *Model) sortNext() {
	heads := []string{byName}
	columns, _ := m.columns()
	for _, c := range columns {
		if c.by != nil {
			heads = append(heads, c.head)
		}
	}
	m.sort = heads[(slices.Index(heads, m.sort)+1)%len(heads)]
	m.arrange()
}

// at0 returns the index of the queue under the cursor, -1 if the queue is gone.
func (m *Model) at0() int {
	return slices.IndexFunc(m.queues, func(q queue) bool { return q.Queue == m.chosen })
}

func (m *Model) listed(msg listed) {
	if msg.queue != m.chosen || msg.state != m.state || msg.filter != m.filter {
		return // the answer is for a list that is no longer shown
	}
	m.loaded, m.broken = true, ""
	if msg.err != nil {
		m.page, m.broken = scan.Page{}, msg.err.Error() // leave no stale task for a key to change
		return
	}
	m.page = msg.page
	m.task = max(0, min(m.task, len(m.page.Tasks)-1))
}

func (m *Model) paged(msg paged) {
	if msg.shown.Ref != m.shown.Ref {
		return
	}
	if msg.err != nil {
		m.lines = []string{show.Text(msg.err.Error())}
		return
	}
	m.shown = msg.shown
	m.lines = strings.Split(strings.TrimRight(msg.text, "\n"), "\n")
}

// Run shows the storage until the user quits or ctx ends.
func Run(ctx context.Context, cfg Config, options ...tea.ProgramOption) error {
	_, err := tea.NewProgram(New(ctx, cfg), append(options, tea.WithContext(ctx))...).Run()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the user ended it
	}
	return err
}
