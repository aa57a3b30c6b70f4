package payload

import (
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestALoadTellsHowFarItIs in its state, its reason and its progress.
func TestALoadTellsHowFarItIs(t *testing.T) {
	for text, want := range map[string]string{
		`{"done":379,"of":1000,"file":"a.csv","rows":12}`:                  "loading a.csv, 37 %",
		`{"done":379,"file":"a.csv","rows":12}`:                            "loading a.csv, at row 12",
		`{"done":2000,"of":1000,"file":"a.csv","rows":12}`:                 "loading a.csv, at row 12", // the file grows
		`{"done":1000,"of":1000,"file":"a.csv","rows":12,"finished":true}`: "loaded a.csv",
		`{"rows":-1}`: "", `{"rows":1,"rejected":2}`: "", `[]`: "", `{`: "", ``: "",
	} {
		task := storage.Task{Kind: LoadKind, Encoding: "json", Payload: []byte(text), State: storage.Scheduled}
		if got := Reason(task); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if _, counts := CountedOf(Progress(task).Data); counts && want == "" {
			t.Errorf("%s: it counts", text)
		}
		task.State, task.Reason = storage.Dead, "unknown kind"
		if got := Reason(task); got != "unknown kind" {
			t.Errorf("%s, dead: got %q", text, got)
		}
		task.Kind = "other"
		if _, ok := LoadOf(task); ok {
			t.Errorf("%s: a load of another kind", text)
		}
	}
}
