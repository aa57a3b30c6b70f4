package storage

import (
	"fmt"
	"time"
)

// How a storage distinguishes a clock that was set ahead for a moment from time that passed: if
// a step finds the clock more than JumpAfter past the clock of the step before it, nothing that
// is timed happens until the clock has advanced by JumpWait. See the package documentation.
const (
	JumpAfter = 10 * time.Minute
	JumpWait  = 5 * time.Second
)

// ClockWarnings returns, for [Description.Warnings], warnings about a storage's clock, which
// shows now. mark is the latest mark of its queues, and began the recorded beginning of a wait
// after a jump of the clock. Both may be zero.
func ClockWarnings(now, mark, began time.Time) []string {
	show := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
	var warnings []string
	over := began.Add(JumpWait)
	if !began.IsZero() && !now.Before(began) && now.Before(over) {
		warnings = append(warnings, fmt.Sprintf("the clock went ahead by more than %v at once: from %s to %s "+
			"nothing falls due, is recovered or expires", JumpAfter, show(began), show(over)))
	}
	if mark.After(now.Add(JumpAfter)) {
		warnings = append(warnings, fmt.Sprintf("the clock was ahead: it shows %s after it had shown %s; moments "+
			"that were set meanwhile stand as they are", show(now), show(mark)))
	}
	return warnings
}
