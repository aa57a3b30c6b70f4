// Package checkup looks over a storage and says what needs somebody: doctor prints it, and so does
// midge alone.
package checkup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
)

// Bounds are what a storage should keep to. The zero Bounds judge neither age nor dead tasks.
type Bounds struct {
	// Oldest is how old the oldest waiting task of a queue may be; 0 for any age.
	Oldest time.Duration
	// Dead is how many dead tasks there may be in all queues; a negative number for any.
	Dead int64
}

// Level says how much a finding matters.
type Level string

// The levels.
const (
	Problem Level = "problem" // somebody has to act: doctor exits with 1
	Notice  Level = "notice"  // look at it when there is time
)

// Finding is something that was found. JSON shows it as it is.
type Finding struct {
	Level Level `json:"level"`
	// Code names the kind of finding, for programs.
	Code string `json:"code"`
	// Queue is the queue that it is about, "" for none.
	Queue string `json:"queue"`
	// Text says it in a sentence.
	Text string `json:"text"`
	// Next is a command that shows more, or mends it.
	Next string `json:"next"`
}

// Report is what a checkup found.
type Report struct {
	Storage    string    `json:"storage"`
	Durability string    `json:"durability"`
	RoundTrip  float64   `json:"round_trip_seconds"`
	Queues     int       `json:"queues"`
	Runners    int       `json:"runners"`
	Waiting    int64     `json:"waiting"`
	Pending    int64     `json:"pending"`
	Scheduled  int64     `json:"scheduled"`
	Retry      int64     `json:"retry"`
	Dead       int64     `json:"dead"`
	Findings   []Finding `json:"findings"`

	// Now is the storage's time.
	Now time.Time `json:"now"`
}

// Problems counts the findings on which somebody has to act.
func (r *Report) Problems() (n int) {
	for _, f := range r.Findings {
		if f.Level == Problem {
			n++
		}
	}
	return n
}

// Look looks over the storage. Queues that begin with one of hidden are left out.
func Look(ctx context.Context, store storage.Storage, b Bounds, hidden string) (*Report, error) {
	before := time.Now()
	described, err := store.Describe(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Storage: described.Storage, Durability: described.Durability, RoundTrip: time.Since(before).Seconds(),
		Findings: []Finding{}, Now: described.Now.UTC(),
	}
	runners, err := store.Runners(ctx)
	if err != nil {
		return nil, err
	}
	r.Runners = len(runners)
	var names []string
	for name, err := range storage.EachQueue(ctx, store, "") {
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(name, hidden) {
			names = append(names, name)
		}
	}
	r.Queues = len(names)
	for chunk := range slices.Chunk(names, storage.MaxNames) {
		stats, err := store.Stats(ctx, chunk...)
		if err != nil {
			return nil, err
		}
		for _, s := range stats {
			r.count(s)
			r.queue(s, runners, b)
			if err := r.schedules(ctx, store, s, runners); err != nil {
				return nil, err
			}
		}
	}
	if b.Dead >= 0 && r.Dead > b.Dead {
		r.add(Problem, "dead", "", "midge task ls --by-cause", "%s died, and --max-dead allows %s",
			show.Count(r.Dead, "task"), show.Number(b.Dead))
	}
	for _, warning := range described.Warnings {
		r.add(Notice, "storage", "", "", "%s", warning)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return strings.Compare(string(b.Level),
			string(a.Level))
	})
	return r, nil
}

func (r *Report) count(s storage.Stats) {
	r.Waiting += s.Waiting
	r.Pending += s.Pending
	r.Scheduled += s.Scheduled
	r.Retry += s.Retry
	r.Dead += s.Dead
}

func (r *Report) add(level Level, code, queue, next, text string, args ...any) {
	r.Findings = append(r.Findings, Finding{
		Level: level, Code: code, Queue: queue, Next: next, Text: show.Text(fmt.Sprintf(text, args...)),
	})
}

// queue looks over a queue.
func (r *Report) queue(s storage.Stats, runners []storage.RunnerInfo, b Bounds) {
	serves := func(runner storage.RunnerInfo) bool { return slices.Contains(runner.Queues, s.Queue) }
	waiting := s.Waiting
	for _, k := range s.Declined {
		waiting -= k.Tasks
		r.add(Problem, "unknown-kind", s.Queue,
			"deploy its program, or midge task rm --queue "+s.Queue+" 'is:declined kind:"+k.Kind+"'",
			"%s of kind %s in queue %s: no live runner of the queue knows the kind", waits(k.Tasks), k.Kind, s.Queue)
	}
	switch {
	case s.Paused && waiting > 0:
		r.add(Notice, "paused", s.Queue, "midge queue resume "+s.Queue, "queue %s is paused%s, and %s",
			s.Queue, r.until(s.PausedUntil), waits(waiting))
	case s.Paused:
		r.add(Notice, "paused", s.Queue, "midge queue resume "+s.Queue, "queue %s is paused%s", s.Queue,
			r.until(s.PausedUntil))
	case waiting > 0 && !slices.ContainsFunc(runners, serves):
		r.add(Problem, "no-runner", s.Queue, "midge runner ls", "%s in queue %s, and no live runner serves it",
			waits(waiting), s.Queue)
	}
	if b.Oldest > 0 && s.Oldest > b.Oldest {
		r.add(Problem, "oldest", s.Queue, "midge queue show "+s.Queue,
			"the oldest task of queue %s has waited for %s, and --max-oldest allows %s",
			s.Queue, show.Span(s.Oldest), show.Span(b.Oldest))
	}
	if s.Dead > 0 && b.Dead < 0 {
		r.add(Notice, "dead", s.Queue, "midge task ls --by-cause --queue "+s.Queue,
			"%s of queue %s died", show.Count(s.Dead, "task"), s.Queue)
	}
	if s.Damaged > 0 {
		r.add(Problem, "damaged", s.Queue, "midge queue show "+s.Queue,
			"%s of queue %s cannot be read and was set apart", show.Count(s.Damaged, "record"), s.Queue)
	}
}

func waits(n int64) string {
	if n == 1 {
		return "1 task waits"
	}
	return show.Count(n, "task") + " wait"
}

func (r *Report) until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for another " + show.Span(t.Sub(r.Now))
}

// schedules looks for schedules that stand still.
func (r *Report) schedules(
	ctx context.Context, store storage.Storage, s storage.Stats, runners []storage.RunnerInfo,
) error {
	if s.Cursors == 0 {
		return nil
	}
	for t, err := range storage.Each(ctx, store, s.Queue, storage.Cursors) {
		if err != nil {
			return err
		}
		name := s.Queue + "/" + strings.TrimPrefix(t.ID, storage.CursorPrefix)
		declared, err := t.Cursor.Decode()
		switch {
		case err != nil:
			r.add(Problem, "damaged-schedule", s.Queue, "midge schedule show "+name,
				"schedule %s stands still: its declaration cannot be read", name)
		case !slices.ContainsFunc(runners, func(runner storage.RunnerInfo) bool {
			return slices.Contains(runner.Schedules, storage.Declared{Ref: t.Ref, Hash: declared.Hash})
		}):
			r.add(Problem, "orphaned", s.Queue, "deploy its program, or midge schedule rm "+name,
				"schedule %s stands still: no live runner declares it", name)
		}
	}
	return nil
}
