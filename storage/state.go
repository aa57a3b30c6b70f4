package storage

import (
	"cmp"
	"slices"
)

// State is where a task stands in its life.
type State string

// The states. A task is in exactly one of the first seven; Cursors is the state of the
// periodic schedules.
const (
	Waiting   State = "waiting"   // ready to be claimed
	Pending   State = "pending"   // claimed, under a lease
	Scheduled State = "scheduled" // enqueued for later, or snoozed
	Retry     State = "retry"     // failed, until its next attempt
	Completed State = "completed" // kept for as long as its Keep says
	Cancelled State = "cancelled" // kept for as long as its Keep says
	Dead      State = "dead"      // out of retries or refused
	Cursors   State = "cursor"
)

// States lists every state, in the order of a task's life, and then Cursors.
func States() []State { return append(TaskStates(), Cursors) }

// TaskStates lists the states of tasks other than schedules, in the order of a task's life.
func TaskStates() []State {
	return []State{Waiting, Pending, Scheduled, Retry, Completed, Cancelled, Dead}
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Ended reports whether a task in s has ended: whether s is Completed, Cancelled or Dead.
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
	Decline  Outcome = "decline"
)

// Attempt returns the Attempt.Outcome that the settle names for the history, "" if it names none. A
// completion appends AttemptSucceeded if the task is kept.
func (s *Settle) Attempt() string {
	switch s.Outcome {
	case Fail:
		return cmp.Or(s.As, AttemptFailed)
	case Bury:
		return cmp.Or(s.As, AttemptDiscarded)
	case Cancel:
		return cmp.Or(s.As, AttemptCancelled)
	default:
		return ""
	}
}

// SettledState returns the state to which a settle with outcome leads a task. retries counts the
// failures before this one.
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
	return Waiting // released or declined
}

// RecoveredState returns the state to which an expired lease leads a task, and whether it
// is charged as a crash. crashes counts the crashes before this one.
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

// PassedOver returns the Task.PassedOver of a waiting task that was not declined. startOnly
// says that its lease expired while it was only claimed ahead.
func PassedOver(crashes, crashLimit int, startOnly bool) string {
	switch {
	case Suspect(crashes, crashLimit):
		return PassedOverSuspect
	case startOnly:
		return PassedOverStartOnly
	}
	return ""
}
