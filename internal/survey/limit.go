package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// AtLimit reports whether the limit of a queue admits no other start now.
func AtLimit(s *storage.Stats) bool {
	full, spent := s.AtLimit()
	return full || spent
}

// KeptWaiting reports whether tasks wait because the limit of the queue admits none of them now.
func (q *Queue) KeptWaiting() bool {
	return q.Waiting > 0 && !q.Paused && q.Runners > 0 && AtLimit(&q.Stats)
}

// Limit writes a limit, such as "50 at once, 100 in 1m, 3 at once in a partition", or "none".
func (w Words) Limit(l storage.Limit) string {
	w = w.withDefaults()
	parts := slices.Concat(w.bounds(l.Concurrency, l.Rate, ""), w.partition(l.Partition, " in a partition"))
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// PartitionLimit writes the limit of a partition, such as "3 at once, weight 5", or "none".
func (w Words) PartitionLimit(l storage.PartitionLimit) string {
	return cmp.Or(strings.Join(w.withDefaults().partition(l, ""), ", "), "none")
}

// partition writes the parts of a limit of partitions that are set.
func (w Words) partition(l storage.PartitionLimit, of string) []string {
	parts := w.bounds(l.Concurrency, l.Rate, of)
	if l.Weight > 0 {
		parts = append(parts, "weight "+w.Number(int64(l.Weight))+of)
	}
	return parts
}

// bounds writes the bounds of a queue, or of each of its partitions, without those that are not set.
func (w Words) bounds(concurrency int, r storage.Rate, of string) (parts []string) {
	if concurrency > 0 {
		parts = append(parts, w.Number(int64(concurrency))+w.Gap+"at once"+of)
	}
	if r.N > 0 {
		parts = append(parts, w.Number(int64(r.N))+" in "+w.Span(r.Per)+of)
	}
	return parts
}

// AtLimit returns the reason why the limit of a queue admits no other start at a moment, such as "50 of 50
// run", or "next start in 12s"; "" if it admits a start.
func (w Words) AtLimit(s *storage.Stats, now time.Time) string {
	w = w.withDefaults()
	full, spent := s.AtLimit()
	var parts []string
	if full {
		parts = append(parts, w.Number(s.Pending)+" of "+w.Number(int64(s.Limit.InForce().Concurrency))+" run")
	}
	if spent {
		parts = append(parts, "next start in "+w.Span(max(s.Limit.Next.Sub(now), 0)))
	}
	return strings.Join(parts, ", ")
}

// waitsForLimit returns how the limit of a queue keeps its tasks waiting, "" if it does not, and the command
// that shows more. It reads no partition, because there may be very many.
func (j *judge) waitsForLimit(q *Queue) (limit, next string) {
	next = "midge queue show " + q.Queue
	if q.KeptWaiting() {
		return "its limit keeps them waiting: " + j.w.AtLimit(&q.Stats, j.now()), next
	}
	each := storage.Limit{Partition: q.Limit.InForce().Partition}
	if each.IsZero() || q.Partitioned == 0 {
		return "", next
	}
	return "its limit may keep partitions waiting: " + j.w.Limit(each), "midge queue partitions " + q.Queue
}

// limits adds the findings on the limit of a queue: live runners declare different limits, or none declares
// the limit that a program has declared.
func (j *judge) limits(q *Queue) {
	if d := j.declared[q.Queue]; d[1] != nil {
		j.add(Finding{
			Level: Problem, Code: "limit-clash", Queue: q.Queue, Accept: "limit-clash:" + q.Queue,
			Runner: d[1].runner.ID, Text: "Runners declare different limits of the queue " + q.Queue,
			Detail: j.declares(d[0]) + " " + j.declares(d[1]) + " " +
				sentences("in force is "+j.w.Limit(q.Limit.InForce()), "during a deploy this ends by itself"),
			Next: "deploy programs that declare one limit; midge queue limit " + q.Queue,
		})
	}
	if len(j.Runners) > 0 && q.Limit.Forgotten(q.Queue, j.Runners) {
		j.add(Finding{
			Level: Notice, Code: "undeclared-limit", Queue: q.Queue, Accept: "undeclared-limit:" + q.Queue,
			Text:   "The limit of the queue " + q.Queue + " is declared by no live runner",
			Detail: sentences("it holds all the same: " + j.w.Limit(q.Limit.Declared.Limit)),
			Next:   "midge queue limit " + q.Queue + " --clear",
		})
	}
}

// declaration is the limit of a queue that a runner declares.
type declaration struct {
	runner *storage.RunnerInfo
	limit  storage.Limit
}

// declarations returns, for each queue, the first live runner that declares a limit of it, and the first that
// declares another limit; nil for none.
func (s *Survey) declarations() map[string][2]*declaration {
	by := make(map[string][2]*declaration)
	for i := range s.Runners {
		r := &s.Runners[i]
		for _, l := range r.Limits {
			switch d := by[l.Queue]; {
			case d[0] == nil:
				by[l.Queue] = [2]*declaration{{r, l.Limit}}
			case d[1] == nil && l.Limit != d[0].limit:
				by[l.Queue] = [2]*declaration{d[0], {r, l.Limit}}
			}
		}
	}
	return by
}

// declares returns a sentence that names a runner and the limit that it declares.
func (j *judge) declares(d *declaration) string {
	r := d.runner
	return fmt.Sprintf("%s on %s, process %d, declares %s.", r.ID, r.Host, r.PID, j.w.Limit(d.limit))
}
