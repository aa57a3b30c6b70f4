package dashboard_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

func TestATaskIsEnqueuedFromAPage(t *testing.T) {
	s := open(t, "night", as(access.Admin))
	s.shows("/queues/mail", `href="/queues/mail/add"`)
	form := s.get("/queues/mail/add")
	for _, want := range []string{`<option value="send_invoice">`, `list="kinds"`, `type="number"`} {
		if !strings.Contains(form, want) {
			t.Errorf("the form has no %s", want)
		}
	}
	fresh := between(t, form, `name="fresh" value="`, `"`)
	before := len(s.list("mail", storage.Scheduled))
	pairs := []string{"fresh", fresh, "kind", "send_welcome", "params", `{"user": 7}`, "priority", "3", "in", "2h", "at", "", "id", "", "unique", ""}
	for range 2 { // a form that is sent twice enqueues one task
		code, page := s.post("/queues/mail/add", pairs...)
		if code != http.StatusOK || !strings.Contains(page, fresh) {
			t.Fatalf("the form leads to %d: %.400s", code, page)
		}
	}
	if got := len(s.list("mail", storage.Scheduled)); got != before+1 {
		t.Errorf("%d tasks are scheduled, want %d", got, before+1)
	}
	task, err := s.Store.Task(t.Context(), storage.Ref{Queue: "mail", ID: fresh})
	if err != nil || task.Kind != "send_welcome" || string(task.Payload) != `{"user":7}` || task.Encoding != "json" || task.Priority != 3 || task.MaxRetries != 20 {
		t.Errorf("the task is %+v, %v", task, err)
	}
	if in := task.Due.Sub(task.Created); in != 2*time.Hour {
		t.Errorf("it is due in %v, want 2h", in)
	}
	_, page := s.post("/queues/mail/add", "kind", "nobody_knows", "params", "{}", "id", "mine")
	if !strings.Contains(page, "No runner on mail handles nobody_knows, so the task waits for a runner that does.") {
		t.Error("nobody is told that no runner knows the kind")
	}
	if code, page := s.post("/queues/mail/add", "kind", "send_welcome", "params", "{}", "id", "mine"); code != http.StatusConflict || !strings.Contains(page, "Another task of the queue has the id mine.") {
		t.Errorf("another task by the same id: %d %.300s", code, page)
	}
	for i, want := range []string{"The task is enqueued.", "this task exists already"} {
		if _, page := s.post("/queues/mail/add", "kind", "send_welcome", "params", "{}", "unique", "a"); !strings.Contains(page, want) {
			t.Errorf("unique task %d: the page does not say %q", i, want)
		}
	}
	actions, _, err := ledger.NewAudit(s.Store).List(t.Context(), "", 10)
	if err != nil || len(actions) < 6 {
		t.Fatal(len(actions), err)
	}
	if last := actions[5]; last.Action != "enqueue" || last.Who != "ann" || last.Queue != "mail" || last.IDs[0] != "mail/"+fresh || last.Note != "of kind send_welcome" || last.Count != 1 {
		t.Errorf("the audit has %+v", last)
	}
}

func TestAFormForATaskSaysWhatIsWrongBesideItsField(t *testing.T) {
	s := open(t, "calm", as(access.Admin))
	before := s.state()
	good := map[string]string{"kind": "send_welcome", "params": "{}"}
	for field, bad := range map[string][]string{
		"kind": {"", "two words", "é", strings.Repeat("k", 129)}, "params": {"", "{", "{}{}", "nope", `{"a":1,}`},
		"priority": {"10", "-10", "x", "1.5"}, "in": {"soon", "-5m", "1"}, "at": {"tomorrow", "2026-13-01T00:00"},
		"id": {"a b", "-x", "cursor.x", strings.Repeat("i", 129)},
	} {
		for _, text := range bad {
			pairs := []string{field, text}
			for name, value := range good {
				if name != field {
					pairs = append(pairs, name, value)
				}
			}
			code, page := s.post("/queues/mail/add", pairs...)
			if code != http.StatusBadRequest || !strings.Contains(page, `id="wrong-`+field+`"`) || strings.Count(page, `id="wrong-`) != 1 {
				t.Errorf("%s %.20q: %d, and not one complaint beside the field", field, text, code)
			}
		}
	}
	if code, page := s.post("/queues/mail/add", "kind", "", "params", "{", "priority", "x"); code != http.StatusBadRequest || strings.Count(page, `id="wrong-`) != 3 {
		t.Errorf("three wrong fields: %d, and %d complaints", code, strings.Count(page, `id="wrong-`))
	}
	if code, _ := s.post("/queues/mail/add", "kind", "k", "params", "{}", "in", "1h", "at", "2030-01-01T00:00"); code != http.StatusBadRequest {
		t.Errorf("both in and at: %d, want 400", code)
	}
	for path, want := range map[string]int{"/queues/none/add": 404, "/queues/midge.audit/add": 404, "/queues/%00/add": 400} {
		if code, _ := s.post(path, "kind", "k", "params", "{}"); code != want {
			t.Errorf("POST %s: %d, want %d", path, code, want)
		}
	}
	if s.state() != before {
		t.Error("what was refused has changed the storage")
	}
}

// TestAStartTimeIsInTheZoneOfItsForm sends a form after the viewer has chosen another time zone in another tab.
func TestAStartTimeIsInTheZoneOfItsForm(t *testing.T) {
	s := open(t, "calm", as(access.Admin))
	if page := s.get("/queues/mail/add"); !strings.Contains(page, `name="zone" value="UTC"`) {
		t.Fatal("the form does not name its zone")
	}
	const at = "2030-07-01T12:00"
	for zone, want := range map[string]int{"Asia/Tokyo": 3, "America/Lima": 17, "UTC": 12, "": 12} {
		id := "at" + strconv.Itoa(want) + strconv.Itoa(len(zone))
		if code, _ := s.post("/queues/mail/add", "kind", "k", "params", "{}", "at", at, "zone", zone, "id", id); code != http.StatusOK {
			t.Errorf("a start in the zone %q: %d", zone, code)
		}
		task, err := s.Store.Task(t.Context(), storage.Ref{Queue: "mail", ID: id})
		if want := time.Date(2030, 7, 1, want, 0, 0, 0, time.UTC); err != nil || !task.Due.Equal(want) {
			t.Errorf("a start in the zone %q is at %v, %v; want %v", zone, task.Due, err, want)
		}
	}
	for _, zone := range []string{"Mars/Base", "Local", "../etc"} {
		code, page := s.post("/queues/mail/add", "kind", "k", "params", "{}", "at", at, "zone", zone)
		if code != http.StatusBadRequest || !strings.Contains(page, `id="wrong-at"`) {
			t.Errorf("a start in the zone %q: %d, want 400 and a complaint", zone, code)
		}
	}
}

func TestWhoMayEnqueueFromAPage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for role, may := range map[access.Role]bool{access.Viewer: false, access.Operator: false, access.Worker: true, access.Admin: true} {
			for _, readOnly := range []bool{false, true} {
				cfg := as(role)
				cfg.ReadOnly = readOnly
				s, want := open(t, "calm", cfg), may && !readOnly
				if got := strings.Contains(s.get("/queues/mail"), "/queues/mail/add"); got != want {
					t.Errorf("%s, read-only %t: is offered to enqueue %t, want %t", role, readOnly, got, want)
				}
				before := s.state()
				form := s.do(request(http.MethodGet, "/queues/mail/add", "")).Code
				code, _ := s.post("/queues/mail/add", "kind", "send_welcome", "params", "{}")
				if want != (form == http.StatusOK) || want != (code == http.StatusOK) || want == (s.state() == before) {
					t.Errorf("%s, read-only %t: form %d, enqueue %d, want it done %t", role, readOnly, form, code, want)
				}
				if !want && code != http.StatusForbidden {
					t.Errorf("%s, read-only %t: %d, want 403", role, readOnly, code)
				}
			}
		}
	})
}
