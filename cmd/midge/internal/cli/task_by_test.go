package cli

import (
	"strings"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
)

// TestTasksAreCountedByAProperty counts tasks by their kinds and by headers whose names and values need quotes.
// Each filter of a count chooses as many tasks as were counted.
func TestTasksAreCountedByAProperty(t *testing.T) {
	r := newRig(t)
	for _, in := range []storage.Insert{
		{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send_mail", Headers: map[string]string{"tenant": "acme, inc.", "a b": "*"}},
		{Ref: storage.Ref{Queue: "mail", ID: "b"}, Kind: "send_mail", Headers: map[string]string{"tenant": "acme, inc."}},
		{Ref: storage.Ref{Queue: "mail", ID: "c"}, Kind: "report", Headers: map[string]string{"tenant": ""}},
		{Ref: storage.Ref{Queue: "other", ID: "d"}, Kind: "report"},
		{Ref: storage.Ref{Queue: "other", ID: "e"}, Kind: "report", Headers: map[string]string{"tenant": "x", "a b": "y"}},
	} {
		r.insert(in)
	}
	for line, want := range map[string]string{
		"task ls --by kind": "TASKS  KIND       FILTER\n    3  report     kind:report\n    2  send_mail  kind:send_mail\n",
		"task ls --by header.tenant": "TASKS  HEADER.TENANT  FILTER\n    2  acme, inc.     header.tenant:\"acme, inc.\"\n" +
			"    1  -              header.tenant:\"\"\n    1  x              header.tenant:x\n" +
			"    1  (none)         -header.tenant:*\n",
		"task ls --by header.tenant queue:mail --limit 1 --columns tasks": "TASKS\n    2\n",
		"task ls --by kind state:dead":                                    "",
		"task ls --by kind -o ids":                                        "kind:report\nkind:send_mail\n",
	} {
		if got := r.ok(line); got != want {
			t.Errorf("midge %s: got\n%s\nwant\n%s", line, got, want)
		}
	}
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "third", ID: "f"}, Kind: "old", Headers: map[string]string{"tenant": "x"}})
	r.work("third", storage.Settle{Outcome: storage.Bury, Error: "no route"})
	for given, want := range map[string]int64{
		"": 5, "state:dead": 1, "queue:mail kind:send*": 2, "--state dead,retry": 1, "--state all": 6, "--queue other,third": 2,
		"--queue third --state ended 'error:\"no route\"'": 1,
	} {
		for _, by := range []string{"kind", "header.tenant", "'header.a b'"} {
			var counts []show.Tally
			r.decode("task ls -o json --by "+by+" "+given, &counts)
			sum := int64(0)
			for _, c := range counts {
				listed := int64(strings.Count(r.ok("task ls -o ids -- '"+c.Filter+"'"), "\n"))
				if sum += c.Tasks; listed != c.Tasks || c.By != strings.Trim(by, "'") {
					t.Errorf("by %s %s: %+v, and its filter chooses %d tasks", by, given, c, listed)
				}
			}
			if sum != want {
				t.Errorf("by %s %s: %d tasks were counted, want %d", by, given, sum, want)
			}
		}
	}
	if got := r.run("task ls --by kind --limit 1"); !strings.Contains(got.err, "showing 1 of 2 values") {
		t.Errorf("got %s", got.err)
	}
}

// TestAFilterThatCannotBePrintedIsLeftOut counts by a header with a value that would command the terminal, and
// with a value of two lines. A filter with other characters in their place would choose other tasks.
func TestAFilterThatCannotBePrintedIsLeftOut(t *testing.T) {
	r := newRig(t)
	for id, value := range map[string]string{"a": "\x1b[31mred", "b": "two\nlines", "c": "x"} {
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "k", Headers: map[string]string{"tag": value}})
	}
	const ids = "midge task ls --by header.tag -o ids"
	if got := r.run(strings.TrimPrefix(ids, "midge ")); got.out != "header.tag:x\n" || !strings.Contains(got.err, "left out: 2 values whose filter cannot be printed") {
		t.Errorf("%s: got %+v, want one filter and a message", ids, got)
	}
	const want = "TASKS  HEADER.TAG     FILTER\n" +
		"    1  \\x1b[31mred  -\n    1  two\\nlines     -\n    1  x              header.tag:x\n"
	if got := r.ok("task ls --by header.tag"); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var counts []show.Tally
	r.decode("task ls --by header.tag -o json", &counts)
	for _, c := range counts {
		if listed := r.ok("task ls -o ids -- '" + c.Filter + "'"); strings.Count(listed, "\n") != 1 {
			t.Errorf("the filter %q of JSON chooses %q, want one task", c.Filter, listed)
		}
	}
}
