package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// TestAUniqueKeyIsNotShown checks the pages of a task for its unique key. The key is a hash of parameters without
// a secret, so that a viewer of the key can try the values of a hidden parameter.
func TestAUniqueKeyIsNotShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		redact, err := access.Redact("params.pin")
		if err != nil {
			t.Fatal(err)
		}
		key := storage.UniqueKey([]byte("k"), []byte("1234"))
		for _, cfg := range []dashboard.Config{{}, as(access.Viewer), {Redact: redact}} {
			s, _ := inserted(t, cfg, storage.Insert{
				Ref: theTask, Encoding: "json", Payload: []byte(`{"pin":1234}`),
				Unique: storage.Unique{Key: key, Mode: storage.UniqueLife},
			})
			s.shows("/r/"+theTask.String(), "<dt>unique</dt>", "life")
			for _, path := range []string{
				"/r/" + theTask.String(), "/tasks", "/search?q=" + theTask.ID, "/edit?ref=" + theTask.String(),
				"/action?do=delete&ref=" + theTask.String(), "/r/" + theTask.String() + "/params",
			} {
				if page := s.do(request(http.MethodGet, path, "")).Body.String(); strings.Contains(page, key) {
					t.Errorf("GET %s shows the unique key", path)
				}
			}
		}
	})
}

// attempt claims a task of the queue of theTask, stores its progress and checkpoint, and settles it.
func attempt(t *testing.T, session *storage.Session, parts storage.Extension, end storage.Settle) {
	t.Helper()
	claimed, err := session.Claim(t.Context(), storage.ClaimRequest{
		Runner: "r", Queues: []storage.ClaimQueue{{Name: theTask.Queue}}, Start: 1, Lease: time.Minute,
	})
	if err != nil || len(claimed.Fences) != 1 {
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	end.Fence, parts.Fence, parts.For = claimed.Fences[0], claimed.Fences[0], time.Minute
	if _, err := session.Extend(t.Context(), storage.ExtendRequest{Leases: []storage.Extension{parts}}); err != nil {
		t.Fatal(err)
	}
	if _, err := session.ApplyOne(t.Context(), storage.Tx{Settles: []storage.Settle{end}}); err != nil {
		t.Fatal(err)
	}
}

// TestAHiddenValueOfEachPartIsInNoError checks the page of a task whose error repeats a value of each part of it.
func TestAHiddenValueOfEachPartIsInNoError(t *testing.T) {
	const value = `{"card":"4111-2222"}`
	for _, rule := range []string{"progress.card", "checkpoint.card", "step.charge.card", "step.*.card", "result.card", "params.to"} {
		inBubble(t, func(t *testing.T) {
			redact, err := access.Redact(rule)
			if err != nil {
				t.Fatal(err)
			}
			s, store := inserted(t, dashboard.Config{Redact: redact}, storage.Insert{
				Ref: theTask, Encoding: "json", Payload: []byte(`{"to":{"4111-2222":1}}`), MaxRetries: 3,
				Keep: storage.Keep{For: time.Hour},
			})
			session := storage.NewSession(store, 0)
			steps := steps.Envelope{
				Checkpoint: []byte(value), Steps: []steps.Step{{Name: "charge", Ended: time.Now(), Result: []byte(value)}},
			}
			for _, end := range []storage.Settle{
				{Outcome: storage.Fail, Error: "charge 4111-2222: declined", Stack: "goroutine of 4111-2222", Delay: time.Second},
				{Outcome: storage.Complete, Result: []byte(value)},
			} {
				attempt(t, session, storage.Extension{Progress: []byte(value), Checkpoint: steps.Encode()}, end)
				nextReading()
				_, shown, _ := strings.Cut(s.get("/r/"+theTask.String()), `data-part="timeline"`)
				shown, _, _ = strings.Cut(shown, "</section>")
				if rule == "result.card" && end.Outcome == storage.Fail { // there is no result yet
					continue
				}
				if strings.Contains(shown, "4111") || !strings.Contains(shown, "charge ***: declined") {
					t.Errorf("%s: the page does not show the error without the card:\n%s", rule, shown)
				}
			}
		})
	}
}

// TestACauseWithAHiddenValueHasNoCommand checks the pages of two causes. The id of one is that of an error without a
// hidden value, and no command would find its tasks.
func TestACauseWithAHiddenValueHasNoCommand(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		redact, err := access.Redact("params.pin")
		if err != nil {
			t.Fatal(err)
		}
		for text, command := range map[string]bool{
			"pin 1234: declined": false, `pin "1234": declined`: true, "connection refused": true,
			`open "` + strings.Repeat("a", 250) + `": pin 1234`: false,
		} {
			s, store := inserted(t, dashboard.Config{Redact: redact}, storage.Insert{
				Ref: theTask, Encoding: "json", Payload: []byte(`{"pin":"1234"}`),
			})
			settleAll(t, store, storage.Settle{Outcome: storage.Bury, Error: text})
			id := between(t, s.get("/dead"), `href="/dead?cause=`, `"`)
			filter := url.QueryEscape("cause:" + id)
			for path, begin := range map[string]string{
				"/dead?cause=" + id: "midge task ls", "/tasks?state=dead&filter=" + filter: "midge task ls",
				"/action?do=requeue&all=1&state=dead&filter=" + filter: "midge task requeue",
			} {
				page := s.get(path)
				if !strings.Contains(page, theTask.String()) {
					t.Errorf("%s: GET %s does not have the task", text, path)
				}
				if got := strings.Contains(page, begin); got != command {
					t.Errorf("%s: GET %s has a command: %t, want %t", text, path, got, command)
				}
			}
		}
	})
}
