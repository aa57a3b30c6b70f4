package runner

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

// troubles holds the kinds of which the runner could lately not decode tasks, for the heartbeat.
type troubles struct {
	mu    sync.Mutex // guards kinds
	kinds map[troubleKey]*trouble
}

type troubleKey struct{ queue, kind string }

// trouble is what the heartbeat reports of a kind, and when each of its tasks last failed to decode.
type trouble struct {
	since  time.Time
	last   time.Time // when the task of reason was claimed
	reason string
	tasks  map[string]time.Duration // by id, by the runner's clock; at most troubleTasks
}

// A task that cannot be decoded is put off by at most putOffMost and a quarter. Another runner may have it next,
// so that troubleFor waits for three turns before it takes the task as decoded or gone. troubleTasks bounds the
// tasks of a kind that are counted.
const (
	troubleFor   = 4 * putOffMost
	troubleTasks = 1000
)

// add counts a task that could not be decoded.
func (ts *troubles) add(a *Attempt, reason string, now time.Duration) {
	since := a.told
	if a.Snoozes > 0 && !a.snoozedSince.IsZero() && a.snoozedSince.Before(since) {
		since = a.snoozedSince
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	key := troubleKey{a.Fence.Queue, a.kind}
	t := ts.kinds[key]
	if t == nil {
		if len(ts.kinds) >= storage.MaxTroubles {
			return
		}
		if ts.kinds == nil {
			ts.kinds = make(map[troubleKey]*trouble)
		}
		t = &trouble{since: since, tasks: make(map[string]time.Duration)}
		ts.kinds[key] = t
	}
	if since.Before(t.since) {
		t.since = since
	}
	if !a.told.Before(t.last) {
		t.last, t.reason = a.told, reason
	}
	if _, known := t.tasks[a.Fence.ID]; known || len(t.tasks) < troubleTasks {
		t.tasks[a.Fence.ID] = now
	}
}

// list returns the kinds, by queue and kind. It forgets the tasks that have not failed to decode for troubleFor,
// and kinds without such tasks.
func (ts *troubles) list(now time.Duration) (list []storage.KindTrouble) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for key, t := range ts.kinds {
		for id, at := range t.tasks {
			if now-at > troubleFor {
				delete(t.tasks, id)
			}
		}
		if len(t.tasks) == 0 {
			delete(ts.kinds, key)
			continue
		}
		list = append(list, storage.KindTrouble{
			Queue: key.queue, Kind: key.kind, Since: t.since, Last: t.last, Tasks: int64(len(t.tasks)),
			Reason: t.reason,
		})
	}
	slices.SortFunc(list, func(a, b storage.KindTrouble) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}
