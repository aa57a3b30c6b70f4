package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// world is a storage whose queues and runners a test invents, and whose pages are in a real storage.
type world struct {
	storage.Storage

	*testing.T

	mu      sync.Mutex
	now     time.Time
	stats   map[string]*storage.Stats
	runners []storage.RunnerInfo
	written int    // bytes
	reads   int    // reads of pages
	reading func() // is called in each read
	hook    func(txs []storage.Tx)
}

// noon is the time at which the clock of a test begins.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, now: noon, stats: make(map[string]*storage.Stats)}
	store, err := memory.Open(memory.Config{Now: w.clock})
	if err != nil {
		t.Fatal(err)
	}
	w.Storage = store
	t.Cleanup(func() { _ = store.Close() })
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// limits replaces the storage of the pages by a storage with these limits.
func (w *world) limits(limits storage.Limits) {
	w.Helper()
	store, err := memory.Open(memory.Config{Now: w.clock, Limits: limits})
	if err != nil {
		w.Fatal(err)
	}
	w.Storage = store
	w.Cleanup(func() { _ = store.Close() })
}

// queue returns the stats of a queue, which a test may change.
func (w *world) queue(name string) *storage.Stats {
	s := w.stats[name]
	if s == nil {
		s = &storage.Stats{Queue: name}
		w.stats[name] = s
	}
	return s
}

func (w *world) Queues(context.Context, storage.QueuesQuery) (storage.QueuesPage, error) {
	return storage.QueuesPage{Names: append(names(w.stats), Queue)}, nil
}

func (w *world) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	var all []storage.Stats
	for _, name := range queues {
		if storage.Reserved(name) {
			s, err := w.Storage.Stats(ctx, name)
			if err != nil {
				return nil, err
			}
			all = append(all, s...)
		} else {
			all = append(all, *w.queue(name))
		}
	}
	return all, nil
}

func (w *world) Runners(context.Context) ([]storage.RunnerInfo, error) { return w.runners, nil }

func (w *world) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	w.mu.Lock()
	w.reads++
	w.mu.Unlock()
	if w.reading != nil {
		w.reading()
	}
	return w.Storage.Task(ctx, ref)
}

func (w *world) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	if w.hook != nil {
		w.hook(txs)
	}
	w.mu.Lock()
	for i := range txs {
		w.written += txs[i].Bytes()
	}
	w.mu.Unlock()
	return w.Storage.Apply(ctx, call, txs...)
}

// write writes the sample of the last minute.
func (w *world) write(l *Ledger) {
	w.Helper()
	if _, err := l.Write(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// writeSteady writes until the storage's clock is steady after a jump.
func (w *world) writeSteady(l *Ledger) {
	w.Helper()
	w.write(l)
	w.pass(steadyAfter)
	w.write(l)
}

// minutes lets n minutes pass. In each minute it calls do, and l writes.
func (w *world) minutes(l *Ledger, n int, do func()) {
	w.Helper()
	for range n {
		w.pass(time.Minute)
		do()
		w.write(l)
	}
}

// pageAt returns the id of the page of minutes at a moment.
func pageAt(at time.Time, part int) string {
	s := stored{of: minutePages, number: at.Unix() / 60 / pageMinutes, part: part}
	return s.id()
}

// read reads a series.
func (w *world) read(from, to time.Time, step time.Duration, queues ...string) *Series {
	w.Helper()
	s, err := New(w).Series(w.Context(), from, to, step, queues...)
	if err != nil {
		w.Fatal(err)
	}
	if len(queues) == 0 {
		w.sums(s, from, to, step)
	}
	return s
}

// sums checks that Sums returns the counts that a Series has of all queues together, and nothing of each
// queue and kind.
func (w *world) sums(of *Series, from, to time.Time, step time.Duration) {
	w.Helper()
	sums, err := New(w).Sums(w.Context(), from, to, step)
	if err != nil {
		w.Fatal(err)
	}
	all := slices.Clone(of.All)
	for i := range all {
		all[i].Waiting = 0
	}
	w.want("the sums", sums.All, all)
	w.want("queues and kinds of the sums", []int{len(sums.Queues), len(sums.Kinds)}, []int{0, 0})
	w.want("deploys and damaged pages of the sums", []any{sums.Deploys, sums.Damaged}, []any{of.Deploys, of.Damaged})
}

// enqueued returns the sum of Enqueued.
func enqueued(points []Point) (sum int64) {
	for i := range points {
		sum += points[i].Enqueued
	}
	return sum
}

func (w *world) want(what string, got, want any) {
	w.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// ran sets the counts that a runner has had since its start, by kind.
func (w *world) ran(runner string, kinds ...vitals.Kind) {
	v := vitals.Vitals{Kinds: kinds}
	at := slices.IndexFunc(w.runners, func(r storage.RunnerInfo) bool { return r.ID == runner })
	if at < 0 {
		at = len(w.runners)
		w.runners = append(w.runners, storage.RunnerInfo{ID: runner, Started: w.now})
	}
	w.runners[at].Vitals = v.Encode()
}

// cancelled returns a context, and the function with which the test ends it.
func cancelled(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}
