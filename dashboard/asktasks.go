package dashboard

import (
	"context"
	"crypto/rand"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// rates are the rates at which an action can be done, in tasks a second; 0 is no limit.
var rates = []int{0, 1, 10, 50, 100, 1000}

// moderate is the rate that the dialog proposes for a requeue of more tasks than moderateAbove. What made
// them fail, such as a mail server that has just come back, must not get them all at once.
const moderate, moderateAbove = 50, 100

// request returns the request of an action that a form describes.
func (s *server) request(r *http.Request, v *view, a action, d *askData) (bulk.Request, error) {
	req := bulk.Request{Action: bulk.Action{Verb: a.bulk}}
	if text := r.FormValue("rate"); text != "" {
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 0 || rate > 100_000 {
			return req, storage.Invalid("rate", text, "0 to 100,000 tasks a second")
		}
		req.Rate = float64(rate)
	}
	if req.Canary = r.FormValue("canary") != ""; req.Canary && a.bulk != bulk.Requeue {
		return req, storage.Invalid("canary", d.Do, "a requeue")
	}
	req.Action.FromStart = r.FormValue("from_start") != ""
	if err := req.Action.Check(); err != nil {
		return req, err
	}
	if text := r.FormValue("seen"); text != "" { // a form of an earlier version has none
		seen, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seen < 0 {
			return req, storage.Invalid("seen", text, "the moment at which the dialog counted the tasks")
		}
		req.Seen, d.Seen = seen, seen
	}
	if r.FormValue("all") == "" {
		if len(d.Refs) == 0 {
			return req, &statusError{http.StatusBadRequest, "Select tasks first, or tick “all that match”."}
		}
		var err error
		req.Tasks, err = d.targets()
		return req, err
	}
	c := chosenOf(r)
	f, err := c.parse()
	if err != nil {
		return req, err
	}
	if err := s.mayFilter(v, f); err != nil {
		return req, err
	}
	d.Chosen, d.Refs, d.Versions = &c, nil, nil
	// Without a state, the action is on the tasks that a list without a state shows.
	req.Scan = scan.Request{Filter: f, States: storage.StatesWhere(storage.State.Live)}
	if c.State != "" {
		req.Scan.States = nil
	}
	return req, nil
}

// targets returns the tasks that were chosen one by one, at the versions that their dialog has shown.
func (d *askData) targets() ([]bulk.Target, error) {
	targets := make([]bulk.Target, len(d.Refs))
	for i, text := range d.Refs {
		ref, err := parseRef(text)
		if err != nil {
			return nil, err
		}
		if targets[i].Ref = ref; len(d.Versions) == 0 {
			continue
		}
		if targets[i].Version, err = strconv.ParseInt(d.Versions[i], 10, 64); err != nil || targets[i].Version < 0 {
			return nil, storage.Invalid("version", d.Versions[i], "the version of a task that the dialog showed")
		}
	}
	return targets, nil
}

// consequence returns the text about the effect of an action. There are special texts for one task, and for
// tasks that have all ended.
func consequence(verb bulk.Verb, look *bulk.Preview) string {
	lives := func(t storage.Task) bool { return !t.State.Ended() }
	ended := !slices.ContainsFunc(look.Samples, lives) && !look.More
	one := look.Count == 1 && !look.More && len(look.Samples) == 1
	switch {
	case verb == bulk.Requeue && one && ended && look.Samples[0].State != storage.Completed:
		return "The task runs again, and keeps its finished steps and its checkpoint. " +
			"Its earlier failures and crashes no longer count, but stay in its timeline."
	case verb == bulk.Requeue && one && ended:
		return "The task starts over. Its earlier failures and crashes no longer count, but stay in its timeline."
	case verb == bulk.Requeue && one:
		return "The task waits for a runner from now on."
	case verb == bulk.Requeue && ended && look.Count == int64(len(look.Samples)):
		return "The tasks run again. Their earlier failures and crashes no longer count."
	case verb == bulk.Delete && one:
		return "This deletes the task with its parameters, history and result. Only a backup can bring it back."
	case verb == bulk.Cancel && one && look.Samples[0].State == storage.Pending:
		return "The runner is asked to stop the task. It keeps running until its job stops, " +
			"and then ends as cancelled." + notKept(&look.Samples[0])
	case verb == bulk.Cancel && one:
		return "The task ends as cancelled and does not run." + notKept(&look.Samples[0])
	}
	return look.Consequence
}

// notKept returns the sentence that a task is deleted once it is cancelled, "" if it is kept.
func notKept(t *storage.Task) string {
	if t.Keep.Of(storage.Cancelled, false) > 0 {
		return ""
	}
	return " It is not kept then, because it was enqueued without a retention."
}

// askTasks shows what an action would do to tasks.
func (s *server) askTasks(r *http.Request, v *view, a action, d *askData) error {
	req, err := s.request(r, v, a, d)
	if err != nil {
		return err
	}
	look, err := bulk.Look(r.Context(), s.session, req, bulk.Budget{})
	if err != nil {
		return err
	}
	if look.Count == 0 && look.Gone > 0 && len(req.Tasks) == 1 {
		return storage.ErrNotFound
	}
	d.Refs, d.Versions, d.Seen = nil, nil, look.Seen
	for _, t := range look.Targets {
		d.Refs = append(d.Refs, t.Ref.String())
		d.Versions = append(d.Versions, strconv.FormatInt(t.Version, 10))
	}
	d.Samples, d.Count, d.Says = look.Samples, look.Count, consequence(a.bulk, &look)
	d.More = d.Count - int64(len(d.Samples))
	d.Many, d.None, d.Rates = look.Most > 1, look.None(), rates
	d.Canary, d.FromStart = d.Many && a.bulk == bulk.Requeue, a.bulk == bulk.Requeue
	if a.bulk == bulk.Requeue && look.Most > moderateAbove {
		d.Rate = moderate
	}
	about, searched := searchedOf(&look)
	d.Says += searched
	if a.bulk == bulk.Requeue && slices.ContainsFunc(look.Samples, scan.Discarded) {
		d.Says += " The job discarded some of these tasks, and will do so again unless the cause is fixed."
	}
	for _, reason := range look.Reasons {
		d.Kept = append(d.Kept, reason.Ref.String()+": "+reason.Text)
	}
	d.Title, d.Form = a.title+" "+about+"?", rand.Text()
	if a.bulk == bulk.Cancel && !d.None {
		d.nameTasks()
	}
	d.CountDown = a.danger && d.Many
	words := []string{"midge", "task", commandOf(d.Do)}
	if d.Rate > 0 { // midge.mjs changes this flag with the choice of the form
		words = append(words, "--rate", strconv.Itoa(d.Rate))
	}
	if d.Chosen != nil {
		words = behind(words, commandFilter(*d.Chosen))
		d.Most = d.Count
		if look.More {
			d.Most = 0
		}
		if !d.None {
			d.Typed = a.typed(d.Most, d.Confirms())
		}
	} else {
		words = append(words, d.Refs...)
	}
	if !v.alien(d.Chosen) {
		d.Command = commandLine(words...)
	}
	if a.bulk == bulk.Delete && !d.None {
		s.offerDownload(v, d)
	}
	return nil
}

// nameTasks names the tasks on both buttons of a cancel: two buttons "Cancel" would leave open which of them
// cancels.
func (d *askData) nameTasks() {
	tasks := "task"
	if d.Many {
		tasks = "tasks"
	}
	d.Button, d.Leave = "Cancel "+tasks, "Keep "+tasks
}

// searchedOf returns on how many tasks an action is. If tasks are left to search, it also returns how many
// were searched.
func searchedOf(look *bulk.Preview) (about, searched string) {
	about = format.Count(look.Count, "task")
	if !look.More {
		return about, ""
	}
	searched = " So far " + format.Exact(look.Searched) + " of " + format.Exact(look.Total) +
		" tasks were searched. The action searches all of them."
	switch {
	case look.Count > 0:
		return "at least " + about, searched
	case look.Most < math.MaxInt64: // the tasks are named
		return "up to " + format.Count(look.Most, "task"), searched
	}
	return "all tasks that match", " No task matches among the first " + format.Exact(look.Searched) +
		". The action searches all tasks."
}

// Confirms returns the count that the dialog posts to confirm the action.
func (d *askData) Confirms() string {
	if d.Most == 0 {
		return unbounded
	}
	return strconv.FormatInt(d.Most, 10)
}

// commandFilter returns the filter with which the command chooses the same tasks.
func commandFilter(c chosen) string {
	if f, err := c.parse(); c.State == "" && err == nil && len(f.States()) == 0 {
		c.State = stateLive
	}
	return c.Text()
}

// orderTasks returns the order for an action on tasks. If the action is not done soon, the request is
// redirected to a page that shows its progress.
func (s *server) orderTasks(r *http.Request, a action, d *askData) (order, error) {
	v := s.view(r)
	req, err := s.request(r, v, a, d)
	if err == nil && d.Chosen != nil {
		req.Limit, err = confirmed(r, a)
	}
	if err != nil {
		return order{}, err
	}
	e := s.entry(r, d.Do)
	if e.IDs = d.Refs; d.Chosen != nil {
		e.Filter = commandFilter(*d.Chosen)
	}
	if a.bulk == bulk.Requeue {
		e.Note = req.RequeueNote()
	}
	if a.bulk == bulk.Delete {
		taken, err := s.takeDownloaded(&req, r.PostFormValue("form"), r.PostFormValue("saved") != "")
		if err != nil {
			return order{}, err
		}
		if taken {
			e.Note = "after a download"
		}
	}
	short := d.Chosen == nil && req.Rate == 0 && !req.Canary
	return order{e, func(record *ledger.Action) (notice, error) {
		j := &job{
			Title: a.title, Back: d.Back, Who: v.User.Name, Form: r.PostFormValue("form"), short: short,
			Filter: e.Filter, Rate: req.Rate,
			record: record, done: req.Action.Done(), of: int64(max(len(req.Tasks), req.Limit)),
		}
		return s.await(r, d, j, func(ctx context.Context) (bulk.Result, error) {
			req.Progress = func(r bulk.Result) {
				j.tell(r)
				record.Reached(ctx, int(r.Done))
			}
			return bulk.Run(ctx, s.session, req)
		})
	}}, nil
}

// unbounded is the count that a dialog posts if not all tasks were searched.
const unbounded = "all"

// typed returns what the user must type to confirm an action on tasks that a filter chooses, "" for nothing.
func (a action) typed(most int64, found string) string {
	if !a.danger || most > 0 && most <= typedAbove {
		return ""
	}
	return found
}

// countOf parses the count of tasks that a dialog shows: 0 if not all of them were searched.
func countOf(text string) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case text == unbounded:
		return 0, nil
	case err != nil || n < 1:
		return 0, storage.Invalid("count", text, "the tasks that the dialog counted, or %q", unbounded)
	}
	return n, nil
}

// confirmed returns the limit of tasks for an action that was confirmed in a dialog: as many as the dialog
// showed, or 0 for all that match.
func confirmed(r *http.Request, a action) (int, error) {
	text := r.PostFormValue("count")
	n, err := countOf(text)
	if err != nil {
		return 0, err
	}
	if want := a.typed(int64(n), text); r.PostFormValue("typed") != want && want != "" {
		return 0, storage.Invalid("confirmation", r.PostFormValue("typed"), "%s", want)
	}
	return n, nil
}
