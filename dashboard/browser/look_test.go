package main

import (
	"fmt"
	"testing"

	"github.com/midgehq/midge/storage"
)

// problems finds faults in the layout of a page: colours, sizes and gaps that are not tokens, text of low
// contrast, targets that are too small, clipped elements, and a page that is wider than its window.
const problems = `(() => {
  const found = [];
  for (const a of document.getAnimations()) a.finish();
  const say = (what, e) => { if (found.length < 12) found.push(what + ': <' + e.tagName.toLowerCase() + ' class="' + (e.getAttribute('class') ?? '') + '"> ' + (e.textContent ?? '').trim().slice(0, 60)); };
  const once = (of, known = new Map()) => key => { if (!known.has(key)) known.set(key, of(key)); return known.get(key); };
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return c.startsWith('color(') ? [m[0]*255, m[1]*255, m[2]*255, m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1]; };
  const light = once(c => { const f = v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }, [r, g, b] = parse(c); return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); });
  const ground = once(e => { if (!e) return 'rgb(255, 255, 255)'; const c = getComputedStyle(e).backgroundColor; return parse(c)[3] === 1 ? c : ground(e.parentElement); });
  const visible = once(e => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) && !e.closest('.sr, .skip, dialog:not([open])'));
  // Colours, sizes and gaps are tokens.
  const probe = document.body.appendChild(document.createElement('i'));
  const tokens = new Set(['rgba(0, 0, 0, 0)']);
  for (const name of ['ground', 'surface', 'sunken', 'line', 'control', 'text', 'muted', 'accent', 'on-fill', 'waiting', 'pending', 'scheduled', 'retry', 'completed', 'dead', 'cancelled', 'tint-done']) {
    probe.style.color = 'var(--' + name + ')';
    tokens.add(getComputedStyle(probe).color);
  }
  probe.remove();
  const gaps = new Set([0, 1, 2, 4, 8, 12, 16, 20, 24, 32, 36]), sizes = new Set(['12px', '14px', '16px', '20px', '28px']);
  for (const e of document.querySelectorAll('body, body *')) {
    if (!visible(e) || e.closest('svg, option, .sr, .skip') || e.matches('input[type=checkbox], progress, br')) continue;
    const style = getComputedStyle(e);
    for (const at of ['color', 'backgroundColor']) if (!tokens.has(style[at])) say(at + ' ' + style[at] + ' is no token', e);
    for (const side of ['Top', 'Right', 'Bottom', 'Left']) {
      if (parseFloat(style['border' + side + 'Width']) && !tokens.has(style['border' + side + 'Color'])) say('border ' + style['border' + side + 'Color'] + ' is no token', e);
      if (!gaps.has(parseFloat(style['padding' + side]))) say('padding of ' + style['padding' + side], e);
    }
    for (const at of ['rowGap', 'columnGap']) if (style[at] !== 'normal' && !gaps.has(parseFloat(style[at]))) say('gap of ' + style[at], e);
    if (!sizes.has(style.fontSize)) say('text of ' + style.fontSize, e);
  }
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const e = node.parentElement;
    if (!node.data.trim() || !visible(e) || e.closest('svg, option, script')) continue;
    const range = document.createRange(); range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const a = light(getComputedStyle(e).color), b = light(ground(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) say('contrast ' + ratio.toFixed(2), e);
  }
  for (const e of document.querySelectorAll('a, button, input:not([type=hidden]), select, summary, textarea')) {
    if (!visible(e) || e.closest('svg')) continue;
    const box = (e.closest('label') ?? e).getBoundingClientRect();
    if (!box.width) continue;
    if (Math.round(box.width) < 24 && e.tagName !== 'A' || Math.round(box.height) < 24 && !e.closest('p, li, .more, .zone, dd')) say('target of ' + Math.round(box.width) + 'x' + Math.round(box.height), e);
    const style = getComputedStyle(e);
    if (e.matches('button:not(.quiet), input, select, textarea') && style.borderTopColor && parse(style.borderTopColor)[3] === 1) {
      const own = light(style.borderTopColor), around = light(ground(e.parentElement));
      if ((Math.max(own, around) + .05) / (Math.min(own, around) + .05) < 3) say('border of low contrast', e);
    }
  }
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) say('wider than the window by ' + (document.documentElement.scrollWidth - wide), document.body);
  for (const e of document.querySelectorAll('main *, header *')) {
    if (!visible(e) || e.closest('svg, .code, code, .sr')) continue;
    const box = e.getBoundingClientRect();
    if (box.width && (box.right > wide + 1 || box.left < -1)) say('out of the window', e);
    const cut = getComputedStyle(e);
    if (cut.overflowX === 'clip' || cut.overflowX === 'hidden') {
      if (e.scrollWidth > e.clientWidth + 1 && cut.textOverflow !== 'ellipsis' && !e.querySelector('.name, .one') && !e.matches('.name *, textarea, input')) say('clipped by ' + (e.scrollWidth - e.clientWidth), e);
    }
  }
  for (const e of document.querySelectorAll('main .name')) { // a name that is cut must still have room
    if (visible(e) && e.firstElementChild.scrollWidth > e.firstElementChild.clientWidth + 1 && e.clientWidth < 96) say('a name has only ' + e.clientWidth + ' px', e);
  }
  for (const e of document.querySelectorAll('main td[data-l], main td > .button')) {
    const box = e.getBoundingClientRect(), above = document.elementFromPoint(box.right - 2, box.top + box.height / 2);
    if (visible(e) && box.width > 4 && above && !e.contains(above) && !above.contains(e) && !above.matches('th, th *')) say('covered by ' + above.textContent.trim(), e);
  }
  for (const tabs of document.querySelectorAll('.tabs')) {
    const rows = Map.groupBy([...tabs.children].filter(visible), e => e.offsetTop);
    if (getComputedStyle(tabs).display === 'flex' && rows.size > 1 && [...rows.values()].at(-1).length === 1) say('a tab stands alone in its row', tabs);
  }
  // One button of a view is filled, and no two buttons that stand together have the same text.
  const open = document.querySelector('dialog[open]') ?? document.body;
  const filled = [...open.querySelectorAll('.primary, .danger')].filter(visible);
  if (filled.length > 1) say(filled.length + ' filled buttons', filled[1]);
  for (const some of document.querySelectorAll('.head .actions, .buttons, .need, .picks, td, .pager, .filter')) {
    const texts = [...some.querySelectorAll('button, .button')].filter(visible).map(e => e.textContent.trim());
    if (new Set(texts).size < texts.length) say('equal buttons', some);
  }
  return found;
})()`

// unwanted finds words that no text of the dashboard has, in the text of a page and in its tips and labels.
const unwanted = `(() => {
  const texts = [document.title, document.body.innerText];
  for (const e of document.querySelectorAll('[title], [aria-label], [placeholder]')) {
    texts.push(e.getAttribute('title'), e.getAttribute('aria-label'), e.getAttribute('placeholder'));
  }
  for (const e of document.querySelectorAll('details, dialog')) texts.push(e.textContent);
  return texts.flatMap(text => (text ?? '').replaceAll('\u00a0', ' ').match(/.{0,30}\b(acts?|looks?|stands? still|gone in|needs? you)\b.{0,30}/gi) ?? []);
})()`

// unseen finds elements that do not show that they have the focus.
const unseen = `(() => {
  const found = [];
  for (const e of document.querySelectorAll('a[href], button:not(:disabled), input:not([type=hidden]), select, summary, textarea, [tabindex="0"]')) {
    if (!e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) || e.closest('dialog:not([open])') || e.matches('#menu')) continue;
    e.focus({focusVisible: true, preventScroll: true});
    const style = getComputedStyle(e);
    if (document.activeElement !== e || style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) found.push(e.outerHTML.slice(0, 80));
  }
  document.activeElement.blur();
  return found.slice(0, 5);
})()`

// hush ignores the troubles of the tab if quiet is set, and notes them otherwise.
func (tb *tab) hush(quiet bool) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.quiet = quiet
}

func TestShortNamesAreShownWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	tb := r.tab("/", "light")
	for _, path := range []string{"/schedules", "/queues", "/dead"} {
		tb.open(path, "light", widths[0])
		for _, width := range widths {
			tb.as("light", width)
			cut := eval[[]string](tb, `[...document.querySelectorAll('main .name')].filter((e) => e.checkVisibility() &&
				[...e.children].some((i) => i.scrollWidth > i.clientWidth + 1)).map((e) => e.title)`)
			if len(cut) > 0 {
				t.Errorf("%s cuts %q at %d px", path, cut, width)
			}
		}
	}
}

// TestLongNamesGetTheRoom checks names that are as long as the names of tenants. They are whole in a wide
// window, and get most of the room in a narrow one.
func TestLongNamesGetTheRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	for _, tenant := range []string{"0001", "0002"} {
		if err := r.Add(t.Context(), "tenant-"+tenant+"-notifications-mail", "send_welcome", 3, nil); err != nil {
			t.Fatal(err)
		}
	}
	tb := r.tab("/", "light")
	for width, least := range map[int64]int{1440: 1000, 1024: 200, 768: 200} {
		tb.open("/queues?name=tenant", "light", width)
		cut := eval[[]string](tb, fmt.Sprintf(`[...document.querySelectorAll('main .name')].filter((e) => e.clientWidth < %d &&
			[...e.children].some((i) => i.scrollWidth > i.clientWidth + 1)).map((e) => e.title + ' in ' + e.clientWidth + ' px')`, least))
		if len(cut) > 0 {
			t.Errorf("at %d px the list of queues cuts %q", width, cut)
		}
	}
}

// overflows finds texts that reach out of their card, and short names that are cut.
const overflows = `(() => {
  const found = [];
  const say = (what, e) => { if (found.length < 12) found.push(what + ': <' + e.tagName.toLowerCase() + ' class="' + (e.getAttribute('class') ?? '') + '"> ' + e.textContent.trim().slice(0, 60)); };
  for (const card of document.querySelectorAll('.card')) {
    const box = card.getBoundingClientRect();
    const walk = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) {
      const e = node.parentElement;
      if (!node.data.trim() || !e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) || e.closest('.sr, option')) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (let {left, right, top, bottom} of range.getClientRects()) {
        for (let clips = e; clips !== card; clips = clips.parentElement) { // what an element within cuts is not seen
          if (getComputedStyle(clips).overflowX === 'visible') continue;
          const edge = clips.getBoundingClientRect();
          [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
          [top, bottom] = [Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
        }
        if (right - left < 1 || bottom - top < 1) continue;
        const out = Math.max(box.left - left, right - box.right, box.top - top, bottom - box.bottom);
        if (out > 1) { say('out of its card by ' + Math.round(out) + ' px', e); break; }
      }
    }
  }
  for (const e of document.querySelectorAll('main .name')) {
    if (e.title.length <= 16 && e.checkVisibility() && [...e.children].some(i => i.scrollWidth > i.clientWidth + 1)) say('a short name is cut', e);
  }
  return found;
})()`

// crowded finds rates at the left of a chart that cover each other.
const crowded = `(() => {
  const found = [];
  for (const svg of document.querySelectorAll('.rates')) {
    const boxes = [...svg.querySelectorAll('text')].map(e => e.getBoundingClientRect()).sort((a, b) => a.top - b.top);
    for (let i = 1; i < boxes.length; i++) if (boxes[i].top < boxes[i - 1].bottom - 1) found.push('rates cover each other');
  }
  return found;
})()`

// TestAStormOfFailuresIsReadable checks the pages while nearly all attempts fail: numbers are as long as they
// can be, and failures dominate the charts.
func TestAStormOfFailuresIsReadable(t *testing.T) {
	t.Parallel()
	r := newRig(t, "empty")
	r.storm(999)
	tb := r.tab("/", "light")
	r.storm(9990)
	for _, p := range []named{{"overview", "/"}, {"queue", "/queues/mail"}, {"queues", "/queues"}, {"metrics", "/metrics"}} {
		tb.open(p.path, "light", widths[0])
		tb.live()
		for _, width := range []int64{1440, 1280, 1100, 1024, 900, 700, 360} {
			tb.as("light", width)
			for _, code := range []string{problems, overflows, crowded} {
				for _, problem := range eval[[]string](tb, code) {
					t.Errorf("%s at %d: %s", p.name, width, problem)
				}
			}
		}
	}
}

// storm enqueues n tasks and one more, of which all but the first fail.
func (r *rig) storm(n int) {
	r.t.Helper()
	err := r.Add(r.t.Context(), "mail", "send_welcome", n+1, func(_ int, in *storage.Insert) { in.MaxRetries = 0 })
	if err != nil {
		r.t.Fatal(err)
	}
	err = r.End(r.t.Context(), "mail", n+1, func(i int, _ storage.Task, st *storage.Settle) {
		if i > 0 {
			st.Outcome, st.Error = storage.Fail, "smtp: connection refused"
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
}
