//go:build unix

package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// fleet is a test's worker processes on one storage, and the test's own view of it.
type fleet struct {
	t       *testing.T
	server  *server
	dialing dialing
	dir     string
	store   storage.Storage // direct, past every proxy
	client  *midge.Client
	skew    time.Duration // of the client's clock
	rec     *recorder     // of the test process itself

	mu      sync.Mutex // guards what follows
	workers []*worker
	records []*record
	open    []string // gates
	sorted  history  // of all records, as last read
}

// newFleet opens the storage at a place of the test's own.
func newFleet(t *testing.T, s *server) *fleet {
	t.Helper()
	f := &fleet{t: t, server: s, dialing: s.place(t), dir: t.TempDir()}
	var err error
	if f.store, err = f.dialing.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.end()
		_ = f.store.Close()
	})
	f.rec, err = newRecorder("test", f.recordFile("test"))
	must(t, err)
	t.Cleanup(func() { _ = f.rec.close() })
	f.client, err = midge.NewClient(newLedger(f.store, f.rec), midge.ClientConfig{})
	must(t, err)
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recordFile adds the file of a process to the records that are read.
func (f *fleet) recordFile(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := filepath.Join(f.dir, name+".jsonl")
	f.records = append(f.records, &record{path: path})
	return path
}

// worker is a worker process from the outside.
type worker struct {
	name  string
	cfg   workerConfig
	cmd   *exec.Cmd
	pid   int
	stdin io.WriteCloser
	log   string
	done  chan struct{} // closed when it has ended; then state says how
	state *os.ProcessState

	mu     sync.Mutex // guards what follows
	killed bool       // by the test, or as its configuration says
	told   bool       // to end
}

// start starts a worker. What its configuration leaves out is filled in.
func (f *fleet) start(cfg workerConfig) *worker {
	f.t.Helper()
	f.mu.Lock()
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("worker%d", len(f.workers)+1)
	}
	f.mu.Unlock()
	cfg.Events = f.recordFile(cfg.Name)
	if cfg.Storage.Addrs == nil {
		cfg.Storage = f.dialing
	}
	w := &worker{name: cfg.Name, cfg: cfg, log: filepath.Join(f.dir, cfg.Name+".log"), done: make(chan struct{})}
	w.killed = cfg.Death.Call > 0 || cfg.Mortal
	if err := w.launch(); err != nil {
		f.t.Fatalf("start worker %s: %v", w.name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers = append(f.workers, w)
	for _, gate := range f.open {
		w.open(gate)
	}
	return w
}

// launch starts the process on a thread of its own, as the kernel sends the signal
// of a parent's death when the thread ends that started the child.
func (w *worker) launch() error {
	config, err := json.Marshal(w.cfg)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(w.log)
	if err != nil {
		return err
	}
	w.cmd = exec.Command(self)
	w.cmd.Env = append(os.Environ(), envWorker+"="+string(config),
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // else a program with the race detector sleeps before it ends
	w.cmd.Stdout, w.cmd.Stderr = log, log
	tieToParent(w.cmd)
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	started := make(chan error)
	go func() { // ends with the process
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := w.cmd.Start()
		if err == nil {
			w.pid = w.cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		_ = w.cmd.Wait() // how it ended is in its state
		w.state = w.cmd.ProcessState
		close(w.done)
	}()
	return <-started
}

// open opens a gate in the worker. One that has ended needs none.
func (w *worker) open(gate string) { _, _ = fmt.Fprintf(w.stdin, "open %s\n", gate) }

// signal sends a signal to the worker.
func (w *worker) signal(sig syscall.Signal) { _ = w.cmd.Process.Signal(sig) }

// kill ends the worker as a crash would and waits until it is gone.
func (w *worker) kill() {
	w.mu.Lock()
	w.killed = true
	w.mu.Unlock()
	w.signal(syscall.SIGKILL)
	<-w.done
}

// freeze stops the worker where it stands; thaw lets it go on.
func (w *worker) freeze() { w.signal(syscall.SIGSTOP) }
func (w *worker) thaw()   { w.signal(syscall.SIGCONT) }

// terminate asks the worker to drain and end.
func (w *worker) terminate() {
	w.mu.Lock()
	w.told = true
	w.mu.Unlock()
	w.signal(syscall.SIGTERM)
}

// failed reports whether the worker ended otherwise than it was made to. SIGTERM ends
// one that has not come to listen for it.
func (w *worker) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	status, _ := w.state.Sys().(syscall.WaitStatus)
	asked := w.killed || w.told && status.Signaled() && status.Signal() == syscall.SIGTERM
	return !asked && w.state.ExitCode() != 0
}

// ended waits until the worker has ended by itself and gives how long that took.
func (w *worker) ended(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	begun := time.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		t.Errorf("%s still runs after %v, want an end", w.name, limit)
		w.kill()
	}
	return time.Since(begun)
}

// letThrough opens a gate in all workers, those to come too.
func (f *fleet) letThrough(gate string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, gate)
	for _, w := range f.workers {
		w.open(gate)
	}
}

// end stops all workers, and fails the test where one ended otherwise than it was
// made to: by a panic, or because of a data race.
func (f *fleet) end() {
	f.mu.Lock()
	workers := slices.Clone(f.workers)
	f.mu.Unlock()
	for _, w := range workers {
		select {
		case <-w.done:
		default:
			w.kill()
		}
		_ = w.stdin.Close()
		log, _ := os.ReadFile(w.log)
		if w.failed() || strings.Contains(string(log), "DATA RACE") {
			f.t.Errorf("%s ended with %v; its log:\n%s", w.name, w.state, tail(log, 20_000))
		} else if f.t.Failed() {
			f.t.Logf("log of %s (%v):\n%s", w.name, w.state, tail(log, 4_000))
		}
	}
}

func tail(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }

// history gives all events of all processes so far, by time.
func (f *fleet) history() history {
	f.t.Helper()
	f.mu.Lock()
	records := slices.Clone(f.records)
	f.mu.Unlock()
	var all history
	for _, r := range records {
		events, err := r.read()
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, events...)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(all) != len(f.sorted) {
		slices.SortStableFunc(all, func(a, b event) int { return a.At.Compare(b.At) })
		f.sorted = all
	}
	return f.sorted
}

// await looks at the events until a condition holds, and gives them.
func (f *fleet) await(what string, limit time.Duration, holds func(h history) bool) history {
	f.t.Helper()
	var h history
	if !poll(limit, func() bool { h = f.history(); return holds(h) }) {
		f.t.Fatalf("waited %v, and still not: %s", limit, what)
	}
	return h
}

// awaitWhat waits for n events of a kind of a worker; "" means any worker.
func (f *fleet) awaitWhat(worker, what string, n int, limit time.Duration) history {
	f.t.Helper()
	return f.await(fmt.Sprintf("%d × %s of %q", n, what, worker), limit, func(h history) bool {
		return len(h.of(what).by(worker)) >= n
	})
}

// poll looks at a condition until it holds or the limit has passed, which is longer on a
// busy machine, and reports whether it holds.
func poll(limit time.Duration, holds func() bool) bool {
	begun := time.Now()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for !holds() {
		if took := time.Since(begun); took > limit && took > machine.Stretch(limit, begun) {
			return false
		}
		<-every.C
	}
	return true
}

// enqueue enqueues a job and records the call.
func (f *fleet) enqueue(queue, id string, job any, opts ...midge.Option) storage.Ref {
	f.t.Helper()
	ref, err := enqueue(f.t.Context(), f.client, f.rec, queue, id, job, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	return ref
}

// enqueue enqueues a job under an id and records the call.
func enqueue(ctx context.Context, c *midge.Client, rec *recorder, queue, id string, job any, opts ...midge.Option) (storage.Ref, error) {
	ref := storage.Ref{Queue: queue, ID: id}
	from := time.Now()
	rec.record(event{What: enqueueBegun, Ref: ref, At: from})
	task, err := c.Enqueue(ctx, job, append(opts, midge.To(queue), midge.ID(id))...)
	done := event{What: enqueued(err), Ref: ref, From: from, Err: text(err)}
	if !task.Existing {
		done.Fence = task.Version
	}
	rec.record(done)
	return ref, err
}
