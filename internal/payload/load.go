package payload

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/midgehq/midge/storage"
)

// Load is the payload of a task of [storage.LoadKind], as JSON. Its first two fields make it progress that
// counts.
type Load struct {
	// Done is how many bytes of the file have been read, and Of is the size of the file, 0 if it is not
	// known. The bytes are those of the file as it is stored, even if it is compressed.
	Done int64 `json:"done"`
	Of   int64 `json:"of,omitempty"`
	// File is the name of the file without its directory, Format the form of its rows, and Kind the kind of
	// the tasks.
	File   string `json:"file"`
	Format string `json:"format"`
	Kind   string `json:"kind"`
	// Rows are the rows that have been read, and Rejected is how many of them were rejected. The others
	// are tasks.
	Rows     int64 `json:"rows"`
	Rejected int64 `json:"rejected"`
	// Bytes is the length of the part of the text that has been read, and SHA256 its digest in hexadecimal.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Reject names the places of the rejected rows in their file, nil if no such file was named so far.
	Reject   *Reject `json:"reject,omitempty"`
	Finished bool    `json:"finished"`
}

// Reject is a part of a file of rejected rows.
type Reject struct {
	At    int64 `json:"at"`
	Bytes int64 `json:"bytes"`
}

// LoadOf returns the record of a task of [storage.LoadKind]. ok is false for any other task, and if the
// record cannot be read.
func LoadOf(t storage.Task) (l Load, ok bool) {
	if t.Kind != storage.LoadKind || json.Unmarshal(t.Payload, &l) != nil {
		return Load{}, false
	}
	return l, l.Rows >= 0 && l.Bytes >= 0 && l.Rejected >= 0 && l.Rejected <= l.Rows
}

// String describes the record in a few words, such as "loading orders.csv, 37 %".
func (l Load) String() string {
	switch c := (Counted{float64(l.Done), float64(l.Of)}); {
	case l.Finished:
		return fmt.Sprintf("loaded %s", l.File)
	case c.Of > 0 && c.Done <= c.Of:
		return fmt.Sprintf("loading %s, %.0f %%", l.File, math.Floor(100*c.Share()))
	}
	return fmt.Sprintf("loading %s, at row %d", l.File, l.Rows)
}

// Never is when the records of loads and imports are due.
var Never = time.Date(2199, 12, 31, 0, 0, 0, 0, time.UTC)

// Records reports whether a task is the record of a load or an import and has not ended. Such a task never
// runs, and the moment at which it is due means nothing.
func Records(t storage.Task) bool { return storage.RecordKind(t.Kind) && !t.State.Ended() }

// Reason returns the reason of the state of a task, or how far its file has been loaded.
func Reason(t storage.Task) string {
	if l, ok := LoadOf(t); ok && Records(t) {
		return l.String()
	}
	return t.CurrentReason()
}

// Why returns the reason for the state of a task as a sentence. text is the sentence of the verdict, which
// stays as it is unless the task is the record of a load or an import.
func Why(t storage.Task, text string) string {
	l, ok := LoadOf(t)
	switch {
	case !Records(t):
		return text
	case t.Kind == storage.ImportKind:
		return "it records an import and never runs"
	case ok:
		return "it records a load and never runs: " + l.String()
	}
	return "it records a load and never runs, and the record cannot be read"
}
