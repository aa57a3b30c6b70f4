package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/midgehq/midge/storage"
)

// faulty is a storage that fails in some of its calls.
type faulty struct {
	storage.Storage

	good   int // number of changing calls that succeed; all later ones fail
	fails  error
	away   bool          // reads fail: the storage cannot be reached
	hangs  bool          // reads block until the context of the call ends
	hung   chan struct{} // closed when a read blocks
	passes bool          // a failing call takes effect nevertheless
}

func (f *faulty) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if len(txs) > 0 && len(txs[0].Inserts) > 0 && storage.Reserved(txs[0].Inserts[0].Ref.Queue) ||
		len(txs[0].Changes) > 0 && storage.Reserved(txs[0].Changes[0].Ref.Queue) {
		return f.Storage.Apply(ctx, call, txs...) // records of the audit do not fail
	}
	if f.good--; f.good < 0 && f.fails != nil {
		if f.passes {
			_, _ = f.Storage.Apply(ctx, call, txs...)
		}
		return nil, f.fails
	}
	return f.Storage.Apply(ctx, call, txs...)
}

func (f *faulty) Configure(ctx context.Context, call storage.Call, queue string, settings storage.Settings) error {
	if f.good--; f.good < 0 && f.fails != nil {
		return f.fails
	}
	return f.Storage.Configure(ctx, call, queue, settings)
}

func (f *faulty) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	if f.away {
		return nil, storage.ErrUnavailable
	}
	if f.hangs {
		close(f.hung)
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", storage.ErrUnavailable, context.Cause(ctx))
	}
	return f.Storage.Stats(ctx, queues...)
}

// many fills a queue with 300 tasks, which is more than one call changes.
func (r *rig) many() {
	r.t.Helper()
	for from := range 3 {
		var tx storage.Tx
		for i := range 100 {
			tx.Inserts = append(tx.Inserts, storage.Insert{
				Ref: storage.Ref{Queue: "bulk", ID: fmt.Sprintf("t%d%02d", from, i)}, Kind: "send_mail", Encoding: "json",
				Payload: []byte("{}"), CrashLimit: 3,
			})
		}
		if _, err := r.session.ApplyOne(r.t.Context(), tx); err != nil {
			r.t.Fatal(err)
		}
	}
}

// backup returns a file with the tasks of many.
func (r *rig) backup() string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "backup")
	r.ok("task rm --queue bulk --yes --backup " + path)
	return path
}

// ending is a command line, the fault of the storage during it, and its result.
type ending struct {
	line  string
	fault faulty
	code  int
	says  string
}

// force runs the line. If only a part of it may have been done, force runs the line again without the
// fault.
func (c *ending) force(r *rig) {
	r.t.Helper()
	r.night()
	line := c.line
	if strings.Contains(line, "bulk") || strings.Contains(line, "BACKUP") {
		r.many()
	}
	if strings.Contains(line, "BACKUP") {
		line = strings.ReplaceAll(line, "BACKUP", r.backup())
	}
	fault := c.fault
	fault.Storage, fault.hung = r.store, make(chan struct{})
	r.store = &fault
	ctx, stop := context.WithCancel(r.t.Context())
	defer stop()
	if c.code == Interrupted {
		go func() { <-fault.hung; stop() }()
	}
	r.ctx = ctx
	r.says(c.code, c.says, line)
	if r.ctx = nil; c.code == Partly && fault.fails != nil || c.code == Unknown {
		fault.fails = nil
		r.says(Done, "", line)
	}
}

// TestEachExitCode produces each exit code of the table in docs/operating.md.
func TestEachExitCode(t *testing.T) {
	forced := make(map[int]bool)
	for _, c := range []ending{
		{line: "queue ls", code: Done},
		{line: "doctor", code: Failed, says: "The schedule nightly is orphaned"},
		{line: "queue ls --nope", code: BadInput, says: "unknown flag: --nope"},
		{line: "queue rm mail", code: BadInput, says: "give --yes"},
		{line: "task show mail/none", code: NotFound, says: `midge: task "mail/none" not found`},
		{line: "task edit mail/a1 --in 2h", code: Refused, says: "mail/a1: "},
		{line: "task add x", fault: faulty{fails: storage.ErrFull}, code: Refused, says: "storage: full\nnext: midge doctor\n"},
		{line: "task cancel --queue bulk --yes", fault: faulty{good: 1, fails: storage.ErrUnavailable}, code: Partly, says: "matched 300, cancelled 200"},
		{line: "task restore BACKUP --yes", fault: faulty{good: 1, fails: storage.ErrUnavailable}, code: Partly, says: "100 of 300 tasks enqueued"},
		{line: "queue pause mail bulk", fault: faulty{good: 1, fails: storage.ErrUnavailable}, code: Partly, says: "1 of 2 queues"},
		{line: "queue rm bulk --yes", fault: faulty{good: 1, fails: storage.ErrUnavailable}, code: Partly, says: "200 of 300 records deleted"},
		{line: "task cancel mail/b1 mail/a1 --yes", code: Partly, says: "matched 2, cancelled 1"},
		{line: "task cancel --queue bulk --yes", fault: faulty{good: 1, fails: storage.ErrUnknown, passes: true}, code: Unknown, says: "next: the same command again"},
		{line: "queue pause mail bulk", fault: faulty{good: 1, fails: storage.ErrUnknown}, code: Unknown, says: "1 of 2 queues paused, then: storage: outcome unknown\nnext: midge queue ls"},
		{line: "queue rm bulk --yes", fault: faulty{good: 1, fails: storage.ErrUnknown}, code: Unknown, says: "next: midge queue show bulk"},
		{line: "task add x --id one", fault: faulty{fails: storage.ErrUnknown}, code: Unknown, says: "the same line with --id one"},
		{line: "queue ls", fault: faulty{away: true}, code: Unreachable, says: "cannot be reached"},
		{line: "task add x", fault: faulty{fails: storage.ErrUnavailable}, code: Unreachable, says: "cannot be reached"},
		{line: "queue ls --timeout 50ms", fault: faulty{hangs: true}, code: TimedOut, says: "answers, or give it longer by --timeout"},
		{line: "queue ls", fault: faulty{hangs: true}, code: Interrupted, says: "interrupted"},
	} {
		synctest.Test(t, func(t *testing.T) { c.force(newRig(t)) }) // failing calls are repeated for a while
		forced[c.code] = true
	}
	text, err := os.ReadFile("../../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(text), -1) {
		code, err := strconv.Atoi(row[1])
		if err != nil || !forced[code] {
			t.Errorf("code %s of the table is forced by no line, %v", row[1], err)
		}
		delete(forced, code)
	}
	if len(forced) > 0 {
		t.Errorf("the codes %v are not in the table", forced)
	}
}
