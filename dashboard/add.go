package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// addData is the data of the form for a new task.
type addData struct {
	Queue, Kind, Params, Priority, In, At, ID, Unique string

	// Zone names the time zone of At. It is that of the page, even if the viewer has chosen another one since.
	Zone string
	// Fresh is the id of the task if the user gives none, so that a form that is sent twice enqueues one task.
	Fresh    string
	Kinds    []string          // suggestions
	Problems map[string]string // by field; the problem of the whole form is under ""
	Back     string
}

// mostKinds limits the kinds that the form suggests.
const mostKinds = 200

// mayAdd prepares the form of a queue, and refuses a user who may not enqueue.
func (s *server) mayAdd(r *http.Request, v *view) (*addData, error) {
	name := r.PathValue("queue")
	switch {
	case !v.May(string(access.Enqueue)) && s.cfg.ReadOnly:
		return nil, &statusError{http.StatusForbidden, "This dashboard is read-only."}
	case !v.May(string(access.Enqueue)):
		return nil, &statusError{http.StatusForbidden, "Your role does not permit you to enqueue tasks."}
	}
	if err := storage.CheckName("queue name", name); err != nil {
		return nil, err
	}
	if v.Sample.Queue(name) == nil {
		return nil, noQueue(name)
	}
	v.Page, v.Nav, v.Kind, v.Title = "add", "Queues", "Enqueue into the queue", name
	kinds := v.Sample.KindsFor(name)
	d := &addData{
		Queue: name, Kind: strings.TrimSpace(r.FormValue("kind")), Params: "{}", Fresh: storage.NewID(),
		Zone:  v.Zone().String(),
		Kinds: kinds[:min(mostKinds, len(kinds))], Problems: map[string]string{}, Back: v.QueueURL(name),
	}
	v.Data = d
	return d, nil
}

func (s *server) addForm(r *http.Request, v *view) error {
	d, err := s.mayAdd(r, v)
	if err != nil {
		return err
	}
	if d.Kind != "" {
		v.Command = commandLine("midge", "task", "add", "--queue", d.Queue, "--kind="+d.Kind)
	}
	return nil
}

// read reads the form, and notes the problem of each field. It returns the task to insert if there are no
// problems. It does not read the storage.
func (d *addData) read(r *http.Request, limits storage.Limits) storage.Insert {
	field := func(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }
	d.Params, d.Priority, d.In, d.At = r.PostFormValue("params"), field("priority"), field("in"), field("at")
	d.ID, d.Unique, d.Fresh = field("id"), field("unique"), cmp.Or(field("fresh"), d.Fresh)
	d.Zone = cmp.Or(field("zone"), d.Zone)
	wrong := func(name string, err error) {
		if err != nil && d.Problems[name] == "" {
			_, d.Problems[name] = status(err)
		}
	}
	add := bulk.Add{
		Ref: storage.Ref{Queue: d.Queue, ID: cmp.Or(d.ID, d.Fresh)}, Kind: d.Kind, Params: []byte(d.Params),
		Encoding: "json", Unique: d.Unique, Retries: bulk.DefaultRetries, CrashLimit: bulk.DefaultCrashLimit,
	}
	var err error
	if d.In != "" {
		add.In, err = filter.ParseDuration(d.In)
		wrong("in", err)
	}
	if d.At != "" {
		zone := zoneNamed(d.Zone)
		if zone == nil {
			wrong("at", storage.Invalid("time zone", d.Zone, "a zone that is known here"))
			zone = time.UTC
		}
		add.At, err = filter.ParseMoment(d.At, zone)
		wrong("at", err)
	}
	if d.Priority != "" {
		if add.Priority, err = strconv.Atoi(d.Priority); err != nil {
			wrong("priority", storage.Invalid("priority", d.Priority, "a whole number"))
		}
	}
	wrong("kind", storage.CheckName("kind", d.Kind))
	wrong("id", storage.CheckName("task id", add.ID))
	wrong("params", payload.CheckJSON(format.FirstLine(d.Params), add.Params))
	if len(d.Problems) > 0 {
		return storage.Insert{}
	}
	in, err := add.Insert()
	if err == nil {
		err = storage.CheckInsert(limits, &in)
	}
	wrong(fieldOf(err), err)
	return in
}

// fieldOf returns the field of the form to which an error belongs, "" for the whole form.
func fieldOf(err error) string {
	var invalid *storage.InvalidError
	if !errors.As(err, &invalid) {
		return ""
	}
	for _, of := range []struct{ begin, field string }{
		{"param", "params"},
		{"payload", "params"},
		{"priority", "priority"},
		{"Insert.Delay", "in"},
		{"Insert.At", "at"},
		{"insert ", "at"},
		{"task id", "id"},
		{"kind", "kind"},
		{"unique", "unique"},
	} {
		if strings.HasPrefix(strings.ToLower(invalid.What), strings.ToLower(of.begin)) {
			return of.field
		}
	}
	return ""
}

// add enqueues a task.
func (s *server) add(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	var err error
	if v.Sample, err = s.sampler.Sample(r.Context()); err != nil {
		s.fail(w, r, err)
		return
	}
	d, err := s.mayAdd(r, v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	in := d.read(r, v.Sample.Info.Limits)
	if len(d.Problems) > 0 {
		s.render(w, r, http.StatusBadRequest, v)
		return
	}
	of := storage.Task{Ref: in.Ref, Kind: in.Kind}
	unusual := s.unusual(r, &of, payload.Part{Encoding: in.Encoding, Data: in.Payload})
	placed, err := s.enqueue(r, in)
	if err != nil {
		code, text := status(err)
		if d.Problems[""] = text; code == http.StatusServiceUnavailable {
			d.Problems[""] += " If you send the form again, it does not enqueue a second task."
		}
		s.render(w, r, code, v)
		return
	}
	s.sampler.Changed()
	said := notice{Text: "The task is enqueued."}
	switch {
	case placed.Existing:
		is := filter.StateWord(placed.State)
		said = notice{"Nothing was enqueued: this task exists already, and is " + is + ".", true}
	case !v.Sample.Knows(d.Queue, d.Kind):
		said.Text += " No runner on " + d.Queue + " handles " + d.Kind +
			", so the task waits for a runner that does."
	}
	if !placed.Existing {
		said.Text += unusual
	}
	to := s.notices.with(v.TaskURL(placed.Ref), said)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// enqueue enqueues a task, and records this in the audit.
func (s *server) enqueue(r *http.Request, in storage.Insert) (placed storage.Placed, err error) {
	e := s.entry(r, "enqueue")
	e.IDs, e.Note = []string{in.Ref.String()}, "of kind "+in.Kind
	record, err := s.audit.Begin(r.Context(), e)
	if err != nil {
		return placed, err
	}
	in.Keep = keptLong(in.Keep)
	applied, err := s.session.ApplyOne(r.Context(), storage.Tx{Inserts: []storage.Insert{in}})
	var taken *storage.DependencyError
	if errors.As(err, &taken) && len(taken.Colliding) > 0 {
		err = &statusError{http.StatusConflict, "Another task of the queue has the id " + in.Ref.ID + "."}
	}
	if err != nil {
		s.writtenOne(r.Context(), record, err)
		return placed, err
	}
	count := 1
	if placed = applied.Inserted[0]; placed.Existing {
		count = 0
	}
	s.written(r.Context(), record, ledger.Ending{Count: count})
	return placed, nil
}
