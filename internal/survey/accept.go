package survey

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// acceptable lists the codes of the findings that can be accepted, each with the syntax of its subject if it
// has one.
var acceptable = []string{
	"paused:QUEUE", "oldest:QUEUE", "cause:ID", "no-runners", "no-runner:QUEUE", "unknown-kind:QUEUE/KIND",
	"undecodable:QUEUE/KIND", "orphaned:QUEUE/SCHEDULE", "dead-limit:QUEUE", "evicted:QUEUE",
	"limit-clash:QUEUE", "undeclared-limit:QUEUE", "unread-schedules:QUEUE",
}

// AcceptSyntax is the part of the help that describes how to name an accepted finding.
var AcceptSyntax = "  " + strings.Join(acceptable, "\n  ") + "\n"

// CheckAccepted returns a *[storage.InvalidError] for a text that cannot name a finding. from names the place
// of the text.
func CheckAccepted(from, text string) error {
	code, what, _ := strings.Cut(text, ":")
	known := func(a string) bool { return a == text || what != "" && strings.HasPrefix(a, code+":") }
	if !slices.ContainsFunc(acceptable, known) {
		return storage.Invalid(from, text, "one of %s", strings.Join(acceptable, ", "))
	}
	return nil
}

// The bounds of the dead tasks that Once counts, and for how long.
const (
	onceTasks = 20_000
	onceTime  = time.Second
)

// Once reads a storage for one report. It counts more dead tasks by cause than a reading does, and as many as
// are needed to judge by the bounds.
func Once(ctx context.Context, store storage.Storage, b Bounds) (*Survey, error) {
	r := NewReader(store, Config{AllSchedules: true})
	s, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	s.Info.FullSince = time.Time{} // a handle opened for one report has learned it only now
	end := time.Now().Add(onceTime)
	total := s.Sum(func(q *Queue) int64 { return q.Dead })
	for more := total > max(0, b.Dead); more; {
		if s.Dead.Read >= onceTasks || time.Now().After(end) {
			// The uncounted tasks may all be of accepted causes, and the other tasks within the bound: read on.
			accepted := s.acceptedDead(&b)
			if accepted == 0 && !b.acceptsCauses() || total-accepted <= b.Dead || s.Dead.Read-accepted > b.Dead {
				break
			}
		}
		if more, err = r.CountDead(ctx); err != nil {
			return nil, err
		}
		s.Dead = r.Causes()
	}
	return s, nil
}

// Refused is the finding on a storage that refuses to be opened or read, with a storage.ErrRefused. There is no
// survey then, so that it stands alone, without a place among Sorts.
func Refused(err error) Finding {
	return Finding{
		Level: Problem, Code: "refused", Text: "The storage refuses midge", Detail: err.Error() + ".",
		Kinds: map[string]int64{},
	}
}

// acceptsCauses reports whether a cause of death is accepted.
func (b *Bounds) acceptsCauses() bool {
	return slices.ContainsFunc(b.Accepted, func(name string) bool { return strings.HasPrefix(name, "cause:") })
}
