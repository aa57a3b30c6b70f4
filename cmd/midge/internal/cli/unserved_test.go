package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestTasksThatNoRunnerServesGiveAWarning checks each command that puts tasks into a queue that is named. The tasks
// are put there all the same.
func TestTasksThatNoRunnerServesGiveAWarning(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("rows.csv", []byte("to\nann\nbo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const unserved = "warning: no live runner serves the queue newq, so "
	for line, want := range map[string]string{
		"task move mail/b1 --to newq":                                  unserved + "its tasks wait until one does\nnext: midge runner ls\n",
		"task move 'id:b1' --to newq --yes":                            unserved,
		"task move 'id:b1' --to newq --dry-run":                        unserved,
		"task move mail/b1 --to reports":                               "",
		"task add send_mail --queue newq":                              unserved + "the task waits until one does\n",
		"task add nokind --queue mail":                                 "warning: no live runner on mail handles nokind, so the task waits until one does\nnext: midge runner ls --queue mail\n",
		"task add send_mail --queue mail":                              "",
		"load rows.csv --kind send_mail --queue newq":                  unserved + "its tasks wait until one does\n",
		"load rows.csv --kind nokind --queue mail":                     "warning: no live runner on mail handles nokind, so its tasks wait",
		"load rows.csv --kind send_mail --queue mail":                  "",
		"schedule run reports/hourly":                                  "warning: no live runner on reports handles hourly, so the task waits",
		"schedule run reports/nightly":                                 "",
		"schedule set newq/daily --every 1h --kind send_mail":          unserved + "the schedule does not tick until one does\n",
		"task add send_mail --queue newq --quiet":                      "",
		"load rows.csv --kind send_mail --queue newq --quiet --name x": "",
	} {
		r := newRig(t)
		r.night()
		got := r.run(line)
		if got.code != Done || strings.Contains(got.err, "warning: no live") != (want != "") || !strings.Contains(got.err, want) {
			t.Errorf("midge %s: got %+v, want the warning %q", line, got, want)
		}
	}
}

// TestAMistypedColumnGivesAWarning loads files whose first row has a field that no task of the kind has, such as a
// header with semicolons, which is one column.
func TestAMistypedColumnGivesAWarning(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, file := range map[string]struct{ text, field string }{
		"semicolons.csv": {"to;cents\nann;5\nbo;6\n", "to;cents"},
		"mistyped.csv":   {"to,too\nann,x\n", "too"},
		"right.csv":      {"to\nann\n", ""},
		"wrong.jsonl":    {`{"to":"ann","cc":1}` + "\n", "cc"},
		"line.txt":       {"ann\n", ""},
	} {
		if err := os.WriteFile(name, []byte(file.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRig(t)
		r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send_mail"})
		warning := "warning: no other task of kind send_mail in mail has the field " + file.field + "\n"
		for _, warned := range []bool{file.field != "", false} { // the second time there is nothing to load
			got := r.run("load " + name + " --kind send_mail --queue mail")
			if n := strings.Count(got.err, "warning: no other"); got.code != Done || (n == 1) != warned || n > 1 || warned && !strings.Contains(got.err, warning) {
				t.Errorf("%s: got %+v, want the warning %t", name, got, warned)
			}
		}
	}
}
