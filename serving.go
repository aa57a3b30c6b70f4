package midge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// settleQueues marks the runner as started, determines its queues, and returns a line for each job
// and schedule whose queue it does not serve.
func (r *Runner) settleQueues() (unserved []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return nil, fmt.Errorf("%w: it can be started once; make a new runner", ErrRunning)
	}
	r.running = true
	if n := len(r.jobs.handlers); n > storage.MaxKinds {
		return nil, fmt.Errorf("midge: start the runner: %w",
			storage.Invalid("kinds", fmt.Sprintf("%d registered", n), "at most %d in a runner", storage.MaxKinds))
	}
	r.jobs.kinds = slices.Sorted(maps.Keys(r.jobs.handlers))
	declared := map[string]int{DefaultQueue: 1}
	for _, h := range r.jobs.handlers {
		if h.queue != "" {
			declared[h.queue] = 1
		}
	}
	for _, d := range r.actors.Declared() {
		declared[d.Ref.Queue] = 1
	}
	if len(r.queues) == 0 {
		r.queues = slices.Sorted(maps.Keys(declared))
		if len(r.queues) > 1 {
			r.weights = declared
		}
	}
	if err := r.serve("queues", r.queues, r.weights); err != nil {
		return nil, fmt.Errorf("midge: start the runner: %w", err)
	}
	return r.unserved(), nil
}

// unserved returns a line for each job, schedule and bound whose queue is not served. The mutex is held.
func (r *Runner) unserved() []string {
	var lines []string
	const not = "queue %s, which this runner does not serve"
	for _, kind := range slices.Sorted(maps.Keys(r.jobs.handlers)) {
		h := r.jobs.handlers[kind]
		if queue := h.queue; kind == h.kind && queue != "" && !slices.Contains(r.queues, queue) {
			lines = append(lines, fmt.Sprintf("jobs of kind %s go to "+not, kind, queue))
		}
	}
	for _, d := range r.actors.Declared() {
		if !slices.Contains(r.queues, d.Ref.Queue) {
			lines = append(lines, fmt.Sprintf("schedule %s enqueues to "+not, schedule.Name(d.Ref), d.Ref.Queue))
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(r.bounded)) {
		if !slices.Contains(r.queues, queue) {
			lines = append(lines, fmt.Sprintf("%s bounds "+not, r.bounded[queue], queue))
		}
	}
	return lines
}

// SetQueues changes the queues that are served, also while the runner runs. With nil weights they
// are served in strict order. Once SetQueues has returned, no job of a queue that is no longer
// served begins: tasks claimed there are released. Jobs that have begun go on. [Client.Runners]
// shows the change with the next heartbeat, which the runner sends at once. The log warns of the
// jobs and schedules whose queue is no longer served.
func (r *Runner) SetQueues(queues []string, weights map[string]int) error {
	if len(queues) == 0 {
		return fmt.Errorf("midge: set queues: %w", storage.Invalid("queues", "none", "at least one queue"))
	}
	if err := checkQueues("queues", queues, "weights", weights); err != nil {
		return fmt.Errorf("midge: set queues: %w", err)
	}
	unserved, err := r.serveOthers(queues, weights)
	if err != nil {
		return fmt.Errorf("midge: set queues: %w", err)
	}
	for _, line := range unserved {
		r.warn(line)
	}
	return nil
}

// serveOthers makes the runner serve other queues and returns a line for each job and schedule
// whose queue it no longer serves. Before the start it returns none, because begin reports them.
func (r *Runner) serveOthers(queues []string, weights map[string]int) (unserved []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.unserved()
	if err := r.serve("queues", queues, weights); err != nil || !r.running {
		return nil, err
	}
	known := func(line string) bool { return slices.Contains(before, line) }
	return slices.DeleteFunc(r.unserved(), known), nil
}

// serve makes the runner serve queues; what names them in errors. Together with the queues of the
// declared schedules there are at most storage.MaxNames. The mutex is held.
func (r *Runner) serve(what string, queues []string, weights map[string]int) error {
	named := make(map[string]bool, len(queues))
	for _, q := range queues {
		named[q] = true
	}
	for _, d := range r.actors.Declared() {
		named[d.Ref.Queue] = true
	}
	if len(named) > storage.MaxNames {
		return storage.Invalid(what, fmt.Sprintf("%d of them, those of schedules included", len(named)),
			"at most %d", storage.MaxNames)
	}
	r.queues, r.weights = slices.Clone(queues), maps.Clone(weights)
	r.actors.SetQueues(queues, weights)
	return nil
}
