package survey

import (
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// Unserved counts what needs a live runner.
type Unserved struct {
	waiting, pending, later, schedules int64
}

// Add adds what a queue has.
func (u *Unserved) Add(s *storage.Stats) {
	u.waiting = ledger.Sum(u.waiting, s.Waiting)
	u.pending = ledger.Sum(u.pending, s.Pending)
	u.later = ledger.Sum(u.later, s.Scheduled, s.Retry)
	u.schedules = ledger.Sum(u.schedules, s.Cursors)
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
	return list(parts)
}
