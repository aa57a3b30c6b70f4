package storage

import (
	"encoding/json"
	"time"
)

// Cursor is a periodic schedule: a record in state Cursors whose kind, encoding,
// payload, headers, priority, limits, timeout and keep are those of the task that
// each tick inserts. It has no lease, no retries and no place in waiting, and a
// pause of its queue does not stop it. A Claim hands out due cursors as Ticks and
// hides each from other Claims for TickHide. The tick itself is one Tx, with a Change
// of the cursor at its version to its next moment, and the inserts.
//
// A storage reads Next, compares Declaration where a cursor is inserted again, and
// keeps the rest unread.
type Cursor struct {
	// Next is when the cursor is due; zero means never.
	Next time.Time
	// Last is the last tick that was enqueued, zero before the first.
	Last time.Time
	// Declaration is a [Declaration] as JSON: valid UTF-8 without NUL, of at most
	// MaxHeaderBytes. A tick leaves it as it is.
	Declaration string
}

// CursorPrefix begins the id of every cursor, and of no task.
const CursorPrefix = "cursor."

// TickHide is how long a cursor that a Claim handed out is hidden from other Claims.
const TickHide = 2 * time.Second

// Declaration says when a cursor ticks and which declaration it came from. A reader ignores
// members of the JSON that it does not know.
type Declaration struct {
	// Spec is the schedule as text, such as "every 1h" or "cron 0 3 * * *".
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
	// it tells two declarations of one cursor apart.
	Hash string `json:"hash,omitempty"`
	// Replaced are the hashes of earlier declarations of the cursor, oldest first.
	Replaced []string `json:"replaced,omitempty"`
}

// Encode returns the declaration as JSON, for [Cursor.Declaration].
func (d *Declaration) Encode() string {
	b, _ := json.Marshal(d) //nolint:errchkjson // cannot fail: texts and a number
	return string(b)
}

// Decode reads the declaration. It returns an *InvalidError where the declaration is damaged:
// where it is not JSON of this shape, or names no schedule. The damage concerns only this cursor.
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
