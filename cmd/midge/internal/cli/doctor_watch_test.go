package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// severed is a storage that can be out of reach.
type severed struct {
	storage.Storage

	away atomic.Bool
}

func (s *severed) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	if s.away.Load() {
		return nil, storage.ErrUnavailable
	}
	return s.Storage.Stats(ctx, queues...)
}

// TestAFindingCountsOnceItHasLasted runs doctor on a queue without a runner. A runner comes in time, or late, or
// never, and the storage is away for a while, or always.
func TestAFindingCountsOnceItHasLasted(t *testing.T) {
	for _, c := range []struct {
		what         string
		line         string
		runner       time.Duration // when a runner comes, 0 for never
		away         time.Duration // until when the storage is away
		code         int
		least, most  time.Duration
		says, silent string
	}{
		{what: "at once", line: "doctor", code: Failed, says: "problem  No runner is alive"},
		{
			what: "never", line: "doctor --for 2m", code: Failed, least: 2 * time.Minute, most: 2 * time.Minute,
			says: "problem  No runner is alive", silent: "recent:",
		},
		{
			what: "in time", line: "doctor --for 2m", runner: time.Minute, code: Done,
			least: time.Minute, most: 70 * time.Second, says: "All clear.", silent: "No runner",
		},
		{
			what: "away for a while", line: "doctor --for 2m", runner: time.Second, away: time.Minute, code: Done,
			least: time.Minute, most: 70 * time.Second, says: "All clear.",
		},
		{
			what: "always away", line: "doctor --for 2m", away: time.Hour, code: Unreachable,
			least: 2 * time.Minute, most: 2 * time.Minute, says: "cannot be reached",
		},
		{
			what: "not for long enough", line: "doctor --for 2m --timeout 1m", code: TimedOut,
			least: time.Minute, most: time.Minute, says: "the time of --timeout was over",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send_mail"})
			store := &severed{Storage: r.store}
			store.away.Store(c.away > 0)
			r.store = store
			if c.runner > 0 {
				time.AfterFunc(c.runner, func() { r.beat("runner-1", []string{"mail"}, []string{"send_mail"}) })
			}
			time.AfterFunc(c.away, func() { store.away.Store(false) })
			begun := time.Now()
			got := r.run(c.line)
			took, text := time.Since(begun), got.out+got.err
			if got.code != c.code || took < c.least || took > c.most {
				t.Errorf("%s: exit %d after %v, want %d after %v to %v", c.what, got.code, took, c.code, c.least, c.most)
			}
			if !strings.Contains(text, c.says) || c.silent != "" && strings.Contains(text, c.silent) {
				t.Errorf("%s: want %q and not %q in\n%s", c.what, c.says, c.silent, text)
			}
		})
	}
}

// TestSinceCountsWhereItIsWhenTheFindingBegan splits findings of the same check at three moments. An orphaned
// schedule has not ticked for an hour. The oldest task has waited for an hour, and for too long only now.
func TestSinceCountsWhereItIsWhenTheFindingBegan(t *testing.T) {
	now := time.Now()
	since := now.Add(-time.Hour)
	check := func() *Report {
		r := reportOf(survey.Finding{Level: survey.Problem, Code: "orphaned", Since: &since})
		r.Now = now
		r.Findings = append(r.Findings, survey.Finding{Level: survey.Problem, Code: "oldest", Since: &since},
			survey.Finding{Level: survey.Problem, Code: "no-runner"})
		return r
	}
	c := &checkup{lasts: 2 * time.Minute}
	for _, at := range []struct {
		after          time.Duration
		counts, recent int
	}{{0, 1, 2}, {time.Minute, 1, 2}, {2 * time.Minute, 3, 0}} {
		r := check()
		c.split(r, now.Add(at.after))
		if len(r.Findings) != at.counts || len(r.Recent) != at.recent {
			t.Errorf("after %v: %d findings count, and %d are recent; want %d and %d",
				at.after, len(r.Findings), len(r.Recent), at.counts, at.recent)
		}
	}
	c.split(&Report{}, now.Add(3*time.Minute)) // nothing is found any more
	r := check()
	if c.split(r, now.Add(4*time.Minute)); len(r.Findings) != 1 {
		t.Errorf("%d findings count after they were over, want the schedule alone", len(r.Findings))
	}
}

// TestAWebhookGetsEachChange watches a storage: a runner is missing, comes, and goes with the storage. Nothing
// that a task or its error holds is posted, and nothing that is not a change.
func TestAWebhookGetsEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		store := &severed{Storage: r.store}
		r.store = store
		var mu sync.Mutex
		var posts []change
		refuse := false
		refuses := func(is bool) {
			mu.Lock()
			defer mu.Unlock()
			refuse = is
		}
		r.post = func(_ context.Context, body []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if refuse {
				return errors.New("https://hooks.example/*** answered 500")
			}
			var c change
			if err := json.Unmarshal(body, &c); err != nil || strings.Contains(string(body), "canary") {
				t.Errorf("posted %s, %v; want JSON that nobody has to hide", body, err)
			}
			posts = append(posts, c)
			return nil
		}
		for _, id := range []string{"a", "b"} {
			r.insert(storage.Insert{
				Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "send_mail", Payload: []byte(`{"x":"canary"}`),
			})
		}
		r.beat("runner-1", []string{"mail"}, []string{"send_mail"})
		r.env[EnvWebhook] = "https://hooks.example/s3cret"
		ctx, stop := context.WithCancel(t.Context())
		r.ctx = ctx
		ended := make(chan answer)
		go func() { ended <- r.run("doctor --watch=10s --for 30s --max-dead 0 -o jsonl") }()

		after := func(d time.Duration, what string, n int, text string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(posts) != n || n > 0 && posts[n-1].Text != text {
				t.Errorf("%s: %d changes were posted, the last %+v; want %d and %q", what, len(posts), posts[max(0, len(posts)-1):], n, text)
			}
		}
		after(time.Minute, "no problem", 0, "")
		r.work("mail", storage.Settle{Outcome: storage.Bury, Error: "canary", Reason: "canary"})
		after(30*time.Second, "a death that has not lasted", 0, "")
		refuses(true)
		after(time.Minute, "a webhook that refuses", 0, "")
		refuses(false)
		after(10*time.Second, "a death", 1, "midge: 1 problem\nnew: 2 tasks died")
		after(time.Hour, "no change", 1, "midge: 1 problem\nnew: 2 tasks died")
		store.away.Store(true)
		after(time.Minute, "an outage", 2, "midge: 2 problems\nnew: The storage cannot be reached")
		store.away.Store(false)
		after(time.Minute, "its end", 3, "midge: 1 problem\nended: The storage cannot be reached")
		for _, id := range []string{"a", "b"} {
			if err := r.session.DeleteTask(ctx, storage.Ref{Queue: "mail", ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		after(time.Minute, "a repair", 4, "midge: all clear\nended: 2 tasks died")
		stop()
		got := <-ended
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		if got.code != Done || len(lines) != 3 || !strings.Contains(got.err, "each change of the problems goes to https://hooks.example/***\n") {
			t.Errorf("exit %d, want 0, and a report of each change:\n%s%s", got.code, got.out, got.err)
		}
		if p := posts[1].Problems; len(p) != 2 || p[0].Code != "dead" || p[0].New || p[1].Code != "unreachable" || !p[1].New {
			t.Errorf("in the outage the problems are %+v", p)
		}
	})
}

// TestTheURLOfAWebhookComesFromAFile takes a file before the variable, and shows the URL of neither.
func TestTheURLOfAWebhookComesFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hook")
	for text, want := range map[string]string{
		"https://file.example/s3cret\n": "https://file.example/***", "http://file.example/s3cret": "", "": "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRig(t)
		r.env[EnvWebhook] = "https://env.example/s3cret"
		hook, err := (&app{std: r.std(nil, io.Discard, io.Discard)}).webhook(path)
		switch {
		case want != "" && (err != nil || hook.String() != want):
			t.Errorf("%q: got %v, %v; want %s", text, hook, err, want)
		case want == "":
			r.says(BadInput, `invalid URL of the webhook "***": want a URL that begins with https:// and has a host`,
				"doctor --watch --webhook-file "+path)
		}
	}
}
