package dashboard

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// actions are the actions that users can do, by name.
var actions = map[string]action{
	"requeue": {verb: access.Operate, title: "Requeue", bulk: bulk.Requeue},
	"cancel":  {verb: access.Operate, title: "Cancel", bulk: bulk.Cancel},
	"delete":  {verb: access.Alter, title: "Delete", bulk: bulk.Delete, danger: true},
	"pause": {
		verb: access.Operate, title: "Pause",
		says: "Running tasks continue. No other task of the queue starts until the pause ends.",
	},
	"resume": {
		verb: access.Operate, title: "Resume",
		says: "Runners start tasks of the queue again at once.",
	},
	"pause-partition": {
		verb: access.Operate, title: "Pause",
		says: "Running tasks continue. No other task of the partition starts until the pause ends. Runners go on " +
			"with all other tasks of the queue.",
	},
	"resume-partition": {
		verb: access.Operate, title: "Resume",
		says: "Runners start tasks of the partition again at once, in turn with other partitions.",
	},
	"limit": {
		verb: access.Operate, title: "Limit",
		says: "The limit holds over all runners, and stands above the limit that programs declare. Running tasks " +
			"continue. Without a number there is no limit. The limit of each partition does not hold for tasks " +
			"without a partition.",
	},
	"clear-limit": {
		verb: access.Operate, title: "Clear limit",
		says: "The limit that programs declare holds again.",
	},
	"remove": {
		verb: access.Alter, title: "Remove", danger: true,
		says: "This deletes the queue with all its tasks, schedules and totals.",
	},
	"run": {
		verb: access.Operate, title: "Run now",
		says: "This enqueues one task of the schedule now. The ticks of the schedule do not change.",
	},
	"pause-schedule": {
		verb: access.Operate, title: "Pause",
		says: "The schedule does not tick until it is resumed. Its tasks stay.",
	},
	"resume-schedule": {
		verb: access.Operate, title: "Resume",
		says: "The schedule ticks again, beginning with its first tick after now.",
	},
	"unschedule": {
		verb: access.Alter, title: "Remove", danger: true,
		says: "This ends the ticks of the schedule. A live runner that declares the schedule creates it again.",
	},
}

// action is something that users can do.
type action struct {
	verb   access.Verb
	title  string
	says   string // the consequence of an action that is not on tasks
	danger bool
	bulk   bulk.Verb // the action on tasks, "" for other actions
}

// askData is the data of the dialog before an action.
type askData struct {
	Do, Title, Says, Button string
	Leave                   string // the button that closes the dialog
	Danger                  bool
	Refs                    []string // the refs of tasks that were chosen one by one
	Versions                []string // their versions that the dialog shows, "0" for any; none if it shows none
	Queue                   string
	Partition               string // of an action on a partition of the queue
	Samples                 []storage.Task
	More                    int64
	Back                    string
	Pause                   bool
	Limit                   *limitFields
	Typed                   string // what the user must type to confirm, "" for nothing
	CountDown               bool
	Most                    int64 // the limit of tasks for the action, 0 for none
	Seen                    int64 // the moment at which they were counted: see bulk.Request.Seen
	Command                 string
	Chosen                  *chosen // the choice of all tasks that match, nil for single tasks
	Count                   int64
	Download                string   // the address of the tasks of a deletion, "" for none
	NoDownload              string   // why there is none
	Canary                  bool     // the dialog offers to requeue one task first
	FromStart               bool     // the dialog offers to forget finished steps and checkpoints
	Many                    bool     // the action may be on several tasks
	None                    bool     // there is no task for the action
	Kept                    []string // tasks on which the action is not possible, and why
	Fresh                   string   // the id of the task that "run" enqueues; a form sent twice enqueues one
	Form                    string   // the id of a dialog on tasks; sent twice, it takes effect once
	Rates                   []int
	Rate                    int // the rate that the dialog proposes, 0 for no limit
}

// mostRefs limits the tasks that are chosen one by one.
const mostRefs = 200

// asked reads which action a request asks for, and refuses a user who may not do it.
func (s *server) asked(r *http.Request) (action, *askData, error) {
	if err := r.ParseForm(); err != nil {
		return action{}, nil, &statusError{http.StatusBadRequest, "The form cannot be read."}
	}
	do := r.FormValue("do")
	a, ok := actions[do]
	if !ok {
		return a, nil, storage.Invalid("action", do, "one of %v", slices.Sorted(maps.Keys(actions)))
	}
	v := s.view(r)
	if !v.May(string(a.verb)) {
		if s.cfg.ReadOnly {
			return a, nil, &statusError{http.StatusForbidden, "This dashboard is read-only."}
		}
		return a, nil, &statusError{http.StatusForbidden, "Your role does not permit this."}
	}
	d := &askData{
		Do: do, Says: a.says, Danger: a.danger, Button: a.title, Leave: "Back",
		Queue: r.FormValue("queue"), Refs: r.Form["ref"], Versions: r.Form["version"],
		Back: s.cameFrom(r),
	}
	if ofPartition[do] {
		d.Partition = r.FormValue("partition")
	}
	if back := r.FormValue("back"); back != "" {
		d.Back = s.back(back)
	}
	for _, text := range d.Refs {
		if _, err := parseRef(text); err != nil {
			return a, nil, err
		}
	}
	if len(d.Refs) > mostRefs {
		return a, nil, storage.Invalid("ref", len(d.Refs), "at most %d selected tasks", mostRefs)
	}
	if len(d.Versions) > 0 && len(d.Versions) != len(d.Refs) {
		return a, nil, storage.Invalid("version", len(d.Versions), "one of each ref, or none")
	}
	return a, d, nil
}

// parseRef parses a ref such as "queue/id". It refuses tasks in midge's own queues.
func parseRef(text string) (storage.Ref, error) {
	queue, id, _ := strings.Cut(text, "/")
	ref := storage.Ref{Queue: queue, ID: id}
	if storage.Reserved(queue) {
		return ref, storage.Invalid("ref", text, "a task of a queue that is not midge's own")
	}
	return ref, storage.CheckRef(ref)
}

// ask shows what an action would do, before the user confirms it.
func (s *server) ask(r *http.Request, v *view) error {
	a, d, err := s.asked(r)
	if err != nil {
		return err
	}
	v.Page, v.Title, v.Data = "ask", a.title, d
	switch {
	case a.bulk != "":
		err = s.askTasks(r, v, a, d)
	case ofSchedule[d.Do]:
		err = s.askSchedule(r, a, d)
	case ofPartition[d.Do]:
		err = s.askPartition(r.Context(), v, a, d)
	default:
		err = askQueue(v, a, d)
	}
	if err == nil && makesRoom[d.Do] && v.Sample.Info.Full != "" {
		d.Says += lateText
	}
	return err
}

// ofSchedule has the actions on a schedule.
var ofSchedule = map[string]bool{
	"run": true, "pause-schedule": true, "resume-schedule": true, "unschedule": true,
}

// commandOf returns the verb of the midge command for an action.
func commandOf(do string) string {
	if do == "delete" || do == "remove" || do == "unschedule" {
		return "rm"
	}
	return strings.TrimSuffix(do, "-schedule")
}

// typedAbove is the number of tasks above which a user must type a name or a count to confirm a removal.
const typedAbove = 1000

func askQueue(v *view, a action, d *askData) error {
	q := v.Sample.Queue(d.Queue)
	if q == nil {
		return noQueue(d.Queue)
	}
	d.Title = a.title + " the queue " + d.Queue + "?"
	d.Command = commandLine("midge", "queue", commandOf(d.Do), d.Queue)
	switch d.Do {
	case "pause":
		d.Pause = true
		d.Says += " " + waitsNow(q.Waiting) + "."
	case "resume":
		d.Says += " " + waitsNow(q.Waiting) + "."
	case "limit", "clear-limit":
		askLimit(v, d, q)
	case "remove":
		all := q.Size(storage.TaskStates()...)
		d.Says += " It has " + format.Count(all, "task") + " and " + format.Count(q.Cursors, "schedule") + "."
		if all > typedAbove {
			d.Typed = d.Queue
		}
	}
	return nil
}

func waitsNow(n int64) string {
	text := words.Waits(n)
	return strings.ToUpper(text[:1]) + text[1:] + " in it now"
}

func (s *server) askSchedule(r *http.Request, a action, d *askData) error {
	if len(d.Refs) != 1 {
		return storage.Invalid("ref", len(d.Refs), "the ref of one schedule")
	}
	ref, err := parseRef(d.Refs[0])
	if err != nil {
		return err
	}
	t, err := s.store.Task(r.Context(), ref)
	if err != nil {
		return err
	}
	if t.State != storage.Cursors {
		return storage.Invalid("ref", d.Refs[0], "the ref of a schedule")
	}
	c := survey.Schedule{Task: t}
	if as, err := t.Cursor.Decode(); d.Do == "unschedule" && err == nil && as.Kept {
		d.Says = "This ends the ticks of the schedule. No program declares it: only who set it can set it again."
	}
	d.Title = a.title + " the schedule " + c.Name() + " of " + t.Queue + "?"
	if d.Do == "run" {
		d.Title, d.Fresh = "Run the schedule "+c.Name()+" of "+t.Queue+" now?", storage.NewID()
	}
	d.Command = commandLine("midge", "schedule", commandOf(d.Do), c.Queue+"/"+c.Name())
	return nil
}

// order is an action of which each parameter was checked.
type order struct {
	entry ledger.Entry
	do    func(*ledger.Action) (notice, error) // carries out the action, and writes its outcome into the record
}

// order checks the parameters of an action before anything is recorded, so that the audit has no text that
// the action does not use.
func (s *server) order(r *http.Request, a action, d *askData) (order, error) {
	switch {
	case a.bulk != "":
		return s.orderTasks(r, a, d)
	case d.Do == "remove":
		return s.orderRemove(r, a, d)
	case ofSchedule[d.Do]:
		return s.orderSchedule(r, d)
	case ofPartition[d.Do]:
		return s.orderPartition(r, d)
	default:
		return s.orderQueue(r, d)
	}
}

// does carries out an action, and redirects to the page from which the user came.
func (s *server) does(w http.ResponseWriter, r *http.Request) {
	a, d, err := s.asked(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	form := r.PostFormValue("form")
	if form != "" {
		if err := storage.CheckName("form", form); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	if a.bulk != "" && !s.forms.take(form) {
		http.Redirect(w, r, s.sentAgain(r, d, form), http.StatusSeeOther)
		return
	}
	said, err := s.done(r, a, d)
	if err != nil && a.bulk != "" { // nothing was begun
		s.forms.free(form)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if said.Text != "" {
		d.Back = s.notices.with(d.Back, said)
	}
	http.Redirect(w, r, d.Back, http.StatusSeeOther)
}

// done checks, records and carries out an action.
func (s *server) done(r *http.Request, a action, d *askData) (notice, error) {
	o, err := s.order(r, a, d) //nolint:contextcheck // the removal of a queue outlives its request
	if err != nil {
		return notice{}, err
	}
	record, err := s.begin(r.Context(), o.entry)
	if err != nil {
		return notice{}, err
	}
	s.leave(d)
	defer s.sampler.Changed()
	return o.do(record)
}

// lasting returns a handler whose requests do not end with their viewers, but after actionTime. A viewer who
// leaves must not make the outcome of an action unknown. Actions that take longer have a job, which does not
// end with the request.
func lasting(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actionTime)
		defer cancel()
		h(w, r.WithContext(ctx))
	}
}

// actionTime limits an action on one thing.
const actionTime = 10 * time.Second

// keptLong returns how long a task is kept whose id makes a second sending of its form harmless: for as long
// as people send forms again, at least.
func keptLong(k storage.Keep) storage.Keep {
	if k == (storage.Keep{}) {
		k.For = 10 * time.Minute
	}
	return k
}

// sentAgain returns the page that answers a dialog which was sent before: the page of its action, or the page
// from which the user came while the action begins.
func (s *server) sentAgain(r *http.Request, d *askData, form string) string {
	if j := s.jobs.ofForm(form); j != nil {
		return s.view(r).URL("/actions/" + j.ID)
	}
	return s.notices.with(d.Back, notice{Text: "This form was sent before, and its action is in progress."})
}

// leave changes the page to which an action redirects, if the action removes that page.
func (s *server) leave(d *askData) {
	if d.Do != "remove" && (d.Do != "delete" || len(d.Refs) != 1) {
		return
	}
	for page, instead := range map[string]string{"/r/": "/tasks", "/queues/": "/queues"} {
		if strings.HasPrefix(d.Back, s.cfg.Base+page) {
			d.Back = s.cfg.Base + instead
		}
	}
}

// pauses are the times that the dialog offers for a pause. 0 means until the queue is resumed.
var pauses = map[string]time.Duration{
	"": 0, "15m": 15 * time.Minute, "1h": time.Hour, "4h": 4 * time.Hour, "24h": 24 * time.Hour,
}

// askedQueue returns the data of the dialog before an action on a queue. The queue must be in the sample, so
// it is not a queue of midge itself.
func (s *server) askedQueue(r *http.Request, d *askData) (*askData, error) {
	if err := storage.CheckName("queue", d.Queue); err != nil {
		return nil, err
	}
	now, err := s.sampler.Sample(r.Context())
	if err != nil {
		return nil, err
	}
	v := s.view(r)
	v.Sample = now
	ask := &askData{Do: d.Do, Queue: d.Queue}
	return ask, askQueue(v, actions[d.Do], ask)
}

// orderQueue returns the order to pause, to resume or to limit a queue.
func (s *server) orderQueue(r *http.Request, d *askData) (order, error) {
	if _, err := s.askedQueue(r, d); err != nil {
		return order{}, err
	}
	e := s.entry(r, d.Do)
	e.Queue = d.Queue
	do, text := s.configured(d.Queue, "", storage.Pause{}), "The queue "+d.Queue+" is resumed."
	switch d.Do {
	case "pause":
		pause, note, err := askedPause(r)
		if err != nil {
			return order{}, err
		}
		e.Note = note
		do, text = s.configured(d.Queue, "", pause), "The queue "+d.Queue+" is paused."
	case "limit":
		limit, err := askedLimit(r)
		if err != nil {
			return order{}, err
		}
		e.Note = "to " + limit.String()
		text = "The limit of the queue " + d.Queue + " is " + words.Limit(limit) + "."
		do = func(ctx context.Context) error { return s.session.SetLimit(ctx, d.Queue, limit) }
	case "clear-limit":
		text = "The limit of the queue " + d.Queue + " is cleared."
		do = func(ctx context.Context) error { return s.session.ClearLimit(ctx, d.Queue) }
	}
	return s.ordered(r, e, text, do), nil
}

// orderRemove returns the order to remove a queue. The removal goes on if the request ends before it does.
func (s *server) orderRemove(r *http.Request, a action, d *askData) (order, error) {
	ask, err := s.askedQueue(r, d)
	if err == nil && ask.Typed != "" && r.PostFormValue("typed") != ask.Typed {
		err = storage.Invalid("confirmation", r.PostFormValue("typed"), "the name of the queue")
	}
	if err != nil {
		return order{}, err
	}
	e := s.entry(r, d.Do)
	e.Queue = d.Queue
	return order{e, func(record *ledger.Action) (notice, error) {
		j := &job{
			Title: a.title + " the queue " + d.Queue, Back: d.Back, Who: userOf(r.Context()).Name, record: record,
			said: "The queue " + d.Queue + " is removed.", done: "removed", result: bulk.Result{Matched: 1},
		}
		return s.await(r, d, j, func(ctx context.Context) (bulk.Result, error) {
			if _, err := s.session.RemoveQueue(ctx, d.Queue); err != nil {
				return bulk.Result{Matched: 1}, err
			}
			return bulk.Result{Matched: 1, Done: 1}, nil
		})
	}}, nil
}

// orderSchedule returns the order to run, pause, resume or remove a schedule.
func (s *server) orderSchedule(r *http.Request, d *askData) (order, error) {
	if err := s.askSchedule(r, actions[d.Do], d); err != nil {
		return order{}, err
	}
	ref, err := parseRef(d.Refs[0])
	fresh := cmp.Or(r.PostFormValue("fresh"), d.Fresh)
	if err == nil && d.Do == "run" {
		err = storage.CheckName("task id", fresh)
	}
	e := s.entry(r, d.Do)
	e.IDs = d.Refs
	return order{e, func(record *ledger.Action) (said notice, err error) {
		defer func() { s.writtenOne(r.Context(), record, err) }()
		switch d.Do {
		case "unschedule":
			return notice{Text: "The schedule is removed."}, s.session.DeleteTask(r.Context(), ref)
		case "pause-schedule":
			return notice{Text: "The schedule is paused."}, schedule.Pause(r.Context(), s.session, ref, true)
		case "resume-schedule":
			return notice{Text: "The schedule is resumed."}, schedule.Pause(r.Context(), s.session, ref, false)
		}
		made, err := s.runSchedule(r.Context(), ref, fresh)
		return notice{Text: "The schedule has enqueued the task " + made.String() + "."}, err
	}}, err
}

// runSchedule enqueues a task of a schedule under an id. However often a form with this id is sent, it
// enqueues one task.
func (s *server) runSchedule(ctx context.Context, schedule storage.Ref, id string) (storage.Ref, error) {
	in, err := s.session.ScheduleInsert(ctx, schedule)
	if err != nil {
		return storage.Ref{}, err
	}
	in.Ref.ID, in.Keep = id, keptLong(in.Keep)
	applied, err := s.session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{in}})
	if err != nil {
		return storage.Ref{}, err
	}
	return applied.Inserted[0].Ref, nil
}
