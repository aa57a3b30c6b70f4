package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

// AuditQueue is the queue that holds the records of the audit.
const AuditQueue = storage.ReservedQueues + "audit"

// Bounds of the age and of the number of acts that are kept.
const (
	ActsKept = 90 * 24 * time.Hour
	MaxActs  = 10_000
)

// MaxIDs is how many ids of tasks an act names at most. Count tells how many tasks it changed.
const MaxIDs = 100

// The outcomes of an act.
const (
	// Intended: the act was begun, and its outcome was not written. It may have happened in part.
	Intended = "intended"
	Done     = "done"
	Failed   = "failed"
)

// Entry is the record of an act of a person.
type Entry struct {
	// Who is the person, Role the role of that person, and Via the program: "dashboard" or "command".
	Who  string `json:"who"`
	Role string `json:"role,omitempty"`
	Via  string `json:"via,omitempty"`
	// Act is the verb, such as "requeue".
	Act string `json:"act"`
	// Queue is the queue that the act concerned, "" for several.
	Queue string `json:"queue,omitempty"`
	// IDs are the ids of the tasks, or the names of other things that the act concerned: at most MaxIDs.
	IDs []string `json:"ids,omitempty"`
	// Filter chose the tasks. Note tells what else is known, such as the end of a pause.
	Filter string `json:"filter,omitempty"`
	Note   string `json:"note,omitempty"`

	// At is when the act began, by the storage's clock, and Ended when its outcome was written, zero before.
	// The audit sets these and the fields below.
	At    time.Time `json:"at"`
	Ended time.Time `json:"ended,omitzero"`
	// Outcome is Intended, Done or Failed.
	Outcome string `json:"outcome"`
	// Count is how many tasks, or other things, the act changed.
	Count int `json:"count,omitempty"`
	// Error tells why the act failed.
	Error string `json:"error,omitempty"`

	// ID is the id of the record.
	ID string `json:"-"`
}

// Audit keeps the acts of people. It is safe for concurrent use.
type Audit struct {
	store   storage.Storage
	session *storage.Session
	begun   atomic.Int64 // counts acts; it starts at a random number

	first       sync.Once
	told, asked time.Time // the storage's time and this machine's time at the first act

	mu      sync.Mutex // guards the fields below
	open    int        // acts of BeginLate that have not ended
	waiting []Entry    // ended acts of BeginLate, whose records Flush has not written yet
}

// MaxWaiting bounds the acts of BeginLate whose records are not written yet.
const MaxWaiting = 1000

// trimEach is after about how many acts of all processes the surplus acts are deleted. This bounds the audit
// also where no process keeps a ledger.
const trimEach = 1000

// trimFrom tells from which act, counted from the newest one, Begin takes the time when it trims. A command that
// begins while the storage's clock is ahead does not notice that. The hundredth newest act is older than the jump,
// unless a hundred acts were begun since.
const trimFrom = 100

// NewAudit returns the audit of a storage. It does no I/O.
func NewAudit(store storage.Storage) *Audit {
	a := &Audit{store: store, session: storage.NewSession(store, 0)}
	a.begun.Store(rand.Int64N(trimEach))
	return a
}

// Act is an act under way.
type Act struct {
	audit   *Audit
	entry   Entry
	version int64
	late    bool // its record is not written yet
}

// Entry is the record of the act, without its outcome.
func (act *Act) Entry() Entry { return act.entry }

// Late reports whether the record of the act waits in memory: see BeginLate.
func (act *Act) Late() bool { return act != nil && act.late }

// first is a moment before all acts. A later act is due earlier, so that a listing by due moments begins with
// the newest act.
var (
	first  = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	latest = time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)
)

// dueOf returns when the record of an act is due: so far ahead that nobody claims it. If the clock is ahead by
// many decades, the record is due a day after the act, because a due record would not be listed.
func dueOf(at time.Time) time.Time {
	due, least := latest.Add(-at.Sub(first)), at.Add(24*time.Hour)
	if due.Before(least) {
		return least
	}
	return due
}

// Begin writes what is about to be done. If Begin fails, the caller must not do the act. Texts are cut to the
// room that a record has.
func (a *Audit) Begin(ctx context.Context, e Entry) (*Act, error) {
	act, steady, err := a.intend(ctx, e)
	if err != nil {
		return nil, err
	}
	insert, err := insertOf(&act.entry)
	if err != nil {
		return nil, err
	}
	applied, err := a.session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{insert}})
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if a.begun.Add(1)%trimEach == 0 {
		_ = a.trim(ctx, steady, trimFrom) // the act matters more, and a later act tries again
	}
	_ = a.Flush(ctx) // there is room again; else a later act tries again
	act.version = applied.Inserted[0].Version
	return act, nil
}

// intend makes the act of an entry. It returns the storage's time, as of earlier.
func (a *Audit) intend(ctx context.Context, e Entry) (*Act, time.Time, error) {
	now, err := a.session.Now(ctx)
	if err != nil {
		return nil, now, fmt.Errorf("audit: %w", err)
	}
	e.clean()
	e.At, e.Ended, e.Outcome, e.Count, e.Error = now.UTC(), time.Time{}, Intended, 0, ""
	e.ID = storage.NewID()
	return &Act{audit: a, entry: e}, a.earlier(now), nil
}

// insertOf returns the insert of the record of an act.
func insertOf(e *Entry) (storage.Insert, error) {
	payload, err := json.Marshal(e)
	if err != nil {
		return storage.Insert{}, fmt.Errorf("audit: %w", err)
	}
	return storage.Insert{
		Ref:  storage.Ref{Queue: AuditQueue, ID: e.ID},
		Kind: "midge.act", Encoding: "json", Payload: payload, CrashLimit: 1, At: dueOf(e.At),
	}, nil
}

// BeginLate begins an act that makes room in a full storage, which takes no record of it. The record waits in
// the memory of this process, until Flush can write it. If MaxWaiting records wait, BeginLate fails with
// [storage.ErrFull].
func (a *Audit) BeginLate(ctx context.Context, e Entry) (*Act, error) {
	act, _, err := a.intend(ctx, e)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open+len(a.waiting) >= MaxWaiting {
		return nil, fmt.Errorf("audit: %d records wait for room: %w", MaxWaiting, storage.ErrFull)
	}
	a.open++
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

// End writes the outcome of the act: how many tasks it changed, and its error, nil if it was done. The End of a
// nil Act does nothing, for callers without an audit.
func (act *Act) End(ctx context.Context, count int, failed error) error {
	if act == nil {
		return nil
	}
	now, err := act.audit.session.Now(ctx)
	if err != nil && !act.late {
		return fmt.Errorf("audit: %w", err)
	}
	e := act.entry
	e.Ended, e.Count, e.Outcome = now.UTC(), count, Done
	if failed != nil {
		e.Outcome, e.Error = Failed, storage.CleanText(failed.Error(), storage.MaxAttemptError)
	}
	if act.late {
		act.audit.mu.Lock()
		act.audit.open, act.audit.waiting = act.audit.open-1, append(act.audit.waiting, e)
		act.audit.mu.Unlock()
		_ = act.audit.Flush(ctx) // the act may have made room; else a later Flush writes the record
		return nil
	}
	payload, err := json.Marshal(&e)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	_, err = act.audit.session.ApplyOne(ctx, storage.Tx{Changes: []storage.Change{{
		Ref: storage.Ref{Queue: AuditQueue, ID: e.ID}, Version: act.version, Encoding: "json", Payload: payload,
	}}})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// clean cuts the texts to the room that a record has.
func (e *Entry) clean() {
	for _, text := range []*string{&e.Who, &e.Role, &e.Via, &e.Act, &e.Queue} {
		*text = storage.CleanText(*text, storage.MaxName)
	}
	e.Filter = storage.CleanText(e.Filter, storage.MaxAttemptError)
	e.Note = storage.CleanText(e.Note, storage.MaxAttemptError)
	var ids []string // the caller's slice stays as it is
	for _, id := range e.IDs[:min(len(e.IDs), MaxIDs)] {
		ids = append(ids, storage.CleanText(id, 2*storage.MaxName+1)) // a queue, a slash and the id of a task
	}
	e.IDs = ids
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

// Damaged is the outcome of a record that cannot be read.
const Damaged = "damaged"

// entryOf reads a record.
func entryOf(t *storage.Task) Entry {
	var e Entry
	if err := json.Unmarshal(t.Payload, &e); err != nil {
		e = Entry{At: t.Created, Outcome: Damaged}
	}
	e.clean()
	e.Outcome, e.Error = storage.CleanText(e.Outcome, storage.MaxName), storage.CleanText(e.Error, storage.MaxAttemptError)
	e.ID = t.ID
	return e
}

// Trim deletes the acts that are older than 90 days at the moment now, and all but the newest 10,000. A process
// that keeps a ledger calls it once a day, and Begin trims once in a thousand acts.
func (a *Audit) Trim(ctx context.Context, now time.Time) error { return a.trim(ctx, now, 0) }

// trim does what Trim does. If the act with the number from, counted from the newest act, was begun before now, the
// age of the acts counts from the time of that act.
func (a *Audit) trim(ctx context.Context, now time.Time, from int) error {
	n := 0
	var old []storage.Tx
	for t, err := range storage.Each(ctx, a.store, AuditQueue, storage.Scheduled) {
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if n++; n == from && t.Created.Before(now) {
			now = t.Created
		}
		if n > MaxActs || n > from && t.Created.Before(now.Add(-ActsKept)) {
			old = append(old, storage.Tx{Deletes: []storage.Delete{{Ref: t.Ref, Version: t.Version}}})
		}
	}
	var errs []error
	for len(old) > 0 {
		some := old[:min(len(old), storage.MaxPage)]
		old = old[len(some):]
		applied, err := a.session.Apply(ctx, some...)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		for i := range applied {
			if err := applied[i].Err; err != nil && !raced(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
