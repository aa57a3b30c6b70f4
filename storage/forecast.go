package storage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Sample is the Stats of a queue at a moment.
type Sample struct {
	At time.Time
	Stats
}

// Outlook is the forecast for a backlog that goes on to change as it did between two samples.
type Outlook struct {
	// Backlog is how many tasks wait for a runner now, without tasks of kinds that no runner handles. Tasks of
	// partitions that are paused, rest or are at their limit count.
	Backlog int64
	// Declined is how many tasks of kinds that no runner of the queue handles wait in addition.
	Declined int64
	// Flows means that tasks wait for a runner, and that none of them has waited for ten seconds or longer:
	// the backlog is work on its way, and its growth means nothing.
	Flows bool
	// Known means that the samples show how fast tasks come and go: they are of one queue, at least a tenth
	// of a second apart, and the queue was not removed in between. Otherwise the fields below are zero.
	Known bool
	// Attempts is how many attempts ended per second, and Growth by how many tasks per second the backlog
	// grew, negative if it shrank.
	Attempts, Growth float64
	// Gone is the time from the second sample until the backlog is gone: 0 if there is no backlog,
	// negative if it does not shrink.
	Gone time.Duration

	limit *QueueLimit // of the queue, at the second sample
	at    time.Time   // of that sample
}

// leastApart is the shortest time between two samples that show a rate.
const leastApart = 100 * time.Millisecond

// flowsFor is how long a task may wait while work merely flows.
const flowsFor = 10 * time.Second

// longest is the longest time that an outlook holds. A longer estimate would be of no more use, and
// might not fit a time.Duration.
const longest = 100 * 365 * 24 * time.Hour

// Forecast estimates from two samples of a queue, the earlier first, when its backlog is gone. Samples
// should be about ten seconds apart or more: a queue that is served in bursts differs from second to second.
// At a Rate each start is taken as one of cost 1, because the average cost is not known. A limit of
// partitions is not considered, nor is a rest: tasks that they hold back count in the backlog, and a backlog
// of few partitions may take longer.
func Forecast(before, after Sample) Outlook {
	o := Outlook{Backlog: after.backlog(), limit: after.Limit, at: after.At}
	o.Declined = after.Waiting - o.Backlog
	o.Flows = o.Backlog > 0 && after.Oldest < flowsFor
	apart := after.At.Sub(before.At)
	ended := func(t Totals) int64 { return t.Completed + t.Failed + t.Crashed }
	attempts := ended(after.Totals) - ended(before.Totals)
	removed := attempts < 0 || after.Totals.Enqueued < before.Totals.Enqueued
	if before.Queue != after.Queue || apart < leastApart || removed {
		return o
	}
	o.Known = true
	o.Attempts = float64(attempts) / apart.Seconds()
	o.Growth = float64(o.Backlog-before.backlog()) / apart.Seconds()
	o.Gone = -1
	switch {
	case o.Backlog == 0:
		o.Gone = 0
	case o.Growth < 0:
		o.Gone = max(seconds(float64(o.Backlog)/-o.Growth), o.ratedUntil(o.Backlog))
	case o.Growth == 0 && after.Totals.Enqueued == before.Totals.Enqueued: // a slow rate may hold the backlog
		if until := o.ratedUntil(o.Backlog); until > 0 {
			o.Gone = until
		}
	}
	return o
}

// ratedUntil returns the least time after which the Rate of the queue has admitted so many starts of cost 1.
func (o Outlook) ratedUntil(starts int64) time.Duration {
	r := o.limit.InForce().Rate
	if r.N == 0 || starts <= 0 {
		return 0
	}
	free := max(int64(r.N)-o.limit.Started, 0)
	if starts <= free {
		return 0
	}
	first := max(o.limit.Next.Sub(o.at), 0)
	return seconds(first.Seconds() + r.Per.Seconds()*float64((starts-free-1)/int64(r.N)))
}

// backlog returns how many tasks wait for a runner, without the declined tasks.
func (s Stats) backlog() int64 {
	waiting := s.Waiting
	for _, k := range s.Declined {
		waiting -= k.Tasks
	}
	return max(waiting, 0)
}

// seconds makes a duration of an estimate, at most longest.
func seconds(n float64) time.Duration {
	if n >= longest.Seconds() {
		return longest
	}
	return time.Duration(n * float64(time.Second))
}

// ETA estimates the time from the second sample until the task at a position of the line starts; the first
// position is 1. It is 0 if the rate is not known. ETA supposes that no task joins the line before it.
func (o Outlook) ETA(position int64) time.Duration {
	if !o.Known || o.Attempts <= 0 || position <= 0 {
		return 0
	}
	return max(seconds(float64(position)/o.Attempts), o.ratedUntil(position), time.Microsecond)
}

// String describes the outlook in a few words.
func (o Outlook) String() string {
	var declined string
	switch o.Declined {
	case 0:
		return o.backlog()
	case 1:
		declined = "1 task of a kind that no runner knows waits"
	default:
		declined = fmt.Sprintf("%d tasks of kinds that no runner knows wait", o.Declined)
	}
	if o.Backlog == 0 {
		return declined
	}
	return o.backlog() + "; " + declined
}

// backlog describes the outlook of the tasks that wait for a runner.
func (o Outlook) backlog() string {
	switch {
	case o.Backlog == 0:
		return "nothing waits"
	case o.Flows:
		return fmt.Sprintf("%d waiting, none of them for %s", o.Backlog, flowsFor)
	case !o.Known:
		return fmt.Sprintf("%d waiting", o.Backlog)
	case o.Gone > 0:
		return fmt.Sprintf("%d waiting, clears in about %s", o.Backlog, roughly(o.Gone))
	case o.Growth > 0:
		return fmt.Sprintf("%d waiting, growing by %s", o.Backlog, rate(o.Growth))
	}
	return fmt.Sprintf("%d waiting, not draining", o.Backlog)
}

// rate writes how often something happens, in the shortest time in which that is a number to read.
func rate(perSecond float64) string {
	const least = 0.1
	for _, in := range []struct {
		time    string
		seconds float64
	}{{"a second", 1}, {"a minute", 60}, {"an hour", 60 * 60}, {"a day", 24 * 60 * 60}} {
		n := perSecond * in.seconds
		if n < least {
			continue
		}
		decimals := 2 // three digits in all
		for at := 10.0; n >= at && decimals > 0; at *= 10 {
			decimals--
		}
		text := strconv.FormatFloat(n, 'f', decimals, 64)
		if decimals > 0 {
			text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
		}
		return text + " " + in.time
	}
	return "less than 0.1 a day"
}

// roughly writes the length of a duration with its two largest units.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, -d); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		d = d.Round(time.Second)
		return units(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < day:
		d = d.Round(time.Minute)
		return units(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	}
	d = d.Round(time.Hour)
	return units(d/day, "d", d%day/time.Hour, "h")
}

func units(n time.Duration, unit string, rest time.Duration, smaller string) string {
	if rest == 0 {
		return fmt.Sprintf("%d%s", n, unit)
	}
	return fmt.Sprintf("%d%s%d%s", n, unit, rest, smaller)
}
