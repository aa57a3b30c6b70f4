package memory

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/midgehq/midge/storage"
)

// settle ends the claim of a task whose fence was checked.
func (s *Storage) settle(t *task, se *storage.Settle) storage.Placed {
	to := storage.SettledState(se.Outcome, t.CancelAsked, t.Retries, t.MaxRetries)
	switch se.Outcome {
	case storage.Fail, storage.Bury, storage.Cancel:
		t.attempt(s.now, string(se.Outcome), se.Error, se.Stack)
	default: // no attempt that did not complete
	}
	if se.Outcome == storage.Fail {
		t.Retries++
		t.queue.totals.Failed++
	}
	t.Version = s.version()
	s.countSnooze(t, to, se.Reason)
	switch to {
	case storage.Waiting:
		s.waitAtHead(t)
	case storage.Scheduled, storage.Retry:
		s.schedule(t, to, s.now.after(se.Delay))
	case storage.Completed:
		if se.Result != nil {
			t.rest().Result = bytes.Clone(se.Result)
		}
		s.end(t, to)
	case storage.Dead:
		t.rest().Reason = storage.ReasonRetries
		if se.Outcome == storage.Bury {
			t.rest().Reason = storage.CleanText(se.Reason, storage.MaxReason)
		}
		s.end(t, to)
	default: // cancelled
		s.end(t, to)
	}
	return t.placed()
}

// countSnooze counts the snoozes in a row. Only a settle of a pending task leads to
// scheduled, so that state tells a snooze from every other end.
func (s *Storage) countSnooze(t *task, to storage.State, reason string) {
	switch {
	case to == storage.Scheduled:
		if t.rest().Snoozes == 0 {
			t.more.SnoozedSince = s.now
		}
		t.more.Snoozes++
		t.more.Reason = storage.CleanText(reason, storage.MaxReason)
	case t.more != nil:
		t.more.Snoozes, t.more.SnoozedSince, t.more.Reason = 0, 0, ""
	}
}

// recoverExpired ends up to most leases that expired. The last claimed goes back to
// the head first, so that the first claimed is the first to be claimed again. It names
// those that are dead of it.
func (s *Storage) recoverExpired(q *queue, most int) (buried []storage.Ref) {
	expired := q.pending.until(s.come, most)
	slices.SortFunc(expired, func(a, b *task) int { return cmp.Compare(b.Version, a.Version) })
	for _, t := range expired {
		if s.recover(t) == storage.Dead {
			buried = append(buried, t.ref())
		}
	}
	s.trimDead()
	return buried
}

// recover ends the claim of a task whose lease expired, and tells where it stands now.
func (s *Storage) recover(t *task) storage.State {
	to, charged := storage.RecoveredState(t.CancelAsked, t.Started, t.Crashes, t.CrashLimit)
	outcome := storage.AttemptExpire
	if t.Started {
		outcome = storage.AttemptCrash
	} else {
		t.prompt = true
	}
	t.attempt(s.now, outcome, "", "")
	t.more.Reason = "" // of a snooze before
	if charged {
		t.Crashes++
		t.queue.totals.Crashed++
	}
	t.Version = s.version()
	switch to {
	case storage.Waiting:
		s.waitAtHead(t)
	case storage.Dead:
		t.rest().Reason = storage.ReasonCrashes
		s.end(t, to)
	default: // cancelled
		s.end(t, to)
	}
	return to
}
