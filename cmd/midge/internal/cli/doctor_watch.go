package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/cmd/midge/internal/webhook"
	"github.com/midgehq/midge/internal/survey"
)

// EnvWebhook is the variable with the URL to which doctor posts changes. No flag takes the URL, because it
// may hold a secret.
const EnvWebhook = "MIDGE_WEBHOOK"

// watcher checks a storage again and again. It writes and posts changes.
type watcher struct {
	*checkup

	post   func(ctx context.Context, body []byte) error // nil for no webhook
	posted map[findingKey]survey.Finding                // the problems that the webhook knows of
	shown  []findingKey                                 // the findings of the last report that was written
	begun  bool                                         // a report was written
}

// watchDoctor checks the storage in each interval until it is interrupted.
func (a *app) watchDoctor(ctx context.Context, c *checkup, every time.Duration, hookFile string) error {
	w := &watcher{checkup: c}
	hook, err := a.webhook(hookFile)
	if err != nil {
		return err
	}
	if hook != nil {
		a.notef("each change of the problems goes to %s", hook)
		if w.post = hook.Post; a.std.Post != nil {
			w.post = a.std.Post
		}
	}
	return a.repeat(ctx, every, w.check)
}

// webhook returns the webhook whose URL is in a file or in the environment; nil for none.
func (a *app) webhook(file string) (*webhook.Hook, error) {
	text := a.std.Env(EnvWebhook)
	if file != "" {
		read, err := os.ReadFile(file)
		if err != nil {
			return nil, badInput("the URL of the webhook cannot be read: %v", err)
		}
		text = string(read)
	}
	if text == "" && file == "" {
		return nil, nil //nolint:nilnil // there is no webhook, which is no error
	}
	return webhook.New(text)
}

// check examines the storage once. It posts the change of the problems, and then writes the report, on a
// terminal each time and else after a change.
func (w *watcher) check(ctx context.Context) error {
	r, err := w.examine(ctx, time.Now())
	if r == nil {
		return err
	}
	problems := make(map[findingKey]survey.Finding)
	if err != nil { // what else holds is not known
		maps.Copy(problems, w.posted)
	}
	keys := make([]findingKey, len(r.Findings))
	for i, f := range r.Findings {
		if keys[i] = keyOf(&f); f.Level == survey.Problem {
			problems[keys[i]] = f
		}
	}
	w.tell(ctx, problems, r.Now)
	if err != nil {
		return err
	}
	if w.begun && !w.app.std.Terminal && slices.Equal(keys, w.shown) {
		return nil
	}
	w.begun, w.shown = true, keys
	p := w.app.printer(r.Now)
	if !p.People() {
		p.Format = show.JSONL
	}
	return w.app.told(p, r)
}

// tell posts the problems, if others have begun or ended than the webhook knows of. A change that cannot be
// posted is posted after the next check.
func (w *watcher) tell(ctx context.Context, problems map[findingKey]survey.Finding, now time.Time) {
	same := func(survey.Finding, survey.Finding) bool { return true } // the keys matter
	if w.post == nil || maps.EqualFunc(problems, w.posted, same) {
		return
	}
	body, err := json.Marshal(changeOf(w.app.target.Profile, now, problems, w.posted))
	if err == nil {
		err = w.post(ctx, body)
	}
	if err != nil {
		w.app.notef("warning: %s", show.Text(err.Error()))
		return
	}
	w.posted = problems
}

// change is the JSON that a webhook receives. It has no parameters and no errors of tasks.
type change struct {
	Text     string    `json:"text"` // for people, as chats show it
	At       time.Time `json:"at"`
	Profile  string    `json:"profile"`
	Problems []concern `json:"problems"`
	Ended    []concern `json:"ended"`
}

// concern is a problem in a change.
type concern struct {
	Code     string     `json:"code"`
	Queue    string     `json:"queue"`
	Kind     string     `json:"kind"`
	Schedule string     `json:"schedule"`
	Tasks    int64      `json:"tasks"`
	Since    *time.Time `json:"since"`
	New      bool       `json:"new"`
	Text     string     `json:"text"`
}

// changeOf returns the change from the problems before to the problems now.
func changeOf(profile string, now time.Time, problems, before map[findingKey]survey.Finding) change {
	c := change{At: now.UTC(), Profile: profile, Problems: concerns(problems, before), Ended: []concern{}}
	for _, old := range concerns(before, problems) {
		if old.New { // it is not among the problems
			old.New = false
			c.Ended = append(c.Ended, old)
		}
	}
	var text strings.Builder
	text.WriteString("midge")
	if profile != "" {
		text.WriteString(" (" + profile + ")")
	}
	if len(c.Problems) == 0 {
		text.WriteString(": all clear")
	} else {
		text.WriteString(": " + show.Count(int64(len(c.Problems)), "problem"))
	}
	for _, p := range c.Problems {
		if p.New {
			text.WriteString("\nnew: " + p.Text)
		}
	}
	for _, p := range c.Ended {
		text.WriteString("\nended: " + p.Text)
	}
	c.Text = text.String()
	return c
}

// concerns returns problems, sorted by code and queue. Those that are not among others are new. The details
// of findings may have texts of errors, and are left out. The text of a problem has none.
func concerns(of, others map[findingKey]survey.Finding) []concern {
	list := make([]concern, 0, len(of))
	for key, f := range of {
		_, known := others[key]
		list = append(list, concern{
			f.Code, f.Queue, f.Kind, f.Schedule, f.Tasks, f.Since, !known, show.Text(f.Text),
		})
	}
	slices.SortFunc(list, func(a, b concern) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Text, b.Text))
	})
	return list
}
