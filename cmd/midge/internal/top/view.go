package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// head and foot are the numbers of lines above and below the rows of a screen.
const (
	head = 4
	foot = 2
)

// wide is the least width of a terminal, in characters, for the full list of tasks and the full help on
// keys.
const wide = 80

// rows returns the number of lines that a screen has for its rows.
func (m *Model) rows() int { return max(1, m.height-head-foot) }

// View draws the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.screenLines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "midge top"
	return v
}

// screenLines returns one line for each line of the terminal. No line is wider than the terminal.
func (m *Model) screenLines() []string {
	lines := m.top()
	if m.help {
		lines = append(lines, m.helpLines()...)
	} else {
		lines = append(lines, m.body()...)
	}
	for len(lines) < m.height-foot {
		lines = append(lines, "")
	}
	return append(lines[:m.height-foot], m.bottom()...)
}

// body returns the lines of the current screen.
func (m *Model) body() []string {
	switch m.screen {
	case queuesScreen:
		return m.queueLines()
	case tasksScreen:
		return m.taskLines()
	case taskScreen:
	}
	return m.pageLines()
}

// fit cuts a line to the width, and paints it.
func (m *Model) fit(text string, style show.Style) string {
	return m.cfg.Printer.Paint(show.Cut(text, m.width), style)
}

// top returns the lines above each screen: what needs attention, the storage, and the sums over all queues.
func (m *Model) top() []string {
	left, right := "midge top  on "+m.cfg.Target, m.at.UTC().Format("15:04:05Z")
	if m.at.IsZero() {
		right = "asking…"
	}
	space := max(2, m.width-utf8.RuneCountInString(left)-len(right))
	return []string{
		m.worst(), m.fit(left+strings.Repeat(" ", space)+right, show.Strong), m.totals(),
	}
}

// worst returns the line about the worst finding, or about the storage while it does not answer.
func (m *Model) worst() string {
	switch {
	case m.away != "":
		return m.fit("The storage does not answer; trying again: "+show.Text(m.away), show.Bad)
	case m.at.IsZero():
		return ""
	case len(m.findings) == 0:
		return m.fit("All clear.", show.Good)
	}
	text := show.Text(m.findings[0].Text)
	if more := len(m.findings) - 1; more > 0 {
		text = fmt.Sprintf("%s, and %d more: midge doctor", text, more)
	}
	return m.fit(text, styleOf(m.findings[0].Level))
}

// total is a part of the line of the sums.
type total struct {
	rank int // a narrow terminal leaves out the part of least rank first
	text string
}

// totals returns the line of the sums over all queues. They are faint while the storage does not answer.
func (m *Model) totals() string {
	t := &m.total
	parts := []total{
		{7, show.Number(t.Waiting) + " waiting"},
		{4, show.Number(t.Pending) + " " + filter.Running},
		{3, show.Number(t.Retry) + " retry"},
		{6, show.Number(t.Dead) + " dead"},
		{1, "in " + rate(t.In) + "/s"},
		{5, "done " + rate(t.Done) + "/s"},
		{2, "failed " + rate(t.Failed) + "/s"},
		{8, show.Count(int64(t.Runners), "runner")},
	}
	for {
		texts := make([]string, len(parts))
		for i, p := range parts {
			texts[i] = p.text
		}
		line := strings.Join(texts, "  ")
		if utf8.RuneCountInString(line) > m.width && len(parts) > 1 {
			least := slices.MinFunc(parts, func(a, b total) int { return cmp.Compare(a.rank, b.rank) })
			parts = slices.DeleteFunc(parts, func(p total) bool { return p.rank == least.rank })
			continue
		}
		if m.away != "" {
			return m.fit(line, show.Faint)
		}
		return m.fit(line, show.Plain)
	}
}

// styleOf returns the style of a finding, or of no finding.
func styleOf(level survey.Level) show.Style {
	switch level {
	case survey.Problem:
		return show.Bad
	case survey.Notice:
		return show.Warn
	}
	return show.Plain
}

// rate formats a number of tasks per second in at most five characters.
func rate(r float64) string {
	switch {
	case r < 0.05:
		return "0"
	case r < 100:
		return fmt.Sprintf("%.1f", r)
	case r < 10_000:
		return fmt.Sprintf("%.0f", r)
	}
	return fmt.Sprintf("%.0fk", r/1000)
}

// queueColumn is a column after the name of a queue.
type queueColumn struct {
	head  string
	width int
	rank  int // a narrow terminal leaves out the column of least rank first
	text  func(q *queue) string
	by    func(q *queue) float64 // sorts the rows, the largest first; nil if they are not sorted by this column
}

// leastName is the least width of the name of a queue, with the mark before it, and trendWidth is the width
// of a trend, both in characters.
const (
	leastName  = 14
	trendWidth = 8
)

var queueColumns = []queueColumn{
	{
		"WAITING", 8, 8, func(q *queue) string { return short(q.Waiting) },
		func(q *queue) float64 { return float64(q.Waiting) },
	},
	{
		"RUNNING", 8, 3, func(q *queue) string { return short(q.Pending) },
		func(q *queue) float64 { return float64(q.Pending) },
	},
	{
		"DEAD", 6, 7, func(q *queue) string { return short(q.Dead) },
		func(q *queue) float64 { return float64(q.Dead) },
	},
	{"OLDEST", 7, 5, oldest, func(q *queue) float64 { return q.Oldest.Seconds() }},
	{"IN/S", 5, 2, func(q *queue) string { return rate(q.In) }, func(q *queue) float64 { return q.In }},
	{"DONE/S", 7, 4, func(q *queue) string { return rate(q.Done) }, func(q *queue) float64 { return q.Done }},
	{"CLEARS IN", 9, 6, clearsIn, nil},
	{"DONE", -trendWidth, 1, func(q *queue) string { return sparkline(q.trend, trendWidth) }, nil},
}

// columns returns the columns that fit the terminal, and the width that is left for the names.
func (m *Model) columns() (columns []queueColumn, name int) {
	columns = slices.Clone(queueColumns)
	for {
		name = m.width
		for _, c := range columns {
			name -= 1 + max(c.width, -c.width)
		}
		if name >= leastName || len(columns) == 1 {
			return columns, max(name, 1)
		}
		least := slices.MinFunc(columns, func(a, b queueColumn) int { return cmp.Compare(a.rank, b.rank) })
		columns = slices.DeleteFunc(columns, func(c queueColumn) bool { return c.rank == least.rank })
	}
}

// queueLines returns the list of queues.
func (m *Model) queueLines() []string {
	columns, name := m.columns()
	heads := row("  QUEUE", name, columns, func(c *queueColumn) string { return m.mark(c.head) })
	lines := []string{m.fit(heads, show.Faint)}
	switch {
	case m.at.IsZero():
		return lines
	case len(m.all) == 0:
		return append(lines, "  no queue yet")
	case len(m.queues) == 0:
		return append(lines, m.fit(fmt.Sprintf("  no queue has %q in its name  (Esc shows all %s)",
			show.Text(m.search), show.Number(int64(len(m.all)))), show.Plain))
	}
	at := max(0, m.at0())
	from := window(at, len(m.queues), m.rows())
	for i := from; i < min(len(m.queues), from+m.rows()); i++ {
		lines = append(lines, m.queueLine(&m.queues[i], columns, name, i == at))
	}
	return lines
}

// mark marks the head of the column by which the rows are sorted.
func (m *Model) mark(head string) string {
	if head == m.sort {
		return "↓" + head
	}
	return head
}

// row returns a line of the table of queues.
func row(first string, name int, columns []queueColumn, text func(c *queueColumn) string) string {
	var line strings.Builder
	_, _ = fmt.Fprintf(&line, "%-*s", name, show.Cut(first, name))
	for i := range columns {
		_, _ = fmt.Fprintf(&line, " %*s", columns[i].width, text(&columns[i]))
	}
	return line.String()
}

// window returns the index of the first row to show, so that the cursor is on the screen.
func window(at, n, rows int) int { return max(0, min(at-rows/2, n-rows)) }

func (m *Model) queueLine(q *queue, columns []queueColumn, name int, chosen bool) string {
	mark, style := "  ", styleOf(q.level)
	if chosen {
		mark = "> "
	}
	line := row(mark+show.Middle(q.Queue, max(1, name-len(mark))), name, columns,
		func(c *queueColumn) string { return c.text(q) })
	if chosen {
		return m.cfg.Printer.Paint(show.Cut(line, m.width), style+"\x1b[7m") // reverse video
	}
	return m.fit(line, style)
}

// clearsIn returns the time until no task waits, or a word for why there is no such time.
func clearsIn(q *queue) string {
	o := q.outlook
	switch {
	case q.Paused:
		return "paused"
	case q.Idle():
		return "no runner"
	case q.Waiting == 0 || o.Flows:
		return "-"
	case o.Known && o.Gone > 0:
		return tight(show.Span(o.Gone))
	case q.KeptWaiting():
		return "at limit"
	}
	return "never"
}

func oldest(q *queue) string {
	if q.Oldest == 0 {
		return "-"
	}
	return tight(show.Span(q.Oldest))
}

// tight removes the space from a span.
func tight(span string) string { return strings.ReplaceAll(span, " ", "") }

// short formats a number in at most seven characters.
func short(n int64) string {
	switch {
	case n < 100_000:
		return show.Number(n)
	case n < 10_000_000:
		return show.Number(n/1000) + "k"
	}
	return show.Number(n/1_000_000) + "M"
}

// sparkline draws the last values. The highest value is a full block.
func sparkline(values []float64, width int) string {
	values = keep(values, width)
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	line := make([]rune, len(values))
	for i, v := range values {
		line[i] = blocks[0]
		if most > 0 {
			line[i] = blocks[int(v/most*float64(len(blocks)-1)+0.5)]
		}
	}
	return string(line)
}

// taskLines returns the list of the tasks of a queue.
func (m *Model) taskLines() []string {
	states := make([]string, 0, len(tabs()))
	for _, s := range tabs() {
		text := filter.StateWord(s)
		if at := m.at0(); at >= 0 {
			text += " " + short(m.queues[at].Size(s))
		}
		if s == m.state {
			text = "[" + text + "]"
		}
		states = append(states, text)
	}
	lines := []string{m.fit(m.chosen+": "+strings.Join(states, " "), show.Plain)}
	if m.filter != "" {
		lines = append(lines, m.fit("filter: "+show.Text(m.filter)+"  (matches "+show.Number(m.page.Matched)+")",
			show.Faint))
	}
	switch {
	case !m.loaded:
		return append(lines, "  asking…")
	case m.broken != "":
		return append(lines, m.fit(show.Text(m.broken), show.Bad))
	case len(m.page.Tasks) == 0:
		return append(lines, "  no task matches")
	}
	rows := max(1, m.height-len(lines)-foot-head+1)
	from := window(m.task, len(m.page.Tasks), rows)
	for i := from; i < min(len(m.page.Tasks), from+rows); i++ {
		lines = append(lines, m.taskLine(&m.page.Tasks[i], i == m.task))
	}
	return lines
}

func (m *Model) taskLine(t *storage.Task, chosen bool) string {
	mark := "  "
	if chosen {
		mark = "> "
	}
	moment := t.Created
	switch {
	case t.State.Ended():
		moment = t.Ended
	case !t.StartedAt().IsZero():
		moment = t.StartedAt()
	case !t.Due.IsZero() && !payload.Records(*t):
		moment = t.Due
	}
	failure, _, _ := strings.Cut(strings.TrimSpace(t.LastError()), "\n")
	id, kind := 26, 16
	if m.width < wide {
		id, kind = 14, 11
	}
	rest := fmt.Sprintf("%-10s %2d/%-2d %s", m.cfg.Printer.Moment(moment), t.Retries, t.MaxRetries,
		show.Text(failure))
	switch {
	case t.State == storage.Pending && !t.Started:
		rest = filter.TaskWord(t)
	case payload.Records(*t):
		rest = show.Text(payload.Reason(*t))
	}
	line := fmt.Sprintf("%s%-*s %-*s %s", mark, id, show.Middle(t.ID, id), kind,
		show.Middle(show.Text(t.Kind), kind), rest)
	if chosen {
		return m.cfg.Printer.Paint(show.Cut(line, m.width), "\x1b[7m")
	}
	return m.fit(line, show.Plain)
}

// pageLines returns the visible part of the page about a task.
func (m *Model) pageLines() []string {
	if m.lines == nil {
		return []string{"asking…"}
	}
	var lines []string
	for i := m.scroll; i < min(len(m.lines), m.scroll+m.rows()+1); i++ {
		lines = append(lines, show.Cut(m.lines[i], m.width))
	}
	return lines
}

// keys lists what the keys do, for the help. A key without a screen works on each.
var keys = []struct{ key, does, on string }{
	{"↑ ↓  k j", "choose, or scroll a task", ""},
	{"Enter", "open the tasks of a queue, or a task", ""},
	{"Esc", "go back, or end the search", ""},
	{"/", "search: queues by name, tasks by a filter", ""},
	{"s", "sort by the next column", "queues"},
	{"p", "pause or resume the queue", "queues"},
	{"r", "requeue: the task, or all dead tasks of the queue", ""},
	{"c", "cancel: the task, or all live tasks of the queue", ""},
	{"← →", "show the tasks of another state", "tasks"},
	{"?", "show or hide this help", ""},
	{"q", "quit", ""},
}

// helpLines explains the keys. top asks before it changes a task or a queue.
func (m *Model) helpLines() []string {
	lines := append(make([]string, 0, 1+len(keys)), m.fit("Keys", show.Strong))
	for _, k := range keys {
		text := fmt.Sprintf("  %-9s %s", k.key, k.does)
		if k.on != "" {
			text += " (list of " + k.on + ")"
		}
		lines = append(lines, m.fit(text, show.Plain))
	}
	return lines
}

// bottom returns the lines below each screen: a question, an input or a message, and the help on keys.
func (m *Model) bottom() []string {
	help := map[screen]string{
		queuesScreen: "↑↓ choose  Enter tasks  / search  s sort  p pause/resume  ? keys  q quit",
		tasksScreen:  "↑↓ choose  ←→ state  Enter task  / filter  r requeue  c cancel  ? keys  q quit",
		taskScreen:   "↑↓ scroll  r requeue  c cancel  Esc back  ? keys  q quit",
	}[m.screen]
	if m.width < wide {
		help = map[screen]string{
			queuesScreen: "Enter / search s sort p pause ? q",
			tasksScreen:  "Enter ←→ / filter r c Esc ? keys q",
			taskScreen:   "↑↓ r requeue c cancel Esc ? keys q",
		}[m.screen]
	}
	message := show.Text(m.message)
	if m.screen == queuesScreen && m.search != "" && message == "" {
		message = fmt.Sprintf("search: %s  (%s of %s)", show.Text(m.search), show.Number(int64(len(m.queues))),
			show.Number(int64(len(m.all))))
	}
	switch {
	case m.question != nil:
		return []string{m.fit(m.question.text+"  [y/N]", show.Warn), m.fit("y yes  any other key no", show.Faint)}
	case m.typing:
		return []string{
			m.fit("/"+show.Text(m.typed)+"▏", show.Strong), m.fit("Enter search  Esc leave it", show.Faint),
		}
	}
	return []string{m.fit(message, show.Warn), m.fit(help, show.Faint)}
}
