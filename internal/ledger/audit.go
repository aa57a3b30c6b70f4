package ledger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

// AuditQueue is the queue that holds the records of the audit.
const AuditQueue = storage.ReservedQueues + "audit"

// Audit keeps the actions of people. It is safe for concurrent use.
type Audit struct {
	store   storage.Storage
	session *storage.Session
	begun   atomic.Int64 // counts actions; it starts at a random number

	first       sync.Once
	told, asked time.Time // the storage's time and this machine's time at the first action

	mu      sync.Mutex     // guards the fields below
	late    map[author]int // how many records of BeginLate are not written yet
	waiting []Entry        // those of them whose actions have ended: Flush writes them
}

// MaxWaiting bounds the records of BeginLate that are not written yet. Each author has a tenth of them.
const MaxWaiting = 1000

// NewAudit returns the audit of a storage. It does no I/O.
func NewAudit(store storage.Storage) *Audit {
	a := &Audit{store: store, session: storage.NewSession(store, 0)}
	a.begun.Store(rand.Int64N(trimEach))
	return a
}

// Action is an action under way.
type Action struct {
	audit    *Audit
	entry    Entry
	records  []Entry   // several if one has no room for all tasks that the action names
	versions []int64   // of the records
	late     bool      // its records are not written yet
	reached  time.Time // when Begin or Reached wrote last
}

// Entry is the action without its outcome.
func (action *Action) Entry() Entry { return action.entry }

// Late reports whether the record of the action waits in memory: see BeginLate.
func (action *Action) Late() bool { return action != nil && action.late }

// recordsAtOnce is how many records share a Tx, which has room for 4 MiB.
const recordsAtOnce = 100

// Begin writes what is about to be done. If Begin fails, the caller must not do the action. Texts are cut to
// the room that a record has; no task that the entry names is left out.
func (a *Audit) Begin(ctx context.Context, e Entry) (*Action, error) {
	action, steady, err := a.intend(ctx, e)
	if err != nil {
		return nil, err
	}
	action.reached = time.Now()
	for some := range slices.Chunk(action.records, recordsAtOnce) {
		inserts := make([]storage.Insert, len(some))
		for i := range some {
			if inserts[i], err = insertOf(&some[i]); err != nil {
				return nil, err
			}
		}
		applied, err := a.session.ApplyOne(ctx, storage.Tx{Inserts: inserts})
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		for _, placed := range applied.Inserted {
			action.versions = append(action.versions, placed.Version)
		}
	}
	if a.begun.Add(1)%trimEach == 0 {
		_ = a.trim(ctx, steady, trimFrom) // the action matters more, and a later action tries again
	}
	_ = a.Flush(ctx) // there is room again; else a later action tries again
	return action, nil
}

// intend makes the action of an entry. It returns the storage's time, as of earlier.
func (a *Audit) intend(ctx context.Context, e Entry) (*Action, time.Time, error) {
	now, err := a.session.Now(ctx)
	if err != nil {
		return nil, now, fmt.Errorf("audit: %w", err)
	}
	e.At, e.Ended, e.Outcome, e.Count, e.Stopped, e.Error = now.UTC(), time.Time{}, Intended, 0, "", ""
	e.clean()
	records, err := e.split()
	return &Action{audit: a, entry: e, records: records}, a.earlier(now), err
}

// BeginLate begins an action that makes room in a full storage, which takes no record of it. The record waits
// in the memory of this process, until Flush can write it. If MaxWaiting records wait, or a tenth of them are
// of the same author, BeginLate fails with [storage.ErrFull].
func (a *Audit) BeginLate(ctx context.Context, e Entry) (*Action, error) {
	action, _, err := a.intend(ctx, e)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	more, all := len(action.records), 0
	for _, n := range a.late {
		all += n
	}
	by := action.entry.author()
	if all+more > MaxWaiting || a.late[by]+more > MaxWaiting/10 {
		return nil, fmt.Errorf("audit: %d records wait for room, %d of them by %s: %w", all, a.late[by], by.who,
			storage.ErrFull)
	}
	if a.late == nil {
		a.late = make(map[author]int)
	}
	a.late[by] += more
	action.late = true
	return action, nil
}

// Waiting is how many records wait for room.
func (a *Audit) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting)
}

// Flush writes the records that wait for room, the oldest first, until the storage refuses one.
func (a *Audit) Flush(ctx context.Context) error {
	for {
		a.mu.Lock()
		if len(a.waiting) == 0 {
			a.mu.Unlock()
			return nil
		}
		e := a.waiting[0]
		a.mu.Unlock()
		insert, err := insertOf(&e)
		if err == nil {
			insert.OnConflict = storage.Skip // two calls of Flush may write the same record
			_, err = a.session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{insert}})
		}
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		a.mu.Lock()
		if len(a.waiting) > 0 && a.waiting[0].ID == e.ID {
			a.waiting = a.waiting[1:]
			if a.late[e.author()]--; a.late[e.author()] == 0 {
				delete(a.late, e.author())
			}
		}
		a.mu.Unlock()
	}
}

// earlier returns the storage's time. If the storage's clock has jumped ahead since the first action of this
// process, it returns the time that the clock would show without the jump, so that a clock that is ahead for
// a while deletes no actions.
func (a *Audit) earlier(now time.Time) time.Time {
	a.first.Do(func() { a.told, a.asked = now, time.Now() })
	if reckoned := a.told.Add(time.Since(a.asked)); reckoned.Before(now) {
		return reckoned
	}
	return now
}

// reachedEach is the least time between two writes of Reached.
const reachedEach = 10 * time.Second

// Reached writes how many tasks the action has changed so far, at most once in ten seconds. If the process
// ends before the action does, the record stays Intended and has that count. An action with several records,
// and one whose record waits for room, have no such count. The Reached of a nil Action does nothing. A write
// that fails is left to a later call.
func (action *Action) Reached(ctx context.Context, count int) {
	if action == nil || action.late || len(action.records) != 1 || time.Since(action.reached) < reachedEach {
		return
	}
	action.reached = time.Now()
	e := action.records[0]
	e.Count = count
	payload, err := e.encoded()
	if err != nil || action.sure(ctx) != nil {
		return
	}
	version := action.versions[0]
	action.versions[0] = 0
	applied, err := action.audit.session.ApplyOne(ctx, storage.Tx{Changes: []storage.Change{{
		Ref: storage.Ref{Queue: AuditQueue, ID: e.ID}, Version: version, Encoding: "json", Payload: payload,
	}}})
	if err == nil {
		action.versions[0] = applied.Changed[0].Version
	}
}

// sure reads the version of the action's first record, if it is not known because a Reached failed.
func (action *Action) sure(ctx context.Context) error {
	if len(action.versions) == 0 || action.versions[0] != 0 {
		return nil
	}
	t, err := action.audit.store.Task(ctx, storage.Ref{Queue: AuditQueue, ID: action.records[0].ID})
	action.versions[0] = t.Version
	return err
}

// End writes how the action ended. A crash in between leaves some records Intended if there are more than
// recordsAtOnce of them. The End of a nil Action does nothing, for callers without an audit.
func (action *Action) End(ctx context.Context, end Ending) error {
	if action == nil {
		return nil
	}
	now, err := action.audit.session.Now(ctx)
	if err != nil && !action.late {
		return fmt.Errorf("audit: %w", err)
	}
	changed := make(map[string]bool, len(end.IDs))
	for _, id := range end.IDs {
		changed[id] = true
	}
	changes := make([]storage.Change, len(action.records))
	ended := slices.Clone(action.records)
	for i := range ended {
		e := &ended[i]
		if err := e.finish(now, &end, changed, len(ended) == 1); err != nil {
			return err
		}
		payload, err := e.encoded()
		if err != nil {
			return err
		}
		changes[i] = storage.Change{Ref: storage.Ref{Queue: AuditQueue, ID: e.ID}, Encoding: "json", Payload: payload}
	}
	if action.late {
		action.audit.mu.Lock()
		action.audit.waiting = append(action.audit.waiting, ended...)
		action.audit.mu.Unlock()
		_ = action.audit.Flush(ctx) // the action may have made room; else a later Flush writes the record
		return nil
	}
	if err := action.sure(ctx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for i := range changes {
		changes[i].Version = action.versions[i]
	}
	for some := range slices.Chunk(changes, recordsAtOnce) {
		if _, err := action.audit.session.ApplyOne(ctx, storage.Tx{Changes: some}); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

// List returns a page of actions, the newest first. after is the next that the page before returned, "" for
// the first page. limit is the size of the page, 1 to 200, or 0 for 50. A record that cannot be read is
// listed with its id and the outcome Damaged.
func (a *Audit) List(ctx context.Context, after string, limit int) (actions []Entry, next string, err error) {
	page, err := a.store.Tasks(ctx, storage.TasksQuery{
		Queue: AuditQueue, State: storage.Scheduled, After: after, Limit: limit,
	})
	if err != nil {
		return nil, "", fmt.Errorf("audit: %w", err)
	}
	for i := range page.Tasks {
		actions = append(actions, entryOf(&page.Tasks[i]))
	}
	return actions, page.Next, nil
}
