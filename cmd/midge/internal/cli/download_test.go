package cli

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// TestADownloadBeforeADeletionIsRestored deletes tasks in the dashboard after a download, and restores the
// file with the command.
func TestADownloadBeforeADeletionIsRestored(t *testing.T) {
	for name, r := range map[string]*rig{
		"memory": newRig(t), "sqlite": on(t, "sqlite:"+filepath.Join(t.TempDir(), "jobs.db")),
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			if r.real {
				target, err := connect.Choose(connect.Choice{}, func(name string) string { return r.env[name] })
				if err != nil {
					t.Fatal(err)
				}
				store, err := target.Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = store.Close() })
				r.store, r.session = store, storage.NewSession(store, 0)
			}
			r.deletedAfterADownload()
		})
	}
}

// manyTasks inserts tasks in several states, and returns them as they are.
func (r *rig) manyTasks() map[string]storage.Task {
	r.t.Helper()
	for i := range 12 {
		in := storage.Insert{
			Ref: storage.Ref{Queue: "mail", ID: fmt.Sprintf("t%02d", i)}, Kind: "send_mail", Encoding: "msgpack",
			Payload: []byte{0x81, 0xa1, 'n', byte(i)}, Headers: map[string]string{"tenant": fmt.Sprint(i)}, Priority: i % 3,
			MaxRetries: i, Timeout: time.Duration(i) * time.Second, Keep: storage.Keep{For: time.Hour},
		}
		if i >= 8 {
			in.At = time.Now().Add(time.Duration(i) * time.Hour).Truncate(time.Microsecond)
			in = in.CompleteHeaders()
		}
		r.insert(in)
	}
	r.work("mail", storage.Settle{Outcome: storage.Bury, Error: "refused", Stack: "main.go:1"})
	return r.tasks("mail")
}

// tasks returns all tasks of a queue.
func (r *rig) tasks(queue string) map[string]storage.Task {
	r.t.Helper()
	all := make(map[string]storage.Task)
	for _, state := range storage.TaskStates() {
		for task, err := range storage.Each(r.t.Context(), r.store, queue, state) {
			if err != nil {
				r.t.Fatal(err)
			}
			all[task.ID] = task
		}
	}
	return all
}

// ask sends a request to a handler.
func (r *rig) ask(h http.Handler, method, path string, form url.Values) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	req.Host, req.RemoteAddr = "localhost:8080", "127.0.0.1:4000"
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func (r *rig) deletedAfterADownload() {
	t := r.t
	t.Helper()
	was := r.manyTasks()
	h, err := dashboard.Handler(r.store, dashboard.Config{Who: func(*http.Request) (access.User, bool) {
		return access.User{Name: "ann", Role: access.Admin}, true
	}})
	if err != nil {
		t.Fatal(err)
	}
	page := r.ask(h, http.MethodGet, "/action?do=delete&all=1&filter=state:dead,scheduled", nil).Body.String()
	link := regexp.MustCompile(`href="([^"]*/action/download[^"]*)"`).FindStringSubmatch(page)
	form := regexp.MustCompile(`name="form" value="([^"]*)"`).FindStringSubmatch(page)
	if link == nil || form == nil {
		t.Fatalf("the dialog offers no download: %s", page)
	}
	file := r.ask(h, http.MethodGet, strings.ReplaceAll(link[1], "&amp;", "&"), nil)
	if file.Code != http.StatusOK || bytes.Count(file.Body.Bytes(), []byte("\n")) != len(was) {
		t.Fatalf("the download: %d %s", file.Code, file.Body)
	}
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(path, file.Body.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sent := r.ask(h, http.MethodPost, "/action", url.Values{
		"do": {"delete"}, "all": {"1"}, "filter": {"state:dead,scheduled"}, "count": {fmt.Sprint(len(was))}, "form": {form[1]}, "saved": {"1"},
	})
	if left := r.tasks("mail"); sent.Code != http.StatusSeeOther || len(left) > 0 {
		t.Fatalf("the deletion: %d %s; %d tasks are left", sent.Code, sent.Body, len(left))
	}
	r.now = r.now.Add(time.Minute) // the audit lists actions by their moments
	r.says(Done, "enqueued 12, 0 there already", "task restore --yes "+path)
	is := r.tasks("mail")
	for id, before := range maps.Clone(was) {
		got := is[id]
		if before.State == storage.Dead { // it waits with all its retries, and has no history
			before.State, before.Due = storage.Waiting, got.Due
			before.Retries, before.Attempts, before.Reason, before.Ended, before.Expires = 0, nil, "", time.Time{}, time.Time{}
		}
		before.Version, before.Created = got.Version, got.Created
		if !reflect.DeepEqual(got, before) {
			t.Errorf("got %+v\nwant %+v", got, before)
		}
	}
	r.says(Done, "restore", "audit -o jsonl --limit 1")
	if got := r.ok("audit -o jsonl --limit 1"); !strings.Contains(got, `"mail/t00"`) || !strings.Contains(got, `"mail/t11"`) {
		t.Errorf("the audit of the restore names no tasks: %s", got)
	}
}
