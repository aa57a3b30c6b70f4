// Package states declares the states of tasks, each once. Everything that lists states, or asks what kind of state
// one is, reads this table: the contract, the rules of the storages, the constants of scripts on Redis and PostgreSQL,
// and each surface for people.
package states

// Number is a state as a storage keeps it. Callers of a storage know fewer states: several numbers share a name.
//
// Storages keep these numbers, and later programs read them: no number ever changes its meaning.
type Number int16

// The numbers. PostgreSQL keeps them in the low four bits of a line.
const (
	None      Number = iota // in no line
	Waiting                 // waiting: may be claimed to start at once or ahead
	Prompt                  // waiting, start-only: may be claimed only to start at once
	Suspect                 // waiting, one crash short of its limit: starts at once, one at a time
	Pending                 // under a lease
	Asked                   // under a lease, and its cancel was asked
	Scheduled               // enqueued for later, or snoozed
	Retry                   // failed, until its next attempt
	Cursor                  // a periodic schedule
	Damaged                 // a record that cannot be read, set apart
	Completed
	Cancelled
	Dead
	_        // reserved for held tasks
	Declined // waiting for a claim that names its kind, in the line of that kind
	Keyed    // waiting in the line of its partition
	Count    // one more than the last number
)

// State declares a state.
type State struct {
	Number Number
	Name   string // by which callers know it; "" for a record set apart
	Letter byte   // in the scripts of Redis; 0 if they have no such state
	SQL    string // the name of the number in the functions of PostgreSQL, in braces
	Live   bool   // the task has not ended
	Ended  bool   // the task has ended, and is kept until a moment
	Timed  bool   // the task or schedule is due at a moment
	Glyph  string // before the word on pages
	Word   string // that people read for it
}

// all is the table. The states that tasks can have stand in the order of a task's life; the first state of a name has
// its glyph and word.
var all = [...]State{
	{Number: Waiting, Name: "waiting", Letter: 'w', SQL: "waiting", Live: true, Glyph: "○", Word: "waiting"},
	{Number: Prompt, Name: "waiting", SQL: "prompt", Live: true},
	{Number: Suspect, Name: "waiting", Letter: 'z', SQL: "suspect", Live: true},
	{Number: Declined, Name: "waiting", Letter: 'k', SQL: "declined", Live: true},
	{Number: Keyed, Name: "waiting", Letter: 'y', SQL: "keyed", Live: true},
	{Number: Pending, Name: "pending", Letter: 'p', SQL: "pending", Live: true, Glyph: "▶", Word: "running"},
	{Number: Asked, Name: "pending", SQL: "asked", Live: true},
	{Number: Scheduled, Name: "scheduled", Letter: 's', SQL: "scheduled", Live: true, Timed: true, Glyph: "◷", Word: "scheduled"},
	{Number: Retry, Name: "retry", Letter: 'r', SQL: "retry", Live: true, Timed: true, Glyph: "↻", Word: "retry"},
	{Number: Completed, Name: "completed", Letter: 'c', SQL: "completed", Ended: true, Glyph: "✓", Word: "completed"},
	{Number: Cancelled, Name: "cancelled", Letter: 'x', SQL: "cancelled", Ended: true, Glyph: "–", Word: "cancelled"},
	{Number: Dead, Name: "dead", Letter: 'd', SQL: "dead", Ended: true, Glyph: "✕", Word: "dead"},
	{Number: Cursor, Name: "cursor", Letter: 'u', SQL: "cursor", Timed: true, Glyph: "·", Word: "cursor"},
	{Number: Damaged, SQL: "damaged"},
}

var byNumber, byName, public = index()

// index returns the states by number, and the first state of each name, by name and in the order of the table.
func index() (numbers [Count]*State, names map[string]*State, firsts []*State) {
	names = make(map[string]*State)
	for i := range all {
		s := &all[i]
		numbers[s.Number] = s
		if s.Name != "" && names[s.Name] == nil {
			names[s.Name] = s
			firsts = append(firsts, s)
		}
	}
	return numbers, names, firsts
}

var none State

// All returns the table.
func All() []State { return all[:] }

// Public returns the first state of each name, in the order of a task's life, and the state of schedules last.
func Public() []*State { return public }

// Of returns the state of a number, the zero State for None and for unknown numbers.
func Of(n Number) *State {
	if n <= None || n >= Count || byNumber[n] == nil {
		return &none
	}
	return byNumber[n]
}

// Named returns the first state of a name, the zero State for a name that no state has.
func Named(name string) *State {
	if s := byName[name]; s != nil {
		return s
	}
	return &none
}
