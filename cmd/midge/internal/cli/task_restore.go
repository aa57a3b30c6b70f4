package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// maxRecord bounds a line of a backup, in bytes.
const maxRecord = 256 << 20

// restoreChunk is the number of tasks that one call inserts.
const restoreChunk = 100

// maxRefused is the maximum number of refused tasks for which restore reports the reason.
const maxRefused = 5

func (a *app) taskRestore() *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Enqueue the tasks of a backup that task rm wrote",
		Long: "restore enqueues the tasks of a backup with their ids, parameters and limits.\n" +
			"Their retries and history begin anew; a unique window ends when it would have\n" +
			"ended. restore skips a task whose id exists already, so that a run may be\n" +
			"repeated. It also skips a task that task rm did not delete, because the task\n" +
			"had changed or the run was stopped.",
		Example: "  midge task rm 'state:dead ended>30d' --backup dead.jsonl\n" +
			"  midge task restore dead.jsonl --dry-run\n  midge task restore dead.jsonl",
		Args: wants(1, 1, "the file of a backup, or -"),
	}
	yes := yesFlag(cmd)
	dry := cmd.Flags().Bool("dry-run", false, "count the tasks that would be enqueued, and change nothing")
	cmd.RunE = a.long(func(ctx context.Context, args []string) error {
		return a.restore(ctx, args[0], *yes, *dry)
	})
	return cmd
}

func (a *app) restore(ctx context.Context, path string, yes, dry bool) error {
	b, err := a.readBackup(path)
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	a.notef("on %s", a.target)
	if b.cut {
		a.notef("the last line of %s is not whole, and is left out: a run that was killed did not delete its task",
			path)
	}
	if b.kept > 0 {
		a.notef("%s left out: the run that wrote the backup did not delete them", show.Count(b.kept, "task"))
	}
	count := int64(len(b.inserts))
	r := show.Restored{Matched: count, NotDeleted: b.kept, DryRun: dry, Reasons: []show.ActionReason{}}
	if dry {
		return a.wouldRestore(ctx, b.inserts, &r)
	}
	a.notef("%s to be enqueued", show.Count(count, "task"))
	if err := a.confirm(yes, "Enqueue them?", count, "restore"); err != nil {
		return err
	}
	a.writing, a.again = true, sameAgain
	now, err := a.session.Now(ctx)
	if err != nil {
		return err
	}
	for i := range b.inserts {
		if record := b.windows[b.inserts[i].Ref]; record != nil {
			b.inserts[i].Unique = record.Window(now)
		}
	}
	refs := make([]storage.Ref, len(b.inserts))
	for i := range b.inserts {
		refs[i] = b.inserts[i].Ref
	}
	e := ledger.Entry{Action: "restore", IDs: bulk.IDs(refs), Note: path}
	err = a.audit().Record(ctx, e, func() ledger.Ending {
		enqueued, err := a.enqueueAll(ctx, b.inserts, &r)
		return ledger.Ending{Count: len(enqueued), IDs: bulk.IDs(enqueued), Err: err}
	})
	if err != nil {
		if r.Enqueued+r.Existing+r.Refused > 0 {
			if perr := a.restoredJSON(&r); perr != nil {
				return perr
			}
		}
		return a.partly(ctx, r.Enqueued, count, "task", "enqueued", err)
	}
	return a.restored(&r)
}

// wouldRestore reports what a restore would do. A task that exists already would be skipped.
func (a *app) wouldRestore(ctx context.Context, inserts []storage.Insert, r *show.Restored) error {
	for _, in := range inserts {
		switch _, err := a.store.Task(ctx, in.Ref); {
		case err == nil, errors.Is(err, storage.ErrDamaged):
			r.Existing++
		case !errors.Is(err, storage.ErrNotFound):
			return err
		}
	}
	if err := a.restoredJSON(r); err != nil {
		return err
	}
	a.notef("%s to be enqueued, %s there already\nnothing was changed (--dry-run)",
		show.Count(r.Matched-r.Existing, "task"), show.Number(r.Existing))
	return nil
}

// restoredJSON writes the outcome of a restore for a program, and nothing for people.
func (a *app) restoredJSON(r *show.Restored) error {
	p := a.printer(zeroTime)
	if p.People() {
		return nil
	}
	return p.Value(r)
}

// restored reports the outcome of a restore.
func (a *app) restored(r *show.Restored) error {
	p := a.printer(zeroTime)
	if err := a.restoredJSON(r); err != nil {
		return err
	}
	refused := ""
	if r.Refused > 0 {
		refused = ", " + show.Number(r.Refused) + " refused"
	}
	err := p.Line("enqueued %s, %s there already%s", show.Number(r.Enqueued), show.Number(r.Existing), refused)
	for _, reason := range r.Reasons {
		a.notef("  %s: %s", reason.Ref, show.Text(reason.Reason))
	}
	switch {
	case err != nil || r.Refused == 0:
		return err
	case r.Enqueued > 0:
		return &exitError{code: Partly}
	}
	return &exitError{code: Refused}
}

// enqueueAll enqueues the tasks that do not exist yet, and returns them. It counts the outcomes in r. A
// refused task does not stop the other tasks.
func (a *app) enqueueAll(
	ctx context.Context, inserts []storage.Insert, r *show.Restored,
) (enqueued []storage.Ref, err error) {
	for chunk := range slices.Chunk(inserts, restoreChunk) {
		applied, err := a.enqueueChunk(ctx, chunk)
		for i, one := range applied {
			switch {
			case err != nil && errors.Is(one.Err, err): // it is not known
			case one.Err == nil && !one.Inserted[0].Existing:
				r.Enqueued++
				enqueued = append(enqueued, chunk[i].Ref)
			case one.Err == nil || idTaken(one.Err):
				r.Existing++
			default:
				if r.Refused++; r.Refused <= maxRefused {
					r.Reasons = append(r.Reasons, show.ActionReason{Ref: chunk[i].Ref.String(), Reason: one.Err.Error()})
				}
			}
		}
		if err != nil {
			return enqueued, err
		}
	}
	return enqueued, nil
}

// enqueueChunk enqueues tasks, each in a step of its own. A task whose unique window outlived it, and is
// there still, is enqueued without its key, which that window holds for it. If that fails, these tasks have
// the error that enqueueChunk returns.
func (a *app) enqueueChunk(ctx context.Context, chunk []storage.Insert) ([]storage.Applied, error) {
	txs := make([]storage.Tx, len(chunk))
	for i := range chunk {
		txs[i].Inserts = chunk[i : i+1 : i+1]
	}
	applied, err := a.session.Apply(ctx, txs...)
	if err != nil {
		return nil, err
	}
	var again []storage.Tx
	var places []int
	for i := range applied {
		own := storage.Collision{Ref: chunk[i].Ref, Holder: chunk[i].Ref, Unique: true}
		if collides(applied[i].Err, func(c storage.Collision) bool { return c == own }) {
			chunk[i].Unique = storage.Unique{}
			again, places = append(again, txs[i]), append(places, i)
		}
	}
	if len(again) == 0 {
		return applied, nil
	}
	repeated, err := a.session.Apply(ctx, again...)
	for n, place := range places {
		if applied[place] = (storage.Applied{Err: err}); err == nil {
			applied[place] = repeated[n]
		}
	}
	return applied, err
}

// idTaken reports whether an insert was refused because another task has its id.
func idTaken(err error) bool {
	return collides(err, func(c storage.Collision) bool { return !c.Unique })
}

// collides reports whether an insert was refused for a collision.
func collides(err error, so func(storage.Collision) bool) bool {
	var dependency *storage.DependencyError
	return errors.As(err, &dependency) && slices.ContainsFunc(dependency.Colliding, so)
}

// backup is the content of a file that task rm has written.
type backup struct {
	inserts []storage.Insert
	windows map[storage.Ref]*bulk.Record // the tasks that have a unique window
	kept    int64                        // number of tasks that were not deleted
	cut     bool                         // the last line is incomplete, and no record
}

// readBackup reads the records of a backup. It fails at a line that it cannot read, before anything is sent
// to the storage. It ignores a last line that is incomplete, because the run that wrote it was killed.
func (a *app) readBackup(path string) (b backup, err error) {
	in := a.input(a.std.In)
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return b, badInput("the backup cannot be read: %v", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	whole := true // the line ends with a newline
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxRecord)
	lines.Split(func(data []byte, last bool) (int, []byte, error) {
		n, line, err := bufio.ScanLines(data, last)
		whole = n == 0 || data[n-1] == '\n'
		return n, line, err
	})
	at := make(map[storage.Ref]int)
	for n := 1; lines.Scan(); n++ {
		if b.cut = !whole && !json.Valid(lines.Bytes()); b.cut {
			break
		}
		record, err := bulk.ReadRecord(lines.Bytes())
		if err != nil {
			return b, storage.Invalid(fmt.Sprintf("line %d of the backup", n), path,
				"a task, as task rm --backup writes it (%v)", err)
		}
		if err := b.add(&record, at); err != nil {
			return b, fmt.Errorf("line %d: %w", n, err)
		}
	}
	b.inserts = slices.DeleteFunc(b.inserts, func(in storage.Insert) bool { return in.Kind == "" })
	return b, lines.Err()
}

// add adds the task of a record, or removes the task if the record states that it was not deleted. at maps
// each task to its index in b.inserts.
func (b *backup) add(record *bulk.Record, at map[storage.Ref]int) error {
	ref := storage.Ref{Queue: record.Queue, ID: record.ID}
	if record.NotDeleted {
		if i, ok := at[ref]; ok {
			b.inserts[i] = storage.Insert{}
			b.kept++
		}
		delete(at, ref)
		return nil
	}
	insert, err := record.Insert()
	if err == nil {
		err = checkOwn(insert.Ref.Queue)
	}
	if err == nil && record.Kind == "" {
		err = storage.Invalid("kind", "", "the kind of a task")
	}
	if err != nil {
		return err
	}
	if record.WindowKey != "" {
		if b.windows == nil {
			b.windows = make(map[storage.Ref]*bulk.Record)
		}
		b.windows[ref] = &bulk.Record{WindowKey: record.WindowKey, WindowUntil: record.WindowUntil}
	}
	at[ref] = len(b.inserts)
	b.inserts = append(b.inserts, insert)
	return nil
}
