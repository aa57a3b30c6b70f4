//go:build unix

package faulttest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// stormJobs are the jobs of a storm: the steps of each job, and the state in which its task must end.
var stormJobs = []struct {
	name  string
	job   any
	opts  []midge.Option
	state storage.State
}{
	{"plain", stormJob(do("follow")), nil, storage.Completed},
	{"slow", stormJob(steps(sleep(200*time.Millisecond), step{Do: "follow"})), nil, storage.Completed},
	{"writes", stormJob(do("progress", "checkpoint", "result", "follow")), nil, storage.Completed},
	{"retried", stormJob(do("fail once", "follow")), nil, storage.Completed},
	{"snoozed", stormJob(do("snooze once", "follow")), nil, storage.Completed},
	{"discarded", stormJob(do("follow", "discard")), nil, storage.Dead},
	{"exhausted", stormJob(do("follow", "fail")), []midge.Option{midge.Retries(2)}, storage.Dead},
	{"delayed", stormJob(do("follow")), []midge.Option{midge.In(300 * time.Millisecond)}, storage.Completed},
	{"cancelled", stormJob{}, []midge.Option{midge.In(time.Hour)}, storage.Cancelled},
	{"unique", stormJob(do("fail once", "follow")), nil, storage.Completed}, // under a unique key of its own
	{"declined", declinedJob(do("fail once", "follow")), nil, storage.Completed},
	{"preferred", declinedJob(do("follow")), []midge.Option{midge.Priority(1)}, storage.Completed},
}

// envStorm is the environment variable that sets the seed of the storm.
const envStorm = "MIDGE_STORM_SEED"

// TestAStorm injects all faults at once, in the numbers of the plan and in a random order, while
// clients keep enqueueing: runners are killed, frozen and terminated, replies and connections are
// lost, the server hangs and crashes, its clock jumps ahead and back, and records and keys are
// damaged. Afterwards each acknowledged task must be in its expected state and committed once. No
// task may have run while an earlier run had its lease, or been started under a lease that had
// run out, and none may have stood still for more than the lease and ten seconds.
//
// With the build tag long, the three storms on servers have 200,000 jobs, 1,000 kills and 400
// freezes in all; without it, about a hundredth of that. The storm on a SQLite file, whose leases
// are longer, then has 200 kills and 40 freezes. Only with the tag, masters of the Cluster also
// fail over under load, to replicas that lack the last writes; the test logs each task that is
// lost in this way.
func TestAStorm(t *testing.T) {
	require(t)
	t.Parallel()
	seed, err := strconv.ParseUint(os.Getenv(envStorm), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: set it as %s", seed, envStorm)
	for _, k := range []kind{oneRedis, aCluster, onePostgres, oneFile} {
		t.Run(string(k), func(t *testing.T) {
			testserver.Parallel(t)
			clock, server := stormServer(t, k)
			storm := newStorm(t, server, clock)
			storm.inject(seed)
			storm.drain()
			storm.check()
		})
	}
}

// storm is a fleet under all faults at once.
type storm struct {
	*fleet
	plan          plan
	clock         settableClock // nil if the server's clock cannot be moved
	queues        []string
	damagedQueues []string // names of queues whose keys are damaged
	proxied       dialing
	proxies       []*testserver.Proxy
	begun         time.Time
	drainedAt     time.Time // when all tasks had ended except tasks that wait for another clock

	failoverMu sync.Mutex // held during a failover, and while none may happen; guards failovers
	failovers  []stormFailover

	stormMu       sync.Mutex // guards the fields below
	runners       []*worker
	frozenWorkers map[*worker]bool // frozen workers, which must not be killed
	done          map[string]int   // how often each fault has happened
	damagedTasks  []damagedTask
	offsets       []offset // the offsets of the clock, in order of time
}

const (
	stormLease   = 2 * time.Second
	stormRunners = 5
	// stormClients is the number of goroutines that enqueue.
	stormClients = 8
)

func newStorm(t *testing.T, s *server, clock settableClock) *storm {
	t.Helper()
	f := newFleet(t, s)
	st := &storm{
		fleet: f, plan: planOf(s.kind, clock != nil), clock: clock, queues: []string{"q"},
		frozenWorkers: make(map[*worker]bool), done: make(map[string]int),
	}
	if s.cluster != nil {
		st.queues = queuesOf(t, s.cluster)
	}
	for i := range st.plan[damageKey] {
		st.damagedQueues = append(st.damagedQueues, fmt.Sprint(damagedQueue, i))
	}
	st.proxied, st.proxies = f.dialing.through(t)
	for i := range stormRunners {
		st.runners = append(st.runners, st.begin(i))
	}
	return st
}

// begin starts the i-th runner. The last two runners do not know the kind of declinedJob.
func (s *storm) begin(i int) *worker {
	return s.start(workerConfig{
		Declines: i >= stormRunners-2,
		Storage:  s.proxied, Queues: append(append([]string(nil), s.queues...), s.damagedQueues...),
		Fair: true, Concurrency: 8, Lease: s.server.lease(), Grace: time.Second / 2, Every: tickEvery,
	})
}

// inject enqueues the jobs and injects the faults of the plan, each group of faults spread over
// the storm.
func (s *storm) inject(seed uint64) {
	client := s.dial() // before the first fault
	s.awaitWhat("", workerReady, len(s.runners), 30*time.Second)
	s.await("a tick", 30*time.Second, func(h history) bool { return len(ticksOf(h)) > 0 })
	s.begun = time.Now()
	s.offsets = []offset{{at: s.begun}}
	var all sync.WaitGroup
	all.Go(func() { s.enqueueAll(client) })
	for i, group := range faultGroups {
		n := faultInjector{storm: s, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		all.Go(func() { n.injectEach(group) })
	}
	all.Wait()
}

// dial returns a client whose calls go through the proxies.
func (s *storm) dial() *midge.Client {
	s.t.Helper()
	store, err := s.proxied.open(s.t.Context())
	must(s.t, err)
	s.t.Cleanup(func() { _ = store.Close() })
	client, err := midge.NewClient(store, midge.ClientConfig{Patience: 2 * time.Second})
	must(s.t, err)
	return client
}

// enqueueAll enqueues all jobs, half of them through the proxies, and cancels the tasks that are
// to be cancelled.
func (s *storm) enqueueAll(client *midge.Client) {
	var all sync.WaitGroup
	for first := range stormClients {
		c := client
		if first%2 == 1 { // without a proxy
			c = s.client
		}
		all.Go(func() { s.enqueueEach(c, first) })
	}
	all.Wait()
}

// enqueueEach enqueues every stormClients-th task, beginning with the given number.
func (s *storm) enqueueEach(client *midge.Client, first int) {
	jobs := s.plan[jobs]
	ctx := context.WithoutCancel(s.t.Context())
	for n := first; n < jobs; n += stormClients {
		s.until(n, jobs)
		g := stormJobs[n%len(stormJobs)]
		queue := s.queues[n%len(s.queues)]
		id, opts := fmt.Sprint(g.name, "-", n), g.opts
		if g.name == "unique" {
			opts = []midge.Option{midge.Unique{Key: id}}
		}
		ref, err := enqueue(ctx, client, s.rec, queue, id, g.job, opts...)
		if err == nil && g.state == storage.Cancelled {
			// Without a proxy, because the test needs a cancel that has happened.
			err = retry(func() error { _, err := s.client.Cancel(ctx, ref); return err })
			if err != nil {
				s.t.Errorf("cancel %s: %v", ref, err)
			}
		}
	}
}

// until waits for the moment of the i-th of n events that are spread evenly over the storm.
func (s *storm) until(i, n int) {
	at := s.begun.Add(stormLength * time.Duration(i) / time.Duration(n))
	<-time.NewTimer(time.Until(at)).C
}

// happened counts a fault of the plan that has happened.
func (s *storm) happened(name string) {
	s.stormMu.Lock()
	defer s.stormMu.Unlock()
	s.done[name]++
}

// drain ends the faults and waits until every enqueued task has ended.
func (s *storm) drain() {
	s.t.Logf("what happened, in %v: %v", time.Since(s.begun).Round(time.Second), s.done)
	must(s.t, s.server.ready())
	for _, p := range s.proxies { // drops the connections, so that the remaining faults strike no command
		p.Refuse()
		must(s.t, p.Accept())
	}
	s.killAll()
	s.start(workerConfig{
		Name: "drains", Queues: append(append([]string(nil), s.queues...), s.damagedQueues...), Fair: true, Concurrency: 40,
		Lease: s.server.lease(),
	})
	s.awaitWhat("drains", workerReady, 1, 20*time.Second)
	for _, q := range s.queues { // a task that was damaged while it ran is found when its lease has run out
		awaitDrainedBut(s.t, s.store, q, stormDrain, int64(len(s.damagedTasks)))
	}
	s.drainedAt = time.Now()
	s.advanceClock()
	s.mu.Lock()
	workers := append([]*worker(nil), s.workers...)
	s.mu.Unlock()
	for _, w := range workers {
		w.resume()
		w.terminate()
	}
	for _, w := range workers {
		w.ended(s.t, 30*time.Second)
	}
}

// lastKilled is the gate at which the last job, whose task has the id lastID, waits until its runner has been
// killed.
const (
	lastKilled = "killed"
	lastID     = "plain-last"
)

// killAll kills all runners while at least one of them is in the middle of a job.
func (s *storm) killAll() {
	last := storage.Ref{Queue: s.queues[0], ID: lastID}
	err := retry(func() error { // the first call may meet connections that a crash of the server has closed
		job := stormJob(steps(gate(lastKilled), step{Do: "follow"}))
		// Its priority lets it run although thousands of tasks may wait on a slow machine.
		_, err := enqueue(s.t.Context(), s.client, s.rec, last.Queue, last.ID, job, midge.Priority(storage.MaxPriority))
		return err
	})
	must(s.t, err)
	s.await("the last job runs", 60*time.Second, func(h history) bool { return len(h.of(runStart).about(last)) > 0 })
	for _, w := range s.runners {
		w.kill()
	}
	s.openGate(lastKilled)
}

// advanceClock moves the clock past all moments that were computed while the clock was further ahead
// than it is now. Before that, it checks that every task that still waits does so because of such
// a moment.
func (s *storm) advanceClock() {
	if len(s.offsets) <= 1 {
		return
	}
	s.checkWaits()
	ahead := time.Duration(0)
	for _, o := range s.offsets {
		ahead = max(ahead, o.ahead)
	}
	s.clock.Set(ahead + 2*time.Hour)
	for _, q := range s.queues {
		awaitDrained(s.t, s.store, q, stormDrain)
	}
}

// planned returns the number of faults in the plan, at least 1.
func (s *storm) planned() int {
	n := 0
	for name, times := range maps.All(s.plan) {
		if name != jobs {
			n += times
		}
	}
	return cmp.Or(n, 1)
}
