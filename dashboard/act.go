package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/storage"
)

// acts are what can be done, by name.
var acts = map[string]act{
	"requeue": {
		verb: access.Operate, title: "Requeue", done: "requeued",
		says: "What has ended starts anew with its failures reset, and what is scheduled or retried is due at once.",
		one:  func(ctx context.Context, s *storage.Session, ref storage.Ref) error { return s.Requeue(ctx, ref) },
	},
	"cancel": {
		verb: access.Operate, title: "Cancel", done: "cancelled",
		says: "What runs is asked to stop, and ends when its job returns. All else is cancelled at once.",
		one: func(ctx context.Context, s *storage.Session, ref storage.Ref) error {
			return s.ChangeTask(ctx, ref, func(storage.Task) (storage.Change, error) {
				return storage.Change{Cancel: true}, nil
			})
		},
	},
	"delete": {
		verb: access.Alter, title: "Delete", done: "deleted", danger: true,
		says: "The tasks are gone with their history and results. Nothing brings them back.",
		one:  func(ctx context.Context, s *storage.Session, ref storage.Ref) error { return s.DeleteTask(ctx, ref) },
	},
	"pause":      {verb: access.Operate, title: "Pause", says: "What runs goes on. No task of the queue is started until it is resumed."},
	"resume":     {verb: access.Operate, title: "Resume", says: "Runners take tasks of the queue again, at once."},
	"remove":     {verb: access.Alter, title: "Remove", danger: true, says: "The queue is gone with all its tasks, schedules and totals."},
	"run":        {verb: access.Operate, title: "Run now", says: "One task of the schedule is enqueued now, beside its ticks."},
	"unschedule": {verb: access.Alter, title: "Remove", danger: true, says: "It ticks no more. A live runner that declares it makes it anew."},
}

// act is one thing that can be done, to tasks where one is set.
type act struct {
	verb        access.Verb
	title, done string
	says        string
	danger      bool
	one         func(context.Context, *storage.Session, storage.Ref) error
}

// askData is what a dialog asks.
type askData struct {
	Do, Title, Says, Button string
	Danger                  bool
	Refs                    []string // of the tasks chosen one by one
	Queue                   string
	Samples                 []storage.Task
	More                    int64
	Back                    string
	Pause                   bool
	Typed                   string // what has to be typed, "" for nothing
	CountDown               bool
	Command                 string
	Chosen                  *chosen // with all that match
	Count                   int64
}

// mostRefs bounds the tasks that are chosen one by one.
const mostRefs = 200

// samples is how many tasks a dialog shows.
const samples = 5

// asked reads what a request wants to do, and refuses who may not.
func (s *server) asked(r *http.Request) (act, *askData, error) {
	if err := r.ParseForm(); err != nil {
		return act{}, nil, &statusError{http.StatusBadRequest, "The form cannot be read."}
	}
	do := r.FormValue("do")
	a, ok := acts[do]
	if !ok {
		return a, nil, storage.Invalid("do", do, "requeue, cancel, delete, pause, resume, remove, run or unschedule")
	}
	v := s.view(r)
	if !v.May(string(a.verb)) {
		if s.cfg.ReadOnly {
			return a, nil, &statusError{http.StatusForbidden, "This dashboard is read-only."}
		}
		return a, nil, &statusError{http.StatusForbidden, "Your role does not permit this."}
	}
	d := &askData{
		Do: do, Says: a.says, Danger: a.danger, Button: a.title, Queue: r.FormValue("queue"), Refs: r.Form["ref"],
		Back: s.back(r.FormValue("back")),
	}
	if from, err := url.Parse(r.Referer()); err == nil && r.FormValue("back") == "" && from.Host == r.Host {
		d.Back = s.back(from.RequestURI())
	}
	for _, text := range d.Refs {
		if _, err := parseRef(text); err != nil {
			return a, nil, err
		}
	}
	if len(d.Refs) > mostRefs {
		return a, nil, storage.Invalid("ref", len(d.Refs), "at most %d tasks one by one", mostRefs)
	}
	return a, d, nil
}

// parseRef reads "queue/id".
func parseRef(text string) (storage.Ref, error) {
	queue, id, _ := strings.Cut(text, "/")
	ref := storage.Ref{Queue: queue, ID: id}
	return ref, storage.CheckRef(ref)
}

// ask shows what an act would do, before it is done.
func (s *server) ask(r *http.Request, v *view) error {
	a, d, err := s.asked(r)
	if err != nil {
		return err
	}
	v.Page, v.Title, v.Data = "ask", a.title, d
	switch {
	case a.one != nil:
		return s.askTasks(r, v, a, d)
	case d.Do == "run" || d.Do == "unschedule":
		return s.askSchedule(r, a, d)
	default:
		return askQueue(v, a, d)
	}
}

// askTasks asks about tasks chosen one by one.
func (s *server) askTasks(r *http.Request, v *view, a act, d *askData) error {
	if r.FormValue("all") != "" {
		return s.askAll(r, v, a, d)
	}
	if len(d.Refs) == 0 {
		return &statusError{http.StatusBadRequest, "Choose tasks first, or all that match."}
	}
	for _, text := range d.Refs[:min(samples, len(d.Refs))] {
		ref, err := parseRef(text)
		if err != nil {
			return err
		}
		t, err := s.store.Task(r.Context(), ref)
		if err != nil && len(d.Refs) == 1 {
			return err
		}
		if err == nil {
			d.Samples = append(d.Samples, t)
		}
	}
	d.Count = int64(len(d.Refs))
	d.More = d.Count - int64(len(d.Samples))
	d.Title = a.title + " " + count(d.Count, "task") + "?"
	d.CountDown = a.danger && d.Count > 1
	d.Command = "midge task " + commandOf(d.Do) + " " + strings.Join(quotedAll(d.Refs), " ")
	return nil
}

// commandOf is the verb of the command for an act.
func commandOf(do string) string {
	if do == "delete" || do == "remove" || do == "unschedule" {
		return "rm"
	}
	return do
}

func quotedAll(texts []string) []string {
	quoted := make([]string, 0, len(texts))
	for _, t := range texts[:min(samples, len(texts))] {
		quoted = append(quoted, shellQuoted(t))
	}
	if len(texts) > samples {
		quoted = append(quoted, "…")
	}
	return quoted
}

// typedAbove is from how many tasks on the name of what is removed has to be typed.
const typedAbove = 1000

func askQueue(v *view, a act, d *askData) error {
	q := v.Sample.byName[d.Queue]
	if q == nil {
		return &statusError{http.StatusNotFound, "There is no queue " + d.Queue + "."}
	}
	d.Title = a.title + " the queue " + d.Queue + "?"
	d.Command = "midge queue " + commandOf(d.Do) + " " + d.Queue
	switch d.Do {
	case "pause":
		d.Pause = true
		d.Says += " " + waitsNow(q.Waiting) + "."
	case "resume":
		d.Says += " " + waitsNow(q.Waiting) + "."
	case "remove":
		var all int64
		for _, l := range looks {
			all += q.Size(l.State)
		}
		d.Says += " It holds " + count(all, "task") + " and " + count(q.Cursors, "schedule") + "."
		if all > typedAbove {
			d.Typed = d.Queue
		}
	}
	return nil
}

func waitsNow(n int64) string {
	text := waits(n)
	return strings.ToUpper(text[:1]) + text[1:] + " in it now"
}

func (s *server) askSchedule(r *http.Request, a act, d *askData) error {
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
	c := scheduleNow{Task: t}
	d.Title = a.title + ": the schedule " + c.Name() + " of " + t.Queue + "?"
	d.Command = "midge schedule " + commandOf(d.Do) + " " + shellQuoted(c.Queue+"/"+c.Name())
	return nil
}

// does carries an act out, and leads back to where it came from.
func (s *server) does(w http.ResponseWriter, r *http.Request) {
	a, d, err := s.asked(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var said notice
	switch {
	case a.one != nil && r.FormValue("all") != "":
		said, err = s.doAll(r, a, d)
	case a.one != nil:
		said, err = s.doTasks(r, a, d)
	case d.Do == "run" || d.Do == "unschedule":
		said, err = s.doSchedule(r, d)
	default:
		said, err = s.doQueue(r, d)
	}
	s.sampler.changed()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if d.Do == "remove" || d.Do == "delete" && len(d.Refs) == 1 {
		for _, page := range []string{"/r/", "/queues/"} {
			if strings.HasPrefix(d.Back, s.cfg.Base+page) { // that page is gone
				d.Back = s.cfg.Base + map[string]string{"/r/": "/tasks", "/queues/": "/queues"}[page]
			}
		}
	}
	http.Redirect(w, r, s.said.with(d.Back, said), http.StatusSeeOther)
}

// doTasks does an act to tasks one by one.
func (s *server) doTasks(r *http.Request, a act, d *askData) (notice, error) {
	done, changed, gone := 0, 0, 0
	var first error
	for _, text := range d.Refs {
		ref, err := parseRef(text)
		if err != nil {
			return notice{}, err
		}
		switch err := a.one(r.Context(), s.session, ref); {
		case err == nil:
			done++
		case errors.Is(err, storage.ErrNotFound):
			gone++
			first = err
		case errors.As(err, new(*storage.DependencyError)):
			changed++
			first = err
		default:
			return notice{}, err
		}
	}
	if len(d.Refs) == 0 {
		return notice{}, &statusError{http.StatusBadRequest, "No task was chosen."}
	}
	if len(d.Refs) == 1 && first != nil {
		return notice{"Nothing was " + a.done + ": the task is gone, or has changed meanwhile.", true}, nil
	}
	text := count(done, "task") + " " + a.done + "."
	if changed+gone > 0 {
		text = exact(int64(len(d.Refs))) + " chosen, " + exact(int64(done)) + " " + a.done + ", " +
			exact(int64(changed)) + " changed meanwhile, " + exact(int64(gone)) + " gone."
	}
	return notice{Text: text, Bad: changed+gone > 0}, nil
}

// pauses are for how long a queue can be paused from its dialog.
var pauses = []time.Duration{0, 15 * time.Minute, time.Hour, 4 * time.Hour, 24 * time.Hour}

func (s *server) doQueue(r *http.Request, d *askData) (notice, error) {
	if err := storage.CheckName("queue", d.Queue); err != nil {
		return notice{}, err
	}
	switch d.Do {
	case "pause":
		var length time.Duration
		if text := r.PostFormValue("for"); text != "" {
			var err error
			if length, err = time.ParseDuration(text); err != nil || !slices.Contains(pauses, length) {
				return notice{}, storage.Invalid("for", text, "one of the times that the dialog offers")
			}
		}
		err := s.session.Configure(r.Context(), d.Queue, storage.Settings{Pause: &storage.Pause{On: true, For: length}})
		return notice{Text: d.Queue + " is paused."}, err
	case "resume":
		err := s.session.Configure(r.Context(), d.Queue, storage.Settings{Pause: &storage.Pause{}})
		return notice{Text: d.Queue + " is resumed."}, err
	}
	now, err := s.sampler.sample(r.Context())
	if err != nil {
		return notice{}, err
	}
	ask := &askData{Do: d.Do, Queue: d.Queue}
	v := s.view(r)
	v.Sample = now
	if err := askQueue(v, acts[d.Do], ask); err != nil {
		return notice{}, err
	}
	if ask.Typed != "" && r.PostFormValue("typed") != ask.Typed {
		return notice{}, storage.Invalid("typed", r.PostFormValue("typed"), "the name of the queue, as a confirmation")
	}
	return notice{Text: d.Queue + " is removed."}, s.session.RemoveQueue(r.Context(), d.Queue)
}

func (s *server) doSchedule(r *http.Request, d *askData) (notice, error) {
	if err := s.askSchedule(r, acts[d.Do], d); err != nil {
		return notice{}, err
	}
	ref, err := parseRef(d.Refs[0])
	if err != nil {
		return notice{}, err
	}
	if d.Do == "unschedule" {
		return notice{Text: "The schedule is removed."}, s.session.DeleteTask(r.Context(), ref)
	}
	made, err := s.session.RunSchedule(r.Context(), ref)
	return notice{Text: "The schedule runs as " + made.String() + "."}, err
}
