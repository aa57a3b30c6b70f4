package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// corpus returns the texts that an attacker, or an accident, may write into a text that pages show. Each text
// contains xss7, by which a test finds markup that came from it.
func corpus() (texts []string) {
	for _, tag := range []string{"script", "img", "svg", "iframe", "object", "embed", "math", "details", "form", "base", "link", "meta", "style", "a", "button", "input", "video", "x-y"} {
		for _, wrap := range []string{
			"<%s xss7=1>", "\"><%s xss7=1>", "'><%s xss7=1 onerror=alert(1)>", "</pre></textarea></title><%s xss7 src=x onerror=alert(1)>",
			"</q></span><%s/xss7/onload=alert(1)//", "<<%s xss7>", "<%s\nxss7\n=1>", "]]><%s xss7>", "--><%s xss7>", "\\u003c%s xss7\\u003e<%[1]s xss7>",
		} {
			texts = append(texts, fmt.Sprintf(wrap, tag))
		}
	}
	return append(texts,
		"\" onmouseover=\"alert('xss7')\" x=\"", "' autofocus onfocus=alert(/xss7/) '", "javascript:alert('xss7')", "{{.}} xss7 {{template \"main\" .}}",
		"\x00<b xss7>", "\u2028<b xss7>", "\u202e<b xss7>", "\xff\xfe<b xss7>", "&lt;b xss7&gt;<b xss7>", "<!--<b xss7>", "%3Cb xss7%3E", "`${alert('xss7')}`",
		strings.Repeat("<b xss7>", 500), "<b xss7", "data:text/html,<b xss7>", "</script><b xss7>", "<![CDATA[<b xss7>]]>", "+ADw-b xss7+AD4-", "\ufeff<b xss7>", "<b\u00a0xss7>",
	)
}

// clean fails the test if a page has markup that came from the corpus.
func clean(t *testing.T, path, page string) {
	t.Helper()
	if tag := foreign(page); tag != "" {
		t.Errorf("GET %.80s: the page has the tag %.120q", path, tag)
	}
}

// foreign returns the first tag of a page that came from the corpus, "" if there is none.
func foreign(page string) string {
	for rest := page; ; {
		open := strings.IndexByte(rest, '<')
		if open < 0 {
			return ""
		}
		rest = rest[open:]
		end := strings.IndexByte(rest, '>')
		if end < 0 {
			end = len(rest) - 1
		}
		tag, inValue := rest[:end+1], false
		var bare strings.Builder // the tag without the values of its attributes
		for i := range len(tag) {
			switch {
			case tag[i] == '"':
				inValue = !inValue
			case !inValue:
				bare.WriteByte(tag[i])
			}
		}
		if strings.Contains(bare.String(), "xss7") || strings.Contains(bare.String(), " on") {
			return tag
		}
		rest = rest[1:]
	}
}

// asName returns a text of the corpus as a name: names permit none of the characters of markup, so the test
// can try only the rest of the text.
func asName(text string) string {
	var b strings.Builder
	b.WriteString("n")
	for _, c := range text {
		if b.Len() < 100 && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == ':' || c == '.' || c == '-') {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func TestMarkupOfOthersIsFound(t *testing.T) {
	for _, page := range []string{"<p><b xss7>", `<a href="x" onclick=1>`, "<p>a</p><xss7"} {
		if foreign(page) == "" {
			t.Errorf("nothing found in %s", page)
		}
	}
	if tag := foreign(`<a href="?xss7 onclick=1">&lt;b xss7&gt;</a>`); tag != "" {
		t.Errorf("found %s in what is text", tag)
	}
}

func TestWhatOthersWroteIsTextOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := open(t, "empty", dashboard.Config{})
		texts := corpus()
		if len(texts) < 200 {
			t.Fatalf("the corpus has %d texts, want 200", len(texts))
		}
		if err := s.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			s.poison(i, text)
		}
		paths := []string{"/", "/queues", "/queues/evil", "/tasks?queue=evil&state=dead", "/tasks?state=completed", "/schedules", "/runners", "/search?q=evil"}
		for _, ref := range append(s.list("evil", storage.Dead), s.list("evil", storage.Completed)...) {
			paths = append(paths, "/r/"+ref, "/edit?ref="+ref, "/action?do=requeue&ref="+ref)
		}
		for _, path := range paths {
			clean(t, path, s.get(path))
		}
		// The pages of another site, which has fewer tasks, are shorter.
		s = open(t, "empty", dashboard.Config{})
		for i, text := range texts[:3] {
			s.poison(i, text)
		}
		for _, text := range texts {
			q := url.QueryEscape(text)
			for _, path := range []string{
				"/search?q=", "/tasks?filter=", "/tasks?queue=", "/tasks?state=", "/tasks?after=", "/queues?name=", "/queues?sort=", "/queues?page=",
				"/?span=", "/queues/", "/r/evil/", "/runners/", "/action?do=", "/action?do=requeue&ref=", "/queues/evil?after=", "/action?do=pause-partition&queue=evil&partition=",
				"/action?do=requeue&back=", "/edit?ref=", "/login?back=", "/?said=", "/queues/evil/add?kind=",
			} {
				clean(t, path+q, s.do(request(http.MethodGet, path+q, "")).Body.String())
			}
			form := url.Values{}
			for _, field := range []string{"kind", "params", "priority", "in", "at", "id", "unique", "fresh"} {
				form.Set(field, text)
			}
			clean(t, "a form of "+q, s.do(request(http.MethodPost, "/queues/evil/add", form.Encode())).Body.String())
			w := s.do(request(http.MethodGet, "/suggest?q="+q, ""))
			if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
				t.Errorf("GET /suggest: Content-Type %q, want JSON", got)
			}
		}
	})
}

// poison puts a text everywhere in a task, a schedule and a runner where there is room for one.
func (s *site) poison(i int, text string) {
	s.t.Helper()
	payload, err := json.Marshal(map[string]string{text: text, "n": text})
	if err != nil {
		s.t.Fatal(err)
	}
	valid := strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "")
	key := storage.PrintableText(text, storage.MaxPartition-len("…"))
	dead := storage.Ref{Queue: "evil", ID: fmt.Sprintf("dead-%d", i)}
	for _, in := range []storage.Insert{
		{Ref: dead, Kind: asName(text)},
		{Ref: storage.Ref{Queue: "evil", ID: fmt.Sprintf("done-%d", i)}, Kind: "done", Keep: storage.Keep{For: 1e12}},
	} {
		in.Encoding, in.Payload, in.CrashLimit = "json", payload, 3
		in.Headers = map[string]string{fmt.Sprintf("h%d", i): valid}
		in.Partition = key
		if _, err := s.Session.ApplyOne(s.t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
			s.t.Fatal(err)
		}
	}
	err = s.End(s.t.Context(), "evil", 2, func(_ int, t storage.Task, st *storage.Settle) {
		if t.Kind == "done" {
			st.Result = payload
			return
		}
		st.Outcome, st.Error, st.Stack, st.Reason = storage.Bury, text, text, valid
		if len(st.Reason) > storage.MaxReason {
			st.Reason = st.Reason[:storage.MaxReason]
		}
	})
	if err != nil {
		s.t.Fatalf("%q: %v", text, err)
	}
	info := storage.RunnerInfo{
		ID: fmt.Sprintf("evil-%d", i), Host: valid, Version: valid, Queues: []string{"evil"}, Kinds: []string{asName(text)}, Concurrency: 1, For: 1e12,
	}
	if _, err := s.Session.Extend(s.t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
		info.Host, info.Version = asName(text), "v1"
		if _, err := s.Session.Extend(s.t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
			s.t.Fatalf("%q: %v", text, err)
		}
	}
	paused := storage.Settings{Partition: key, Pause: &storage.Pause{On: true}}
	if err := s.Session.Configure(s.t.Context(), "evil", paused); err != nil {
		s.t.Fatalf("%q: %v", text, err)
	}
	d := storage.Declaration{Spec: valid, Zone: valid}
	in := storage.Insert{
		Ref: storage.Ref{Queue: "evil", ID: fmt.Sprintf("%s%d", storage.CursorPrefix, i)}, Kind: "tick", Encoding: "json", Payload: []byte("{}"), CrashLimit: 1,
		Cursor: &storage.Cursor{Declaration: d.Encode()},
	}
	if _, err := s.Session.ApplyOne(s.t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		s.t.Fatalf("%q: %v", text, err)
	}
}
