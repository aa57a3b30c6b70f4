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

// fleet holds a test's worker processes on one storage, and the test's own connection to
// that storage.
type fleet struct {
	t       *testing.T
	server  *server
	dialing dialing
	dir     string
	store   storage.Storage // opened without a proxy
	client  *midge.Client
	skew    time.Duration // how far the client's clock is ahead
	rec     *recorder     // records the events of the test process itself

	mu      sync.Mutex // guards workers, records and open
	workers []*worker
	records []*record
	open    []string // gates that are open

	reading sync.Mutex // held while records are read; guards sorted
	sorted  history    // the events of all records, as last read
}

// newFleet opens the storage at a place that only this test uses.
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
	f.client, err = midge.NewClient(newRecordingStorage(f.store, f.rec), midge.ClientConfig{Patience: loadPatience})
	must(t, err)
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recordFile returns the path of the record of a process and adds it to the records that
// history reads.
func (f *fleet) recordFile(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := filepath.Join(f.dir, name+".jsonl")
	f.records = append(f.records, &record{path: path})
	return path
}

// worker is the test's handle of a worker process.
type worker struct {
	name  string
	cfg   workerConfig
	cmd   *exec.Cmd
	pid   int
	stdin io.WriteCloser
	log   string
	done  chan struct{} // closed when the process has ended; state is set by then
	state *os.ProcessState

	mu         sync.Mutex // guards the fields below
	killed     bool       // by the test, or by itself as its configuration allows
	terminated bool       // asked to end with SIGTERM
}

// start starts a worker. It fills in the fields of the configuration that are not set.
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
	w.killed = cfg.KillAt.Call > 0 || cfg.MayDie
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

// launch starts the process from a goroutine that keeps its thread, because the kernel
// sends the parent-death signal when the thread that started the child ends.
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
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // else the race detector sleeps at exit
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
		_ = w.cmd.Wait() // state holds the exit status
		w.state = w.cmd.ProcessState
		close(w.done)
	}()
	return <-started
}

// open opens a gate in the worker. It ignores the error of a worker that has ended.
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

// freeze stops the process with SIGSTOP; resume lets it continue.
func (w *worker) freeze() { w.signal(syscall.SIGSTOP) }
func (w *worker) resume() { w.signal(syscall.SIGCONT) }

// terminate asks the worker to drain and end.
func (w *worker) terminate() {
	w.mu.Lock()
	w.terminated = true
	w.mu.Unlock()
	w.signal(syscall.SIGTERM)
}

// failed reports whether the worker ended otherwise than the test asked. SIGTERM kills a
// worker that has not yet installed its signal handler, which is no failure.
func (w *worker) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	status, _ := w.state.Sys().(syscall.WaitStatus)
	asked := w.killed || w.terminated && status.Signaled() && status.Signal() == syscall.SIGTERM
	return !asked && w.state.ExitCode() != 0
}

// ended waits until the worker has ended by itself and returns how long that took. After
// the limit, which is longer on a busy machine, it fails the test and kills the worker.
func (w *worker) ended(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	begun := time.Now()
	for wait := limit; wait > 0; wait = machine.Stretch(limit, begun) - time.Since(begun) {
		select {
		case <-w.done:
			return time.Since(begun)
		case <-time.NewTimer(wait).C:
		}
	}
	t.Errorf("%s still runs after %v, want an end", w.name, time.Since(begun))
	w.kill()
	return time.Since(begun)
}

// letThrough opens a gate in all workers, including workers that are started later.
func (f *fleet) openGate(gate string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, gate)
	for _, w := range f.workers {
		w.open(gate)
	}
}

// end stops all workers. It fails the test if a worker ended otherwise than the test
// asked, for example by a panic, or if it reported a data race.
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
	f.reading.Lock()
	defer f.reading.Unlock()
	for _, r := range f.records {
		r.close()
	}
}

func tail(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }

// history returns all events of all processes so far, sorted by time.
func (f *fleet) history() history {
	f.t.Helper()
	f.mu.Lock()
	records := slices.Clone(f.records)
	f.mu.Unlock()
	f.reading.Lock()
	defer f.reading.Unlock()
	var news history
	for _, r := range records {
		events, err := r.read()
		must(f.t, err)
		news = append(news, events...)
	}
	f.sorted = f.sorted.with(news)
	return f.sorted
}

// with returns the events of a history and further ones, most of which are later. It does not
// change the array of h, which callers may still use.
func (h history) with(news history) history {
	if len(news) == 0 {
		return h
	}
	byTime := func(a, b *event) int { return a.At.Compare(b.At) }
	slices.SortStableFunc(news, byTime)
	sure := len(h) // the events that stay in their places
	for sure > 0 && h[sure-1].At.After(news[0].At) {
		sure--
	}
	all := slices.Concat(h, news)
	slices.SortStableFunc(all[sure:], byTime)
	return all
}

// await polls the events until a condition holds, and returns them. It fails the test
// after the limit.
func (f *fleet) await(what string, limit time.Duration, holds func(h history) bool) history {
	f.t.Helper()
	var h history
	if !poll(limit, func() bool { h = f.history(); return holds(h) }) {
		f.t.Fatalf("%[2]s: not so after %[1]v", limit, what)
	}
	return h
}

// awaitWhat waits for n events of a kind from a worker; "" means any worker.
func (f *fleet) awaitWhat(worker, what string, n int, limit time.Duration) history {
	f.t.Helper()
	return f.await(fmt.Sprintf("%d × %s of %q", n, what, worker), limit, func(h history) bool {
		return len(h.of(what).by(worker)) >= n
	})
}

// poll checks a condition until it holds or the limit has passed, and reports whether it
// holds. On a busy machine the limit is longer. A check that takes long is repeated less often,
// because the processes that the test waits for need the processors too.
func poll(limit time.Duration, holds func() bool) bool {
	for begun := time.Now(); ; {
		checked := time.Now()
		if holds() {
			return true
		}
		if took := time.Since(begun); took > limit && took > machine.Stretch(limit, begun) {
			return false
		}
		<-time.NewTimer(min(max(25*time.Millisecond, 10*time.Since(checked)), 200*time.Millisecond)).C
	}
}

// enqueue enqueues a job and records the call. It fails the test on an error.
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
