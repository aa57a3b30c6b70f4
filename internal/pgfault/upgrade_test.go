package pgfault

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// TestAnUpgradeLosesNothing upgrades an application whose processes run this version. While
// they work, a process of the next version migrates and works beside them. They are restarted
// beside it, it takes over, and then a process of this version comes back. Every acknowledged
// job must run, and Stats must agree.
func TestAnUpgradeLosesNothing(t *testing.T) {
	testserver.RequirePostgres(t)
	cfg := fresh(t, postgres.Config{})
	store, _ := opened(t, cfg)
	fleet := &fleet{T: t, cfg: cfg, programs: programs(t)}

	one, two := fleet.start("this"), fleet.start("this")
	fleet.works(one, two)
	next := fleet.start("next", "-migrate")
	fleet.works(one, two, next)
	two.stop()
	two = fleet.start("this", "-migrate") // its migration finds nothing to do
	fleet.works(one, two, next)
	one.stop()
	two.stop()
	fleet.works(next)
	one = fleet.start("this")
	next.stop()
	fleet.works(one)

	one.quieten()
	testserver.Await(t, "all that is left has run", func() bool {
		stats, err := store.Stats(t.Context(), "default")
		return err == nil && stats[0].Live() == 0
	})
	one.stop()
	fleet.check(store)
	served := value[int](t, connect(t, cfg.URL), "SELECT count(*) FROM "+cfg.Schema+".functions")
	if served != 2 {
		t.Errorf("the schema serves %d versions, want both", served)
	}
}

// programs builds peer in this version and in the next one, and returns the paths.
func programs(t *testing.T) map[string]string {
	t.Helper()
	dir, built := t.TempDir(), make(map[string]string)
	for name, tags := range map[string]string{"this": "", "next": "midge_next"} {
		built[name] = filepath.Join(dir, name)
		cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", tags, "-o", built[name], "./peer")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	return built
}

// fleet is an application of several processes, and the lines that they printed.
type fleet struct {
	*testing.T

	cfg      postgres.Config
	programs map[string]string

	mu       sync.Mutex // guards the fields below
	enqueued map[string]bool
	ran      map[string]int
}

// peer is a process of a fleet.
type peer struct {
	fleet *fleet
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when all its output was read
	quiet chan struct{} // closed when it enqueues nothing more

	mu    sync.Mutex // guards the fields below
	lines int
}

// start starts a process of a version.
func (f *fleet) start(version string, more ...string) *peer {
	f.Helper()
	args := append([]string{"-url", f.cfg.URL, "-schema", f.cfg.Schema}, more...)
	p := &peer{fleet: f, cmd: exec.CommandContext(f.Context(), f.programs[version], args...), ended: make(chan struct{})}
	p.quiet = make(chan struct{})
	var failed strings.Builder
	p.cmd.Stderr = &failed
	in, err := p.cmd.StdinPipe()
	succeed(f, err)
	p.in = in
	out, err := p.cmd.StdoutPipe()
	succeed(f, err)
	succeed(f, p.cmd.Start())
	go func() { // ends with the process
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.said(lines.Text())
		}
		if err := p.cmd.Wait(); err != nil && f.Context().Err() == nil {
			f.Errorf("a process of the %s version: %v\n%s", version, err, failed.String())
		}
	}()
	return p
}

// said records a line that the process printed.
func (p *peer) said(line string) {
	p.mu.Lock()
	p.lines++
	p.mu.Unlock()
	verb, id, _ := strings.Cut(line, " ")
	f := p.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ran == nil {
		f.enqueued, f.ran = make(map[string]bool), make(map[string]int)
	}
	switch verb {
	case "enqueued":
		f.enqueued[id] = true
	case "ran":
		f.ran[id]++
	case "quiet":
		close(p.quiet)
	}
}

// works waits until each of the processes has enqueued and run more jobs.
func (f *fleet) works(peers ...*peer) {
	f.Helper()
	for _, p := range peers {
		begin := p.count()
		testserver.Await(f, "a process enqueues and runs jobs", func() bool {
			select {
			case <-p.ended:
				f.Fatal("it has ended")
			default:
			}
			return p.count() > begin+500
		})
	}
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// quieten makes a process stop enqueueing, and waits until it has.
func (p *peer) quieten() {
	p.fleet.Helper()
	_, err := io.WriteString(p.in, "\n")
	succeed(p.fleet, err)
	select {
	case <-p.quiet:
	case <-p.ended:
		p.fleet.Fatal("a process ended before it was quiet")
	}
}

// stop ends a process and waits while its jobs finish.
func (p *peer) stop() {
	p.fleet.Helper()
	succeed(p.fleet, p.in.Close())
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		p.fleet.Fatal("a process does not end")
	}
}

// check compares the output of the processes with the storage.
func (f *fleet) check(store *postgres.Storage) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.enqueued {
		switch n := f.ran[id]; {
		case n == 0:
			f.Errorf("job %s was acknowledged and never ran", id)
		case n > 1:
			f.Errorf("job %s ran %d times, and no process has died", id, n)
		}
	}
	stats, err := store.Stats(f.Context(), "default")
	succeed(f, err)
	got := stats[0]
	if n := int64(len(f.enqueued)); got.Totals.Enqueued != n || got.Totals.Completed != n || got.Damaged != 0 || got.Dead != 0 {
		f.Errorf("got %+v, want %d enqueued and completed", got, n)
	}
	if len(f.enqueued) == 0 {
		f.Error("nothing was enqueued")
	}
}
