package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// logoutQueue is the queue that holds the logouts: a task for each user who has logged out, which is never
// due.
const logoutQueue = storage.ReservedQueues + "logouts"

const (
	// logoutsEach is for how long the logouts of a user that were read from the storage are believed.
	logoutsEach = 5 * time.Second
	// logoutsTimeout limits each read and each write of logouts. A storage that does not answer ends no session.
	logoutsTimeout = time.Second
	// mostLogouts limits the logouts of a user that are kept one by one.
	mostLogouts = 100
	// logoutsKept is how long a logout is kept after its session is over, because the clocks of two processes
	// may differ.
	logoutsKept = time.Hour
)

// logouts knows the sessions that a logout has ended before they were over: in this process, which
// access.Users remembers, or in another process of a dashboard of the same storage. It is safe for concurrent
// use.
type logouts struct {
	session  *storage.Session
	log      *slog.Logger
	readOnly bool // writes nothing

	mu    sync.Mutex
	users map[string]*userLogouts // by name
}

// userLogouts is what this process knows of the logouts of a user.
type userLogouts struct {
	stored endedSessions
	asked  time.Time // when stored was read, or could not be read
	own    []int64   // ends of sessions that are not in the storage yet
}

// endedSessions are the sessions of a user that a logout has ended. A session is known by the moment at which
// it is over, in microseconds since 1970.
type endedSessions struct {
	Ends []int64 `json:"ends"`
	// Before stands for all sessions that are over at that moment or earlier.
	Before int64 `json:"before,omitempty"`
}

func (e *endedSessions) has(until int64) bool {
	return until <= e.Before || slices.Contains(e.Ends, until)
}

// add adds sessions, and forgets those that are over. A user with too many logouts loses the sessions that
// are as old as the oldest of them.
func (e *endedSessions) add(now time.Time, ends []int64) {
	past := max(e.Before, now.Add(-logoutsKept).UnixMicro())
	all := slices.Concat(e.Ends, ends)
	all = slices.DeleteFunc(all, func(until int64) bool { return until <= past })
	slices.Sort(all)
	all = slices.Compact(all)
	if over := len(all) - mostLogouts; over > 0 {
		e.Before, all = all[over-1], all[over:]
	}
	e.Ends = all
}

// ofLocked returns what is known of a user.
func (l *logouts) ofLocked(name string) *userLogouts {
	if l.users == nil {
		l.users = map[string]*userLogouts{}
	}
	if l.users[name] == nil {
		l.users[name] = &userLogouts{}
	}
	return l.users[name]
}

// ended reports whether a logout has ended a session. While the storage does not answer, it knows the logouts
// that it knew before.
func (l *logouts) ended(ctx context.Context, name string, until time.Time) bool {
	l.mu.Lock()
	u := l.ofLocked(name)
	stale := time.Since(u.asked) >= logoutsEach
	if stale && !u.asked.IsZero() {
		u.asked = time.Now() // other requests need not wait: they believe what is known
	}
	l.mu.Unlock()
	if stale {
		l.read(ctx, name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ofLocked(name).stored.has(until.UnixMicro())
}

// read reads the logouts of a user. The viewer whose request waits for it cannot cut it short, because the
// logouts count as read even if the storage does not answer.
func (l *logouts) read(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logoutsTimeout)
	defer cancel()
	began := time.Now()
	var stored endedSessions
	t, err := l.session.Storage().Task(ctx, logoutOf(name))
	if err == nil {
		err = json.Unmarshal(t.Payload, &stored)
	}
	l.mu.Lock()
	u := l.ofLocked(name)
	if u.asked = began; err == nil {
		u.stored = stored
	}
	l.mu.Unlock()
	if err == nil || errors.Is(err, storage.ErrNotFound) {
		l.flush(ctx)
	}
}

// end notes that a logout has ended a session, and writes it to the storage.
func (l *logouts) end(ctx context.Context, name string, until time.Time) {
	if l.readOnly {
		return
	}
	l.mu.Lock()
	u := l.ofLocked(name)
	u.own = append(u.own, until.UnixMicro())
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logoutsTimeout)
	defer cancel()
	if err := l.write(ctx, name); err != nil {
		text := "midge: a logout holds in this process alone until the storage takes it"
		l.log.LogAttrs(ctx, slog.LevelWarn, text, slog.String("user", name), slog.Any("error", err))
	}
}

// flush writes the logouts that the storage did not take.
func (l *logouts) flush(ctx context.Context) {
	var names []string
	l.mu.Lock()
	for name, u := range l.users {
		if len(u.own) > 0 {
			names = append(names, name)
		}
	}
	l.mu.Unlock()
	for _, name := range names {
		if l.write(ctx, name) != nil {
			return // a later flush tries again
		}
	}
}

// write writes the logouts of a user that are not in the storage yet.
func (l *logouts) write(ctx context.Context, name string) error {
	l.mu.Lock()
	own := slices.Clone(l.ofLocked(name).own)
	l.mu.Unlock()
	var stored endedSessions
	encoded := func(t storage.Task) []byte {
		stored = endedSessions{}
		_ = json.Unmarshal(t.Payload, &stored) // a damaged record begins anew
		stored.add(time.Now(), own)
		text, _ := json.Marshal(&stored) //nolint:errchkjson // cannot fail: numbers alone
		return text
	}
	err := l.session.ChangeTask(ctx, logoutOf(name), func(t storage.Task) (storage.Change, error) {
		return storage.Change{Encoding: "json", Payload: encoded(t)}, nil
	})
	if errors.Is(err, storage.ErrNotFound) {
		_, err = l.session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{{
			Ref: logoutOf(name), Kind: "midge.logouts", CrashLimit: 1, At: neverDue,
			Encoding: "json", Payload: encoded(storage.Task{}),
		}}})
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.ofLocked(name)
	u.stored = stored
	u.own = slices.DeleteFunc(u.own, func(until int64) bool { return slices.Contains(own, until) })
	return nil
}

// neverDue is so far ahead that no task with it is claimed.
var neverDue = time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC)

// logoutOf returns the ref of the logouts of a user, whose name may have signs that an id may not have.
func logoutOf(name string) storage.Ref {
	return storage.Ref{Queue: logoutQueue, ID: storage.UniqueKey([]byte(name))}
}
