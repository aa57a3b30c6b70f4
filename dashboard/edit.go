package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// editData is the data of the form that edits parameters.
type editData struct {
	storage.Task

	Version string // of the task that the form first showed; later changes are not overwritten
	Text    string
	Present string // the current parameters, if somebody has changed the task since
	Problem string
	Ended   bool
	Back    string
}

const someHidden = "Some fields of these parameters are hidden, so they cannot be edited here."

// errSaved ends an edit whose form was sent before: the task has exactly these parameters.
var errSaved = errors.New("dashboard: the parameters are saved already")

var errChanged = &statusError{
	http.StatusConflict, "The task has changed since the form was opened, so nothing was saved. Open it again.",
}

// mayEdit reads the task that a request wants to edit, and returns the form and the parameters as JSON. It
// refuses a user who may not edit.
func (s *server) mayEdit(r *http.Request, v *view) (*editData, []byte, error) {
	if !v.May("alter") || !v.May("payloads") {
		return nil, nil, &statusError{http.StatusForbidden, "You may not edit tasks here."}
	}
	ref, err := parseRef(r.FormValue("ref"))
	if err != nil {
		return nil, nil, err
	}
	t, err := s.store.Task(r.Context(), ref)
	if err != nil {
		return nil, nil, err
	}
	whole, err := payload.Params(t).JSON()
	if err != nil {
		return nil, nil, err
	}
	if !bytes.Equal(whole, s.cfg.Redact.JSON(access.PartParams, bytes.Clone(whole))) {
		return nil, nil, &statusError{http.StatusForbidden, someHidden}
	}
	if edit := (storage.Change{}); !edit.Permitted(t.State) && !t.State.Ended() {
		is := filter.StateWord(t.State)
		return nil, nil, &statusError{http.StatusConflict, "A " + is + " task cannot be edited."}
	}
	d := &editData{
		Task: t, Version: strconv.FormatInt(t.Version, 10), Ended: t.State.Ended(), Back: v.TaskURL(ref),
	}
	v.Page, v.Nav, v.Kind, v.Title, v.Data = "edit", "Tasks", "Edit the parameters of", d.ID, d
	return d, whole, nil
}

// indented returns JSON with a line for each value. It returns the JSON unchanged if the form could be too
// long to be saved.
func (s *server) indented(text []byte) string {
	var pretty bytes.Buffer
	if indentedSize(text) > s.formOf(s.sampler.Last())-maxForm || json.Indent(&pretty, text, "", "  ") != nil {
		return string(text)
	}
	return pretty.String()
}

// indentedSize returns the most bytes that a form sends for an indented JSON text. The text is measured and
// not indented, because a megabyte of deep lists would have a hundred megabytes of spaces.
func indentedSize(text []byte) int64 {
	const escaped, lineEnd, space = int64(len("%22")), int64(len("%0D%0A")), int64(len("+"))
	size, depth := escaped*int64(len(text)), int64(0)
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == ':':
			size += space
		case c == '[', c == '{':
			depth++
			size += lineEnd + 2*depth*space
		case c == ',':
			size += lineEnd + 2*depth*space
		case c == ']', c == '}':
			depth--
			size += lineEnd + 2*depth*space
		}
	}
	return size
}

func (s *server) editForm(r *http.Request, v *view) error {
	d, params, err := s.mayEdit(r, v)
	if err != nil {
		return err
	}
	d.Text = s.indented(params)
	v.Command = commandLine("midge", "task", "edit", d.Ref.String())
	return nil
}

// edit saves edited parameters, and requeues the task if the user asks for that.
func (s *server) edit(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	d, _, err := s.mayEdit(r, v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	d.Version, d.Text = r.PostFormValue("version"), r.PostFormValue("params")
	fail := func(err error) { s.editAgain(w, r, v, d, err) }
	version, err := strconv.ParseInt(r.PostFormValue("version"), 10, 64)
	if err != nil {
		fail(storage.Invalid("version", d.Version, "the version of the task that the form showed"))
		return
	}
	encoded, err := payload.Edit(&d.Task, []byte(d.Text))
	if err != nil {
		fail(err)
		return
	}
	requeue := r.PostFormValue("requeue") != ""
	unusual := s.unusual(r, &d.Task, payload.Part{Encoding: d.Encoding, Data: encoded}, payload.Params(d.Task))
	e := s.entry(r, "edit")
	e.IDs = []string{d.Ref.String()}
	switch {
	case requeue && d.Ended:
		e.Note = "and requeue"
	case requeue:
		e.Note = "and run now"
	}
	record, err := s.audit.Begin(r.Context(), e)
	if err != nil {
		fail(err)
		return
	}
	err = s.session.ChangeTask(r.Context(), d.Ref, func(t storage.Task) (storage.Change, error) {
		return editOf(&t, version, encoded, requeue)
	})
	if errors.Is(err, errSaved) {
		s.written(r.Context(), record, ledger.Ending{})
		err = nil
	} else {
		s.writtenOne(r.Context(), record, err)
	}
	if err != nil {
		fail(err)
		return
	}
	s.sampler.Changed()
	text := "The parameters are saved"
	switch {
	case requeue && d.Ended:
		text += ", and the task is requeued"
	case requeue:
		text += ", and the task is due now"
	}
	http.Redirect(w, r, s.notices.with(d.Back, notice{Text: text + "." + unusual}), http.StatusSeeOther)
}

// editOf returns the change of a task to new parameters, at the version that the form showed.
func editOf(t *storage.Task, version int64, encoded []byte, requeue bool) (ch storage.Change, err error) {
	if requeue {
		ch = t.Requeued()
	}
	ch.Encoding, ch.Payload = t.Encoding, encoded
	runs := t.State == storage.Waiting || t.State == storage.Pending
	switch done := bytes.Equal(t.Payload, encoded) && (!requeue || runs); {
	case t.Version != version && done:
		return ch, errSaved
	case t.Version != version || !ch.Permitted(t.State):
		return ch, errChanged
	}
	return ch, nil
}

// unusual warns of fields of new parameters that no task of the kind has, "" for none. before are the
// parameters that the new ones replace.
func (s *server) unusual(
	r *http.Request, t *storage.Task, params payload.Part, before ...payload.Part,
) string {
	text, err := params.JSON()
	if err != nil {
		return ""
	}
	// The warning is not worth an error: the storage may have failed a moment before the action.
	fields, _ := bulk.Unusual(r.Context(), s.store, t.Queue, t.Kind, text, before...)
	if len(fields) == 0 {
		return ""
	}
	return " No other task of the kind " + t.Kind + " in " + t.Queue + " has the field " +
		strings.Join(fields, ", or ") + "."
}

// editAgain shows the form as it was sent, and why it was not saved. If somebody has changed the task, it
// also shows the current parameters.
func (s *server) editAgain(w http.ResponseWriter, r *http.Request, v *view, d *editData, err error) {
	code, text := status(err)
	d.Problem = text
	if errors.Is(err, errChanged) {
		if _, present, err := s.mayEdit(r, v); err == nil {
			d.Present = s.indented(present)
		}
	}
	v.Sample, v.Data = s.sampler.Last(), d
	s.render(w, r, code, v)
}
