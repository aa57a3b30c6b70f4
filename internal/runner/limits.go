package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/midgehq/midge/storage"
)

// limitsOf returns the limits that a program declares, by queue.
func limitsOf(declared map[string]storage.Limit) (list []storage.RunnerLimit) {
	for _, queue := range slices.Sorted(maps.Keys(declared)) {
		list = append(list, storage.RunnerLimit{Queue: queue, Limit: declared[queue]})
	}
	return list
}

// declareLimits stores the limits that this runner declares for the queues of the shard. It reports whether
// all of them are stored, or overruled.
func (d *declarer) declareLimits(ctx context.Context) bool {
	ok := true
	for i := range d.declaredLimits {
		own := &d.declaredLimits[i]
		if !storage.Spans(d.store, d.shard.member, own.Queue) {
			continue
		}
		err := d.declareLimit(ctx, own)
		if err == nil {
			d.slots.declared(own.Queue)
			continue
		}
		ok = false
		if ctx.Err() == nil {
			d.log.trouble("declare the limit of queue "+own.Queue, err)
		}
	}
	return ok
}

// declareLimit stores a limit unless it is stored. A limit that was itself replaced returns only if no live
// runner declares its successor.
func (s *shared) declareLimit(ctx context.Context, own *storage.RunnerLimit) error {
	stats, err := s.store.Stats(ctx, own.Queue)
	if err != nil {
		return err
	}
	var stored *storage.DeclaredLimit
	if l := stats[0].Limit; l != nil {
		stored = l.Declared
	}
	if stored != nil && stored.Limit == own.Limit {
		return nil
	}
	if stored != nil && slices.Contains(stored.Replaced, own.Limit) {
		runners, err := s.store.Runners(ctx)
		if err != nil {
			return fmt.Errorf("look for runners that declare another limit: %w", err)
		}
		if storage.DeclaresLimit(runners, own.Queue, stored.Limit) {
			return nil
		}
	}
	after := stored.Replace(own.Limit)
	return s.beats.Configure(ctx, own.Queue, storage.Settings{Declared: &after})
}
