package storage

import (
	"fmt"
	"strings"
	"time"
)

// String returns the verdict as a sentence, with times relative to Now.
func (v Verdict) String() string { return v.Text(roughly) }

// Text returns the sentence of String, with durations as the function duration writes them. duration is
// called with no negative duration.
func (v Verdict) Text(duration func(time.Duration) string) string { return told{v, duration}.text() }

// told is a verdict together with the function that writes its durations.
type told struct {
	Verdict

	duration func(time.Duration) string
}

func (v told) text() string {
	switch v.Cause {
	case CauseEnded:
		return v.ended()
	case CauseRunning:
		since := v.ago(", started ", v.Since)
		return fmt.Sprintf("it runs on %s%s, and its lease ends in %s%s",
			v.runner(), since, v.in(v.Until), v.runsOn())
	case CauseAhead:
		return fmt.Sprintf("claimed, not started: %s starts it once a slot is free", v.runner())
	case CauseLeaseExpired:
		ended := v.ago(" ", v.Until)
		return fmt.Sprintf("the lease of %s ended%s; a runner that has been up for three seconds takes it over",
			v.runner(), ended)
	case CauseCancelAsked:
		return fmt.Sprintf("it still runs on %s, which is asked to stop it; its lease ends in %s%s",
			v.runner(), v.in(v.Until), v.runsOn())
	case CausePaused:
		if v.State == Cursors {
			return "the schedule is paused until it is resumed"
		}
		if v.Until.IsZero() {
			return fmt.Sprintf("queue %s is paused until it is resumed", v.Ref.Queue)
		}
		return fmt.Sprintf("queue %s is paused for another %s", v.Ref.Queue, v.in(v.Until))
	case CausePartitionPaused:
		if v.Until.IsZero() {
			return fmt.Sprintf("partition %s of %s is paused until it is resumed", v.Partition, v.Ref.Queue)
		}
		return fmt.Sprintf("partition %s of %s is paused for another %s", v.Partition, v.Ref.Queue, v.in(v.Until))
	case CauseThrottled:
		if v.Partition == "" {
			return fmt.Sprintf("the tasks of %s without a partition rest for another %s after a throttle",
				v.Ref.Queue, v.in(v.Until))
		}
		return fmt.Sprintf("partition %s of %s rests for another %s after a throttle",
			v.Partition, v.Ref.Queue, v.in(v.Until))
	case CauseUndecodable:
		return fmt.Sprintf("a runner could not decode its parameters%s; it is tried again in %s",
			details(strings.TrimPrefix(v.Reason, ReasonUndecodable+": ")), v.in(v.Until))
	case CauseDue:
		late := ""
		if !v.Deadline.IsZero() && v.Deadline.Before(v.Until) {
			late = ", when it expires, because its deadline is earlier"
		}
		return fmt.Sprintf("it is due in %s%s%s", v.in(v.Until), late, v.after())
	case CauseTicks:
		if v.Until.IsZero() {
			return "the schedule has no further tick"
		}
		return fmt.Sprintf("the schedule ticks next in %s", v.in(v.Until))
	case CauseOrphaned:
		return "no live runner declares the schedule, so that it does not tick"
	default:
		return v.waits()
	}
}

// waits returns why nobody has taken a waiting task.
func (v told) waits() string {
	switch v.Cause {
	case CauseNoRunner:
		return fmt.Sprintf("no live runner serves queue %s", v.Ref.Queue)
	case CauseUnknownKind:
		text := fmt.Sprintf("no runner on %s handles %s", v.Ref.Queue, v.Kind)
		if !v.Until.IsZero() {
			text += "; it is dead in " + v.in(v.Until) + " unless one comes"
		}
		return text
	case CauseGated:
		return fmt.Sprintf("a gate keeps queue %s closed in each runner that can run it; %s",
			v.Ref.Queue, v.position())
	case CauseLimit:
		return fmt.Sprintf("limit of %s: %d of %d run; %s",
			v.Ref.Queue, v.Pending, v.Limit.Concurrency, v.position())
	case CauseRate:
		return v.spent(v.Ref.Queue, v.Limit.Rate)
	case CausePartitionLimit:
		return fmt.Sprintf("%s: %d of %d run; %s",
			v.partition(), v.PartitionRunning, v.Limit.Partition.Concurrency, v.position())
	case CausePartitionRate:
		return v.spent(v.partition(), v.Limit.Partition.Rate)
	case CauseBusy:
		slots := "slots"
		if v.Bounded {
			slots = "slots for queue " + v.Ref.Queue
		}
		return fmt.Sprintf("all %d %s of the runners that can run it are busy%s; %s",
			v.Slots, slots, v.busy(), v.position())
	case CauseSuspect:
		return "its next crash makes it dead, so that a runner starts it only beside no other such task; " +
			v.position()
	case CauseStartOnly:
		return "its runner was lost before it started, so that a runner takes it only to start it at once; " +
			v.position()
	default:
		return v.position()
	}
}

// spent returns the text for a rate that does not admit the task yet.
func (v told) spent(what string, r Rate) string {
	of := ""
	if n := v.Cost.N(); n > 1 {
		of = fmt.Sprintf(" of cost %d", n)
	}
	return fmt.Sprintf("rate of %s, %d in %s: next start%s in %s; %s",
		what, r.N, v.duration(r.Per), of, v.in(v.Until), v.position())
}

// partition names the partition of the task.
func (v told) partition() string {
	if v.Partition == "" { // the task waits in the line of its kind
		return "its partition of " + v.Ref.Queue
	}
	return "partition " + v.Partition + " of " + v.Ref.Queue
}

// runsOn returns the text for a job that ignores the end of its context, "" if it does not.
func (v told) runsOn() string {
	if v.Unstopped.IsZero() {
		return ""
	}
	return "; its context ended" + v.ago(" ", v.Unstopped) +
		", which the job ignores: only the end of its process stops it"
}

// busyQueues is how many queues a verdict names whose tasks take all slots.
const busyQueues = 3

// busy names the queues whose tasks take all slots.
func (v told) busy() string {
	var parts []string
	for _, q := range v.Busy[:min(busyQueues, len(v.Busy))] {
		parts = append(parts, fmt.Sprintf("%d of %s", q.Tasks, q.Queue))
	}
	if len(v.Busy) > busyQueues {
		parts = append(parts, "others")
	}
	if len(parts) == 0 {
		return ""
	}
	return " with tasks: " + strings.Join(parts, ", ")
}

func (v told) ended() string {
	ago := v.ago(" ", v.Since)
	switch v.State {
	case Completed:
		return "it completed" + ago
	case Cancelled:
		return "it was cancelled" + ago
	default:
	}
	reason := v.Reason
	if reason == ReasonRetries {
		reason = "retries exhausted"
	}
	text := "it died" + ago + details(reason)
	if failure := details(v.Error); failure != "" {
		text += "; last error" + failure
	}
	if v.Reason == AttemptDiscarded {
		text += "; a requeue fails again unless the cause is fixed first"
	}
	return text
}

// after names the failure or the snooze that has put off a task that is due later, "" if neither has.
func (v Verdict) after() string {
	switch {
	case v.State == Retry:
		return fmt.Sprintf(", after failure %d%s", v.Retries, details("", v.Error))
	case Sleeps(v.Reason):
		return details("its job " + v.Reason)
	case v.Snoozes > 0:
		return ", as it was snoozed" + details(v.Reason, "")
	}
	return ""
}

// details joins the texts to be appended to a sentence: the first line of each text that is not empty.
func details(texts ...string) string {
	var b strings.Builder
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			first, _, _ := strings.Cut(t, "\n")
			b.WriteString(": " + PrintableText(first, 200))
		}
	}
	return b.String()
}

func (v told) position() string {
	var text string
	switch {
	case v.Position == 0 && v.PositionAtLeast == 0 && v.State == Waiting:
		return "its place in line is not known"
	case v.Position == 0 && v.PositionAtLeast == 0:
		return "it joins the line now"
	case v.Partition != "":
		text = v.inPartition()
	case v.Position > 0:
		text = fmt.Sprintf("it is number %d of %d in line", v.Position, v.Of)
	default:
		text = fmt.Sprintf("it is behind the first %d of %d in line", v.PositionAtLeast, v.Of)
	}
	if v.ETA > 0 {
		text += ", and it starts in about " + v.duration(v.ETA)
	}
	return text + v.inTurn()
}

// inPartition returns how many tasks of its partition wait before the task.
func (v told) inPartition() string {
	of := "of its partition " + v.Partition
	switch n := v.Position - 1; {
	case n < 0:
		return fmt.Sprintf("at least %d tasks %s wait before it", v.PositionAtLeast, of)
	case n == 0:
		return "it is the first task " + of
	case n == 1:
		return "1 task " + of + " waits before it"
	default:
		return fmt.Sprintf("%d tasks %s wait before it", n, of)
	}
}

// inTurn returns with how many others the line of the task takes turns, "" if with none.
func (v told) inTurn() string {
	others := v.Turns - 1
	switch {
	case v.MoreTurns:
		return fmt.Sprintf("; this line takes turns with at least %d others", max(others, 1))
	case others == 1:
		return "; this line takes turns with one other"
	case others > 1:
		return fmt.Sprintf("; this line takes turns with %d others", others)
	}
	return ""
}

// runner names the runner that has the task.
func (v Verdict) runner() string {
	text := "runner " + v.Runner
	if v.Host != "" {
		text = fmt.Sprintf("%s, process %d", v.Host, v.PID)
	}
	if v.RunnerGone {
		text += " (not heard of any more)"
	}
	return text
}

func (v told) in(at time.Time) string { return v.duration(max(at.Sub(v.Now), 0)) }

// ago returns how long ago a moment was, after the words. It is "" for the zero moment.
func (v told) ago(words string, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return words + v.duration(max(v.Now.Sub(at), 0)) + " ago"
}
