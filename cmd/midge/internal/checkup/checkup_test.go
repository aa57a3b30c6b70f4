package checkup

import (
	"context"
	"fmt"
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

// TestATaskThatWasDeclinedIsAProblemOnlyIfNoRunnerKnowsItsKind and a queue without runners lacks a runner, for
// all of its tasks.
func TestATaskThatWasDeclinedIsAProblemOnlyIfNoRunnerKnowsItsKind(t *testing.T) {
	for _, c := range []struct {
		what  string
		kinds []string // of the live runner of the queue, nil for no runner
		want  []string
	}{
		{"a runner knows the kind", []string{"old", "fresh"}, nil},
		{"a runner knows other kinds", []string{"old"}, []string{
			"unknown-kind: 1 task waits of kind fresh in queue mail: no live runner of the queue knows the kind",
		}},
		{"no runner serves the queue", nil, []string{"no-runner: 1 task waits in queue mail, and no live runner serves it"}},
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
