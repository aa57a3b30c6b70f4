package difftest

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// moment renders a time, rounded so that the short time which a step takes does not show.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Sub(begin).Truncate(grid / 2).String()
}

// bytesOf renders bytes, large values by their checksum.
func bytesOf(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%d:%x", len(b), sha256.Sum256(b))[:20]
	}
	return fmt.Sprintf("%q", b)
}

// task renders all fields of a task that are not zero.
func (s *side) task(t *storage.Task) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s %s %s %s/%s/%s", t.Ref, t.State, s.saw(t.Ref, t.Version), t.Kind, t.Encoding, bytesOf(t.Payload))
	add := adder(b)
	add("headers", t.Headers, len(t.Headers) > 0)
	add("priority", t.Priority, t.Priority != 0)
	add("partition", t.Partition, t.Partition != "")
	add("cost", t.Cost, t.Cost != 0)
	add("retries", fmt.Sprint(t.Retries, "/", t.MaxRetries), t.Retries+t.MaxRetries > 0)
	add("crashes", fmt.Sprint(t.Crashes, "/", t.CrashLimit), true)
	add("snoozes", t.Snoozes, t.Snoozes > 0)
	add("snoozed", moment(t.SnoozedSince), !t.SnoozedSince.IsZero())
	add("timeout", t.Timeout, t.Timeout != 0)
	add("keep", t.Keep, t.Keep != storage.Keep{})
	add("unique", t.Unique, t.Unique != storage.Unique{})
	add("created", moment(t.Created), true)
	add("due", moment(t.Due), !t.Due.IsZero())
	add("ended", moment(t.Ended), !t.Ended.IsZero())
	add("expires", moment(t.Expires), !t.Expires.IsZero())
	add("declined", moment(t.Declined), !t.Declined.IsZero())
	add("passed over", t.PassedOver, t.PassedOver != "")
	add("runner", t.Runner, t.Runner != "")
	add("lease", moment(t.LeaseUntil), !t.LeaseUntil.IsZero())
	add("started", true, t.Started)
	add("cancel", true, t.CancelAsked)
	add("reason", t.Reason, t.Reason != "")
	for _, a := range t.Attempts {
		// The version of the attempt may come from the queue in which the task was before it was moved.
		add("attempt", []any{moment(a.At), a.Outcome, s.attempt(t.Ref, a.Version), a.Runner, bytesOf([]byte(a.Error))}, true)
	}
	add("cursor", cursor(t.Cursor), t.Cursor != nil)
	add("stack", bytesOf([]byte(t.Stack)), t.Stack != "")
	add("result", bytesOf(t.Result), len(t.Result) > 0)
	add("progress", bytesOf(t.Progress), len(t.Progress) > 0)
	add("checkpoint", bytesOf(t.Checkpoint), len(t.Checkpoint) > 0)
	return b.String()
}

// adder returns a function that prints a field if it holds something.
func adder(b *strings.Builder) func(name string, value any, some bool) {
	return func(name string, value any, some bool) {
		if some {
			fmt.Fprintf(b, " %s=%v", name, value)
		}
	}
}

// attempt renders the version of a claim.
func (s *side) attempt(ref storage.Ref, version int64) string {
	if version == 0 {
		return "v-"
	}
	return s.knows(ref, version)
}

func cursor(c *storage.Cursor) string {
	if c == nil {
		return ""
	}
	return fmt.Sprint(moment(c.Next), moment(c.Last), c.Declaration)
}

// stats renders the sizes of a queue and the age of its oldest waiting task, rounded so that the
// short time of a step does not show. If loosely is set, due tasks may be promoted or not.
func stats(s *storage.Stats, loosely bool) string {
	live := fmt.Sprintf("waiting %d for %v partitioned %d scheduled %d retry %d", s.Waiting, s.Oldest.Round(grid), s.Partitioned,
		s.Scheduled, s.Retry)
	if loosely {
		live = fmt.Sprintf("waiting, scheduled or retry %d", s.Waiting+s.Scheduled+s.Retry)
	}
	return fmt.Sprintf("%s: %s declined %v pending %d completed %d cancelled %d dead %d cursors %d damaged %d paused %v %s %+v %s",
		s.Queue, live, s.Declined, s.Pending, s.Completed, s.Cancelled, s.Dead, s.Cursors, s.Damaged, s.Paused,
		moment(s.PausedUntil), s.Totals, limitOf(s.Limit))
}

// limitOf renders the limit of a queue. It leaves out moments, which depend on the part of Per in which a start
// was counted.
func limitOf(l *storage.QueueLimit) string {
	if l == nil {
		return "no limit"
	}
	operator, declared := "none", "none"
	if l.Operator != nil {
		operator = fmt.Sprintf("%+v", *l.Operator)
	}
	if l.Declared != nil {
		declared = fmt.Sprintf("%+v", *l.Declared)
	}
	counted, admitted := int64(0), []storage.Cost{}
	for _, c := range l.Counts {
		counted += c.N
	}
	for _, c := range []storage.Cost{storage.NoCost, 0, 2, 3, 6, 20} {
		if l.NextOf(c).IsZero() {
			admitted = append(admitted, c)
		}
	}
	return fmt.Sprintf("limit of the operator %s, declared %s, started %d, counted %d, admits %d", operator, declared,
		l.Started, counted, admitted)
}

// partition renders the stats of a partition. The starts that count for a rate end at moments that do not depend on
// the short time that a step takes: see begin.
func partition(p *storage.PartitionStats) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "partition %q: %d waiting %d running", p.Key, p.Waiting, p.Running)
	add := adder(b)
	if p.Limit != nil {
		add("limit", fmt.Sprintf("%+v", *p.Limit), true)
	}
	for _, c := range p.Counts {
		add("starts", fmt.Sprint(c.N, " until ", moment(c.Until)), true)
	}
	add("next", moment(p.Next), !p.Next.IsZero())
	add("rests", moment(p.Rests), !p.Rests.IsZero())
	add("paused", moment(p.PausedUntil), p.Paused)
	return b.String()
}

// runners renders the live runners.
func runners(all []storage.RunnerInfo) outcome {
	var out outcome
	for _, r := range all {
		for i := range r.Running {
			r.Running[i].Since = r.Running[i].Since.UTC()
		}
		out = append(out, fmt.Sprintf("runner %s %s %d %s %v %v %d %s %v %v %v seen %s", r.ID, r.Host, r.PID, r.Version,
			r.Queues, r.Kinds, r.Concurrency, moment(r.Started), r.Running, r.Schedules, r.For, moment(r.Seen)))
	}
	return out
}

// without returns the outcome without the lines that begin with a prefix.
func (o outcome) without(prefix string) outcome {
	return slices.DeleteFunc(slices.Clone(o), func(line string) bool { return strings.HasPrefix(line, prefix) })
}

// differ returns the lines in which two outcomes differ, or "".
func differ(want, got outcome) string {
	if slices.Equal(want, got) {
		return ""
	}
	b := &strings.Builder{}
	without := func(a, b outcome) outcome {
		return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
	}
	for _, line := range without(want, got) {
		fmt.Fprintf(b, "  want %s\n", line)
	}
	for _, line := range without(got, want) {
		fmt.Fprintf(b, "  got  %s\n", line)
	}
	for i := 0; b.Len() == 0 && i < max(len(want), len(got)); i++ { // the same lines, otherwise
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			fmt.Fprintf(b, "  in another order from line %d on\n  want %q\n  got  %q\n", i, want[i:], got[i:])
		}
	}
	return b.String()
}
