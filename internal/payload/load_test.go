package payload

import (
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestAnImportNeverRuns checks the reason of its record.
func TestAnImportNeverRuns(t *testing.T) {
	task := storage.Task{Kind: storage.ImportKind, Encoding: "json", Payload: []byte(`{}`), State: storage.Scheduled}
	if got := Why(task, "it is due"); got != "it records an import and never runs" || !Records(task) {
		t.Errorf("got %q", got)
	}
	task.State = storage.Cancelled
	if got := Why(task, "it is cancelled"); got != "it is cancelled" || Records(task) {
		t.Errorf("cancelled: got %q", got)
	}
}

// TestALoadTellsHowFarItIs in its state, its reason and its progress.
func TestALoadTellsHowFarItIs(t *testing.T) {
	for text, want := range map[string]string{
		`{"done":379,"of":1000,"file":"a.csv","rows":12}`:                  "loading a.csv, 37 %",
		`{"done":379,"file":"a.csv","rows":12}`:                            "loading a.csv, at row 12",
		`{"done":2000,"of":1000,"file":"a.csv","rows":12}`:                 "loading a.csv, at row 12", // the file grows
		`{"done":1000,"of":1000,"file":"a.csv","rows":12,"finished":true}`: "loaded a.csv",
		`{"rows":-1}`: "", `{"rows":1,"rejected":2}`: "", `[]`: "", `{`: "", ``: "",
	} {
		task := storage.Task{Kind: storage.LoadKind, Encoding: "json", Payload: []byte(text), State: storage.Scheduled}
		if got := Reason(task); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if _, counts := CountedOf(Progress(task).Data); counts && want == "" {
			t.Errorf("%s: it counts", text)
		}
		records := "it records a load and never runs: " + want
		if want == "" {
			records = "it records a load and never runs, and the record cannot be read"
		}
		for _, state := range []storage.State{storage.Scheduled, storage.Waiting, storage.Pending} {
			if task.State = state; Why(task, "it is due") != records {
				t.Errorf("%s, %s: got %q, want %q", text, state, Why(task, "it is due"), records)
			}
		}
		task.State, task.Reason = storage.Dead, "unknown kind"
		if got := Why(task, "it is dead"); got != "it is dead" {
			t.Errorf("%s, dead: got %q", text, got)
		}
		if got := Reason(task); got != "unknown kind" {
			t.Errorf("%s, dead: got %q", text, got)
		}
		task.Kind = "other"
		if task.State = storage.Scheduled; Why(task, "it is due") != "it is due" {
			t.Errorf("%s: a load of another kind", text)
		}
		if _, ok := LoadOf(task); ok {
			t.Errorf("%s: a load of another kind", text)
		}
	}
}
