//go:build unix

package faulttest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// plan holds, by name, how often each fault happens in a storm, and the number of jobs.
type plan map[string]int

// The names in a plan.
const (
	jobs         = "jobs"
	kill         = "kill"
	terminate    = "terminate"
	freeze       = "freeze"
	loseReplies  = "lose replies"
	loseRequests = "lose requests"
	lateReplies  = "late replies"
	lateRequests = "late requests"
	blackHole    = "black hole"
	refuse       = "refuse"
	hang         = "hang"
	crash        = "crash"
	failover     = "failover"    // of a master whose replica lacks the last writes
	clockAhead   = "clock ahead" // for a moment
	clockBack    = "clock back"  // for good
	damageRecord = "damage record"
	damageKey    = "damage key"
)

// faultGroups are the groups of faults. The faults of one group happen one after the other, the
// groups concurrently.
var faultGroups = [][]string{
	{kill, terminate},
	{freeze},
	{loseReplies, loseRequests, lateReplies, lateRequests, blackHole, refuse},
	{hang, crash, failover, clockAhead, clockBack},
	{damageRecord, damageKey},
}

// planOf returns the plan of one of the three storms on servers, or of the storm on a file.
func planOf(k kind, clock bool) plan {
	p := plan{
		jobs: count(700, 66_700), kill: count(5, 334), terminate: count(1, 30), freeze: count(2, 134),
		loseReplies: count(1, 60), loseRequests: count(1, 60), lateReplies: count(1, 30), lateRequests: count(1, 30),
		blackHole: count(1, 20), refuse: count(1, 20), hang: count(1, 12), crash: count(1, 12),
		clockAhead: count(1, 8), clockBack: count(1, 4), damageRecord: count(4, 80), damageKey: count(2, 30),
	}
	if !clock {
		p[clockAhead], p[clockBack] = 0, 0
	}
	if k == aCluster {
		p[failover] = count(0, 3)
	}
	if k == onePostgres || k == oneFile { // which have no keys
		p[damageKey] = 0
	}
	if k == oneFile { // there is no server, no connection and no clock of its own; leases are long
		for _, name := range slices.Concat(faultGroups[2], faultGroups[3]) {
			p[name] = 0
		}
		p[jobs], p[kill], p[freeze] = count(300, 40_000), count(5, 200), count(1, 40)
	}
	return p
}

// stormOptions returns the options of a server that loses nothing when it crashes. The
// masters of a Cluster have replicas. A replica takes over only from a master that is away
// for much longer than the hangs of a storm.
func stormOptions(k kind) testserver.Options {
	options := testserver.Options{Config: []string{"appendonly yes", "appendfsync always"}}
	if k == aCluster {
		options.Replicas = true
		options.Config = append(options.Config, "cluster-node-timeout 10000")
	}
	return options
}

// stormLength is how long the storm lasts, stormDrain how long the remaining tasks may take
// afterwards.
var (
	stormLength = time.Duration(count(8, 900)) * time.Second
	stormDrain  = time.Minute
)

// faultInjector injects the faults of one group of the plan, one after the other.
type faultInjector struct {
	*storm
	random *rand.Rand
}

// injectEach injects the faults of a group. A fault that did not happen, because its victim was
// gone or no request passed that it could have struck, is tried twice more.
func (n *faultInjector) injectEach(group []string) {
	byName := n.injections()
	var names []string
	for _, name := range group {
		for range n.plan[name] {
			names = append(names, name)
		}
	}
	n.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	// The clock is set back for good only at the end, because no schedule ticks from then on.
	slices.SortStableFunc(names, func(a, b string) int {
		return rank(a == clockBack) - rank(b == clockBack)
	})
	for i, name := range names {
		n.until(i, len(names))
		for range 3 {
			if byName[name]() {
				n.happened(name)
				break
			}
		}
	}
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// injections returns the function that injects each fault. The function reports whether the
// fault happened.
func (n *faultInjector) injections() map[string]func() bool {
	all := map[string]func() bool{
		kill:      func() bool { return n.replace((*worker).kill) },
		terminate: func() bool { return n.replace((*worker).terminate) },
		freeze:    n.freeze,
		loseReplies: func() bool {
			return n.strikes(n.proxy().CutAfterRequest(n.server.kind.isStep, 1+n.random.IntN(5)), 0)
		},
		loseRequests: func() bool {
			return n.strikes(n.proxy().CutBeforeRequest(n.server.kind.isStep, 1+n.random.IntN(5)), 0)
		},
		lateReplies:  func() bool { return n.strikes(n.proxy().HoldReply(n.server.kind.isStep), stormLease) },
		lateRequests: func() bool { return n.strikes(n.proxy().Hold(n.server.kind.isStep), 2*stormLease) },
		blackHole: func() bool {
			p := n.proxy()
			return n.outage(func() { p.Blackhole() }, stormLease, func() error { p.Heal(); return nil })
		},
		refuse: func() bool {
			p := n.proxy()
			return n.outage(p.Refuse, time.Second, p.Accept)
		},
		hang: func() bool {
			node := n.node()
			return n.outage(func() { _ = node.Pause() }, stormLease, node.Resume)
		},
		crash: func() bool {
			node := n.node()
			return n.outage(func() { _ = node.Kill() }, stormLease/2, node.Restart)
		},
	}
	maps.Copy(all, map[string]func() bool{
		failover: n.failover, clockAhead: n.clockAhead, clockBack: n.clockBack,
		damageRecord: n.damageRecord, damageKey: n.damageKey,
	})
	return all
}

// proxy returns a random proxy in front of a node that takes writes.
func (n *faultInjector) proxy() *testserver.Proxy {
	for {
		i := n.random.IntN(len(n.proxies))
		if n.server.cluster == nil || isMaster(n.server.cluster.Nodes()[i]) {
			return n.proxies[i]
		}
	}
}

func (n *faultInjector) node() node { return n.server.nodes[n.random.IntN(len(n.server.nodes))] }

// outage makes the storage, or a part of it, unavailable for a random time up to most, and
// records that.
func (n *faultInjector) outage(begin func(), most time.Duration, end func() error) bool {
	n.rec.record(event{What: outageBegun})
	begin()
	n.waitUpTo(most)
	err := end()
	if err != nil {
		n.t.Error(err)
	}
	n.rec.record(event{What: outageOver})
	return err == nil
}

// strikes reports whether a fault strikes its commands in time, and ends it. A hold lasts for
// a random time up to hold, beginning when it holds something.
func (n *faultInjector) strikes(f *testserver.Fault, hold time.Duration) bool {
	defer f.Release()
	struck := poll(2*stormLease, func() bool {
		select {
		case <-f.Struck():
			return true
		default:
			return false
		}
	})
	if struck && hold > 0 {
		n.waitUpTo(hold)
	}
	return struck
}

// freeze freezes a runner for one to two leases and reports whether the runner survived.
func (n *faultInjector) freeze() bool {
	n.stormMu.Lock()
	var running []*worker
	for _, w := range n.runners {
		select {
		case <-w.done:
		default:
			running = append(running, w)
		}
	}
	if len(running) == 0 {
		n.stormMu.Unlock()
		return false
	}
	w := running[n.random.IntN(len(running))]
	n.frozenWorkers[w] = true
	n.stormMu.Unlock()
	lease := n.server.lease()
	frozen := func() { n.freezeFor(w, 0, lease+time.Duration(n.random.Int64N(int64(lease)))) }
	if n.server.kind == oneFile { // a process that is frozen while it writes blocks all others
		n.outage(frozen, 0, func() error { return nil })
	} else {
		frozen()
	}
	n.stormMu.Lock()
	delete(n.frozenWorkers, w)
	n.stormMu.Unlock()
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// replace ends a runner that is not frozen and starts another.
func (n *faultInjector) replace(end func(w *worker)) bool {
	n.stormMu.Lock()
	defer n.stormMu.Unlock()
	i := n.random.IntN(len(n.runners))
	for n.frozenWorkers[n.runners[i]] {
		i = (i + 1) % len(n.runners)
	}
	end(n.runners[i])
	n.runners[i] = n.begin(i)
	for i, w := range n.runners { // a runner ends if the storage is away at its start: supervise it
		select {
		case <-w.done:
			n.runners[i] = n.begin(i)
		default:
		}
	}
	return true
}

// waitUpTo waits for a random time up to most.
func (n *faultInjector) waitUpTo(most time.Duration) {
	if most <= 0 {
		return
	}
	<-time.NewTimer(time.Duration(n.random.Int64N(int64(most)))).C
}

// settableClock is the clock of a server that a test can move.
type settableClock interface{ Set(ahead time.Duration) }

// offset is how far ahead the clock was set, and when.
type offset struct {
	at    time.Time
	ahead time.Duration
}

// clockAhead sets the clock further ahead than ever before, for a second and a half.
func (n *faultInjector) clockAhead() bool {
	n.stormMu.Lock()
	was, most := n.offsets[len(n.offsets)-1].ahead, time.Duration(0)
	for _, o := range n.offsets {
		most = max(most, o.ahead)
	}
	n.stormMu.Unlock()
	n.move(most + 2*time.Hour)
	<-time.NewTimer(1500 * time.Millisecond).C
	n.move(was)
	return true
}

// clockBack sets the clock back by an hour for good.
func (n *faultInjector) clockBack() bool {
	n.stormMu.Lock()
	was := n.offsets[len(n.offsets)-1].ahead
	n.stormMu.Unlock()
	n.move(was - time.Hour)
	return true
}

func (n *faultInjector) move(ahead time.Duration) {
	n.stormMu.Lock()
	defer n.stormMu.Unlock()
	n.clock.Set(ahead)
	n.offsets = append(n.offsets, offset{time.Now(), ahead})
}
