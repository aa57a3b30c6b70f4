package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/midgehq/midge/cmd/midge/internal/audit"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// rig is a model on a storage with a stopped clock.
type rig struct {
	t       *testing.T
	m       *Model
	session *storage.Session
	now     time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)}
	store, err := memory.Open(memory.Config{Now: func() time.Time { return r.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r.session = storage.NewSession(store, 0)
	r.m = New(t.Context(), Config{
		Session: r.session, Reader: survey.NewReader(store, survey.Config{Now: func() time.Time { return r.now }}),
		Bounds: survey.Bounds{Dead: survey.AnyNumber}, Target: "production, redis://db", Printer: show.Printer{Format: show.Table},
		Audit: audit.Writer{Store: store, Who: "ann@web-1"},
		Page: func(ctx context.Context, ref storage.Ref) (string, int64, error) {
			task, err := store.Task(ctx, ref)
			return "task " + ref.String() + "\nstate " + string(task.State), task.Version, err
		},
	})
	return r
}

// answer runs a command and the commands that follow from it, as bubbletea would, except for ticks.
func (r *rig) answer(cmd tea.Cmd) {
	r.t.Helper()
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			r.answer(c)
		}
	case turn, nil:
	default:
		_, next := r.m.Update(msg)
		r.answer(next)
	}
}

// keys presses keys, one for each word.
func (r *rig) keys(words string) {
	r.t.Helper()
	for word := range strings.FieldsSeq(words) {
		key := tea.KeyPressMsg{Text: word, Code: rune(word[0])}
		for name, code := range map[string]rune{
			"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight,
			"end": tea.KeyEnd, "backspace": tea.KeyBackspace,
		} {
			if word == name {
				key = tea.KeyPressMsg{Code: code}
			}
		}
		_, cmd := r.m.Update(key)
		r.answer(cmd)
	}
}

// sample reads the storage once.
func (r *rig) sample() { r.answer(r.m.refresh()) }

// screen returns the text of the screen.
func (r *rig) screen() string {
	r.t.Helper()
	lines := r.m.screenLines()
	if len(lines) != r.m.height {
		r.t.Errorf("the screen has %d lines, want %d", len(lines), r.m.height)
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > r.m.width {
			r.t.Errorf("the line %q is longer than %d", line, r.m.width)
		}
	}
	return strings.Join(lines, "\n")
}

// wants checks that texts are on the screen.
func (r *rig) wants(texts ...string) {
	r.t.Helper()
	screen := r.screen()
	for _, text := range texts {
		if !strings.Contains(screen, text) {
			r.t.Errorf("%q is not on the screen:\n%s", text, screen)
		}
	}
}

func (r *rig) insert(queue string, n int) {
	r.t.Helper()
	for i := range n {
		_, err := r.session.ApplyOne(r.t.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: queue, ID: fmt.Sprintf("%s-%03d", queue, i)}, Kind: "send", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
		}}})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// running returns tasks of a queue that run.
func (r *rig) running(queue string, n int) []bulk.Target {
	r.t.Helper()
	r.insert(queue, n)
	claimed, err := r.session.Claim(r.t.Context(), storage.ClaimRequest{
		Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: queue}}, Start: n, Lease: time.Minute,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	targets := make([]bulk.Target, 0, n)
	for _, fence := range claimed.Fences {
		targets = append(targets, bulk.Target{Ref: fence.Ref})
	}
	return targets
}

// work claims n tasks and settles them.
func (r *rig) work(queue string, n int, settle storage.Settle) {
	r.t.Helper()
	claimed, err := r.session.Claim(r.t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: queue}}, Start: n, Lease: time.Minute,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, fence := range claimed.Fences {
		settle.Fence = fence
		if _, err := r.session.ApplyOne(r.t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestQueuesAreShownWithTheirRates(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 50)
	r.insert("midge.ledger", 1)
	r.now = r.now.Add(10 * time.Second) // tasks that wait for less time are work in flow
	r.work("none", 1, storage.Settle{}) // the answer to a claim has the time for the session
	r.sample()
	r.wants("on production, redis://db", "50 waiting", "> mail", "no runner", "No runner is alive")
	_, err := r.session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{ID: "r", Queues: []string{"mail"}, For: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.now = r.now.Add(time.Second)
		r.work("mail", 10, storage.Settle{Outcome: storage.Complete})
		r.sample()
	}
	r.wants("20 waiting", "10.0", "done 10.0/s", "2s", "███")
	if strings.Contains(r.screen(), "midge.ledger") {
		t.Error("a queue of midge's own is shown")
	}
}

// TestWorkInFlowIsNoBacklog shows a queue in which many tasks wait, but each only for a short time.
func TestWorkInFlowIsNoBacklog(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 3)
	_, err := r.session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{ID: "r", Queues: []string{"mail"}, For: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, "-"}, {9 * time.Second, "-"}, {2 * time.Second, "never"}} {
		r.now = r.now.Add(c.after)
		r.sample()
		if got := clearsIn(&r.m.queues[0]); got != c.want {
			t.Errorf("three tasks that wait for %v more: clears in %q, want %q", c.after, got, c.want)
		}
	}
}

// TestALimitThatKeepsTasksWaitingIsNamed draws the same backlog behind a limit.
func TestALimitThatKeepsTasksWaitingIsNamed(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 3)
	info := storage.RunnerInfo{ID: "r", Queues: []string{"mail"}, For: time.Hour}
	if _, err := r.session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
		t.Fatal(err)
	}
	if err := r.session.SetLimit(t.Context(), "mail", storage.Limit{Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	_, err := r.session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 3, Lease: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.sample()
	r.now = r.now.Add(11 * time.Second)
	r.sample()
	if got := clearsIn(&r.m.queues[0]); got != "at limit" {
		t.Errorf("clears in %q, want the limit", got)
	}
}

func TestKeysLeadDownToATaskAndBack(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 3)
	r.insert("other", 1)
	r.work("mail", 2, storage.Settle{Outcome: storage.Bury, Error: "smtp: timeout\nmore"})
	r.sample()
	r.keys("down up enter")
	r.wants("mail: [waiting 1]", "mail-002")
	r.keys("left")
	r.wants("[dead 2]", "> mail-001", "smtp: timeout")
	r.keys("down enter")
	r.wants("task mail/mail-000", "state dead")
	r.keys("esc esc")
	r.wants("> mail", "other")
}

func TestAFilterChoosesTasks(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 30)
	r.sample()
	r.keys("enter / i d : m a i l - 0 0 7")
	r.wants("/id:mail-007▏")
	r.keys("enter")
	r.wants("filter: id:mail-007  (matches 1)", "> mail-007")
	r.keys("esc enter / k i n : x enter")
	r.wants("want kind")
	if r.keys("c"); strings.Contains(r.screen(), "> mail-") || r.m.question != nil {
		t.Errorf("a list is left under a filter that cannot be read:\n%s", r.screen())
	}
}

func TestEachActionIsAskedAboutFirst(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 3)
	r.work("mail", 2, storage.Settle{Outcome: storage.Bury, Error: "x"})
	r.sample()
	stats := func() storage.Stats {
		s, err := r.session.Storage().Stats(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		return s[0]
	}
	r.keys("p")
	r.wants("Pause queue mail?  [y/N]")
	r.keys("n")
	if r.wants("nothing was changed"); stats().Paused {
		t.Error("the queue is paused after a no")
	}
	r.keys("p y")
	if r.wants("paused mail", "  paused "); !stats().Paused {
		t.Error("the queue is not paused after a yes")
	}
	r.keys("p y")
	r.wants("resumed mail")
	r.keys("r")
	r.wants("Requeue the 2 dead tasks of queue mail?")
	r.keys("y")
	if r.wants("requeued 2 tasks"); stats().Dead != 0 {
		t.Error("tasks are dead after a requeue")
	}
	r.keys("enter c y")
	if r.wants("cancelled 1 task"); stats().Waiting != 2 {
		t.Errorf("%d tasks wait, want 2", stats().Waiting)
	}
	r.keys("esc c y r")
	if r.wants("has no dead task"); stats().Waiting != 0 {
		t.Errorf("%d tasks wait, want none", stats().Waiting)
	}
	actions, _, err := ledger.NewAudit(r.session.Storage()).List(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, e := range actions {
		kept = append(kept, fmt.Sprintf("%s %s %s %v %s", e.Who, e.Action, e.Queue+e.Filter, e.IDs, e.Outcome))
	}
	slices.Sort(kept) // the clock stands still
	if got, want := strings.Join(kept, "\n"), `ann@web-1 cancel mail [mail/mail-002] done
ann@web-1 cancel queue:mail state:waiting,pending,scheduled,retry [mail/mail-000 mail/mail-001] done
ann@web-1 pause mail [] done
ann@web-1 requeue queue:mail state:dead [mail/mail-000 mail/mail-001] done
ann@web-1 resume mail [] done`; got != want {
		t.Errorf("the audit has:\n%s\nwant:\n%s", got, want)
	}
}

// TestAKeyChangesATaskOnlyAsItWasShown requeues a task on both screens that show it, after the task was
// requeued and has failed again.
func TestAKeyChangesATaskOnlyAsItWasShown(t *testing.T) {
	for _, open := range []string{"", "enter"} {
		r := newRig(t)
		r.insert("mail", 1)
		r.work("mail", 1, storage.Settle{Outcome: storage.Bury, Error: "x"})
		r.sample()
		r.keys("enter")
		r.keys(open)
		r.keys("r")
		r.wants("Requeue mail/mail-000?")
		requeue := func(t storage.Task) (storage.Change, error) { return t.Requeued(), nil }
		if err := r.session.ChangeTask(t.Context(), storage.Ref{Queue: "mail", ID: "mail-000"}, requeue); err != nil {
			t.Fatal(err)
		}
		r.work("mail", 1, storage.Settle{Outcome: storage.Bury, Error: "y"})
		r.keys("y")
		r.wants("requeued 0 tasks; 1 changed meanwhile")
	}
}

// TestAKeyChangesNoMoreTasksThanItAskedAbout enqueues more tasks before the answer, which start first.
func TestAKeyChangesNoMoreTasksThanItAskedAbout(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 2)
	r.sample()
	r.keys("c")
	r.wants("Cancel the 2 live tasks of queue mail?")
	r.now = r.now.Add(time.Second)
	for id := range 6 {
		_, err := r.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("new-%d", id)}, Kind: "send", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3, Priority: 9,
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.keys("y")
	r.wants("cancelled 2 tasks")
	if stats, err := r.session.Storage().Stats(t.Context(), "mail"); err != nil || stats[0].Waiting != 6 {
		t.Errorf("got %+v, %v, want the six new tasks left", stats, err)
	}
	if _, err := r.session.Storage().Task(t.Context(), storage.Ref{Queue: "mail", ID: "mail-000"}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a task that was asked about is left: %v", err)
	}
}

// once fails each call of Apply after the first call that changes several tasks.
type once struct {
	storage.Storage

	calls int
}

func (o *once) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if len(txs) > 1 {
		o.calls++
	}
	if o.calls > 1 {
		return nil, storage.ErrRefused
	}
	return o.Storage.Apply(ctx, call, txs...)
}

// TestAnActionThatStopsNamesWhatItHasDone has the storage refuse the rest of a requeue.
func TestAnActionThatStopsNamesWhatItHasDone(t *testing.T) {
	r := newRig(t)
	r.m.width = 200
	r.insert("mail", 2*storage.MaxPage)
	r.m.cfg.Session = storage.NewSession(&once{Storage: r.session.Storage()}, 0)
	r.sample()
	r.keys("c")
	r.keys("y")
	r.wants(fmt.Sprintf("cancelled %d tasks, then: cancel: storage: refused", storage.MaxPage))
}

// TestTasksThatAreKeptAreCounted requeues more tasks than it names reasons for.
func TestTasksThatAreKeptAreCounted(t *testing.T) {
	r := newRig(t)
	r.m.width = 200
	r.answer(r.m.bulk(bulk.Request{
		Action: bulk.Action{Verb: bulk.Delete},
		Tasks:  r.running("mail", 7),
	}))
	r.wants("deleted 0 tasks; 7 kept; mail/mail-000: it is running")
}

func TestAStorageThatIsAwayIsSaid(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 3)
	r.sample()
	r.m.Update(sampled{err: errors.New("no answer\x1b[2J")})
	r.wants("does not answer", "mail")
	r.sample()
	if strings.Contains(r.screen(), "does not answer") {
		t.Error("it is still said once it answers again")
	}
}

// TestTheTotalsKeepTheRunners draws totals of every length: a narrow terminal loses rates, and never the
// number of runners. The findings that need attention are the first line.
func TestTheTotalsKeepTheRunners(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 3)
	r.sample()
	r.m.total = survey.Queue{Runners: 1234}
	r.m.total.Waiting, r.m.total.Pending, r.m.total.Retry, r.m.total.Dead = 12_345_678, 40_000, 123_456, 1_234_567
	for width := range 121 {
		r.m.Update(tea.WindowSizeMsg{Width: width, Height: 24})
		lines := strings.Split(r.screen(), "\n")
		if !strings.Contains(lines[2], "1,234 runners") || strings.Contains(lines[2], "…") {
			t.Errorf("%d columns: the totals are %q", width, lines[2])
		}
		if width >= 80 && !strings.HasPrefix(lines[2], "12,345,678 waiting  40,000 running") {
			t.Errorf("%d columns: the totals are %q", width, lines[2])
		}
		if !strings.HasPrefix(lines[0], "No runner is aliv") {
			t.Errorf("%d columns: the first line is %q", width, lines[0])
		}
	}
}

// TestQueuesAreSearchedAndSorted types a search for queues, and sorts by each column in turn.
func TestQueuesAreSearchedAndSorted(t *testing.T) {
	r := newRig(t)
	for queue, n := range map[string]int{"mail": 1, "mail-eu": 3, "reports": 2} {
		r.insert(queue, n)
	}
	r.sample()
	order := func() string {
		names := make([]string, len(r.m.queues))
		for i := range r.m.queues {
			names[i] = r.m.queues[i].Queue
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct{ keys, order, shown string }{
		{"s", "mail-eu reports mail", "↓WAITING"},
		{"/ M A I enter", "mail-eu mail", "search: MAI  (2 of 3)"},
		{"s", "mail mail-eu", "↓RUNNING"},
		{"/ x enter", "", `no queue has "MAIx" in its name`},
		{"esc", "mail mail-eu reports", "reports"},
		{"s s s s s", "mail mail-eu reports", "  QUEUE"},
	} {
		r.keys(c.keys)
		if got := order(); got != c.order {
			t.Errorf("after %s: got the queues %q, want %q", c.keys, got, c.order)
		}
		r.wants(c.shown)
		if r.sample(); order() != c.order {
			t.Errorf("after %s and another reading: got the queues %q, want %q", c.keys, order(), c.order)
		}
	}
	r.wants("> mail ")
}

// TestTheKeysAreExplained shows the help, which any key hides without doing anything else.
func TestTheKeysAreExplained(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 1)
	r.sample()
	for _, hide := range []string{"?", "q", "p"} {
		r.keys("?")
		r.wants("Keys", "requeue: the task, or all dead tasks of the queue", "sort by the next column")
		r.keys(hide)
		if screen := r.screen(); strings.Contains(screen, "Keys") || !strings.Contains(screen, "> mail") || r.m.question != nil {
			t.Errorf("after %s the screen is\n%s", hide, screen)
		}
	}
}

// TestATaskThatIsClaimedAheadDoesNotRun lists two tasks of a runner, of which it has started one.
func TestATaskThatIsClaimedAheadDoesNotRun(t *testing.T) {
	r := newRig(t)
	r.insert("mail", 2)
	_, err := r.session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Ahead: 1, Lease: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.sample()
	r.keys("enter")
	r.wants("[running 2]")
	if n := strings.Count(r.screen(), "claimed, not started"); n != 1 {
		t.Errorf("%d tasks are shown as claimed, not started, want 1:\n%s", n, r.screen())
	}
}

func TestEveryScreenFitsEveryTerminal(t *testing.T) {
	r := newRig(t)
	for _, queue := range []string{"mail", strings.Repeat("long", 30), "z"} {
		r.insert(queue, 40)
	}
	r.sample()
	for _, size := range []tea.WindowSizeMsg{{Width: 80, Height: 24}, {Width: 20, Height: 6}, {Width: 200, Height: 60}, {Width: 1, Height: 1}} {
		r.m.Update(size)
		for _, keys := range []string{"end", "?", "?", "s", "enter", "end", "enter", "esc", "esc"} {
			r.keys(keys)
			r.screen()
		}
	}
}

// TestALoadIsShownAsOne in the list of tasks, and not as a task that is due in a far year.
func TestALoadIsShownAsOne(t *testing.T) {
	r := newRig(t)
	_, err := r.session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
		Ref: storage.Ref{Queue: "mail", ID: "a.csv.load"}, Kind: storage.LoadKind, Encoding: "json", CrashLimit: 3,
		At:      time.Date(2199, 12, 31, 0, 0, 0, 0, time.UTC),
		Payload: []byte(`{"done":370,"of":1000,"file":"a.csv","rows":12}`),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r.sample()
	r.keys("enter")
	r.wants("a.csv.load", "loading a.csv, 37 %")
	if screen := r.screen(); strings.Contains(screen, "173y") || strings.Contains(screen, "2199") {
		t.Errorf("the record of a load is due:\n%s", screen)
	}
}
