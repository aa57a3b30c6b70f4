package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/midgehq/midge/storage"
)

// at waits until the tab shows the page of a path, and the page is live.
func (tb *tab) at(path string) {
	tb.t.Helper()
	tb.sees(fmt.Sprintf(`location.pathname === %q && document.querySelector('#live')?.dataset.is === 'live'`, path))
}

// asks waits until a dialog with a title is open, and closes it with Enter, because the focus is on the button that does so.
func (tb *tab) asks(title string) {
	tb.t.Helper()
	tb.sees(fmt.Sprintf(`document.querySelector('dialog[open] h2')?.textContent.replaceAll('\u00a0', ' ').startsWith(%q) && document.activeElement.matches('[data-back]')`, title))
	tb.keys(kb.Enter)
	tb.sees(`!document.querySelector('dialog[open]')`)
}

// goes types g and another key, and waits for the page to which they lead. The page stops its clock before that,
// because the second key counts for a second and a half only.
func (tb *tab) goes(key, path string) {
	tb.t.Helper()
	eval[bool](tb, `(now => { Date.now = () => now; return true })(Date.now())`)
	tb.keys("g" + key)
	tb.at(path)
}

func TestAWalkByKeyboardAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	tb := r.tab("/", "light")
	tb.live()
	for _, to := range [][2]string{{"q", "/queues"}, {"t", "/tasks"}, {"d", "/dead"}, {"s", "/schedules"}, {"r", "/runners"}, {"o", "/"}} {
		tb.goes(to[0], to[1])
	}
	tb.goes("t", "/tasks")
	const on = `[...document.querySelectorAll('tr')].filter(e => e.querySelector('[data-open]')).findIndex(e => e.classList.contains('on'))`
	for i, step := range []string{"j", "j", "j", "k"} {
		tb.keys(step)
		tb.sees(fmt.Sprintf(`%s === %d && document.activeElement.matches('tr.on [data-open]')`, on, []int{0, 1, 2, 1}[i]))
	}
	tb.keys("x")
	tb.sees(`document.querySelectorAll('[name=ref]:checked').length === 1 && document.querySelector('tr.on [name=ref]').checked`)
	tb.keys("r")
	tb.asks("Requeue")
	tb.keys("c")
	tb.asks("Cancel 1 task")
	href := eval[string](tb, `document.querySelector('tr.on [data-open]').getAttribute('href')`)
	eval[bool](tb, `document.querySelector('tr.on [data-open]').focus(), true`)
	tb.keys(kb.Enter)
	tb.at(href)

	page, err := r.Store.Tasks(t.Context(), storage.TasksQuery{Queue: "mail", State: storage.Dead, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	ref := page.Tasks[0].Ref
	tb.open("/r/"+ref.String(), "light", 1440)
	tb.live()
	tb.keys("r")
	tb.sees(`document.activeElement.matches('dialog[open] [data-back]')`)
	tb.keys(kb.Tab)
	tb.keys(kb.Enter)
	tb.shows("1 task requeued.")
	if task, err := r.Store.Task(t.Context(), ref); err != nil || task.State != storage.Waiting {
		t.Errorf("the task is %s, %v; want it waiting", task.State, err)
	}
	tb.open("/queues/mail", "dark", 1440)
	tb.live()
	tb.keys("p")
	tb.asks("Pause the queue mail")
	tb.keys(".")
	tb.sees(`document.querySelector('#live').dataset.is === 'paused'`)
	tb.keys(".")
	tb.live()
	tb.keys("?")
	tb.sees(`document.querySelector('dialog[open]')?.textContent.includes('pause/resume updates')`)
	tb.keys(kb.Escape)
	tb.sees(`!document.querySelector('dialog[open]')`)
	tb.switchedOff()
}

// TestTheCurrentRowStaysCurrent changes the current row while the focus is elsewhere.
func TestTheCurrentRowStaysCurrent(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	tb := r.tab("/queues", "light")
	tb.live()
	tb.keys("j")
	const current = `document.querySelector('tr.on [data-open]')?.getAttribute('href')`
	row := eval[string](tb, current)
	eval[bool](tb, `window.was = document.querySelector('tr.on'), document.activeElement.blur(), true`)
	queue := strings.TrimPrefix(row, "/queues/")
	if err := r.Add(t.Context(), queue, "send_welcome", 5, nil); err != nil {
		t.Fatal(err)
	}
	tb.sees(`!window.was.isConnected`)
	if got := eval[string](tb, current+` ?? ''`); got != row {
		t.Errorf("after a change the current row is %q, want %q", got, row)
	}
}

// switchedOff switches the keys off with the keyboard. The keys must do nothing until they are on again.
func (tb *tab) switchedOff() {
	tb.t.Helper()
	tb.keys("?")
	tb.sees(`document.activeElement.matches('dialog[open] button')`)
	eval[bool](tb, `document.querySelector('dialog input[type=checkbox]').focus(), true`)
	tb.keys(" ")
	tb.sees(`document.querySelector('dialog input[type=checkbox]').checked`)
	tb.keys(kb.Escape)
	tb.sees(`!document.querySelector('dialog[open]')`)
	path := eval[string](tb, `location.pathname`)
	tb.keys("gqp.?")
	if got := eval[string](tb, `[location.pathname, document.querySelector('#live').dataset.is, !!document.querySelector('dialog[open]')].join()`); got != path+",live,false" {
		tb.t.Errorf("keys that are switched off lead to %s", got)
	}
	eval[bool](tb, `document.querySelector('[data-keys]').focus(), true`)
	tb.keys(kb.Enter)
	tb.sees(`document.querySelector('dialog[open]')`)
	eval[bool](tb, `document.querySelector('dialog input[type=checkbox]').focus(), true`)
	tb.keys(" ")
	tb.keys(kb.Escape)
	tb.sees(`!document.querySelector('dialog[open]')`)
	tb.goes("o", "/")
}
