package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// TestAMistypedCommandLeadsToTheNearest runs commands that do not exist, and verbs without their noun.
func TestAMistypedCommandLeadsToTheNearest(t *testing.T) {
	r := newRig(t)
	for line, next := range map[string]string{
		"foo": "midge top", "doktor": "midge doctor", "task lss": "midge task ls", "requeue mail/a1": "midge task requeue mail/a1",
		"pause mail": "midge queue pause mail", "retry x": "midge task requeue x", "zzzzzzzzz": "midge --help",
		"queue requeue x": "midge task requeue x", "taks ls": "midge task ls", "tsak ls 'kind:a b'": "midge task ls 'kind:a b'",
		"zzzzzzzzz ls": "midge --help", "requeue": "midge task requeue",
	} {
		got := r.run(line)
		if got.code != BadInput || !strings.HasSuffix(got.err, "\nnext: "+next+"\n") {
			t.Errorf("midge %s: exit %d and %s, want %d and next %s", line, got.code, got.err, BadInput, next)
		}
	}
}

// TestAnUnreachableAddressIsNamedOnce connects to a port on which nothing listens, and to a name that has no
// address.
func TestAnUnreachableAddressIsNamedOnce(t *testing.T) {
	r := newRig(t)
	r.real = true
	for url, why := range map[string]string{
		"redis://127.0.0.1:1": "connection refused", "postgres://u:s3cret@127.0.0.1:1/jobs": "connection refused",
	} {
		got := r.run("queue ls --storage " + url)
		if got.code != Unreachable || strings.Count(got.err, "127.0.0.1") != 1 || !strings.Contains(got.err, " cannot be reached: "+why+"\n") {
			t.Errorf("%s: exit %d and %s, want the address once and %s", url, got.code, got.err, why)
		}
	}
}

// TestScheduleRunReportsWhatItDid runs a schedule that allows one task at a time, twice, and then another.
func TestScheduleRunReportsWhatItDid(t *testing.T) {
	r := newRig(t)
	for name, overlap := range map[string]string{"one": "skip", "many": ""} {
		d := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Overlap: overlap, Hash: name}
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "reports", ID: storage.CursorPrefix + name}, Kind: name, Cursor: &storage.Cursor{
			Next: r.now.Add(time.Hour), Declaration: d.Encode(),
		}})
	}
	first := r.run("schedule run reports/one")
	again := r.run("schedule run reports/one")
	const enqueued, none = "enqueued a task of reports/one", "nothing was enqueued: reports/one allows one task at a time"
	if first.code != Done || !strings.Contains(first.err, enqueued) || !strings.HasPrefix(first.out, "reports/") {
		t.Errorf("the first run: got %+v, want %s", first, enqueued)
	}
	if again.code != Done || !strings.Contains(again.err, none) || again.out != first.out {
		t.Errorf("the second run: got %+v, want %s, and the same task", again, none)
	}
	for range 2 {
		if got := r.run("schedule run reports/many"); !strings.Contains(got.err, "enqueued a task of reports/many") {
			t.Errorf("a schedule without a limit: got %+v", got)
		}
	}
	var added show.Added
	r.decode("schedule run reports/one -o json", &added)
	if !added.Existing || added.State != "waiting" || added.Ref+"\n" != first.out {
		t.Errorf("got %+v, want the task that was there", added)
	}
}

// TestCausesAreCompleted offers the causes of the dead tasks, each with its error, and the words for states.
func TestCausesAreCompleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.night()
		for line, want := range map[string]string{
			"__complete task ls cause:":      "cause:3bixdebokt98e\tsmtp: timeout after 30s\n",
			"__complete task requeue cause:": "cause:3bixdebokt98e\tsmtp: timeout after 30s\n",
			"__complete task ls state:r":     "state:running\nstate:retry\n",
			"__complete task ls --state p":   "",
		} {
			if got := r.run(line); !strings.HasPrefix(got.out, want+":4") {
				t.Errorf("midge %s: got %q, want %q", line, got.out, want)
			}
		}
	})
}

// TestNoHalfListIsCompleted completes words on a storage that answers some calls in time and others never: the fixed
// words alone are offered.
func TestNoHalfListIsCompleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, slow := range []time.Duration{120 * time.Millisecond, 200 * time.Millisecond, time.Hour} {
			r := newRig(t)
			r.night()
			r.insert(storage.Insert{Ref: storage.Ref{Queue: "other", ID: "z"}, Kind: "send_mail"})
			r.work("other", storage.Settle{Outcome: storage.Bury, Error: "no route"})
			r.store = sluggish{r.store, slow}
			got := r.run("__complete task ls ''").out
			whole := slow == 120*time.Millisecond
			for _, word := range []string{"kind:", "queue:", "cause:3bixdebokt98e", "no route"} {
				if strings.Contains(got, word) != whole {
					t.Errorf("%v: got %q, want %q in it: %t", slow, got, word, whole)
				}
			}
			for _, word := range []string{"state:dead\n", "error:\n", "age>\n"} {
				if !strings.Contains(got, word) {
					t.Errorf("%v: got %q, want %q in it", slow, got, word)
				}
			}
		}
	})
}

// sluggish is a storage each of whose lists takes a while.
type sluggish struct {
	storage.Storage

	wait time.Duration
}

func (s sluggish) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	sleep.For(ctx, s.wait)
	if ctx.Err() != nil {
		return storage.TasksPage{}, ctx.Err()
	}
	return s.Storage.Tasks(ctx, q)
}

// TestRunningIsTheWordForPending lists the tasks of a runner, of which it has started one, by both words.
func TestRunningIsTheWordForPending(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "b"} {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "send_mail"})
	}
	claimed, err := r.session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "runner-1", Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1, Ahead: 1, Lease: time.Minute,
	})
	if err != nil || len(claimed.Fences) != 2 {
		t.Fatalf("claimed %d tasks, %v; want two", len(claimed.Fences), err)
	}
	list := r.ok("task ls --columns task,state state:running")
	if list != "TASK    STATE\nmail/a  running\nmail/b  claimed, not started\n" {
		t.Errorf("the list of running tasks is\n%s", list)
	}
	for _, line := range []string{"task ls --columns task,state state:pending", "task ls --columns task,state --state running,pending"} {
		if got := r.ok(line); got != list {
			t.Errorf("midge %s: got\n%s\nwant\n%s", line, got, list)
		}
	}
	var tasks []show.Task
	if r.decode("task ls state:running -o json", &tasks); len(tasks) != 2 || tasks[0].State != "pending" {
		t.Errorf("JSON has %+v, want two pending tasks", tasks)
	}
	for line, want := range map[string]string{
		"queue ls --columns queue,running":          "QUEUE  RUNNING\nmail         2\n",
		"queue ls --columns queue,pending":          "QUEUE  RUNNING\nmail         2\n",
		"queue ls --sort pending --columns running": "RUNNING\n      2\n",
	} {
		if got := r.ok(line); got != want {
			t.Errorf("midge %s: got\n%s\nwant\n%s", line, got, want)
		}
	}
	if got := r.ok("task why mail/b"); !strings.HasPrefix(got, "mail/b: claimed, not started: runner runner-1") {
		t.Errorf("the verdict on the task that was claimed ahead is %s", got)
	}
}

// TestAQueueThatIsNamedTwiceIsListedOnce names a queue twice for the list of the schedules.
func TestAQueueThatIsNamedTwiceIsListedOnce(t *testing.T) {
	r := newRig(t)
	for _, queue := range []string{"mail", "reports"} {
		d := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h"}
		r.insert(storage.Insert{Ref: storage.Ref{Queue: queue, ID: storage.CursorPrefix + "x"}, Kind: "x", Cursor: &storage.Cursor{
			Next: r.now.Add(time.Hour), Declaration: d.Encode(),
		}})
	}
	if got := r.run("schedule ls --queue reports,mail --queue reports -o ids"); got.out != "mail/x\nreports/x\n" {
		t.Errorf("got %+v, want each schedule once", got)
	}
}

// TestAScheduleIsTakenByItsWholeName removes a schedule whose name is that of another one behind a prefix.
func TestAScheduleIsTakenByItsWholeName(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"x", storage.CursorPrefix + "x"} {
		d := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h"}
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: storage.CursorPrefix + name}, Kind: "x", Cursor: &storage.Cursor{
			Next: r.now.Add(time.Hour), Declaration: d.Encode(),
		}})
	}
	got := r.run("schedule rm --yes mail/cursor.x")
	if left := r.run("schedule ls -o ids"); got.code != Done || left.out != "mail/x\n" {
		t.Errorf("got %+v, and %q is left, want mail/x", got, left.out)
	}
}
