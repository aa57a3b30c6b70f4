package storagetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge/storage"
)

// held is a claimed task and its fence.
type held struct {
	storage.Task
	Fence storage.Fence
}

// in returns a ref in the queue main.
func in(id string) storage.Ref { return storage.Ref{Queue: mainQueue, ID: id} }

// job returns an insert into the queue main: due now, three retries, a crash limit of three.
func job(id string) storage.Insert {
	return storage.Insert{
		Ref: in(id), Kind: "job", Encoding: "raw", Payload: []byte("payload of " + id),
		MaxRetries: 3, CrashLimit: 3,
	}
}

// kept returns a job whose record is kept for an hour after its end.
func kept(id string) storage.Insert {
	j := job(id)
	j.Keep = storage.Keep{For: time.Hour}
	return j
}

// delayed returns a job that is due after d.
func delayed(id string, d time.Duration) storage.Insert {
	j := job(id)
	j.Delay = d
	return j
}

// life returns a job that holds a unique key for its life.
func life(id, key string) storage.Insert {
	j := job(id)
	j.Unique = storage.Unique{Key: key, Mode: storage.UniqueLife}
	return j
}

// apply applies one Tx, which must succeed.
func (r *rig) apply(tx storage.Tx) storage.Applied {
	r.Helper()
	r.pace.relyOn(tx)
	a, err := r.session.ApplyOne(r.ctx, tx)
	r.must("apply", err)
	if len(a.Inserted) != len(tx.Inserts) || len(a.Changed) != len(tx.Changes) ||
		len(a.Settled) != len(tx.Settles) {
		r.Fatalf("apply: got %+v, want one element per insert, change and settle", a)
	}
	return a
}

// refuse applies one Tx, which must be refused with a DependencyError.
func (r *rig) refuse(tx storage.Tx) *storage.DependencyError {
	r.Helper()
	a, err := r.session.ApplyOne(r.ctx, tx)
	var dep *storage.DependencyError
	if !errors.As(err, &dep) {
		r.Fatalf("apply: got %+v, error %v, want a *DependencyError", a, err)
	}
	if a.Inserted != nil || a.Changed != nil || a.Settled != nil {
		r.Fatalf("a refused Tx: got %+v, want Err alone", a)
	}
	return dep
}

// insert applies inserts in one Tx, which must succeed.
func (r *rig) insert(ins ...storage.Insert) []storage.Placed {
	r.Helper()
	return r.apply(storage.Tx{Inserts: ins}).Inserted
}

// add inserts a job for each id, in order.
func (r *rig) add(ids ...string) {
	r.Helper()
	for _, id := range ids {
		r.insert(job(id))
	}
}

// change applies one change, which must succeed.
func (r *rig) change(ch storage.Change) storage.Placed {
	r.Helper()
	return r.apply(storage.Tx{Changes: []storage.Change{ch}}).Changed[0]
}

// changeNow applies a change at the present version of the task.
func (r *rig) changeNow(id string, ch storage.Change) storage.Placed {
	r.Helper()
	ch.Ref, ch.Version = in(id), r.read(id).Version
	return r.change(ch)
}

// cancel asks for the cancel of a task.
func (r *rig) cancel(id string) storage.Placed {
	r.Helper()
	return r.change(storage.Change{Ref: in(id), Cancel: true})
}

// cancelOf returns a Tx that cancels a task.
func cancelOf(ref storage.Ref) storage.Tx {
	return storage.Tx{Changes: []storage.Change{{Ref: ref, Cancel: true}}}
}

// deleting returns a delete of a task of main.
func deleting(id string, version int64) storage.Delete {
	return storage.Delete{Ref: in(id), Version: version}
}

// delete deletes a task at its present version.
func (r *rig) delete(id string) {
	r.Helper()
	r.apply(storage.Tx{Deletes: []storage.Delete{deleting(id, r.read(id).Version)}})
}

// ask returns a claim of up to n tasks of main, all to start at once, under a long lease.
func ask(n int) storage.ClaimRequest {
	return storage.ClaimRequest{
		Runner: runner, Queues: []storage.ClaimQueue{{Name: mainQueue}}, Start: n, Lease: long,
	}
}

// brief returns the claim of ask with the shortest lease.
func brief(n int) storage.ClaimRequest {
	req := ask(n)
	req.Lease = storage.MinLease
	return req
}

// claim claims and returns the whole answer.
func (r *rig) claim(req storage.ClaimRequest) storage.Claimed {
	r.Helper()
	r.pace.rely(req.Lease)
	c, err := r.session.Claim(r.ctx, req)
	r.must("claim", err)
	if len(c.Tasks) != len(c.Fences) || len(c.Tasks) > req.Most() {
		r.Fatalf("claim: got %d tasks and %d fences, want as many, at most %d",
			len(c.Tasks), len(c.Fences), req.Most())
	}
	return c
}

// hold claims exactly n tasks.
func (r *rig) hold(req storage.ClaimRequest, n int) []held {
	r.Helper()
	c := r.claim(req)
	if len(c.Tasks) != n {
		r.Fatalf("claim: got %v, want %d tasks", ids(c.Tasks), n)
	}
	holds := make([]held, n)
	for i := range holds {
		holds[i] = held{c.Tasks[i], c.Fences[i]}
	}
	return holds
}

// take claims one task, which must be this one.
func (r *rig) take(req storage.ClaimRequest, id string) held {
	r.Helper()
	req.Start = min(req.Start, 1)
	req.Ahead = 1 - req.Start
	h := r.hold(req, 1)[0]
	r.want("the task claimed", h.Task.ID, id)
	return h
}

// holding inserts a job and claims it.
func (r *rig) holding(j storage.Insert) held {
	r.Helper()
	r.insert(j)
	return r.take(ask(1), j.Ref.ID)
}

// maintain makes a claim that maintains the queue main and takes no tasks.
func (r *rig) maintain() storage.Claimed {
	r.Helper()
	return r.claim(maintaining())
}

// maintaining returns the claim of maintain.
func maintaining() storage.ClaimRequest {
	return storage.ClaimRequest{Runner: runner, Queues: []storage.ClaimQueue{{Name: mainQueue}}}
}

// expire lets the lease of a claimed task run out and makes claims until it is recovered, for up to
// a second, since a storage may put off a recovery for that long.
func (r *rig) expire(h held) {
	r.Helper()
	r.expireBy(h, maintaining())
}

// expireBy does the same as expire, by claims of its caller's.
func (r *rig) expireBy(h held, req storage.ClaimRequest) {
	r.Helper()
	r.passTo(h.LeaseUntil)
	until := r.now().Add(time.Second)
	for c := r.claim(req); r.holds(h) && c.Now.Before(until); c = r.claim(req) {
		r.pass(50 * time.Millisecond)
	}
}

// holds reports whether the task is still under the lease of h.
func (r *rig) holds(h held) bool {
	r.Helper()
	t, err := r.store.Task(r.ctx, h.Fence.Ref)
	return err == nil && t.State == storage.Pending && t.Version == h.Fence.Version
}

// crash claims the next task, which must be this one, and lets its lease run out.
func (r *rig) crash(id string) {
	r.Helper()
	req := brief(1)
	req.Suspect = true
	r.expire(r.take(req, id))
}

// settle settles one claim, which must succeed.
func (r *rig) settle(h held, s storage.Settle) storage.Placed {
	r.Helper()
	s.Fence = h.Fence
	return r.apply(storage.Tx{Settles: []storage.Settle{s}}).Settled[0]
}

// end settles one claim with an outcome and no other fields.
func (r *rig) end(h held, outcome storage.Outcome) storage.Placed {
	r.Helper()
	return r.settle(h, storage.Settle{Outcome: outcome})
}

// bury inserts a task, claims it and makes it dead.
func (r *rig) bury(j storage.Insert) {
	r.Helper()
	r.settle(r.holding(j), storage.Settle{Outcome: storage.Bury, Reason: "refused"})
}

// extend extends one lease and returns the answer.
func (r *rig) extend(e storage.Extension) storage.Extended {
	r.Helper()
	x, err := r.session.Extend(r.ctx, storage.ExtendRequest{Leases: []storage.Extension{e}})
	r.must("extend", err)
	return x
}

// pausing returns settings that pause a queue for d, or until it is resumed if d is 0.
func pausing(d time.Duration) storage.Settings {
	return storage.Settings{Pause: &storage.Pause{On: true, For: d}}
}

// resuming returns settings that end a pause.
func resuming() storage.Settings { return storage.Settings{Pause: &storage.Pause{}} }

// configure configures main.
func (r *rig) configure(s storage.Settings) {
	r.Helper()
	if s.Pause != nil {
		r.pace.rely(s.Pause.For)
	}
	r.must("configure", r.session.Configure(r.ctx, mainQueue, s))
}

// read reads a task of main, which must exist.
func (r *rig) read(id string) storage.Task {
	r.Helper()
	t, err := r.store.Task(r.ctx, in(id))
	r.must("read "+in(id).String(), err)
	return t
}

// outcomes lists all outcomes of a Settle.
func outcomes() []storage.Outcome {
	return []storage.Outcome{
		storage.Complete, storage.Fail, storage.Snooze, storage.Release, storage.Bury, storage.Cancel,
		storage.Decline,
	}
}

// is fails the rule unless a task of main is in this state. It returns the task.
func (r *rig) is(id string, state storage.State) storage.Task {
	r.Helper()
	t := r.read(id)
	r.want("state of "+id, t.State, state)
	return t
}

// gone fails the rule if one of these tasks of main still exists.
func (r *rig) gone(ids ...string) {
	r.Helper()
	for _, id := range ids {
		t, err := r.store.Task(r.ctx, in(id))
		if r.pace.answered(err); !errors.Is(err, storage.ErrNotFound) {
			r.Fatalf("read %s: got %+v, error %v, want ErrNotFound", in(id), t, err)
		}
	}
}

// list lists all tasks of main in a state.
func (r *rig) list(state storage.State) []storage.Task {
	r.Helper()
	var tasks []storage.Task
	for t, err := range storage.Each(r.ctx, r.store, mainQueue, state) {
		r.must(fmt.Sprintf("list %s", state), err)
		tasks = append(tasks, t)
	}
	return tasks
}

// stats returns the stats of main, without Oldest.
func (r *rig) stats() storage.Stats {
	r.Helper()
	s, err := r.store.Stats(r.ctx, mainQueue)
	r.must("stats", err)
	if len(s) != 1 {
		r.Fatalf("stats: got %d, want one per queue named", len(s))
	}
	s[0].Oldest = 0 // it grows as time passes: see oldest
	return s[0]
}

// drain claims all tasks that it can and returns the ids in the order of their claim.
func (r *rig) drain() []string {
	r.Helper()
	return ids(r.claim(ask(storage.MaxClaim)).Tasks)
}

// unchanged fails the rule if action changes one of these tasks of main in any way.
func (r *rig) unchanged(action func(), ids ...string) {
	r.Helper()
	before := make([]any, len(ids))
	for i, id := range ids {
		before[i] = r.snapshot(in(id))
	}
	action()
	for i, id := range ids {
		r.want(id+", which must not change", r.snapshot(in(id)), before[i])
	}
}

// wantError fails the rule unless err is want. It also fails the rule if err is an ErrUnknown
// and want is not.
func (r *rig) wantError(what string, err, want error) {
	r.Helper()
	r.pace.answered(err)
	if !errors.Is(err, want) {
		r.Fatalf("%s: got error %v, want %v", what, err, want)
	}
	if errors.Is(err, storage.ErrUnknown) && !errors.Is(want, storage.ErrUnknown) {
		r.Fatalf("%s: got error %v, which is an ErrUnknown too, want %v alone", what, err, want)
	}
}

// wantInvalid fails the rule unless err is an *InvalidError.
func (r *rig) wantInvalid(what string, err error) {
	r.Helper()
	if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
		r.Fatalf("%s: got error %v, want an *InvalidError", what, err)
	}
}

// ids returns the ids of tasks, in their order.
func ids(tasks []storage.Task) []string {
	got := make([]string, len(tasks))
	for i, t := range tasks {
		got[i] = t.ID
	}
	return got
}
