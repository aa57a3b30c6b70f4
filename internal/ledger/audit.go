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

// AuditQueue is where the records of the audit are.
const AuditQueue = storage.ReservedQueues + "audit"

// How long acts are kept, and how many.
const (
	ActsKept = 90 * 24 * time.Hour
	MaxActs  = 10_000
)

// MaxIDs is how many ids of tasks an act names; Count tells how many there are.
const MaxIDs = 100

// What became of an act.
const (
	// Intended: the act was begun, and nobody wrote what became of it. It may have happened in part.
	Intended = "intended"
	Done     = "done"
	Failed   = "failed"
)

// Entry is an act of a person, as the audit keeps it.
type Entry struct {
	// Who did it, with which role, and by what: "dashboard" or "command".
	Who  string `json:"who"`
	Role string `json:"role,omitempty"`
	Via  string `json:"via,omitempty"`
	// Act is what was done, such as "requeue".
	Act string `json:"act"`
	// Queue that it concerned, "" for several.
	Queue string `json:"queue,omitempty"`
	// IDs of the tasks, or names of what else it concerned: at most MaxIDs.
	IDs []string `json:"ids,omitempty"`
	// Filter that chose the tasks, and Note what else there is to say, such as until when.
	Filter string `json:"filter,omitempty"`
	Note   string `json:"note,omitempty"`

	// At is when it began, by the storage's clock, and Ended when its outcome was written, zero before.
	// The audit fills these and what follows.
	At    time.Time `json:"at"`
	Ended time.Time `json:"ended,omitzero"`
	// Outcome is Intended, Done or Failed.
	Outcome string `json:"outcome"`
	// Count is how many tasks, or other things, it changed.
	Count int `json:"count,omitempty"`
	// Error says why it failed.
	Error string `json:"error,omitempty"`

	// ID of the record.
	ID string `json:"-"`
}

// Audit keeps what people did. It is safe for concurrent use.
type Audit struct {
	store   storage.Storage
	session *storage.Session
	begun   atomic.Int64 // counts the acts, from anywhere

	first       sync.Once
	told, asked time.Time // the storage's time and this machine's at the first act
}

// trimEach is after how many acts, over all processes about, those that are too many are deleted: also where
// nobody keeps a ledger.
const trimEach = 1000

// NewAudit makes an audit on a storage. It does no I/O.
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
}

// first is before any act: acts are due the sooner the later they were, so that they are listed newest
// first.
var (
	first  = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	latest = time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)
)

// dueOf is when the record of an act is due: never. If the clock is ahead by many decades, the record is due a
// day after the moment of the act, since a record that is due is not listed.
func dueOf(at time.Time) time.Time {
	due, least := latest.Add(-at.Sub(first)), at.Add(24*time.Hour)
	if due.Before(least) {
		return least
	}
	return due
}

// Begin writes what is about to be done. An act whose Begin fails is not to be done. Texts are cut to
// what a record holds.
func (a *Audit) Begin(ctx context.Context, e Entry) (*Act, error) {
	now, err := a.session.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	steady := a.earlier(now)
	e.clean()
	e.At, e.Ended, e.Outcome, e.Count, e.Error = now.UTC(), time.Time{}, Intended, 0, ""
	e.ID = storage.NewID()
	payload, err := json.Marshal(&e)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	applied, err := a.session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{{
		Ref:  storage.Ref{Queue: AuditQueue, ID: e.ID},
		Kind: "midge.act", Encoding: "json", Payload: payload, CrashLimit: 1, At: dueOf(now),
	}}})
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if a.begun.Add(1)%trimEach == 0 {
		_ = a.Trim(ctx, steady) // the act matters more, and the next process tries anew
	}
	return &Act{audit: a, entry: e, version: applied.Inserted[0].Version}, nil
}

// earlier returns the moment by the storage's clock. If that clock has jumped ahead since the first act of this
// process, it gives the moment that the clock would show without the jump, so that a clock that is ahead for a
// while deletes no acts.
func (a *Audit) earlier(now time.Time) time.Time {
	a.first.Do(func() { a.told, a.asked = now, time.Now() })
	if reckoned := a.told.Add(time.Since(a.asked)); reckoned.Before(now) {
		return reckoned
	}
	return now
}

// End writes what became of the act: how many tasks it changed, and its error, nil where it was done.
// A nil Act, of a caller who keeps no audit, does nothing.
func (act *Act) End(ctx context.Context, count int, failed error) error {
	if act == nil {
		return nil
	}
	now, err := act.audit.session.Now(ctx)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	e := act.entry
	e.Ended, e.Count, e.Outcome = now.UTC(), count, Done
	if failed != nil {
		e.Outcome, e.Error = Failed, storage.CleanText(failed.Error(), storage.MaxAttemptError)
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

// clean cuts the texts.
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

// List lists acts, the newest first, a page at a time: after is the next of the page before, "" for the
// first page, and limit its size, 1 to 200, where 0 means 50. Records that cannot be read are listed
// with their id, and "damaged" as the outcome.
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

// Trim deletes the acts that are older than 90 days at a moment, and all but the newest 10,000. A process
// that keeps a ledger calls it now and then, and Begin does once in a thousand acts.
func (a *Audit) Trim(ctx context.Context, now time.Time) error {
	n := 0
	var old []storage.Tx
	for t, err := range storage.Each(ctx, a.store, AuditQueue, storage.Scheduled) {
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if n++; n > MaxActs || t.Created.Before(now.Add(-ActsKept)) {
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
