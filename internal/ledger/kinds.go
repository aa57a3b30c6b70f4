package ledger

import (
	"context"
	"slices"

	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// kindMemory holds what the heartbeats of runners have reported about the kinds of their jobs. It lives in
// this process, and holds what has happened between two minutes at which this process read the heartbeats.
type kindMemory struct {
	minute  int64                   // the minute of the last reading, 0 for none
	before  int64                   // the minute of the reading before
	runners map[string]*told        // by the id of the runner
	since   map[string]*vitals.Kind // what ran between the two readings
	builds  map[string]int64        // the number of runners of each version at the last reading
}

// told has the last figures of a runner.
type told struct {
	kinds   map[string]vitals.Kind
	omitted bool  // the heartbeat had no room for other kinds
	seen    int64 // the minute at which the runner was last listed
}

// forgetAfter is after how many minutes a runner that is not listed is forgotten. A runner that only could not
// send heartbeats for a while comes back with its counts.
const forgetAfter = 60

// look reads the figures of the runners, once a minute.
func (k *kindMemory) look(ctx context.Context, store storage.Storage, minute int64) error {
	if k.minute == minute {
		return nil
	}
	runners, err := store.Runners(ctx)
	if err != nil {
		return err
	}
	first := k.runners == nil
	if first {
		k.runners = make(map[string]*told)
	}
	k.before, k.minute = k.minute, minute
	k.since = make(map[string]*vitals.Kind)
	k.builds = make(map[string]int64)
	for i := range runners {
		if version := runners[i].Version; version != "" {
			k.builds[version]++
		}
		v, err := vitals.Decode(runners[i].Vitals)
		if err != nil || runners[i].Vitals == nil {
			continue // vitals of another version, or damaged
		}
		// An old runner that is not known was forgotten, or started before this process did.
		old := runners[i].Started.Unix()/60 < minute-forgetAfter
		k.learn(runners[i].ID, &v, first || old)
	}
	for id, r := range k.runners {
		if minute-r.seen > forgetAfter || r.seen > minute {
			delete(k.runners, id)
		}
	}
	return nil
}

// learn takes in the figures of a runner, and adds the growth of its counts to since. The first counts of an
// old runner, and of a kind for which the heartbeat before had no room, cover more than the last minute. They
// are not added, and are the base of later growth.
func (k *kindMemory) learn(runner string, v *vitals.Vitals, old bool) {
	before := k.runners[runner]
	if before == nil {
		before = &told{omitted: old}
	}
	r := &told{kinds: make(map[string]vitals.Kind, len(v.Kinds)), omitted: v.Omitted > 0, seen: k.minute}
	k.runners[runner] = r
	for _, now := range v.Kinds {
		earlier, known := before.kinds[now.Name]
		r.kinds[now.Name] = now
		runs, ok := now.Runs.Since(&earlier.Runs)
		if !known && before.omitted || !ok || now.Failed < earlier.Failed || runs.Count() == 0 {
			continue
		}
		sum := k.since[now.Name]
		if sum == nil {
			sum = &vitals.Kind{Name: now.Name}
			k.since[now.Name] = sum
		}
		sum.Runs.Merge(&runs)
		sum.Failed += now.Failed - earlier.Failed
	}
}

// most returns how many kinds a sample may have.
func (k *kindMemory) most() int { return len(k.since) }

// figures adds the kinds of a part to its sample, if the reading before the last one was at the minute of the
// sample before. Otherwise the sample is blind.
func (k *kindMemory) figures(s *stored, sm *sample, before int64) {
	if sm.blind = k.before != before || k.before == 0; sm.blind {
		return
	}
	places := s.kindPlaces()
	for name, ran := range k.since {
		if part(name, s.parts) != s.part {
			continue
		}
		sm.kinds = append(sm.kinds, kindFigures{
			at:   s.findKind(name, places),
			runs: int64(min(ran.Runs.Count(), maxFigure)), failed: int64(min(ran.Failed, maxFigure)),
			p50: packDuration(ran.Runs.Quantile(0.50)),
			p95: packDuration(ran.Runs.Quantile(0.95)),
			p99: packDuration(ran.Runs.Quantile(0.99)),
		})
	}
	slices.SortFunc(sm.kinds, func(a, b kindFigures) int { return a.at - b.at })
}
