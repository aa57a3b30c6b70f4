package modernc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// serve carries out the calls that its input names, and prints "done" or the error of each. It closes the
// storage at the end of its input.
func serve(ctx context.Context, s *side) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var err error
		switch action, id, _ := strings.Cut(lines.Text(), " "); action {
		case "insert":
			err = s.insert(ctx, id)
		case "add": // without a session, which would describe the storage at first
			err = s.addAlone(ctx, id)
		case "reopen": // the id is the path
			_ = s.store.Close()
			var next *sqlite.Storage
			if next, err = modernc.Open(ctx, id); err == nil {
				s = &side{store: next, session: storage.NewSession(next, patience)}
			}
		case "describe":
			_, err = s.store.Describe(ctx)
		}
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("done")
		}
	}
	return s.store.Close()
}

// servant is a process that has a file open and carries out calls.
type servant struct {
	*testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startServant(t *testing.T, path string) *servant {
	t.Helper()
	p := &servant{T: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childEnv+"=serve "+path)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.in, p.out = in, bufio.NewScanner(out)
	must(t, p.cmd.Start())
	return p
}

// wants has the process carry out a call, and expects a text in its answer.
func (p *servant) wants(call, want string) {
	p.Helper()
	_, err := fmt.Fprintln(p.in, call)
	must(p, err)
	if !p.out.Scan() || !strings.Contains(p.out.Text(), want) {
		p.Fatalf("%s: got %q, want %q", call, p.out.Text(), want)
	}
}

// kill kills the process.
func (p *servant) kill() {
	p.Helper()
	must(p, p.cmd.Process.Kill())
	_ = p.cmd.Wait() // it was killed
}

// end has the process close the file, and waits for its end.
func (p *servant) end() {
	p.Helper()
	must(p, p.in.Close())
	must(p, p.cmd.Wait())
}

// TestProcessesWhoseIndexWasRemovedStop removes the index of the log under an open handle, and opens another
// handle, which makes a new one: the two see neither each other's locks nor commits. The first one refuses
// each call, and its end takes nothing from the other one.
func TestProcessesWhoseIndexWasRemovedStop(t *testing.T) {
	path := file(t)
	old := startServant(t, path)
	old.wants("insert a", "done")
	must(t, os.Remove(path+"-shm"))
	next := open(t, path)
	must(t, next.insert(t.Context(), "b"))
	old.wants("insert lost", "restart all processes")
	old.wants("describe", "restart all processes")
	must(t, next.insert(t.Context(), "c"))
	must(t, next.store.Close())
	old.end()
	next = open(t, path)
	for _, id := range []string{"a", "b", "c"} {
		if got := next.state(t, id); got != storage.Waiting {
			t.Errorf("%s is %q, want it waiting", id, got)
		}
	}
}

// TestNothingIsWrittenBesideANewIndex removes the index of the log under a process that has never
// described the file, so that Describe tries whether the file has space. The trial must not overwrite the
// commits of another process with the new index, nor may the process open the file again.
func TestNothingIsWrittenBesideANewIndex(t *testing.T) {
	path := file(t)
	old := startServant(t, path)
	old.wants("add a", "done")
	must(t, os.Remove(path+"-shm"))
	next := startServant(t, path)
	next.wants("add b", "done")
	next.wants("add c", "done")
	old.wants("add lost", "restart all processes")
	old.wants("describe", "restart all processes")
	for range 3 {
		old.wants("reopen "+path, "restart all processes")
	}
	next.wants("add d", "done")
	next.kill()
	old.kill()
	s := open(t, path)
	for _, id := range []string{"a", "b", "c", "d"} {
		if got := s.state(t, id); got != storage.Waiting {
			t.Errorf("%s is %q, want it waiting", id, got)
		}
	}
}

// TestAnIndexThatIsBackIsUsed moves the index away under an open handle, and back.
func TestAnIndexThatIsBackIsUsed(t *testing.T) {
	path := file(t)
	s := open(t, path)
	must(t, s.insert(t.Context(), "a"))
	must(t, os.Rename(path+"-shm", path+".aside"))
	wantProblem(t, s.insert(t.Context(), "lost"), sqlite.Moved)
	_, err := modernc.Open(t.Context(), path)
	wantProblem(t, err, sqlite.Moved)
	must(t, os.Rename(path+".aside", path+"-shm"))
	must(t, s.insert(t.Context(), "b"))
	must(t, open(t, path).insert(t.Context(), "c"))
}

// TestOpenRefusesAFileWhoseLogWasRemoved: the index of the log is there, and may be in use.
func TestOpenRefusesAFileWhoseLogWasRemoved(t *testing.T) {
	path := file(t)
	s := open(t, path)
	must(t, s.insert(t.Context(), "a"))
	must(t, os.Rename(path+"-wal", path+".old"))
	_, err := modernc.Open(t.Context(), path)
	wantProblem(t, err, sqlite.Moved)
	if !strings.Contains(err.Error(), "remove jobs.db-shm") {
		t.Errorf("got %v, want an error that says what to do", err)
	}
	must(t, os.Rename(path+".old", path+"-wal"))
	if got := open(t, path).state(t, "a"); got != storage.Waiting {
		t.Errorf("with the log back, a is %q, want it waiting", got)
	}
}

// TestOpenRefusesALogWithoutItsFile: SQLite would begin with an empty file, and remove the log.
func TestOpenRefusesALogWithoutItsFile(t *testing.T) {
	path := file(t)
	p := startServant(t, path)
	p.wants("insert a", "done")
	p.kill()
	must(t, os.Rename(path, path+".away"))
	_, err := modernc.Open(t.Context(), path)
	wantProblem(t, err, sqlite.Moved)
	if !strings.Contains(err.Error(), "put it back beside its log, jobs.db-wal") {
		t.Errorf("got %v, want an error that says what to do", err)
	}
	must(t, os.Rename(path+".away", path))
	if got := open(t, path).state(t, "a"); got != storage.Waiting {
		t.Errorf("with the file back, a is %q, want it waiting", got)
	}
}

// TestOpenFindsACopyThatIsMalformed copies a file with a page as it was before, as a copy has it that was
// made during a checkpoint. Open refuses the copies in which an index does not fit its table, or a page is
// lost.
func TestOpenFindsACopyThatIsMalformed(t *testing.T) {
	const copies = 20
	path := file(t)
	s := open(t, path)
	s.insertMany(t, 3000)
	must(t, s.store.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	s = open(t, path)
	all, err := s.claimLong(t.Context(), 1000)
	must(t, err)
	for i := range all.Fences {
		must(t, s.complete(t.Context(), all.Fences[i]))
	}
	must(t, s.store.Close())
	after, err := os.ReadFile(path)
	must(t, err)
	var changed []int
	for i := 4096; i+4096 <= min(len(before), len(after)); i += 4096 {
		if string(before[i:i+4096]) != string(after[i:i+4096]) {
			changed = append(changed, i)
		}
	}
	refused := 0
	for n := range copies {
		i := changed[n*len(changed)/copies]
		torn := t.TempDir() + "/torn.db"
		must(t, os.WriteFile(torn, slices.Concat(after[:i], before[i:i+4096], after[i+4096:]), 0o600))
		copied, err := modernc.Open(t.Context(), torn)
		if err != nil {
			wantProblem(t, err, sqlite.Broken)
			refused++
			continue
		}
		must(t, copied.Close())
		wantSound(t, torn)
	}
	if refused < copies/2 {
		t.Errorf("%d of %d copies were refused, want most: a test that proves little", refused, copies)
	}
}
