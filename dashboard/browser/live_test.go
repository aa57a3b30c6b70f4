package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestAJobEnqueuedElsewhereShows enqueues tasks while pages are open. TestAChangeIsToldWithinASecond bounds
// the time that this takes.
func TestAJobEnqueuedElsewhereShows(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	counts := r.tab("/queues/mail", "light")
	rows := r.tab("/tasks?queue=mail&state=waiting", "dark")
	counts.live()
	rows.live()
	const cell = `document.querySelector('.tabs [data-v="q.mail:waiting"]').textContent`
	eval[bool](counts, `window.stays = true`)
	shown := eval[int](rows, `document.querySelectorAll('tbody tr').length`)
	for range 5 {
		before := eval[string](counts, cell)
		if err := r.Add(t.Context(), "mail", "send_welcome", 1, nil); err != nil {
			t.Fatal(err)
		}
		counts.sees(cell + fmt.Sprintf(` !== %q`, before))
	}
	if !eval[bool](counts, `window.stays === true`) {
		t.Error("the page was loaded anew")
	}
	rows.sees(`!document.querySelector('#fresh').hidden && document.querySelector('#fresh').textContent === '5 new'`)
	rows.click("#fresh")
	rows.sees(fmt.Sprintf(`document.querySelectorAll('tbody tr').length === %d`, shown+5))
}

// TestAChangeBeforeTheStreamBeginsShows makes a change between the rendering of a page and the first message
// of its stream.
func TestAChangeBeforeTheStreamBeginsShows(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	r.stop()
	changed, pages := make(chan struct{}), r.handler
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/events" {
			<-changed
		}
		pages.ServeHTTP(w, req)
	})
	r.start()
	rows := r.tab("/tasks?queue=mail&state=waiting", "light")
	if err := r.Add(t.Context(), "mail", "send_welcome", 5, nil); err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "a look finds the change", func() bool {
		w := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/queues/mail", nil)
		req.RemoteAddr = "127.0.0.1:4000"
		pages.ServeHTTP(w, req)
		return strings.Contains(w.Body.String(), `data-v="q.mail:waiting" title="25"`)
	})
	close(changed)
	rows.sees(`!document.querySelector('#fresh').hidden && document.querySelector('#fresh').textContent === '5 new'`)
}

// confirm clicks on the button of the dialog. Before the click, the focus must be on Back.
func (tb *tab) confirm() {
	tb.t.Helper()
	tb.sees(`document.querySelector('dialog[open] .buttons button')`)
	if got := eval[string](tb, `document.activeElement.textContent`); got != "Back" {
		tb.t.Errorf("the focus of the dialog is on %q, want Back", got)
	}
	tb.click("dialog[open] .buttons button")
}

func TestActionsInABrowser(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	tb := r.tab("/queues/mail", "light")
	tb.live()
	tb.click(`[data-hotkey="p"]`)
	tb.confirm()
	tb.shows("The queue mail is paused.")
	stats, err := r.Store.Stats(t.Context(), "mail")
	if err != nil || !stats[0].Paused {
		t.Errorf("paused %t, %v", stats[0].Paused, err)
	}

	page, err := r.Store.Tasks(t.Context(), storage.TasksQuery{Queue: "mail", State: storage.Dead, Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	one, edited := page.Tasks[0].Ref, page.Tasks[1].Ref
	tb.open("/r/"+one.String(), "dark", 1440)
	tb.live()
	tb.keys("r")
	tb.confirm()
	tb.shows("1 task requeued.")
	tb.shows("waiting")

	tb.open("/edit?ref="+edited.String(), "light", 1440)
	eval[string](tb, `document.querySelector('textarea').value = '{"user": 7}'`)
	tb.click("button[name=requeue]")
	tb.shows("the task is requeued")
	if task, err := r.Store.Task(t.Context(), edited); err != nil || string(task.Payload) != `{"user":7}` {
		t.Errorf("the edited task has %s, %v", task.Payload, err)
	}

	tb.open("/dead", "dark", 1440)
	tb.live()
	tb.click("[data-part=dead] a[data-ask]")
	tb.sees(`document.querySelector('dialog[open] h2')?.textContent.replaceAll('\u00a0', ' ') === 'Requeue 210 tasks?'`)
	if got := eval[int](tb, `document.querySelectorAll('dialog .samples li').length`); got != 6 {
		t.Errorf("the dialog has %d lines of samples, want five and how many more", got)
	}
	tb.confirm()
	tb.shows("210 tasks requeued.")

	tb.open("/schedules", "light", 1440)
	tb.live()
	tb.click(`tr[id$="daily_digest"] a[data-ask]`)
	tb.confirm()
	tb.shows("The schedule has enqueued the task mail/")
}

// point moves the pointer to the middle of the first element that a selector finds, and does so again until
// the element is under it: a page that still comes may move its elements.
func (tb *tab) point(selector string) {
	tb.t.Helper()
	element := fmt.Sprintf("document.querySelector(%q)", selector)
	tb.until(element+" is under the pointer", func() bool {
		at, err := chromedp.Run(tb.ctx, chromedp.Evaluate[[]float64](`(() => {
			const r = `+element+`.getBoundingClientRect()
			return [r.x + r.width / 2, r.y + r.height / 2]
		})()`))
		if err != nil {
			return false
		}
		move := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, input.DispatchMouseEvent, input.DispatchMouseEventParams{
				Type: input.DispatchMouseEventTypeMouseMoved, X: at[0], Y: at[1],
			})
			return err
		})
		if err := chromedp.Do(tb.ctx, move); err != nil {
			tb.t.Fatal(err)
		}
		return tb.holds(element + ".matches(':hover')")
	})
}

// TestAnActionHasItsRateAndItsEnd checks that the command of a dialog follows the choice of a rate and of the
// boxes, and that the page of an action shows its end even while the pointer rests on its Stop.
func TestAnActionHasItsRateAndItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	tb := r.tab("/dead", "light")
	tb.live()
	tb.click("[data-part=dead] a[data-ask]")
	tb.sees(`document.querySelector('dialog[open] .command code')`)
	for _, rate := range []struct{ choice, flag string }{{"", " --rate 50"}, {"0", ""}, {"100", " --rate 100"}, {"10", " --rate 10"}} {
		if rate.choice != "" {
			eval[bool](tb, fmt.Sprintf(`(() => {
				const select = document.querySelector('dialog select[name=rate]')
				select.value = %q
				return select.dispatchEvent(new Event('change', { bubbles: true }))
			})()`, rate.choice))
		}
		got := eval[string](tb, `document.querySelector('dialog .command code').textContent`)
		if want := "midge task requeue" + rate.flag + " 'state:dead cause:"; !strings.HasPrefix(got, want) {
			t.Errorf("with the rate %q the command is %s, want %s…", rate.choice, got, want)
		}
	}
	for _, box := range []struct{ name, flags string }{
		{"canary", " --rate 10 --canary"},
		{"from_start", " --rate 10 --canary --from-start"},
		{"canary", " --rate 10 --from-start"},
		{"from_start", " --rate 10"},
	} {
		eval[bool](tb, `document.querySelector('dialog input[name=`+box.name+`]').click(), true`) // the focus stays on Back
		tb.sees(`document.querySelector('dialog .command code').textContent.startsWith("midge task requeue` + box.flags + ` 'state:dead cause:")`)
	}
	tb.confirm() // the action takes 21 s: time enough to point at its Stop on a busy machine
	const stop = `form[action$="/stop"] button`
	tb.sees(`document.querySelector('` + stop + `')`)
	tb.point(stop)
	tb.shows("212 tasks requeued.")
	tb.sees(`!document.querySelector('` + stop + `') && !document.querySelector('progress')`)
}

func TestManyDeletesCountDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	tb := r.tab("/tasks?queue=mail&state=dead", "light")
	tb.live()
	// The test counts the seconds itself, because on a busy machine the click on Undo may take longer than five.
	eval[bool](tb, `window.setInterval = (count, every) => { window.count = count; window.every = every; return 0 }, true`)
	tb.click("input[name=all]")
	tb.click("button[value=delete]")
	tb.confirm()
	for _, left := range []string{"5", "4", "3"} {
		tb.sees(`document.querySelector('dialog .buttons button').textContent.startsWith('Undo (` + left + ` s)')`)
		if every := eval[int](tb, `window.count(), window.every`); every != 1000 {
			t.Errorf("the countdown counts every %d ms, want 1000", every)
		}
	}
	tb.click("dialog .buttons button")
	tb.sees(`!document.querySelector('dialog[open]')`)
	if stats, err := r.Store.Stats(t.Context(), "mail"); err != nil || stats[0].Dead != 212 {
		t.Errorf("%d dead after Undo, %v; want 212", stats[0].Dead, err)
	}
}

// TestUndoStopsADeletionOnAPageOfItsOwn submits the page of a deletion twice, as two strokes of Enter do, undoes it, and
// submits it again.
func TestUndoStopsADeletionOnAPageOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	tb := r.tab("/action?do=delete&all=1&queue=mail&state=dead", "light")
	tb.live()
	eval[bool](tb, `window.counts = new Map(), window.setInterval = count => { window.counts.set(window.counts.size + 1, count); return window.counts.size },
		window.clearInterval = id => window.counts.delete(id), window.count = () => { for (const count of [...window.counts.values()]) count() }, true`)
	const enter, button = `document.querySelector('form.ask').requestSubmit(), true`, `document.querySelector('form.ask .buttons button')`
	eval[bool](tb, enter)
	eval[bool](tb, enter)
	eval[bool](tb, `window.count(), true`)
	tb.sees(button + `.textContent.startsWith('Undo (4 s)') && window.counts.size === 1`)
	tb.click("form.ask .buttons button")
	tb.sees(button + `.textContent === 'Delete' && window.counts.size === 0`)
	for range 6 {
		eval[bool](tb, `window.count(), true`)
	}
	if stats, err := r.Store.Stats(t.Context(), "mail"); err != nil || stats[0].Dead != 212 {
		t.Errorf("%d dead after Undo, %v; want 212", stats[0].Dead, err)
	}
	tb.click("form.ask .buttons button")
	tb.sees(button + `.textContent.startsWith('Undo (5 s)')`)
	eval[bool](tb, `[1, 2, 3, 4, 5].forEach(window.count), true`)
	tb.shows("212 tasks deleted.")
}

// TestAPageShowsThatItsSubjectIsGone deletes the task of an open page.
func TestAPageShowsThatItsSubjectIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	page, err := r.Store.Tasks(t.Context(), storage.TasksQuery{Queue: "mail", State: storage.Dead, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	tb := r.tab("/r/"+page.Tasks[0].Ref.String(), "light")
	tb.live()
	tb.hush(true) // the browser logs that the page is not found
	deletion := storage.Delete{Ref: page.Tasks[0].Ref, Version: page.Tasks[0].Version}
	if _, err := r.Store.Apply(t.Context(), storage.Call{}, storage.Tx{Deletes: []storage.Delete{deletion}}); err != nil {
		t.Fatal(err)
	}
	tb.sees(`!document.querySelector('[data-part=verdict]')`)
}

// TestPartsComeAndGoWithTheirSubject pauses and resumes the queue of an open page, sets a limit and enqueues into a first
// partition. The page shows each change in its place, without being loaded anew.
func TestPartsComeAndGoWithTheirSubject(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	tb := r.tab("/queues/mail", "light")
	tb.live()
	eval[bool](tb, `window.stays = true`)
	configure := func(s storage.Settings) {
		if err := r.Session.Configure(t.Context(), "mail", s); err != nil {
			t.Fatal(err)
		}
	}
	const pause, button = `document.querySelector('[data-part=pause]')`, `document.querySelector('[data-hotkey=p]').textContent`
	for range 2 {
		configure(storage.Settings{Pause: &storage.Pause{On: true}})
		tb.sees(pause + `?.nextElementSibling.dataset.part === 'states' && ` + button + ` === 'Resume'`)
		configure(storage.Settings{Pause: &storage.Pause{}})
		tb.sees(`!` + pause + ` && ` + button + ` === 'Pause'`)
	}
	if err := r.Session.SetLimit(t.Context(), "mail", storage.Limit{Concurrency: 3}); err != nil {
		t.Fatal(err)
	}
	configure(storage.Settings{Pause: &storage.Pause{On: true}})
	const order = `[...document.querySelectorAll('main [data-part]')].map(e => e.dataset.part).join(' ')`
	tb.sees(order + `.startsWith('pause limit states figures')`)
	in := storage.Insert{
		Ref: storage.Ref{Queue: "mail", ID: "keyed"}, Kind: "send_welcome", Encoding: "json", Payload: []byte("{}"), Partition: "acme", CrashLimit: 3,
	}
	if _, err := r.Session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		t.Fatal(err)
	}
	tb.sees(order + `.endsWith(' partitions')`)
	if !eval[bool](tb, `window.stays === true`) {
		t.Error("the page was loaded anew")
	}
}

// TestAPageShowsThatTheLoginHasEnded ends the login of the user of an open page.
func TestAPageShowsThatTheLoginHasEnded(t *testing.T) {
	t.Parallel()
	var out atomic.Bool
	r := newRigOf(t, "calm", dashboard.Config{Who: func(req *http.Request) (access.User, bool) {
		user, _ := anAdmin(req)
		return user, !out.Load()
	}})
	tb := r.tab("/queues/mail", "light")
	tb.live()
	tb.hush(true) // the browser logs that the page is refused
	out.Store(true)
	tb.sees(`!document.querySelector('[data-part]') && document.body.innerText.includes('Forbidden')`)
}

// TestAChangeBehindADialogShows makes a change while a dialog is open, and closes the dialog.
func TestAChangeBehindADialogShows(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	tb := r.tab("/tasks?queue=mail&state=waiting", "light")
	tb.live()
	tb.click("input[name=all]")
	tb.click("button[value=delete]")
	tb.sees(`document.querySelector('dialog[open] .ask')`)
	if err := r.Add(t.Context(), "mail", "send_welcome", 5, nil); err != nil {
		t.Fatal(err)
	}
	tb.sees(`document.querySelector('.tabs [data-v="q.mail:waiting"]').textContent === '25'`)
	tb.click("dialog[open] [data-back]")
	tb.sees(`!document.querySelector('#fresh').hidden && document.querySelector('#fresh').textContent === '5 new'`)
}

// TestAPageIsFetchedAgainAfterAnError has the server fail once when a page fetches itself after a change.
func TestAPageIsFetchedAgainAfterAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	r.stop()
	var fails atomic.Int64
	pages := r.handler
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/tasks" && fails.Add(-1) >= 0 {
			http.Error(w, "the storage does not answer", http.StatusServiceUnavailable)
			return
		}
		pages.ServeHTTP(w, req)
	})
	r.start()
	tb := r.tab("/tasks?queue=mail&state=waiting", "light")
	tb.live()
	tb.hush(true) // the browser logs the error
	fails.Store(1)
	if err := r.Add(t.Context(), "mail", "send_welcome", 5, nil); err != nil {
		t.Fatal(err)
	}
	tb.sees(`!document.querySelector('#fresh').hidden && document.querySelector('#fresh').textContent === '5 new'`)
}

// TestADeletionKnowsThatItsTasksAreDownloaded checks that the dialog stays open under a download, and that
// its form is marked, so that it deletes no other tasks.
func TestADeletionKnowsThatItsTasksAreDownloaded(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	tb := r.tab("/tasks?queue=mail&state=dead", "light")
	tb.live()
	tb.click("input[name=all]")
	tb.click("button[value=delete]")
	tb.sees(`document.querySelector('dialog[open] a[data-save]')`)
	for range 2 {
		tb.click("dialog a[data-save]")
		tb.sees(`[...document.querySelectorAll('dialog[open] input[name=saved]')].map(e => e.value).join() === '1'`)
	}
}

func TestSevenTabsShareOneStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	var tabs []*tab
	for range 7 {
		tabs = append(tabs, r.tab("/", "light"))
	}
	for _, tb := range tabs {
		tb.live()
	}
	testserver.Await(t, "seven tabs share one stream", func() bool { return r.streams.Load() == 1 })
	if err := r.Add(t.Context(), "mail", "send_welcome", 5, nil); err != nil {
		t.Fatal(err)
	}
	for _, tb := range tabs {
		tb.sees(`document.querySelector('[data-v="q.mail:waiting"]').textContent === '25'`)
	}
}

func TestAServerThatComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	tb := r.tab("/", "light")
	tb.live()
	tb.hush(true) // the browser logs that the server does not answer
	r.stop()
	tb.sees(`document.querySelector('#live').textContent.startsWith('lost since')`)
	const calm = `getComputedStyle(document.querySelector('.calm')).display !== 'none'`
	tb.sees(`!(` + calm + `) && document.querySelector('#away').innerText.startsWith('The server has not answered since')`)
	tb.shows("Whether anything needs attention is not known now.")
	r.start()
	tb.sees(`document.querySelector('#live').dataset.is === 'live'`)
	tb.sees(calm + ` && document.querySelector('#away').hidden && !document.body.hasAttribute('data-away')`)
	if err := r.Add(t.Context(), "mail", "send_welcome", 5, nil); err != nil {
		t.Fatal(err)
	}
	tb.sees(`document.querySelector('[data-v="q.mail:waiting"]').textContent === '25'`)
}

// forgetful is a storage that may not answer for single tasks.
type forgetful struct {
	storage.Storage

	away atomic.Bool
}

func (f *forgetful) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if f.away.Load() {
		return storage.Task{}, storage.ErrUnavailable
	}
	return f.Storage.Task(ctx, ref)
}

// TestAnErrorPageRecovers opens the page of a task while the storage does not answer for it.
func TestAnErrorPageRecovers(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	r.stop()
	store := &forgetful{Storage: r.Store}
	pages, err := dashboard.Handler(store, dashboard.Config{Who: anAdmin})
	if err != nil {
		t.Fatal(err)
	}
	r.handler = pages
	r.start()
	page, err := r.Store.Tasks(t.Context(), storage.TasksQuery{Queue: "mail", State: storage.Dead, Limit: 1})
	if err != nil || len(page.Tasks) != 1 {
		t.Fatalf("%d dead tasks, %v; want one", len(page.Tasks), err)
	}
	tb := r.tab("/queues", "light")
	tb.hush(true) // the browser logs that pages are errors
	store.away.Store(true)
	tb.open("/r/"+page.Tasks[0].Ref.String(), "light", widths[0])
	tb.sees(`document.body.dataset.broken !== undefined`)
	store.away.Store(false)
	tb.sees(`document.body.dataset.broken === undefined && document.querySelector('[data-part=verdict]')`)
}

func TestALivePageStandsStill(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	tabs := map[string]*tab{}
	for _, path := range []string{"/", "/queues", "/queues/mail", "/tasks?queue=mail"} {
		tabs[path] = r.tab(path, "light")
		tabs[path].live()
		eval[bool](tabs[path], `window.moved = 0, new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.moved += e.value; }).observe({type: 'layout-shift'}), true`)
	}
	const waiting = `document.querySelector('[data-v="q.mail:waiting"]').textContent`
	for i := range 8 {
		was := eval[string](tabs["/"], waiting)
		if err := r.Add(t.Context(), "mail", "send_welcome", 7+i*400, nil); err != nil {
			t.Fatal(err)
		}
		tabs["/"].sees(fmt.Sprintf(`%s !== %q`, waiting, was))
	}
	for path, tb := range tabs {
		tb.sees(waiting + ` === '11,276'`) // a page may have shown fewer tasks before, and another one may not
		if moved := eval[float64](tb, `window.moved`); moved > 0.02 {
			t.Errorf("the layout of %s has shifted by %.3f, want at most 0.02", path, moved)
		}
	}
}
