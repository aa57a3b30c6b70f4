package top

import (
	"context"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// mostTasks is the maximum number of tasks that one key changes. For more tasks the user runs the command.
const mostTasks = 1000

// key handles a key.
func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	if msg.String() == "ctrl+c" {
		return tea.Quit
	}
	switch {
	case m.question != nil:
		return m.answer(msg)
	case m.typing:
		return m.typeKey(msg)
	}
	m.message = ""
	if was := m.help; was || msg.String() == "?" { // any key hides the help
		m.help = !was
		return nil
	}
	switch msg.String() {
	case "q":
		return tea.Quit
	case "esc", "backspace":
		return m.back()
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.rows())
	case "pgdown", "space":
		m.move(m.rows())
	case "home", "g":
		m.move(-1 << 30)
	case "end", "G":
		m.move(1 << 30)
	case "left", "h":
		return m.tab(-1)
	case "right", "l", "tab":
		return m.tab(1)
	case "enter":
		return m.enter()
	case "/":
		m.typing, m.typed = m.screen != taskScreen, m.filter
		if m.screen == queuesScreen {
			m.typed = m.search
		}
	case "s":
		if m.screen == queuesScreen {
			m.sortNext()
		}
	case "p", "c", "r":
		return m.ask(msg.String())
	}
	return nil
}

// answer handles the key that answers a question. Any key except y and Y means no.
func (m *Model) answer(msg tea.KeyPressMsg) tea.Cmd {
	asked := m.question
	m.question = nil
	if msg.String() == "y" || msg.String() == "Y" {
		m.message = counting
		return asked.do
	}
	m.message = "nothing was changed"
	return nil
}

// typeKey handles a key while the user types a filter of tasks or a search for queues.
func (m *Model) typeKey(msg tea.KeyPressMsg) tea.Cmd {
	switch msg.String() {
	case "enter":
		if m.typing = false; m.screen == queuesScreen {
			m.search = strings.TrimSpace(m.typed)
			m.arrange()
			return nil
		}
		m.filter, m.task, m.loaded = m.typed, 0, false
		m.page.Tasks = nil
		return m.list()
	case "esc":
		m.typing = false
	case "backspace":
		if r := []rune(m.typed); len(r) > 0 {
			m.typed = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.typed = ""
	default:
		m.typed += msg.Key().Text
	}
	return nil
}

// back returns to the previous screen.
func (m *Model) back() tea.Cmd {
	switch m.screen {
	case tasksScreen:
		m.screen, m.filter, m.task = queuesScreen, "", 0
	case taskScreen:
		m.screen = tasksScreen
		return m.list()
	case queuesScreen:
		m.search = ""
		m.arrange()
	}
	return nil
}

// move moves the cursor, or scrolls the page about a task, by a number of lines.
func (m *Model) move(by int) {
	within := func(at, n int) int { return max(0, min(at+by, n-1)) }
	switch m.screen {
	case queuesScreen:
		if len(m.queues) > 0 {
			m.chosen = m.queues[within(max(0, m.at0()), len(m.queues))].Queue
		}
	case tasksScreen:
		m.task = within(m.task, len(m.page.Tasks))
	case taskScreen:
		m.scroll = max(0, min(m.scroll+by, len(m.lines)-m.rows()))
	}
}

// tab switches the list of tasks to another state.
func (m *Model) tab(by int) tea.Cmd {
	if m.screen != tasksScreen {
		return nil
	}
	states := tabs()
	at := slices.Index(states, m.state)
	m.state = states[(at+by+len(states))%len(states)]
	m.task, m.loaded = 0, false
	m.page.Tasks = nil
	return m.list()
}

// tabs returns the states of tasks.
func tabs() []storage.State { return storage.TaskStates() }

// enter opens what is under the cursor: the tasks of a queue, or the page about a task.
func (m *Model) enter() tea.Cmd {
	switch m.screen {
	case queuesScreen:
		at := m.at0()
		if at < 0 {
			return nil
		}
		m.screen, m.task, m.filter, m.loaded = tasksScreen, 0, "", false
		m.page.Tasks = nil
		m.state = storage.Waiting
		for _, s := range slices.Backward(filter.Outstanding()) {
			if m.queues[at].Size(s) > 0 {
				m.state = s
			}
		}
		return m.list()
	case tasksScreen:
		if m.task < len(m.page.Tasks) {
			m.screen, m.shown, m.scroll, m.lines = taskScreen, m.page.Tasks[m.task], 0, nil
			return m.look()
		}
	case taskScreen:
	}
	return nil
}

// ask asks the user to confirm the action of a key.
func (m *Model) ask(key string) tea.Cmd {
	switch {
	case m.screen == queuesScreen:
		return m.askQueue(key)
	case key != "p":
		shown := &m.shown
		if m.screen == tasksScreen {
			if m.task >= len(m.page.Tasks) {
				return nil
			}
			shown = &m.page.Tasks[m.task]
		}
		action, word := bulk.Action{Verb: bulk.Requeue}, "Requeue "
		if key == "c" {
			action, word = bulk.Action{Verb: bulk.Cancel}, "Cancel "
		}
		m.question = &question{text: word + shown.Ref.String() + "?", do: m.bulk(bulk.Request{
			Action: action,
			Tasks:  []bulk.Target{action.Target(shown)},
		})}
	}
	return nil
}

// askQueue asks the user to confirm an action on the queue under the cursor.
func (m *Model) askQueue(key string) tea.Cmd {
	at := m.at0()
	if at < 0 {
		return nil
	}
	q := m.queues[at]
	action, n, word := bulk.Action{Verb: bulk.Requeue}, q.Dead, "dead"
	switch key {
	case "p":
		m.question = m.pause(&q)
		return nil
	case "c":
		action, n, word = bulk.Action{Verb: bulk.Cancel}, q.Live(), "live"
	}
	if n == 0 || n > mostTasks {
		m.message = counted(action, q.Queue, word, n)
		return nil
	}
	req := bulk.Request{Action: action}
	req.Scan.Queues = []string{q.Queue}
	m.message = "…"
	return func() tea.Msg {
		ctx, stop := context.WithTimeout(m.ctx, callTime)
		defer stop()
		look, err := bulk.Look(ctx, m.cfg.Session, req, bulk.Budget{Time: callTime / 2})
		return looked{req, word, look, err}
	}
}

// counting is the message until the tasks of a queue are counted.
const counting = "…"

// looked asks the user to confirm an action on the tasks of a queue that were counted for it, and on no tasks
// that come later.
func (m *Model) looked(msg looked) {
	req, n, queue := msg.req, msg.look.Count, msg.req.Scan.Queues[0]
	if m.message == counting {
		m.message = ""
	}
	switch {
	case m.question != nil || m.typing || m.screen != queuesScreen || m.chosen != queue: // the user has moved on
	case msg.err != nil:
		m.message = msg.err.Error()
	case n == 0 || n > mostTasks || msg.look.More:
		m.message = counted(req.Action, queue, msg.word, n)
	default:
		req.Limit, req.Seen = int(n), msg.look.Seen
		m.question = &question{
			text: fmt.Sprintf("%s the %s of queue %s?", title(string(req.Action.Verb)),
				show.Count(n, msg.word+" task"), queue),
			do: m.bulk(req),
		}
	}
}

// counted returns why the user is not asked about the tasks of a queue.
func counted(action bulk.Action, queue, word string, n int64) string {
	if n == 0 {
		return "queue " + queue + " has no " + word + " task"
	}
	return fmt.Sprintf("%s %s tasks: midge task %s --queue %s", show.Number(n), word, action.Verb, queue)
}

func title(word string) string { return string(word[0]-'a'+'A') + word[1:] }

// pause makes the question whether to pause or to resume a queue.
func (m *Model) pause(q *queue) *question {
	name, on, word, done := q.Queue, !q.Paused, "Pause", "paused "
	if !on {
		word, done = "Resume", "resumed "
	}
	return &question{text: word + " queue " + name + "?", do: func() tea.Msg {
		w, said := m.audit()
		err := w.Do(m.ctx, ledger.Entry{Action: strings.ToLower(word), Queue: name}, audit.One(func() error {
			return m.cfg.Session.Configure(m.ctx, name, storage.Settings{Pause: &storage.Pause{On: on}})
		}))
		return changed{done + name + *said, err}
	}}
}

// bulk returns the command that executes a request.
func (m *Model) bulk(req bulk.Request) tea.Cmd {
	return func() tea.Msg {
		w, said := m.audit()
		r, err := w.Run(m.ctx, m.cfg.Session, req)
		parts := []string{req.Action.Done() + " " + show.Count(r.Done, "task")}
		for _, c := range []struct {
			n    int64
			text string
		}{{r.Changed, "changed meanwhile"}, {r.Gone, "no longer there"}, {r.Kept, "kept"}} {
			if c.n > 0 {
				parts = append(parts, show.Number(c.n)+" "+c.text)
			}
		}
		for _, reason := range r.Reasons {
			parts = append(parts, reason.Ref.String()+": "+reason.Text)
		}
		text := strings.Join(parts, "; ") + *said
		if err != nil && r.Done > 0 {
			err = fmt.Errorf("%s, then: %w", text, err)
		}
		return changed{text, err}
	}
}

// audit returns the audit for one action. said holds its warnings, "" for none.
func (m *Model) audit() (w audit.Writer, said *string) {
	w, said = m.cfg.Audit, new(string)
	w.Warn = func(err error) { *said += "; " + err.Error() }
	return w, said
}
