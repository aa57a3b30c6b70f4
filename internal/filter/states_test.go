package filter

import (
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestPendingIsReadAsRunning checks the words of each state: the word that people read names the same state
// again.
func TestPendingIsReadAsRunning(t *testing.T) {
	for i, s := range storage.TaskStates() {
		word := StateWords()[i]
		if got, ok := ParseState(word); !ok || got != s || word != StateWord(s) {
			t.Errorf("%s names the state %q, want %q", word, got, s)
		}
		if want := s == storage.Pending; (word != string(s)) != want || word == "running" != want {
			t.Errorf("the word for %q is %q", s, word)
		}
	}
	for _, word := range []string{"pending", "cursor"} {
		if got, ok := ParseState(word); !ok || string(got) != word {
			t.Errorf("%s names the state %q", word, got)
		}
	}
	for _, word := range []string{"", "done", "Running"} {
		if got, ok := ParseState(word); ok {
			t.Errorf("%q names the state %q, want none", word, got)
		}
	}
	for _, c := range []struct {
		task storage.Task
		want string
	}{
		{storage.Task{State: storage.Pending, Started: true}, "running"},
		{storage.Task{State: storage.Pending}, "claimed, not started"},
		{storage.Task{State: storage.Waiting}, "waiting"},
	} {
		if got := TaskWord(&c.task); got != c.want {
			t.Errorf("got %q for a task that is %s, want %q", got, c.task.State, c.want)
		}
	}
}
