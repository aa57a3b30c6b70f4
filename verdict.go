package midge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/codec"
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
	}
	if c := (*cannotRunError)(nil); errors.As(err, &c) {
		return r.putOff(a, c), err
	}
	v := verdictOf(err)
	switch {
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

// cannotRunError says why a task cannot run on this runner. Another one may be able to: a
// deploy may be under way.
type cannotRunError struct {
	reason string // in a word
	detail string // of the reason, "" for none
	err    error
}

func (e *cannotRunError) Error() string { return e.err.Error() }
func (e *cannotRunError) Unwrap() error { return e.err }

// whole is the reason with its detail.
func (e *cannotRunError) whole() string {
	if e.detail == "" {
		return e.reason
	}
	return e.reason + ": " + e.detail
}

var errUnknownKind = &cannotRunError{
	reason: reasonUnknownKind, err: errors.New("midge: no job of this kind is registered here"),
}

// cannotDecode is the error of a job whose parameters could not be decoded.
func cannotDecode(err error) error {
	c := &cannotRunError{reason: reasonUndecodable, err: err}
	if u := (*codec.DecodeError)(nil); errors.As(err, &u) {
		c.detail = u.Problem
	}
	return c
}

// What cannot run here is tried again, uncharged, this often and this long.
const (
	putOffFirst = time.Second
	putOffMost  = 30 * time.Second
	putOffFor   = 24 * time.Hour
)

// warnedMost bounds how many reasons are remembered, and logged: texts of damaged payloads
// may all differ.
const warnedMost = 1000

// putOff has a task come back that cannot run here, or buries it when that was so for long.
func (r *Runner) putOff(a *attempt, c *cannotRunError) storage.Settle {
	r.mu.Lock()
	key := a.kind + " " + c.whole()
	first := !r.warned[key] && len(r.warned) < warnedMost
	if first {
		r.warned[key] = true
	}
	r.mu.Unlock()
	if first {
		r.log.cannotRun(a, c)
	}
	if a.snoozes > 0 && r.heart.storageNow(a.claimed).Sub(a.snoozedSince) > putOffFor {
		if r.wasPutOff(a, c) {
			return bury(c.reason, c)
		}
		// The job has snoozed until now. A release ends that row, so that the next snooze
		// begins another.
		return storage.Settle{Outcome: storage.Release}
	}
	d := putOffMost
	if a.snoozes < 5 {
		d = putOffFirst << a.snoozes
	}
	d = d*3/4 + rand.N(d/2)
	return storage.Settle{Outcome: storage.Snooze, Delay: d, Reason: c.whole()}
}

// wasPutOff reports whether the last snooze of a task was for the same reason, rather than
// its job's own. A claim does not tell that. Where the storage does not, nothing is buried.
func (r *Runner) wasPutOff(a *attempt, c *cannotRunError) bool {
	ctx, cancel := context.WithTimeout(a.domain.hard, r.cfg.Lease/3)
	defer cancel()
	t, err := r.store.Task(ctx, a.fence.Ref)
	return err == nil && strings.HasPrefix(t.Reason, c.reason)
}
