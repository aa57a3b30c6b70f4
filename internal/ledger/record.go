package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// MaxRecord bounds a record, in bytes of its JSON. An action on more named tasks than one record can list has
// several records.
const MaxRecord = 32 << 10

// maxFilter bounds the filter of a record, in bytes. No filter that package filter takes is longer.
const maxFilter = 8 << 10

// The outcomes of an action.
const (
	// Intended: the action was begun, and its outcome was not written. It may have happened in part.
	Intended = "intended"
	Done     = "done"
	Failed   = "failed"
	// Damaged is the outcome of a record that cannot be read.
	Damaged = "damaged"
)

// Entry is the record of an action of a person.
type Entry struct {
	// Who is the person, Role the role of that person, and Via the program: "dashboard" or "command".
	Who  string `json:"who"`
	Role string `json:"role,omitempty"`
	Via  string `json:"via,omitempty"`
	// Action is the verb, such as "requeue".
	Action string `json:"action"`
	// Queue is the queue that the action concerned, "" for several and for a filter. If there are IDs, the audit
	// takes it from them.
	Queue string `json:"queue,omitempty"`
	// IDs are refs. If the action has a Filter, or named no tasks when it began, they are the first tasks that
	// it changed: see [Ending.IDs]. Otherwise they are the tasks or schedules that were named, and after the End
	// those of them that the action changed. If the action changed none, or nobody knows which, all that were
	// named stay.
	IDs []string `json:"ids,omitempty"`
	// Filter chose the tasks. Note is what else is known, such as the end of a pause.
	Filter string `json:"filter,omitempty"`
	Note   string `json:"note,omitempty"`

	// At is when the action began, by the storage's clock, and Ended when its outcome was written, zero before.
	// The audit sets these and the fields below.
	At    time.Time `json:"at"`
	Ended time.Time `json:"ended,omitzero"`
	// Outcome is Intended, Done, Failed or Damaged.
	Outcome string `json:"outcome"`
	// Count is how many tasks, or other things, the action changed. An Intended action had changed at least so
	// many when the audit last heard of it. Each of several records of an action counts the changed tasks that
	// it lists.
	Count int `json:"count,omitempty"`
	// Stopped is the person who stopped the action while it was in progress, "" if nobody did.
	Stopped string `json:"stopped,omitempty"`
	// Error is why the action failed.
	Error string `json:"error,omitempty"`

	// ID is the id of the record.
	ID string `json:"-"`
}

// OnPartition makes the entry of an action on a queue that of the action on one partition of the queue.
func (e *Entry) OnPartition(key string) {
	e.Action += "-partition"
	e.Note = strings.TrimSuffix(fmt.Sprintf("partition %q, %s", key, e.Note), ", ")
}

// Ending is how an action ended.
type Ending struct {
	// Count is how many tasks, or other things, the action changed.
	Count int
	// IDs are the refs of the tasks that the action changed: all of them if the tasks were named, or the first
	// ones if a filter chose them. nil leaves the record with the tasks that were named.
	IDs []string
	// Stopped is the person who stopped the action, "" if nobody did.
	Stopped string
	// Err is the error of the action, nil if it was done.
	Err error
}

// author is a person, by one program. A user of the dashboard and a user of the command may have the
// same name.
type author struct{ who, via string }

func (e *Entry) author() author { return author{e.Who, e.Via} }

// plain cuts a text to a number of bytes and replaces its control characters, which JSON makes six times as
// long.
func plain(text string, limit int) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' {
			return ' '
		}
		return c
	}, storage.CleanText(text, limit))
}

// clean cuts the texts to the room that a record has, and takes the queue from the ids.
func (e *Entry) clean() {
	for _, text := range []*string{&e.Who, &e.Role, &e.Via, &e.Action, &e.Queue, &e.Outcome, &e.Stopped} {
		*text = plain(*text, storage.MaxName)
	}
	e.Filter = plain(e.Filter, maxFilter)
	e.Note = plain(e.Note, storage.MaxAttemptError)
	e.Error = plain(e.Error, storage.MaxAttemptError)
	var ids []string // the caller's slice stays as it is
	for _, id := range e.IDs {
		ids = append(ids, plain(id, 2*storage.MaxName+1)) // a queue, a slash and the id of a task
	}
	if e.IDs = ids; len(ids) == 0 && e.Filter == "" {
		return
	}
	e.Queue = ""
	for i, id := range ids {
		queue, _, _ := strings.Cut(id, "/")
		if i > 0 && queue != e.Queue || e.Filter != "" {
			e.Queue = ""
			return
		}
		e.Queue = queue
	}
}

// encoded returns the record as JSON.
func (e *Entry) encoded() ([]byte, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false) // filters have many '<' and '>'
	if err := to.Encode(e); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// endRoom is the room that the end of an action takes in its record: a moment, a count and two texts.
const endRoom = 2*(storage.MaxAttemptError+storage.MaxName) + 200

// fitting returns how many of the ids fit into a record that has the other texts of the entry and some spare
// bytes. At least one fits: all other texts together take two thirds of a record at most.
func (e *Entry) fitting(ids []string, spare int) (int, error) {
	bare := *e
	bare.IDs = nil
	text, err := bare.encoded()
	if err != nil {
		return 0, err
	}
	room := MaxRecord - len(text) - len(`,"ids":[]`) - storage.MaxName - spare // the queue is not known yet
	for n, id := range ids {
		quoted, _ := json.Marshal(id) //nolint:errchkjson // cannot fail: a text
		if room -= len(quoted) + len(","); room < 0 && n > 0 {
			return n, nil
		}
	}
	return len(ids), nil
}

// split spreads the tasks that an action names over as many records as they need. Each has an id of its own.
func (e *Entry) split() ([]Entry, error) {
	ids := distinct(e.IDs)
	n, err := e.fitting(ids, endRoom)
	if err != nil {
		return nil, err
	}
	var parts []Entry
	for some := range slices.Chunk(ids, max(1, n)) {
		part := *e
		part.IDs = some
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		parts = []Entry{*e}
	}
	for i := range parts {
		parts[i].ID = storage.NewID()
		if len(parts) > 1 {
			parts[i].Note = strings.TrimSpace(fmt.Sprintf("%s (part %d of %d)", e.Note, i+1, len(parts)))
		}
		parts[i].clean()
	}
	return parts, nil
}

// distinct returns texts, each once.
func distinct(texts []string) (once []string) {
	seen := make(map[string]bool, len(texts))
	for _, text := range texts {
		if !seen[text] {
			seen[text], once = true, append(once, text)
		}
	}
	return once
}

// finish adds the end of the action to one of its records. changed has end.IDs. only means that the action
// has no other record.
func (e *Entry) finish(now time.Time, end *Ending, changed map[string]bool, only bool) error {
	e.Ended, e.Outcome, e.Count, e.Stopped = now.UTC(), Done, end.Count, end.Stopped
	if end.Err != nil {
		e.Outcome, e.Error = Failed, end.Err.Error()
	}
	defer e.clean()
	if e.Filter != "" || len(e.IDs) == 0 {
		e.clean()
		n, err := e.fitting(end.IDs, 0)
		e.IDs = end.IDs[:n]
		return err
	}
	mine := slices.DeleteFunc(slices.Clone(e.IDs), func(id string) bool { return !changed[id] })
	if !only {
		e.Count = len(mine)
	}
	if len(mine) > 0 && !errors.Is(end.Err, storage.ErrUnknown) {
		e.IDs = mine
	}
	return nil
}

// first is a moment before all actions. A later action is due earlier, so that a listing by due moments
// begins with the newest action.
var (
	first  = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	latest = time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)
)

// dueOf returns when the record of an action is due: so far ahead that nobody claims it. If the clock is
// ahead by many decades, the record is due a day after the action, because a due record would not be listed.
func dueOf(at time.Time) time.Time {
	due, least := latest.Add(-at.Sub(first)), at.Add(24*time.Hour)
	if due.Before(least) {
		return least
	}
	return due
}

// insertOf returns the insert of the record of an action.
func insertOf(e *Entry) (storage.Insert, error) {
	payload, err := e.encoded()
	return storage.Insert{
		Ref:  storage.Ref{Queue: AuditQueue, ID: e.ID},
		Kind: "midge.action", Encoding: "json", Payload: payload, CrashLimit: 1, At: dueOf(e.At),
	}, err
}

// entryOf reads a record.
func entryOf(t *storage.Task) Entry {
	var e Entry
	if err := json.Unmarshal(t.Payload, &e); err != nil {
		e = Entry{At: t.Created, Outcome: Damaged}
	}
	e.clean()
	e.ID = t.ID
	return e
}
