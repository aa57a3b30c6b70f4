// Package imports moves tasks from other job queues into a midge storage. Each task moves exactly once:
// neither a kill in the middle nor a second run beside the first doubles or loses a task.
//
// Tasks of asynq move in chunks. A script takes a chunk out of the queue's lists and sets it aside. One Tx
// inserts the chunk and has a cursor record name it; the Tx requires the version of the cursor that was
// read. A second script deletes the chunk from asynq. A process that finds a chunk set aside reads from the
// cursor whether the chunk was inserted. Jobs of River move in chunks too: one transaction of the database
// that both share moves a chunk.
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

// Kinds maps each type of task of the other queue to the kind that it becomes. The type "*" stands for all
// types that are not named; each of them becomes the kind of the same name.
type Kinds map[string]string

// All is the type that stands for all types that are not named.
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

// Read adds the lines of a table. A comment begins with #.
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

// Of returns the kind that a type becomes, "" if tasks of the type stay.
func (k Kinds) Of(typ string) string {
	if kind, ok := k[typ]; ok && typ != All {
		return kind
	}
	if _, all := k[All]; all && storage.CheckName("kind", typ) == nil {
		return typ
	}
	return ""
}

// Report is the result of an import, or of its plan.
type Report struct {
	// Moved counts the inserted tasks by type.
	Moved map[string]int64
	// Left counts the tasks that stay where they are, by type and reason.
	Left map[Left]int64
	// Refs are the first maxRefs of the inserted tasks.
	Refs []storage.Ref
}

// maxRefs bounds Report.Refs.
const maxRefs = 100

// Left is a type of tasks that stay where they are, and the reason.
type Left struct {
	Type, Reason string
}

func newReport() *Report {
	return &Report{Moved: make(map[string]int64), Left: make(map[Left]int64)}
}

// moved counts a task that moves.
func (r *Report) moved(typ string, ref storage.Ref) {
	r.Moved[typ]++
	r.name(ref)
}

// name adds tasks to Refs, as far as there is room.
func (r *Report) name(refs ...storage.Ref) {
	r.Refs = append(r.Refs, refs[:min(len(refs), maxRefs-len(r.Refs))]...)
}

// left counts a task that stays.
func (r *Report) left(typ, reason string) { r.Left[Left{typ, reason}]++ }

// add adds the counts of another report.
func (r *Report) add(other *Report) {
	for typ, n := range other.Moved {
		r.Moved[typ] += n
	}
	for left, n := range other.Left {
		r.Left[left] += n
	}
	r.name(other.Refs...)
}

// Tasks returns the number of tasks that moved, and the number of tasks that stay.
func (r *Report) Tasks() (moved, left int64) {
	for _, n := range r.Moved {
		moved += n
	}
	for _, n := range r.Left {
		left += n
	}
	return moved, left
}

// Lefts lists the types and reasons of the tasks that stay, in order.
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

// unknownType is the reason for tasks whose type the table does not name.
const unknownType = "the table of kinds does not name the type"

// maxError bounds, in bytes, an error text of the other queue. The task keeps the text as a header.
const maxError = 1 << 10
