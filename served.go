package midge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/midgehq/midge/storage"
)

// SetQueues changes the queues that are served, also while the runner runs. With
// weights nil they are served in strict order. Once it has returned no job of a queue that is
// served no more begins: what was claimed there is given back. Jobs that have begun go on.
// [Client.Runners] tells of the change with the next heartbeat, which goes out at once.
func (r *Runner) SetQueues(queues []string, weights map[string]int) error {
	if len(queues) == 0 {
		return fmt.Errorf("midge: set queues: %w", storage.Invalid("queues", "none", "at least one queue"))
	}
	if err := checkQueues("queues", queues, "weights", weights); err != nil {
		return fmt.Errorf("midge: set queues: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkNamed("queues", queues); err != nil {
		return fmt.Errorf("midge: set queues: %w", err)
	}
	r.queues, r.weights = slices.Clone(queues), maps.Clone(weights)
	r.releaseAll(r.arrange())
	kick(r.changed)
	kick(r.heart.kick)
	return nil
}

// checkNamed checks that queues, given under such a name, and those of the declared schedules
// are no more than a runner may name. The mutex is held.
func (r *Runner) checkNamed(what string, queues []string) error {
	named := make(map[string]bool, len(queues))
	for _, q := range queues {
		named[q] = true
	}
	for _, d := range r.schedules.declared() {
		named[d.Ref.Queue] = true
	}
	if len(named) > storage.MaxNames {
		return storage.Invalid(what, fmt.Sprintf("%d of them, those of schedules included", len(named)),
			"at most %d", storage.MaxNames)
	}
	return nil
}

// checkQueues checks queues and their weights, which were given under such names.
func checkQueues(what string, queues []string, whatWeights string, weights map[string]int) error {
	if len(queues) > storage.MaxNames {
		return storage.Invalid(what, fmt.Sprintf("%d of them", len(queues)), "at most %d", storage.MaxNames)
	}
	seen := make(map[string]bool, len(queues))
	for _, q := range queues {
		if err := storage.CheckName("name in "+what, q); err != nil {
			return err
		}
		if seen[q] {
			return storage.Invalid(what, q+" twice", "each queue once")
		}
		seen[q] = true
	}
	for _, q := range slices.Sorted(maps.Keys(weights)) {
		if !seen[q] {
			return storage.Invalid(whatWeights, q, "queues that are served, see %s", what)
		}
		if err := checkRange(fmt.Sprintf("%s[%q]", whatWeights, q), weights[q], 1, mostAtOnce, ""); err != nil {
			return err
		}
	}
	return nil
}

// settleQueues fills in the queues where none were configured, and gives the handlers
// whose queue is not served. The mutex is held.
func (r *Runner) settleQueues() (unserved []*handler) {
	declared := map[string]int{DefaultQueue: 1}
	for _, h := range r.handlers {
		declared[h.queue] = 1
	}
	for _, d := range r.schedules.declared() {
		declared[d.Ref.Queue] = 1
	}
	if len(r.queues) == 0 {
		r.queues = slices.Sorted(maps.Keys(declared))
		if len(r.queues) > 1 {
			r.weights = declared
		}
	}
	for _, h := range r.handlers {
		if !slices.Contains(r.queues, h.queue) {
			unserved = append(unserved, h)
		}
	}
	return unserved
}

func (r *Runner) queueNames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.queues)
}

// serves reports whether tasks of a queue, or schedules in it, are claimed here.
func (r *Runner) serves(queue string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ticks := func(d storage.Declared) bool { return d.Ref.Queue == queue }
	return slices.Contains(r.queues, queue) || slices.ContainsFunc(r.schedules.declared(), ticks)
}
