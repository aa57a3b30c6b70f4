package payload

import (
	"encoding/json"
	"time"

	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// Step is a finished step of a task, or a sleep that has begun, as JSON shows it.
type Step struct {
	Name  string     `json:"name"`
	Ended time.Time  `json:"ended"` // of a sleep, when it began
	Took  float64    `json:"took_seconds"`
	Until *time.Time `json:"until"` // the end of a sleep, nil for a step
	// Result is null if the step has none, or if it cannot be read. Problem is the reason why it cannot.
	Result  json.RawMessage `json:"result"`
	Problem string          `json:"problem,omitempty"`
}

// Steps returns the steps of a task in the order in which they ended. hide replaces what people may not see in
// the JSON of a result; it may be nil. If the steps cannot be read, the error wraps [storage.ErrDamaged] and
// quotes nothing of them.
func Steps(t storage.Task, hide func(step string, text []byte) []byte) ([]Step, error) {
	e, err := steps.Decode(t.Checkpoint)
	if err != nil || len(e.Steps) == 0 {
		return nil, err
	}
	shown := make([]Step, len(e.Steps))
	for i, s := range e.Steps {
		shown[i] = Step{Name: s.Name, Ended: s.Ended, Took: s.Took.Seconds()}
		if !s.Until.IsZero() {
			shown[i].Until = &s.Until
		}
		if len(s.Result) == 0 {
			continue
		}
		text, err := JSON(t.Encoding, s.Result)
		switch {
		case err != nil:
			shown[i].Problem = err.Error()
		case hide != nil:
			shown[i].Result = hide(s.Name, text)
		default:
			shown[i].Result = text
		}
	}
	return shown, nil
}
