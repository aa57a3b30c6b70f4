package midge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// slotsModel makes random steps with runners whose queues have slots and gates, and recounts from outside
// which jobs may run.
type slotsModel struct {
	*bench

	rng     *rand.Rand
	queues  []string
	begun   time.Time
	latency time.Duration // of each Claim and Apply, at most; from a random number of its own

	mu      sync.Mutex // guards the fields below, and the fields of the runners and gates
	runners []*slotsRunner
	plans   map[string]*slotsPlan
	ids     []string
	events  int // inserts, starts, ends and changes, of which each may cause claims
	claims  int
	faults  []string
}

// slotsPlan is a task of the model: the ends of its attempts, in order, and how long each attempt takes.
type slotsPlan struct {
	queue     string
	ends      []string
	takes     time.Duration
	done      int // attempts that returned nil or made the task dead
	cancelled bool
}

// slotsClaimed is a task that a runner has claimed.
type slotsClaimed struct {
	queue string
	limit int // of the queue when the claim began, 0 for none
	seq   int // of the claim
}

// slotsRunner is a runner of the model, and its view of the storage.
type slotsRunner struct {
	storage.Storage

	m           *slotsModel
	r           *midge.Runner
	stop        context.CancelFunc
	done        chan error
	limits      map[string]int
	gates       map[string]*slotsGate
	served      []string
	concurrency int
	seq         int
	held, live  map[string]slotsClaimed // by id: claimed and not started, and running
	stopping    bool
}

// slotsGate is a gate with its answers so far.
type slotsGate struct {
	m               *slotsModel
	mode            string // "open", "closed", "panic" or "block"
	inside          bool
	asked, answered time.Time
	open            bool // the last answer
}

func (g *slotsGate) ask() bool {
	g.m.mu.Lock()
	if g.inside {
		g.m.faultf("two calls of one gate at once")
	}
	if d := time.Since(g.asked); !g.asked.IsZero() && d < 2*time.Second {
		g.m.faultf("a gate is called again after %s", d)
	}
	g.inside, g.asked = true, time.Now()
	g.m.events++
	mode := g.mode
	g.m.mu.Unlock()
	if mode == "block" {
		<-time.After(5 * time.Second) // virtual
	}
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	g.inside, g.answered, g.open = false, time.Now(), mode == "open" || mode == "block"
	if mode == "panic" {
		panic("gate")
	}
	return g.open
}

// shut reports whether the gate was closed before now. The mutex is held.
func (g *slotsGate) shut() bool {
	if g.answered.IsZero() || g.inside && time.Since(g.asked) > 2*time.Second {
		return true
	}
	return !g.open && time.Since(g.answered) > 0
}

// faultf notes a broken promise. The mutex is held.
func (m *slotsModel) faultf(format string, args ...any) {
	if len(m.faults) < 10 {
		m.faults = append(m.faults, fmt.Sprintf(format, args...))
	}
}

func (m *slotsModel) delay() {
	if m.latency > 0 {
		<-time.After(rand.N(m.latency)) // virtual
	}
}

func (r *slotsRunner) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	r.m.mu.Lock()
	r.m.claims++
	r.check(req)
	r.seq++
	seq, limits := r.seq, maps.Clone(r.limits)
	r.m.mu.Unlock()
	r.m.delay()
	c, err := r.Storage.Claim(ctx, req)
	r.m.mu.Lock()
	for _, task := range c.Tasks {
		r.held[task.ID] = slotsClaimed{task.Queue, limits[task.Queue], seq}
	}
	r.m.mu.Unlock()
	r.m.delay()
	return c, err
}

// check checks a claim against the slots and gates of each queue. The mutex is held.
func (r *slotsRunner) check(req storage.ClaimRequest) {
	for _, q := range r.served {
		if r.stopping || req.Lease == 0 { // a sweep of queues that the runner does not serve
			return
		}
		i := slices.IndexFunc(req.Queues, func(c storage.ClaimQueue) bool { return c.Name == q })
		if i < 0 {
			r.m.faultf("a claim leaves out queue %s", q)
			continue
		}
		top, limit, running := req.Queues[i].Max, r.limits[q], r.running(q)
		full := limit > 0 && running >= limit || r.gates[q] != nil && r.gates[q].shut()
		switch {
		case top == storage.MaxNone:
			r.m.faultf("a claim names no kinds in queue %s, which the runner serves", q)
		case req.Most() > 0 && full && top != storage.MaxFull:
			r.m.faultf("a claim takes up to %d of queue %s, which is full: %d of %d", top, q, running, limit)
		case req.Most() > 0 && limit > 0 && top >= 0 && (top == 0 || top > limit-running):
			r.m.faultf("a claim takes up to %d of queue %s, where %d of %d run", top, q, running, limit)
		}
	}
}

func (r *slotsRunner) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	r.m.mu.Lock()
	for _, tx := range txs {
		for _, s := range tx.Settles {
			delete(r.held, s.Fence.ID)
		}
	}
	r.m.mu.Unlock()
	r.m.delay()
	return r.Storage.Apply(ctx, call, txs...)
}

// running counts the running jobs of a queue. The mutex is held.
func (r *slotsRunner) running(queue string) (n int) {
	for _, c := range r.live {
		if c.queue == queue {
			n++
		}
	}
	return n
}

// waits counts the tasks of a queue that the runner has claimed and not started. The mutex is held.
func (r *slotsRunner) waits(queue string) (n int) {
	for _, c := range r.held {
		if c.queue == queue {
			n++
		}
	}
	return n
}

// begin checks that a job may start now, and returns its plan.
func (r *slotsRunner) begin(ref midge.Ref) *slotsPlan {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.m.events++
	c, ok := r.held[ref.ID]
	if !ok {
		r.m.faultf("%s starts and was not claimed", ref)
	}
	delete(r.held, ref.ID)
	for _, other := range r.m.runners {
		if _, twice := other.live[ref.ID]; twice {
			r.m.faultf("%s runs twice at once", ref)
		}
	}
	r.live[ref.ID] = c
	last := c
	for _, other := range r.live {
		if other.queue == c.queue && other.seq > last.seq {
			last = other
		}
	}
	if n := r.running(c.queue); last.limit > 0 && n > last.limit {
		r.m.faultf("%d jobs of queue %s run, and its limit was %d at the last claim", n, c.queue, last.limit)
	}
	if len(r.live) > r.concurrency {
		r.m.faultf("%d jobs run of %d", len(r.live), r.concurrency)
	}
	if g := r.gates[c.queue]; g != nil && g.shut() {
		r.m.faultf("%s starts behind a closed gate (%s)", ref, g.mode)
	}
	if !slices.Contains(r.served, c.queue) {
		r.m.faultf("%s starts, and its queue is not served", ref)
	}
	return r.m.plans[ref.ID]
}

func (r *slotsRunner) job(ctx context.Context, _ work) error {
	info, _ := midge.Current(ctx)
	plan := r.begin(info.Ref)
	defer func() {
		r.m.mu.Lock()
		defer r.m.mu.Unlock()
		r.m.events++
		delete(r.live, info.Ref.ID)
	}()
	if plan.takes > 0 {
		select {
		case <-time.After(plan.takes):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.m.mu.Lock()
	end := plan.ends[0]
	if plan.ends = plan.ends[1:]; len(plan.ends) == 0 {
		plan.ends = []string{"ok"}
	}
	if end == "ok" || end == "dead" {
		plan.done++
	}
	r.m.mu.Unlock()
	switch end {
	case "fail":
		return errors.New("fails")
	case "snooze":
		return midge.Snooze(150 * time.Millisecond)
	case "dead":
		return midge.Discard(errors.New("no use"))
	case "panic":
		panic("job")
	case "exit":
		runtime.Goexit()
	}
	return nil
}
