package payload

import (
	"encoding/json"
	"math"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/storage"
)

// Part is an encoded value of a task: its parameters, or a value that its job stored.
type Part struct {
	Name     string // "params", "progress", "checkpoint" or "result", as in rules that hide fields
	Encoding string
	Data     []byte // empty if the task has no such value
}

// Params returns the parameters of a task.
func Params(t storage.Task) Part { return Part{"params", t.Encoding, t.Payload} }

// Progress returns the last progress of a task. Every job stores its progress as JSON, whatever the encoding
// of the task is. The progress of a task that records a load is its record.
func Progress(t storage.Task) Part {
	if _, ok := LoadOf(t); ok {
		return Part{"progress", t.Encoding, t.Payload}
	}
	return Part{"progress", codec.JSON, t.Progress}
}

// Checkpoint returns the last checkpoint that the job of a task has stored, without the steps beside it. It
// is empty if the steps cannot be read; [Steps] reports that.
func Checkpoint(t storage.Task) Part {
	e, _ := steps.Decode(t.Checkpoint)
	return Part{"checkpoint", t.Encoding, e.Checkpoint}
}

// Result returns the result of a task.
func Result(t storage.Task) Part { return Part{"result", t.Encoding, t.Result} }

// Parts returns all parts of a task, also the empty ones.
func Parts(t storage.Task) []Part {
	return []Part{Params(t), Progress(t), Checkpoint(t), Result(t)}
}

// JSON returns the value as [JSON] does.
func (p Part) JSON() ([]byte, error) { return JSON(p.Encoding, p.Data) }

// Counted is progress that counts, such as {"done":5,"of":60}.
type Counted struct{ Done, Of float64 }

// CountedOf reads progress that counts from the JSON of a progress. ok is false for any other progress.
func CountedOf(text []byte) (c Counted, ok bool) {
	var read struct{ Done, Of *float64 }
	if json.Unmarshal(text, &read) != nil || read.Done == nil || read.Of == nil {
		return Counted{}, false
	}
	c = Counted{*read.Done, *read.Of}
	return c, c.Done >= 0 && c.Of > 0 && c.Done <= c.Of
}

// Share is the part that is done, from 0 to 1.
func (c Counted) Share() float64 { return c.Done / c.Of }

// Left estimates how long the running attempt of a task needs for the rest, at the speed that it has had so
// far. It is 0 if that is not known: the task does not run, nothing is done, or earlier attempts did a part.
func (c Counted) Left(t storage.Task, now time.Time) time.Duration {
	began := t.StartedAt()
	if began.IsZero() || c.Done == 0 || len(t.Attempts) > 0 || t.Snoozes > 0 {
		return 0
	}
	left := float64(now.Sub(began)) * (c.Of - c.Done) / c.Done
	if left >= math.MaxInt64 {
		return 0
	}
	return max(0, time.Duration(left).Round(time.Second))
}
