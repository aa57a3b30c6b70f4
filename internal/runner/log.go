package runner

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// Log receives the lines of a runner.
type Log interface {
	Enabled(level slog.Level) bool
	Write(level slog.Level, line string, attrs ...slog.Attr)
}

// lifeLog writes the lines by which a person follows a runner. A line names the kind and the task;
// payloads, headers and tokens never appear. Attributes repeat the parts of the sentence for
// programs: see of.
type lifeLog struct {
	log     Log
	runner  string
	success slog.Level // level of the lines about successes
	now     func() time.Time
}

// A line, and the text of an error in it, are cut to these lengths, in bytes.
const (
	lineMost  = 8 << 10
	briefMost = 4 << 10
)

// write writes a line. Line breaks in the texts of errors, and characters that control a terminal,
// are quoted as in Go.
func (l *lifeLog) write(level slog.Level, text string, attrs ...slog.Attr) {
	l.log.Write(level, storage.PrintableText(text, lineMost), append(attrs, slog.String("runner", l.runner))...)
}

// of returns the attributes of a line about an attempt.
func (l *lifeLog) of(a *Attempt, more ...slog.Attr) []slog.Attr {
	return append(append(task(a.Kind, a.Fence.Ref), slog.Int("attempt", a.Number())), more...)
}

// task returns the attributes of a line about a task.
func task(kind string, ref storage.Ref) []slog.Attr {
	return append(make([]slog.Attr, 0, 8), // enough for all attributes of a line
		slog.String("kind", kind), slog.String("queue", ref.Queue), slog.String("task", ref.ID))
}

// endAttrs returns the attributes about the end of an attempt.
func endAttrs(as Outcome, took time.Duration) []slog.Attr {
	attrs := []slog.Attr{slog.String("outcome", string(as))}
	if took > 0 {
		attrs = append(attrs, slog.Duration("took", took))
	}
	return attrs
}

// brief returns the text of an error as a line quotes it.
func brief(err error) string { return storage.PrintableText(ErrorText(err), briefMost) }

func (l *lifeLog) info(text string, attrs ...slog.Attr)  { l.write(slog.LevelInfo, text, attrs...) }
func (l *lifeLog) warn(text string, attrs ...slog.Attr)  { l.write(slog.LevelWarn, text, attrs...) }
func (l *lifeLog) error(text string, attrs ...slog.Attr) { l.write(slog.LevelError, text, attrs...) }

func (l *lifeLog) started(r *Runner, d storage.Description) {
	l.info(fmt.Sprintf("runner %s started on %s, %d at once, queues %s",
		r.id, d.Storage, r.slots.limitNow(), strings.Join(r.queues.list(), ", ")))
	l.info("durability: " + d.Durability)
	for _, w := range d.Warnings {
		l.warn(w)
	}
}

// crashed logs that a task that has lost a runner starts. The claim does not show whether another attempt was
// between the crash and this start.
func (l *lifeLog) crashed(a *Attempt) {
	l.warn(fmt.Sprintf("%s starts after crash %d of %d: a runner died with it, or was cut off",
		l.about(a), a.Crashes, a.CrashLimit), l.of(a)...)
}

// ended logs the tasks that the storage has ended by itself.
func (l *lifeLog) ended(tasks []storage.Ended) {
	for i := range tasks {
		e := &tasks[i]
		attrs := append(task(e.Kind, e.Ref), endAttrs(outcomeOf(e), 0)...)
		switch {
		case e.Reason == storage.ReasonKind:
			l.error(fmt.Sprintf("%s %s is dead, %s: no runner of its queue has known the kind for long",
				e.Kind, e.Ref, e.Reason), attrs...)
		case e.State == storage.Dead:
			l.error(fmt.Sprintf("%s %s is dead, %s: too often its runner died with it, or was cut off",
				e.Kind, e.Ref, e.Reason), attrs...)
		default:
			l.info(fmt.Sprintf("%s %s is %s: its lease expired", e.Kind, e.Ref, e.State), attrs...)
		}
	}
}

func (l *lifeLog) draining(runner string, running int, grace time.Duration) {
	l.info(fmt.Sprintf("runner %s drains: %d running, grace %v", runner, running, grace))
}

// stopped logs how many tasks were given back, how many are left to the expiry of their leases,
// whether there may be more of them, and the error of Run.
func (l *lifeLog) stopped(r *shared, left int, err error) {
	line, level, back := "runner "+r.id+" stopped", slog.LevelInfo, r.released.Load()
	if err != nil {
		line, level = line+": "+brief(err), slog.LevelWarn
	}
	if back > 0 {
		line += fmt.Sprintf(", %d given back", back)
	}
	if left > 0 {
		line, level = line+fmt.Sprintf(", %d left until their leases expire", left), slog.LevelWarn
	}
	switch {
	case back > 0 || left > 0 || err != nil:
	case r.unsure.Load():
		line += "; the storage did not answer: tasks may be held until their leases expire"
		level = slog.LevelWarn
	default:
		line += ", nothing left behind"
	}
	l.write(level, line)
}

// settled logs how an attempt ended.
func (l *lifeLog) settled(s *settlement, state storage.State) {
	a, outcome := s.attempt, s.outcome()
	level := slog.LevelInfo
	switch {
	case outcome == storage.Complete:
		level = l.success
	case state == storage.Dead:
		level = slog.LevelError
	case outcome == storage.Fail, outcome == storage.Release && errors.As(s.err, new(*CausedError)):
		level = slog.LevelWarn
	case outcome == storage.Decline && state != storage.Cancelled, s.as == OutcomeUndecodable:
		level = slog.LevelDebug // cannotRun and declined warn once of a kind and reason
	}
	if !l.log.Enabled(level) {
		return
	}
	name := l.about(a)
	delay := s.settle().Delay
	var line string
	switch {
	case outcome == storage.Complete:
		line = fmt.Sprintf("%s succeeded, took %v", name, rounded(s.took))
	case state == storage.Dead:
		reason, text := deadReason(s), s.text()
		if strings.HasPrefix(reason, cannotStore) { // the text of the error has it too
			text = strings.Replace(text, reason+": ", "", 1)
		}
		line = fmt.Sprintf("%s is dead, %s: %s", name, reason, text)
	case outcome == storage.Fail && state == storage.Retry:
		line = fmt.Sprintf("%s failed: %s, retry %d of %d in %v at %s", name, s.text(),
			a.Retries+1, a.MaxRetries, rounded(delay), l.now().Add(delay).Format(time.RFC3339))
	case state == storage.Cancelled && outcome == storage.Release && s.err == nil && s.took == 0:
		line = name + " cancelled: " + released(s)
	case state == storage.Cancelled:
		line = fmt.Sprintf("%s cancelled, took %v", name, rounded(s.took))
	case outcome == storage.Snooze:
		line = fmt.Sprintf("%s snoozed for %v", name, rounded(delay))
		if s.err != nil || s.settle().Error != "" {
			line += ": " + s.text()
		}
	case s.as == OutcomeThrottled:
		line = fmt.Sprintf("%s throttled: %s for %v", name, rests(a), rounded(delay))
		if s.err != nil {
			line += ": " + s.text()
		}
	case outcome == storage.Decline:
		line = name + " declined"
	default:
		line = name + " released: " + released(s)
	}
	l.write(level, line, l.of(a, endAttrs(s.ending(state), s.took)...)...)
}

// rests returns the words for the tasks that rest after an attempt was throttled.
func rests(a *Attempt) string {
	if a.Partition == "" {
		return "the tasks of queue " + a.Fence.Queue + " without a partition rest"
	}
	return "partition " + a.Partition + " rests"
}

// released returns why a task was given back: the end of its job's context, or what the runner did.
func released(s *settlement) string {
	if own, ok := errors.AsType[*CausedError](s.err); ok {
		return own.Cause.Error() + ", and its job returned: " + brief(own.Err)
	}
	if s.err != nil {
		return s.text()
	}
	s.attempt.mu.Lock()
	defer s.attempt.mu.Unlock()
	if !s.attempt.ran {
		return "it was claimed ahead and has not started here"
	}
	return "its job runs on after the grace period"
}

func deadReason(s *settlement) string {
	if r := s.settle().Reason; r != "" {
		return r
	}
	if s.attempt.MaxRetries == 0 {
		return "it has no retries"
	}
	return fmt.Sprintf("%s after %d", storage.ReasonRetries, s.attempt.MaxRetries)
}

// rounded keeps about three digits.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

func (l *lifeLog) about(a *Attempt) string { return a.Kind + " " + a.Fence.Ref.String() }

func (l *lifeLog) leaseLost(a *Attempt) {
	l.warn(l.about(a)+" lost its lease, its context has ended", l.of(a)...)
}

// overdueEnded logs that the first jobs end because no call has extended their leases in time.
func (l *lifeLog) overdueEnded(jobs int, lease time.Duration) {
	l.warn(fmt.Sprintf("no call has extended the lease of %d running jobs for most of its %v: "+
		"their contexts have ended, and those of others that come to this; their tasks run again", jobs, lease))
}

// leftOut logs a follow-up that was not enqueued because its id belongs to a task that will not
// run.
func (l *lifeLog) leftOut(a *Attempt, follow *storage.Insert, there storage.State) {
	l.warn(fmt.Sprintf("the follow-up %s %s of %s was left out: a task of this id is %s",
		follow.Kind, follow.Ref, l.about(a), there), l.of(a)...)
}

// lost logs an attempt whose lease was lost, with the error that its job returned, nil for none.
func (l *lifeLog) lost(a *Attempt, err error, took time.Duration) {
	line := fmt.Sprintf("%s came too late: its lease was lost, nothing was stored, took %v", l.about(a), rounded(took))
	if own, ok := errors.AsType[*CausedError](beside(storage.ErrLeaseLost, err)); ok {
		line += ", and its job returned: " + brief(own.Err)
	}
	l.warn(line, l.of(a, endAttrs(OutcomeLeaseLost, took)...)...)
}

// dropped logs an error that the job returned after the commit that completed its task.
func (l *lifeLog) dropped(a *Attempt, err error) {
	l.warn(fmt.Sprintf("%s was completed by its transaction, and returned an error that changes nothing: %s",
		l.about(a), brief(err)), l.of(a)...)
}

// overdue logs a task that has ended, if the lease was over before its transaction was checked.
func (l *lifeLog) overdue(a *Attempt, err error, took time.Duration) {
	line := fmt.Sprintf("%s has ended, by its transaction or by a later run: "+
		"its lease had ended before the task could be read, took %v", l.about(a), rounded(took))
	if err != nil {
		line += ", and returned: " + brief(err)
	}
	l.warn(line, l.of(a)...)
}

func (l *lifeLog) unsettled(a *Attempt, err error) {
	l.error(fmt.Sprintf("%s could not be settled and will run again: %s", l.about(a), brief(err)), l.of(a)...)
}

func (l *lifeLog) stuck(a *Attempt, since time.Duration) {
	lease := "kept"
	if a.isLost() {
		lease = "lost"
	}
	l.error(fmt.Sprintf("%s ignores the end of its context since %v; its lease is %s, its slot taken",
		l.about(a), rounded(since), lease), l.of(a)...)
}

// hookFailed logs that a hook panicked when it was called with the end of an attempt.
func (l *lifeLog) hookFailed(hook, kind string, of storage.Ref, err error) {
	l.error(fmt.Sprintf("%s, told of %s %s: %s", hook, kind, of, brief(err)), task(kind, of)...)
}

// outputLost logs that a writer dropped output of a task.
func (l *lifeLog) outputLost(writer, kind string, of storage.Ref, err error) {
	l.error(fmt.Sprintf("%s, which receives the output of %s %s: %s", writer, kind, of, brief(err)), task(kind, of)...)
}

// endsDropped logs that so many ends wait for the hooks that later ones are dropped.
func (l *lifeLog) endsDropped(waiting, calls int, since time.Duration) {
	l.warn(fmt.Sprintf("OnEnd blocks or is too slow: %d ends wait, none of %d goroutines in OnEnd has taken "+
		"another one for %v; later ends are dropped", waiting, calls, rounded(since)))
}

// endsResumed logs that ends are reported to the hooks again after some were dropped.
func (l *lifeLog) endsResumed(dropped int) {
	l.warn(fmt.Sprintf("OnEnd goes on: %d ends were dropped and are never reported", dropped))
}

// untold logs how many ends were not reported to the hooks when the runner had to stop.
func (l *lifeLog) untold(left int) {
	if left == 0 {
		return
	}
	l.warn(fmt.Sprintf("OnEnd has not returned in time: %d ends may not have been told", left))
}

func (l *lifeLog) refusedTick(cursor storage.Ref, err error) {
	l.warn(fmt.Sprintf("schedule %s: a tick is left out: %s", schedule.Name(cursor), brief(err)))
}

func (l *lifeLog) skippedTick(cursor storage.Ref, n int) {
	l.info(fmt.Sprintf("schedule %s: %d ticks are left out by a middleware", schedule.Name(cursor), n))
}

func (l *lifeLog) missedTicks(cursor storage.Ref, first time.Time) {
	l.info(fmt.Sprintf("schedule %s: ticks since %s are left out: they are too late",
		schedule.Name(cursor), first.UTC().Format(time.RFC3339)))
}

func (l *lifeLog) damagedSchedule(cursor storage.Ref, err error) {
	l.error(fmt.Sprintf("schedule %s is damaged and stands still until a runner declares it anew: %s",
		schedule.Name(cursor), brief(err)))
}

// keptSchedule logs that a schedule of this runner is not used.
func (l *lifeLog) keptSchedule(cursor storage.Ref) {
	l.error(fmt.Sprintf("schedule %s: %v", schedule.Name(cursor), schedule.ErrKept))
}

func (l *lifeLog) cannotRun(a *Attempt, c *CannotRunError) {
	l.warn(fmt.Sprintf("%s cannot run here, %s; tasks like it are put off, uncharged, and are dead after %v",
		l.about(a), c.whole(), a.limits.Load().DeclinedFor), l.of(a)...)
}

// unread logs a field in a task's parameters that its job does not read. The caller logs each field
// of a kind once.
func (l *lifeLog) unread(a *Attempt, field string) {
	field = storage.PrintableText(field, storage.MaxName)
	name := field[strings.LastIndexByte(field, '.')+1:]
	l.warn(fmt.Sprintf("%s holds a field %s that its job does not have: its value is passed over, and that of "+
		"tasks like it. If this program is newer than the one that enqueued the task, and has renamed the field, "+
		"the tag `midge:\"was=%s\"` reads it. If it is older, the new program should store the field under its "+
		"old name, by the tag `%s:\"…\"`, until no program like this one runs; see docs/deploying.md",
		l.about(a), field, name, a.Encoding), l.of(a)...)
}

// declined logs the first task of a kind that this runner does not know.
func (l *lifeLog) declined(a *Attempt) {
	l.warn(fmt.Sprintf("%s declined, %s: no job of this kind is registered here; tasks of it wait, uncharged, "+
		"for a runner that knows them, and are dead where none has come for %v",
		l.about(a), storage.ReasonKind, a.limits.Load().DeclinedFor), l.of(a)...)
}

func (l *lifeLog) backoffFailed(a *Attempt, err error) {
	l.error(fmt.Sprintf("the backoff of %s: %s; the default is used", l.about(a), brief(err)), l.of(a)...)
}

// negativeDelay logs the first retry of a kind whose delay is below 0.
func (l *lifeLog) negativeDelay(a *Attempt, d time.Duration) {
	l.warn(fmt.Sprintf("%s asks for a retry in %v: its formula may have overflowed; "+
		"it comes after the default delay, as each later one of the kind that is below 0", l.about(a), d), l.of(a)...)
}

// trouble logs a refused call. It leaves out a closed storage, which Run's error reports, and a
// storage that is away, which watched logs.
func (l *lifeLog) trouble(action string, err error) {
	switch {
	case errors.Is(err, storage.ErrClosed), Unanswered(err):
	case errors.Is(err, storage.ErrFull):
		l.warn(fmt.Sprintf("%s: %s; enlarge the storage, or delete tasks", action, brief(err)))
	default:
		l.warn(fmt.Sprintf("%s: %s", action, brief(err)))
	}
}

func (l *lifeLog) gone(err error) {
	l.warn(fmt.Sprintf("the storage does not answer, running jobs go on: %s", brief(err)))
}

func (l *lifeLog) back() { l.info("the storage answers again") }
