package queues

import (
	"strings"

	"github.com/midgehq/midge/storage"
)

// Unserved counts what needs a live runner.
type Unserved struct {
	waiting, pending, later, schedules int64
}

// Add adds what a queue has.
func (u *Unserved) Add(s *storage.Stats) {
	u.waiting = sum(u.waiting, s.Waiting)
	u.pending = sum(u.pending, s.Pending)
	u.later = sum(u.later, s.Scheduled, s.Retry)
	u.schedules = sum(u.schedules, s.Cursors)
}

// Text says what needs a runner, such as "2 tasks wait and 1 schedule stands still". It is "" if nothing needs
// one. The function number formats a number and the space behind it.
func (u *Unserved) Text(number func(int64) string) string {
	var parts []string
	for _, c := range []struct {
		n         int64
		one, many string
	}{
		{u.waiting, "task waits", "tasks wait"},
		{u.pending, "task is pending", "tasks are pending"},
		{u.later, "task waits for later", "tasks wait for later"},
		{u.schedules, "schedule stands still", "schedules stand still"},
	} {
		switch {
		case c.n == 1:
			parts = append(parts, number(1)+c.one)
		case c.n > 1:
			parts = append(parts, number(c.n)+c.many)
		}
	}
	if last := len(parts) - 1; last > 0 {
		return strings.Join(parts[:last], ", ") + " and " + parts[last]
	}
	return strings.Join(parts, "")
}
