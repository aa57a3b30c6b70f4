package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// pasted returns the command that an answer proposes as the next one, without the word midge.
func pasted(t *testing.T, got answer) string {
	t.Helper()
	_, line, _ := strings.Cut(got.err, "next: midge ")
	line, _, _ = strings.Cut(line, "\n")
	if line == "" {
		t.Fatalf("%+v proposes no command", got)
	}
	return line
}

// long returns a rig with 120 tasks of 120 causes of death in two queues, and 120 actions in the audit.
func long(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	audit := ledger.NewAudit(r.store)
	word := func(i int) string { return string([]byte{'a' + byte(i/26), 'a' + byte(i%26), 'x'}) }
	for i := range 120 {
		queue := []string{"mail", "reports"}[i%2]
		r.insert(storage.Insert{Ref: storage.Ref{Queue: queue, ID: fmt.Sprintf("t%03d", i)}, Kind: "send_mail"})
		r.work(queue, storage.Settle{Outcome: storage.Bury, Error: "no such " + word(i)})
		action, err := audit.Begin(t.Context(), ledger.Entry{Who: "ann", Action: "pause", Queue: "mail"})
		if err == nil {
			err = action.End(t.Context(), ledger.Ending{Count: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
		r.now = r.now.Add(1e9)
	}
	return r
}

// TestTheNextPageCanBePasted follows each list to its end by the commands that it prints.
func TestTheNextPageCanBePasted(t *testing.T) {
	r := long(t)
	for _, first := range []string{"audit -o ids --limit 50", "task ls 'state:dead kind:send_*' -o ids --limit 50"} {
		var seen []string
		for line, pages := first, 1; ; pages++ {
			got := r.run(line)
			seen = append(seen, strings.Fields(got.out)...)
			if got.code != Done || pages > 3 {
				t.Fatalf("midge %s: got %+v on page %d", line, got, pages)
			}
			if !strings.Contains(got.err, "next: ") {
				break
			}
			line = pasted(t, got)
		}
		slices.Sort(seen)
		if n := len(slices.Compact(seen)); n != 120 {
			t.Errorf("midge %s and its next pages list %d rows, want 120", first, n)
		}
	}
}

// TestAProgramGetsAllRows checks every list with a default limit, in each form of output.
func TestAProgramGetsAllRows(t *testing.T) {
	r := long(t)
	for _, line := range []string{"audit", "task ls state:dead", "task ls --by cause"} {
		for form, want := range map[string]int{
			"ids": 120, "jsonl": 120, "ids --limit 7": 7, "jsonl --limit 7": 7, "table": 51, "table --limit 7": 8,
		} {
			if got := strings.Count(r.ok(line+" -o "+form), "\n"); got != want {
				t.Errorf("midge %s -o %s writes %d lines, want %d", line, form, got, want)
			}
		}
	}
}

// TestAProposedCommandShowsNoPassword checks the command of the next page of a run with a password in a flag.
func TestAProposedCommandShowsNoPassword(t *testing.T) {
	r := long(t)
	for _, flag := range []string{"--storage redis://u:s3cret@db.example:6379/0", "--storage=redis://u:s3cret@db.example:6379/0"} {
		got := r.run("task ls state:dead --limit 2 " + flag) // run searches the output for the password
		if next := pasted(t, got); !strings.Contains(next, "--storage redis://db.example:6379/0") {
			t.Errorf("the next page is midge %s, want it on the same storage", next)
		}
	}
}

// TestALineThatATerminalWouldObeyIsNotPrinted checks that the next command has no control character.
func TestALineThatATerminalWouldObeyIsNotPrinted(t *testing.T) {
	a := &app{args: []string{"task", "ls", "error:\x15"}}
	if got, want := a.with("--after", "c"), "the same command with --after c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
