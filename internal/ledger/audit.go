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

// Audit keeps the acts of people. It is safe for concurrent use.
type Audit struct {
	store   storage.Storage
	session *storage.Session
	begun   atomic.Int64 // counts acts; it starts at a random number

	first       sync.Once
	told, asked time.Time // the storage's time and this machine's time at the first act

	mu      sync.Mutex     // guards the fields below
	late    map[author]int // how many records of BeginLate are not written yet
	waiting []Entry        // those of them whose acts have ended: Flush writes them
}

// MaxWaiting bounds the records of BeginLate that are not written yet. Each author has a tenth of them.
const MaxWaiting = 1000

// NewAudit returns the audit of a storage. It does no I/O.
func NewAudit(store storage.Storage) *Audit {
	a := &Audit{store: store, session: storage.NewSession(store, 0)}
	a.begun.Store(rand.Int64N(trimEach))
	return a
}

// Act is an act under way.
type Act struct {
	audit    *Audit
	entry    Entry
	records  []Entry   // several if one has no room for all tasks that the act names
	versions []int64   // of the records
	late     bool      // its records are not written yet
	reached  time.Time // when Begin or Reached wrote last
}

// Entry is the act without its outcome.
func (act *Act) Entry() Entry { return act.entry }

// Late reports whether the record of the act waits in memory: see BeginLate.
func (act *Act) Late() bool { return act != nil && act.late }

// recordsAtOnce is how many records share a Tx, which has room for 4 MiB.
const recordsAtOnce = 100

// Begin writes what is about to be done. If Begin fails, the caller must not do the act. Texts are cut to the
// room that a record has; no task that the entry names is left out.
func (a *Audit) Begin(ctx context.Context, e Entry) (*Act, error) {
	act, steady, err := a.intend(ctx, e)
	if err != nil {
		return nil, err
	}
	act.reached = time.Now()
	for some := range slices.Chunk(act.records, recordsAtOnce) {
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
			act.versions = append(act.versions, placed.Version)
		}
	}
	if a.begun.Add(1)%trimEach == 0 {
		_ = a.trim(ctx, steady, trimFrom) // the act matters more, and a later act tries again
	}
	_ = a.Flush(ctx) // there is room again; else a later act tries again
	return act, nil
}

// intend makes the act of an entry. It returns the storage's time, as of earlier.
func (a *Audit) intend(ctx context.Context, e Entry) (*Act, time.Time, error) {
	now, err := a.session.Now(ctx)
	if err != nil {
		return nil, now, fmt.Errorf("audit: %w", err)
	}
	e.At, e.Ended, e.Outcome, e.Count, e.Stopped, e.Error = now.UTC(), time.Time{}, Intended, 0, "", ""
	e.clean()
	records, err := e.split()
	return &Act{audit: a, entry: e, records: records}, a.earlier(now), err
}

// BeginLate begins an act that makes room in a full storage, which takes no record of it. The record waits in
// the memory of this process, until Flush can write it. If MaxWaiting records wait, or a tenth of them are of
// the same author, BeginLate fails with [storage.ErrFull].
func (a *Audit) BeginLate(ctx context.Context, e Entry) (*Act, error) {
	act, _, err := a.intend(ctx, e)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	more, all := len(act.records), 0
	for _, n := range a.late {
		all += n
	}
	by := act.entry.author()
	if all+more > MaxWaiting || a.late[by]+more > MaxWaiting/10 {
		return nil, fmt.Errorf("audit: %d records wait for room, %d of them by %s: %w", all, a.late[by], by.who,
			storage.ErrFull)
	}
	if a.late == nil {
		a.late = make(map[author]int)
	}
	a.late[by] += more
	act.late = true
	return act, nil
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

// earlier returns the storage's time. If the storage's clock has jumped ahead since the first act of this
// process, it returns the time that the clock would show without the jump, so that a clock that is ahead for a
// while deletes no acts.
func (a *Audit) earlier(now time.Time) time.Time {
	a.first.Do(func() { a.told, a.asked = now, time.Now() })
	if reckoned := a.told.Add(time.Since(a.asked)); reckoned.Before(now) {
		return reckoned
	}
	return now
}

// reachedEach is the least time between two writes of Reached.
const reachedEach = 10 * time.Second

// Reached writes how many tasks the act has changed so far, at most once in ten seconds. If the process ends
// before the act does, the record stays Intended and has that count. An act with several records, and one whose
// record waits for room, have no such count. The Reached of a nil Act does nothing. A write that fails is left
// to a later call.
func (act *Act) Reached(ctx context.Context, count int) {
	if act == nil || act.late || len(act.records) != 1 || time.Since(act.reached) < reachedEach {
		return
	}
	act.reached = time.Now()
	e := act.records[0]
	e.Count = count
	payload, err := e.encoded()
	if err != nil || act.sure(ctx) != nil {
		return
	}
	version := act.versions[0]
	act.versions[0] = 0
	applied, err := act.audit.session.ApplyOne(ctx, storage.Tx{Changes: []storage.Change{{
		Ref: storage.Ref{Queue: AuditQueue, ID: e.ID}, Version: version, Encoding: "json", Payload: payload,
	}}})
	if err == nil {
		act.versions[0] = applied.Changed[0].Version
	}
}

// sure reads the version of the act's first record, if it is not known because a Reached failed.
func (act *Act) sure(ctx context.Context) error {
	if len(act.versions) == 0 || act.versions[0] != 0 {
		return nil
	}
	t, err := act.audit.store.Task(ctx, storage.Ref{Queue: AuditQueue, ID: act.records[0].ID})
	act.versions[0] = t.Version
	return err
}

// End writes how the act ended. A crash in between leaves some records Intended if there are more than
// recordsAtOnce of them. The End of a nil Act does nothing, for callers without an audit.
func (act *Act) End(ctx context.Context, end Ending) error {
	if act == nil {
		return nil
	}
	now, err := act.audit.session.Now(ctx)
	if err != nil && !act.late {
		return fmt.Errorf("audit: %w", err)
	}
	changed := make(map[string]bool, len(end.IDs))
	for _, id := range end.IDs {
		changed[id] = true
	}
	changes := make([]storage.Change, len(act.records))
	ended := slices.Clone(act.records)
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
	if act.late {
		act.audit.mu.Lock()
		act.audit.waiting = append(act.audit.waiting, ended...)
		act.audit.mu.Unlock()
		_ = act.audit.Flush(ctx) // the act may have made room; else a later Flush writes the record
		return nil
	}
	if err := act.sure(ctx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for i := range changes {
		changes[i].Version = act.versions[i]
	}
	for some := range slices.Chunk(changes, recordsAtOnce) {
		if _, err := act.audit.session.ApplyOne(ctx, storage.Tx{Changes: some}); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

// List returns a page of acts, the newest first. after is the next that the page before returned, "" for the
// first page. limit is the size of the page, 1 to 200, or 0 for 50. A record that cannot be read is listed
// with its id and the outcome Damaged.
func (a *Audit) List(ctx context.Context, after string, limit int) (acts []Entry, next string, err error) {
	page, err := a.store.Tasks(ctx, storage.TasksQuery{
		Queue: AuditQueue, State: storage.Scheduled, After: after, Limit: limit,
	})
	if err != nil {
		return nil, "", fmt.Errorf("audit: %w", err)
	}
	for i := range page.Tasks {
		acts = append(acts, entryOf(&page.Tasks[i]))
	}
	return acts, page.Next, nil
}
