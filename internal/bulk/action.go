package bulk

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// Verb is an action on tasks.
type Verb string

// The verbs.
const (
	Requeue    Verb = "requeue"    // a task that has ended starts anew, and a task that is due later runs now
	Delete     Verb = "delete"     // a task is deleted, unless it is pending
	Cancel     Verb = "cancel"     // a task that has not ended is cancelled; a running job is asked to stop
	Move       Verb = "move"       // a task goes to Action.Queue and keeps its state
	Prioritise Verb = "prioritise" // a task gets Action.Priority
	Partition  Verb = "partition"  // a task gets Action.Partition
	Cost       Verb = "cost"       // the start of a task gets Action.Cost
	Reschedule Verb = "reschedule" // a task becomes due at Action.At, or now
	Edit       Verb = "edit"       // a task gets the parameters Action.Params, or the fields of Action.Set
)

// Verbs lists every verb.
func Verbs() []Verb {
	return []Verb{Requeue, Delete, Cancel, Move, Prioritise, Partition, Cost, Reschedule, Edit}
}

// Action is a change to be made to each task of a request.
type Action struct {
	Verb Verb
	// Queue is the queue to which Move moves tasks.
	Queue string
	// Priority is the priority that Prioritise sets, -9 to 9.
	Priority int
	// Partition is the partition that Partition sets, "" for none. Unless it is nil, Prioritise and Edit set it
	// in the same step.
	Partition *string
	// Cost is the cost of a start that Cost sets. Unless it is nil, Prioritise, Partition and Edit set it in the
	// same step.
	Cost *storage.Cost
	// At is the moment at which Reschedule makes a task due, by the storage's clock. Zero means now, and so does
	// a moment that has passed when the run begins.
	At time.Time
	// Params are the new parameters of Edit, as the JSON that payload.JSON shows. Values keep their types.
	Params []byte
	// Set are new values of single fields for Edit, instead of Params.
	Set []payload.Setting
	// Requeue, Rescheduled and Prioritised make Edit also do, in the same step, what Requeue, Reschedule and
	// Prioritise do. A task does not take Requeue and a moment at once.
	Requeue, Rescheduled, Prioritised bool
	// FromStart makes a requeue forget the finished steps, the checkpoint and the progress of each task.
	FromStart bool
}

// Check returns a *[storage.InvalidError] if the action cannot be done to any task.
func (a *Action) Check() error {
	switch {
	case !slices.Contains(Verbs(), a.Verb):
		return storage.Invalid("action", string(a.Verb), "one of %v", Verbs())
	case a.Verb == Move && storage.Reserved(a.Queue):
		return storage.Invalid("queue to move to", a.Queue, "a queue that is not midge's own")
	case a.Verb == Move:
		return storage.CheckName("queue to move to", a.Queue)
	case (a.Verb == Prioritise || a.Prioritised) && max(a.Priority, -a.Priority) > storage.MaxPriority:
		return storage.Invalid("priority", a.Priority, "%d to %d", -storage.MaxPriority, storage.MaxPriority)
	case a.Verb == Partition && a.Partition == nil:
		return storage.Invalid("partition", "nil", `a key, or "" for none`)
	case a.Partition != nil && *a.Partition != "" && storage.CheckPartition(*a.Partition) != nil:
		return storage.CheckPartition(*a.Partition)
	case a.Verb == Cost && a.Cost == nil:
		return storage.Invalid("cost", "nil", "0 to %d", storage.MaxCost)
	case a.Verb == Edit && (len(a.Params) == 0) == (len(a.Set) == 0):
		got := fmt.Sprintf("of %d bytes, with %d new values", len(a.Params), len(a.Set))
		return storage.Invalid("parameters", got, "JSON, or else new values of fields")
	case a.Requeue && a.Rescheduled:
		return storage.Invalid("action", "a requeue with a moment", "one of them")
	case a.FromStart && a.Verb != Requeue && !a.Requeue:
		return storage.Invalid("from start", string(a.Verb), "a requeue")
	}
	return nil
}

// States returns the states in which the action can be done to tasks, in the order of a task's life.
func (a *Action) States() []storage.State {
	return slices.DeleteFunc(storage.States(), func(s storage.State) bool {
		return !a.permitted(&storage.Task{State: s, Declined: time.Unix(0, 0)})
	})
}

// Default returns the states of the tasks to which the action is done if a request names no states: Requeue
// is meant for dead tasks, and every other action for tasks that have not ended.
func (a *Action) Default() []storage.State {
	if a.Verb == Requeue {
		return []storage.State{storage.Dead}
	}
	return slices.DeleteFunc(a.States(), func(s storage.State) bool { return !s.Live() })
}

// permitted reports whether the action can be done to a task in its state.
func (a *Action) permitted(t *storage.Task) bool {
	ch := a.change(t)
	switch {
	case a.Verb == Delete:
		return t.State != storage.Pending
	case t.State == storage.Cursors && a.Verb != Edit && a.Verb != Cost && !a.places():
		return false
	}
	return ch.Permitted(t.State) && (a.Verb != Cancel || !t.State.Ended())
}

// change returns the action as a change of a task, without the parameters of Edit.
func (a *Action) change(t *storage.Task) storage.Change {
	ch := storage.Change{Ref: t.Ref, Version: t.Version}
	switch a.Verb {
	case Requeue:
		ch = t.Requeued()
		ch.FromStart = a.FromStart
	case Cancel:
		ch.Cancel = true
	case Move:
		ch.Queue = a.Queue
	case Prioritise:
		ch.Priority, ch.Partition, ch.Cost = &a.Priority, a.Partition, a.Cost
	case Partition, Cost:
		ch.Partition, ch.Cost = a.Partition, a.Cost
	case Reschedule:
		ch.At, ch.Now = a.At, a.At.IsZero()
	case Edit:
		if a.Requeue {
			ch = t.Requeued()
			ch.FromStart = a.FromStart
		}
		if a.Rescheduled {
			ch.At, ch.Now = a.At, a.At.IsZero()
		}
		ch.Partition, ch.Cost = a.Partition, a.Cost
		if a.Prioritised {
			ch.Priority = &a.Priority
		}
	case Delete:
	}
	return ch
}

// keptError is the reason for which an action cannot be done to a task.
type keptError string

func (e keptError) Error() string { return string(e) }

// recordErrors are, by the kinds of the records of midge itself, the reasons for which no action but Cancel
// can be done to them. Without its record a file could be loaded again, and tasks could be imported again.
var recordErrors = map[string]keptError{
	storage.LoadKind:   "it records a load, which midge load --forget forgets",
	storage.ImportKind: "it records an import, which the same midge import command ends",
}

// step returns the Tx that does the action to a task. done reports that the action was done to the task
// before. The error is a keptError if the action cannot be done to this task, and any other error if it can
// be done to none.
func (a *Action) step(t *storage.Task) (tx storage.Tx, done bool, err error) {
	switch {
	case a.was(t):
		return tx, true, nil
	case storage.Reserved(t.Queue):
		return tx, false, keptError("its queue is midge's own")
	case storage.RecordKind(t.Kind) && a.Verb != Cancel:
		return tx, false, recordErrors[t.Kind]
	case !a.permitted(t):
		return tx, false, keptError("it is " + filter.TaskWord(t))
	case a.Verb == Delete:
		return storage.Tx{Deletes: []storage.Delete{{Ref: t.Ref, Version: t.Version}}}, false, nil
	}
	ch := a.change(t)
	if a.Verb == Edit {
		ch.Encoding = t.Encoding
		if ch.Payload, err = a.edited(t); err != nil {
			return tx, false, err
		}
		if len(a.Set) > 0 && a.stays(t, &ch) {
			return tx, true, nil
		}
	}
	if a.Verb != Requeue && !a.Requeue {
		ch.CompleteHeaders(t)
	}
	return storage.Tx{Changes: []storage.Change{ch}}, false, nil
}

// edited returns the new parameters of a task. A setting that does not fit one task may fit others.
func (a *Action) edited(t *storage.Task) ([]byte, error) {
	if len(a.Set) == 0 {
		return payload.Edit(t, a.Params)
	}
	encoded, err := payload.Set(t, a.Set)
	if err != nil {
		err = keptError(err.Error())
	}
	return encoded, err
}

// stays reports whether a change of parameters leaves the task as it is, so that it was made before.
func (a *Action) stays(t *storage.Task, ch *storage.Change) bool {
	runs := a.Requeue || a.Rescheduled
	waits := t.State == storage.Waiting && t.Declined.IsZero() && !a.FromStart
	return bytes.Equal(ch.Payload, t.Payload) && a.partitioned(t) && a.costed(t) &&
		(!a.Prioritised || t.Priority == a.Priority) &&
		(!runs || a.At.IsZero() && waits || !a.At.IsZero() && t.Due.Equal(a.At.Truncate(time.Microsecond)))
}

// was reports whether the task is already as the action would leave it.
func (a *Action) was(t *storage.Task) bool {
	waits := t.State == storage.Waiting && t.Declined.IsZero()
	switch a.Verb {
	case Move:
		return t.Queue == a.Queue
	case Prioritise:
		return t.Priority == a.Priority && a.partitioned(t) && a.costed(t)
	case Partition, Cost:
		return a.partitioned(t) && a.costed(t)
	case Cancel:
		return t.CancelAsked || t.State == storage.Cancelled
	case Requeue: // whether a waiting task has a checkpoint, a listing does not show
		return waits && !a.FromStart
	case Reschedule:
		return a.At.IsZero() && waits || !a.At.IsZero() && t.Due.Equal(a.At.Truncate(time.Microsecond))
	default:
		return false
	}
}

// partitioned reports whether the task is in the partition to which the action moves it, if it moves it.
func (a *Action) partitioned(t *storage.Task) bool {
	return a.Partition == nil || t.Partition == *a.Partition
}

// costed reports whether the task has the cost that the action sets, if it sets a cost.
func (a *Action) costed(t *storage.Task) bool { return a.Cost == nil || t.Cost.N() == a.Cost.N() }

// places reports whether the action moves tasks to another place in a line.
func (a *Action) places() bool { return a.Verb == Prioritise || a.Verb == Partition }

// Consequence returns a sentence that describes what happens to the tasks.
func (a *Action) Consequence() string {
	switch a.Verb {
	case Requeue:
		return "Tasks that have ended start anew, and their failures and crashes no longer count. " +
			"Tasks that are due later run now." + a.forgets()
	case Delete:
		return "This deletes the tasks with their parameters, history and results. Only a backup can bring them back."
	case Cancel:
		return "Running tasks are asked to stop, and run on until their jobs do. All other tasks end as cancelled " +
			"and do not run. Tasks that were enqueued without a time to keep them are deleted as they end."
	case Move:
		return fmt.Sprintf("The tasks go to queue %s and keep their states.", a.Queue)
	case Prioritise:
		return fmt.Sprintf("The tasks get priority %d. Waiting tasks join the end of the line of that priority.",
			a.Priority) + a.lines()
	case Partition, Cost:
		return strings.TrimPrefix(a.lines(), " ")
	case Reschedule:
		if a.At.IsZero() {
			return "The tasks wait for a runner from now on."
		}
		return "The tasks become due at " + a.At.UTC().Format(time.RFC3339) + "."
	case Edit:
		text := "The tasks get other parameters"
		switch {
		case a.Requeue:
			text += ". Those that have ended start anew, and those that are due later run now" +
				strings.TrimSuffix(a.forgets(), ".")
		case a.Rescheduled && a.At.IsZero():
			text += ", and wait for a runner from now on"
		case a.Rescheduled:
			text += ", and become due at " + a.At.UTC().Format(time.RFC3339)
		}
		return text + "." + a.lines()
	}
	return ""
}

// lines returns a sentence about the partition, and one about the cost, that tasks get, "" if they get none.
func (a *Action) lines() (text string) {
	switch {
	case a.Partition == nil:
	case *a.Partition == "":
		text = " The tasks get no partition. Waiting tasks join the end of the line without a partition."
	default:
		text = fmt.Sprintf(" The tasks get the partition %q. Waiting tasks join the end of its line.", *a.Partition)
	}
	if a.Cost != nil {
		text += fmt.Sprintf(" The next start of each task costs %d.", a.Cost.N())
	}
	return text
}

// forgets returns a sentence for FromStart, "" without it.
func (a *Action) forgets() string {
	if !a.FromStart {
		return ""
	}
	return " Their finished steps, checkpoints and progress are deleted."
}

// RequeueNote returns the options of a requeue for the audit, "" if it has none.
func (r *Request) RequeueNote() string {
	var parts []string
	if r.Canary {
		parts = append(parts, "with a canary")
	}
	if r.Action.FromStart {
		parts = append(parts, "from the start")
	}
	return strings.Join(parts, ", ")
}

// Done returns the word for tasks to which the action was done, such as "requeued".
func (a *Action) Done() string {
	switch a.Verb {
	case Cancel:
		return "cancelled"
	case Edit:
		if a.Requeue {
			return "edited and requeued"
		}
		return "edited"
	default:
		return strings.TrimSuffix(string(a.Verb), "e") + "ed"
	}
}
