package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/midgehq/midge/storage"
)

// walk is a tab in which a person works only with a mouse.
type walk struct {
	*tab

	clicks int
}

// press clicks on the element with a label. Of several, it takes the element closest to the text near.
func (w *walk) press(label, near string) { w.t.Helper(); w.click("document", label, near) }

// agree clicks on the button of the dialog. Instead of the dialog there is a page, if the script of the page
// before was not ready.
func (w *walk) agree(label string) {
	w.t.Helper()
	w.click("document.querySelector('dialog[open]' + (location.pathname === '/action' ? ', main' : ''))", label, "")
}

// click clicks once, as soon as the label is there and nothing covers it. After a click on a link it waits
// until the browser has left the page.
func (w *walk) click(within, label, near string) {
	w.t.Helper()
	w.clicks++
	w.sees(fmt.Sprintf(`(() => {
		const text = (e) => (e.innerText || '').replaceAll(/\s/g, '')
		const label = %[2]q.replaceAll(/\s/g, ''), near = %[3]q.replaceAll(/\s/g, '')
		let best, steps = Infinity
		for (const e of %[1]s?.querySelectorAll('a, button, summary, label') ?? []) {
			if (e.checkVisibility() && text(e) === label) {
				let up = e, n = 0
				while (up && !text(up).includes(near)) { up = up.parentElement; n++ }
				if (up && n < steps) [best, steps] = [e, n]
			}
		}
		if (!best) return false
		best.scrollIntoView({ block: 'center' })
		const at = best.getBoundingClientRect()
		if (!best.contains(document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2))) return false
		if (best.matches('a[href]:not([data-ask])')) document.documentElement.dataset.left = ''
		best.click()
		return true
	})()`, within, label, near))
	w.sees(`!('left' in document.documentElement.dataset)`)
}

// TestANightIsRepairedInTwelveClicks finds and repairs all troubles of the scene night, from the Overview on.
// docs/operating.md describes the same walk.
func TestANightIsRepairedInTwelveClicks(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	w := &walk{tab: r.tab("/", "light")}
	w.live()
	for _, of := range []struct {
		cause, queue, done string
		tasks              int
	}{
		{"connection refused", "mail", "212 tasks requeued.", 212},
		{"no space left on device", "archive", "88 tasks requeued.", 88},
	} {
		w.press("Requeue", of.cause)
		w.agree("Requeue")
		w.at("/") // also after an action that takes longer, whose progress the page of the action shows
		w.shows(of.done)
		if err := r.End(t.Context(), of.queue, of.tasks+9, nil); err != nil { // as runners would
			t.Fatal(err)
		}
	}
	w.press("Resume", "payments")
	w.agree("Resume")
	w.shows("The queue payments is resumed.")
	if err := r.End(t.Context(), "payments", 1204, nil); err != nil {
		t.Fatal(err)
	}
	w.press("Remove", "daily_digest")
	w.agree("Remove")
	w.shows("The schedule is removed.")
	ref := w.only("default")
	w.press("View tasks", "legacy_sync")
	w.press("Delete", ref.ID)
	w.agree("Delete")
	w.press("Overview", "")
	w.shows("All clear.")
	if w.clicks > 12 {
		t.Errorf("the night took %d clicks, want at most 12", w.clicks)
	}
	t.Logf("%d clicks", w.clicks)
	w.repaired(ref)
}

// only returns the only task that waits in a queue.
func (w *walk) only(queue string) storage.Ref {
	w.t.Helper()
	page, err := w.Store.Tasks(w.t.Context(), storage.TasksQuery{Queue: queue, State: storage.Waiting})
	if err != nil || len(page.Tasks) != 1 {
		w.t.Fatalf("%d tasks wait in %s, %v; want 1", len(page.Tasks), queue, err)
	}
	return page.Tasks[0].Ref
}

// repaired checks in the storage that all troubles are repaired.
func (w *walk) repaired(unknown storage.Ref) {
	w.t.Helper()
	stats, err := w.Store.Stats(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, q := range stats {
		if q.Dead > 0 || q.Paused || q.Waiting > 0 {
			w.t.Errorf("%s: %d dead, %d waiting, paused %t; want none, none and false", q.Queue, q.Dead, q.Waiting, q.Paused)
		}
	}
	for _, gone := range []storage.Ref{unknown, {Queue: "mail", ID: storage.CursorPrefix + "daily_digest"}} {
		if _, err := w.Store.Task(w.t.Context(), gone); !errors.Is(err, storage.ErrNotFound) {
			w.t.Errorf("%s: got %v, want it gone", gone, err)
		}
	}
}
