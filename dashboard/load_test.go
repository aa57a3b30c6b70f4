package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// TestALoadIsShown in the list of tasks, and with a bar on its page.
func TestALoadIsShown(t *testing.T) {
	s, store := inserted(t, dashboard.Config{})
	_, err := storage.NewSession(store, 0).ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
		Ref: storage.Ref{Queue: "mail", ID: "a.csv.load"}, Kind: storage.LoadKind, Encoding: "json", CrashLimit: 3,
		At:      time.Date(2199, 12, 31, 0, 0, 0, 0, time.UTC),
		Payload: []byte(`{"done":370,"of":1000,"file":"a.csv","rows":12}`),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s.shows("/tasks?q=state:scheduled", "loading a.csv, 37 %")
	s.shows("/r/mail/a.csv.load", "It records a load and never runs: loading a.csv, 37 %.",
		`<progress max="100" value="37">`, "370 of 1,000, 37.0 %")
	page := s.get("/r/mail/a.csv.load")
	for text, want := range map[string]bool{"Cancel": true, "Run now": false, ">Edit": false, "do=delete": false} {
		if strings.Contains(page, text) != want {
			t.Errorf("the page offers %s: %v, want %v", text, !want, want)
		}
	}
	for _, path := range []string{"/tasks?q=state:scheduled", "/r/mail/a.csv.load"} {
		page := s.get(path)
		for _, text := range []string{"2199", " days", ">due<", "attempt 1"} {
			if strings.Contains(page, text) {
				t.Errorf("GET %s shows %q, but the record of a load never runs", path, text)
			}
		}
	}
}
