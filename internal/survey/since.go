package survey

import (
	"context"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/storage"
)

// readSince finds who paused queues, and since when: the audit has pauses that began before the first
// reading. It also finds since when tasks of unknown kinds have waited.
func (r *Reader) readSince(ctx context.Context, before, fresh *Survey) {
	var paused, unknown []*Queue
	for i := range fresh.Queues {
		q := &fresh.Queues[i]
		if len(q.Unknown) > 0 && before != nil && before.byName[q.Queue] != nil {
			q.UnknownSince = before.byName[q.Queue].UnknownSince
		}
		if q.pauseUnknown(fresh.At.Add(fresh.Skew)) {
			paused = append(paused, q)
		}
		if len(q.Unknown) > 0 && q.UnknownSince.IsZero() {
			unknown = append(unknown, q)
		}
	}
	if len(paused)+len(unknown) == 0 || before != nil && fresh.At.Sub(r.sinceAt) < sinceFor {
		return
	}
	r.sinceAt = fresh.At
	for _, q := range unknown[:min(len(unknown), 10)] {
		q.UnknownSince = r.declinedSince(ctx, q.Queue)
	}
	if len(paused) > 0 {
		r.readPauses(ctx, paused)
	}
}

// pauseUnknown reports whether the queue is paused and the audit may know more about the pause.
func (q *Queue) pauseUnknown(now time.Time) bool {
	return q.Paused && (q.PausedSince.IsZero() || q.PausedBy == "" && now.Sub(q.PausedSince) < 2*pausedWithin)
}

// readPauses finds in the audit who paused queues, and when. The first call searches the whole audit, because
// a pause may have lasted for long. Later calls only ask about queues that were paused since, so that the
// newest page has the record.
func (r *Reader) readPauses(ctx context.Context, paused []*Queue) {
	for after := ""; len(paused) > 0; {
		actions, next, err := r.audit.List(ctx, after, storage.MaxPage)
		if err != nil {
			return
		}
		paused = slices.DeleteFunc(paused, func(q *Queue) bool { return q.pausedBy(actions) })
		if after = next; next == "" || r.searched {
			break
		}
	}
	r.searched = true
}

// pausedBy takes who paused the queue from records of the audit, the newest first. It reports whether they
// have the last pause or resume of the queue.
func (q *Queue) pausedBy(actions []ledger.Entry) bool {
	i := slices.IndexFunc(actions, func(e ledger.Entry) bool {
		return (e.Action == "pause" || e.Action == "resume") && e.Queue == q.Queue && e.Outcome == ledger.Done
	})
	switch {
	case i < 0:
		return false
	case actions[i].Action == "resume": // a program paused it without a record in the audit
	case q.PausedSince.IsZero():
		q.PausedSince, q.PausedBy = actions[i].At, actions[i].Who
	case q.PausedSince.Sub(actions[i].At).Abs() < pausedWithin:
		q.PausedBy = actions[i].Who
	}
	return true
}

// pausedWithin is the longest time between an action in the audit and the reading that first saw its pause.
const pausedWithin = 30 * time.Second

// declinedSince returns since when a declined task of a queue has waited for a runner that knows its kind;
// zero if a short search finds no such task.
func (r *Reader) declinedSince(ctx context.Context, queue string) time.Time {
	f, err := filter.Parse("is:declined queue:" + queue)
	if err != nil {
		return time.Time{}
	}
	found, err := scan.Next(ctx, r.store, scan.Request{
		Filter: f, States: []storage.State{storage.Waiting}, Limit: 1, Time: 100 * time.Millisecond,
	})
	if err != nil || len(found.Tasks) == 0 {
		return time.Time{}
	}
	return found.Tasks[0].Declined
}
