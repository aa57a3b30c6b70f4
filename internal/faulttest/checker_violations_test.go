//go:build unix

package faulttest

import (
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestTheCheckerSeesWhatIsWrong checks that the checker finds each kind of violation. Otherwise a
// run in which it finds nothing would prove nothing.
func TestTheCheckerSeesWhatIsWrong(t *testing.T) {
	ref := storage.Ref{Queue: "q", ID: "task"}
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	note := func(ms int, what string, fence int64) *event {
		return &event{What: what, At: at(ms), From: at(ms), Ref: ref, Fence: fence, For: time.Second, Worker: "w"}
	}
	claim := func(ms int, f int64) *event { return note(ms, claimed, f) }
	start := func(ms int, f int64) *event { return note(ms, runStart, f) }
	settle := func(ms int, f int64, what string, outcome storage.Outcome, state storage.State) *event {
		e := note(ms, what, f)
		e.Outcome, e.State = outcome, state
		return e
	}
	complete := func(ms int, f int64) history {
		return history{
			settle(ms, f, settleBegun, storage.Complete, ""), settle(ms+1, f, settleDone, storage.Complete, storage.Completed),
		}
	}
	for name, c := range map[string]struct {
		h    history
		want string // part of the reported violation, "" for none
	}{
		"one run":                  {append(history{claim(0, 1), start(1, 1)}, complete(2, 1)...), ""},
		"after the lease":          {append(history{claim(0, 1), start(1, 1), claim(1001, 2), start(1002, 2)}, complete(1003, 2)...), ""},
		"after a release":          {history{claim(0, 1), start(1, 1), settle(5, 1, settleBegun, storage.Release, ""), start(6, 2)}, ""},
		"before the lease ran out": {history{claim(0, 1), start(1, 1), start(500, 2)}, "held until"},
		"in spite of an extension": {history{claim(0, 1), start(1, 1), note(900, extended, 1), start(1500, 2)}, "held until"},
		"after a refused release": {history{
			claim(0, 1), start(1, 1), settle(5, 1, settleBegun, storage.Release, ""), settle(6, 1, settleLost, storage.Release, ""), start(7, 2),
		}, "held until"},
		"a fence twice":        {history{claim(0, 1), start(1, 1), start(2000, 1)}, "not more than"},
		"two commits":          {append(append(history{claim(0, 1), start(1, 1), start(2000, 2)}, complete(2001, 1)...), complete(2002, 2)...), "committed 2 times"},
		"a superseded commits": {append(history{claim(0, 1), start(1, 1), claim(1100, 2)}, complete(1200, 1)...), "after a claim with fence 2"},
	} {
		got := strings.Join(faultsOf(ref, c.h), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: the checker says %q, want %q", name, got, c.want)
		}
	}
}

// TestTheCheckerSeesStaleStarts checks that staleStarts finds starts under a lease that had run
// out, and distinguishes them from starts before which the lease ran out after the
// runner's check.
func TestTheCheckerSeesStaleStarts(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	claim := &event{What: claimed, At: at(1), From: at(0), For: time.Second, Fence: 1}
	start := func(checked, ms int) *event { return &event{What: runStart, At: at(ms), Begun: at(checked), Fence: 1} }
	extension := &event{What: extended, At: at(901), From: at(900), For: time.Second, Fence: 1}
	for name, c := range map[string]struct {
		h              history
		stale, between int
	}{
		"in time":         {history{claim, start(2, 3)}, 0, 0},
		"too late":        {history{claim, start(2500, 2501)}, 1, 0},
		"in between":      {history{claim, start(900, 2501)}, 0, 1},
		"extended":        {history{claim, extension, start(1500, 1501)}, 0, 0},
		"of another run":  {history{claim, {What: extended, From: at(900), For: time.Second, Fence: 2}, start(1500, 1501)}, 1, 0},
		"without a check": {history{claim, {What: runStart, At: at(1500), Fence: 1}}, 1, 0},
		"extended behind": {history{claim, start(1500, 1501), extension}, 1, 0},
	} {
		if stale, between := staleStarts(c.h); len(stale) != c.stale || len(between) != c.between {
			t.Errorf("%s: stale %v, in between %v; want %d and %d", name, stale, between, c.stale, c.between)
		}
	}
}

// TestTheCheckerSeesStandstills checks that the checker distinguishes a task that stands still
// from a task that waits for earlier ones.
func TestTheCheckerSeesStandstills(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	waits := func(id string, from, to int) interval {
		ref := storage.Ref{Queue: "q", ID: id}
		return interval{ref, &event{What: enqueueDone, At: at(from), Ref: ref}, &event{What: claimed, At: at(to), Ref: ref}}
	}
	backlog := func(before, after int) []interval { // one claim a second, for forty seconds
		var all []interval
		for i := range 40 {
			all = append(all, waits("other", i-before, i+after))
		}
		return all
	}
	for name, c := range map[string]struct {
		others []interval
		want   time.Duration
	}{
		"in its order":           {backlog(40, 1), time.Second},
		"the queue stands still": {nil, 40 * time.Second},
		"others go before it":    {backlog(-1, 1), 38 * time.Second},
	} {
		own := waits("own", 0, 40)
		got := queueClaimsOf(append(c.others, own), nil)["q"].stood(own, nil)
		if off := (got - c.want).Abs(); off > 2*time.Second {
			t.Errorf("%s: stood still for %v, want about %v", name, got, c.want)
		}
	}
	outages := spans{{at(5), at(35)}}
	own := waits("own", 0, 40)
	if got := queueClaimsOf([]interval{own}, outages)["q"].stood(own, outages); got != 10*time.Second {
		t.Errorf("with an outage of 30s: stood still for %v, want 10s", got)
	}
}

// TestVersionsThatFallBackAreSeen checks that faultyVersions finds versions that fall back by
// more than two readings of a clock may differ.
func TestVersionsThatFallBackAreSeen(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(1_795_480_180_000 + int64(ms)) }
	claim := func(id string, from int, version time.Time) *event {
		return &event{
			What: claimed, Ref: storage.Ref{Queue: "q", ID: id}, From: at(from), At: at(from + 1), Fence: version.UnixMicro(),
		}
	}
	for name, c := range map[string]struct {
		later time.Time
		want  int
	}{
		"on":                         {at(50), 0},
		"back by a step of a clock":  {at(-5), 0},
		"back by more than a step":   {at(-15), 1},
		"back by a mark that is old": {at(-60_000), 1},
	} {
		faults := faultyVersions(history{claim("a", 0, at(0)), claim("b", 10, c.later)})
		if len(faults) != c.want {
			t.Errorf("%s: got %q, want %d faults", name, faults, c.want)
		}
	}
}
