package postgres

import (
	"time"

	"github.com/midgehq/midge/storage"
)

// The writing half of a Tx, still in memory. Everything was checked: nothing here fails.

// apply checks a Tx and then, if nothing stands in its way, carries it out.
func (w *work) apply(tx *storage.Tx) (a storage.Applied) {
	if dep := w.check(tx); dep != nil {
		a.Err = dep
		return a
	}
	p := &w.plan
	for _, r := range p.deletes {
		w.remove(r)
	}
	for i := range tx.Settles {
		a.Settled = append(a.Settled, w.settle(p.settles[i], &tx.Settles[i]))
	}
	for i := range tx.Changes {
		a.Changed = append(a.Changed, w.change(p.changes[i], &tx.Changes[i]))
	}
	a.Inserted = make([]storage.Placed, len(tx.Inserts))
	for i := range tx.Inserts {
		if p.inserts[i] == (storage.Ref{}) {
			a.Inserted[i] = w.insert(&tx.Inserts[i])
		}
	}
	for i := range tx.Inserts { // last, so that they tell what the step made of them
		if p.inserts[i] != (storage.Ref{}) {
			a.Inserted[i] = w.existing(p.inserts[i])
		}
	}
	if len(tx.Inserts) == 0 {
		a.Inserted = nil
	}
	return a
}

// insert adds a task or cursor. A moment that is not in the future is due now.
func (w *work) insert(in *storage.Insert) storage.Placed {
	r := &row{
		ref: in.Ref, queue: w.ids(in.Ref.Queue), priority: int16(in.Priority), spec: specOf(in), held: true,
	}
	r.version = w.grown(0)
	r.past.Created = w.now
	w.add(r)
	if in.Unique.Mode == storage.UniqueWindow {
		w.keys[key{in.Ref.Queue, in.Unique.Key}] = &hold{
			id: in.Ref.ID, until: w.after(in.Unique.For), fresh: true,
		}
	}
	due := w.due(in.Delay, in.At)
	switch {
	case in.Cursor != nil:
		w.put(r, cursor)
		w.arm(r)
	case due > w.now:
		w.schedule(r, scheduled, due)
	default:
		w.waitAtTail(r)
	}
	return r.placed()
}

// existing says where the task is that an insert found, or was skipped for: the step may have
// ended it, and only its window may be left.
func (w *work) existing(ref storage.Ref) storage.Placed {
	placed := storage.Placed{Ref: ref}
	if r := w.find(ref); r != nil {
		placed = r.placed()
	}
	placed.Existing = true
	return placed
}

// due is the moment that a step names by a delay or by itself; now where neither.
func (w *work) due(delay time.Duration, at time.Time) int64 {
	if at.IsZero() {
		return w.after(delay)
	}
	return at.UnixMicro()
}

// change alters a task that is not pending, or asks for the cancel of one that is.
func (w *work) change(r *row, ch *storage.Change) storage.Placed {
	switch {
	case r.isPending():
		w.askCancel(r)
		return r.placed()
	case r.state == cancelled && !ch.Requeue: // it is cancelled again
		return r.placed()
	}
	w.edit(r, ch)
	if q := targetQueue(ch); q != r.ref.Queue {
		w.transfer(r, q)
	} else {
		w.changeState(r, ch)
	}
	return r.placed()
}

// askCancel marks a pending task and wakes those who may be running it. Whoever settles
// it in a transaction of the application's has it locked: it is about to end.
func (w *work) askCancel(r *row) {
	if r.state == asked || !r.held {
		return
	}
	r.state, r.dirty = asked, true
	w.ring(r.ref.Queue, true)
}

// edit replaces what a change names, apart from where the task stands.
func (w *work) edit(r *row, ch *storage.Change) {
	r.version, r.dirty = w.grown(r.version), true
	if ch.Encoding != "" {
		r.spec.Encoding, r.spec.Payload, r.recorded = ch.Encoding, ch.Payload, true
	}
	if ch.Headers != nil {
		r.spec.Headers, r.recorded = ch.Headers, true
	}
	if ch.Priority != nil {
		r.priority = int16(*ch.Priority)
	}
	if ch.Cursor != nil {
		r.spec.Cursor, r.recorded = ch.Cursor, true
		w.arm(r)
	}
}

// changeState puts r where a change wants it. What stays in its state keeps its place,
// unless the change names a new priority or moment.
func (w *work) changeState(r *row, ch *storage.Change) {
	if ch.Requeue {
		w.requeue(r)
	}
	switch ch.Target(stateOf(r.state)) {
	case storage.Cancelled:
		w.end(r, cancelled)
	case storage.Waiting:
		if stateOf(r.state) != storage.Waiting || ch.Priority != nil {
			w.waitAtTail(r)
		}
	case storage.Scheduled:
		w.reschedule(r, ch, scheduled)
	case storage.Retry:
		w.reschedule(r, ch, retry)
	default: // it stays where it is
	}
}

// reschedule puts r into scheduled or retry, or into waiting where it is due now.
func (w *work) reschedule(r *row, ch *storage.Change, to int16) {
	due := r.due() // stays where the change names no moment; none in other states
	timed := ch.Delay != 0 || !ch.At.IsZero()
	if timed || due == 0 {
		due = w.due(ch.Delay, ch.At)
		timed = true
	}
	switch {
	case timed && due <= w.now:
		w.waitAtTail(r)
	case r.state != to || due != r.due():
		w.schedule(r, to, due)
	}
}

// requeue starts an ended task anew. Its history goes on.
func (w *work) requeue(r *row) {
	r.past = past{Created: r.past.Created}
	r.flags &^= startOnly | isSuspect
	r.side.result = nil
	r.beside(sideResult)
	r.addAttempt(storage.Attempt{At: moment(w.now), Outcome: storage.AttemptRequeue})
}

// settle ends the claim of a task whose fence was checked.
func (w *work) settle(r *row, se *storage.Settle) storage.Placed {
	to := storage.SettledState(se.Outcome, r.state == asked, r.past.Retries, r.spec.MaxRetries)
	switch se.Outcome {
	case storage.Fail, storage.Bury, storage.Cancel:
		r.attempt(w.now, string(se.Outcome), se.Error, se.Stack)
	default: // no attempt that did not complete
	}
	if se.Outcome == storage.Fail {
		r.past.Retries++
		w.delta(r.ref.Queue).add(tFailed)
	}
	r.version = w.grown(r.version)
	w.countSnooze(r, to, se.Reason)
	switch to {
	case storage.Waiting:
		w.waitAtHead(r)
	case storage.Scheduled:
		w.schedule(r, scheduled, w.after(se.Delay))
	case storage.Retry:
		w.schedule(r, retry, w.after(se.Delay))
	case storage.Completed:
		if se.Result != nil {
			r.side.result = se.Result
			r.beside(sideResult)
		}
		w.end(r, completed)
	case storage.Dead:
		w.end(r, dead)
		r.past.Reason = storage.ReasonRetries
		if se.Outcome == storage.Bury {
			r.past.Reason = storage.CleanText(se.Reason, storage.MaxReason)
		}
	default: // cancelled
		w.end(r, cancelled)
	}
	return r.placed()
}

// countSnooze counts the snoozes in a row and keeps the reason of the last. Only a settle of
// a pending task leads to scheduled, so that state tells a snooze from every other end.
func (w *work) countSnooze(r *row, to storage.State, reason string) {
	if to != storage.Scheduled {
		r.past.Snoozes, r.past.SnoozedSince, r.past.Reason = 0, 0, ""
		return
	}
	r.past.Reason = storage.CleanText(reason, storage.MaxReason)
	if r.past.Snoozes == 0 {
		r.past.SnoozedSince = w.now
	}
	r.past.Snoozes++
}

// recover ends the claim of a task whose lease expired.
func (w *work) recover(r *row) {
	wasStarted := r.flags&started != 0
	to, charged := storage.RecoveredState(r.state == asked, wasStarted, r.past.Crashes, r.spec.CrashLimit)
	outcome := storage.AttemptExpire
	if wasStarted {
		outcome = storage.AttemptCrash
	} else {
		r.flags |= startOnly
	}
	r.attempt(w.now, outcome, "", "")
	r.past.Reason = "" // of a snooze before
	if charged {
		r.past.Crashes++
		w.delta(r.ref.Queue).add(tCrashed)
	}
	r.version = w.grown(r.version)
	switch to {
	case storage.Waiting:
		w.waitAtHead(r)
	case storage.Dead:
		w.end(r, dead)
		r.past.Reason = storage.ReasonCrashes
	default: // cancelled
		w.end(r, cancelled)
	}
}
