// This is the only module of the dashboard. It keeps pages live and adds keys. Every page works without it.
// Texts come into the page only as text nodes, and markup only as nodes of a document that the browser
// fetched from the same server, because the policy of the page permits nothing else.

const base = document.body.dataset.base; // the path under which the dashboard is mounted

// $ returns the first element that matches a query, and $$ all elements that match it.
const $ = (query, from = document) => from.querySelector(query);
const $$ = (query, from = document) => [...from.querySelectorAll(query)];

// make returns a new element.
const make = (tag, text, className) => {
  const e = document.createElement(tag);
  if (text) e.textContent = text;
  if (className) e.className = className;
  return e;
};

// fetchPage fetches the document at an address. It fails if the server does not answer.
const fetchPage = address => new Promise((done, failed) => {
  const request = new XMLHttpRequest();
  request.open('GET', address);
  request.responseType = 'document';
  request.timeout = 20_000;
  request.onload = () => done({page: request.response, status: request.status, at: request.responseURL});
  request.onerror = request.ontimeout = () => failed(new Error('the server does not answer'));
  request.send();
});

// ── The state of the page: polling, live, paused, lost ────────────────────────────────────────────

const dot = $('#live'); // the element that shows the state; a bare page has none
const silence = 20_000; // milliseconds without a message of the stream, after which pages are fetched instead
const broken = document.body.dataset.broken !== undefined; // the page is an error that may pass
let frozen = false; // whether the viewer has frozen the page
let lostSince = null; // since when the server does not answer, null if it does
let lastHeard = 0; // when the last message of the stream came, here or in the tab that leads

const {zone} = document.body.dataset; // the time zone of the page
const clock = at => `${at.toLocaleTimeString('en-GB', {timeZone: zone})} ${zone}`;

function setState(is, text = is) {
  if (!dot) return;
  if (frozen) [is, text] = ['paused', 'paused; press . to resume'];
  if (dot.dataset.is === is && dot.textContent === text) return;
  dot.dataset.is = is;
  dot.textContent = text;
}

function setLost() {
  lostSince ??= new Date();
  setState('lost', `lost since ${clock(lostSince)}`);
  showAway();
}

// setFound notes that the server answers. If it did not before, the page is fetched again at once.
function setFound() {
  if (!lostSince) return;
  lostSince = null;
  showAway();
  refreshSoon();
}

const setNotLost = () => setState(Date.now() - lastHeard < silence ? 'live' : 'polling');

// showAway shows a banner while the server or the storage does not answer, and makes all figures grey.
function showAway() {
  const banner = $('#away');
  if (!banner) return;
  let text = '';
  if (lostSince) text = `The server has not answered since ${clock(lostSince)}.`;
  else if (/^\d\d:/.test(cells.lost ?? '')) text = `The storage has not answered since ${cells.lost}.`;
  else if (cells.lost) text = `The storage does not answer: ${cells.lost}.`;
  banner.textContent = text && `${text} This page shows the state at that moment.`;
  banner.hidden = !text;
  document.body.toggleAttribute('data-away', !!text);
}

// ── Cells: texts by key, which the stream sends for the elements whose data-v names the key ───────

let cells = {}; // the present text of each cell
// The cells that the page watches, as they were when the server rendered it. If one changes, the page is
// fetched again.
let marks = JSON.parse(document.body.dataset.watch ?? '{}');
const calm = matchMedia('(prefers-reduced-motion: reduce)');

function setCell(key, text) {
  for (const e of $$(`[data-v="${CSS.escape(key)}"]`)) {
    if (e.textContent === text) continue;
    e.textContent = text;
    e.classList.toggle('zero', text === '0' || text === '–' || text.startsWith('0\u00a0'));
    if (/^[\d,]+$/.test(text)) e.title = e.title.replace(/^[\d,]+/, text); // what follows the number stays
    if (calm.matches) continue;
    e.classList.remove('changed');
    requestAnimationFrame(() => e.classList.add('changed'));
  }
}

// receive handles a message of the stream: all cells, or the cells that have changed. An empty text removes a
// cell.
function receive(kind, changes) {
  lastHeard = Date.now();
  const first = kind === 'all';
  const wasLost = document.body.hasAttribute('data-away'); // also if the server rendered the page so
  setFound();
  if (first) cells = changes;
  const moved = Object.keys(marks).some(key => (first || key in changes) && marks[key] !== (changes[key] ?? ''));
  for (const [key, text] of Object.entries(changes)) {
    if (text === '') delete cells[key]; else cells[key] = text;
  }
  if (cells.lost) setState('lost', `the storage has not answered since ${cells.lost}`);
  else setState('live');
  showAway();
  if (frozen) return;
  if (!cells.lost && (wasLost || broken)) refreshSoon();
  for (const [key, text] of Object.entries(changes)) if (text !== '') setCell(key, text);
  if (moved) refreshSoon();
}

// ── Parts: elements with a data-part, which are fetched again from the server ─────────────────────

const least = 900; // milliseconds between two fetches of the page
let refreshing = false;
let again = false; // refresh was called while it was running
let stale = false; // the last refresh did not fetch the page, or got no page
let soon = 0; // the timer of the next fetch
let refreshedAt = 0;

function refreshSoon() {
  if (soon || document.hidden) return;
  const wait = Math.max(0, least - (Date.now() - refreshedAt));
  soon = setTimeout(() => { soon = 0; refresh(); }, wait);
}

async function refresh() {
  if (refreshing) { again = true; return; }
  stale = true;
  if (frozen || $('dialog[open]')) return;
  refreshing = true;
  try {
    const {page, status} = await fetchPage(location.href);
    refreshedAt = Date.now();
    if (status < 500) setFound();
    stale = status >= 500 || !page; // a proxy may answer with a plain text
    if (broken && page && page.body.dataset.broken === undefined) { location.reload(); return; }
    // The subject of the page is gone, or the login has ended: the browser opens the page that shows so.
    if (!stale && $('[data-part]') && !$('[data-part]', page)) { location.reload(); return; }
    const watch = page?.body.dataset.watch;
    if (status < 400 && watch) marks = JSON.parse(watch);
    if (!stale) {
      for (const part of $$('[data-part]')) update(part, twin(part, page));
      for (const fresh of $$('[data-part]', page)) if (!twin(fresh)) place(fresh);
      updateButtons(page);
    }
    if (!frozen && !lostSince) setNotLost();
  } catch {
    setLost();
  } finally {
    refreshing = false;
    if (again) { again = false; refreshSoon(); }
  }
}

// twin finds the part with the name of another one, or the only element of its tag and class.
const twin = (e, from = document) => {
  const name = e.dataset.part;
  if (name) return $(`[data-part="${CSS.escape(name)}"]`, from);
  const all = e.className ? $$(e.tagName + [...e.classList].map(c => `.${CSS.escape(c)}`).join(''), from) : [];
  return all.length === 1 ? all[0] : null;
};

// place puts a part that the page does not have yet behind the element before it, or before the element behind it.
function place(fresh) {
  const before = fresh.previousElementSibling && twin(fresh.previousElementSibling);
  const behind = fresh.nextElementSibling && twin(fresh.nextElementSibling);
  if (!before && !behind) { location.reload(); return; }
  const nodes = document.importNode(fresh, true);
  if (before) before.after(nodes); else behind.before(nodes);
  enhance(nodes);
}

// updateButtons replaces the buttons beside the title, which depend on the state of the subject.
function updateButtons(page) {
  const all = from => $$('.head .actions > :not(#live)', from);
  const was = all(document), fresh = all(page);
  if (was.length === fresh.length && was.every((e, i) => e.isEqualNode(fresh[i]))) return;
  if (was.some(e => e.matches(':hover') || hasFocus(e))) { stale = true; return; }
  for (const e of was) e.remove();
  $('#live').before(...fresh.map(e => document.importNode(e, true)));
}

const hasFocus = part => part.contains(document.activeElement);
const inUse = part => part.matches(':hover') || hasFocus(part) && part !== document.activeElement;

// update replaces a part by a fresh one. A part in use is not replaced yet, and keeps the fresh one in its
// property fresh, unless the fresh one has data-end: what the part showed has ended. If it has also data-go, the
// browser opens that page.
function update(part, fresh) {
  if (!fresh) { // the page has no such part any more
    if (inUse(part)) stale = true; else part.remove();
    return;
  }
  if (fresh.dataset.go && part.dataset.end === undefined) { location.href = fresh.dataset.go; return; }
  keepOpen(part, fresh);
  if (part.isEqualNode(fresh)) { part.fresh = null; return; }
  if (part.dataset.rows !== undefined && holdRows(part, fresh)) return;
  if (inUse(part) && fresh.dataset.end === undefined) { part.fresh = fresh; return; }
  replace(part, fresh);
}

// replace replaces a part or a row by a fresh one, in which the current row stays the current one.
function replace(part, fresh) {
  const nodes = document.importNode(fresh, true);
  const on = $('tr.on [data-open]', part)?.getAttribute('href');
  if (on) $$('tr [data-open]', nodes).find(e => e.getAttribute('href') === on)?.closest('tr').classList.add('on');
  part.replaceWith(nodes);
  enhance(nodes);
}

// Nothing moves under the pointer: a fresh part waits until the pointer has left.
document.addEventListener('pointerout', event => {
  for (const part of $$('[data-part]')) {
    if (!part.fresh || part.contains(event.relatedTarget)) continue;
    const fresh = part.fresh;
    part.fresh = null;
    replace(part, fresh);
  }
});

// keepOpen opens the same details, and ticks the same boxes, in the fresh part as in the part on the page.
function keepOpen(part, fresh) {
  const was = $$('details', part), is = $$('details', fresh);
  if (was.length === is.length) was.forEach((e, i) => { is[i].open = e.open; });
  for (const box of $$('input[type=checkbox]:checked', part)) {
    const same = $(`input[type=checkbox][value="${CSS.escape(box.value)}"]`, fresh);
    if (!same) continue;
    same.checked = true;
    same.setAttribute('checked', ''); // a copy has the attribute, not the property
  }
}

// holdRows keeps new rows of a list behind a button, and updates the other rows. It returns false if the list
// has no rows, so that update replaces it.
function holdRows(part, fresh) {
  const keys = new Set($$('tr[data-key]', part).map(row => row.dataset.key));
  if (!keys.size) return false;
  const rows = $$('tr[data-key]', fresh);
  const news = rows.filter(row => !keys.has(row.dataset.key)).length;
  const there = new Map(rows.map(row => [row.dataset.key, row]));
  for (const row of $$('tr[data-key]', part)) {
    const now = there.get(row.dataset.key);
    row.classList.toggle('gone', !now);
    if (now && !row.isEqualNode(now) && !row.matches(':hover') && !hasFocus(row)) replace(row, now);
  }
  const button = $('#fresh');
  if (!button) return true;
  const gone = $$('tr.gone', part).length;
  button.hidden = !news && !gone;
  button.textContent = news ? `${news} new` : `${gone} gone`;
  button.onclick = () => { button.hidden = true; replace(part, fresh); };
  return true;
}

// ── The stream: one visible tab of a browser, the leader, opens it and passes it on ───────────────

const channel = new BroadcastChannel(`midge:${base}`);
const me = Math.random(); // of two leaders, the one with the larger number gives way
const started = Date.now();
let source = null; // the stream, if this tab leads
let leaderHeard = 0; // when another tab that leads was last heard

function openStream() {
  if (source || document.hidden) return;
  source = new EventSource(`${base}/events`);
  for (const kind of ['all', 'diff']) {
    source.addEventListener(kind, event => {
      const changes = JSON.parse(event.data);
      receive(kind, changes);
      channel.postMessage({me, kind, changes});
    });
  }
  source.onerror = () => {
    setLost();
    if (source?.readyState !== EventSource.CLOSED) return;
    closeStream();
    refreshSoon(); // the server refuses the stream, and perhaps the page too
  };
}

function closeStream() {
  source?.close();
  source = null;
}

// A message asks for all cells, tells that the leader has gone, or passes on a message of the stream.
channel.onmessage = ({data}) => {
  if (data.ask) {
    if (source && lastHeard) channel.postMessage({me, kind: 'all', changes: cells});
    return;
  }
  if (data.bye) {
    leaderHeard = 0;
    setTimeout(lead, Math.random() * 300);
    return;
  }
  if (document.hidden) return;
  if (source && data.me < me) closeStream();
  if (source) return;
  leaderHeard = Date.now();
  receive(data.kind, data.changes);
};

// lead opens the stream if no other visible tab has it.
function lead() {
  if (document.hidden || source || Date.now() - leaderHeard < 4000) return;
  openStream();
}

function resign() {
  if (!source) return;
  closeStream();
  channel.postMessage({bye: true});
}

// join asks the leader for all cells, and leads if there is no leader.
function join() {
  channel.postMessage({ask: true});
  setTimeout(lead, 60 + Math.random() * 60);
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) { resign(); return; }
  refresh();
  join();
});
addEventListener('pagehide', resign);

// While the stream is silent, the page is fetched instead.
setInterval(() => {
  if (document.hidden || !dot) return;
  if (!source) lead();
  if (broken || stale) { refresh(); return; }
  if (Date.now() - Math.max(lastHeard, started) <= silence) return;
  if (source?.readyState !== EventSource.OPEN) closeStream();
  refresh();
}, 5000);

// ── Dialogs: a link to a page with a question opens it above this page ────────────────────────────

const dialog = $('#dialog');

// ask shows the form of a page as a dialog. If the page has no form, because it refuses the action, the browser
// opens that page.
async function ask(address) {
  const {page, at} = await fetchPage(address);
  const form = page && $('.ask', page);
  if (!form) { location.href = at; return; }
  dialog.replaceChildren(document.importNode(form, true));
  enhance(dialog);
  if (!dialog.open) dialog.showModal();
  $('[data-back]', dialog)?.focus();
}

document.addEventListener('click', event => {
  const link = event.target.closest?.('a[data-ask]');
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    ask(link.href).catch(() => { location.href = link.href; });
  }
  if (dialog?.open && event.target.closest('[data-back]')) { event.preventDefault(); dialog.close(); }
  const save = event.target.closest?.('[data-save]');
  if (save) markSaved(save.closest('form'));
  const button = event.target.closest?.('[data-copy]');
  if (button) copy(button);
  if (event.target.closest?.('[data-keys]')) { event.preventDefault(); showKeys(); }
});

// copy copies a text to the clipboard. The data of the button has the text, the address of a file, or the id
// of an element.
async function copy(button) {
  const {text, from, copy: id} = button.dataset;
  try {
    await navigator.clipboard.writeText(text ?? (from ? await (await fetch(from)).text() : $(`#${id}`).textContent));
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Not copied';
  }
}

document.addEventListener('submit', event => {
  const form = event.target;
  if (form.matches('[data-ask-form]')) {
    event.preventDefault();
    askOfRows(form, event.submitter);
  }
  if (form.matches('[data-countdown]') && !form.dataset.sure) {
    event.preventDefault();
    if (form.dataset.counts === undefined) countDown(form);
  }
});

// markSaved marks a form whose tasks are being downloaded, so that it deletes no others.
function markSaved(form) {
  const saved = form.elements.saved ?? make('input');
  Object.assign(saved, {type: 'hidden', name: 'saved', value: '1'});
  form.append(saved);
}

// The command in a dialog has the flags that its form chooses, and the boxes of a list decide what its
// buttons do.
document.addEventListener('change', event => {
  const {form, name, checked, dataset} = event.target;
  if (dataset.selectPage !== undefined) for (const box of $$('[name=ref]', form)) box.checked = checked;
  updateActions();
  const command = ['rate', 'canary', 'from_start'].includes(name) && form?.matches('.ask') && $('.command code', form);
  if (!command) return;
  const {rate, canary, from_start: start} = form.elements;
  const flags = (Number(rate?.value) || canary?.checked ? ` --rate ${rate.value}` : '') + (canary?.checked ? ' --canary' : '') +
    (start?.checked ? ' --from-start' : '');
  command.textContent = command.textContent.replace(/^(midge task \w+)( --rate \d+)?( --canary)?( --from-start)?/, `$1${flags}`);
});

// askOfRows shows the dialog for the action of a button above a list: on the chosen rows or, without any, on
// the current row.
function askOfRows(form, button) {
  const query = new URLSearchParams(new FormData(form, button));
  if (!query.has('ref') && !query.has('all')) {
    const row = $('tr.on input[name=ref]');
    if (!row) return;
    query.append('ref', row.value);
  }
  ask(`${form.action}?${query}`).catch(setLost);
}

// countDown submits a form after five seconds, in which the user can still undo an action on many tasks. The form
// has data-counts meanwhile, so that the key Enter begins no second count.
function countDown(form) {
  const button = $('.buttons button', form), label = button.textContent;
  let left = 5;
  const show = () => { button.textContent = `Undo (${left} s)`; };
  const timer = setInterval(() => {
    left--;
    if (!form.isConnected) { clearInterval(timer); return; }
    if (left > 0) { show(); return; }
    clearInterval(timer);
    form.dataset.sure = '1';
    button.disabled = true; // nothing undoes the action from here on
    button.textContent = label;
    form.requestSubmit();
  }, 1000);
  show();
  form.dataset.counts = '';
  button.type = 'button';
  button.onclick = event => {
    event.preventDefault(); // it is the button that submits from here on
    clearInterval(timer);
    delete form.dataset.counts;
    Object.assign(button, {type: 'submit', onclick: null, textContent: label});
    dialog.close();
  };
}

// updateActions disables the buttons above a list while no task is selected, and no row is the current one.
function updateActions() {
  for (const form of $$('[data-ask-form]')) {
    const some = $('[name=ref]:checked, [name=all]:checked, tr.on', form);
    for (const button of $$('[name=do]', form)) button.disabled = !some || button.dataset.off !== undefined;
  }
}

// The event comes a moment after the dialog has closed: by then it may be open again.
dialog?.addEventListener('close', () => {
  if (dialog.open) return;
  dialog.replaceChildren();
  if (stale) refresh(); // nothing was fetched behind the dialog
});

// ── Keys ──────────────────────────────────────────────────────────────────────────────────────────

const keysOff = () => localStorage.getItem('midge:keys') === 'off';
let goUntil = 0; // until when the key after g opens a page

function toggleFrozen() {
  frozen = !frozen;
  if (frozen) { setState('paused'); return; }
  setNotLost();
  for (const [key, text] of Object.entries(cells)) setCell(key, text);
  refresh();
}

// stepRow makes the next or the previous row the current one.
function stepRow(step) {
  const rows = $$('tr').filter(row => $('[data-open]', row));
  if (!rows.length) return;
  const at = rows.findIndex(row => row.classList.contains('on'));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  rows[at]?.classList.remove('on');
  next.classList.add('on');
  $('[data-open]', next).focus({preventScroll: true});
  next.scrollIntoView({block: 'nearest'});
  updateActions();
}

// clickAction clicks on the element whose data-hotkey is a key, in the current row or else on the page.
const clickAction = key => ($(`tr.on [data-hotkey="${key}"]`) ?? $(`main [data-hotkey="${key}"]`))?.click();

const keyList = [
  ['/', 'go to the search'],
  ['g then o q t d s r m a', 'go to overview, queues, tasks, dead, schedules, runners, metrics, audit'],
  ['j k', 'go to the next or the previous row'],
  ['Enter', 'open the row'],
  ['x', 'select the row'],
  ['r c p', 'requeue, cancel, pause or resume'],
  ['.', 'pause/resume updates'],
  ['?', 'show this list'],
];

// showKeys shows the list of keys, and the box that switches them off.
function showKeys() {
  if (!dialog) return;
  const box = make('div', '', 'ask');
  const title = make('h2', 'Keys');
  title.id = 'dialog-title';
  const list = make('dl', '', 'facts');
  for (const [key, means] of keyList) {
    const dt = make('dt');
    dt.append(make('kbd', key));
    list.append(dt, make('dd', means));
  }
  const label = make('label', '', 'row');
  const off = make('input');
  off.type = 'checkbox';
  off.checked = keysOff();
  off.onchange = () => localStorage.setItem('midge:keys', off.checked ? 'off' : 'on');
  label.append(off, make('span', 'turn off all keys'));
  const buttons = make('div', '', 'buttons');
  const close = make('button', 'Back');
  close.dataset.back = '';
  buttons.append(close);
  box.append(title, list, label, buttons);
  dialog.replaceChildren(box);
  dialog.showModal();
  close.focus();
}

const keyActions = {
  '/': () => $('[data-key="/"]')?.focus(),
  'g': () => { goUntil = Date.now() + 1500; },
  'j': () => stepRow(1),
  'k': () => stepRow(-1),
  'x': () => $('tr.on input[type=checkbox]')?.click(),
  '.': toggleFrozen,
  '?': showKeys,
  'r': () => clickAction('r'),
  'c': () => clickAction('c'),
  'p': () => clickAction('p'),
};

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || keysOff() || dialog?.open) return;
  if (event.target.matches?.('input:not([type=checkbox]), textarea, select')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  const {key} = event;
  if (Date.now() < goUntil) {
    goUntil = 0;
    const to = $(`nav [data-go="${CSS.escape(key)}"]`);
    if (to) { event.preventDefault(); to.click(); }
    return;
  }
  if (Object.hasOwn(keyActions, key)) { event.preventDefault(); keyActions[key](); }
});

// ── Search: suggestions while a text is typed, in a combobox as WAI-ARIA defines it ───────────────

const field = $('[data-key="/"]');
const hits = $('#hits');
let typing = 0; // the timer of the next call
let call = null; // the AbortController of the current call

if (field) {
  field.setAttribute('role', 'combobox');
  field.setAttribute('aria-autocomplete', 'list');
  field.setAttribute('aria-controls', 'hits');
  field.setAttribute('aria-expanded', 'false');
  hits.setAttribute('role', 'listbox');
}

function closeHits() {
  clearTimeout(typing);
  call?.abort();
  hits.hidden = true;
  hits.replaceChildren();
  field.setAttribute('aria-expanded', 'false');
  field.removeAttribute('aria-activedescendant');
}

async function suggest() {
  const q = field.value.trim();
  call?.abort();
  if (!q) { closeHits(); return; }
  call = new AbortController();
  const address = `${base}/suggest?${new URLSearchParams({q})}`;
  const answer = await fetch(address, {headers: {Accept: 'application/json'}, signal: call.signal});
  if (!answer.ok) return;
  const found = await answer.json();
  if (field.value.trim() !== q) return; // the next call is about to begin
  closeHits();
  if (!found.length || document.activeElement !== field) return;
  hits.append(...found.map(hit));
  hits.hidden = false;
  field.setAttribute('aria-expanded', 'true');
  $('#hits-told').textContent = found.length === 1 ? '1 suggestion' : `${found.length} suggestions`;
}

function hit({what, label, url}, i) {
  const item = make('li');
  item.setAttribute('role', 'none');
  const link = make('a');
  link.href = url;
  link.id = `hit-${i}`;
  link.tabIndex = -1;
  link.setAttribute('role', 'option');
  link.setAttribute('aria-selected', 'false');
  link.append(make('span', label, 'one'), make('span', what === 'scan' ? '' : what, 'muted'));
  item.append(link);
  return item;
}

// chooseHit chooses the next or the previous hit. Before the first hit and after the last one, it chooses the
// typed text.
function chooseHit(step) {
  const all = $$('a', hits);
  const at = all.findIndex(e => e.ariaSelected === 'true');
  const to = at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step;
  all[at]?.setAttribute('aria-selected', 'false');
  const next = all[to];
  if (!next) { field.removeAttribute('aria-activedescendant'); return; }
  next.setAttribute('aria-selected', 'true');
  next.scrollIntoView({block: 'nearest'});
  field.setAttribute('aria-activedescendant', next.id);
}

field?.addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(() => suggest().catch(() => {}), 120);
});
field?.addEventListener('keydown', event => {
  if (hits.hidden) return;
  if (event.key === 'ArrowDown') { event.preventDefault(); chooseHit(1); }
  if (event.key === 'ArrowUp') { event.preventDefault(); chooseHit(-1); }
  if (event.key === 'Escape') { event.preventDefault(); event.stopPropagation(); closeHits(); }
  const chosen = $('[aria-selected=true]', hits);
  if (event.key === 'Enter' && chosen) { event.preventDefault(); location.href = chosen.href; }
});
hits?.addEventListener('pointerdown', event => event.preventDefault()); // the focus stays in the field
field?.addEventListener('blur', closeHits);

// ── A scan of tasks that a viewer asked for goes on by itself until it has found a page ───────────

async function continueScan() {
  const part = $('[data-rows]');
  if (!part) return;
  const bar = $('progress', part), stop = $('[data-stop]', part);
  if (!bar || !new URLSearchParams(location.search).has('scan')) return;
  delete part.dataset.part; // a refresh would remove the rows that the scan finds
  let going = true;
  stop.hidden = bar.hidden = false;
  stop.onclick = () => { going = false; };
  while (going) {
    const next = $('.pager [rel=next], .empty a[href*="after="]', part);
    if (!next || $$('tbody tr', part).length >= 50) break;
    const {page} = await fetchPage(next.href);
    const fresh = page && $('[data-rows]', page);
    if (!fresh) break;
    addFound(part, fresh);
    const far = $('progress', fresh);
    if (far) [bar.max, bar.value] = [far.max, far.value];
  }
  stop.hidden = bar.hidden = true;
}

// addFound adds the rows of the next page of a scan, and its pager, which shows how far the scan has come.
function addFound(part, fresh) {
  const rows = $$('tbody tr', fresh), body = $('tbody', part);
  if (body) body.append(...rows.map(row => document.importNode(row, true)));
  else $('.empty, table', part)?.replaceWith(document.importNode($('.empty, table', fresh), true));
  $('.pager', part)?.remove();
  if ($('.pager', fresh)) part.append(document.importNode($('.pager', fresh), true));
}

// ── Controls and charts that need this module ─────────────────────────────────────────────────────

// enhance shows the controls of a part that need this module, and adds tips to its charts.
function enhance(part) {
  for (const e of $$('[data-copy], [data-keys], [data-needs-script]', part)) e.hidden = false;
  updateActions();
  for (const e of $$('[data-local]', part)) { // only the browser knows the zone of its viewer
    e.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
    e.hidden = e.value === 'UTC';
  }
  for (const plot of $$('[data-plot]', part)) addTip(plot);
}

// addTip shows the values of a chart under the pointer, from the table beside it.
function addTip(plot) {
  const rows = $$('tbody tr', plot.closest('.card')).reverse(); // the table begins with the newest
  if (!rows.length) return;
  plot.onpointermove = event => {
    const box = plot.getBoundingClientRect();
    const i = Math.min(rows.length - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * rows.length)));
    let cross = $('.cross', plot), tip = $('.tip', plot);
    if (!cross) {
      cross = make('div', '', 'cross');
      tip = make('div', '', 'tip');
      plot.append(cross, tip);
    }
    const x = (i + .5) / rows.length * box.width;
    cross.style.left = `${Math.round(x)}px`;
    tip.textContent = tipOf(rows, i);
    tip.style.left = `${Math.round(Math.min(x + 8, Math.max(0, box.width - tip.offsetWidth)))}px`;
  };
  plot.onpointerleave = () => { $('.cross', plot)?.remove(); $('.tip', plot)?.remove(); };
}

// tipOf returns the values of a row of the table in words.
function tipOf(rows, i) {
  const [at, done, failed, deployed] = [...rows[i].cells].map(cell => cell.textContent);
  const values = done === '–' ? `${at}: no data` : `${at}: ${done} done, ${failed} failed`;
  if (deployed === undefined) return values;
  // The tick of a deploy is narrow, so the tips of the points beside it name the deploy, too.
  const near = [i, i - 1, i + 1].map(j => rows[j]?.cells[3].textContent).find(Boolean);
  return near ? `${values}, ${near} deployed` : values;
}

// The choice of a theme takes effect at once, and the server keeps it.
$('[data-theme-form]')?.addEventListener('submit', event => {
  event.preventDefault();
  const theme = event.submitter.value;
  fetch(event.target.action, {method: 'POST', body: new URLSearchParams({theme}), redirect: 'manual'});
  const root = document.documentElement;
  if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
  for (const b of $$('button', event.target)) b.setAttribute('aria-pressed', b.value === theme);
});

enhance(document);
continueScan().catch(setLost);
if (dot) { setState('polling', 'connecting'); join(); }
