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
	// lookSoon is when the storage looks at what others committed after an event: what was written is
	// committed a moment later, of which the system tells nothing.
	lookSoon = 2 * time.Millisecond
	// lookPause is the least time between two looks, and lookLast the longest before the last of those that
	// follow an event: each pause is twice the one before.
	lookPause = 5 * time.Millisecond
	lookLast  = 80 * time.Millisecond
	// lookBusy is the longest pause while others write without a pause, and ring for nobody here.
	lookBusy = 15 * time.Millisecond
	// lookEvery is how often the storage looks where the system tells it of nothing.
	lookEvery = time.Second
	// heardFor is for how long a queue that nobody has waited for is looked at.
	heardFor = time.Minute
	// verifyEvery is how often a process looks whether the counts of a queue that it claims from hide tasks.
	verifyEvery = 60_000_000 // microseconds
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
	verified      int64 // when its counts were looked at
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

// isUnverified reports whether it is time to look at the counts of a queue, which it then takes as done.
func (r *rings) isUnverified(name string, now int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[name]
	if q == nil || now-q.verified < verifyEvery && now >= q.verified {
		return false
	}
	q.verified = now
	return true
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

// learn compares what a queue says with what was known of it, and rings where it rang since, which it
// reports. What is learnt of a queue first may be news, or not.
func (r *rings) learn(events *wakeup.Stream, name string, rings, alerts int64) (rang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[name]
	if q == nil { // of this process: others are not looked at
		events.Ring(true, name)
		return true
	}
	if rang = !q.known || rings != q.rings; rang { // fewer where the queue was made anew
		events.Ring(!q.known || alerts != q.alerts, name)
	}
	q.rings, q.alerts, q.known = rings, alerts, true
	return rang
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
// is closed. Between an event and the look that follows it takes no other: the system makes one of those that
// are alike, where a process that writes without a pause would wake this one for each page.
func (s *Storage) watchFile(watcher *fsnotify.Watcher) {
	log, events := filepath.Base(s.path)+"-wal", watcher.Events
	pause, stirred := lookEvery, false
	look := time.NewTimer(pause)
	defer look.Stop()
	for {
		var name string
		select {
		case <-s.background.Done():
			return
		case <-look.C:
			rang := s.lookForOthers()
			switch {
			case rang || pause < lookPause:
				pause = lookPause
			case stirred:
				pause = min(2*pause, lookBusy)
			case pause < lookLast:
				pause *= 2
			default:
				pause = lookEvery
			}
			events, stirred = watcher.Events, false
			look.Reset(pause)
			continue
		case ev := <-events:
			name = filepath.Base(ev.Name)
		case _, open := <-watcher.Errors: // events were lost
			if !open {
				return
			}
			name = log
		}
		switch {
		case name != log:
		case pause <= lookBusy: // the next look comes soon enough
			events, stirred = nil, true
		default:
			events, pause = nil, lookSoon
			look.Reset(pause)
		}
	}
}

// lookForOthers rings for what other connections committed since the last look, and reports whether there
// was something. It stands back while this process writes: its own steps may take long, and the next event
// comes with them.
func (s *Storage) lookForOthers() (rang bool) {
	wr, err := s.acquire(s.background)
	if err != nil {
		return false // the next look tries again
	}
	w := s.newWork(context.WithoutCancel(s.background), wr.conn, wr.stmts)
	defer func() { s.release(wr, w.err == nil || s.isBusy(w.err)) }()
	var seen int64
	if !w.one("PRAGMA data_version", nil, &seen) || seen == wr.seen {
		return false
	}
	names := s.rings.names()
	var rings, alerts int64
	for _, name := range names {
		if w.one("SELECT rings, alerts FROM {p}queues WHERE name = ?", []any{name}, number{to: &rings},
			number{to: &alerts}) {
			rang = s.rings.learn(&s.events, name, rings, alerts) || rang
		}
	}
	if w.err == nil {
		wr.seen = seen
	}
	return rang
}
