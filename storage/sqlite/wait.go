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
	// lookSoon is how long after an event the storage checks the commits of others: the event reports
	// a write, and the commit follows a moment later, without an event.
	lookSoon = 2 * time.Millisecond
	// lookPause is the least pause between two checks. After an event each pause is twice the
	// pause before, until a pause has reached lookLast.
	lookPause = 5 * time.Millisecond
	lookLast  = 80 * time.Millisecond
	// lookBusy is the longest pause while others write without a pause, and ring no queue that is
	// awaited here.
	lookBusy = 15 * time.Millisecond
	// lookEvery is how often the storage checks while the system reports no event.
	lookEvery = time.Second
	// heardFor is how long a queue is checked after somebody last waited for it.
	heardFor = time.Minute
	// verifyEvery is how often a process checks whether the counts of a queue that it claims from
	// hide tasks.
	verifyEvery = 60_000_000 // microseconds
)

// rings holds how often queues rang, as far as this process knows: queues that somebody waited for
// lately.
type rings struct {
	mu     sync.Mutex // guards the fields below; no I/O under it
	queues map[string]*rang
}

// rang is how often a queue rang, and how often for more than work.
type rang struct {
	rings, alerts int64
	known         bool
	asked         time.Time
	verified      int64 // when its counts were verified
}

// since returns the number of the last event for a claim that begins, and makes the storage check its
// queues from now on.
func (r *rings) since(events *wakeup.Stream, req *storage.ClaimRequest) storage.Since {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range req.Queues {
		r.ask(req.Queues[i].Name, now)
	}
	return events.Looking(req)
}

// ask makes the storage check a queue. The caller holds mu.
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

// isUnverified reports whether it is time to verify the counts of a queue, and notes that this is
// done.
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

// names returns the queues to check, and forgets queues for which nobody has asked lately.
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

// learn compares the rings of a queue with those known before. If the queue rang since, it adds an
// event and reports true: the event is own, or Work, and an Alert if another process rang for more
// than work. The first rings that it learns of a queue count as an event, because they may be news.
func (r *rings) learn(events *wakeup.Stream, name string, rings, alerts int64, own wakeup.Event) (rang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[name]
	if q == nil { // rung by this process: of other processes only awaited queues are read
		events.Ring(wakeup.Alert, name)
		return true
	}
	others := alerts
	if own != wakeup.Work {
		others--
	}
	if rang = !q.known || rings != q.rings; rang { // fewer if the queue was made anew
		if !q.known || others != q.alerts {
			own = wakeup.Alert
		}
		events.Ring(own, name)
	}
	q.rings, q.alerts, q.known = rings, alerts, true
	return rang
}

// tell adds the events of a transaction, once it was committed.
func (w *work) tell() {
	for _, q := range w.queues {
		if q != nil && q.rang {
			w.store.rings.learn(&w.store.events, q.Name, q.rings, q.alerts, q.event)
		}
	}
}

// Wait returns once there is an event in one of the queues after req.Since.
func (s *Storage) Wait(ctx context.Context, req storage.WaitRequest) error {
	if err := storage.CheckWait(&req); err != nil {
		return err
	}
	s.rings.mu.Lock()
	for _, name := range req.Names() {
		s.rings.ask(name, time.Now())
	}
	s.rings.mu.Unlock()
	return wrap("wait", s.events.Wait(ctx, req))
}

// watch starts to watch the file, for commits of other processes and of the application's
// transactions.
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

// watchFile checks the commits of others whenever the file changes, and once a second, until the
// storage is closed. Between an event and the check that follows, it receives no other event:
// meanwhile the system merges equal events, while otherwise a process that writes without a pause
// would wake this one for each page.
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
		case pause <= lookBusy: // the next check comes soon enough
			events, stirred = nil, true
		default:
			events, pause = nil, lookSoon
			look.Reset(pause)
		}
	}
}

// lookForOthers adds events for the commits of other connections since the last check, and reports
// whether there were any. It waits while this process writes: own steps may take long, and the next
// event comes with them.
func (s *Storage) lookForOthers() (rang bool) {
	wr, err := s.acquire(s.background)
	if err != nil {
		return false // the next check tries again
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
			rang = s.rings.learn(&s.events, name, rings, alerts, wakeup.Work) || rang
		}
	}
	if w.err == nil {
		wr.seen = seen
	}
	return rang
}
