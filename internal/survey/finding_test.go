package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// large is a storage with the greatest number of queues and runners to expect.
type large struct {
	storage.Storage
}

func queueOf(i int) string { return fmt.Sprintf("queue-of-tenant-%05d", i%10_000) }

func (l large) Queues(_ context.Context, q storage.QueuesQuery) (page storage.QueuesPage, err error) {
	for i := range 10_000 {
		name := queueOf(i)
		if len(page.Names) == storage.MaxPage {
			page.Next = page.Names[storage.MaxPage-1]
			break
		}
		if name > q.After {
			page.Names = append(page.Names, name)
		}
	}
	return page, nil
}

func (l large) Stats(_ context.Context, queues ...string) (stats []storage.Stats, err error) {
	for _, name := range queues {
		s := storage.Stats{Queue: name}
		s.Waiting = 1
		stats = append(stats, s)
	}
	return stats, nil
}

// Runners returns runners that serve the first half of the queues.
func (l large) Runners(context.Context) ([]storage.RunnerInfo, error) {
	runners := make([]storage.RunnerInfo, 1100)
	for i := range runners {
		for j := range 200 {
			runners[i].Queues = append(runners[i].Queues, queueOf((i*200+j)%5000))
		}
	}
	return runners, nil
}

// TestALargeStorageIsLookedOverInSeconds examines a storage with no runner for half of its queues.
func TestALargeStorageIsLookedOverInSeconds(t *testing.T) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	begun := testserver.ProcessorTime(t)
	now, err := Once(t.Context(), large{store}, Bounds{Dead: AnyNumber})
	if err != nil {
		t.Fatal(err)
	}
	found, _ := now.Findings(Bounds{Dead: AnyNumber}, Words{})
	took := testserver.ProcessorTime(t) - begun
	if len(now.Queues) != 10_000 || len(found) != 5000 || now.Queues[0].Runners != 44 {
		t.Fatalf("got %d findings of %d queues, and %d runners of the first; want 5000 queues that nobody serves, and 44",
			len(found), len(now.Queues), now.Queues[0].Runners)
	}
	if took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestATaskThatWasDeclinedIsAProblemOnlyIfNoRunnerKnowsItsKind and a queue without runners lacks a runner,
// for all of its tasks.
func TestATaskThatWasDeclinedIsAProblemOnlyIfNoRunnerKnowsItsKind(t *testing.T) {
	for _, c := range []struct {
		what  string
		kinds []string // of the live runner, none if it serves another queue, nil if no runner is alive
		want  []string
	}{
		{"a runner knows the kind", []string{"old", "fresh"}, nil},
		{"a runner knows other kinds", []string{"old"}, []string{
			"unknown-kind: No runner on mail handles fresh. 1 task waits for a runner that handles it.",
		}},
		{"no runner serves the queue", []string{}, []string{
			"no-runner: No live runner serves the queue mail. 1 task waits in it.",
		}},
		{"no runner is alive", nil, []string{"no-runners: No runner is alive. 1 waiting."}},
	} {
		store, err := memory.Open(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		session := storage.NewSession(store, 0)
		decline(t, session, "fresh")
		if c.kinds != nil {
			info := storage.RunnerInfo{ID: storage.NewRunnerID("h", 1), Queues: []string{"mail"}, Kinds: c.kinds, Concurrency: 1}
			info.For = time.Minute
			if len(c.kinds) == 0 {
				info.Queues = []string{"other"}
			}
			if _, err := session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
				t.Fatal(err)
			}
		}
		found, _ := look(t, store, Bounds{Dead: AnyNumber})
		var got []string
		for _, f := range found {
			if f.Level == Problem {
				got = append(got, f.Code+": "+f.Text+". "+f.Detail)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
		_ = store.Close()
	}
}

// look reads a storage once and judges it.
func look(t *testing.T, store storage.Storage, b Bounds) (found, accepted []Finding) {
	t.Helper()
	now, err := Once(t.Context(), store, b)
	if err != nil {
		t.Fatal(err)
	}
	return now.Findings(b, Words{Span: func(time.Duration) string { return "a while" }})
}

// decline has a runner decline a task of a kind in queue mail.
func decline(t *testing.T, session *storage.Session, kind string) {
	t.Helper()
	in := storage.Insert{
		Ref: storage.Ref{Queue: "mail", ID: "a1"}, Kind: kind, Encoding: "json", Payload: []byte("{}"), CrashLimit: 1,
	}
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		t.Fatal(err)
	}
	claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: storage.NewRunnerID("h", 1), Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Lease: time.Minute,
		Kinds: []string{"old"},
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatal(claimed, err)
	}
	settle := storage.Settle{Fence: claimed.Fences[0], Outcome: storage.Decline}
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{settle}}); err != nil {
		t.Fatal(err)
	}
}

// TestAStorageWithoutARunnerHasAProblem checks the findings while no runner is alive. No finding advises to
// remove a schedule then, because the program that declares it may only have crashed.
func TestAStorageWithoutARunnerHasAProblem(t *testing.T) {
	declared := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h"}
	task := storage.Insert{
		Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send", Encoding: "json", Payload: []byte("{}"), CrashLimit: 1,
	}
	later, plan := task, task
	later.Ref.ID, later.Delay = "b", time.Hour
	plan.Ref = storage.Ref{Queue: "reports", ID: storage.CursorPrefix + "nightly"}
	plan.Cursor = &storage.Cursor{Next: time.Now().Add(time.Hour), Declaration: declared.Encode()}
	marker := later
	marker.Ref.ID, marker.Kind, marker.Delay = "orders.load", storage.LoadKind, 100*365*24*time.Hour
	markerOfOther := marker
	markerOfOther.Ref.Queue = "bills"
	const next = " -> start the program that runs the jobs, then midge runner ls"
	for _, c := range []struct {
		inserts        []storage.Insert
		accept         []string
		want, accepted []string
	}{
		{},
		{inserts: []storage.Insert{task}, want: []string{"No runner is alive. 1 waiting." + next}},
		{inserts: []storage.Insert{later}, want: []string{"No runner is alive. 1 scheduled or retrying." + next}},
		{inserts: []storage.Insert{marker, markerOfOther}}, // a record of a load never runs
		{
			inserts: []storage.Insert{marker, markerOfOther, later},
			want:    []string{"No runner is alive. 2 scheduled or retrying." + next},
		},
		{inserts: []storage.Insert{marker, task}, want: []string{
			"No runner is alive. 1 waiting, 1 scheduled or retrying." + next,
		}},
		{
			inserts: []storage.Insert{task, later, plan}, want: []string{
				"No runner is alive. 1 waiting, 1 scheduled or retrying, 1 schedule not ticking." + next,
			},
		},
		{
			inserts: []storage.Insert{task, later, plan}, accept: []string{"no-runner:mail"},
			want:     []string{"No runner is alive. 1 schedule not ticking." + next},
			accepted: []string{"No live runner serves the queue mail. 1 task waits in it, the oldest for a while. -> start a program that serves it, or midge task move --queue mail --to QUEUE"},
		},
		{
			inserts: []storage.Insert{plan}, accept: []string{"no-runners"},
			accepted: []string{"No runner is alive. 1 schedule not ticking." + next},
		},
	} {
		store, err := memory.Open(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		session := storage.NewSession(store, 0)
		for _, in := range c.inserts {
			if _, err := session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, known := range c.accept {
			if err := CheckAccepted("--accept", known); err != nil {
				t.Error(err)
			}
		}
		found, accepted := look(t, store, Bounds{Dead: AnyNumber, Accepted: c.accept})
		if got := problems(found); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if got := problems(accepted); !slices.Equal(got, c.accepted) {
			t.Errorf("accepted: got %q, want %q", got, c.accepted)
		}
		_ = store.Close()
	}
}

// problems returns the texts and the next commands of the problems among findings.
func problems(of []Finding) (texts []string) {
	for _, f := range of {
		if f.Level == Problem {
			texts = append(texts, f.Text+". "+f.Detail+" -> "+f.Next)
		}
	}
	return texts
}

// TestEachFindingHasItsPlaceInTheOrder checks that each code of the judge is among the sorts, and that each name
// under which a finding is accepted passes CheckAccepted.
func TestEachFindingHasItsPlaceInTheOrder(t *testing.T) {
	var text []byte
	for _, name := range []string{"judge.go", "limit.go"} {
		part, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	codes := make(map[string]bool)
	for _, code := range regexp.MustCompile(`Code(?:: |, .*= Problem, )"([a-z-]+)"`).FindAllSubmatch(text, -1) {
		codes[string(code[1])] = true
		if !slices.ContainsFunc(Sorts(), func(s Sort) bool { return s.Code == string(code[1]) }) {
			t.Errorf("%s has no place in the order", code[1])
		}
	}
	for _, sort := range Sorts() {
		if !codes[sort.Code] {
			t.Errorf("the judge finds no %s", sort.Code)
		}
	}
	for _, name := range regexp.MustCompile(`"([a-z-]+:)" \+ `).FindAllSubmatch(text, -1) {
		if err := CheckAccepted("", string(name[1])+"x"); err != nil {
			t.Error(err)
		}
	}
}

// TestTheFindingsAreInTheirOrder judges a survey with findings of both levels in two queues.
func TestTheFindingsAreInTheirOrder(t *testing.T) {
	queue := func(name string) Queue {
		return Queue{
			Stats: storage.Stats{Queue: name, Waiting: 2, Oldest: time.Hour, Damaged: 1}, Runners: 1,
			Unknown: []storage.KindSize{{Kind: "k", Tasks: 1}},
		}
	}
	s := &Survey{
		Info: storage.Description{
			Warnings: []string{"it may evict", "no writes"}, Full: "no room", ReadOnly: "no writes",
		},
		Runners: make([]storage.RunnerInfo, 1),
		Queues:  []Queue{queue("a"), queue("b"), queue("c"), queue("d")}, Dead: &Causes{},
	}
	s.Queues[2].Paused, s.Queues[3].Paused, s.Queues[3].Oldest = true, true, time.Minute
	s.Queues[0].Runners = 0
	var got []string
	found, _ := s.Findings(Bounds{Dead: AnyNumber}, Words{})
	for _, f := range found {
		got = append(got, string(f.Level)+" "+f.Code+" "+f.Queue)
	}
	want := []string{
		"problem full ", "problem read-only ", "problem no-runner a", "problem paused c", "notice paused d", "problem unknown-kind a",
		"problem unknown-kind b", "problem unknown-kind c", "problem unknown-kind d", "problem oldest b",
		"problem damaged a", "problem damaged b", "problem damaged c", "problem damaged d", "notice storage ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	ProblemsFirst(found)
	last := found[len(found)-2:]
	if found[4].Code != "unknown-kind" || last[0].Code != "paused" || last[1].Code != "storage" {
		t.Errorf("the problems do not come first: %+v", found)
	}
}

// TestDeadTasksNearTheLimitAreAFinding checks the limit of a storage, which a storage may not have.
func TestDeadTasksNearTheLimitAreAFinding(t *testing.T) {
	for _, c := range []struct {
		dead, evicted int64
		limit         int
		want          string
	}{
		{79, 5, 100, ""}, {80, 0, 100, "notice dead-limit 80"}, {100, 5, 100, "problem evicted 5"}, {80, 5, storage.NoLimit, ""},
	} {
		q := Queue{Stats: storage.Stats{Queue: "mail", Dead: c.dead, Totals: storage.Totals{Evicted: c.evicted}}}
		s := &Survey{Queues: []Queue{q}, Info: storage.Description{Limits: storage.Limits{DeadMax: c.limit}}}
		got := ""
		found, _ := s.Findings(Bounds{Dead: AnyNumber}, Words{})
		for _, f := range found {
			got += fmt.Sprint(f.Level, " ", f.Code, " ", f.Tasks)
		}
		if got != c.want {
			t.Errorf("%d dead and %d evicted of %d: got %q, want %q", c.dead, c.evicted, c.limit, got, c.want)
		}
	}
}

// described is a storage with a description of its own.
type described struct {
	storage.Storage

	info storage.Description
}

func (d described) Describe(context.Context) (storage.Description, error) { return d.info, nil }

// TestAFullStorageIsAProblem reads a full storage for one report and again and again: only a reader that stays
// knows since when it is full. The finding mentions dead tasks if there are some.
func TestAFullStorageIsAProblem(t *testing.T) {
	sc, err := scene.Open(t.Context(), "empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(-time.Minute)
	store := described{sc.Store, storage.Description{Full: "no room", FullSince: since, Now: time.Now()}}
	for _, next := range []string{"enlarge the storage", "enlarge the storage, or midge task rm state:dead"} {
		found, _ := look(t, store, Bounds{Dead: AnyNumber})
		if f := found[0]; f.Code != "full" || f.Level != Problem || f.Next != next || f.Since != nil {
			t.Errorf("got %+v, want a full storage, next %q, without a time", f, next)
		}
		s, err := NewReader(store, Config{}).Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found, _ = s.Findings(Bounds{Dead: AnyNumber}, Words{})
		if f := found[0]; f.Code != "full" || f.Since == nil || !f.Since.Equal(since) {
			t.Errorf("got %+v, want a full storage since %v", f, since)
		}
		bury(t, sc, "mail", "disk full", 1)
	}
}

func TestAMomentThatJSONCannotWriteIsNull(t *testing.T) {
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for at, null := range map[time.Time]bool{
		last: false, last.Add(time.Second): true, time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC): true, {}: true,
		last.In(time.FixedZone("x", 12*3600)): false,
	} {
		got := Moment(at)
		if (got == nil) != null {
			t.Errorf("%v: got %v, want null: %t", at, got, null)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("%v: %v", at, err)
		}
	}
}

// TestALackOfRunnersThatIsKnownHidesNoOldTask accepts that a queue has no runner, in either way.
func TestALackOfRunnersThatIsKnownHidesNoOldTask(t *testing.T) {
	for _, accept := range []string{"no-runner:mail", "no-runners"} {
		synctest.Test(t, func(t *testing.T) {
			store, err := memory.Open(memory.Config{})
			if err != nil {
				t.Fatal(err)
			}
			in := storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "job", Encoding: "json", CrashLimit: 1}
			if _, err := storage.NewSession(store, 0).ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second) // virtual
			bounds := Bounds{Dead: AnyNumber, Oldest: time.Second, Accepted: []string{accept}}
			found, accepted := look(t, store, bounds)
			if len(found) != 1 || found[0].Code != "oldest" || len(accepted) != 1 || accepted[0].Accept != accept {
				t.Errorf("%s: got %+v, accepted %+v, want the oldest task, and the runner accepted", accept, found, accepted)
			}
			bounds.Accepted = append(bounds.Accepted, "oldest:mail")
			if found, accepted := look(t, store, bounds); len(found) != 0 || len(accepted) != 2 {
				t.Errorf("%s: got %+v, want that both are accepted", accept, found)
			}
			bounds.Accepted = nil
			if found, _ := look(t, store, bounds); len(found) != 1 || found[0].Code != "no-runners" {
				t.Errorf("got %+v, want one finding about the queue", found)
			}
		})
	}
}

// TestKeptSchedulesWithoutARunnerAreOneFinding has kept schedules of a kind that no runner of their queue knows,
// and one whose name a program declares too.
func TestKeptSchedulesWithoutARunnerAreOneFinding(t *testing.T) {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	session := storage.NewSession(store, 0)
	keep := func(name, kind string) storage.Ref {
		in := storage.Insert{
			Ref: storage.Ref{Queue: "mail", ID: storage.CursorPrefix + name}, Kind: kind, Encoding: "json", CrashLimit: 1,
		}
		schedule.Declare(&in, storage.Declaration{Spec: "every 24h0m0s", Kept: true})
		if err := schedule.Set(t.Context(), session, in); err != nil {
			t.Fatal(err)
		}
		return in.Ref
	}
	for _, name := range []string{"ann", "bob", "eve", "joe"} {
		keep(name, "old")
	}
	if err := schedule.Pause(t.Context(), session, keep("paused", "older"), true); err != nil {
		t.Fatal(err)
	}
	keep("one", "other")
	clash := keep("two", "new")
	_, err = session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
		ID: storage.NewRunnerID("h", 1), Queues: []string{"mail"}, Kinds: []string{"new"}, For: time.Hour, Concurrency: 1,
		Schedules: []storage.Declared{{Ref: clash, Hash: "h"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	found, _ := look(t, store, Bounds{})
	want := []string{
		"4 schedules of the kind old are orphaned", "The schedule one is orphaned", "The schedule two has two owners",
	}
	var got []string
	for i := range found {
		got = append(got, found[i].Text)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	found, accepted := look(t, store, Bounds{Accepted: []string{"orphaned:mail/old", "orphaned:mail/other"}})
	if len(found) != 1 || len(accepted) != 2 {
		t.Errorf("%q are found and %q accepted, want one and two", problems(found), problems(accepted))
	}
}
