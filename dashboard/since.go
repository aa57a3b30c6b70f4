package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// readSince finds who paused queues, and since when those are paused that were before this process looked,
// in the audit, and since when tasks of unknown kinds wait.
func (s *sampler) readSince(ctx context.Context, before, fresh *sample) {
	var paused, unknown []*queueNow
	for i := range fresh.queues {
		q := &fresh.queues[i]
		if len(q.unknown) > 0 && before != nil && before.byName[q.Queue] != nil {
			q.unknownSince = before.byName[q.Queue].unknownSince
		}
		if q.pauseUnknown(fresh.at.Add(fresh.skew)) {
			paused = append(paused, q)
		}
		if len(q.unknown) > 0 && q.unknownSince.IsZero() {
			unknown = append(unknown, q)
		}
	}
	if len(paused)+len(unknown) == 0 || before != nil && fresh.at.Sub(s.sinceAt) < sinceFor {
		return
	}
	s.sinceAt = fresh.at
	for _, q := range unknown[:min(len(unknown), 10)] {
		q.unknownSince = s.declinedSince(ctx, q.Queue)
	}
	if len(paused) > 0 {
		s.readPauses(ctx, paused)
	}
}

// pauseUnknown reports whether the queue is paused, and the audit may tell more of that than is known.
func (q *queueNow) pauseUnknown(now time.Time) bool {
	return q.Paused && (q.pausedSeen.IsZero() || q.pausedBy == "" && now.Sub(q.pausedSeen) < 2*pausedWithin)
}

// readPauses finds in the audit who paused queues, and when.
func (s *sampler) readPauses(ctx context.Context, paused []*queueNow) {
	acts, _, err := s.audit.List(ctx, "", 200)
	if err != nil {
		return
	}
	for _, q := range paused {
		i := slices.IndexFunc(acts, func(e ledger.Entry) bool { // the newest first
			return (e.Act == "pause" || e.Act == "resume") && e.Queue == q.Queue && e.Outcome == ledger.Done
		})
		if i < 0 || acts[i].Act == "resume" { // a program paused it, which no audit knows
			continue
		}
		by := &acts[i]
		switch {
		case q.pausedSeen.IsZero():
			q.pausedSeen, q.pausedBy = by.At, by.Who
		case q.pausedSeen.Sub(by.At).Abs() < pausedWithin:
			q.pausedBy = by.Who
		}
	}
}

// pausedWithin is how far the moment of an act may lie from the look that first saw its pause.
const pausedWithin = 30 * time.Second

// declinedSince is since when a task of a queue waits in the line of its kind, zero where none is found soon.
func (s *sampler) declinedSince(ctx context.Context, queue string) time.Time {
	f, err := filter.Parse("is:declined queue:" + queue)
	if err != nil {
		return time.Time{}
	}
	found, err := scan.Next(ctx, s.store, scan.Request{
		Filter: f, States: []storage.State{storage.Waiting}, Limit: 1, Time: 100 * time.Millisecond,
	})
	if err != nil || len(found.Tasks) == 0 {
		return time.Time{}
	}
	return found.Tasks[0].Declined
}
