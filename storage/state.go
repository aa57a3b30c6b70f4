package storage

import "slices"

// State is where a task stands.
type State string

// The states. A task is in exactly one of the first seven; Cursors holds the
// periodic schedules.
const (
	Waiting   State = "waiting"   // to be claimed
	Pending   State = "pending"   // claimed, under a lease
	Scheduled State = "scheduled" // until its moment, or snoozed
	Retry     State = "retry"     // failed, until its next attempt
	Completed State = "completed" // kept as long as asked
	Cancelled State = "cancelled" // kept as long as asked
	Dead      State = "dead"      // out of retries or refused
	Cursors   State = "cursor"
)

// States lists every state, in the order of a task's life.
func States() []State {
	return []State{Waiting, Pending, Scheduled, Retry, Completed, Cancelled, Dead, Cursors}
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Ended reports whether a task in s has come to its end.
func (s State) Ended() bool { return s == Completed || s == Cancelled || s == Dead }

// Outcome is how a Settle ends a claim.
type Outcome string

// The outcomes.
const (
	Complete Outcome = "complete"
	Fail     Outcome = "fail"
	Snooze   Outcome = "snooze"
	Release  Outcome = "release"
	Bury     Outcome = "bury"
	Cancel   Outcome = "cancel"
)

// SettledState gives the state that a settle with outcome leads to: the whole
// right half of the life of a task. retries counts the failures before this one.
func SettledState(outcome Outcome, cancelAsked bool, retries, maxRetries int) State {
	switch {
	case outcome == Complete:
		return Completed
	case cancelAsked || outcome == Cancel:
		return Cancelled
	case outcome == Bury, outcome == Fail && retries >= maxRetries:
		return Dead
	case outcome == Fail:
		return Retry
	case outcome == Snooze:
		return Scheduled
	}
	return Waiting // released
}

// RecoveredState gives the state that an expired lease leads to, and whether it
// is charged as a crash. crashes counts those before this one.
func RecoveredState(cancelAsked, started bool, crashes, crashLimit int) (to State, charged bool) {
	switch {
	case cancelAsked:
		return Cancelled, started
	case started && crashes+1 >= crashLimit:
		return Dead, true
	}
	return Waiting, started
}

// Suspect reports whether a task is one crash short of its limit.
func Suspect(crashes, crashLimit int) bool { return crashes > 0 && crashes == crashLimit-1 }

// changes lists which states a Change may move a task to, by its state now. What has
// ended comes back by a requeue alone.
var changes = map[State][]State{
	Waiting:   {Waiting, Scheduled, Cancelled},
	Scheduled: {Waiting, Scheduled, Cancelled},
	Retry:     {Waiting, Scheduled, Retry, Cancelled},
	Pending:   {Cancelled}, // marks it only: CancelAsked
	Cancelled: {Cancelled}, // does nothing
	Cursors:   {Cursors},
}

// CanChange reports whether a Change that is no requeue may move a task from one state to
// another.
func CanChange(from, to State) bool { return slices.Contains(changes[from], to) }

// Target gives the state to which the change moves a task: its own where the change names
// neither a state nor a moment. A moment that has come leads to Waiting instead.
func (ch *Change) Target(from State) State {
	switch {
	case ch.State != "":
		return ch.State
	case ch.timed():
		if from == Retry {
			return Retry
		}
		return Scheduled
	case ch.Requeue:
		return Waiting
	}
	return from
}

// Permitted reports whether a task takes the change in the state in which it is. One that
// is pending takes a request to cancel it and nothing else, one that was completed or
// cancelled takes a requeue alone, but that cancelling again does nothing. A dead one is
// edited and moved where it is.
func (ch *Change) Permitted(from State) bool {
	switch {
	case ch.Requeue:
		return from.Ended()
	case from == Pending, from == Completed, from == Cancelled:
		return ch.onlyCancels() && CanChange(from, Cancelled)
	case ch.State == "" && !ch.timed():
		return true
	}
	return CanChange(from, ch.Target(from))
}

// timed reports whether the change names a moment.
func (ch *Change) timed() bool { return ch.Delay != 0 || !ch.At.IsZero() }

// onlyCancels reports whether the change cancels and alters nothing else.
func (ch *Change) onlyCancels() bool {
	return ch.State == Cancelled && !ch.moves() &&
		ch.Encoding == "" && ch.Headers == nil && ch.Priority == nil && ch.Cursor == nil
}
