package midge

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/storage"
)

// finish turns what a job returned into the settle of its task.
func (r *Runner) finish(a *attempt, err error, took time.Duration) {
	e := a.conclude()
	switch {
	case !e.settles:
		if a.isLost() { // else it is being given back, and that is still to be brought
			r.slots.settled(a)
		}
		r.log.lost(a, took)
	case e.joined:
		r.finishJoined(a, err, took)
	case e.ran && err == nil:
		a.domain.settle.add(settlement{attempt: a, took: took})
	default:
		sm := r.judged(a, err, took)
		if !e.ran && sm.outcome() == storage.Release { // what waits behind it keeps its order
			r.releaseAll(r.slots.takeAhead(a.domain))
			r.slots.returning(a)
		}
		a.domain.settle.add(sm)
	}
}

// judged is the settlement that err asks for.
func (r *Runner) judged(a *attempt, err error, took time.Duration) settlement {
	s, reported := r.soundVerdict(a, err)
	return settlement{attempt: a, verdict: &s, err: reported, took: took}
}

// soundVerdict is the verdict, also on an error whose methods panic, such as a nil
// pointer in an interface: that is a panic of the job's.
func (r *Runner) soundVerdict(a *attempt, err error) (s storage.Settle, reported error) {
	defer func() {
		if v := recover(); v != nil {
			s, reported = r.verdict(a, panicked(v))
		}
	}()
	return r.verdict(a, err)
}

// verdict is the settle that err asks for, and the error to report.
func (r *Runner) verdict(a *attempt, err error) (storage.Settle, error) {
	a.mu.Lock()
	why, ran := a.why, a.ran
	a.mu.Unlock()
	switch {
	case !ran && errors.Is(why, ErrCancelled):
		return storage.Settle{Outcome: storage.Cancel, Error: why.Error()}, why
	case !ran:
		return storage.Settle{Outcome: storage.Release}, why
	case errors.Is(err, errUnknownKind):
		return r.unknownKind(a)
	}
	v := verdictOf(err)
	switch {
	case errors.Is(err, errUndecodable):
		return bury(reasonUndecodable, err), err
	case errors.Is(why, ErrCancelled):
		return failure(storage.Cancel, 0, err), err
	case v.kind == verdictSnooze:
		return storage.Settle{Outcome: storage.Snooze, Delay: v.delay}, beside(err)
	case v.kind == verdictDiscard:
		return bury(reasonDiscarded, v.err), v.err
	case v.kind == verdictRetryIn:
		return failure(storage.Fail, v.delay, v.err), v.err
	case why != nil: // the shutdown, or a lease that could not be extended: no fault of the job's
		return storage.Settle{Outcome: storage.Release}, why
	}
	return failure(storage.Fail, r.delay(a), err), err
}

// Why midge buries a task, beside the storage's own reasons.
const (
	reasonUndecodable = "undecodable payload"
	reasonDiscarded   = "discarded"
	reasonUnknownKind = "unknown kind"
)

func bury(reason string, err error) storage.Settle {
	s := failure(storage.Bury, 0, err)
	s.Reason = reason
	return s
}

// failure is a settle with the text and stack of err.
func failure(outcome storage.Outcome, delay time.Duration, err error) storage.Settle {
	s := storage.Settle{Outcome: outcome, Delay: delay, Error: errorText(err)}
	if p := (*PanicError)(nil); errors.As(err, &p) {
		s.Stack = string(p.Stack)
	}
	return s
}

// errorText is err's text, even where its Error method panics.
func errorText(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("%T whose Error method panicked: %v", err, v)
		}
	}()
	if err == nil {
		return ""
	}
	return err.Error()
}

// delay asks the backoff recorded with the task, else the job's, else the runner's, how
// long to wait before the retry.
func (r *Runner) delay(a *attempt) (d time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			r.log.backoffPanic(a, v)
			d = DefaultBackoff()(int(a.retries) + 1)
		}
		d = min(max(d, 0), storage.MaxDelay)
	}()
	backoff := r.cfg.Backoff
	if recorded := recordedBackoff(a.headers); recorded != nil {
		backoff = recorded
	} else if h := a.handler; h != nil && h.options.Backoff != nil {
		backoff = h.options.Backoff
	}
	return backoff(int(a.retries) + 1)
}

// Unknown kinds are tried again, uncharged, this often and this long: a deploy may be
// under way.
const (
	unknownFirst = time.Second
	unknownMost  = 30 * time.Second
	unknownFor   = 24 * time.Hour
)

func (r *Runner) unknownKind(a *attempt) (storage.Settle, error) {
	r.mu.Lock()
	first := !r.warned[a.kind]
	r.warned[a.kind] = true
	r.mu.Unlock()
	if first {
		r.log.unknownKind(a)
	}
	if a.snoozes > 0 && r.heart.storageNow(a.claimed).Sub(a.snoozedSince) > unknownFor {
		return bury(reasonUnknownKind, errUnknownKind), errUnknownKind
	}
	d := unknownMost
	if a.snoozes < 5 {
		d = unknownFirst << a.snoozes
	}
	d = d*3/4 + rand.N(d/2)
	return storage.Settle{Outcome: storage.Snooze, Delay: d}, errUnknownKind
}
