package storage

import (
	"cmp"

	"github.com/midgehq/midge/internal/states"
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
	Completed State = "completed" // kept for as long as its Keep decides
	Cancelled State = "cancelled" // kept for as long as its Keep decides
	Dead      State = "dead"      // out of retries or refused
	Cursors   State = "cursor"
)

// States lists every state, in the order of a task's life, and then Cursors.
func States() []State {
	all := make([]State, 0, len(states.Public()))
	for _, s := range states.Public() {
		all = append(all, State(s.Name))
	}
	return all
}

// StatesWhere lists the states of tasks for which is returns true, in the order of a task's life. For
// example, StatesWhere(State.Live) lists the states of tasks that have not ended.
func StatesWhere(is func(State) bool) (some []State) {
	for _, s := range TaskStates() {
		if is(s) {
			some = append(some, s)
		}
	}
	return some
}

// TaskStates lists the states of tasks other than schedules, in the order of a task's life.
func TaskStates() []State {
	all := States()
	return all[:len(all)-1]
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return states.Named(string(s)).Name != "" }

// Live reports whether a task in s has not ended. A schedule is not live.
func (s State) Live() bool { return states.Named(string(s)).Live }

// Ended reports whether a task in s has ended: whether s is Completed, Cancelled or Dead.
func (s State) Ended() bool { return states.Named(string(s)).Ended }

// Timed reports whether a task in s is due at a moment: whether s is Scheduled, Retry or Cursors.
func (s State) Timed() bool { return states.Named(string(s)).Timed }

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
// means that its lease expired while it was only claimed ahead.
func PassedOver(crashes, crashLimit int, startOnly bool) string {
	switch {
	case Suspect(crashes, crashLimit):
		return PassedOverSuspect
	case startOnly:
		return PassedOverStartOnly
	}
	return ""
}
