package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/midgehq/midge/cmd/midge/internal/show"
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
	switch m.screen {
	case queuesScreen:
		lines = append(lines, m.queueLines()...)
	case tasksScreen:
		lines = append(lines, m.taskLines()...)
	case taskScreen:
		lines = append(lines, m.pageLines()...)
	}
	for len(lines) < m.height-foot {
		lines = append(lines, "")
	}
	return append(lines[:m.height-foot], m.bottom()...)
}

// fit cuts a line to the width, and paints it.
func (m *Model) fit(text string, style show.Style) string {
	return m.cfg.Printer.Paint(show.Cut(text, m.width), style)
}

// top returns the lines above each screen: the storage, and the sums over all queues.
func (m *Model) top() []string {
	left, right := "midge top  on "+m.cfg.Target, m.at.UTC().Format("15:04:05Z")
	if m.at.IsZero() {
		right = "asking…"
	}
	space := max(2, m.width-utf8.RuneCountInString(left)-len(right))
	first := m.fit(left+strings.Repeat(" ", space)+right, show.Strong)
	t := &m.total
	second := m.fit(fmt.Sprintf("%s waiting  %s pending  %s retry  %s dead   in %s/s  done %s/s  failed "+
		"%s/s   %s",
		show.Number(t.Waiting), show.Number(t.Pending), show.Number(t.Retry), show.Number(t.Dead),
		rate(t.In), rate(t.Done), rate(t.Failed), show.Count(int64(t.Runners), "runner")), show.Plain)
	if m.away != "" {
		second = m.fit("the storage does not answer; trying on: "+show.Text(m.away), show.Bad)
	}
	return []string{first, second, m.worst()}
}

// worst returns the line about the worst finding, "" if there is none.
func (m *Model) worst() string {
	if len(m.findings) == 0 || m.away != "" {
		return ""
	}
	text := show.Text(m.findings[0].Text)
	if more := len(m.findings) - 1; more > 0 {
		text = fmt.Sprintf("%s, and %d more: midge doctor", text, more)
	}
	return m.fit(text, styleOf(m.findings[0].Level))
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
}

// leastName is the least width of the name of a queue, with the mark before it, and trendWidth is the width
// of a trend, both in characters.
const (
	leastName  = 14
	trendWidth = 8
)

var queueColumns = []queueColumn{
	{"WAITING", 8, 8, func(q *queue) string { return short(q.Waiting) }},
	{"PENDING", 7, 3, func(q *queue) string { return short(q.Pending) }},
	{"DEAD", 6, 7, func(q *queue) string { return short(q.Dead) }},
	{"OLDEST", 7, 5, oldest},
	{"IN/S", 6, 2, func(q *queue) string { return rate(q.In) }},
	{"DONE/S", 6, 4, func(q *queue) string { return rate(q.Done) }},
	{"EMPTY IN", 9, 6, emptyIn},
	{"DONE", -trendWidth, 1, func(q *queue) string { return sparkline(q.trend, trendWidth) }},
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
	heads := row("  QUEUE", name, columns, func(c *queueColumn) string { return c.head })
	lines := []string{m.fit(heads, show.Faint)}
	if len(m.queues) == 0 && !m.at.IsZero() {
		return append(lines, "  there are no queues")
	}
	at := max(0, m.at0())
	from := window(at, len(m.queues), m.rows())
	for i := from; i < min(len(m.queues), from+m.rows()); i++ {
		lines = append(lines, m.queueLine(&m.queues[i], columns, name, i == at))
	}
	return lines
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

// emptyIn returns the time until no task waits, or a word for why there is no such time.
func emptyIn(q *queue) string {
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
		text := string(s)
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
		return append(lines, "  no such task")
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
	case !t.Due.IsZero():
		moment = t.Due
	}
	failure, _, _ := strings.Cut(strings.TrimSpace(t.LastError()), "\n")
	id, kind := 26, 16
	if m.width < wide {
		id, kind = 14, 11
	}
	line := fmt.Sprintf("%s%-*s %-*s %-10s %2d/%-2d %s", mark, id, show.Middle(t.ID, id), kind,
		show.Middle(show.Text(t.Kind), kind),
		m.cfg.Printer.Moment(moment), t.Retries, t.MaxRetries, show.Text(failure))
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

// bottom returns the lines below each screen: a question, an input or a message, and the help on keys.
func (m *Model) bottom() []string {
	keys := map[screen]string{
		queuesScreen: "↑↓ choose  Enter tasks  p pause/resume  r requeue dead  c cancel live  q quit",
		tasksScreen:  "↑↓ choose  ←→ state  Enter task  / filter  r requeue  c cancel  Esc back  q quit",
		taskScreen:   "↑↓ scroll  r requeue  c cancel  Esc back  q quit",
	}[m.screen]
	if m.width < wide {
		keys = map[screen]string{
			queuesScreen: "Enter p pause r requeue c cancel q quit",
			tasksScreen:  "Enter ←→ / filter r c cancel Esc q quit",
			taskScreen:   "↑↓ r requeue c cancel Esc back q quit",
		}[m.screen]
	}
	switch {
	case m.question != nil:
		return []string{m.fit(m.question.text+"  [y/N]", show.Warn), m.fit("y yes  any other key no", show.Faint)}
	case m.typing:
		return []string{m.fit("/"+show.Text(m.typed)+"▏", show.Strong), m.fit("Enter search  Esc leave it",
			show.Faint)}
	}
	return []string{m.fit(show.Text(m.message), show.Warn), m.fit(keys, show.Faint)}
}
