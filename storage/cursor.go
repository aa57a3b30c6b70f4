package storage

import (
	"encoding/json"
	"slices"
	"time"
)

// Cursor is a periodic schedule: a record in state Cursors whose kind, encoding,
// payload, headers, priority, limits, timeout and keep are those of the task that
// each tick inserts. It has no lease, no retries and no place in waiting, and a
// pause of its queue does not stop it. A Claim hands out due cursors as Ticks and
// hides each from other Claims for TickHide. The tick itself is one Tx, with a Change
// of the cursor at its version to its next moment, and the inserts.
//
// A storage reads Next, compares Declaration if a cursor is inserted again, and keeps the
// rest unread.
type Cursor struct {
	// Next is when the cursor is due; zero means never.
	Next time.Time
	// Last is the moment of the last tick that was enqueued, zero before the first.
	Last time.Time
	// Declaration is a [Declaration] as JSON: valid UTF-8 without NUL, of at most
	// MaxHeaderBytes. A tick leaves it as it is.
	Declaration string
}

// CursorPrefix begins the id of every cursor, and of no task.
const CursorPrefix = "cursor."

// TickHide is how long a cursor that a Claim handed out is hidden from other Claims.
const TickHide = 2 * time.Second

// Declaration describes when a cursor ticks, and the declaration from which it came. A
// reader ignores members of the JSON that Declaration does not have.
type Declaration struct {
	// Spec is the schedule as text, such as "every 1h", "cron 0 3 * * *" or "every 1h jitter 30m".
	Spec string `json:"spec"`
	// Zone is the time zone's name, "" for UTC.
	Zone string `json:"zone,omitempty"`
	// CatchUp is the policy for missed ticks: "skip", "one" or "all".
	CatchUp string `json:"catch_up,omitempty"`
	// CatchUpCap bounds the missed ticks that "all" enqueues.
	CatchUpCap int `json:"catch_up_cap,omitempty"`
	// Overlap is "" to enqueue each tick, or "skip" to leave a tick out while the task
	// of an earlier tick has not ended.
	Overlap string `json:"overlap,omitempty"`
	// Hash is the hash of the whole declaration, with the task that each tick enqueues:
	// it distinguishes two declarations of one cursor.
	Hash string `json:"hash,omitempty"`
	// Replaced are the hashes of earlier declarations of the cursor, oldest first.
	Replaced []string `json:"replaced,omitempty"`
	// Kept means that the schedule is kept in the storage and belongs to no program: a runner that serves
	// its queue and handles its kind ticks it. Any other schedule ticks while a live runner declares it.
	Kept bool `json:"kept,omitempty"`
	// Paused means that the schedule does not tick until it is resumed. Its Cursor.Next is zero.
	Paused bool `json:"paused,omitempty"`
}

// Encode returns the declaration as JSON, for [Cursor.Declaration].
func (d *Declaration) Encode() string {
	b, _ := json.Marshal(d) //nolint:errchkjson // cannot fail: texts and a number
	return string(b)
}

// Decode reads the declaration. It returns an *InvalidError if the declaration is damaged: if it
// is not JSON of this shape, or names no schedule. The damage concerns only this cursor.
func (c *Cursor) Decode() (Declaration, error) {
	var d Declaration
	if c == nil {
		return d, Invalid("cursor", "nil", "a schedule")
	}
	if err := json.Unmarshal([]byte(c.Declaration), &d); err != nil || d.Spec == "" {
		return Declaration{}, Invalid("declaration", c.Declaration, "the JSON of a schedule")
	}
	return d, nil
}

// Tickers determines which schedules the live runners tick. [TickersOf] makes it. It is not safe for
// concurrent use.
type Tickers struct {
	runners  []RunnerInfo
	declared map[Declared]bool
	refs     map[Ref]bool       // of declared
	able     map[[2]string]bool // by queue and kind, once they were looked for
}

// TickersOf returns which schedules live runners tick. It keeps runners.
func TickersOf(runners []RunnerInfo) *Tickers {
	t := &Tickers{
		runners: runners, declared: make(map[Declared]bool), refs: make(map[Ref]bool),
		able: make(map[[2]string]bool),
	}
	for i := range runners {
		for _, d := range runners[i].Schedules {
			t.declared[d], t.refs[d.Ref] = true, true
		}
	}
	return t
}

// Tick reports whether a runner ticks the schedule of a cursor that is declared as d: a runner that
// serves the queue of a kept schedule and handles its kind, or a runner that declares any other schedule
// exactly so.
func (t *Tickers) Tick(cursor *Task, d *Declaration) bool {
	if !d.Kept {
		return t.declared[Declared{Ref: cursor.Ref, Hash: d.Hash}]
	}
	key := [2]string{cursor.Queue, cursor.Kind}
	able, known := t.able[key]
	if !known {
		able = slices.ContainsFunc(t.runners, func(r RunnerInfo) bool {
			return slices.Contains(r.Queues, cursor.Queue) && slices.Contains(r.Kinds, cursor.Kind)
		})
		t.able[key] = able
	}
	return able
}

// Orphaned reports whether the schedule of a cursor that is declared as d does not tick because no runner
// ticks it. A paused schedule is not orphaned.
func (t *Tickers) Orphaned(cursor *Task, d *Declaration) bool { return !d.Paused && !t.Tick(cursor, d) }

// Clashes reports whether a runner declares a schedule under the name of a kept schedule, which stays as it
// is.
func (t *Tickers) Clashes(cursor *Task, d *Declaration) bool { return d.Kept && t.refs[cursor.Ref] }
