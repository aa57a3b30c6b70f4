package survey

import (
	"strings"

	"github.com/midgehq/midge/internal/filter"
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

// Text names the tasks that need a runner, such as "3 waiting, 4 scheduled or retrying". It is "" if none
// needs one. The function number formats a number and the space behind it.
func (u *Unserved) Text(number func(int64) string) string {
	var parts []string
	for _, c := range []struct {
		n         int64
		one, many string
	}{
		{u.waiting, "waiting", "waiting"},
		{u.pending, filter.Running, filter.Running},
		{u.later, "scheduled or retrying", "scheduled or retrying"},
		{u.schedules, "schedule not ticking", "schedules not ticking"},
	} {
		switch {
		case c.n == 1:
			parts = append(parts, number(1)+c.one)
		case c.n > 1:
			parts = append(parts, number(c.n)+c.many)
		}
	}
	return strings.Join(parts, ", ")
}
