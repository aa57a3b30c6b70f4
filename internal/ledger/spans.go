package ledger

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// Span is a length of the history that is shown in at most 60 steps.
type Span struct {
	Name         string // such as "24h"
	Step, Length time.Duration
}

// Spans are the spans that can be shown, the shortest first.
var Spans = []Span{
	{"1h", time.Minute, time.Hour},
	{"6h", 6 * time.Minute, 6 * time.Hour},
	{"24h", 24 * time.Minute, 24 * time.Hour},
	{"7d", 3 * time.Hour, 7 * 24 * time.Hour},
	{"30d", 12 * time.Hour, 30 * 24 * time.Hour},
	{"90d", 36 * time.Hour, 90 * 24 * time.Hour},
}

// SpanOf returns the span with a name, or an *[storage.InvalidError] if there is none.
func SpanOf(name string) (Span, error) {
	names := make([]string, len(Spans))
	for i, s := range Spans {
		if names[i] = s.Name; s.Name == name {
			return s, nil
		}
	}
	last := len(names) - 1
	return Span{}, storage.Invalid("span", name, "%s or %s", strings.Join(names[:last], ", "), names[last])
}

// End returns the end of the step to which a moment belongs.
func (s Span) End(now time.Time) time.Time {
	epoch := time.Unix(0, 0)
	return epoch.Add(now.Sub(epoch).Truncate(s.Step) + s.Step).UTC()
}

// Totals are the sums of a queue over a span, and its largest number of waiting tasks.
type Totals struct {
	Queue                        string
	Enqueued, Done, Failed, Dead int64
	Waiting                      int64
	Oldest                       time.Duration
}

// TotalsOf sums up the steps of a queue.
func TotalsOf(queue string, steps []Point) Totals {
	t := Totals{Queue: queue}
	for _, p := range steps {
		t.Enqueued, t.Done = t.Enqueued+p.Enqueued, t.Done+p.Done
		t.Failed, t.Dead = t.Failed+p.Failed, t.Dead+p.Dead
		t.Waiting, t.Oldest = max(t.Waiting, p.Waiting), max(t.Oldest, p.Oldest)
	}
	return t
}

// Share returns the share of the attempts that failed.
func (t Totals) Share() float64 { return float64(t.Failed) / max(1, float64(t.Done+t.Failed)) }

// Totals returns the totals of each queue, beginning with the most attempts.
func (s *Series) Totals() []Totals {
	totals := make([]Totals, 0, len(s.Queues))
	for queue, steps := range s.Queues {
		totals = append(totals, TotalsOf(queue, steps))
	}
	slices.SortFunc(totals, func(a, b Totals) int {
		return cmp.Or(cmp.Compare(b.Done+b.Failed, a.Done+a.Failed), cmp.Compare(a.Queue, b.Queue))
	})
	return totals
}
