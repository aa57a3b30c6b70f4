package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/midgehq/midge/storage"
)

func TestSearchByKeyboard(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	tb := r.tab("/", "light")
	tb.live()
	options := `[...document.querySelectorAll('#hits [role=option]')]`
	find := func(text string) {
		t.Helper()
		eval[bool](tb, `document.querySelector('[data-key="/"]').focus(), document.activeElement.value = '', true`)
		tb.keys(text)
		tb.sees(options + `.at(-1)?.textContent.includes('“` + text + `”')`)
	}
	find("mail")
	// Nothing clips the suggestions, which are wider than the column of the field.
	tb.sees(`(() => {
		const box = document.querySelector('#hits').getBoundingClientRect()
		return box.width > 300 && document.querySelector('#hits').contains(document.elementFromPoint(box.right - 8, box.top + 12))
	})()`)
	if got := eval[string](tb, `['role', 'aria-expanded', 'aria-controls', 'aria-autocomplete'].map(a => document.activeElement.getAttribute(a)).join()`); got != "combobox,true,hits,list" {
		t.Errorf("the field is %s", got)
	}
	for _, what := range []string{"queue", "schedule"} {
		find(map[string]string{"queue": "mail", "schedule": "daily"}[what])
		tb.sees(fmt.Sprintf(`%s.some(e => e.lastChild.textContent === %q)`, options, what))
	}
	find("refused")
	tb.keys(kb.ArrowDown)
	chosen := `document.querySelector('#hits [aria-selected=true]')`
	tb.sees(chosen + `?.id === document.activeElement.getAttribute('aria-activedescendant') && ` + chosen + `.textContent.includes('connection refused')`)
	tb.keys(kb.Escape)
	tb.sees(`document.querySelector('#hits').hidden && document.activeElement.name === 'q' && document.activeElement.value === 'refused' && document.activeElement.getAttribute('aria-expanded') === 'false'`)
	find("refused")
	tb.keys(kb.ArrowDown)
	tb.keys("\r")
	tb.sees(`location.pathname === '/dead' && location.search.startsWith('?cause=')`)
	tb.live()

	page, err := r.Store.Tasks(t.Context(), storage.TasksQuery{Queue: "mail", State: storage.Dead, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	ref := page.Tasks[0].Ref.String()
	eval[bool](tb, fmt.Sprintf(`document.querySelector('[data-key="/"]').focus(), document.activeElement.value = 'level=ERROR msg="a job failed" task=%s kind=x', true`, ref))
	tb.keys("\r")
	tb.sees(fmt.Sprintf(`location.pathname === '/r/%s'`, ref))
}

// TestALateSuggestionHidesNoLaterOne answers the call for a text after more of it was typed.
func TestALateSuggestionHidesNoLaterOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	r.stop()
	asked, typed, pages := make(chan struct{}, 1), make(chan struct{}), r.handler
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/suggest" && req.FormValue("q") == "mai" {
			asked <- struct{}{}
			<-typed
		}
		pages.ServeHTTP(w, req)
	})
	r.start()
	tb := r.tab("/", "light")
	tb.live()
	eval[bool](tb, `document.querySelector('[data-key="/"]').focus(), true`)
	tb.keys("mai")
	<-asked
	tb.keys("l")
	close(typed)
	tb.sees(`document.querySelector('#hits li:last-child')?.textContent.includes('“mail”')`)
}

func TestAScanTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	// More tasks than one step of a scan reads.
	err := r.Add(t.Context(), "mail", "bulk", 50_000, nil)
	if err == nil {
		err = r.Add(t.Context(), "webhooks", "needle_at_the_end", 1, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	tb := r.tab("/search?q=needle_at", "light")
	tb.live()
	if got := eval[int](tb, `document.querySelectorAll('tbody tr').length`); got != 0 {
		t.Errorf("%d rows before anybody asks for a scan", got)
	}
	tb.click(`a[href*="scan=1"]`)
	tb.sees(`document.querySelectorAll('[data-rows] tbody tr').length === 1`)
	tb.shows("needle_at_the_end")
	tb.sees(`document.querySelector('[data-far]').textContent.includes('1 of 1')`)
	tb.sees(`document.querySelector('[data-stop]')?.hidden !== false`)
}
