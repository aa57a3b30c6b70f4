package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

func TestTasksAreListed(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "task_ls", r.transcript(
		"task ls", "task ls state:dead", "task ls 'state:dead error:timeout' --limit 2", "task ls -o ids state:all",
		"task ls --state dead --queue mail --columns task,reason", "task ls state:dead -o wide --utc", "task ls kind:none",
		"task ls 'kin:x'", "task ls --limit 0", "task ls --state nope", "task ls --columns nope", "task ls --queue bad/name",
		"task ls id:b1 -o json", "task ls --after rubbish"))
}

func TestAllPagesAreListed(t *testing.T) {
	r := newRig(t)
	for i := range 120 {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%03d", i)}, Kind: "send_mail"})
	}
	var seen []string
	line := "task ls -o ids --limit 50"
	for pages := 1; ; pages++ {
		got := r.run(line)
		seen = append(seen, strings.Fields(got.out)...)
		_, after, more := strings.Cut(got.err, "--after ")
		if !more {
			break
		}
		if !strings.Contains(got.err, "showing 50 of 120") || pages > 3 {
			t.Fatalf("page %d says %q", pages, got.err)
		}
		line = "task ls -o ids --limit 50 --after " + strings.TrimSpace(after)
	}
	if len(seen) != 120 || seen[0] != "mail/t000" || seen[119] != "mail/t119" {
		t.Errorf("%d tasks were listed: %v", len(seen), seen)
	}
}

// TestAPipeGetsAllTasks lists more tasks than a table shows, and pipes them.
func TestAPipeGetsAllTasks(t *testing.T) {
	r := newRig(t)
	for i := range 250 {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%03d", i)}, Kind: "send_mail"})
	}
	for _, format := range []string{"ids", "jsonl"} {
		if got := strings.Count(r.ok("task ls kind:send_mail -o "+format), "\n"); got != 250 {
			t.Errorf("-o %s lists %d tasks, want 250", format, got)
		}
	}
	r.in = r.ok("task ls -o ids")
	if got := r.ok("task cancel - --yes"); !strings.Contains(got, "cancelled 250") {
		t.Errorf("got %q, want all cancelled", got)
	}
	if got := r.run("task ls error:x"); !strings.Contains(got.err, "live task") || !strings.Contains(got.err, "state:all") {
		t.Errorf("nothing matches: got %q, want which tasks were searched", got.err)
	}
}

func TestTheDeadAreCountedByCause(t *testing.T) {
	r := newRig(t)
	r.night()
	for i := range 2 {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "reports", ID: fmt.Sprint("d", i)}, Kind: "nightly"})
	}
	if err := r.session.Configure(t.Context(), "reports", storage.Settings{Pause: &storage.Pause{}}); err != nil {
		t.Fatal(err)
	}
	r.work("reports", storage.Settle{Outcome: storage.Bury, Error: "disk 7 is full"})
	golden(t, "task_causes", r.transcript("task ls --by cause", "task ls --by cause -o jsonl", "task ls --by cause --queue mail error:timeout",
		"task ls --by cause -o ids --limit 1", "task ls --by cause --after x", "task ls --by cause kind:none", "task ls --by cause --columns nope"))
	id := strings.Fields(r.ok("task ls --by cause --queue mail -o ids"))[0]
	if got := r.ok("task requeue " + id + " --yes"); !strings.Contains(got, "requeued 3") {
		t.Errorf("requeue %s: got %q, want the three of the cause", id, got)
	}
}

// TestACommandThatIsTooLongIsNotOffered checks that no shortened command is offered, because it would match
// other tasks.
func TestACommandThatIsTooLongIsNotOffered(t *testing.T) {
	r := newRig(t)
	r.night()
	for n, want := range map[int]bool{10: true, 200: false} {
		filter := "kind:" + strings.Repeat("other,", n) + "send_mail"
		got := r.run("task ls --by cause '" + filter + "'")
		if offered := strings.Contains(got.err, "next: midge task requeue 'cause:") &&
			strings.Contains(got.err, " "+filter+"' --canary --rate 50\n"); got.code != Done || offered != want ||
			strings.Contains(got.err, "next:") != want {
			t.Errorf("a filter of %d bytes: got %+v, want a command: %t", len(filter), got, want)
		}
	}
}

// TestIDsAreThoseOfOneThing checks the format ids of commands that show one thing.
func TestIDsAreThoseOfOneThing(t *testing.T) {
	r := newRig(t)
	r.night()
	for line, want := range map[string]string{
		"task show mail/a1": "mail/a1", "task show a1": "mail/a1", "task why mail/a1": "mail/a1", "queue show mail": "mail",
		"schedule show reports/nightly": "reports/nightly",
	} {
		if got := r.ok(line + " -o ids"); got != want+"\n" {
			t.Errorf("midge %s -o ids prints %q, want %s", line, got, want)
		}
	}
}

func TestAQueueThatIsNotThereIsTold(t *testing.T) {
	r := newRig(t)
	r.night()
	for _, line := range []string{
		"task ls --queue mial", "task ls queue:mial", "task requeue --queue mial --yes", "task rm queue:mial,mail --yes", "stats 2",
	} {
		if got := r.run(line); got.code != NotFound || !strings.Contains(got.err, "midge queue ls") {
			t.Errorf("midge %s: got %+v, want %d", line, got, NotFound)
		}
	}
	r.ok("task ls 'queue:x*'")
}

func TestATaskIsShown(t *testing.T) {
	r := newRig(t)
	r.night()
	golden(t, "task_show", r.transcript("task show mail/a1", "task show mail/a1 -o json", "task why mail/a1", "task why b2", "task why reports/c1 -o json", "task why mail/b1",
		"task why reports/cursor.nightly", "task why reports/nightly", "task why none", "task show b2", "task show none",
		"task show mail/none", "task show 'not a task'", "task show '{\"level\":\"error\",\"kind\":\"send_mail\",\"queue\":\"mail\",\"task\":\"a2\"}' --columns x -o table",
		"task show 'time=x level=ERROR msg=failed queue=mail task=a3' -o jsonl", "task result mail/a1", "task wait mail/a1", "task wait"))
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "reports", ID: "a1"}, Kind: "nightly"})
	if got := r.run("task show a1"); got.code != BadInput || !strings.Contains(got.err, "reports/a1") {
		t.Errorf("an id of two queues: got %d and %q", got.code, got.err)
	}
}

// TestOneTaskIsShown refuses the refs of two tasks, and still takes the words of a line of a log.
func TestOneTaskIsShown(t *testing.T) {
	r := newRig(t)
	r.night()
	for _, verb := range []string{"why", "show"} {
		r.says(BadInput, `unexpected argument "mail/a2": midge task `+verb+" wants one task: its ref, its id, or a line",
			"task "+verb+" mail/a1 mail/a2")
		r.says(Done, "mail/a3", "task "+verb+" 2026/11/26 10:00:00 ERROR failed mail/a3")
	}
}

// TestTheReasonLeadsToTheRunners checks the remedy for a task that no live runner can run.
func TestTheReasonLeadsToTheRunners(t *testing.T) {
	r := newRig(t)
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "x"}, Kind: "send_fax"})
	r.says(Done, "next: start a program that serves queue mail; midge runner ls shows", "task why mail/x")
	r.beat("runner-1", []string{"mail"}, []string{"send_mail"})
	r.work("mail", storage.Settle{Outcome: storage.Decline})
	const look = "midge runner ls --queue mail --columns runner,host,version,kinds"
	r.says(Done, "next: deploy a program that handles send_fax on queue mail; "+look+" shows", "task why mail/x")
	if got := r.ok(strings.TrimPrefix(look, "midge ")); !strings.Contains(got, "runner-1  web-1  0.1.0    send_mail") {
		t.Errorf("midge runner ls shows %s", got)
	}
}

// TestADeadlineOfAnyYearIsShown lists tasks with deadlines that programs have set to times out of the
// bounds of a duration and of JSON.
func TestADeadlineOfAnyYearIsShown(t *testing.T) {
	r := newRig(t)
	for id, deadline := range map[string]string{"a": "0001-01-02T00:00:00Z", "b": "9999-12-31T23:59:59-12:00", "c": "2026-05-18T00:00:00Z"} {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "send_mail", Headers: map[string]string{storage.DeadlineHeader: deadline}})
	}
	for _, line := range []string{"task show mail/a", "task show mail/b", "task show mail/b -o json", "task why mail/a", "task why mail/b -o json"} {
		r.ok(line)
	}
	for _, format := range []string{"table", "wide", "json", "jsonl"} {
		if got := strings.Count(r.ok("task ls -o "+format), "mail/"); got != 3 {
			t.Errorf("-o %s lists %d tasks, want 3", format, got)
		}
	}
}

func TestTextsOfTasksCommandNoTerminal(t *testing.T) {
	r := newRig(t)
	r.insert(storage.Insert{
		Ref: storage.Ref{Queue: "mail", ID: "x"}, Kind: "send_mail", Encoding: "json",
		Payload: []byte(`{"a":"\u001b[2J"}`), Headers: map[string]string{"trace": "a\x1b[2Jb"},
	})
	r.work("mail", storage.Settle{Outcome: storage.Bury, Error: "bad\x1b]0;title\x07\nline two", Stack: "at\x1b[31m", Reason: "why\x1b"})
	for _, line := range []string{"task show mail/x", "task ls state:dead", "task ls state:dead -o wide"} {
		if got := r.run(line); strings.ContainsAny(got.out+got.err, "\x1b\x07") {
			t.Errorf("midge %s prints %q", line, got.out)
		}
	}
}

// letter is a job for the tasks that the command adds.
type letter struct{ To string }

// Kind returns the kind of the job.
func (*letter) Kind() string { return "letter" }

// Run does nothing.
func (*letter) Run(context.Context) error { return nil }

func TestATaskIsAdded(t *testing.T) {
	r := newRig(t)
	golden(t, "task_add", r.transcript(
		"task add letter --id a1 --params '{\"To\":\"ann\"}' --priority 3 --retries 2 --in 2d --header tenant=acme --run-timeout 90s --keep 1h",
		"task add letter --id a1 --params '{\"To\":\"ann\"}' --priority 3 --retries 2 --in 2d --header tenant=acme --run-timeout 90s --keep 1h",
		"task show default/a1 --utc", "task add letter --id a1", "task add letter --id m1 --encoding msgpack --params '{\"n\":9007199254740993}' -o json",
		"task show m1 -o json", "task add letter --params '{\"To\":' ", "task add letter --params @/none", "task add", "task add 'no kind'",
		"task add letter --in 5", "task add letter --at soon", "task add letter --header x", "task add letter --priority 10",
		"task add letter --unique-for 1h", "task add letter --id d1 --at 2026-05-18T12:00:00Z --deadline 1h", "task add --kind letter --id k1", "task add letter --kind letter", "task add letter --id x1 --in 1h --at 2026-05-18T12:00:00Z"))
	r.in = `{"To":"bob"}`
	if ref := strings.TrimSpace(r.ok("task add letter --params -")); r.ok("task show "+ref+" -o json") == "" {
		t.Error("the parameters of standard input were not taken")
	}
}

// TestAUniqueKeyIsThatOfTheClient adds one task by the command and one by a client, with the same key.
func TestAUniqueKeyIsThatOfTheClient(t *testing.T) {
	r := newRig(t)
	client, err := midge.NewClient(r.store, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags string
		u     midge.Unique
	}{
		{"--unique k", midge.Unique{Key: "k", Life: true}}, {"--unique k --unique-for 1h", midge.Unique{Key: "k", For: time.Hour}},
	} {
		ref := strings.TrimSpace(r.ok("task add letter " + c.flags))
		task, err := client.Enqueue(t.Context(), &letter{}, c.u)
		if err != nil || !task.Existing || task.Ref.String() != ref {
			t.Errorf("%s: the client gets %v, %v; want the task %s of the command", c.flags, task, err, ref)
		}
	}
}

func TestAWaitEndsWithTheTask(t *testing.T) {
	r := newRig(t)
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send_mail", Keep: storage.Keep{For: time.Hour}})
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "b"}, Kind: "send_mail", Delay: time.Hour})
	r.work("mail", storage.Settle{Outcome: storage.Complete, Result: []byte(`{"sum":7}`)})
	golden(t, "task_wait", r.transcript("task wait mail/a", "task result mail/a", "task wait mail/b --timeout 30ms", "task wait mail/a mail/none", "task result mail/b"))
	r.in = "mail/a\n"
	r.ok("task wait -")
}

// TestTooLongParametersAreRefused passes JSON that ends within the bound and goes on beyond it, so that a
// part of it would be valid.
func TestTooLongParametersAreRefused(t *testing.T) {
	r := newRig(t)
	text := "{}" + strings.Repeat(" ", maxInput) + "x"
	file := filepath.Join(t.TempDir(), "params.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"task add k --params ", "task edit mail/a --params "} {
		for _, from := range []string{"-", "@" + file} {
			r.in = text
			got := r.run(line + from)
			if got.code != BadInput || got.err != "midge: the parameters cannot be read: they are longer than 64 MiB\n" {
				t.Errorf("midge %s%s: got %d, %.200s", line, from, got.code, got.err)
			}
		}
	}
}

// TestATaskWithoutATimeoutSaysSo checks a task that has none, and a task that leaves it to the runner.
func TestATaskWithoutATimeoutSaysSo(t *testing.T) {
	r := newRig(t)
	for id, flags := range map[string]string{"none": "--run-timeout 0s", "some": "--run-timeout 90s", "runners": ""} {
		r.ok("task add send --queue mail --id " + id + " " + flags)
	}
	for id, want := range map[string][2]string{
		"none": {"timeout none", "-1"}, "some": {"timeout 1m 30s", "90"}, "runners": {"", "0"},
	} {
		text := strings.Join(strings.Fields(r.ok("task show mail/"+id)), " ")
		if has := strings.Contains(text, "timeout"); has != (want[0] != "") || !strings.Contains(text, want[0]) {
			t.Errorf("%s: got %q, want %q", id, text, want[0])
		}
		if got := r.ok("task show mail/" + id + " -o jsonl"); !strings.Contains(got, `"timeout_seconds":`+want[1]+",") {
			t.Errorf("%s: got %s, want %s seconds", id, got, want[1])
		}
	}
	backup := filepath.Join(t.TempDir(), "backup")
	r.ok("task rm mail/none --yes --backup " + backup)
	r.ok("task restore --yes " + backup)
	if task, err := r.store.Task(t.Context(), storage.Ref{Queue: "mail", ID: "none"}); err != nil || task.Timeout != storage.NoTimeout {
		t.Errorf("got the timeout %v, %v after a restore", task.Timeout, err)
	}
}

// TestProgressIsShownInEachEncoding checks every form of output, because jobs store progress as JSON in either
// encoding.
func TestProgressIsShownInEachEncoding(t *testing.T) {
	for encoding, params := range map[string]string{"json": "{}", "msgpack": "\x80"} {
		r := newRig(t)
		r.insert(storage.Insert{
			Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send_mail", Encoding: encoding, Payload: []byte(params),
		})
		claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
			Runner: "r", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Lease: time.Hour,
		})
		if err != nil || len(claimed.Fences) != 1 {
			t.Fatalf("claimed %d tasks, %v; want one", len(claimed.Fences), err)
		}
		if _, err := r.session.Extend(t.Context(), storage.ExtendRequest{Leases: []storage.Extension{
			{Fence: claimed.Fences[0], For: time.Hour, Progress: []byte(`{"done":5,"of":60}`)},
		}}); err != nil {
			t.Fatal(err)
		}
		r.now = noon.Add(5 * time.Minute)
		for line, want := range map[string]string{
			"task show mail/a":          `progress {"done":5,"of":60} 8%, about 55m left`,
			"task show mail/a -o wide":  `progress {"done":5,"of":60} 8%, about 55m left`,
			"task show mail/a -o json":  `"progress": { "done": 5, "of": 60 }`,
			"task show mail/a -o jsonl": `"progress":{"done":5,"of":60}`,
		} {
			if got := strings.Join(strings.Fields(r.ok(line)), " "); !strings.Contains(got, want) {
				t.Errorf("%s: %s does not show %s:\n%s", encoding, line, want, got)
			}
		}
	}
}
