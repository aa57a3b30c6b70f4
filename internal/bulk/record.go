package bulk

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// Record is a task in a backup, one JSON object a line. It has all that an insert needs to bring the task
// back, and everything else that was known of the task. Bytes are base64, times are RFC 3339, and durations
// are texts such as "1m30s". Most fields are left out if they are zero.
type Record struct {
	Queue      string            `json:"queue"`
	ID         string            `json:"id"`
	Kind       string            `json:"kind"`
	Encoding   string            `json:"encoding"`
	Payload    []byte            `json:"payload"`
	Headers    map[string]string `json:"headers,omitempty"`
	Priority   int               `json:"priority,omitempty"`
	Partition  string            `json:"partition,omitempty"`
	Cost       *int              `json:"cost,omitempty"` // nil for 1
	MaxRetries int               `json:"max_retries"`
	CrashLimit int               `json:"crash_limit"`
	Timeout    string            `json:"timeout,omitempty"`
	KeepFor    string            `json:"keep_for,omitempty"`
	UntilRead  bool              `json:"until_read,omitempty"`
	// UniqueKey is the unique key that the task holds for its life, and WindowKey the unique key that it holds
	// until the moment WindowUntil.
	UniqueKey   string          `json:"unique_key,omitempty"`
	WindowKey   string          `json:"window_key,omitempty"`
	WindowUntil time.Time       `json:"window_until,omitzero"`
	Schedule    *RecordSchedule `json:"schedule,omitempty"` // of a cursor

	State      storage.State   `json:"state"`
	Retries    int             `json:"retries,omitempty"`
	Crashes    int             `json:"crashes,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Created    time.Time       `json:"created,omitzero"`
	Due        time.Time       `json:"due,omitzero"`
	Ended      time.Time       `json:"ended,omitzero"`
	Attempts   []RecordAttempt `json:"attempts,omitempty"`
	Stack      string          `json:"stack,omitempty"`
	Result     []byte          `json:"result,omitempty"`
	Progress   []byte          `json:"progress,omitempty"`
	Checkpoint []byte          `json:"checkpoint,omitempty"`

	// NotDeleted means that the task of an earlier line was not deleted, because it had changed or was gone by
	// then, or because the run was stopped. Such a line has no other fields than Queue and ID.
	NotDeleted bool `json:"not_deleted,omitempty"`
}

// notDeleted is the line of a task that was not deleted.
type notDeleted struct {
	Queue      string `json:"queue"`
	ID         string `json:"id"`
	NotDeleted bool   `json:"not_deleted"`
}

// RecordSchedule is the schedule of a cursor.
type RecordSchedule struct {
	Next        time.Time `json:"next,omitzero"`
	Last        time.Time `json:"last,omitzero"`
	Declaration string    `json:"declaration"`
}

// RecordAttempt is one attempt.
type RecordAttempt struct {
	At      time.Time `json:"at"`
	Runner  string    `json:"runner,omitempty"`
	Outcome string    `json:"outcome"`
	Error   string    `json:"error,omitempty"`
}

// RecordOf makes the record of a task.
func RecordOf(t storage.Task) Record {
	r := Record{
		Queue: t.Queue, ID: t.ID, Kind: t.Kind, Encoding: t.Encoding, Payload: t.Payload, Headers: t.Headers,
		Priority: t.Priority, Partition: t.Partition, MaxRetries: t.MaxRetries, CrashLimit: t.CrashLimit,
		Timeout: text(t.Timeout), KeepFor: text(t.Keep.For), UntilRead: t.Keep.UntilRead,
		State: t.State, Retries: t.Retries, Crashes: t.Crashes, Reason: t.Reason, Created: t.Created, Due: t.Due,
		Ended: t.Ended, Stack: t.Stack, Result: t.Result, Progress: t.Progress, Checkpoint: t.Checkpoint,
	}
	if n := t.Cost.N(); n != 1 {
		r.Cost = &n
	}
	switch t.Unique.Mode {
	case storage.UniqueLife:
		r.UniqueKey = t.Unique.Key
	case storage.UniqueWindow:
		r.WindowKey, r.WindowUntil = t.Unique.Key, t.Created.Add(t.Unique.For)
	}
	if c := t.Cursor; c != nil {
		r.Schedule = &RecordSchedule{Next: c.Next, Last: c.Last, Declaration: c.Declaration}
	}
	for _, a := range t.Attempts {
		r.Attempts = append(r.Attempts, RecordAttempt{At: a.At, Runner: a.Runner, Outcome: a.Outcome, Error: a.Error})
	}
	return r
}

// always are the fields that each line of a task in a backup has.
var always = []string{"queue", "id", "kind", "encoding", "payload", "max_retries", "crash_limit", "state"}

// ReadRecord reads a line of a backup. It returns an error if the line is no record, or if a value would be
// lost: a field is unknown, missing, or there twice. The error quotes no value of the line.
func ReadRecord(line []byte) (Record, error) {
	var r Record
	if !json.Valid(line) {
		return r, errors.New("it is no JSON")
	}
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil {
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return r, errors.New("the field " + storage.PrintableText(field, storage.MaxName) + " is unknown")
		}
		return r, errors.New("a field has a value of another kind")
	}
	names, twice := payload.NamesOf(line)
	if twice != "" {
		return r, errors.New("the field " + storage.PrintableText(twice, storage.MaxName) + " stands there twice")
	}
	for _, field := range always {
		if !r.NotDeleted && !slices.Contains(names, field) {
			return r, errors.New("the field " + field + " is missing")
		}
	}
	return r, nil
}

// write writes the record as a line of a backup.
func (r Record) write(to io.Writer) error {
	return json.NewEncoder(to).Encode(r) //nolint:wrapcheck // the callers name the task
}

// text writes a duration, and "" for zero.
func text(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// Insert returns the insert that brings the task back, waiting or scheduled for the moment at which it was
// due. Its job sees that moment, and in a task that had become due the moment of its delay. Insert leaves out
// the window of the task; see [Record.Window]. It returns a *[storage.InvalidError] for a duration that
// cannot be read, an invalid partition or an invalid cost. The storage checks the rest.
func (r Record) Insert() (storage.Insert, error) {
	in := storage.Insert{
		Ref: storage.Ref{Queue: r.Queue, ID: r.ID}, Kind: r.Kind, Encoding: r.Encoding, Payload: r.Payload,
		Headers: r.Headers, Priority: r.Priority, Partition: r.Partition, MaxRetries: r.MaxRetries,
		CrashLimit: r.CrashLimit, Keep: storage.Keep{UntilRead: r.UntilRead},
	}
	if r.Partition != "" {
		if err := storage.CheckPartition(r.Partition); err != nil {
			return storage.Insert{}, err
		}
	}
	if r.Cost != nil {
		var err error
		if in.Cost, err = storage.CostOf("cost", *r.Cost); err != nil {
			return storage.Insert{}, err
		}
	}
	for _, d := range []struct {
		what, text string
		into       *time.Duration
	}{{"timeout", r.Timeout, &in.Timeout}, {"keep_for", r.KeepFor, &in.Keep.For}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.into, err = time.ParseDuration(d.text); err != nil {
			return storage.Insert{}, storage.Invalid(d.what, d.text, "a duration such as 1m30s")
		}
	}
	if r.UniqueKey != "" {
		in.Unique = storage.Unique{Key: r.UniqueKey, Mode: storage.UniqueLife}
	}
	switch {
	case r.Schedule != nil:
		in.Cursor = &storage.Cursor{Next: r.Schedule.Next, Last: r.Schedule.Last, Declaration: r.Schedule.Declaration}
	case r.State.Timed():
		in.At = r.Due
		in = in.CompleteHeaders()
	default:
		in.Headers = r.dueHeaders()
	}
	return in, nil
}

// dueHeaders returns the headers with the moment of a delay that counts from the creation of the task, because
// the task that comes back has another creation.
func (r Record) dueHeaders() map[string]string {
	delay, err := time.ParseDuration(r.Headers[storage.DueHeader])
	if err != nil {
		return r.Headers
	}
	all := maps.Clone(r.Headers)
	all[storage.DueHeader] = "unknown"
	if !r.Created.IsZero() {
		all[storage.DueHeader] = r.Created.Add(delay).UTC().Format(time.RFC3339Nano)
	}
	return all
}

// Window returns the rest of the task's unique window at the storage's time now, the zero Unique if nothing
// is left.
func (r Record) Window(now time.Time) storage.Unique {
	left := r.WindowUntil.Sub(now)
	if r.WindowKey == "" || left < storage.MinSpan {
		return storage.Unique{}
	}
	return storage.Unique{Key: r.WindowKey, Mode: storage.UniqueWindow, For: left}
}
