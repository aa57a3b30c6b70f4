package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestASleepIsTheReasonWhileItLasts checks the commands on a task whose job sleeps, then runs, crashes, and is
// cancelled. No command proposes a requeue of a sleeping task, which would only sleep again.
func TestASleepIsTheReasonWhileItLasts(t *testing.T) {
	r := newRig(t)
	const reason = storage.ReasonSleeps + " 2026-05-17 12:01:00 UTC (a while)"
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send_mail", Keep: storage.Keep{For: time.Hour}})
	r.work("mail", storage.Settle{Outcome: storage.Snooze, Delay: time.Minute, Reason: reason})
	why := r.says(Done, "it is due in 1m: its job "+reason, "task why mail/a")
	if strings.Contains(why.err, "next:") {
		t.Errorf("a command is proposed for a task that sleeps: %s", why.err)
	}
	for _, line := range []string{"task show mail/a", "task show mail/a -o json", "task ls -o wide", "task ls reason:sleeps"} {
		r.says(Done, "mail/a", line)
	}
	r.says(Done, reason, "task show mail/a")
	shown := func(when string) string {
		t.Helper()
		page := r.ok("task show mail/a") + r.ok("task show mail/a -o json") + r.ok("task why mail/a -o json")
		if strings.Contains(page, storage.ReasonSleeps) {
			t.Errorf("%s it sleeps:\n%s", when, page)
		}
		return page
	}
	r.now = r.now.Add(time.Minute + time.Second)
	claim := func() (tasks int) {
		t.Helper()
		for range 2 { // the first claim may only promote the task, or recover it
			claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
				Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Lease: 30 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			tasks += len(claimed.Tasks)
		}
		return tasks
	}
	if claim() != 1 {
		t.Fatal("the task is not claimed after its sleep")
	}
	shown("while it runs")
	r.now = r.now.Add(44*time.Second + time.Millisecond)
	claim()
	if page := shown("after a crash"); !strings.Contains(page, "crashed on runner-1, found 44s after the start") {
		t.Errorf("the crash is not told:\n%s", page)
	}
	r.now = r.now.Add(time.Minute)
	claim() // recovers it, if it was claimed again
	r.ok("task cancel mail/a --yes")
	shown("once it is cancelled")
}
