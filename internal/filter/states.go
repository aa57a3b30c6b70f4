package filter

import (
	"cmp"

	"github.com/midgehq/midge/internal/states"
	"github.com/midgehq/midge/storage"
)

// Running is the word that people read and may type for the state [storage.Pending]. JSON, metrics and Go
// have pending.
const Running = "running"

// RunningNote explains a number of running tasks.
const RunningNote = "includes the tasks that a runner has claimed and not started yet"

// StateWord returns the word that people read for a state.
func StateWord(s storage.State) string { return cmp.Or(states.Named(string(s)).Word, string(s)) }

// IsKept reports whether a task in a state is only kept for a while: nobody has to do anything about it any more.
func IsKept(s storage.State) bool { return s.Ended() && s != storage.Dead }

// Kept lists the states of tasks that are only kept for a while.
func Kept() []storage.State { return storage.StatesWhere(IsKept) }

// Outstanding lists the other states of tasks: the live states, and the state of dead tasks.
func Outstanding() []storage.State {
	return storage.StatesWhere(func(s storage.State) bool { return !IsKept(s) })
}

// StateWords returns the words that people read for the states of tasks, in the order of a task's life.
func StateWords() (words []string) {
	for _, s := range storage.TaskStates() {
		words = append(words, StateWord(s))
	}
	return words
}

// TaskWord returns the words that people read for the state of a task. A task that its runner has claimed ahead
// does not run yet.
func TaskWord(t *storage.Task) string {
	if t.State == storage.Pending && !t.Started {
		return "claimed, not started"
	}
	return StateWord(t.State)
}

// ParseState returns the state that a word names: the name of a state, or the word that people read for it. The state
// of schedules is accepted, but no list of words offers it.
func ParseState(word string) (s storage.State, ok bool) {
	for _, s := range storage.States() {
		if word == string(s) || word == StateWord(s) {
			return s, true
		}
	}
	return "", false
}
