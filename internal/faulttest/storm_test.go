//go:build unix && torture

package faulttest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// gales are the jobs of a storm: what each does, and where its task has to end.
var gales = []struct {
	name  string
	job   gale
	opts  []midge.Option
	state storage.State
}{
	{"plain", gale(do("follow")), nil, storage.Completed},
	{"slow", gale(steps(sleep(200*time.Millisecond), step{Do: "follow"})), nil, storage.Completed},
	{"writes", gale(do("progress", "checkpoint", "result", "follow")), nil, storage.Completed},
	{"retried", gale(do("fail once", "follow")), nil, storage.Completed},
	{"snoozed", gale(do("snooze once", "follow")), nil, storage.Completed},
	{"discarded", gale(do("follow", "discard")), nil, storage.Dead},
	{"exhausted", gale(do("follow", "fail")), []midge.Option{midge.MaxRetries(2)}, storage.Dead},
	{"delayed", gale(do("follow")), []midge.Option{midge.In(300 * time.Millisecond)}, storage.Completed},
	{"cancelled", gale{}, []midge.Option{midge.In(time.Hour)}, storage.Cancelled},
	{"unique", gale(do("fail once", "follow")), nil, storage.Completed}, // under a key of its own
}

// envStorm is the environment variable that sets the seed of the storm.
const envStorm = "MIDGE_STORM_SEED"

// TestAStorm lets everything happen at once, at random: runners are killed, frozen and
// terminated, replies and connections are lost, the server hangs and crashes, while clients
// go on enqueueing. Afterwards each task that was acknowledged is where it belongs, committed
// once, and none ran while an earlier run had its lease.
func TestAStorm(t *testing.T) {
	eachOwnServer(t, func(t *testing.T, s *server) {
		seed, err := strconv.ParseUint(os.Getenv(envStorm), 10, 64)
		if err != nil {
			seed = uint64(time.Now().UnixNano())
		}
		t.Logf("seed %d", seed)
		storm := newStorm(t, s)
		client := storm.dial(t) // while the weather is good
		ctx, calm := context.WithTimeout(t.Context(), 12*time.Second)
		defer calm()
		var all sync.WaitGroup
		all.Go(func() { storm.enqueue(ctx, client) })
		for i := range uint64(2) { // so that faults overlap
			n := nemesis{storm: storm, random: rand.New(rand.NewPCG(seed, i))}
			all.Go(func() { n.rage(ctx) })
		}
		all.Wait()
		storm.heal()
		storm.judge()
	}, "appendonly yes", "appendfsync always")
}

// storm is a fleet in bad weather.
type storm struct {
	*fleet
	queues  []string
	proxied dialing
	proxies []*testserver.Proxy
	servers sync.Mutex // held by who stops or starts one

	turns   sync.Mutex // guards what follows
	runners []*worker
	done    map[string]int // what happened, how often
}

// nemesis is what does bad things to a storm, one after the other.
type nemesis struct {
	*storm
	random *rand.Rand
}

const stormLease = 2 * time.Second

func newStorm(t *testing.T, s *server) *storm {
	t.Helper()
	f := newFleet(t, s)
	st := &storm{fleet: f, queues: []string{"q"}, done: make(map[string]int)}
	if s.cluster != nil {
		st.queues = queuesOf(t, s.cluster)
	}
	st.proxied, st.proxies = f.dialing.through(t)
	for range 4 {
		st.runners = append(st.runners, st.begin())
	}
	return st
}

func (s *storm) begin() *worker {
	return s.start(workerConfig{
		Storage: s.proxied, Queues: s.queues, Concurrency: 8, Lease: stormLease, Grace: time.Second / 2, Every: tickEvery,
	})
}

// dial gives a client whose calls go through the proxies.
func (s *storm) dial(t *testing.T) *midge.Client {
	t.Helper()
	store, err := s.proxied.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	client, err := midge.NewClient(store, midge.ClientConfig{Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// enqueue goes on enqueueing, half of it through the proxies, and cancels some of it.
func (s *storm) enqueue(ctx context.Context, client *midge.Client) {
	var all sync.WaitGroup
	for first := range stormClients {
		c := client
		if first%2 == 1 { // past the proxies
			c = s.client
		}
		all.Go(func() { s.enqueueEach(ctx, c, first) })
	}
	all.Wait()
}

// stormClients is how many goroutines enqueue.
const stormClients = 8

// enqueueEach enqueues every stormClients-th task, from the first.
func (s *storm) enqueueEach(ctx context.Context, client *midge.Client, first int) {
	every := time.NewTicker(stormClients * 5 * time.Millisecond)
	defer every.Stop()
	for n := first; ctx.Err() == nil; n += stormClients {
		<-every.C
		g := gales[n%len(gales)]
		queue := s.queues[n%len(s.queues)]
		id, opts := fmt.Sprint(g.name, "-", n), g.opts
		if g.name == "unique" {
			opts = []midge.Option{midge.Unique{Key: id}}
		}
		ref, err := enqueue(ctx, client, s.rec, queue, id, g.job, opts...)
		if err == nil && g.state == storage.Cancelled {
			// Past the proxies: what is wanted is a cancel that has happened.
			_, err = s.client.Cancel(context.WithoutCancel(ctx), ref)
			if err != nil {
				s.t.Errorf("cancel %s: %v", ref, err)
			}
		}
	}
}

// rage does bad things until ctx ends, and ends what it began.
func (n *nemesis) rage(ctx context.Context) {
	things := n.things() //nolint:contextcheck // a proxy lives on when ctx has ended
	names := slices.Sorted(maps.Keys(things))
	for ctx.Err() == nil {
		name := names[n.random.IntN(len(names))]
		things[name]()
		n.turns.Lock()
		n.done[name]++
		n.turns.Unlock()
		n.pause(200 * time.Millisecond)
	}
}

// things are what it can do.
func (n *nemesis) things() map[string]func() {
	return map[string]func(){
		"kill":      func() { n.replace((*worker).kill) },
		"terminate": func() { n.replace((*worker).terminate) },
		"freeze": func() {
			w := n.victim()
			w.freeze()
			n.pause(2 * stormLease)
			w.thaw()
		},
		"lose replies":  func() { n.proxy().CutAfterRequest(n.server.kind.isStep, 1+n.random.IntN(20)) },
		"lose requests": func() { n.proxy().CutBeforeRequest(n.server.kind.isStep, 1+n.random.IntN(20)) },
		"late replies": func() {
			held := n.proxy().HoldReply(n.server.kind.isStep)
			n.pause(stormLease)
			held.Release()
		},
		"late requests": func() {
			held := n.proxy().Hold(n.server.kind.isStep)
			n.pause(2 * stormLease)
			held.Release()
		},
		"black hole": func() {
			p := n.proxy()
			p.Blackhole()
			n.pause(stormLease)
			p.Heal()
		},
		"refuse": func() {
			p := n.proxy()
			p.Refuse()
			n.pause(time.Second)
			_ = p.Accept()
		},
		"hang": func() {
			n.servers.Lock()
			defer n.servers.Unlock()
			node := n.server.nodes[n.random.IntN(len(n.server.nodes))]
			_ = node.Pause()
			n.pause(stormLease)
			_ = node.Resume()
		},
		"crash": func() {
			n.servers.Lock()
			defer n.servers.Unlock()
			node := n.server.nodes[n.random.IntN(len(n.server.nodes))]
			if err := node.Kill(); err != nil {
				n.t.Error(err)
			}
			n.pause(stormLease / 2)
			if err := node.Restart(); err != nil {
				n.t.Error(err)
			}
		},
	}
}

func (n *nemesis) proxy() *testserver.Proxy { return n.proxies[n.random.IntN(len(n.proxies))] }

func (n *nemesis) victim() *worker {
	n.turns.Lock()
	defer n.turns.Unlock()
	return n.runners[n.random.IntN(len(n.runners))]
}

// replace ends a runner and begins another.
func (n *nemesis) replace(end func(w *worker)) {
	n.turns.Lock()
	defer n.turns.Unlock()
	i := n.random.IntN(len(n.runners))
	end(n.runners[i])
	n.runners[i] = n.begin()
}

// pause waits for a random time up to most.
func (n *nemesis) pause(most time.Duration) {
	timer := time.NewTimer(time.Duration(n.random.Int64N(int64(most))))
	<-timer.C
}

// heal ends the storm and waits until all that was enqueued has come to its end.
func (s *storm) heal() {
	s.t.Logf("what happened: %v", s.done)
	must(s.t, s.server.ready())
	for _, p := range s.proxies { // what faults are left strike at nobody
		p.Refuse()
		must(s.t, p.Accept())
	}
	s.killAll()
	s.start(workerConfig{Name: "calm", Queues: s.queues, Concurrency: 40, Lease: stormLease})
	s.awaitWhat("calm", workerReady, 1, 20*time.Second)
	for _, q := range s.queues {
		awaitDrained(s.t, s.store, q, 60*time.Second)
	}
	s.mu.Lock()
	workers := append([]*worker(nil), s.workers...)
	s.mu.Unlock()
	for _, w := range workers {
		w.thaw()
		w.terminate()
	}
	for _, w := range workers {
		w.ended(s.t, 30*time.Second)
	}
}

// killAll kills the runners in the middle of a job at least.
func (s *storm) killAll() {
	for _, w := range s.runners {
		w.thaw()
	}
	last := s.fleet.enqueue(s.queues[0], "plain-last", gale(steps(sleep(5*time.Second), step{Do: "follow"})))
	s.await("the last job runs", 60*time.Second, func(h history) bool { return len(h.of(runStart).about(last)) > 0 })
	for _, w := range s.runners {
		w.kill()
	}
}

// judge checks what became of everything.
func (s *storm) judge() {
	t := s.t
	h := s.history()
	checkRuns(t, h)
	states := make(map[string]storage.State)
	for _, g := range gales {
		states[g.name] = g.state
	}
	ticks := make(map[string]storage.Task)
	runs, crashes, lost, unfounded := len(h.of(runStart)), 0, 0, 0
	started := make(map[storage.Ref]int)
	for _, e := range h.of(runStart) {
		started[e.Ref]++
	}
	for _, q := range s.queues {
		tasks := tasksOf(t, s.store, q)
		checkTotals(t, s.store, q, tasks)
		checkFollowUps(t, tasks, func(id string) bool { return tasks[id].Kind != "tick" })
		for id, task := range tasks {
			crashes += task.Crashes
			unfounded += max(task.Crashes-started[task.Ref], 0)
			name, _, _ := strings.Cut(id, "-")
			switch want := states[name]; {
			case task.Kind == "tick":
				ticks[id] = task
			case strings.HasPrefix(id, followPrefix):
				if task.State != storage.Completed {
					t.Errorf("%s is %s (%s), want completed", task.Ref, task.State, task.Reason)
				}
			case want == storage.Cancelled && task.State == storage.Scheduled && !acknowledgedIn(h, task.Ref):
			case task.State != want:
				t.Errorf("%s is %s (%s), want %s", task.Ref, task.State, task.Reason, want)
			}
		}
		for ref := range h.of(enqueueDone).where(func(e event) bool { return e.Ref.Queue == q }).refs() {
			if _, found := tasks[ref.ID]; !found {
				lost++
				t.Errorf("%s was acknowledged and is lost", ref)
			}
		}
	}
	t.Logf("%d enqueued, %d unknown, %d runs, %d crashes charged (%d more than there were runs), %d settles too late, %d ticks",
		len(h.of(enqueueDone)), len(h.of(enqueueUnknown)), runs, crashes, unfounded, len(h.of(settleLost)), checkTicks(t, ticks))
	s.checkKeysAreFree(h)
	if crashes == 0 {
		t.Error("no task lost its runner: a storm that proves nothing")
	}
}

// checkKeysAreFree checks that no unique key outlived the task that held it.
func (s *storm) checkKeysAreFree(h history) {
	for ref := range h.of(enqueueDone).refs() {
		if !strings.HasPrefix(ref.ID, "unique-") {
			continue
		}
		task, err := s.client.Enqueue(s.t.Context(), gale{}, midge.To(ref.Queue), midge.Unique{Key: ref.ID})
		if err != nil || task.Existing {
			s.t.Errorf("the unique key of %s: %v, existing %t; want it free", ref, err, task.Existing)
		}
	}
}

// acknowledgedIn reports whether the enqueueing of a task was acknowledged.
func acknowledgedIn(h history, ref storage.Ref) bool { return len(h.of(enqueueDone).about(ref)) > 0 }
