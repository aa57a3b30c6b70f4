// The dashboard's one module: it keeps pages live and adds keys. Every page works without it.
// Texts reach the page as text nodes alone, and markup as nodes of a document that the browser fetched
// from this very server: the policy of the page permits nothing else.

const base = document.body.dataset.base;
const $ = (query, from = document) => from.querySelector(query);
const $$ = (query, from = document) => [...from.querySelectorAll(query)];
const make = (tag, text, className) => {
  const e = document.createElement(tag);
  if (text) e.textContent = text;
  if (className) e.className = className;
  return e;
};

// fetchPage reads an address as a document.
const fetchPage = (address, options = {}) => new Promise((done, failed) => {
  const call = new XMLHttpRequest();
  call.open(options.method ?? 'GET', address);
  call.responseType = 'document';
  call.timeout = 20_000;
  call.onload = () => done({page: call.response, status: call.status, at: call.responseURL});
  call.onerror = call.ontimeout = () => failed(new Error('the server does not answer'));
  call.send(options.body ?? null);
});

// ── The state of the page: live, polling, paused, lost ────────────────────────────────────────────

const dot = $('#live');
let frozen = false;
let lostSince = null;
const clock = (at = new Date()) => at.toISOString().slice(11, 19);

function show(is, text = is) {
  if (!dot) return;
  if (frozen) [is, text] = ['paused', 'paused; press . to go on'];
  if (dot.dataset.is === is && dot.textContent === text) return;
  dot.dataset.is = is;
  dot.textContent = text;
}

// ── Cells ─────────────────────────────────────────────────────────────────────────────────────────

let cells = {};
const calm = matchMedia('(prefers-reduced-motion: reduce)');

function put(key, text) {
  for (const e of $$(`[data-v="${CSS.escape(key)}"]`)) {
    if (e.textContent === text) continue;
    e.textContent = text;
    e.classList.toggle('zero', text === '0' || text === '–' || text.startsWith('0\u00a0'));
    if (e.title && /^[\d,]+$/.test(text)) e.title = text;
    if (calm.matches) continue;
    e.classList.remove('changed');
    requestAnimationFrame(() => e.classList.add('changed'));
  }
}

const watched = (document.body.dataset.watch ?? '').split(' ').filter(Boolean);

function take(kind, changes) {
  lastHeard = Date.now();
  const first = kind === 'all';
  if (first) cells = changes;
  const moved = watched.some(key => key in changes && (first ? marks[key] !== undefined && marks[key] !== changes[key] : true));
  for (const [key, text] of Object.entries(changes)) {
    if (text === '') delete cells[key]; else cells[key] = text;
    if (watched.includes(key)) marks[key] = text;
  }
  if (cells.lost) show('lost', `the storage is lost since ${cells.lost}`);
  else show('live');
  if (frozen) return;
  for (const [key, text] of Object.entries(changes)) if (text !== '') put(key, text);
  if (moved) refreshSoon();
}
const marks = {};
let lastHeard = 0;

// ── Parts: what more than cells changes of is read anew from the server ───────────────────────────

let refreshing = false;
let again = false;
let soon = 0;
const least = 900; // milliseconds between two readings

function refreshSoon() {
  if (soon || document.hidden) return;
  const wait = Math.max(0, least - (Date.now() - refreshedAt));
  soon = setTimeout(() => { soon = 0; refresh(); }, wait);
}
let refreshedAt = 0;

async function refresh() {
  if (refreshing) { again = true; return; }
  if (frozen || $('dialog[open]')) return;
  refreshing = true;
  try {
    const {page, status} = await fetchPage(location.href);
    refreshedAt = Date.now();
    if (status < 500 && page) for (const part of $$('[data-part]')) swap(part, $(`[data-part="${CSS.escape(part.dataset.part)}"]`, page));
    if (!frozen && !lostSince) rest();
  } catch {
    lost();
  } finally {
    refreshing = false;
    if (again) { again = false; refreshSoon(); }
  }
}

const busy = part => part.matches(':hover') && part.dataset.hold !== undefined || part.contains(document.activeElement) && part !== document.activeElement;

function swap(part, fresh) {
  if (!fresh) return;
  keepOpen(part, fresh);
  if (part.isEqualNode(fresh)) { part.fresh = null; return; }
  if (part.dataset.rows !== undefined && holdRows(part, fresh)) return;
  if (busy(part) || part.matches(':hover')) { part.fresh = fresh; return; }
  place(part, fresh);
}

function place(part, fresh) {
  const nodes = document.importNode(fresh, true);
  part.replaceWith(nodes);
  arrive(nodes);
}

// Under the pointer nothing moves: what is new waits until the pointer has left.
document.addEventListener('pointerout', event => {
  for (const part of $$('[data-part]')) {
    if (part.fresh && !part.contains(event.relatedTarget)) { const fresh = part.fresh; part.fresh = null; place(part, fresh); }
  }
});

// What a viewer has unfolded or ticked stays so.
function keepOpen(part, fresh) {
  const was = $$('details', part), is = $$('details', fresh);
  if (was.length === is.length) was.forEach((e, i) => { is[i].open = e.open; });
  for (const box of $$('input[type=checkbox]:checked', part)) {
    const same = $(`input[type=checkbox][value="${CSS.escape(box.value)}"]`, fresh);
    if (same) same.checked = true, same.setAttribute('checked', '');
  }
}

// holdRows keeps new rows of a list behind a button, and takes over what changed in the others.
function holdRows(part, fresh) {
  const keys = new Set($$('tr[data-key]', part).map(row => row.dataset.key));
  const rows = $$('tr[data-key]', fresh);
  const news = rows.filter(row => !keys.has(row.dataset.key)).length;
  const there = new Map(rows.map(row => [row.dataset.key, row]));
  if (!keys.size) return false;
  for (const row of $$('tr[data-key]', part)) {
    const now = there.get(row.dataset.key);
    row.classList.toggle('gone', !now);
    if (now && !row.isEqualNode(now) && !row.matches(':hover') && !row.contains(document.activeElement)) {
      const node = document.importNode(now, true);
      row.replaceWith(node);
      arrive(node);
    }
  }
  const button = $('#fresh');
  if (!button) return true;
  const gone = $$('tr.gone', part).length;
  button.hidden = !news && !gone;
  button.textContent = news ? `${news} new` : `${gone} gone`;
  button.onclick = () => { button.hidden = true; place(part, fresh); };
  return true;
}

// ── The stream, shared by all visible tabs of a browser ───────────────────────────────────────────

const channel = new BroadcastChannel(`midge:${base}`);
const me = Math.random();
let source = null;
let leader = 0; // when a leader was last heard

function open() {
  if (source || document.hidden) return;
  source = new EventSource(`${base}/events`);
  for (const kind of ['all', 'diff']) {
    source.addEventListener(kind, event => {
      lostSince = null;
      const changes = JSON.parse(event.data);
      take(kind, changes);
      channel.postMessage({me, kind, changes});
    });
  }
  source.onerror = () => { lost(); if (source?.readyState === EventSource.CLOSED) close(); };
}

function close() {
  source?.close();
  source = null;
}

function lost() {
  lostSince ??= new Date();
  show('lost', `lost since ${clock(lostSince)} UTC`);
}

const rest = () => show(Date.now() - lastHeard < 20_000 ? 'live' : 'polling');

channel.onmessage = ({data}) => {
  if (data.ask) { if (source && lastHeard) channel.postMessage({me, kind: 'all', changes: cells}); return; }
  if (data.bye) { leader = 0; setTimeout(lead, Math.random() * 300); return; }
  if (document.hidden) return;
  if (source && data.me < me) close(); // two lead: one gives way
  if (source) return;
  leader = Date.now();
  lostSince = null;
  take(data.kind, data.changes);
};

// lead opens the stream where no other visible tab has it.
function lead() {
  if (document.hidden || source || Date.now() - leader < 4000) return;
  open();
}

function resign() {
  if (source) { close(); channel.postMessage({bye: true}); }
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) { resign(); return; }
  refresh();
  begin();
});
addEventListener('pagehide', resign);

function begin() {
  channel.postMessage({ask: true});
  setTimeout(lead, 60 + Math.random() * 60);
}

// After 20 seconds of silence pages are fetched instead.
setInterval(() => {
  if (document.hidden || !dot) return;
  if (!source) lead();
  if (Date.now() - Math.max(lastHeard, started) > 20_000) { if (source?.readyState !== EventSource.OPEN) { close(); } refresh(); }
}, 5000);
const started = Date.now();

// ── Dialogs: a link to a page that asks opens it above this one ───────────────────────────────────

const dialog = $('#dialog');

async function ask(address, body) {
  const {page, at} = await fetchPage(address, body);
  const form = page && $('.ask', page);
  if (!form) { location.href = at; return; }
  dialog.replaceChildren(document.importNode(form, true));
  arrive(dialog);
  if (!dialog.open) dialog.showModal();
  $('[data-cancel]', dialog)?.focus();
}

document.addEventListener('click', event => {
  const link = event.target.closest?.('a[data-ask]');
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    ask(link.href).catch(() => { location.href = link.href; });
  }
  if (dialog?.open && event.target.closest('[data-cancel]')) { event.preventDefault(); dialog.close(); }
  const copy = event.target.closest?.('[data-copy]');
  if (copy) copied(copy).then(text => navigator.clipboard.writeText(text)).then(() => { copy.textContent = 'Copied'; }).catch(() => { copy.textContent = 'Not copied'; });
  if (event.target.closest?.('[data-keys]')) { event.preventDefault(); help(); }
});

// copied gives what a button copies: a text of its own, a file of the server, or what an element shows.
const copied = async ({dataset}) => dataset.text ?? (dataset.from ? (await fetch(dataset.from)).text() : $(`#${dataset.copy}`).textContent);

document.addEventListener('submit', event => {
  const form = event.target;
  if (form.matches('[data-ask-form]')) {
    event.preventDefault();
    const query = new URLSearchParams(new FormData(form, event.submitter));
    if (!query.has('ref') && !query.has('all')) {
      const row = $('tr.on input[name=ref]') ;
      if (!row) { tell('Choose tasks first, or all that match.'); return; }
      query.append('ref', row.value);
    }
    ask(`${form.action}?${query}`).catch(lost);
  }
  // Many deletes wait five seconds for second thoughts.
  if (form.matches('[data-countdown]') && !form.dataset.sure) {
    event.preventDefault();
    const buttons = $('.buttons', form);
    const go = $('button', buttons);
    let left = 5;
    const say = () => { go.textContent = `Undo (${left} s)`; };
    const stop = () => { clearInterval(timer); dialog.close(); };
    const timer = setInterval(() => {
      left--;
      if (!form.isConnected) { clearInterval(timer); return; }
      if (left > 0) { say(); return; }
      clearInterval(timer);
      form.dataset.sure = '1';
      form.requestSubmit();
    }, 1000);
    say();
    go.type = 'button';
    go.onclick = stop;
  }
});

// tell shows a sentence above the page's content.
function tell(text) {
  let note = $('#told');
  if (!note) { note = make('p', '', 'notice bad'); note.id = 'told'; note.setAttribute('role', 'status'); $('main .head').after(note); }
  note.textContent = text;
}

// The event comes a moment after the dialog has closed: by then it may be open again.
dialog?.addEventListener('close', () => { if (!dialog.open) dialog.replaceChildren(); });

// ── Keys ──────────────────────────────────────────────────────────────────────────────────────────

const keysOff = () => localStorage.getItem('midge:keys') === 'off';
let going = 0;

function freeze() {
  frozen = !frozen;
  if (frozen) show('paused'); else { rest(); for (const [key, text] of Object.entries(cells)) put(key, text); refresh(); }
}

function rowStep(step) {
  const rows = $$('tr').filter(row => $('[data-open]', row));
  if (!rows.length) return;
  const at = rows.findIndex(row => row.classList.contains('on'));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  rows[at]?.classList.remove('on');
  next.classList.add('on');
  $('[data-open]', next).focus({preventScroll: true});
  next.scrollIntoView({block: 'nearest'});
}

const keyList = [
  ['/', 'search'], ['g then o q t d s r m a', 'overview, queues, tasks, dead, schedules, runners, metrics, audit'], ['j k', 'next and previous row'],
  ['Enter', 'open the row'], ['x', 'choose the row'], ['r c p', 'requeue, cancel, pause'], ['.', 'freeze and go on'], ['?', 'this list'],
];

function help() {
  if (!dialog) return;
  const box = make('div', '', 'ask');
  const title = make('h2', 'Keys');
  title.id = 'dialog-title';
  const list = make('dl', '', 'facts');
  for (const [key, means] of keyList) { const dt = make('dt'); dt.append(make('kbd', key)); list.append(dt, make('dd', means)); }
  const label = make('label', '', 'row');
  const off = make('input');
  off.type = 'checkbox';
  off.checked = keysOff();
  off.onchange = () => localStorage.setItem('midge:keys', off.checked ? 'off' : 'on');
  label.append(off, make('span', 'switch all keys off'));
  const buttons = make('div', '', 'buttons');
  const done = make('button', 'Close');
  done.dataset.cancel = '';
  buttons.append(done);
  box.append(title, list, label, buttons);
  dialog.replaceChildren(box);
  dialog.showModal();
  done.focus();
}

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || keysOff() || dialog?.open) return;
  if (event.target.matches?.('input:not([type=checkbox]), textarea, select')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  const {key} = event;
  if (Date.now() < going) {
    going = 0;
    const to = $(`nav [data-go="${CSS.escape(key)}"]`);
    if (to) { event.preventDefault(); to.click(); }
    return;
  }
  const acts = {
    '/': () => $('[data-key="/"]')?.focus(),
    'g': () => { going = Date.now() + 1500; },
    'j': () => rowStep(1),
    'k': () => rowStep(-1),
    'x': () => $('tr.on input[type=checkbox]')?.click(),
    '.': freeze,
    '?': help,
    'r': () => act('r'), 'c': () => act('c'), 'p': () => act('p'),
  };
  if (key in acts) { event.preventDefault(); acts[key](); }
});

const act = key => ($(`tr.on [data-act="${key}"]`) ?? $(`main [data-act="${key}"]`))?.click();

// ── Search: what a text names, while it is typed; a combobox as WAI-ARIA has it ────────────────────

const field = $('[data-key="/"]');
const hits = $('#hits');
let typing = 0;
let asked = null; // the call that is under way

if (field) {
  for (const [name, value] of [['role', 'combobox'], ['aria-autocomplete', 'list'], ['aria-controls', 'hits'], ['aria-expanded', 'false']]) field.setAttribute(name, value);
  hits.setAttribute('role', 'listbox');
}

function closeHits() {
  clearTimeout(typing);
  asked?.abort();
  hits.hidden = true;
  hits.replaceChildren();
  field.setAttribute('aria-expanded', 'false');
  field.removeAttribute('aria-activedescendant');
}

async function suggest() {
  const q = field.value.trim();
  asked?.abort();
  if (!q) { closeHits(); return; }
  asked = new AbortController();
  const answer = await fetch(`${base}/suggest?${new URLSearchParams({q})}`, {headers: {Accept: 'application/json'}, signal: asked.signal});
  if (!answer.ok) return;
  const found = await answer.json();
  closeHits();
  if (!found.length || document.activeElement !== field) return;
  for (const [i, {what, label, url}] of found.entries()) {
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
    hits.append(item);
  }
  hits.hidden = false;
  field.setAttribute('aria-expanded', 'true');
  $('#hits-told').textContent = `${found.length} suggestions`;
}

function chooseHit(step) {
  const all = $$('a', hits);
  const at = all.findIndex(e => e.ariaSelected === 'true');
  const to = at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step;
  all[at]?.setAttribute('aria-selected', 'false');
  const next = all[to];
  if (!next) { field.removeAttribute('aria-activedescendant'); return; } // before the first and behind the last is the text itself
  next.setAttribute('aria-selected', 'true');
  next.scrollIntoView({block: 'nearest'});
  field.setAttribute('aria-activedescendant', next.id);
}

field?.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => suggest().catch(() => {}), 120); });
field?.addEventListener('keydown', event => {
  if (hits.hidden) return;
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') { event.preventDefault(); chooseHit(event.key === 'ArrowDown' ? 1 : -1); }
  if (event.key === 'Escape') { event.preventDefault(); event.stopPropagation(); closeHits(); }
  const chosen = $('[aria-selected=true]', hits);
  if (event.key === 'Enter' && chosen) { event.preventDefault(); location.href = chosen.href; }
});
hits?.addEventListener('pointerdown', event => event.preventDefault()); // the focus stays in the field
field?.addEventListener('blur', closeHits);

// ── A scan of tasks goes on by itself, where a viewer asked for it, until it has found a page ─────

async function scanOn() {
  const part = $('[data-rows]');
  if (!part) return;
  const bar = $('progress', part), stop = $('[data-stop]', part);
  if (!bar || !new URLSearchParams(location.search).has('scan')) return;
  delete part.dataset.part; // what the scan finds stays
  let going = true;
  stop.hidden = bar.hidden = false;
  stop.onclick = () => { going = false; };
  while (going) {
    const next = $('.pager [rel=next], .empty a[href*="after="]', part);
    if (!next || $$('tbody tr', part).length >= 50) break;
    const {page} = await fetchPage(next.href);
    const fresh = page && $('[data-rows]', page);
    if (!fresh) break;
    const rows = $$('tbody tr', fresh), body = $('tbody', part);
    if (body) body.append(...rows.map(row => document.importNode(row, true)));
    else $('.empty, table', part)?.replaceWith(document.importNode($('.empty, table', fresh), true));
    $('.pager', part)?.remove();
    if ($('.pager', fresh)) part.append(document.importNode($('.pager', fresh), true));
    $('[data-far]', part).textContent = $('[data-far]', fresh).textContent;
    const far = $('progress', fresh);
    if (far) [bar.max, bar.value] = [far.max, far.value];
  }
  stop.hidden = bar.hidden = true;
}
scanOn().catch(lost);

// ── What a page has when it arrives ───────────────────────────────────────────────────────────────

function arrive(part) {
  for (const e of $$('[data-copy], [data-keys]', part)) e.hidden = false;
  for (const plot of $$('[data-plot]', part)) hover(plot);
}

// hover tells the values of a chart under the pointer, from the table beside it.
function hover(plot) {
  const rows = $$('tbody tr', plot.closest('.card')).reverse();
  if (!rows.length) return;
  plot.onpointermove = event => {
    const box = plot.getBoundingClientRect();
    const i = Math.min(rows.length - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * rows.length)));
    let cross = $('.cross', plot), tip = $('.tip', plot);
    if (!cross) { cross = make('div', '', 'cross'); tip = make('div', '', 'tip'); plot.append(cross, tip); }
    const x = (i + .5) / rows.length * box.width;
    cross.style.left = `${Math.round(x)}px`;
    const [at, done, failed, deployed] = [...rows[i].cells].map(cell => cell.textContent);
    tip.textContent = done === '–' ? `${at}: not known` : `${at}: ${done} done, ${failed} failed`;
    // A tick of a deploy is narrow: the points beside it tell of it, too.
    const near = deployed === undefined ? '' : [i, i - 1, i + 1].map(j => rows[j]?.cells[3].textContent).find(Boolean);
    if (deployed || near) tip.textContent += `, ${deployed || near} deployed`;
    tip.style.left = `${Math.round(Math.min(x + 8, Math.max(0, box.width - tip.offsetWidth)))}px`;
  };
  plot.onpointerleave = () => { $('.cross', plot)?.remove(); $('.tip', plot)?.remove(); };
}

$('[data-theme-form]')?.addEventListener('submit', event => {
  event.preventDefault();
  const theme = event.submitter.value;
  fetch(event.target.action, {method: 'POST', body: new URLSearchParams({theme}), redirect: 'manual'});
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  for (const b of $$('button', event.target)) b.setAttribute('aria-pressed', b.value === theme);
});

arrive(document);
if (dot) { show('polling', 'connecting'); begin(); }
