package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestAnEmptyFilterChoosesNoTasks passes the arguments that a shell makes of empty variables.
func TestAnEmptyFilterChoosesNoTasks(t *testing.T) {
	r := newRig(t)
	r.night()
	before := r.ok("task ls --state all -o ids")
	for _, line := range []string{
		"task rm '' --yes", "task rm ' ' --yes", "task cancel '' --yes", "task requeue '' --yes", "task move --to x '' --yes",
		"task edit '' --priority 1 --yes", "task rm --queue '' --yes", "task rm --queue '' kind:send_mail --yes",
		"task rm --state '' kind:send_mail --yes", "task cancel '' --queue '' --yes", "task rm kind: --yes", "task ls --queue ''",
	} {
		if got := r.run(line); got.code != BadInput {
			t.Errorf("midge %s: got %+v, want %d", line, got, BadInput)
		}
	}
	if got := r.run("task rm '' --yes"); !strings.Contains(got.err, "--state live") {
		t.Errorf("got %q, want what to type to mean all", got.err)
	}
	if after := r.ok("task ls --state all -o ids"); after != before {
		t.Errorf("the tasks are\n%swant\n%s", after, before)
	}
	if got := r.run("task cancel --state live --yes"); got.code != Done || !strings.Contains(got.out, "cancelled 3") {
		t.Errorf("--state live: got %+v, want all three cancelled", got)
	}
}

// TestManyTasksAreConfirmedByAWord requires the name of the queue to confirm an action on more than 1,000
// tasks.
func TestManyTasksAreConfirmedByAWord(t *testing.T) {
	r := newRig(t)
	for i := range typeAbove + 1 {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%04d", i)}, Kind: "send_mail"})
	}
	r.person = true
	for _, c := range []struct {
		in   string
		code int
	}{{"y\n", Failed}, {"mail\n", Done}} {
		r.in = c.in
		got := r.run("task cancel kind:send_mail")
		if got.code != c.code || !strings.Contains(got.err, `Type "mail" to go on`) {
			t.Errorf("the answer %q: got %+v", c.in, got)
		}
	}
}

// TestAnActionReachesAMatchThatThePreviewDidNot puts the only match after more tasks than a preview reads.
func TestAnActionReachesAMatchThatThePreviewDidNot(t *testing.T) {
	r := newRig(t)
	for i := range 210 {
		txs := make([]storage.Tx, 100)
		for j := range txs {
			in := storage.Insert{
				Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%05d", i*100+j)}, Kind: "send_mail", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
			}
			if i == 209 && j == 99 {
				in.Kind = "needle"
			}
			txs[j] = storage.Tx{Inserts: []storage.Insert{in}}
		}
		if _, err := r.session.Apply(t.Context(), txs...); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.run("task cancel kind:needle --dry-run"); got.code != Done || strings.Contains(got.err, "no such task;") ||
		!strings.Contains(got.err, "no such task so far (searched 20,000 of 21,000; the command searches all)") {
		t.Errorf("--dry-run: got %+v", got)
	}
	if got := r.run("task cancel kind:needle"); got.code != BadInput {
		t.Errorf("nobody is there to confirm: got %+v", got)
	}
	r.person, r.in = true, "y\n"
	if got := r.run("task cancel kind:needle"); got.code != Failed || !strings.Contains(got.err, `Cancel all that match? Type "cancel" to go on`) {
		t.Errorf("an answer that is not enough: got %+v", got)
	}
	if got := r.run("task cancel kind:needle --yes"); got.code != Done || !strings.Contains(got.out, "cancelled 1") {
		t.Errorf("got %+v, want the one that matches cancelled", got)
	}
	if got := r.run("task cancel kind:needle --yes"); got.code != Done || !strings.Contains(got.out, "nothing to do") {
		t.Errorf("once more: got %+v", got)
	}
}

// late is a user who takes a while to answer.
type late struct {
	io.Reader

	meanwhile func()
}

func (l *late) Read(b []byte) (int, error) {
	l.meanwhile()
	return l.Reader.Read(b)
}

// TestAnActionIsDoneToNoMoreTasksThanWereConfirmed adds a matching task before the user answers.
func TestAnActionIsDoneToNoMoreTasksThanWereConfirmed(t *testing.T) {
	r := newRig(t)
	n := 0
	insert := func() {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%04d", n)}, Kind: "send_mail"})
		n++
	}
	insert()
	insert()
	var out, errs bytes.Buffer
	std := r.std(strings.NewReader(""), &out, &errs)
	std.Ask = func() (Dialog, error) {
		return Dialog{In: &late{strings.NewReader("y\n"), insert}, Out: &errs, Close: func() error { return nil }}, nil
	}
	if code := Run(t.Context(), words("task cancel kind:send_mail"), std); code != Done || !strings.Contains(errs.String(), "Cancel 2 tasks?") {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	if !strings.Contains(out.String(), "cancelled 2") || r.ok("task ls -o ids") == "" {
		t.Errorf("%d tasks were there: %s", n, out.String())
	}
}

// TestAnEmptyStandardInputNamesNothing has another program fail before it writes the names. A wait for its tasks must
// not report that all tasks have completed.
func TestAnEmptyStandardInputNamesNothing(t *testing.T) {
	r := newRig(t)
	for _, line := range []string{
		"task wait -", "task cancel - --yes", "task edit - --now --yes", "queue create -", "queue pause -", "queue pause - --create",
		"queue resume -",
	} {
		for _, in := range []string{"", " \n\n"} {
			r.in = in
			r.says(BadInput, "standard input is empty", line)
		}
	}
}
