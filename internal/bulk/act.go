package bulk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// Verb is what is done to tasks.
type Verb string

// The verbs.
const (
	Requeue    Verb = "requeue"    // a task that ended starts anew, and one that is due later runs now
	Delete     Verb = "delete"     // a task that is not pending goes, whatever its state
	Cancel     Verb = "cancel"     // a task that has not ended ends, or is asked to where it runs
	Move       Verb = "move"       // a task goes to Act.Queue, in the state in which it is
	Prioritise Verb = "prioritise" // a task gets Act.Priority
	Reschedule Verb = "reschedule" // a task becomes due at Act.At, or now
	Edit       Verb = "edit"       // a task gets the parameters Act.Params
)

// Verbs lists every verb.
func Verbs() []Verb { return []Verb{Requeue, Delete, Cancel, Move, Prioritise, Reschedule, Edit} }

// Act is what is to be done to each task.
type Act struct {
	Verb Verb
	// Queue is where Move leads.
	Queue string
	// Priority is that of Prioritise, -9 to 9.
	Priority int
	// At is when Reschedule makes a task due, by the storage's clock; zero means now. A moment that has come
	// when the run begins means now, too.
	At time.Time
	// Params are the parameters of Edit: JSON as payload.JSON shows it. Values keep the types that they have.
	Params []byte
	// Requeue has Edit requeue the task in the same step where it has ended.
	Requeue bool
}

// Check returns a *[storage.InvalidError] where the act cannot be done to any task.
func (a *Act) Check() error {
	switch {
	case !slices.Contains(Verbs(), a.Verb):
		return storage.Invalid("act", string(a.Verb), "one of %v", Verbs())
	case a.Verb == Move && storage.Reserved(a.Queue):
		return storage.Invalid("queue to move to", a.Queue, "a queue that is not midge's own")
	case a.Verb == Move:
		return storage.CheckName("queue to move to", a.Queue)
	case a.Verb == Prioritise && max(a.Priority, -a.Priority) > storage.MaxPriority:
		return storage.Invalid("priority", a.Priority, "%d to %d", -storage.MaxPriority, storage.MaxPriority)
	case a.Verb == Edit && len(a.Params) == 0:
		return storage.Invalid("parameters", "", "JSON")
	}
	return nil
}

// States returns the states in which the act can be done to tasks, in the order of a task's life.
func (a *Act) States() []storage.State {
	return slices.DeleteFunc(storage.States(), func(s storage.State) bool {
		return !a.permitted(&storage.Task{State: s, Declined: time.Unix(0, 0)})
	})
}

// Default returns the states of the tasks to which the act is done where nothing names states: to requeue is
// meant for the dead, and everything else for the tasks that have not ended.
func (a *Act) Default() []storage.State {
	if a.Verb == Requeue {
		return []storage.State{storage.Dead}
	}
	able := a.States()
	return slices.DeleteFunc(slices.Clone(scan.Live), func(s storage.State) bool { return !slices.Contains(able, s) })
}

// permitted reports whether the act does something to a task in its state.
func (a *Act) permitted(t *storage.Task) bool {
	ch := a.change(t)
	switch {
	case a.Verb == Delete:
		return t.State != storage.Pending
	case t.State == storage.Cursors && a.Verb != Edit && a.Verb != Prioritise:
		return false
	}
	return ch.Permitted(t.State) && (a.Verb != Cancel || !t.State.Ended())
}

// change is the change that the act is, without the parameters of Edit.
func (a *Act) change(t *storage.Task) storage.Change {
	ch := storage.Change{Ref: t.Ref, Version: t.Version}
	switch a.Verb {
	case Requeue:
		return t.Requeued()
	case Cancel:
		ch.Cancel = true
	case Move:
		ch.Queue = a.Queue
	case Prioritise:
		ch.Priority = &a.Priority
	case Reschedule:
		ch.At, ch.Now = a.At, a.At.IsZero()
	case Edit:
		ch.Requeue = a.Requeue && t.State.Ended()
	case Delete:
	}
	return ch
}

// keptError says why the act cannot be done to a task.
type keptError string

func (e keptError) Error() string { return string(e) }

// step returns the Tx that does the act to a task. done says that it was done before. The error is a keptError
// where the act cannot be done to this task, and any other where it can be done to none.
func (a *Act) step(t *storage.Task) (tx storage.Tx, done bool, err error) {
	switch {
	case a.was(t):
		return tx, true, nil
	case storage.Reserved(t.Queue):
		return tx, false, keptError("its queue is midge's own")
	case !a.permitted(t):
		return tx, false, keptError("it is " + string(t.State))
	case a.Verb == Delete:
		return storage.Tx{Deletes: []storage.Delete{{Ref: t.Ref, Version: t.Version}}}, false, nil
	}
	ch := a.change(t)
	if a.Verb == Edit {
		ch.Encoding = t.Encoding
		if ch.Payload, err = payload.Encode(t.Encoding, a.Params, t.Payload); err != nil {
			return tx, false, err
		}
	}
	return storage.Tx{Changes: []storage.Change{ch}}, false, nil
}

// was reports whether the act was done to a task before, or the task is as the act would leave it.
func (a *Act) was(t *storage.Task) bool {
	waits := t.State == storage.Waiting && t.Declined.IsZero()
	switch a.Verb {
	case Move:
		return t.Queue == a.Queue
	case Prioritise:
		return t.Priority == a.Priority
	case Cancel:
		return t.CancelAsked || t.State == storage.Cancelled
	case Requeue:
		return waits
	case Reschedule:
		return a.At.IsZero() && waits || !a.At.IsZero() && t.Due.Equal(a.At.Truncate(time.Microsecond))
	default:
		return false
	}
}

// Consequence says in a sentence what becomes of tasks.
func (a *Act) Consequence() string {
	switch a.Verb {
	case Requeue:
		return "Tasks that ended start anew, with no retries and crashes charged; tasks that are due later run now."
	case Delete:
		return "The tasks are gone with their parameters, history and results; nothing brings them back but a backup."
	case Cancel:
		return "The tasks end as cancelled and do not run; those that run are asked to stop."
	case Move:
		return fmt.Sprintf("The tasks go to queue %s, in the state in which they are.", a.Queue)
	case Prioritise:
		return fmt.Sprintf("The tasks get priority %d; those that wait join the end of its line.", a.Priority)
	case Reschedule:
		if a.At.IsZero() {
			return "The tasks wait for a runner from now on."
		}
		return "The tasks become due at " + a.At.UTC().Format(time.RFC3339) + "."
	case Edit:
		if a.Requeue {
			return "The task gets other parameters, and starts anew where it has ended."
		}
		return "The task gets other parameters."
	}
	return ""
}

// Done is the word for tasks to which the act was done: "requeued".
func (a *Act) Done() string {
	switch a.Verb {
	case Cancel:
		return "cancelled"
	case Edit:
		return "edited"
	default:
		return strings.TrimSuffix(string(a.Verb), "e") + "ed"
	}
}
