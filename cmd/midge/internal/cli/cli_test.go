package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/storage"
)

func TestAStorageThatIsNotKnownStaysSo(t *testing.T) {
	r := newRig(t)
	a := &app{std: r.std(nil, io.Discard, io.Discard), choice: connect.Choice{Profile: "none"}}
	first, second := a.choose(), a.open(t.Context())
	if first == nil || !errors.Is(second, first) || a.store != nil {
		t.Errorf("got the errors %v, then %v; want the same twice, and no open storage", first, second)
	}
}

// TestACompletionWaitsForNoStorage checks that a completion ends in time on a storage that ignores its context.
func TestACompletionWaitsForNoStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, opens := newRig(t), make(chan struct{})
		var out bytes.Buffer
		std := r.std(strings.NewReader(""), &out, io.Discard)
		std.Open = func(context.Context, connect.Target) (storage.Storage, error) {
			<-opens
			return r.store, nil
		}
		begun := time.Now()
		code := Run(t.Context(), []string{"__complete", "queue", "show", ""}, std)
		took := time.Since(begun)
		close(opens)
		if code != Done || took != completeTime || !strings.HasPrefix(out.String(), ":4") {
			t.Errorf("exit %d and %q after %v, want 0 and nothing after %v", code, &out, took, completeTime)
		}
	})
}

// TestAQueueWhoseTasksRunIsNotRemoved checks that the queue keeps all its tasks and totals.
func TestAQueueWhoseTasksRunIsNotRemoved(t *testing.T) {
	r := newRig(t)
	r.night()
	claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Lease: time.Minute,
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claimed %d tasks, %v; want one", len(claimed.Fences), err)
	}
	before := r.ok("queue ls mail -o jsonl")
	got := r.run("queue rm mail --yes")
	if want := "1 task of mail is running: pause the queue and wait, or cancel the task"; got.code != Refused || !strings.Contains(got.err, want) {
		t.Errorf("exit %d, want %d and %q:\n%s", got.code, Refused, want, got.err)
	}
	if after := r.ok("queue ls mail -o jsonl"); after != before {
		t.Errorf("the queue is now %s, want %s", after, before)
	}
}

func TestQueues(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "queue", r.transcript(
		"queue ls", "queue ls 'm*' -o wide", "queue ls --columns queue,dead", "queue ls -o ids", "queue ls -o jsonl",
		"queue show mail", "queue show reports -o json", "queue show none", "queue ls 'x*'", "queue ls --columns nope",
		"queue pause mail --for 1h", "queue ls", "queue resume mail reports", "queue pause mail none", "queue pause mail --for 0s",
		"queue pause", "queue rm mail", "queue rm mail --dry-run", "queue rm mail -y", "queue ls", "queues list", "queue lss"))
}

func TestAQueueTellsOfTasksThatNobodyCanRun(t *testing.T) {
	r := newRig(t)
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "x"}, Kind: "send_fax"})
	r.beat("runner-1", []string{"mail"}, []string{"send_mail"})
	r.work("mail", storage.Settle{Outcome: storage.Decline})
	if got := r.ok("queue show mail"); !strings.Contains(got, "outlook    1 task of a kind that no runner knows waits\n") {
		t.Errorf("got %s", got)
	}
	if got := r.ok("task ls --help"); !strings.Contains(got, "  dead        midge has given the task up") {
		t.Errorf("task ls explains no states:\n%s", got)
	}
}

func TestRunners(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "runner", r.transcript("runner ls", "runner ls -o json", "runner ls --queue none", "runner show runner",
		"runner show runner-1 -o json", "runner show x", "runner ls --utc -o wide"))
}

// TestARunnerShowsWhichKindsItCannotDecode checks the page of a runner, and its record.
func TestARunnerShowsWhichKindsItCannotDecode(t *testing.T) {
	r := newRig(t)
	_, err := r.session.Extend(t.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
		ID: "runner-1", Host: "web-1", Queues: []string{"hooks"}, Kinds: []string{"webhook"}, Concurrency: 1,
		Started: r.now, For: time.Hour, Undecodable: []storage.KindTrouble{{
			Queue: "hooks", Kind: "webhook", Since: r.now, Tasks: 31, Reason: "URL: a number, want a string",
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(5 * time.Minute)
	want := "undecodable  webhook of hooks  at least 31 tasks  since 5m ago\n             URL: a number, want a string\n"
	if got := r.ok("runner show runner-1"); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
	want = `"undecodable":[{"queue":"hooks","kind":"webhook","since":"2026-05-17T12:00:00Z","tasks":31,` +
		`"reason":"URL: a number, want a string"}]`
	if got := r.ok("runner show runner-1 -o jsonl"); !strings.Contains(got, want) {
		t.Errorf("got %s, want in it %s", got, want)
	}
}

func TestSchedules(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "schedule", r.transcript("schedule ls --utc", "schedule ls --orphaned -o json", "schedule show reports/nightly --utc",
		"schedule show reports/nightly -o json", "schedule show reports", "schedule show reports/none", "schedule rm reports/hourly",
		"schedule rm reports/nightly --yes", "schedule ls -o ids"))
	if got := r.ok("schedule run reports/hourly"); !strings.HasPrefix(got, "reports/") {
		t.Errorf("schedule run gives %q, want the ref of a task of reports", got)
	}
}

func TestKeptSchedules(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "schedule_set", steady(r.transcript(
		"schedule set mail/ann --every 24h --jitter 6h --kind send_mail --params {\"to\":\"ann\"} --priority 2 --no-overlap",
		"schedule show mail/ann --utc", "schedule pause mail/ann", "schedule ls --utc", "task why mail/ann",
		"schedule set mail/ann --cron @daily --zone Europe/Paris", "schedule resume mail/ann",
		"schedule show mail/ann -o json", "schedule pause reports/nightly", "schedule ls --columns schedule,status,owner,spec",
		"schedule set reports/nightly --every 1h --kind nightly", "schedule set mail/bob --every 1h",
		"schedule set mail/ann --every 1h --params {}", "schedule set mail/ann", "schedule set mail --every 1h",
		"schedule set mail/ann --every 1ms", "schedule set mail/ann --every 1h --jitter 25h", "schedule set mail/ann --cron 0",
		"schedule set mail/ann --every 1h --missed some", "schedule pause mail/none", "schedule rm mail/ann --yes",
		"schedule set mail/eve --every 1h --kind send_fax", "doctor", "task why mail/eve", "audit -o wide",
	)))
}

// TestAScheduleHasOneName checks that people see the name of schedule ls in all commands.
func TestAScheduleHasOneName(t *testing.T) {
	r := newRig(t)
	r.night()
	for _, line := range []string{
		"schedule ls -o wide", "schedule show reports/nightly", "task why reports/nightly", "task why reports/nightly -o ids",
		"queue rm reports --dry-run", "schedule rm reports/nightly --dry-run", "schedule run reports/nightly",
		"schedule rm reports/nightly --yes", "audit", "audit -o wide",
	} {
		got := r.run(line)
		if said := got.out + got.err; got.code != Done || strings.Contains(said, "cursor.") ||
			!strings.Contains(said, "reports/") {
			t.Errorf("midge %s: got %+v", line, got)
		}
	}
	if got := r.ok("audit"); strings.Count(got, "reports/nightly") != 2 {
		t.Errorf("the audit is\n%s", got)
	}
}

func TestWhatIsWrongWithALineIsSaid(t *testing.T) {
	r := newRig(t)
	golden(t, "usage", r.transcript("que", "queue", "queue ls -o yaml", "queue ls -o json --columns queue", "queue ls --nope",
		"queue ls --storage redis://x --profile y", "queue ls --profile y", "queue ls --timeout -1s", "queue ls a b",
		"stats --watch=1ms", "queue pause bad/name", "queue ls '['", "queue ls --schema x", "version x"))
}

func TestWithoutAStorageMidgeSaysHowToNameOne(t *testing.T) {
	r := newRig(t)
	delete(r.env, connect.EnvStorage)
	got := r.run("")
	if got.code != BadInput || !strings.Contains(got.err, "midge --storage redis://") {
		t.Errorf("got %d and %q, want 2 and a line to type", got.code, got.err)
	}
}

func TestAnAnswerIsAskedForAndHeard(t *testing.T) {
	r := newRig(t)
	r.night()
	r.person = true
	for _, c := range []struct {
		in   string
		code int
	}{{"", Failed}, {"n\n", Failed}, {"\n", Failed}, {"y\n", Done}} {
		r.in = c.in
		if got := r.run("queue rm mail"); got.code != c.code || !strings.Contains(got.err, "on redis://db.example:6379/0\n") {
			t.Errorf("the answer %q: got %d and %q, want %d and the storage named", c.in, got.code, got.err, c.code)
		}
	}
	if got := r.run("queue show mail"); got.code != NotFound {
		t.Errorf("got %d, want the queue gone", got.code)
	}
}

// TestACommandThatAsksKnowsADryRun because the question mentions the flag if nobody can be asked.
func TestACommandThatAsksKnowsADryRun(t *testing.T) {
	r := newRig(t)
	asks := 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("yes") != nil {
			asks++
			if cmd.Flags().Lookup("dry-run") == nil {
				t.Errorf("%s has --yes, but no --dry-run", cmd.CommandPath())
			}
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look((&app{std: r.std(nil, nil, nil)}).root())
	if asks < 10 {
		t.Errorf("%d commands have --yes, want at least 10", asks)
	}
	r.night()
	before := r.ok("schedule ls")
	r.says(Done, "reports/nightly would be removed\nnothing was changed", "schedule rm reports/nightly --dry-run")
	if after := r.ok("schedule ls"); after != before {
		t.Errorf("after --dry-run the schedules are\n%s, want\n%s", after, before)
	}
}
