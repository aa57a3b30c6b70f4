package checkup

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

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
	begun := time.Now()
	report, err := Look(t.Context(), large{store}, Bounds{Dead: -1}, "midge.")
	took := time.Since(begun)
	if err != nil || report.Queues != 10_000 || report.Problems() != 5000 {
		t.Fatalf("got %d problems of %d queues, %v; want 5000 queues that nobody serves", report.Problems(), report.Queues, err)
	}
	if took > 3*time.Second {
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
			"unknown-kind: 1 task waits of kind fresh in queue mail: no live runner of the queue knows the kind",
		}},
		{"no runner serves the queue", []string{}, []string{
			"no-runner: 1 task waits in queue mail, and no live runner serves it",
		}},
		{"no runner is alive", nil, []string{"no-runners: no runner is alive: 1 task waits"}},
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
		report, err := Look(t.Context(), store, Bounds{Dead: -1}, "midge.")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range report.Findings {
			if f.Level == Problem {
				got = append(got, f.Code+": "+f.Text)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
		_ = store.Close()
	}
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

// TestAStorageWithoutARunnerHasAProblem checks the findings while no runner is alive. Nobody is told to
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
	const next = " -> start the program that runs the jobs, then midge runner ls"
	const orphan = "schedule reports/nightly stands still: no runner is alive" +
		" -> start the program that declares it"
	for _, c := range []struct {
		inserts        []storage.Insert
		accept         []string
		want, accepted []string
	}{
		{},
		{inserts: []storage.Insert{task}, want: []string{"no runner is alive: 1 task waits" + next}},
		{inserts: []storage.Insert{later}, want: []string{"no runner is alive: 1 task waits for later" + next}},
		{
			inserts: []storage.Insert{task, later, plan}, want: []string{
				"no runner is alive: 1 task waits, 1 task waits for later and 1 schedule stands still" + next, orphan,
			},
		},
		{
			inserts: []storage.Insert{task, later, plan}, accept: []string{"no-runner:mail"},
			want:     []string{"no runner is alive: 1 schedule stands still" + next, orphan},
			accepted: []string{"1 task waits in queue mail, and no live runner serves it -> midge runner ls"},
		},
		{
			inserts: []storage.Insert{plan}, accept: []string{"no-runners", "orphaned:reports/nightly"},
			accepted: []string{"no runner is alive: 1 schedule stands still" + next, orphan},
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
		report, err := Look(t.Context(), store, Bounds{Dead: -1, Accepted: c.accept}, "midge.")
		if err != nil {
			t.Fatal(err)
		}
		if got := problems(report.Findings); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if got := problems(report.Accepted); !slices.Equal(got, c.accepted) {
			t.Errorf("accepted: got %q, want %q", got, c.accepted)
		}
		_ = store.Close()
	}
}

// problems returns the texts and the next commands of the problems among findings.
func problems(of []Finding) (texts []string) {
	for _, f := range of {
		if f.Level == Problem {
			texts = append(texts, f.Text+" -> "+f.Next)
		}
	}
	return texts
}

// TestTheFindingsAreInTheOrderOfTheOverview checks the order in which docs/operating.md lists the findings.
func TestTheFindingsAreInTheOrderOfTheOverview(t *testing.T) {
	var findings, want []Finding
	for _, level := range []Level{Problem, Notice} {
		for _, code := range order {
			for _, queue := range []string{"a", "b"} {
				f := Finding{Level: level, Code: code, Queue: queue}
				want = append(want, f)
				findings = append(findings, f)
			}
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { // by queue, and otherwise the other way round
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.Code, a.Code), cmp.Compare(a.Level, b.Level))
	})
	sort(findings)
	if !reflect.DeepEqual(findings, want) {
		t.Errorf("got %+v, want %+v", findings, want)
	}
	for _, file := range []string{"checkup.go", "causes.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile(`Code: "([a-z-]+)"`).FindAllSubmatch(text, -1) {
			if !slices.Contains(order, string(code[1])) {
				t.Errorf("%s has no place in the order", code[1])
			}
		}
	}
}
