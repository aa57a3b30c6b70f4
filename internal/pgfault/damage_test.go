package pgfault

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// damage is a change of one column of the rows of one queue.
type damage struct {
	column string
	value  string // an SQL expression
	hits   string // the victims that cannot be read afterwards, by their first letters
}

// damages cover every column of tasks. The victims of each are a waiting task, a pending
// task whose runner is gone, a scheduled task and a cursor.
var damages = []damage{
	{"id", `id || '\x00'`, "wpsc"},
	{"id", `'\xff' || id`, "wpsc"},
	{"lease", `'\x'`, "p"},
	{"lease", `'\x00'`, "p"},
	{"past", `'\x01'`, "wpsc"},
	{"past", `'\xffffffffffffffffffffffffffffffffffff01'`, "wpsc"},
	{"record", `'\x'`, "wpsc"},
	{"record", `'garbage'`, "wpsc"},
	{"record", `'\x80ffffffffffffffffff01'`, "wpsc"},
	{"record", `substr(record, 1, 4)`, "wpsc"},
	{"version", "-1", "pc"},
	{"version", "9223372036854775807", "wpsc"},
	{"sort", "-1", "p"},
	{"sort", "9223372036854775807", ""},
	{"priority", "-32768", "wpsc"},
	{"priority", "32767", "wpsc"},
	{"flags", "-1", ""},
	{"flags", "32767", ""},
	{"queue", "queue + 1000000", "wpsc"},
	{"line", "line / 16 * 16 + 1", "c"},  // all wait
	{"line", "line / 16 * 16 + 8", "ps"}, // all are cursors, and w's is due in some centuries
	{"line", "line / 16 * 16 + 15", ""},  // no query sees them any more
	{"line", "0", ""},
	{"line", "-1", ""},
}

// TestDamagedRowsStopNobody damages one column after the other, and starts a runner. The
// runner must not panic, the damaged rows must be counted, and other tasks of the same
// queue must go on.
func TestDamagedRowsStopNobody(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, session := opened(t, cfg)
	conn := connect(t, shared.URL())
	var queues []string
	for i, d := range damages {
		queues = append(queues, fmt.Sprint("q", i))
		victims(t, session, queues[i])
		for _, victim := range []string{"w", "p", "s", storage.CursorPrefix + "c"} {
			tag, err := conn.Exec(t.Context(), fmt.Sprintf("UPDATE %[1]s.tasks SET %[2]s = %[3]s WHERE id = $1 AND "+
				"queue = (SELECT queue FROM %[1]s.queues WHERE name = $2)", cfg.Schema, d.column, d.value),
				[]byte(victim), queues[i])
			succeed(t, err)
			if tag.RowsAffected() != 1 {
				t.Fatalf("%s of %s in %s: damaged %d rows, want 1", d.column, victim, queues[i], tag.RowsAffected())
			}
		}
	}
	runner := must(midge.NewRunner(store, midge.RunnerConfig{Queues: queues, Lease: 2 * time.Second}))(t)
	succeed(t, midge.Handle(runner, func(context.Context, errand) error { return nil }))
	start(t, runner)
	succeed(t, resumeAll(t, session, queues))
	for i, d := range damages {
		name := fmt.Sprintf("%s = %s", d.column, d.value)
		must(session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{work(queues[i], "after")}}))(t)
		testserver.Await(t, name+": another task of the queue ends", func() bool {
			task, err := store.Task(t.Context(), storage.Ref{Queue: queues[i], ID: "after"})
			return err == nil && task.State == storage.Completed
		})
		testserver.Await(t, name+": what is damaged is counted, "+d.hits, func() bool {
			return int(must(store.Stats(t.Context(), queues[i]))(t)[0].Damaged) == len(d.hits)
		})
		for _, state := range storage.States() {
			for _, err := range storage.Each(t.Context(), store, queues[i], state) {
				succeed(t, err)
			}
		}
	}
}

// victims inserts the rows that will be damaged into a queue, and pauses the queue.
func victims(t *testing.T, session *storage.Session, queue string) {
	t.Helper()
	pending, waiting, scheduled := work(queue, "p"), work(queue, "w"), work(queue, "s")
	scheduled.Delay = 2 * time.Second
	cursor := work(queue, storage.CursorPrefix+"c")
	cursor.Cursor = &storage.Cursor{
		Next: time.Now().Add(2 * time.Second), Declaration: `{"spec":"every 1h","catch_up":"skip"}`,
	}
	must(session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{pending}}))(t)
	req := claimOf(1, queue)
	req.Lease = 2 * time.Second
	if n := len(must(session.Claim(t.Context(), req))(t).Tasks); n != 1 {
		t.Fatalf("claimed %d, want 1", n)
	}
	must(session.ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{waiting, scheduled, cursor}}))(t)
	succeed(t, session.Configure(t.Context(), queue, storage.Settings{Pause: &storage.Pause{On: true}}))
}

func resumeAll(t *testing.T, session *storage.Session, queues []string) error {
	t.Helper()
	for _, q := range queues {
		if err := session.Configure(t.Context(), q, storage.Settings{Pause: &storage.Pause{}}); err != nil {
			return err
		}
	}
	return nil
}

// work returns an insert of a task that the runner runs.
func work(queue, id string) storage.Insert {
	in := insertOf(queue, id)
	in.Kind, in.Payload = "errand", []byte{0x80} // no parameters
	in.Keep.For = time.Hour
	return in
}

type errand struct{}
