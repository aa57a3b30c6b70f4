package filter

import (
	"slices"

	"github.com/midgehq/midge/storage"
)

// Running is the word that people read and may type for the state [storage.Pending]. JSON, metrics and Go say
// pending.
const Running = "running"

// RunningNote explains a number of running tasks.
const RunningNote = "includes the tasks that a runner has claimed and not started yet"

// StateWord returns the word that people read for a state.
func StateWord(s storage.State) string {
	if s == storage.Pending {
		return Running
	}
	return string(s)
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

// ParseState returns the state that a word names: the name of a state, or [Running]. The state of schedules is
// accepted, but no list of words offers it.
func ParseState(word string) (s storage.State, ok bool) {
	if word == Running {
		return storage.Pending, true
	}
	s = storage.State(word)
	return s, slices.Contains(storage.States(), s)
}
