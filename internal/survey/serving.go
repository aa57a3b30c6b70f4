package survey

import (
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// Serving are the live runners that serve a queue.
type Serving []*storage.RunnerInfo

// ServingOf returns the runners that serve each queue, by the name of the queue. A queue that no runner serves
// has no entry. The result refers to runners.
func ServingOf(runners []storage.RunnerInfo) map[string]Serving {
	by := make(map[string]Serving)
	for i := range runners {
		for _, queue := range runners[i].Queues {
			by[queue] = append(by[queue], &runners[i])
		}
	}
	return by
}

// Knows reports whether one of the runners runs tasks of a kind.
func (s Serving) Knows(kind string) bool {
	return slices.ContainsFunc(s, func(r *storage.RunnerInfo) bool {
		return slices.Contains(r.Kinds, kind)
	})
}

// Unknown returns the kinds of a queue's declined tasks that none of its runners knows. A task that was
// declined stays so until a runner that knows its kind claims it. A queue without runners has no unknown kinds,
// as in [storage.Why]: what it lacks is a runner.
func (s Serving) Unknown(declined []storage.KindSize) (unknown []storage.KindSize) {
	if len(s) == 0 {
		return nil
	}
	for _, kind := range declined {
		if !s.Knows(kind.Kind) {
			unknown = append(unknown, kind)
		}
	}
	return unknown
}

// Undecodable returns the kinds of a queue of which its runners could lately not decode tasks, sorted, each with
// the newest reason. Several runners may report the same task, so that of their numbers the largest counts.
func (s Serving) Undecodable(queue string) (kinds []storage.KindTrouble) {
	for _, r := range s {
		for _, of := range r.Undecodable {
			if of.Queue != queue {
				continue
			}
			i, known := slices.BinarySearchFunc(kinds, of.Kind, func(k storage.KindTrouble, kind string) int {
				return strings.Compare(k.Kind, kind)
			})
			if !known {
				kinds = slices.Insert(kinds, i, of)
				continue
			}
			k := &kinds[i]
			k.Tasks = max(k.Tasks, of.Tasks)
			if of.Since.Before(k.Since) {
				k.Since = of.Since
			}
			if of.Last.After(k.Last) {
				k.Last, k.Reason = of.Last, of.Reason
			}
		}
	}
	return kinds
}
