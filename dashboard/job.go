package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
)

const (
	// atOnce is how long a request waits for its action. An action that takes longer has a page of its own.
	atOnce = 1500 * time.Millisecond
	// mostJobs limits the actions that are kept, and mostRunning the long actions that run at once.
	mostJobs, mostRunning = 64, 8
)

// job is an action in a goroutine of its own, running or ended.
type job struct {
	ID, Title, Back, Who string
	Form                 string  // the id of the dialog that began it
	Filter               string  // chooses its tasks, "" if they are named
	Rate                 float64 // in tasks a second, 0 for no limit
	Began                time.Time

	short  bool           // it is on a few named tasks, without a rate, and mostRunning does not count it
	record *ledger.Action // its record in the audit
	said   string         // the notice if it succeeds, "" for a notice that counts the tasks
	done   string         // the word for tasks to which the action was done
	of     int64          // how many tasks the action is on, 0 if that is not known
	stop   context.CancelFunc
	ended  chan struct{} // closed when the action has ended

	mu      sync.Mutex
	result  bulk.Result
	err     error
	stopped string // who stopped it, "" for nobody
}

// Result returns the progress of the action.
func (j *job) Result() bulk.Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.result
}

// tell records the progress of the action.
func (j *job) tell(r bulk.Result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result = r
}

// halt stops the action for a person, and waits until it has ended.
func (j *job) halt(who string) {
	j.mu.Lock()
	j.stopped = cmp.Or(j.stopped, who)
	j.mu.Unlock()
	j.stop()
	<-j.ended
}

// ending returns how the action ended, for its record. An action that was done before it could be stopped was
// not stopped.
func (j *job) ending(result *bulk.Result, err error) ledger.Ending {
	end := ledger.Ending{Count: int(result.Done), IDs: result.IDs(), Err: err}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		end.Stopped = j.stopped
	}
	return end
}

// Ended reports whether the action has ended.
func (j *job) Ended() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// jobs has the running actions of this process, and the actions that ended last.
type jobs struct {
	mu     sync.Mutex
	byID   map[string]*job
	order  []string
	open   sync.WaitGroup
	closed bool
}

var errBusy = &statusError{
	http.StatusServiceUnavailable, "Too many actions are in progress. Try again when one of them has ended.",
}

// start runs an action in a goroutine, which ends with the action. The job's stop and jobs.close cancel the
// action. start returns errBusy if too many actions run.
func (s *server) start(ctx context.Context, j *job, run func(context.Context) (bulk.Result, error)) error {
	ctx, j.stop = context.WithCancel(context.WithoutCancel(ctx))
	j.ID, j.Began, j.ended = rand.Text(), s.now(), make(chan struct{})
	if err := s.jobs.add(j); err != nil {
		j.stop()
		return err
	}
	go func() {
		defer s.jobs.open.Done()
		defer close(j.ended)
		defer j.stop()
		result, err := s.carryOut(ctx, run)
		s.written(ctx, j.record, j.ending(&result, err))
		j.mu.Lock()
		j.result, j.err = result, err
		j.mu.Unlock()
	}()
	return nil
}

// carryOut runs an action, and returns an error if it panics.
func (s *server) carryOut(
	ctx context.Context, run func(context.Context) (bulk.Result, error),
) (result bulk.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the action panicked: %v", v)
			s.cfg.Log.LogAttrs(ctx, slog.LevelError, "midge: an action of the dashboard panicked",
				slog.Any("panic", v))
		}
	}()
	return run(ctx)
}

func (js *jobs) add(j *job) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	running := 0
	for _, other := range js.byID {
		if !other.short && !other.Ended() {
			running++
		}
	}
	if js.closed || !j.short && running >= mostRunning {
		return errBusy
	}
	if js.byID == nil {
		js.byID = map[string]*job{}
	}
	js.byID[j.ID] = j
	js.order = append(js.order, j.ID)
	for len(js.order) > mostJobs {
		i := slices.IndexFunc(js.order, func(id string) bool { return js.byID[id].Ended() })
		if i < 0 {
			break
		}
		delete(js.byID, js.order[i])
		js.order = slices.Delete(js.order, i, i+1)
	}
	js.open.Add(1)
	return nil
}

// ofForm returns the action that a dialog began, or nil.
func (js *jobs) ofForm(form string) *job {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.byID {
		if j.Form == form {
			return j
		}
	}
	return nil
}

func (js *jobs) of(id string) *job {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.byID[id]
}

// close stops the actions that run, and waits for them.
func (js *jobs) close() {
	js.mu.Lock()
	js.closed = true
	for _, j := range js.byID {
		j.stop()
	}
	js.mu.Unlock()
	js.open.Wait()
}

// forms knows the dialogs that were sent to this process, so that an action is done once however often its
// dialog is sent to it: an action that is done again may be on tasks that nobody has confirmed.
type forms struct {
	mu   sync.Mutex
	sent map[string]bool
	last []string // the oldest first
}

// mostForms limits the dialogs that are remembered.
const mostForms = 10_000

// take reports whether a dialog is sent for the first time. A request without a dialog, such as that of a
// script, always is.
func (f *forms) take(id string) bool {
	if id == "" {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent[id] {
		return false
	}
	if f.sent == nil {
		f.sent = map[string]bool{}
	}
	f.sent[id], f.last = true, append(f.last, id)
	if len(f.last) > mostForms {
		delete(f.sent, f.last[0])
		f.last = f.last[1:]
	}
	return true
}

// free lets a dialog be sent again, because its action was not begun.
func (f *forms) free(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sent, id)
}

// await starts an action, and redirects to its page if the action is not done soon.
func (s *server) await(
	r *http.Request, d *askData, j *job, run func(context.Context) (bulk.Result, error),
) (notice, error) {
	if err := s.start(r.Context(), j, run); err != nil {
		s.written(r.Context(), j.record, ledger.Ending{Err: err})
		return notice{}, err
	}
	timer := time.NewTimer(atOnce)
	defer timer.Stop()
	select {
	case <-j.ended:
	case <-timer.C:
		d.Back = s.view(r).URL("/actions/" + j.ID)
		return notice{}, nil
	}
	return j.notice(), nil
}

// notice returns the notice about the result of the action.
func (j *job) notice() notice {
	r, done := j.Result(), j.done
	switch {
	case j.said != "" && j.err == nil:
		return notice{Text: j.said}
	case r.Matched == 1 && r.Done == 0 && len(r.Reasons) > 0:
		return notice{"Nothing was " + done + ": " + r.Reasons[0].Text, true}
	case r.Matched <= 1 && r.Done == 0 && r.Gone > 0:
		return notice{"Nothing was " + done + ": the task no longer exists.", true}
	case r.Done == r.Matched && r.Asked == r.Done && r.Done > 0 && j.err == nil:
		return notice{Text: format.Count(r.Done, "running task") + " asked to stop. " +
			"A running task ends as cancelled when its job stops."}
	case r.Done == r.Matched && j.err == nil && r.Asked > 0:
		return notice{Text: format.Count(r.Done, "task") + " " + done + ", " + format.Number(r.Asked) +
			" of them still running and asked to stop."}
	case r.Done == r.Matched && j.err == nil:
		return notice{Text: format.Count(r.Done, "task") + " " + done + "."}
	}
	parts := []string{format.Exact(r.Done) + " of " + format.Count(r.Matched, "task") + " " + done}
	for _, part := range []struct {
		n    int64
		what string
	}{{r.Changed, "changed meanwhile"}, {r.Gone, "not found"}, {r.Kept, "skipped"}} {
		if part.n > 0 {
			parts = append(parts, format.Exact(part.n)+" "+part.what)
		}
	}
	text := strings.Join(parts, ", ") + "."
	if j.said != "" {
		text = "The queue was not " + done + "."
	}
	if len(r.Reasons) > 0 {
		text += " " + r.Reasons[0].Ref.String() + ": " + r.Reasons[0].Text
	}
	if stop, ok := errors.AsType[*bulk.CanaryError](j.err); ok {
		text += " The action has stopped: " + stop.Error() + "."
		if stop.Detail != "" {
			text += " " + format.FirstLine(stop.Detail)
		}
	} else if j.err != nil {
		_, why := status(j.err)
		if errors.Is(j.err, context.Canceled) {
			why = "The action was stopped."
		}
		text += " " + why + " Repeat it to do the rest."
	}
	return notice{Text: text, Bad: true}
}

// noAction is the answer to requests for an action that this process does not know.
const noAction = "Action not found. Another process carries it out, or this process no longer keeps it."

// jobData is the data of the page of an action.
type jobData struct {
	*job

	Filter  string // of the job, hidden from a viewer who may not search by it
	Back    string // of the job, or the list of all tasks for a viewer who may not see the filter in its address
	Is      bulk.Result
	Of      int64  // how many tasks the action is on, 0 if that is not known
	Done    string // the word for tasks to which the action was done
	Told    *notice
	Go      string // the page to which an action leads that was done as asked
	Percent int64
	Took    time.Duration // since it began
	Left    time.Duration // until it is done at the present speed, 0 if that is not known
}

func (s *server) job(r *http.Request, v *view) error {
	j := s.jobs.of(r.PathValue("job"))
	if j == nil {
		return &statusError{http.StatusNotFound, noAction}
	}
	v.Page, v.Nav, v.Kind, v.Title = "job", "Tasks", "Action by "+j.Who, j.Title
	d := jobData{
		job: j, Filter: j.Filter, Back: j.Back, Is: j.Result(), Of: j.of, Done: j.done, Took: s.now().Sub(j.Began),
	}
	if !s.seesFilter(v, j.Filter) {
		d.Filter = access.Hidden
	}
	if from, err := url.Parse(j.Back); err != nil || !s.seesFilter(v, from.Query().Get("filter")) {
		d.Back = v.URL("/tasks")
	}
	if j.Ended() {
		told := j.notice()
		if d.Told = &told; !told.Bad {
			d.Go = s.notices.with(d.Back, told)
		}
	} else {
		v.Watch = "all.second"
	}
	// The search is ahead of the action, so its progress counts only if the number of tasks is not known.
	if handled := d.Is.Done + d.Is.Changed + d.Is.Gone + d.Is.Kept; d.Of > 0 {
		d.Percent = min(100, 100*handled/d.Of)
		begun := handled > 0 && (d.Is.Canary.ID == "" || d.Is.Passed) // else the others wait for the canary
		if left := float64(d.Of - handled); begun && left > 0 {
			d.Left = time.Duration(left / float64(handled) * float64(d.Took))
		}
	} else if d.Is.Total > 0 {
		d.Percent = min(100, 100*d.Is.Searched/d.Is.Total)
	}
	v.Data = d
	return nil
}

// halt stops an action, and waits until it has ended.
func (s *server) halt(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	j := s.jobs.of(r.PathValue("job"))
	switch {
	case j == nil:
		s.fail(w, r, &statusError{http.StatusNotFound, noAction})
		return
	case !v.May("operate"):
		s.fail(w, r, &statusError{http.StatusForbidden, "Your role does not permit this."})
		return
	}
	j.halt(v.User.Name)
	http.Redirect(w, r, v.URL("/actions/"+j.ID), http.StatusSeeOther)
}
