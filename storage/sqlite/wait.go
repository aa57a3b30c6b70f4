package sqlite

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

const (
	// lookPause is the least time between two looks at what others committed.
	lookPause = 5 * time.Millisecond
	// lookLast is the longest pause before a look that follows an event: what was written is committed
	// a moment later, of which the system tells nothing.
	lookLast = 80 * time.Millisecond
	// lookEvery is how often the storage looks where the system tells it of nothing.
	lookEvery = time.Second
	// heardFor is for how long a queue that nobody has waited for is looked at.
	heardFor = time.Minute
)

// rings are how often queues rang, as far as this process knows: those that somebody waited for of late.
type rings struct {
	mu     sync.Mutex // guards what follows; no I/O under it
	queues map[string]*rang
}

// rang is how often a queue rang, and how often as an alert.
type rang struct {
	rings, alerts int64
	known         bool
	asked         time.Time
}

// since gives the number of the last event, and has queues looked at from now on.
func (r *rings) since(events *wakeup.Stream, queues []storage.ClaimQueue) storage.Since {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range queues {
		r.ask(queues[i].Name, now)
	}
	return events.Since()
}

// ask has a queue looked at. The caller holds mu.
func (r *rings) ask(name string, now time.Time) {
	q := r.queues[name]
	if q == nil {
		if r.queues == nil {
			r.queues = make(map[string]*rang)
		}
		q = new(rang)
		r.queues[name] = q
	}
	q.asked = now
}

// names gives the queues to be looked at, and forgets those that nobody has asked for.
func (r *rings) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, q := range r.queues {
		if time.Since(q.asked) > heardFor {
			delete(r.queues, name)
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// learn compares what a queue says with what was known of it, and rings where it rang since. What is learnt
// of a queue first may be news, or not.
func (r *rings) learn(events *wakeup.Stream, name string, rings, alerts int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[name]
	if q == nil { // of this process: others are not looked at
		events.Ring(true, name)
		return
	}
	if !q.known || rings != q.rings { // fewer where the queue was made anew
		events.Ring(!q.known || alerts != q.alerts, name)
	}
	q.rings, q.alerts, q.known = rings, alerts, true
}

// tell rings for what a transaction did, once it was committed.
func (w *work) tell() {
	for _, q := range w.queues {
		if q != nil && q.rang {
			w.store.rings.learn(&w.store.events, q.Name, q.rings, q.alerts)
		}
	}
}

// Wait returns once there is an event in one of the queues after req.Since.
func (s *Storage) Wait(ctx context.Context, req storage.WaitRequest) error {
	if err := storage.CheckWait(&req); err != nil {
		return err
	}
	s.rings.mu.Lock()
	for _, name := range req.Queues {
		s.rings.ask(name, time.Now())
	}
	s.rings.mu.Unlock()
	return wrap("wait", s.events.Wait(ctx, req))
}

// watch has the file watched, for commits of other processes and of the application's transactions.
func (s *Storage) watch() error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := watcher.Add(filepath.Dir(s.path)); err != nil {
		_ = watcher.Close()
		return err
	}
	s.watching.Go(func() {
		s.watchFile(watcher)
		_ = watcher.Close()
	})
	return nil
}

// watchFile looks at what others committed whenever the file changes, and once a second, until the storage
// is closed.
func (s *Storage) watchFile(watcher *fsnotify.Watcher) {
	log := filepath.Base(s.path) + "-wal"
	slow := time.NewTicker(lookEvery)
	defer slow.Stop()
	again, pause := time.NewTimer(lookEvery), lookPause
	defer again.Stop()
	for {
		select {
		case ev, open := <-watcher.Events:
			if !open {
				return
			}
			if filepath.Base(ev.Name) != log {
				continue
			}
			pause = lookPause
		case _, open := <-watcher.Errors: // events were lost
			if !open {
				return
			}
		case <-again.C:
			pause *= 2
		case <-slow.C:
		case <-s.background.Done():
			return
		}
		s.lookForOthers()
		if pause <= lookLast {
			again.Reset(pause)
		}
		select { // what happens meanwhile is looked at then
		case <-time.After(lookPause):
		case <-s.background.Done():
			return
		}
	}
}

// lookForOthers rings for what other connections committed since the last look. It stands back while this
// process writes: its own steps may take long, and the next event comes with them.
func (s *Storage) lookForOthers() {
	wr, err := s.acquire(s.background)
	if err != nil {
		return // the next look tries again
	}
	w := s.newWork(context.WithoutCancel(s.background), wr.conn, wr.stmts)
	defer func() { s.release(wr, w.err == nil || s.isBusy(w.err)) }()
	var seen int64
	if !w.one("PRAGMA data_version", nil, &seen) || seen == wr.seen {
		return
	}
	names := s.rings.names()
	var rings, alerts int64
	for _, name := range names {
		if w.one("SELECT rings, alerts FROM {p}queues WHERE name = ?", []any{name}, &rings, &alerts) {
			s.rings.learn(&s.events, name, rings, alerts)
		}
	}
	if w.err == nil {
		wr.seen = seen
	}
}
