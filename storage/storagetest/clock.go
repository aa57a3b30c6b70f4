package storagetest

import (
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

func clockRules() []rule {
	return []rule{
		state("time/whole microseconds", timeMicroseconds,
			"All times and durations are kept in whole microseconds, rounded down."),
		state("time/versions", timeVersions,
			"A version is the storage's time of the step in microseconds, or the last version plus one."),
		state("time/each step", timeEachStep,
			"Every step that writes to a queue advances its time by at least a microsecond."),
	}
}

func timeMicroseconds(r *rig) {
	const odd = 90*time.Minute + 1999*time.Nanosecond
	j := job("a")
	j.Delay, j.Timeout, j.Keep.For = odd, odd, odd
	j.Unique = storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: odd}
	r.insert(j)
	whole := odd.Truncate(time.Microsecond)
	t := r.read("a")
	r.want("durations", [3]time.Duration{t.Timeout, t.Keep.For, t.Unique.For},
		[3]time.Duration{whole, whole, whole})
	r.changeNow("a", storage.Change{Now: true})
	h := r.take(ask(1), "a")
	r.extend(storage.Extension{Fence: h.Fence, For: odd})
	pending := r.read("a")
	r.settle(h, storage.Settle{Outcome: storage.Snooze, Delay: odd})
	snoozed := r.read("a")
	r.changeNow("a", storage.Change{Now: true})
	r.settle(r.take(ask(1), "a"), storage.Settle{Outcome: storage.Bury})
	dead := r.read("a")
	for what, moment := range map[string]time.Time{
		"Created": t.Created, "Due": t.Due, "LeaseUntil": pending.LeaseUntil, "Due of a snooze": snoozed.Due,
		"SnoozedSince": snoozed.SnoozedSince, "Ended": dead.Ended, "Expires": dead.Expires,
		"Attempt.At": dead.Attempts[0].At, "Claimed.Now": r.maintain().Now,
	} {
		r.want(what, moment.UTC(), moment.UTC().Truncate(time.Microsecond))
	}
}

func timeVersions(r *rig) {
	for i := range 5 {
		from := r.now()
		p := r.insert(job(fmt.Sprintf("t%d", i)))[0]
		r.between("version as a time", time.UnixMicro(p.Version), from, r.now())
	}
}

func timeEachStep(r *rig) {
	var last int64
	for i := range 10 {
		id := fmt.Sprintf("t%d", i)
		for what, version := range []int64{r.insert(job(id))[0].Version, r.take(ask(1), id).Version} {
			if version <= last {
				r.Fatalf("version of step %d.%d: got %d, want more than %d", i, what, version, last)
			}
			last = version
		}
	}
}
