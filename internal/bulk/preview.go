package bulk

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
)

// Preview describes what a request would do.
type Preview struct {
	// Count is the number of tasks to which the action would be done. If More is set, there may be more.
	Count int64
	// More means that the budget ended before all tasks were searched.
	More bool
	// Most is the largest number of tasks to which the action may be done: Count if More is not set, and
	// math.MaxInt64 if it is not known.
	Most int64
	// Queues counts the tasks by queue.
	Queues map[string]int64
	// Targets are the named tasks, each once, as [Action.Target] returns them for the tasks that were read.
	Targets []Target
	// Seen is the moment of the preview, as a version: no task that the preview found was enqueued or changed
	// after it.
	Seen int64
	// Samples are the first five of the tasks.
	Samples []storage.Task
	// Gone, Kept and Reasons are as in Result.
	Gone, Kept int64
	Reasons    []Reason
	// Searched and Total are as in Result.
	Searched, Total int64
	// Consequence is a sentence that describes what would happen to the tasks.
	Consequence string
}

// None reports whether the request would do nothing. It is false while tasks remain to be searched, even if
// Count is 0.
func (p *Preview) None() bool { return p.Count == 0 && !p.More }

// Budget bounds a preview.
type Budget struct {
	Tasks int           // about how many tasks are searched: 0 for 20,000, negative for no bound
	Time  time.Duration // 0 for PreviewTime, negative for no bound
}

// PreviewTime is how long a preview searches if its budget has no other time. Tests raise it, so that what
// they expect does not depend on the speed of a machine.
var PreviewTime = time.Second

// samples is how many tasks a preview shows.
const samples = 5

// Look returns what a request would do, and changes nothing. It returns a *[storage.InvalidError] for bad
// input.
func Look(ctx context.Context, session *storage.Session, req Request, budget Budget) (Preview, error) {
	if err := req.prepare(ctx, session); err != nil {
		return Preview{}, err
	}
	req.Backup, req.Progress, req.Rate = nil, nil, 0
	if budget.Tasks == 0 {
		budget.Tasks = 20_000
	}
	if budget.Time == 0 {
		budget.Time = PreviewTime
	}
	begun, err := session.Now(ctx)
	if err != nil {
		return Preview{}, err
	}
	w := &worker{req: req, session: session, budget: budget.Tasks}
	if budget.Time > 0 {
		w.until = time.Now().Add(budget.Time)
	}
	p := Preview{Queues: make(map[string]int64), Consequence: req.Action.Consequence()}
	if req.Canary {
		p.Consequence += " One task goes first. The others follow if its first attempt does not fail."
	}
	var newest int64                     // storages have several clocks, and one may have been set back
	seen := make(map[storage.Ref]Target) // a task that changes its state meanwhile may be listed again
	for t, err := range w.tasks(ctx) {
		if err != nil {
			return Preview{}, err
		}
		if _, again := seen[t.Ref]; again {
			continue
		}
		seen[t.Ref] = req.Action.Target(&t)
		newest = max(newest, t.Version, t.Created.UnixMicro())
		if _, ok := w.step(ctx, t); ok {
			p.Count++
			p.Queues[t.Queue]++
			if len(p.Samples) < samples {
				p.Samples = append(p.Samples, t)
			}
		}
	}
	if len(req.Tasks) > 0 { // some of them may not have been read, or not have existed
		w.seen = begun.UnixMicro()
	}
	p.Seen = max(newest, w.seen)
	p.Targets = slices.Clone(w.req.Tasks)
	for i, target := range p.Targets {
		p.Targets[i] = cmp.Or(seen[target.Ref], target)
	}
	p.Gone, p.Kept, p.Reasons = w.result.Gone, w.result.Kept, w.result.Reasons
	p.Searched, p.Total = w.result.Searched, w.result.Total
	p.More, p.Most = w.unsearched, w.most(p.Count)
	return p, w.err
}

// most returns the largest number of tasks to which the action may be done, of which count are found.
func (w *worker) most(count int64) int64 {
	most := count
	switch {
	case w.unsearched && len(w.req.Tasks) > 0:
		most += w.result.Total - w.result.Searched
	case w.unsearched:
		most = math.MaxInt64
	}
	if w.req.Limit > 0 {
		most = min(most, int64(w.req.Limit))
	}
	return most
}
