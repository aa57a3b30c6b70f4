package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// pages holds a dashboard and a command on the same storage.
type pages struct {
	*rig

	handler http.Handler
	scene   *scene.Scene
}

func openPages(t *testing.T, name string) *pages {
	t.Helper()
	sc, err := scene.Open(t.Context(), name, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	h, err := dashboard.Handler(sc.Store, dashboard.Config{Who: func(*http.Request) (access.User, bool) {
		return access.User{Name: "local", Role: access.Admin}, true
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.store, r.session = unclosed{sc.Store}, sc.Session
	return &pages{rig: r, handler: h, scene: sc}
}

// inBubble runs a test in a bubble, where computing takes no time: there the bounds of a dashboard's searches
// do not depend on how fast the machine is.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		test(t)
	})
}

// get returns a page.
func (p *pages) get(path string) string {
	p.t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req.Host, req.RemoteAddr = "localhost:8080", "127.0.0.1:4000"
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		p.t.Fatalf("GET %s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

var (
	shownLine = regexp.MustCompile(`(?s)<code(?: id="command")? tabindex="0">(midge .*?)</code>`)
	rowKey    = regexp.MustCompile(`<tr (?:id="[^"]*" )?data-key="([^"]*)"`)
	causeID   = regexp.MustCompile(`cause%3A([0-9a-z]+)`)
	nextPage  = regexp.MustCompile(`rel="next" href="([^"]*)"`)
)

// all returns the distinct matches of a pattern on a page.
func all(pattern *regexp.Regexp, page string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(page, -1) {
		if text := html.UnescapeString(m[1]); !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	return found
}

// line returns the only command that a page shows.
func (p *pages) line(path, page string) string {
	p.t.Helper()
	lines := all(shownLine, page)
	if len(lines) != 1 {
		p.t.Fatalf("GET %s: %d commands, want one: %q", path, len(lines), lines)
	}
	return lines[0]
}

// shell splits a line as a shell does, and returns the words after midge.
func (p *pages) shell(line string) []string {
	p.t.Helper()
	out, err := exec.CommandContext(p.t.Context(), "sh", "-c", `midge() { printf '%s\0' "$@"; }`+"\n"+line).Output()
	if err != nil {
		p.t.Fatalf("the shell cannot read %s: %v", line, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// give runs the words of a line with more flags. The flag -o comes first, other flags come after the verb.
func (p *pages) give(line string, flags ...string) answer {
	p.t.Helper()
	var out, errs bytes.Buffer
	words := p.shell(line)
	at := 2
	if flags[0] == "-o" {
		at = 0
	}
	words = slices.Insert(words, at, flags...)
	code := Run(p.t.Context(), words, p.std(strings.NewReader(p.in), &out, &errs))
	return answer{out: out.String(), err: errs.String(), code: code}
}

// records runs a line and decodes its JSON output.
func (p *pages) records(path, line string) (records []map[string]any) {
	p.t.Helper()
	got := p.give(line, "-o", "json")
	if got.code == NotFound {
		return nil
	}
	if got.code != Done {
		p.t.Fatalf("GET %s shows %s, which exits with %d:\n%s%s", path, line, got.code, got.out, got.err)
	}
	var one map[string]any
	if err := json.Unmarshal([]byte(got.out), &one); err == nil {
		return []map[string]any{one}
	}
	if err := json.Unmarshal([]byte(got.out), &records); err != nil {
		p.t.Fatalf("%s writes %s: %v", line, got.out, err)
	}
	return records
}

// named returns a field of all records.
func named(records []map[string]any, field string) (names []string) {
	for _, r := range records {
		names = append(names, fmt.Sprint(r[field]))
	}
	return names
}

// same fails unless a page and its command show the same rows, in the same order if ordered is set.
func (p *pages) same(path, line string, page, command []string, ordered bool) {
	p.t.Helper()
	if !ordered {
		page, command = slices.Sorted(slices.Values(page)), slices.Sorted(slices.Values(command))
	}
	if !slices.Equal(page, command) {
		p.t.Errorf("GET %s shows %.300q,\nand %s writes %.300q", path, page, line, command)
	}
}

// tricky are texts that a shell, a filter and a page interpret differently.
var tricky = []string{
	`it's`, `"quoted"`, `two words`, `$HOME`, "`id`", `$(id)`, `a;b`, `a|b&c`, `a>b`, `!!`, `~`, `\`, `a\b`, `*`, `?`, `[a]`, `{a,b}`, `#x`, `=ls`, `%s`,
	`grüße`, `Ελλάς`, `🙂`, "tab\there", "line\nbreak", `-v`, `--all`, `'`, `''`, `"`, `<b>`, `&amp;`, "\u2028", "\u202e", `a'b"c$d`, `--`,
}

// wound adds a dead task to a queue for each tricky text.
func (p *pages) wound() {
	p.t.Helper()
	err := p.scene.Add(p.t.Context(), "odd", "odd", len(tricky), func(i int, in *storage.Insert) {
		in.Ref.ID, in.MaxRetries = fmt.Sprintf("odd-%d", i), 0
		in.Headers = map[string]string{"text": strings.ToValidUTF8(tricky[i], "")}
		in.Partition = key(tricky[i])
	})
	if err != nil {
		p.t.Fatal(err)
	}
	err = p.scene.End(p.t.Context(), "odd", len(tricky), func(_ int, t storage.Task, st *storage.Settle) {
		i, _ := strconv.Atoi(strings.TrimPrefix(t.ID, "odd-"))
		st.Outcome, st.Error = storage.Bury, "the text "+tricky[i]+" is odd"
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// key returns a text as the key of a partition.
func key(text string) string { return storage.PrintableText(text, storage.MaxPartition) }

// quote quotes a text for a filter.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// taskLists returns the addresses of lists of tasks.
func (p *pages) taskLists() []string {
	at := func(pairs ...string) string {
		q := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			q.Set(pairs[i], pairs[i+1])
		}
		return "/tasks?" + q.Encode()
	}
	lists := []string{"/tasks", at("queue", "mail"), at("queue", "payments", "state", "waiting"), at("queue", "none"), at("filter", "-kind:odd state:dead")}
	for _, s := range storage.States()[:7] {
		lists = append(lists, at("state", string(s)), at("state", string(s), "queue", "mail"))
	}
	for _, f := range []string{
		"kind:send_*", "state:dead kind:send_invoice", "error:refused state:dead", "-kind:send_* state:all", "is:declined", "retries>0 state:all",
		"queue:mail,archive state:all", "age>30m", `"no space" state:dead`, "--x", "header.tenant:acme state:dead", "params.user:7 state:all",
	} {
		lists = append(lists, at("filter", f))
	}
	for _, text := range tricky {
		lists = append(lists, at("state", "dead", "filter", "error:"+quote(text)), at("queue", "odd", "filter", "state:all "+quote(text)),
			at("filter", "header.text:"+quote(text)+" state:dead"), at("filter", "-error:"+quote(text)+" queue:odd state:dead"),
			at("queue", "odd", "state", "dead", "filter", "partition:"+quote(key(text))))
	}
	return lists
}

// parses reports whether a list shows no error about its filter.
func parses(page string) bool { return !strings.Contains(page, `class="notice bad" role="alert"`) }

func TestEachListOfTasksShowsACommandThatListsTheSame(t *testing.T) { //nolint:gocognit // one list of checks
	for _, name := range []string{"empty", "night", "million"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := openPages(t, name)
				p.wound()
				rows := 0
				for _, path := range p.taskLists() {
					for turn := 0; path != "" && turn < 4; turn++ {
						page := p.get(path)
						if !parses(page) {
							t.Errorf("GET %s: the filter cannot be read", path)
						}
						line := p.line(path, page)
						shown := all(rowKey, page)
						p.same(path, line, shown, named(p.records(path, line), "ref"), true)
						rows += len(shown)
						next := all(nextPage, page)
						if path = ""; len(next) > 0 {
							path = next[0]
						}
					}
				}
				if rows == 0 {
					t.Error("no list had a row")
				}
			})
		})
	}
}

func TestEachSearchShowsACommandThatScans(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := openPages(t, "night")
		p.wound()
		for _, text := range append(tricky, "mail", "odd-3 odd-4", "refused", "send_invoice") {
			if strings.TrimSpace(text) == "" {
				continue // an empty text is not searched
			}
			path := "/search?q=" + url.QueryEscape(text)
			page := p.get(path)
			line := p.line(path, page)
			scan := regexp.MustCompile(`href="(/tasks\?filter=[^"]*)">Scan live`).FindStringSubmatch(page)
			if scan == nil {
				t.Fatalf("GET %s offers no scan", path)
			}
			at := html.UnescapeString(scan[1])
			list := p.get(at)
			if !parses(list) {
				t.Errorf("the search for %q leads to a filter that cannot be read", text)
			}
			p.same(path, line, all(rowKey, list), named(p.records(path, line), "ref"), true)
		}
		if line := p.line("", p.get("/search?q=odd+x")); !strings.HasPrefix(line, "midge task ls ") {
			t.Errorf("a search shows %s", line)
		}
	})
}

func TestEachListOfQueuesShowsACommandThatListsTheSame(t *testing.T) { //nolint:gocognit // one list of checks
	inBubble(t, func(t *testing.T) {
		for _, name := range []string{"empty", "night", "million"} {
			p := openPages(t, name)
			var pages []string
			for _, order := range []string{"", "name", "done", "oldest", "waiting", "dead", "retry"} {
				for _, contains := range []string{"", "MA", "tenant-1", "it's $HOME", "-v"} {
					pages = append(pages, "/queues?"+url.Values{"sort": {order}, "name": {contains}}.Encode())
				}
			}
			for _, first := range pages {
				ordered := !strings.Contains(first, "sort=&") && !strings.HasSuffix(first, "sort=") && !strings.Contains(first, "sort=done")
				var together []string
				for path := first; path != ""; {
					page := p.get(path)
					rows := all(rowKey, page)
					together = append(together, rows...)
					if line := p.line(path, page); ordered {
						p.same(path, line, rows, named(p.records(path, line), "queue"), true)
					}
					next := all(nextPage, page)
					if path = ""; len(next) > 0 {
						path = next[0]
					}
				}
				if line := p.line(first, p.get(first)); !ordered {
					p.same(first, line, together, named(p.records(first, line), "queue"), false)
				}
			}
		}
	})
}

func TestEachPageOfOneThingShowsItsCommand(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := openPages(t, "night")
		p.wound()
		names, err := p.store.Queues(t.Context(), storage.QueuesQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names.Names {
			if storage.Reserved(name) {
				continue
			}
			path := "/queues/" + name
			line := p.line(path, p.get(path))
			p.same(path, line, []string{name}, named(p.records(path, line), "queue"), true)
		}
		for _, r := range p.scene.Runners {
			path := "/runners/" + r.ID
			line := p.line(path, p.get(path))
			p.same(path, line, []string{r.ID}, named(p.records(path, line), "id"), true)
		}
		for _, state := range storage.States()[:7] {
			list, err := p.store.Tasks(t.Context(), storage.TasksQuery{Queue: "mail", State: state, Limit: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range list.Tasks {
				path := "/r/" + task.Ref.String()
				line := p.line(path, p.get(path))
				p.same(path, line, []string{task.Ref.String()}, named(p.records(path, line), "ref"), true)
			}
		}
		p.same("/runners", "midge runner ls", all(rowKey, p.get("/runners")), named(p.records("/runners", p.line("/runners", p.get("/runners"))), "id"), true)
		schedules := p.records("/schedules", p.line("/schedules", p.get("/schedules")))
		var anchors []string
		for _, s := range schedules {
			anchors = append(anchors, fmt.Sprintf("s.%s.%s%s", s["queue"], storage.CursorPrefix, s["schedule"]))
		}
		p.same("/schedules", "midge schedule ls", all(rowKey, p.get("/schedules")), anchors, false)
	})
}

func TestTheOverviewAndTheDeadShowTheirCommands(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := openPages(t, "night")
		p.wound()
		overview := p.get("/")
		stats := p.records("/", p.line("/", overview))[0]
		for cell, field := range map[string]string{"backlog": "waiting", "dead": "dead"} {
			got := regexp.MustCompile(`data-v="all\.` + cell + `"[^>]*>([^<]*)<`).FindStringSubmatch(overview)
			if got == nil || strings.ReplaceAll(got[1], ",", "") != fmt.Sprint(stats[field]) {
				t.Errorf("the overview shows %q, its command %v as %s", got, stats[field], field)
			}
		}
		dead := p.get("/dead")
		causes := all(causeID, dead)
		line := p.line("/dead", dead)
		var written []string
		for _, c := range named(p.records("/dead", line), "cause") {
			written = append(written, strings.TrimPrefix(c, "cause:"))
		}
		p.same("/dead", line, causes, written, false)
		for _, c := range causes {
			path := "/dead?cause=" + c
			line := p.line(path, p.get(path))
			p.same(path, line, all(rowKey, p.get(path)), named(p.records(path, line), "ref"), true)
		}
	})
}

func TestEachDialogShowsACommandThatDoesTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := openPages(t, "night")
		p.wound()
		at := func(pairs ...string) string {
			q := url.Values{}
			for i := 0; i < len(pairs); i += 2 {
				q.Add(pairs[i], pairs[i+1])
			}
			return "/action?" + q.Encode()
		}
		seven := []string{"do", "requeue"}
		for i := range 7 {
			seven = append(seven, "ref", fmt.Sprintf("odd/odd-%d", i))
		}
		paths := []string{
			at(seven...), at("do", "delete", "ref", "odd/odd-1"), at("do", "requeue", "all", "1", "state", "dead"),
			at("do", "requeue", "all", "1", "filter", "state:dead kind:send_invoice"), at("do", "cancel", "all", "1", "queue", "payments"),
			at("do", "delete", "all", "1", "filter", "-kind:odd state:dead"), at("do", "cancel", "all", "1", "filter", "-kind:charge_card"),
			at("do", "requeue", "all", "1", "filter", "ended<1d"),
		}
		for _, text := range tricky {
			paths = append(paths, at("do", "requeue", "all", "1", "state", "dead", "filter", "error:"+quote(text)))
		}
		asks := regexp.MustCompile(`<h2 id="dialog-title">\w+ ([\d,]+)`)
		for _, path := range paths {
			page := strings.ReplaceAll(p.get(path), "\u00a0", " ")
			line := p.line(path, page)
			count := asks.FindStringSubmatch(page)
			if count == nil {
				t.Fatalf("GET %s does not say how many", path)
			}
			got := p.give(line, "--dry-run")
			if got.code != Done || count[1] != "0" && !strings.Contains(got.out+got.err, count[1]) {
				t.Errorf("GET %s asks about %s, and %s exits with %d:\n%s%s", path, count[1], line, got.code, got.out, got.err)
			}
		}
		plain := []string{at("do", "pause", "queue", "mail"), at("do", "resume", "queue", "payments"), at("do", "run", "ref", "mail/"+storage.CursorPrefix+"daily_digest"), "/edit?ref=odd/odd-1"}
		for _, text := range tricky {
			plain = append(plain, at("do", "pause-partition", "queue", "odd", "partition", key(text)))
		}
		for _, path := range plain {
			line := p.line(path, p.get(path))
			if got := p.give(line, "--help"); got.code != Done {
				t.Errorf("GET %s shows %s, which exits with %d: %s", path, line, got.code, got.err)
			}
		}
	})
}

func TestEachPageOfTheAuditShowsACommandThatListsTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := openPages(t, "night")
		audit := ledger.NewAudit(p.store)
		for i := range 120 {
			action, err := audit.Begin(t.Context(), ledger.Entry{Who: "ann", Action: "requeue", Filter: "error:" + quote(tricky[i%len(tricky)])})
			if err == nil {
				err = action.End(t.Context(), ledger.Ending{Count: i})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rows := 0
		for path := "/audit"; path != ""; {
			page := p.get(path)
			line := p.line(path, page)
			shown := all(rowKey, page)
			p.same(path, line, shown, named(p.records(path, line), "id"), true)
			rows += len(shown)
			next := all(nextPage, page)
			if path = ""; len(next) > 0 {
				path = next[0]
			}
		}
		if rows != 121 {
			t.Errorf("%d actions on all pages, want 121", rows)
		}
	})
}

func TestTheHistoryOfAPageIsThatOfItsCommand(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := openPages(t, "night")
		row := regexp.MustCompile(`(?s)<tr>\s*<td class="grow">\s*<a class="one" href="[^"]*queue=([^"&]*)[^"]*"[^>]*>.*?data-l="enqueued" title="([\d,]*)".*?data-l="done" title="([\d,]*)"`)
		for _, path := range []string{"/metrics", "/metrics?span=6h", "/metrics?span=90d", "/metrics?queue=mail", "/metrics?queue=none&span=24h"} {
			page := p.get(path)
			line := p.line(path, page)
			var shown, written []string
			for _, m := range row.FindAllStringSubmatch(page, -1) {
				shown = append(shown, strings.ReplaceAll(strings.Join(m[1:], " "), ",", ""))
			}
			for _, r := range p.records(path, line) {
				written = append(written, fmt.Sprintf("%v %.0f %.0f", r["queue"], r["enqueued"], r["done"]))
			}
			p.same(path, line, shown, written, true)
			if len(shown) == 0 && !strings.Contains(path, "none") {
				t.Errorf("GET %s shows no queue", path)
			}
		}
	})
}
