package storagetest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

func promoteRules() []rule {
	return []rule{
		state("promote/claimed at once", promoteClaimed,
			"A Claim takes what it promotes, by priority, whatever was claimed before."),
		state("promote/over lower priorities", promoteOver,
			"A task that is due goes before waiting tasks of a lower priority."),
		state("promote/hundreds at once", promoteHundreds,
			"Of hundreds of tasks that fall due at once a Claim takes those of the highest priority first."),
	}
}

// dueIn returns an insert with a priority that is due after a delay.
func dueIn(id string, priority int, delay time.Duration) storage.Insert {
	j := delayed(id, delay)
	j.Priority = priority
	return j
}

func promoteClaimed(r *rig) {
	r.add("a", "b")
	for _, h := range r.hold(ask(2), 2) {
		r.end(h, storage.Complete)
	}
	const delay = 300 * time.Millisecond
	r.insert(dueIn("five", 5, delay))
	r.insert(dueIn("seven", 7, delay+time.Millisecond))
	r.passTo(r.read("seven").Due)
	r.want("claimed", r.drain(), []string{"seven", "five"})
}

func promoteHundreds(r *rig) {
	const low, high, delay = 375, 25, time.Second
	all, want := make([]storage.Insert, 0, low+high), make([]string, 0, high)
	for i := range low {
		all = append(all, dueIn(fmt.Sprintf("low%03d", i), 0, delay))
	}
	for i := range high {
		want = append(want, fmt.Sprintf("high%02d", i))
		all = append(all, dueIn(want[i], 9, delay))
	}
	r.insert(all...)
	r.passTo(r.read(want[high-1]).Due)
	r.want("claimed", ids(r.claim(ask(high)).Tasks), want)
}

func promoteOver(r *rig) {
	r.add("a", "b")
	r.take(ask(1), "a")
	const delay = 50 * time.Millisecond
	r.insert(dueIn("five", 5, delay))
	r.insert(dueIn("seven", 7, delay))
	r.passTo(r.read("seven").Due)
	r.want("claimed", r.drain(), []string{"seven", "five", "b"})
}
