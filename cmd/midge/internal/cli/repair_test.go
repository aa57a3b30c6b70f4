package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// inStates inserts a task of kind send_mail in each state in which a task can be edited, with that name.
func (r *rig) inStates() []string {
	r.t.Helper()
	mail := func(id string) storage.Insert {
		return storage.Insert{Ref: storage.Ref{Queue: "mail", ID: id}, Kind: "send_mail", MaxRetries: 3}
	}
	for id, settle := range map[string]storage.Settle{
		"dead": {Outcome: storage.Bury, Error: "no route"}, "retry": {Outcome: storage.Fail, Error: "no route", Delay: time.Hour},
	} {
		r.insert(mail(id))
		r.work("mail", settle)
	}
	later := mail("scheduled")
	later.Delay = time.Hour
	r.insert(later, mail("waiting"))
	return []string{"dead", "retry", "scheduled", "waiting"}
}

// shownTask is a part of the record of a task.
type shownTask struct {
	State      string
	Priority   int
	Params     json.RawMessage
	Due        *time.Time
	MaxRetries int `json:"max_retries"`
}

func (r *rig) shown(ref string) (t shownTask) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.ok("task show "+ref+" -o json")), &t); err != nil {
		r.t.Fatal(err)
	}
	return t
}

func TestAnEditThatRequeuesRunsATaskOfEachState(t *testing.T) {
	for _, flag := range []string{`--params '{"to":"bo"}'`, `--set to=bo`} {
		r := newRig(t)
		for _, state := range r.inStates() {
			if got := r.ok("task edit mail/" + state + " --requeue " + flag); !strings.Contains(got, "edited and requeued 1") {
				t.Errorf("%s, %s: got %q", state, flag, got)
			}
			if got := r.shown("mail/" + state); got.State != "waiting" || !strings.Contains(string(got.Params), `"bo"`) {
				t.Errorf("%s, %s: the task is %s with %s, want it waiting with bo", state, flag, got.State, got.Params)
			}
		}
	}
}

func TestAnEditTakesAMomentAndAPriority(t *testing.T) {
	for _, flag := range []string{`--params '{"to":"bo"}'`, `--set to=bo`} {
		r := newRig(t)
		r.inStates()
		r.ok("task edit mail/retry --now --priority 4 " + flag)
		if got := r.shown("mail/retry"); got.State != "waiting" || got.Priority != 4 || !strings.Contains(string(got.Params), `"bo"`) {
			t.Errorf("%s --now --priority 4: got %+v", flag, got)
		}
		r.ok("task edit mail/waiting --in 2h " + flag)
		got := r.shown("mail/waiting")
		if got.State != "scheduled" || got.Due == nil || got.Due.Sub(noon).Round(time.Second) != 2*time.Hour {
			t.Errorf("%s --in 2h: got %+v", flag, got)
		}
		r.says(Refused, "it is dead", "task edit mail/dead --now "+flag)
		r.says(BadInput, "exclude each other", "task edit mail/retry --now --requeue "+flag)
	}
}

// TestFieldsAreSetInManyTasks sets a field of all tasks that a filter chooses. A repeat finds nothing to do,
// and a task that lacks the object of the field is left alone.
func TestFieldsAreSetInManyTasks(t *testing.T) {
	r := newRig(t)
	for i, params := range []string{`{"smtp":{"host":"a","port":25}}`, `{"smtp":{"host":"b","port":25}}`, `{"to":"cy"}`} {
		r.insert(storage.Insert{
			Ref: storage.Ref{Queue: "mail", ID: fmt.Sprint("t", i)}, Kind: "send_mail", Encoding: "json", Payload: []byte(params),
		})
		r.work("mail", storage.Settle{Outcome: storage.Bury, Error: "no route"})
	}
	const line = "task edit 'state:dead kind:send_mail' --set smtp.host=mx --set smtp.port=587 --yes"
	r.says(Done, "nothing was changed (--dry-run)", line+" --dry-run")
	if got := r.says(Partly, "matched 3, edited 2, 1 kept", line); !strings.Contains(got.err, "mail/t2: invalid field") {
		t.Errorf("got %q, want why a task is kept", got.err)
	}
	if got := string(r.shown("mail/t1").Params); got != `{"smtp": {"host": "mx","port": 587}}` && !strings.Contains(strings.Join(strings.Fields(got), ""), `{"smtp":{"host":"mx","port":587}}`) {
		t.Errorf("the parameters are %s", got)
	}
	if got := r.run(line); strings.Contains(got.out, "edited 2") || strings.Contains(got.out, "edited 1") {
		t.Errorf("a repeat: got %+v, want nothing edited", got)
	}
	if e := r.actions()[0]; e.Action != "edit" || e.Note != "smtp.host smtp.port" {
		t.Errorf("the audit has %+v, want the fields and not their values", e)
	}
	r.says(BadInput, `invalid setting "to"`, "task edit mail/t2 --set to")
	r.says(BadInput, "--params and --set exclude each other", "task edit mail/t2 --set to=x --params {}")
}

// TestAMistypedFieldGivesAWarning checks each way to write parameters. The change is made all the same.
func TestAMistypedFieldGivesAWarning(t *testing.T) {
	r := newRig(t)
	r.inStates()
	for line, field := range map[string]string{
		`task edit mail/dead --params '{"too":"bo"}'`:                  "too",
		`task edit mail/retry --set too=bo`:                            "too",
		`task edit state:scheduled --set user=bo --yes`:                "user",
		`task add send_mail --queue mail --params '{"to":"a","cc":1}'`: "cc",
		`task edit mail/waiting --params '{"to":"bo"}'`:                "",
		`task edit mail/waiting --set to=cy`:                           "",
		`task add send_mail --queue other --params '{"x":1}'`:          "", // there is no sample
		`task add send_fax --queue mail --params '{"x":1}'`:            "",
	} {
		r := newRig(t)
		r.inStates()
		got := r.run(line)
		warning := "warning: no other task of kind send_mail in mail has the field " + field + "\n"
		if got.code != Done || strings.Contains(got.err, "warning: no other") != (field != "") || field != "" && !strings.Contains(got.err, warning) {
			t.Errorf("midge %s: got %+v, want a warning of the field %q", line, got, field)
		}
	}
}

// TestANumberForATextIsReported sets a field with a text to a number, which stays a text. The hint is true: an edit
// stores no number there.
func TestANumberForATextIsReported(t *testing.T) {
	for _, encoding := range []string{"json", "msgpack"} {
		r := newRig(t)
		r.ok("task add bill --id a --encoding " + encoding + ` --params '{"order":"5","n":1,"of":{"b":"x"},"yes":"no"}'`)
		r.says(Done, "of.b has a text, so 7 is stored as a text: an edit keeps types; midge task add takes a number\n",
			"task edit default/a --set order=x --set of.b=7 --set n=3 --set yes=true --set new=4")
		if got := r.run(`task edit default/a --set n=4 --set 'order="7"'`); got.code != Done || strings.Contains(got.err, "is stored as") {
			t.Errorf("%s: got %+v, want no hint", encoding, got)
		}
		if got := string(r.shown("default/a").Params); !strings.Contains(got, `"7"`) {
			t.Errorf("%s: got %s, want a text", encoding, got)
		}
		r.says(BadInput, "invalid parameter order 7: want a text", `task edit default/a --params '{"order":7}'`)
	}
}

func TestNoRetriesAreNone(t *testing.T) {
	r := newRig(t)
	for flag, want := range map[string]int{"": 20, " --retries none": 0, " --retries 7": 7} {
		ref := strings.TrimSpace(r.ok("task add send_mail" + flag))
		if got := r.shown(ref).MaxRetries; got != want {
			t.Errorf("task add%s: %d retries, want %d", flag, got, want)
		}
	}
}

func TestAQueueIsPausedBeforeItsFirstTask(t *testing.T) {
	r := newRig(t)
	r.says(NotFound, "queue \"mail\" not found on redis://db.example:6379/0\nnext: midge queue ls, or the same command with --create", "queue pause mail")
	r.ok("queue pause mail --create --for 1h")
	r.ok("queue pause mail --create") // changes the pause of a queue that exists
	r.ok("queue create images mail")
	for name, want := range map[string]string{"mail": `"paused": true`, "images": `"paused": false`} {
		if got := r.ok("queue show " + name + " -o json"); !strings.Contains(got, want) {
			t.Errorf("queue %s is %s, want %s", name, got, want)
		}
	}
	r.says(BadInput, "midge's own", "queue create midge.audit")
	r.says(BadInput, "midge's own", "queue pause midge.audit --create")
	if actions := r.actions(); len(actions) != 6 {
		t.Errorf("the audit has %d actions, want 4 creations and 2 pauses: %+v", len(actions), actions)
	}
}

// TestFieldsOfListedTasksAreSet passes the refs on standard input, which can be read only once.
func TestFieldsOfListedTasksAreSet(t *testing.T) {
	r := newRig(t)
	r.inStates()
	r.in = "mail/dead mail/retry\n"
	r.says(Done, "edited 2", "task edit - --set to=bo --yes")
	for _, ref := range []string{"mail/dead", "mail/retry"} {
		if got := r.shown(ref); !strings.Contains(string(got.Params), `"bo"`) {
			t.Errorf("%s has the parameters %s, want bo in them", ref, got.Params)
		}
	}
}
