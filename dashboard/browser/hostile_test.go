package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// hostile are texts that become elements, or run as scripts, if a page does not escape them.
var hostile = func() (texts []string) {
	for _, tag := range []string{"script", "img", "svg", "iframe", "object", "math", "details", "form", "base", "style", "a", "input", "x-y"} {
		for _, wrap := range []string{
			"<%s xss7=1 src=x onerror=alert(1)>", "\"><%s xss7 onload=alert(1)>", "'><%s xss7 onfocus=alert(1) autofocus>", "</textarea></title></pre><%s xss7>",
			"</script><%s xss7>", "--><%s/xss7/onclick=alert(1)//", "<<%s\nxss7\n>",
		} {
			texts = append(texts, fmt.Sprintf(wrap, tag))
		}
	}
	return append(texts, `" onmouseover="alert('xss7')" x="`, "javascript:alert('xss7')", "{{.}}<b xss7>", "&lt;b xss7&gt;", "\u2028<b xss7>", "\u202e<b xss7>", "${alert('xss7')}<b xss7>")
}()

// foreign finds elements and handlers that no page of the dashboard has.
const foreign = `[...document.querySelectorAll('*')].filter(e => e.localName.includes('xss7') ||
	['iframe', 'object', 'embed', 'math', 'base', 'style', 'x-y', 'img'].includes(e.localName) ||
	[...e.attributes].some(a => a.name.includes('xss7') || a.name.startsWith('on')) ||
	e.localName === 'a' && e.href && !/^https?:/.test(e.protocol ?? e.href.baseVal ?? 'http:') && !e.closest('svg')).map(e => e.outerHTML.slice(0, 200))`

// clean fails the test if the page has an element or a handler that comes from a hostile text.
func (tb *tab) clean(where string) {
	tb.t.Helper()
	for _, found := range eval[[]string](tb, foreign) {
		tb.t.Errorf("%s has %s", where, found)
	}
}

// poisoned adds a task for each text, with the text in each of its parts that may have it, and runners with
// some of the texts.
func poisoned(t *testing.T, r *rig) {
	t.Helper()
	err := r.Add(t.Context(), "evil", "evil", len(hostile), func(i int, in *storage.Insert) {
		in.Ref.ID, in.MaxRetries = fmt.Sprintf("evil-%03d", i), 0
		in.Payload, _ = json.Marshal(map[string]string{hostile[i]: hostile[i]})
		in.Headers = map[string]string{"h": hostile[i]}
	})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(hostile, "\n")
	err = r.End(t.Context(), "evil", len(hostile), func(i int, _ storage.Task, st *storage.Settle) {
		st.Outcome, st.Error, st.Stack, st.Reason = storage.Bury, hostile[i], all, storage.CleanText(hostile[i], storage.MaxReason)
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range hostile[:20] {
		info := storage.RunnerInfo{ID: fmt.Sprintf("evil-%d", i), Host: strings.ReplaceAll(text, "\n", " "), Version: "v1", Queues: []string{"evil"}, Concurrency: 1, For: time.Hour}
		if _, err := r.Session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatOthersWroteStaysText(t *testing.T) {
	t.Parallel()
	r := newRig(t, "calm")
	poisoned(t, r)
	tb := r.tab("/", "light")
	if found := eval[[]string](tb, `(document.body.append(document.createElement('x-y')), `+foreign+`)`); len(found) != 1 {
		t.Errorf("of one foreign element the test finds %q", found)
	}
	for _, path := range []string{
		"/", "/dead", "/queues/evil", "/tasks?queue=evil&state=dead", "/r/evil/evil-003", "/edit?ref=evil/evil-004", "/action?do=requeue&all=1&queue=evil&state=dead",
		"/runners", "/runners/evil-7", "/schedules", "/audit", "/metrics", "/search?q=evil",
	} {
		tb.open(path, "light", 1440)
		tb.sees(`!document.querySelector('#live') || document.querySelector('#live').dataset.is === 'live'`)
		tb.clean(path)
	}
	// The script of the dashboard also writes into pages: suggestions, dialogs, new rows, and typed text.
	tb.open("/tasks?queue=evil&state=dead", "light", 1440)
	tb.live()
	const put = `(text => { const e = document.querySelector('[data-key="/"]'); e.focus(); e.value = text; e.dispatchEvent(new Event('input')); return true; })(%q)`
	for _, text := range []string{"xss7", "<script xss7", "onerror", hostile[2]} {
		eval[bool](tb, fmt.Sprintf(put, text))
		tb.sees(fmt.Sprintf(`document.querySelector('#hits a:last-of-type')?.closest('ul').textContent.includes(%q)`, text))
		tb.clean("suggestions for " + text)
	}
	eval[bool](tb, `document.activeElement.blur(), document.querySelector('tbody input[name=ref]').click(), true`)
	tb.click("button[value=requeue]")
	tb.sees(`document.querySelector('dialog[open] .samples li')`)
	tb.clean("a dialog")
	for _, text := range hostile[:12] {
		q := url.QueryEscape(text)
		for _, path := range []string{"/tasks?filter=" + q, "/search?q=" + q, "/queues?name=" + q, "/queues/evil/add?kind=" + q} {
			tb.open(path, "dark", 1440)
			tb.clean(path)
		}
	}
}

func TestAnotherSiteChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, "night")
	forms := []string{"/action", "/edit", "/queues/mail/add", "/preferences"}
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<form method="post" action="http://%s%s" enctype="%s"><input name="do" value="pause"><input name="queue" value="mail"><input name="theme" value="dark">
			<input name="kind" value="k"><input name="params" value="{}"></form><script>document.forms[0].submit()</script>`, r.addr, req.URL.Query().Get("to"), req.URL.Query().Get("as"))
	}))
	defer evil.Close()
	tb := r.tab("/", "light")
	tb.hush(true) // the tab opens another site, and the browser logs each refusal
	for _, to := range forms {
		for _, as := range []string{"application/x-www-form-urlencoded", "text/plain", "multipart/form-data"} {
			tb.visit(evil.URL + "/?to=" + url.QueryEscape(to) + "&as=" + url.QueryEscape(as))
			tb.sees(fmt.Sprintf(`location.host === %q && document.title.startsWith('Forbidden')`, r.addr))
		}
	}
	stats, err := r.Store.Stats(t.Context(), "mail")
	if err != nil || stats[0].Paused {
		t.Errorf("another site has paused a queue: %t, %v", stats[0].Paused, err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Origin", evil.URL)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another site may read pages: %q, %v", answer.Header.Get("Access-Control-Allow-Origin"), err)
	}
}
