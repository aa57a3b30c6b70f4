// Package imports moves tasks from other job queues into a midge storage, each once: a kill in the
// middle, or a second run beside the first, neither doubles nor loses one.
//
// From asynq, tasks move chunk by chunk. A script takes a chunk out of the queue's lists and sets it
// aside; one Tx inserts it together with a change, at its version, of a cursor record that names the
// chunk; a second script deletes it. Whoever finds a chunk set aside reads from the cursor whether it
// was inserted. From River, a transaction of the database that both share moves a chunk.
package imports

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// Kinds says which type of task of the other queue becomes which kind. The type "*" stands for all
// that are not named, whose kind is then their type.
type Kinds map[string]string

// All is the type that stands for all others.
const All = "*"

// Add adds a line of the table, "type = kind", or "*".
func (k Kinds) Add(line string) error {
	typ, kind, ok := strings.Cut(line, "=")
	typ, kind = strings.TrimSpace(typ), strings.TrimSpace(kind)
	if typ == All && (!ok || kind == All) {
		k[All] = All
		return nil
	}
	if !ok || typ == "" || typ == All {
		return storage.Invalid("kind", line, "type=kind, such as email:send=send_mail, or * for all as they are")
	}
	if err := storage.CheckName("kind", kind); err != nil {
		return err
	}
	if had, ok := k[typ]; ok && had != kind {
		return storage.Invalid("kind", line, "one kind of a type, and %s is %s already", typ, had)
	}
	k[typ] = kind
	return nil
}

// Read adds the lines of a table; what follows a # is a remark.
func (k Kinds) Read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := k.Add(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

// Of gives the kind that a type becomes, "" where it is to be left.
func (k Kinds) Of(typ string) string {
	if kind, ok := k[typ]; ok && typ != All {
		return kind
	}
	if _, all := k[All]; all && storage.CheckName("kind", typ) == nil {
		return typ
	}
	return ""
}

// Report is what an import did, or would do.
type Report struct {
	// Moved counts tasks that were inserted, by their types.
	Moved map[string]int64
	// Left are those that stay where they are, by type and reason.
	Left map[Left]int64
}

// Left is why tasks of a type stay where they are.
type Left struct {
	Type, Reason string
}

func newReport() *Report {
	return &Report{Moved: make(map[string]int64), Left: make(map[Left]int64)}
}

// moved counts a task.
func (r *Report) moved(typ string) { r.Moved[typ]++ }

// left counts a task that stays.
func (r *Report) left(typ, reason string) { r.Left[Left{typ, reason}]++ }

// add adds what another report counts.
func (r *Report) add(other *Report) {
	for typ, n := range other.Moved {
		r.Moved[typ] += n
	}
	for left, n := range other.Left {
		r.Left[left] += n
	}
}

// Tasks counts what was moved, and what stays.
func (r *Report) Tasks() (moved, left int64) {
	for _, n := range r.Moved {
		moved += n
	}
	for _, n := range r.Left {
		left += n
	}
	return moved, left
}

// Lefts lists what stays, in order.
func (r *Report) Lefts() []Left {
	all := make([]Left, 0, len(r.Left))
	for l := range r.Left {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Left) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Reason, b.Reason))
	})
	return all
}

// unknownType is the reason of tasks whose type the table does not name.
const unknownType = "the table of kinds does not name the type"

// Error texts of the other queue are kept as a header, cut to this many bytes.
const maxError = 1 << 10
