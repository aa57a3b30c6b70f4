package dashboard

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// editData is what the form for parameters shows.
type editData struct {
	storage.Task

	Text    string
	Problem string
	Ended   bool
	Back    string
}

const someHidden = "Fields of these parameters are hidden, so they cannot be edited here."

// mayEdit reads the task that a request wants to edit, and refuses who may not.
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
	whole, err := payload.JSON(t.Encoding, t.Payload)
	if err != nil {
		return nil, nil, err
	}
	if !bytes.Equal(whole, s.cfg.Redact.JSON(access.PartParams, bytes.Clone(whole))) {
		return nil, nil, &statusError{http.StatusForbidden, someHidden}
	}
	if edit := (storage.Change{}); !edit.Permitted(t.State) && !t.State.Ended() {
		return nil, nil, &statusError{http.StatusConflict, "It is " + string(t.State) + ", and cannot be edited."}
	}
	d := &editData{Task: t, Ended: t.State.Ended(), Back: v.TaskURL(ref)}
	return d, whole, nil
}

func (s *server) editForm(r *http.Request, v *view) error {
	d, text, err := s.mayEdit(r, v)
	if err != nil {
		return err
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, text, "", "  ") == nil {
		text = pretty.Bytes()
	}
	d.Text = string(text)
	v.Page, v.Nav, v.Kind, v.Title, v.Data = "edit", "Tasks", "Edit the parameters of", d.ID, d
	v.Command = commandLine("midge", "task", "edit", d.Ref.String())
	return nil
}

// edit writes edited parameters, and requeues the task where that is asked.
func (s *server) edit(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	d, _, err := s.mayEdit(r, v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	fail := func(err error) {
		status, text := status(err)
		v.Page, v.Nav, v.Kind, v.Title, v.Data = "edit", "Tasks", "Edit the parameters of", d.ID, d
		v.Sample = s.sampler.Last()
		d.Problem, d.Text = text, r.PostFormValue("params")
		s.render(w, r, status, v)
	}
	version, err := strconv.ParseInt(r.PostFormValue("version"), 10, 64)
	if err != nil {
		fail(storage.Invalid("version", r.PostFormValue("version"), "that of the task as it was shown"))
		return
	}
	encoded, err := payload.Encode(d.Encoding, []byte(r.PostFormValue("params")), d.Payload)
	if err != nil {
		fail(err)
		return
	}
	requeue := r.PostFormValue("requeue") != "" && d.Ended
	record, err := s.audit.Begin(r.Context(), s.entry(r, &askData{
		Do: "edit", Queue: d.Queue, Refs: []string{d.Ref.String()},
	}))
	if err != nil {
		fail(err)
		return
	}
	err = s.session.ChangeTask(r.Context(), d.Ref, func(t storage.Task) (storage.Change, error) {
		ch := storage.Change{Encoding: t.Encoding, Payload: encoded, Requeue: requeue}
		if t.Version != version || !ch.Permitted(t.State) {
			return ch, &statusError{http.StatusConflict, "The task has changed since it was shown. Look at it anew."}
		}
		return ch, nil
	})
	count := 1
	if err != nil {
		count = 0
	}
	s.written(r.Context(), record, count, err)
	if err != nil {
		fail(err)
		return
	}
	s.sampler.Changed()
	text := "The parameters are saved."
	if requeue {
		text = "The parameters are saved, and the task is requeued."
	}
	http.Redirect(w, r, s.notices.with(d.Back, notice{Text: text}), http.StatusSeeOther)
}
