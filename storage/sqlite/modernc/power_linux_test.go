package modernc_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

const (
	powerCuts = 100
	sector    = 512
)

// operation is a change of a file by a process, or a text that the process printed.
type operation struct {
	file string // the name of the file; "" for a printed text
	at   int64
	data []byte // written
	size int64  // to which it was truncated; -1 for none
	sync bool
}

// These expressions match the calls of a process in a trace of strace, without the quoted data.
var (
	tracedWrite = regexp.MustCompile(`^\d+ +pwrite64\(\d+<([^>]+)>, , \d+, (\d+)\) += (\d+)`)
	tracedSync  = regexp.MustCompile(`^\d+ +(?:fsync|fdatasync)\(\d+<([^>]+)>\) += 0`)
	tracedTrunc = regexp.MustCompile(`^\d+ +ftruncate\(\d+<([^>]+)>, (\d+)\) += 0`)
	tracedSaid  = regexp.MustCompile(`^\d+ +write\(1<[^>]*>, , \d+\) += \d+`)
)

// parse reads a trace. A call that is interrupted by another thread's call stands in two lines.
func parse(t *testing.T, trace []byte, dir string) (ops []operation) {
	t.Helper()
	unfinished := make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(trace))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		line := lines.Text()
		pid, _, _ := strings.Cut(line, " ")
		if begun, cut := strings.CutSuffix(line, " <unfinished ...>"); cut {
			unfinished[pid] = begun
			continue
		}
		if _, rest, resumed := strings.Cut(line, " resumed>"); resumed {
			line = unfinished[pid] + rest
		}
		op := operation{size: -1}
		path := ""
		head, rest, _ := strings.Cut(line, `"`)
		data, tail, _ := strings.Cut(rest, `"`)
		line = head + tail
		if m := tracedWrite.FindStringSubmatch(line); m != nil {
			path = m[1]
			op.at, _ = strconv.ParseInt(m[2], 10, 64)
			n, _ := strconv.Atoi(m[3])
			op.data = unescape(t, data)[:n]
		} else if m := tracedSync.FindStringSubmatch(line); m != nil {
			path, op.sync = m[1], true
		} else if m := tracedTrunc.FindStringSubmatch(line); m != nil {
			path = m[1]
			op.size, _ = strconv.ParseInt(m[2], 10, 64)
		} else if tracedSaid.MatchString(line) {
			op.data = unescape(t, data)
			ops = append(ops, op)
			continue
		}
		if name := string(unescape(t, path)); filepath.Dir(name) == dir {
			op.file = filepath.Base(name)
			ops = append(ops, op)
		}
	}
	must(t, lines.Err())
	return ops
}

// unescape reads a text in which strace wrote each byte in hexadecimal.
func unescape(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	must(t, err)
	return data
}

// disk holds the contents of files, by name.
type disk map[string][]byte

// apply carries out an operation. Of a write it keeps the sectors for which keep reports true, and all if keep
// is nil.
func (d disk) apply(op operation, keep func() bool) {
	content := d[op.file]
	if op.size >= 0 {
		d[op.file] = append(content[:min(int64(len(content)), op.size)], make([]byte, max(op.size-int64(len(content)), 0))...)
		return
	}
	for begin := int64(0); begin < int64(len(op.data)); {
		at := op.at + begin
		end := int64(len(op.data))
		if keep != nil {
			end = min(begin+sector-at%sector, end)
		}
		if keep == nil || keep() {
			if grow := op.at + end - int64(len(content)); grow > 0 {
				content = append(content, make([]byte, grow)...)
			}
			copy(content[at:], op.data[begin:end])
		}
		begin = end
	}
	d[op.file] = content
}

// cut returns the contents of a disk after a power cut behind so many operations: all that was synced, and
// of each later operation all, nothing or some sectors. said has the acknowledgements of the process before
// the cut.
func cut(ops []operation, behind int) (d disk, said string) {
	synced := make(map[string]int)
	for i, op := range ops[:behind] {
		if op.sync {
			synced[op.file] = i
		}
	}
	d = make(disk)
	for i, op := range ops[:behind] {
		switch choice := rand.IntN(3); {
		case op.file == "":
			said += string(op.data)
		case op.sync:
		case i < synced[op.file], choice == 0:
			d.apply(op, nil)
		case choice == 1:
			d.apply(op, func() bool { return rand.IntN(2) == 0 })
		}
	}
	return d, said
}

// TestAPowerCutLosesNothing records the writes of a process to its file, and replays it up to many
// moments, as a disk may hold it after a power cut at that moment. Each time the file opens and holds
// every acknowledged task.
func TestAPowerCutLosesNothing(t *testing.T) {
	path := file(t)
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-y", "-xx", "-s", "1000000", "-o", trace,
		"-e", "trace=pwrite64,fsync,fdatasync,ftruncate,write", os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=write "+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("strace (tools/need-servers.sh installs it): %v\n%s", err, out)
	}
	text, err := os.ReadFile(trace)
	must(t, err)
	ops := parse(t, text, filepath.Dir(path))
	writes, syncs := 0, 0
	for _, op := range ops {
		if op.sync {
			syncs++
		} else if op.file != "" {
			writes++
		}
	}
	if syncs < powerTasks || writes < 2*syncs {
		t.Fatalf("recorded %d writes and %d fsyncs of %d tasks: want one fsync for each at least", writes, syncs, powerTasks)
	}
	begun := slices.IndexFunc(ops, func(op operation) bool { return op.file == "" })
	acknowledged := 0
	for range powerCuts {
		behind := begun + rand.IntN(len(ops)-begun) + 1
		d, said := cut(ops, behind)
		acknowledged += wantAfterCut(t, d, said)
		if t.Failed() {
			t.Fatalf("after a power cut behind %d of %d operations", behind, len(ops))
		}
	}
	t.Logf("%d cuts of %d writes and %d fsyncs: %d acknowledgements held", powerCuts, writes, syncs, acknowledged)
}

// wantAfterCut opens the file on a disk, and searches for the acknowledged tasks.
func wantAfterCut(t *testing.T, d disk, said string) (acknowledged int) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.db")
	for name, content := range d {
		// SQLite makes the first anew from the log, and deleted the second before the first task.
		if !strings.HasSuffix(name, "-shm") && !strings.HasSuffix(name, "-journal") {
			must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
	}
	s := open(t, path)
	want := make(map[string]storage.State)
	for line := range strings.Lines(said) {
		switch what, id, _ := strings.Cut(strings.TrimSpace(line), " "); what {
		case "e":
			want[id] = ""
		case "d":
			want[id] = storage.Completed
		}
	}
	for id, state := range want {
		if got := s.state(t, id); got == "" || state != "" && got != state {
			t.Errorf("task %s: got %q, want it, and %q", id, got, state)
		}
	}
	must(t, s.store.Close())
	wantSound(t, path)
	return len(want)
}
