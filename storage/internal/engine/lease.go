package engine

import (
	"cmp"
	"slices"

	"github.com/midgehq/midge/storage"
)

// settle ends the claim of a task whose fence was checked.
func (s *Step) settle(r *Record, se *storage.Settle) storage.Placed {
	to := storage.SettledState(se.Outcome, r.State == Asked, r.Retries, r.MaxRetries)
	if as := se.Attempt(); as != "" {
		r.endAttempt(s.Now, as, se.Error, se.Stack)
	}
	if se.Outcome == storage.Fail {
		r.Retries++
		r.Queue.Totals.Failed++
	}
	claim := r.Version
	s.grow(r)
	s.countSnooze(r, to, se.Reason)
	switch to {
	case storage.Waiting:
		if se.Outcome == storage.Decline {
			s.decline(r)
		} else {
			if se.Delay > 0 {
				s.throttle(r.Queue, r.Partition, s.after(se.Delay))
			}
			s.waitAtHead(r)
		}
	case storage.Scheduled:
		s.schedule(r, Scheduled, s.after(se.Delay))
	case storage.Retry:
		s.schedule(r, Retry, s.after(se.Delay))
	case storage.Completed:
		if se.Result != nil {
			r.beside(PartResult).Result = se.Result
		}
		if r.Keep.Of(to, se.Result != nil) > 0 {
			r.Reason = runText(claim, r.At, r.Runner)
		}
		s.end(r, Completed)
	case storage.Dead:
		r.Reason = storage.ReasonRetries
		if se.Outcome == storage.Bury {
			r.Reason = storage.CleanText(se.Reason, storage.MaxReason)
		}
		s.end(r, Dead)
	default:
		s.end(r, Cancelled)
	}
	return r.placed()
}

// countSnooze counts the snoozes in a row and keeps the reason of the last. A settle leads to
// scheduled only by a snooze, so the new state distinguishes a snooze from every other
// outcome.
func (s *Step) countSnooze(r *Record, to storage.State, reason string) {
	if to != storage.Scheduled {
		r.Snoozes, r.SnoozedSince, r.Reason = 0, 0, ""
		return
	}
	r.Reason = storage.CleanText(reason, storage.MaxReason)
	if r.Snoozes == 0 {
		r.SnoozedSince = s.Now
	}
	r.Snoozes++
}

// Recover ends the claims of tasks whose leases expired. The task that was claimed last goes back to
// the head first, so that the task that was claimed first is the first to be claimed again. Recover
// returns the tasks that it ended.
func (s *Step) Recover(expired []*Record) (ended []storage.Ended) {
	slices.SortStableFunc(expired, func(a, b *Record) int { return cmp.Compare(b.Version, a.Version) })
	for _, r := range expired {
		s.recoverOne(r)
		if r.State.HasEnded() {
			ended = append(ended, storage.Ended{Ref: r.Ref, Kind: r.Kind, State: r.State.Public(), Reason: r.Reason})
		}
	}
	return ended
}

func (s *Step) recoverOne(r *Record) {
	started := r.Flags&Started != 0
	to, charged := storage.RecoveredState(r.State == Asked, started, r.Crashes, r.CrashLimit)
	outcome := storage.AttemptLeaseLost
	if started {
		outcome = storage.AttemptCrashed
	} else {
		r.Flags |= StartOnly
	}
	r.endAttempt(s.Now, outcome, "", "")
	r.Reason = "" // of a snooze before
	if charged {
		r.Crashes++
		r.Queue.Totals.Crashed++
	}
	s.grow(r)
	switch to {
	case storage.Waiting:
		s.waitAtHead(r)
	case storage.Dead:
		r.Reason = storage.ReasonCrashes
		s.end(r, Dead)
	default:
		s.end(r, Cancelled)
	}
}

// Extend carries out one extension of a lease, expired or not, or adds the task to x.Lost if
// the fence is not valid. The version stays. Extend reports false if another transaction has
// locked the task: then it wrote nothing.
func (s *Step) Extend(e *storage.Extension, x *storage.Extended) bool {
	r := s.Store.Find(e.Fence.Ref)
	if r == nil || !r.Proves(&e.Fence) {
		x.Lost = append(x.Lost, e.Fence.Ref)
		return true
	}
	if r.State == Asked {
		x.CancelAsked = append(x.CancelAsked, r.Ref)
	}
	if r.Locked {
		return false
	}
	if e.For > 0 {
		s.put(r, r.State, Place{s.after(e.For), r.Turn})
	}
	if e.Started && r.Flags&Started == 0 {
		r.Flags |= Started
		r.touch(PartRest)
	}
	if e.Progress != nil {
		r.beside(PartProgress).Progress = e.Progress
	}
	if e.Checkpoint != nil {
		r.beside(PartCheckpoint).Checkpoint = e.Checkpoint
	}
	return true
}
