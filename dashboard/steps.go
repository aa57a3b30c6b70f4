package dashboard

import (
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// partSteps is the last word in the address from which the steps of a task are downloaded.
const partSteps = "steps"

// stepsData is the data of the steps of a task.
type stepsData struct {
	Steps   []stepView
	Problem string // why they cannot be read
	URL     string // of all steps, for a download; "" for a viewer who may not see results
}

// stepView is a finished step, or a sleep.
type stepView struct {
	Name, Took string
	Look       storage.State // whose glyph and colour it has
	Ended      time.Time
	Until      *time.Time // of a sleep
	Sleeps     bool       // the sleep has not ended
	Tree       *node
	Text       string // if the result is not shown as a tree
	Problem    string
}

// steps returns the steps of a task, nil if it has none. Results are only for viewers who may see payloads.
func (v *view) steps(t storage.Task) *stepsData {
	shown, err := payload.Steps(t, v.server.cfg.Redact.StepJSON)
	switch {
	case err != nil:
		return &stepsData{Problem: sentence(err.Error())}
	case len(shown) == 0:
		return nil
	}
	d, left := &stepsData{Steps: make([]stepView, len(shown))}, mostTree
	if v.May("payloads") {
		d.URL = v.TaskURL(t.Ref) + "/" + partSteps
	}
	for i, s := range shown {
		step := stepView{Name: s.Name, Ended: s.Ended, Until: s.Until, Look: storage.Completed}
		if s.Until != nil {
			step.Look, step.Sleeps = storage.Waiting, s.Until.After(v.Now)
		} else {
			step.Took = format.Duration(time.Duration(s.Took * float64(time.Second)))
		}
		switch {
		case d.URL == "":
		case s.Problem != "":
			step.Problem = s.Problem
		case len(s.Result) > left:
			step.Problem = "The result is too long to be shown here. Download the steps instead."
		case len(s.Result) > 0:
			left -= len(s.Result)
			if step.Tree = tree(s.Result); step.Tree == nil {
				step.Text = string(s.Result)
			}
		}
		d.Steps[i] = step
	}
	return d
}
