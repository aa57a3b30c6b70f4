// Package checkup examines a storage and reports what needs attention. The command midge doctor prints the
// report, and so does midge without arguments.
package checkup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/queues"
	"github.com/midgehq/midge/storage"
)

// Bounds are the limits that a storage should keep to. The zero Bounds allow any age, and no dead task.
type Bounds struct {
	// Oldest is the maximum age of the oldest waiting task of a queue; 0 means any age.
	Oldest time.Duration
	// Dead is the maximum number of dead tasks in all queues. Tasks of an accepted cause do not count. A
	// negative number means no maximum.
	Dead int64
	// Accepted lists the known findings, each by its Finding.Accept. The caller has checked them with
	// CheckAccepted.
	Accepted []string
}

// Level says how much a finding matters.
type Level string

// The levels.
const (
	Problem Level = "problem" // needs action: doctor exits with 1
	Notice  Level = "notice"  // look at it when there is time
)

// Finding is one result of a checkup. JSON shows its fields unchanged.
type Finding struct {
	Level Level `json:"level"`
	// Code names the kind of finding, for programs.
	Code string `json:"code"`
	// Queue is the queue that the finding is about, "" for none.
	Queue string `json:"queue"`
	// Text is the finding in a sentence.
	Text string `json:"text"`
	// Next is a command that shows more, or that repairs the problem.
	Next string `json:"next"`
	// Accept is the name of the finding in Bounds.Accepted, such as "paused:reports" or "no-runners"; "" if it
	// cannot be accepted.
	Accept string `json:"accept"`
	// Cause, Tasks, Kinds, Since and Error describe a cause of death: its ID, the number and the kinds of
	// the tasks that died of it, the time when the first of them died, and the text that their errors share.
	Cause string           `json:"cause"`
	Tasks int64            `json:"tasks"`
	Kinds map[string]int64 `json:"kinds"`
	Since *time.Time       `json:"since"`
	Error string           `json:"error"`
}

// Report is the result of a checkup.
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
	// Accepted lists the findings that Bounds.Accepted names. Findings does not contain them.
	Accepted []Finding `json:"accepted"`

	// Now is the storage's time.
	Now time.Time `json:"now"`

	bounds Bounds
	// unserved leaves out the queues whose lack of a runner is accepted.
	unserved queues.Unserved
}

// Problems counts the findings that need action.
func (r *Report) Problems() (n int) {
	for _, f := range r.Findings {
		if f.Level == Problem {
			n++
		}
	}
	return n
}

// Look examines a storage. It leaves out the queues whose names begin with hidden.
func Look(ctx context.Context, store storage.Storage, b Bounds, hidden string) (*Report, error) {
	before := time.Now()
	described, err := store.Describe(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Storage: described.Storage, Durability: described.Durability, RoundTrip: time.Since(before).Seconds(),
		Findings: []Finding{}, Accepted: []Finding{}, Now: described.Now.UTC(), bounds: b,
	}
	runners, err := store.Runners(ctx)
	if err != nil {
		return nil, err
	}
	r.Runners = len(runners)
	live := liveOf(runners)
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
			r.count(&s)
			r.queue(s, live)
			if err := r.schedules(ctx, store, s, live); err != nil {
				return nil, err
			}
		}
	}
	r.noRunners()
	if err := r.causes(ctx, store); err != nil {
		return nil, err
	}
	for _, warning := range described.Warnings {
		r.add(Finding{Level: Notice, Code: "storage"}, "%s", warning)
	}
	sort(r.Findings)
	sort(r.Accepted)
	return r, nil
}

// order lists the codes of the findings of a level, the worst first. It is the order of the dashboard's
// overview.
var order = []string{
	"no-runners", "no-runner", "dead", "cause", "causes", "unread", "paused", "orphaned", "damaged-schedule",
	"unknown-kind", "oldest", "damaged", "storage",
}

// sort puts the problems first, and the findings of a level into their order. Findings of one code keep the
// order in which they were found.
func sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level),
			cmp.Compare(slices.Index(order, a.Code), slices.Index(order, b.Code)))
	})
}

func (r *Report) count(s *storage.Stats) {
	if !r.accepts(noRunner(s.Queue)) {
		r.unserved.Add(s)
	}
	r.Waiting += s.Waiting
	r.Pending += s.Pending
	r.Scheduled += s.Scheduled
	r.Retry += s.Retry
	r.Dead += s.Dead
}

// add adds a finding with its text. The finding goes to Accepted if it is accepted, and to Findings
// otherwise.
func (r *Report) add(f Finding, text string, args ...any) {
	f.Text = show.Text(fmt.Sprintf(text, args...))
	if f.Kinds == nil {
		f.Kinds = map[string]int64{}
	}
	if r.accepts(f.Accept) {
		r.Accepted = append(r.Accepted, f)
		return
	}
	r.Findings = append(r.Findings, f)
}

// accepts reports whether the user accepts the finding of a name.
func (r *Report) accepts(name string) bool {
	return name != "" && slices.Contains(r.bounds.Accepted, name)
}

// noRunner returns the name of the finding that a queue lacks a runner.
func noRunner(queue string) string { return "no-runner:" + queue }

// noRunners adds the finding that no runner is alive, if something needs one.
func (r *Report) noRunners() {
	text := r.unserved.Text(func(n int64) string { return show.Number(n) + " " })
	if r.Runners > 0 || text == "" {
		return
	}
	r.add(Finding{
		Level: Problem, Code: "no-runners", Accept: "no-runners",
		Next: "start the program that runs the jobs, then midge runner ls",
	}, "no runner is alive: %s", text)
}

// list joins parts of a sentence.
func list(parts []string) string {
	if last := len(parts) - 1; last > 0 {
		return strings.Join(parts[:last], ", ") + " and " + parts[last]
	}
	return strings.Join(parts, "")
}

// live indexes what the live runners serve and declare, because a storage may have thousands of runners and
// of queues.
type live struct {
	serving  map[string]queues.Serving // by queue
	declared map[storage.Declared]bool
}

func liveOf(runners []storage.RunnerInfo) live {
	l := live{serving: queues.ServingOf(runners), declared: make(map[storage.Declared]bool)}
	for i := range runners {
		for _, schedule := range runners[i].Schedules {
			l.declared[schedule] = true
		}
	}
	return l
}

// queue adds the findings on a queue.
func (r *Report) queue(s storage.Stats, l live) {
	serving, paused := l.serving[s.Queue], "paused:"+s.Queue
	for _, k := range serving.Unknown(s.Declined) {
		r.add(Finding{
			Level: Problem, Code: "unknown-kind", Queue: s.Queue, Accept: "unknown-kind:" + s.Queue + "/" + k.Kind,
			Next: "deploy its program, or midge task rm --queue " + s.Queue + " 'is:declined kind:" + k.Kind + "'",
		}, "%s of kind %s in queue %s: no live runner of the queue knows the kind", waits(k.Tasks), k.Kind, s.Queue)
	}
	pause := Finding{
		Level: Notice, Code: "paused", Queue: s.Queue, Next: "midge queue resume " + s.Queue, Accept: paused,
	}
	switch {
	case s.Paused && s.Waiting > 0:
		r.add(pause, "queue %s is paused%s, and %s", s.Queue, r.until(s.PausedUntil), waits(s.Waiting))
	case s.Paused:
		r.add(pause, "queue %s is paused%s", s.Queue, r.until(s.PausedUntil))
	case s.Waiting > 0 && len(serving) == 0 && (r.Runners > 0 || r.accepts(noRunner(s.Queue))):
		r.add(Finding{ // without any runner, the finding no-runners tells of all queues
			Level: Problem, Code: "no-runner", Queue: s.Queue, Next: "midge runner ls", Accept: noRunner(s.Queue),
		}, "%s in queue %s, and no live runner serves it", waits(s.Waiting), s.Queue)
	}
	known := s.Paused && r.accepts(paused) // the pause is accepted, so the tasks may grow old
	if oldest := r.bounds.Oldest; oldest > 0 && s.Oldest > oldest && !known {
		r.add(Finding{Level: Problem, Code: "oldest", Queue: s.Queue, Next: "midge queue show " + s.Queue},
			"the oldest task of queue %s has waited for %s, and --max-oldest allows %s",
			s.Queue, show.Span(s.Oldest), show.Span(oldest))
	}
	if s.Damaged > 0 {
		r.add(Finding{Level: Problem, Code: "damaged", Queue: s.Queue, Next: "midge queue show " + s.Queue},
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

// schedules adds the findings on the schedules of a queue that stand still.
func (r *Report) schedules(ctx context.Context, store storage.Storage, s storage.Stats, l live) error {
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
			r.add(Finding{
				Level: Problem, Code: "damaged-schedule", Queue: s.Queue, Next: "midge schedule show " + name,
			}, "schedule %s stands still: its declaration cannot be read", name)
		case !l.declared[storage.Declared{Ref: t.Ref, Hash: declared.Hash}]:
			f := Finding{
				Level: Problem, Code: "orphaned", Queue: s.Queue, Accept: "orphaned:" + name,
				Next: "deploy its program, or midge schedule rm " + name,
			}
			why := "no live runner declares it"
			if r.Runners == 0 { // its program may be down with all the others, so that nobody should remove it
				f.Next, why = "start the program that declares it", "no runner is alive"
			}
			r.add(f, "schedule %s stands still: %s", name, why)
		}
	}
	return nil
}
