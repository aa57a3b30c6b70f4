package modernc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

const (
	takers    = 4   // the processes of a cell
	refusals  = 10  // how often a process is refused before it makes no more calls
	seeds     = 100 // the tasks that are in the file, and not only in its log
	takenAcks = 60  // how many acknowledgements come before something happens to a file
)

// ready is the line that a process of persist prints once it has opened the file.
const ready = "ready"

// persist enqueues, claims and completes like work, from the first line of its input on, and goes on after
// errors, as a runner does. It prints "f PID problem: text" for a *FileError, and "x text" for another error.
// It closes the storage at the end of its input; after it was refused often, it only waits for that.
func persist(ctx context.Context, s *side) error {
	fmt.Println(ready)
	in, over := bufio.NewReader(os.Stdin), make(chan struct{})
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	go func() { // until the end of the input or of the process
		defer close(over)
		_, _ = io.Copy(io.Discard, in)
	}()
	refused := 0
	failed := func(err error) bool {
		var problem *sqlite.FileError
		switch {
		case errors.As(err, &problem):
			refused++
			fmt.Printf("f %d %s: %q\n", os.Getpid(), problem.Problem, err.Error())
		case err != nil && !errors.Is(err, storage.ErrLeaseLost):
			fmt.Printf("x %q\n", err.Error())
		}
		return err != nil
	}
	for i := 0; refused < refusals && !ended(over); i++ {
		id := fmt.Sprintf("%d-%d", os.Getpid(), i)
		if !failed(s.insert(ctx, id)) {
			fmt.Println("e", id)
		}
		claimed, err := s.claim(ctx, 2)
		failed(err)
		for _, fence := range claimed.Fences {
			if !failed(s.complete(ctx, fence)) {
				fmt.Println("d", fence.ID)
			}
		}
	}
	<-over
	return s.store.Close()
}

// ended reports whether a channel is closed.
func ended(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// cell is one thing that happens to the database ("file"), to its log or to the index of its log, while four
// processes work. They close the file afterwards, or are killed.
type cell struct {
	file, action string
	killed       bool
}

func (c cell) String() string {
	if c.killed {
		return c.file + " " + c.action + ", then killed"
	}
	return c.file + " " + c.action
}

func (c cell) path(path string) string { return path + strings.TrimPrefix(c.file, "file") }

// actions are the things that happen to a file. Replacing renames another file into the place, as mv and
// editors do. Truncating changes the file itself, as a redirection of the shell does. The system checks modes
// when a file is opened, and not for root; a file that is immutable refuses each write, if the test may
// make it so.
var actions = map[string]func(t *testing.T, name, aside string){
	"removed": func(t *testing.T, name, aside string) { // the test keeps it, to put it back
		t.Helper()
		must(t, os.Rename(name, aside))
	},
	"emptied": func(t *testing.T, name, aside string) {
		t.Helper()
		must(t, os.Rename(name, aside))
		must(t, os.WriteFile(name, nil, 0o600))
	},
	"copied": func(t *testing.T, name, aside string) {
		t.Helper()
		content, err := os.ReadFile(name)
		must(t, err)
		must(t, os.WriteFile(aside+".copy", content, 0o600))
		must(t, os.Rename(name, aside))
		must(t, os.Rename(aside+".copy", name))
	},
	"read-only": func(t *testing.T, name, _ string) {
		t.Helper()
		must(t, os.Chmod(name, 0o400))
		if chattr("+i", name) {
			t.Cleanup(func() { chattr("-i", name) })
		}
	},
	"truncated": func(t *testing.T, name, _ string) {
		t.Helper()
		must(t, os.Truncate(name, 0))
	},
}

// chattr sets or removes an attribute of a file. It reports whether the system and the user allow that.
func chattr(change, name string) bool { return exec.Command("chattr", change, name).Run() == nil }

// remedies are texts of which a refusal has one.
var remedies = map[string][]string{
	"file": {"put it back under its name, or restart the processes", "put a backup in its place"},
	"-wal": {"put it back under its name; or stop all processes", "restart all processes"},
	"-shm": {"restart all processes"},
}

// mayGoOn reports whether processes may go on: they lose nothing then. A file is not written, or an index not
// opened, while the log takes the commits; and SQLite mends an index that is empty.
func (c cell) mayGoOn() bool {
	return c.action == "read-only" || c.action == "truncated" && c.file != "file"
}

// TestAFileThatIsTakenFromProcesses takes one of the three files from four processes, in each way. Each
// process is refused with an error that names the remedy, or goes on and loses nothing. With the file put
// back each acknowledged task is there; without it, the tasks that the other files have.
func TestAFileThatIsTakenFromProcesses(t *testing.T) {
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			path := file(t)
			s := open(t, path)
			for i := range seeds {
				must(t, s.insert(t.Context(), fmt.Sprintf("seed-%d", i)))
			}
			must(t, s.store.Close())
			l := &takenLedger{ledger: ledger{enqueued: make(map[string]int), done: make(map[string]int)}}
			l.run(t, c, path)
			l.check(t, c)
		})
	}
}

// allCells returns each file with each action, and both ends of the processes.
func allCells() (all []cell) {
	for _, file := range []string{"file", "-wal", "-shm"} {
		for _, action := range slices.Sorted(maps.Keys(actions)) {
			all = append(all, cell{file, action, false}, cell{file, action, true})
		}
	}
	return all
}

// TestACheckpointThatTruncatesTheLogIsNoDamage: Litestream makes such checkpoints.
func TestACheckpointThatTruncatesTheLogIsNoDamage(t *testing.T) {
	path := file(t)
	s := open(t, path)
	other := startServant(t, path)
	var want []string
	for i := range 100 {
		id := fmt.Sprint(i)
		want = append(want, id, "other-"+id)
		must(t, s.insert(t.Context(), id))
		execute(t, path, "PRAGMA wal_checkpoint(TRUNCATE)")
		other.wants("insert other-"+id, "done")
		if i%3 == 0 {
			execute(t, path, "PRAGMA wal_checkpoint(TRUNCATE)")
		}
	}
	other.end()
	for _, id := range want {
		if got := s.state(t, id); got != storage.Waiting {
			t.Errorf("%s is %q, want it waiting", id, got)
		}
	}
}

// takenLedger is the output of the processes of a cell, and which tasks are there afterwards.
type takenLedger struct {
	ledger

	lost int // tasks that were acknowledged and are not there
}

// refused returns the processes that were refused.
func (l *takenLedger) refused() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	pids := make(map[string]bool)
	for _, line := range l.failed {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "f" {
			pids[f[1]] = true
		}
	}
	return pids
}

// workers returns the number of processes that have enqueued a task.
func (l *takenLedger) workers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	pids := make(map[string]bool)
	for id := range l.enqueued {
		pid, _, _ := strings.Cut(id, "-")
		pids[pid] = true
	}
	return len(pids)
}

// opened returns the number of processes that have opened the file.
func (l *takenLedger) opened() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.failed {
		if line == ready {
			n++
		}
	}
	return n
}

// run starts the processes, lets the thing of a cell happen, ends the processes, and opens the file by the
// steps that the errors name.
func (l *takenLedger) run(t *testing.T, c cell, path string) {
	t.Helper()
	aside := filepath.Join(t.TempDir(), "aside")
	end := l.startAll(t, c, path)
	await(t, "each process works", func() bool { return l.acknowledged() > takenAcks && l.workers() == takers })
	actions[c.action](t, c.path(path), aside)
	more := l.acknowledged() + takenAcks
	await(t, "each process is refused", func() bool {
		return len(l.refused()) == takers || c.mayGoOn() && l.acknowledged() > more
	})
	end()
	if c.action == "read-only" {
		other, err := modernc.Open(t.Context(), path)
		if err == nil { // modes do not bind this user
			must(t, other.Close())
		} else {
			wantProblem(t, err, sqlite.ReadOnly)
		}
		if immutable := chattr("-i", c.path(path)); immutable && err == nil {
			t.Error("Open accepts a file that cannot be written")
		}
		must(t, os.Chmod(c.path(path), 0o600))
	}
	without := filepath.Join(t.TempDir(), "jobs.db")
	must(t, os.CopyFS(filepath.Dir(without), os.DirFS(filepath.Dir(path))))
	l.reopenWithout(t, c, without)
	if _, err := os.Stat(aside); err == nil {
		must(t, os.Rename(aside, c.path(path)))
		if lost := l.missing(t, open(t, path)); len(lost) > 0 {
			t.Errorf("with the file put back, tasks are lost: %q", lost)
		}
		wantSound(t, path)
	}
}

// startAll starts the processes, which begin to work once each has opened the file. The result ends them, as
// the cell has it, and reads the rest that they print.
func (l *takenLedger) startAll(t *testing.T, c cell, path string) (end func()) {
	t.Helper()
	var read sync.WaitGroup
	ends, ins := make([]func(), 0, 2*takers), make([]io.Writer, 0, takers)
	for range takers {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"=persist "+path)
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		cmd.Stderr = cmd.Stdout
		must(t, cmd.Start())
		read.Go(func() { l.read(out) })
		ins = append(ins, in)
		ends = append(ends, func() {
			if c.killed {
				_ = cmd.Process.Kill() // it may have ended
			}
			_ = in.Close()
		}, func() { _ = cmd.Wait() })
	}
	await(t, "each process has opened the file", func() bool { return l.opened() == takers })
	for _, in := range ins {
		_, err := fmt.Fprintln(in)
		must(t, err)
	}
	return func() {
		for i := 0; i < len(ends); i += 2 {
			ends[i]()
		}
		read.Wait()
		for i := 1; i < len(ends); i += 2 {
			ends[i]()
		}
	}
}

// reopenWithout opens the remaining files, as the errors advise: without the index if the log was taken.
// Open refuses it with a typed error, or it is sound and has the tasks of the files that are left.
func (l *takenLedger) reopenWithout(t *testing.T, c cell, path string) {
	t.Helper()
	if c.file == "-wal" && c.action != "read-only" {
		must(t, os.RemoveAll(path+"-shm"))
	}
	next, err := modernc.Open(t.Context(), path)
	if err != nil {
		var problem *sqlite.FileError
		if !errors.As(err, &problem) || c.file == "-shm" || c.action == "read-only" || c.action == "copied" {
			t.Errorf("Open of the files that are left: %v", err)
		}
		return
	}
	s := &side{store: next, session: storage.NewSession(next, 0)}
	lost := l.missing(t, s)
	l.lost = len(lost)
	must(t, next.Close())
	wantSound(t, path)
	if c.file == "-shm" && len(lost) > 0 {
		t.Errorf("without the index, tasks are lost: %q", lost)
	}
	if i := slices.IndexFunc(lost, func(id string) bool { return strings.HasPrefix(id, "seed") }); i >= 0 {
		t.Errorf("the file has lost %s and %d more", lost[i], len(lost)-1)
	}
}

// missing returns the acknowledged tasks that are not there.
func (l *takenLedger) missing(t *testing.T, s *side) (lost []string) {
	t.Helper()
	for i := range seeds {
		if id := fmt.Sprintf("seed-%d", i); s.state(t, id) == "" {
			lost = append(lost, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.enqueued)) {
		if s.state(t, id) == "" {
			lost = append(lost, id)
		}
	}
	return lost
}

// check reads the errors of the processes, and whether a process went on and lost tasks.
func (l *takenLedger) check(t *testing.T, c cell) {
	t.Helper()
	says := remedies[c.file]
	if c.action == "read-only" {
		says = []string{"let this process write the file"}
	}
	for _, line := range l.failed {
		waited := strings.HasPrefix(line, "x ") && // on a busy machine
			(strings.Contains(line, "write lock") || strings.Contains(line, "patience is over"))
		known := line == ready || waited
		for _, text := range says {
			known = known || strings.HasPrefix(line, "f ") && strings.Contains(line, text)
		}
		if !known {
			t.Errorf("a process printed %q, want a *FileError that says one of %q", line, says)
		}
	}
	refused := len(l.refused())
	if refused < takers && l.lost > 0 {
		t.Errorf("%d processes went on, and %d tasks are lost", takers-refused, l.lost)
	}
	t.Logf("%d of %d processes were refused; of %d acknowledged tasks %d are lost without the file",
		refused, takers, len(l.enqueued)+seeds, l.lost)
}
