package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// maxRecord bounds a line of a backup.
const maxRecord = 256 << 20

// restoreChunk is how many tasks are inserted by a call.
const restoreChunk = 100

func (a *app) taskRestore() *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Bring back tasks from a backup of task rm",
		Long: "restore enqueues the tasks of a backup under their ids, with their parameters and limits. " +
			"Their retries\n" +
			"and history begin anew. A task that is there already is left, so that a run may be repeated.",
		Example: "  midge task rm 'state:dead ended>30d' --backup dead.jsonl\n  midge task restore dead.jsonl",
		Args:    wants(1, 1, "the file of a backup, or -"),
	}
	yes := yesFlag(cmd)
	cmd.RunE = a.long(func(ctx context.Context, args []string) error { return a.restore(ctx, args[0], *yes) })
	return cmd
}

func (a *app) restore(ctx context.Context, path string, yes bool) error {
	inserts, err := a.readBackup(path)
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	a.notef("on %s", a.target)
	a.notef("%s to be enqueued", show.Count(int64(len(inserts)), "task"))
	if err := a.confirm(yes, "Enqueue them?", int64(len(inserts)), "restore"); err != nil {
		return err
	}
	a.writing, a.again = true, "the same command again: it does what is left"
	var done, there int64
	e := ledger.Entry{Act: "restore", Note: path}
	err = a.audit().Do(ctx, e, func() (_ int64, err error) {
		done, there, err = a.enqueueAll(ctx, inserts)
		return done, err
	})
	if err != nil {
		return err
	}
	return a.printer(zeroTime).Line("enqueued %s, %s there already", show.Number(done), show.Number(there))
}

// enqueueAll enqueues tasks that are not there.
func (a *app) enqueueAll(ctx context.Context, inserts []storage.Insert) (done, there int64, err error) {
	for from := 0; from < len(inserts); from += restoreChunk {
		chunk := inserts[from:min(len(inserts), from+restoreChunk)]
		txs := make([]storage.Tx, 0, len(chunk))
		for _, in := range chunk {
			txs = append(txs, storage.Tx{Inserts: []storage.Insert{in}})
		}
		applied, err := a.session.Apply(ctx, txs...)
		if err != nil {
			return done, there, a.partly(done, int64(len(inserts)), "task", "enqueued", err)
		}
		for _, one := range applied {
			var dependency *storage.DependencyError
			switch {
			case one.Err == nil && !one.Inserted[0].Existing:
				done++
			case one.Err == nil || errors.As(one.Err, &dependency):
				there++
			default:
				return done, there, a.partly(done, int64(len(inserts)), "task", "enqueued", one.Err)
			}
		}
	}
	return done, there, nil
}

// readBackup reads the records of a backup. A line that cannot be read ends it, before anything is sent.
func (a *app) readBackup(path string) ([]storage.Insert, error) {
	in := a.input(a.std.In)
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, badInput("the backup cannot be read: %v", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	var inserts []storage.Insert
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxRecord)
	for n := 1; lines.Scan(); n++ {
		var record bulk.Record
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			return nil, storage.Invalid("backup", fmt.Sprintf("%s, line %d", path, n),
				"a task, as task rm --backup writes it")
		}
		insert, err := record.Insert()
		if err == nil {
			err = checkOwn(insert.Ref.Queue)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		inserts = append(inserts, insert)
	}
	return inserts, lines.Err()
}
