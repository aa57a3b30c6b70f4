package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// taskData is the data of the page of a task.
type taskData struct {
	storage.Task

	Look     stateLook
	Verdict  string
	Timeline []moments
	Steps    *stepsData // nil if there are none
	Bodies   []body
	Headers  []header
	Facts    []fact
	Actions  []actionLink
}

// moments is one event of a task's life.
type moments struct {
	At          time.Time
	Glyph, Look string
	What        string
	Runner      string
	Took        string
	Error       string
	Stack       string
}

// body is a payload of a task as JSON.
type body struct {
	Name    string
	Size    int
	Tree    *node
	Text    string // if it is not shown as a tree
	Bar     *bar   // of progress that counts
	Problem string
	URL     string // of the whole payload, for a download
}

// bar is progress that counts, such as 5 of 60.
type bar struct {
	Percent int
	Text    string
}

type header struct{ Name, Value string }

type fact struct {
	Name, Value, Exact, URL string
}

// actionLink is an action that the page of a task offers.
type actionLink struct {
	Text, URL, Key string
	Danger         bool
	Plain          bool // it may be the first action, but it is not the action to take
}

func refOf(r *http.Request) (storage.Ref, error) {
	ref := storage.Ref{Queue: r.PathValue("queue"), ID: r.PathValue("id")}
	if storage.Reserved(ref.Queue) {
		return ref, errHidden
	}
	return ref, storage.CheckRef(ref)
}

func (s *server) task(r *http.Request, v *view) error {
	ref, err := refOf(r)
	if err != nil {
		return err
	}
	t, err := s.store.Task(r.Context(), ref)
	if errors.Is(err, storage.ErrNotFound) && v.Notice != nil {
		return s.afterwards(v, ref)
	}
	if err != nil {
		return err
	}
	v.Page, v.Nav, v.Kind, v.Title = "task", "Tasks", "Task in "+t.Queue, t.Kind
	v.Ref = ref.String()
	v.Watch = v.watchQueue(t.Queue)
	if t.State == storage.Pending {
		v.Watch += " all.tick"
	}
	v.Command = commandLine("midge", "task", "show", ref.String())
	d := &taskData{Task: t, Look: lookOfTask(&t)}
	d.Verdict, err = s.verdict(r, v, t)
	if err != nil {
		return err
	}
	d.Timeline = v.timeline(t)
	d.Steps = v.steps(t)
	d.Facts = v.facts(t)
	d.Actions = v.taskActions(t)
	if v.May("payloads") {
		d.Bodies = v.bodies(t)
		for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
			d.Headers = append(d.Headers, header{name, s.cfg.Redact.Headers(t.Headers)[name]})
		}
	}
	v.Data = d
	return nil
}

// afterwards redirects from the page of a task to the list of its queue, with the notice about the action on
// the task. A requeued task may have ended, and a cancelled task may not be kept.
func (s *server) afterwards(v *view, ref storage.Ref) error {
	said := *v.Notice
	if !said.Bad {
		said.Text += " The task no longer exists, because it has no retention."
	}
	return redirectError(s.notices.with(v.URL("/tasks", "queue", ref.Queue), said))
}

// outcome is how pages show the end of an attempt: with the glyph and the colour of a state, and words.
type outcome struct {
	look storage.State
	text string
}

// outcomes has each way in which an attempt can end.
var outcomes = map[string]outcome{
	storage.AttemptFailed:      {storage.Retry, "failed"},
	storage.AttemptTimedOut:    {storage.Retry, "timed out"},
	storage.AttemptPanicked:    {storage.Dead, "panicked"},
	storage.AttemptDiscarded:   {storage.Dead, "was discarded by its job"},
	storage.AttemptExpired:     {storage.Dead, "missed its deadline"},
	storage.AttemptUndecodable: {storage.Dead, "could not be decoded"},
	storage.AttemptCancelled:   {storage.Cancelled, "was cancelled"},
	storage.AttemptCrashed:     {storage.Dead, "crashed"},
	storage.AttemptLeaseLost:   {storage.Retry, "lost its lease before it started"},
	storage.AttemptSucceeded:   {storage.Completed, "completed"},
	storage.AttemptRequeued:    {storage.Waiting, "was requeued"},
}

// event returns an event with the glyph and the colour of a state.
func event(at time.Time, look storage.State, text string) moments {
	return moments{At: at, Glyph: lookOf(look).Glyph, Look: string(look), What: text}
}

// timeline returns the events of the task's life, the newest first: its attempts, and how long it waited for
// each.
func (v *view) timeline(t storage.Task) []moments {
	line := []moments{event(t.Created, storage.Waiting, "created")}
	since := t.Created // the end of the attempt before, or the creation
	if due := dueFirst(&t); due.After(since) {
		since = due
	}
	// Older attempts may be forgotten: then nobody knows the numbers of the others.
	numbered, number := len(t.Attempts) < storage.MaxAttempts, 0
	name := func() string {
		if number++; numbered {
			return "attempt " + format.Exact(int64(number))
		}
		return "attempt"
	}
	waited := func(until time.Time) {
		if d := until.Sub(since); d >= time.Millisecond {
			line = append(line, event(until, storage.Waiting, "waited "+format.Duration(d)))
		}
	}
	stack := lastFailed(t.Attempts)
	for i, a := range t.Attempts {
		o, ok := outcomes[a.Outcome]
		if !ok {
			o = outcome{storage.Waiting, a.Outcome}
		}
		m := event(a.At, o.look, o.text)
		m.Runner, m.Error = a.Runner, a.Error
		if !ok {
			m.Glyph = noGlyph
		}
		switch a.Outcome {
		case storage.AttemptRequeued: // its attempts count anew
			number = 0
		case storage.AttemptLeaseLost: // it was only claimed
			m.Glyph = "!"
		default:
			waited(a.Claimed)
			m.What, m.Took = name()+" "+m.What, "after "+format.Duration(a.Took())
		}
		if a.Outcome == storage.AttemptCrashed { // nobody knows when the job ended
			m.Took = "found " + format.Duration(a.Took()) + " after the start, once its lease had expired"
		}
		if i == stack {
			m.Stack = t.Stack
		}
		line, since = append(line, m), a.At
	}
	if t.State == storage.Pending {
		waited(t.Claimed)
	}
	return append(v.newest(t, since, name), reversed(line)...)
}

// lastFailed returns the index of the last attempt that did not succeed, to which the stack belongs; -1 for
// none.
func lastFailed(attempts []storage.Attempt) int {
	for i, a := range slices.Backward(attempts) {
		if a.Outcome != storage.AttemptSucceeded && a.Outcome != storage.AttemptRequeued {
			return i
		}
	}
	return -1
}

// dueFirst returns when a task was due for the first time, zero if it was enqueued to run at once.
func dueFirst(t *storage.Task) time.Time {
	text := t.Headers[storage.DueHeader]
	if delay, err := time.ParseDuration(text); err == nil {
		return t.Created.Add(delay)
	}
	at, _ := time.Parse(time.RFC3339Nano, text) // zero if there is none, or if it is damaged
	return at
}

// newest returns the event of the task's present state, if there is one. since is the end of its last
// attempt, and attempt the name of the next.
func (v *view) newest(t storage.Task, since time.Time, attempt func() string) []moments {
	if _, ok := t.Success(); ok { // the attempt shows it
		return nil
	}
	m := event(since, t.State, filter.TaskWord(&t))
	switch {
	case t.State == storage.Pending:
		m.At, m.Runner = t.Claimed, t.Runner
		if t.Started {
			m.What = attempt() + " started"
		}
	case t.State.Ended():
		m.At = t.Ended
		if reason := t.CurrentReason(); reason != "" {
			m.What += ": " + strings.Replace(reason, storage.ReasonRetries, "retries exhausted", 1)
		}
	case t.State == storage.Cursors, payload.Records(t):
		return nil
	case t.State.Timed():
		m.At, m.What = t.Due, attempt()+" due"
		switch reason := t.CurrentReason(); {
		case storage.Sleeps(reason):
			m.What += ": the job " + reason
		case reason != "":
			m.What += ", snoozed: " + reason
		}
	case t.State == storage.Waiting:
		m.What = "waiting for " + attempt()
	}
	return []moments{m}
}

// reversed returns the events in the opposite order.
func reversed(line []moments) []moments {
	slices.Reverse(line)
	return line
}

// facts returns the other properties of the task.
func (v *view) facts(t storage.Task) (facts []fact) {
	add := func(name, value, exactly, url string) {
		if value != "" {
			facts = append(facts, fact{name, value, exactly, url})
		}
	}
	at := func(name string, at time.Time) {
		if !at.IsZero() {
			add(name, format.Away(at, v.Now), format.Whole(at), "")
		}
	}
	add("kind", t.Kind, "", v.URL("/tasks", "queue", t.Queue, "filter", "kind:"+t.Kind))
	add("queue", t.Queue, "", v.QueueURL(t.Queue))
	add("partition", t.Partition, "", v.partitionURL(t.Queue, t.Partition))
	at("created", t.Created)
	if !payload.Records(t) {
		at("due", t.Due)
	}
	if a, ok := t.Success(); ok {
		at("started", a.Claimed)
		add("took", format.Duration(a.Took()), a.Took().String(), "")
		add("runner", a.Runner, "", v.URL("/runners/"+a.Runner))
	}
	at("ended", t.Ended)
	at("kept until", t.Expires)
	failures := format.Exact(int64(t.Retries)) + " of " + format.Exact(int64(t.MaxRetries)+1)
	add("failures", failures, "the task is dead after the last of these failures", "")
	if t.Crashes > 0 {
		add("crashes", format.Exact(int64(t.Crashes))+" of "+format.Exact(int64(t.CrashLimit)), "", "")
	}
	if t.Snoozes > 0 {
		add("snoozes", format.Exact(int64(t.Snoozes))+" in a row", format.Whole(t.SnoozedSince), "")
	}
	if t.Priority != 0 {
		add("priority", format.Exact(int64(t.Priority)), "", "")
	}
	if n := t.Cost.N(); n != 1 {
		add("cost", format.Exact(int64(n)), "how much of the rate of its queue a start uses up", "")
	}
	if t.State == storage.Pending {
		add("runner", t.Runner, "", v.URL("/runners/"+t.Runner))
		at("lease until", t.LeaseUntil)
	}
	at("deadline", t.Deadline())
	at("tick", t.Tick())
	switch {
	case t.Timeout == storage.NoTimeout:
		add("timeout", "none", "the timeout of the runner does not apply", "")
	case t.Timeout > 0:
		add("timeout", format.Duration(t.Timeout), t.Timeout.String(), "")
	}
	if t.Unique.Key != "" {
		add("unique", "by a key, for its "+string(t.Unique.Mode), "", "") // a key confirms guesses of parameters
	}
	add("encoding", t.Encoding, "", "")
	return facts
}

// taskActions returns the actions that the viewer may do to the task.
func (v *view) taskActions(t storage.Task) (actions []actionLink) {
	add := func(text, do, key string, danger bool) {
		actions = append(actions, actionLink{
			Text: text, URL: v.URL("/action", "do", do, "ref", t.Ref.String()), Key: key, Danger: danger,
			Plain: do == "cancel" || scan.Discarded(t) || filter.IsKept(t.State),
		})
	}
	if t.State == storage.Cursors {
		return nil
	}
	requeue := storage.Change{Requeue: t.State.Ended(), Now: !t.State.Ended()}
	records := storage.RecordKind(t.Kind) // it can only be cancelled: see bulk
	if v.May("operate") {
		switch {
		case records:
		case t.State.Ended():
			add("Requeue", "requeue", "r", false)
		case requeue.Permitted(t.State) && (t.State != storage.Waiting || !t.Declined.IsZero()):
			add("Run now", "requeue", "r", false)
		}
		cancel := storage.Change{Cancel: true}
		if cancel.Permitted(t.State) && t.State != storage.Cancelled && !t.CancelAsked {
			add("Cancel", "cancel", "c", false)
		}
	}
	if v.May("alter") && !records {
		if edit := (storage.Change{}); v.May("payloads") && (edit.Permitted(t.State) || t.State.Ended()) {
			actions = append(actions, actionLink{Text: "Edit", URL: v.URL("/edit", "ref", t.Ref.String()), Key: "e"})
		}
		if t.State != storage.Pending {
			add("Delete", "delete", "", true)
		}
	}
	return actions
}

// mostTree limits the JSON that a page shows, in bytes. Longer JSON can only be downloaded.
const mostTree = 48 << 10

// bodies returns the payloads that the task has.
func (v *view) bodies(t storage.Task) (bodies []body) {
	for _, part := range payload.Parts(t) {
		if len(part.Data) == 0 {
			continue
		}
		b := body{Name: part.Name, Size: len(part.Data), URL: v.TaskURL(t.Ref) + "/" + part.Name}
		text, err := v.server.readable(part)
		switch {
		case err != nil:
			b.Problem = err.Error()
		case len(text) > mostTree:
			b.Problem = "The value is too long to be shown here. Download it instead."
		default:
			if b.Tree = tree(text); b.Tree == nil {
				b.Text = string(text)
			}
			if c, ok := payload.CountedOf(text); ok && part.Name == access.PartProgress {
				b.Bar = v.bar(t, c)
			}
		}
		bodies = append(bodies, b)
	}
	return bodies
}

// bar returns the bar of progress that counts.
func (v *view) bar(t storage.Task, c payload.Counted) *bar {
	text := format.Quantity(c.Done) + " of " + format.Quantity(c.Of) + ", " + format.Percent(c.Share())
	if left := c.Left(t, v.Now); left > 0 {
		text += ", about " + format.Duration(left) + " left"
	}
	return &bar{Percent: int(100 * c.Share()), Text: text}
}

// readable returns a payload as JSON, without the fields that Config.Redact hides.
func (s *server) readable(part payload.Part) ([]byte, error) {
	text, err := part.JSON()
	if err != nil {
		return nil, err
	}
	return s.cfg.Redact.JSON(part.Name, text), nil
}

// download sends a payload as a file.
func (s *server) download(w http.ResponseWriter, r *http.Request) {
	ref, err := refOf(r)
	if err == nil && !userOf(r.Context()).May(access.Payloads) {
		err = &statusError{http.StatusForbidden, "Your role does not permit you to see parameters and results."}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	t, err := s.store.Task(r.Context(), ref)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	text, err := s.part(t, r.PathValue("part"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	name := strings.ReplaceAll(t.ID, ":", "_") + "." + r.PathValue("part") + ".json"
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = w.Write(text)
}

// part returns a payload of a task, or its steps, as JSON.
func (s *server) part(t storage.Task, name string) ([]byte, error) {
	for _, part := range payload.Parts(t) {
		if part.Name == name && len(part.Data) > 0 {
			return s.readable(part)
		}
	}
	if name != partSteps {
		return nil, errNoPage
	}
	steps, err := payload.Steps(t, s.cfg.Redact.StepJSON)
	if err == nil && len(steps) == 0 {
		err = errNoPage
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(steps)
}

// node is a value of JSON that a page folds.
type node struct {
	Key   string // with quotes, "" in lists and at the top
	Value string // of a scalar
	Kind  string // "object", "list", "text", or "" for other scalars
	Kids  []*node
}

// Open reports whether the node is shown unfolded.
func (n *node) Open() bool { return len(n.Kids) <= 20 }

// tree parses JSON. It returns nil if the text is not JSON, or is nested too deeply.
func tree(text []byte) *node {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	n, err := readNode(d, 0)
	if err != nil {
		return nil
	}
	return n
}

func readNode(d *json.Decoder, depth int) (*node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return scalar(token), nil
	}
	n := &node{Kind: "list"}
	if delim == '{' {
		n.Kind = "object"
	}
	if depth > 100 {
		return nil, errNoPage
	}
	for d.More() {
		key := ""
		if n.Kind == "object" {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			key = quotedJSON(name)
		}
		kid, err := readNode(d, depth+1)
		if err != nil {
			return nil, err
		}
		kid.Key = key
		n.Kids = append(n.Kids, kid)
	}
	_, err = d.Token()
	return n, err
}

func scalar(token json.Token) *node {
	switch v := token.(type) {
	case string:
		return &node{Value: quotedJSON(v), Kind: "text"}
	case json.Number:
		return &node{Value: v.String()}
	case bool:
		if v {
			return &node{Value: "true"}
		}
		return &node{Value: "false"}
	}
	return &node{Value: "null"}
}

// quotedJSON returns a text as a string of JSON, in which HTML is not escaped.
func quotedJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) //nolint:errchkjson // a text
	return strings.TrimSuffix(b.String(), "\n")
}

// verdict returns sentences about why the task is in its state.
func (s *server) verdict(r *http.Request, v *view, t storage.Task) (string, error) {
	if t.State.Ended() {
		return v.ended(&t), nil
	}
	known := v.sampled(t)
	why, err := storage.Why(r.Context(), known, t.Ref, v.Sample.Before(t.Queue)...)
	if err != nil {
		return "", err
	}
	return sentence(payload.Why(t, why.Text(format.Duration))), nil
}

// ended returns sentences about since when a task has been in its last state, and why it is dead.
func (v *view) ended(t *storage.Task) string {
	text := heading(string(t.State)) + " since " + format.Moment(t.Ended, v.Now) +
		" (" + format.Away(t.Ended, v.Now) + ")."
	if t.State != storage.Dead {
		return text
	}
	text += " " + deadBecause(t)
	if last := format.FirstLine(t.LastError()); last != "" && last != t.Reason {
		text += " Last error: " + last
	}
	return text
}

// deadBecause returns a sentence about why a task is dead.
func deadBecause(t *storage.Task) string {
	reason := format.FirstLine(t.Reason)
	switch {
	case scan.Discarded(*t):
		return "The job discarded this task. Fix the cause before you requeue it."
	case t.Reason == storage.ReasonRetries:
		return "Retries exhausted."
	case t.Reason == storage.ReasonCrashes:
		return "Crash limit reached: " + format.Count(t.Crashes, "crash") + "."
	case t.Reason == storage.ReasonKind:
		return "No runner on " + t.Queue + " handled " + t.Kind + "."
	case reason == "":
		return ""
	}
	return sentence(reason)
}

// sentence capitalizes a text and ends it with a full stop.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}
