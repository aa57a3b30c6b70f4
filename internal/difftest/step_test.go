package difftest

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// step is one call, the same on every side. It names versions and fences by how far back they are
// in the life of a task.
type step interface {
	// queues returns the queues whose tasks the outcome depends on.
	queues() []string
	run(ctx context.Context, s *side) outcome
	String() string
}

// op is one operation of a Tx. One of the pointers is set.
type op struct {
	insert *storage.Insert
	change *storage.Change
	delete *storage.Delete
	depend *storage.Depend
	settle *storage.Settle
	back   int // how many versions or fences back; 0 is the present one
}

func (o *op) ref() storage.Ref {
	switch {
	case o.insert != nil:
		return o.insert.Ref
	case o.change != nil:
		return o.change.Ref
	case o.delete != nil:
		return o.delete.Ref
	case o.depend != nil:
		return o.depend.Ref
	}
	return o.settle.Fence.Ref
}

func (o *op) String() string {
	b := &strings.Builder{}
	switch {
	case o.insert != nil:
		b.WriteString(inserted(o.insert))
	case o.change != nil:
		ch := o.change
		fmt.Fprintf(b, "change %s", ch.Ref)
		add := adder(b)
		add("cancel", true, ch.Cancel)
		add("now", true, ch.Now)
		add("queue", ch.Queue, ch.Queue != "")
		add("delay", ch.Delay, ch.Delay != 0)
		add("at", moment(ch.At), !ch.At.IsZero())
		add("requeue", true, ch.Requeue)
		add("from start", true, ch.FromStart)
		add("payload", ch.Encoding+"/"+bytesOf(ch.Payload), ch.Encoding != "")
		add("headers", ch.Headers, ch.Headers != nil)
		if ch.Priority != nil {
			add("priority", *ch.Priority, true)
		}
		if ch.Partition != nil {
			add("partition", fmt.Sprintf("%q", *ch.Partition), true)
		}
		if ch.Cost != nil {
			add("cost", *ch.Cost, true)
		}
		add("cursor", cursor(ch.Cursor), ch.Cursor != nil)
	case o.settle != nil:
		fmt.Fprintf(b, "settle %s %s", o.ref(), o.settle.Outcome)
		add := adder(b)
		add("delay", o.settle.Delay, o.settle.Delay != 0)
		add("reason", o.settle.Reason, o.settle.Reason != "")
		add("result", bytesOf(o.settle.Result), o.settle.Result != nil)
	case o.delete != nil:
		fmt.Fprintf(b, "delete %s", o.ref())
	default:
		fmt.Fprintf(b, "depend on %s", o.ref())
	}
	if o.back > 0 {
		fmt.Fprintf(b, " of %d versions ago", o.back)
	}
	return b.String()
}

// inserted renders an insert.
func inserted(in *storage.Insert) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "insert %s %s/%s/%s", in.Ref, in.Kind, in.Encoding, bytesOf(in.Payload))
	add := adder(b)
	add("headers", in.Headers, len(in.Headers) > 0)
	add("priority", in.Priority, in.Priority != 0)
	add("partition", in.Partition, in.Partition != "")
	add("cost", in.Cost, in.Cost != 0)
	add("delay", in.Delay, in.Delay != 0)
	add("at", moment(in.At), !in.At.IsZero())
	add("retries", in.MaxRetries, in.MaxRetries > 0)
	add("crashes", in.CrashLimit, true)
	add("timeout", in.Timeout, in.Timeout != 0)
	add("keep", in.Keep, in.Keep != storage.Keep{})
	add("unique", in.Unique, in.Unique != storage.Unique{})
	add("conflict", in.OnConflict, in.Unique != storage.Unique{})
	add("cursor", cursor(in.Cursor), in.Cursor != nil)
	return b.String()
}

// tx is a Tx whose versions and fences each side fills in.
type tx []op

func (x tx) resolve(ctx context.Context, s *side) storage.Tx {
	var out storage.Tx
	for i := range x {
		o := &x[i]
		switch {
		case o.insert != nil:
			out.Inserts = append(out.Inserts, *o.insert)
		case o.change != nil:
			ch := *o.change
			if ch.Version != 0 || !ch.Cancel {
				ch.Version = s.version(ctx, ch.Ref, o.back)
			}
			out.Changes = append(out.Changes, ch)
		case o.delete != nil:
			out.Deletes = append(out.Deletes, storage.Delete{Ref: o.ref(), Version: s.version(ctx, o.ref(), o.back)})
		case o.depend != nil:
			out.Depends = append(out.Depends, storage.Depend{Ref: o.ref(), Version: s.version(ctx, o.ref(), o.back)})
		default:
			settle := *o.settle
			settle.Fence = s.fence(o.ref(), o.back)
			out.Settles = append(out.Settles, settle)
		}
	}
	return out
}

// apply is a call of Apply.
type apply struct {
	call storage.Call
	txs  []tx
	// spanning is the index of the Tx that a Cluster cannot execute and other storages refuse, or
	// -1.
	spanning int
}

func (a *apply) queues() []string {
	var names []string
	for _, x := range a.txs {
		for i := range x {
			names = append(names, x[i].ref().Queue)
			if x[i].change != nil && x[i].change.Queue != "" {
				names = append(names, x[i].change.Queue)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a *apply) run(ctx context.Context, s *side) outcome {
	txs := make([]storage.Tx, len(a.txs))
	for i := range a.txs {
		txs[i] = a.txs[i].resolve(ctx, s)
	}
	return s.remember(ctx, a.call, func(ctx context.Context) outcome {
		applied, err := s.store.Apply(ctx, a.call, txs...)
		for i := range applied {
			for j, p := range applied[i].Changed {
				if from := txs[i].Changes[j].Ref; p.Ref != from {
					s.moved(from, p.Ref)
				}
			}
		}
		out := s.applied(applied, err)
		if a.spanning < 0 {
			return out
		}
		refused := fmt.Sprintf("tx %d: refused", a.spanning)
		for i := range out {
			if strings.HasPrefix(out[i], refused) {
				out[i] = refused
			}
		}
		return slices.Compact(out)
	})
}

func (a *apply) String() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "apply %x.%d", a.call.Lane.ID[:3], a.call.Seq)
	for i, x := range a.txs {
		if i > 9 && i < len(a.txs)-1 { // many Txs are alike
			continue
		}
		for j := range x {
			fmt.Fprintf(b, "\n    tx %d: %s", i, x[j].String())
		}
	}
	return b.String()
}

// refusal is an apply after which all queues are listed.
type refusal struct{ *apply }

func (r *refusal) run(ctx context.Context, s *side) outcome {
	return append(r.apply.run(ctx, s), s.queues(ctx)...)
}

// claim is a call of Claim.
type claim struct{ req storage.ClaimRequest }

func (c *claim) queues() []string { return nil } // it promotes due tasks itself

func (c *claim) run(ctx context.Context, s *side) outcome {
	return s.remember(ctx, c.req.Call, func(ctx context.Context) outcome {
		req := s.asking(&c.req)
		claimed, err := s.store.Claim(ctx, *req)
		return s.claimed(req, claimed, err)
	})
}

func (c *claim) String() string {
	return fmt.Sprintf("claim %x.%d for %s: of %v, kinds %v, start %d, ahead %d, suspect %v, lease %v", c.req.Call.Lane.ID[:3],
		c.req.Call.Seq, c.req.Runner, c.req.Queues, c.req.Kinds, c.req.Start, c.req.Ahead, c.req.Suspect, c.req.Lease)
}

// extend is a call of Extend.
type extend struct {
	req  storage.ExtendRequest
	back []int // for each lease
}

func (e *extend) queues() []string { return nil }

func (e *extend) run(ctx context.Context, s *side) outcome {
	req := e.req
	req.Leases = slices.Clone(req.Leases)
	for i := range req.Leases {
		req.Leases[i].Fence = s.fence(req.Leases[i].Fence.Ref, e.back[i])
	}
	return s.remember(ctx, req.Call, func(ctx context.Context) outcome {
		extended, err := s.store.Extend(ctx, req)
		return s.extended(extended, err)
	})
}

func (e *extend) String() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "extend %x.%d", e.req.Call.Lane.ID[:3], e.req.Call.Seq)
	if e.req.Runner.ID != "" {
		fmt.Fprintf(b, " of %+v", e.req.Runner)
	}
	for i, l := range e.req.Leases {
		fmt.Fprintf(b, "\n    %s of %d claims ago: for %v, started %v, progress %s, checkpoint %s", l.Fence.Ref, e.back[i],
			l.For, l.Started, bytesOf(l.Progress), bytesOf(l.Checkpoint))
	}
	return b.String()
}

// configure is a call of Configure.
type configure struct {
	call     storage.Call
	queue    string
	settings storage.Settings
}

func (c *configure) queues() []string { return nil }

func (c *configure) run(ctx context.Context, s *side) outcome {
	return s.remember(ctx, c.call, func(ctx context.Context) outcome {
		if err := s.store.Configure(ctx, c.call, c.queue, c.settings); err != nil {
			return s.failed(err)
		}
		return outcome{"configured"}
	})
}

func (c *configure) String() string {
	to := "remove"
	switch st := c.settings; {
	case st.Pause != nil:
		to = fmt.Sprintf("%s %+v", st.Partition, *st.Pause)
	case st.Limit != nil || st.Declared != nil:
		to = st.Partition + " limits"
		if st.Limit != nil {
			to += fmt.Sprintf(" operator %+v", *st.Limit)
		}
		if st.Declared != nil {
			to += fmt.Sprintf(" declared %+v", *st.Declared)
		}
	}
	return fmt.Sprintf("configure %x.%d: %s %s", c.call.Lane.ID[:3], c.call.Seq, c.queue, to)
}

// repeat repeats the last call of a lane.
type repeat struct {
	lane storage.Lane
	what string
	// reads are the queues whose tasks the answer reads again.
	reads []string
	// idle is set if the call is a claim that may take no task.
	idle bool
}

func (r *repeat) queues() []string { return r.reads }

func (r *repeat) run(ctx context.Context, s *side) outcome {
	last, ok := s.sent[r.lane.ID]
	if !ok {
		return outcome{"nothing to repeat"}
	}
	out := last.again(ctx)
	if r.what == "apply" && differ(last.first, out) != "" {
		out = append(out, "the first outcome was another:\n"+differ(last.first, out))
	}
	return out
}

func (r *repeat) String() string {
	return fmt.Sprintf("repeat the last %s of lane %x", r.what, r.lane.ID[:3])
}

// read reads one task.
type read struct{ ref storage.Ref }

func (r *read) queues() []string { return []string{r.ref.Queue} }

func (r *read) run(ctx context.Context, s *side) outcome {
	t, err := s.store.Task(ctx, r.ref)
	if err != nil {
		return s.failed(err)
	}
	return outcome{s.task(&t)}
}

func (r *read) String() string { return "read " + r.ref.String() }

// advance moves the clocks.
type advance struct{ by time.Duration }

func (a *advance) queues() []string                   { return nil }
func (a *advance) run(context.Context, *side) outcome { return nil }
func (a *advance) String() string                     { return fmt.Sprint("advance by ", a.by) }

// jump sets the clocks ahead by more than passes between two calls, and ends when the storages
// have checked for long enough that the clocks stay there.
type jump struct{ by time.Duration }

func (j *jump) queues() []string                   { return nil }
func (j *jump) run(context.Context, *side) outcome { return nil }
func (j *jump) String() string                     { return fmt.Sprint("the clocks jump by ", j.by) }

// ordered are the states in whose listings each task has a place of its own. Other states are
// listed by a moment that several tasks can share.
var ordered = []storage.State{storage.Waiting, storage.Scheduled, storage.Retry}

// place returns the moment by which a task is listed.
func place(t *storage.Task) time.Time {
	if t.State == storage.Pending {
		return t.LeaseUntil
	}
	return t.Expires
}

// whole lists everything that a side holds.
type whole struct {
	names []string
	page  int
}

func (w *whole) queues() []string { return w.names }

func (w *whole) run(ctx context.Context, s *side) (out outcome) {
	for _, name := range w.names {
		for _, state := range storage.States() {
			listed := s.list(ctx, storage.TasksQuery{Queue: name, State: state, Limit: w.page})
			if !slices.Contains(ordered, state) {
				sort.Strings(listed)
			}
			out = append(out, listed...)
			if state.Ended() {
				out = append(out, s.newest(ctx, storage.TasksQuery{Queue: name, State: state, Limit: w.page})...)
			}
		}
		out = append(out, s.partitions(ctx, storage.PartitionsQuery{Queue: name, Limit: w.page})...)
	}
	alive, err := s.store.Runners(ctx)
	if err != nil {
		return append(out, s.failed(err)...)
	}
	out = append(out, runners(alive)...)
	return append(out, s.queues(ctx)...)
}

// partitions lists all partitions of a queue, page by page, each as it is read by itself, and the tasks in their
// lines.
func (s *side) partitions(ctx context.Context, query storage.PartitionsQuery) (out outcome) {
	for {
		page, err := s.store.Partitions(ctx, query)
		if err != nil {
			return append(out, s.failed(err)...)
		}
		for _, p := range page.Partitions {
			one, err := s.store.Partitions(ctx, storage.PartitionsQuery{Queue: query.Queue, Key: p.Key})
			if err != nil || len(one.Partitions) != 1 || partition(&one.Partitions[0]) != partition(&p) {
				out = append(out, fmt.Sprintf("partition %q is %+v, and read by itself %+v, %v", p.Key, p, one, err))
			}
			line := s.ids(ctx, storage.TasksQuery{Queue: query.Queue, State: storage.Waiting, Partition: p.Key, Limit: query.Limit})
			out = append(out, fmt.Sprintf("%s of %s with %v", partition(&p), query.Queue, line))
		}
		if query.After = page.Next; page.Next == "" {
			return out
		}
	}
}

// queues lists all queues.
func (s *side) queues(ctx context.Context) outcome {
	page, err := s.store.Queues(ctx, storage.QueuesQuery{})
	if err != nil {
		return s.failed(err)
	}
	return outcome{fmt.Sprint("queues ", page.Names)}
}

// list renders all tasks of a state, page by page, and each task as it is read by itself.
func (s *side) list(ctx context.Context, query storage.TasksQuery) (out outcome) {
	for last := (time.Time{}); ; {
		page, err := s.store.Tasks(ctx, query)
		if err != nil {
			return append(out, s.failed(err)...)
		}
		for i := range page.Tasks {
			t := &page.Tasks[i]
			if place(t).Before(last) {
				out = append(out, fmt.Sprintf("%s is listed too late", t.Ref))
			}
			last = place(t)
			out = append(out, "listed "+s.task(t))
			out = append(out, (&read{t.Ref}).run(ctx, s)...)
		}
		if query.After = page.Next; page.Next == "" {
			return out
		}
	}
}

// newest compares the listing of an ended state with the listing in reverse order.
func (s *side) newest(ctx context.Context, query storage.TasksQuery) (out outcome) {
	oldest := s.ids(ctx, query)
	query.Newest = true
	newest := s.ids(ctx, query)
	if slices.Reverse(newest); !slices.Equal(oldest, newest) {
		out = append(out, fmt.Sprintf("%s of %s are %q and, the newest first, %q", query.State, query.Queue, oldest, newest))
	}
	return out
}

// ids lists the ids of all tasks of a state, page by page.
func (s *side) ids(ctx context.Context, query storage.TasksQuery) (out outcome) {
	for {
		page, err := s.store.Tasks(ctx, query)
		if err != nil {
			return append(out, s.failed(err)...)
		}
		for i := range page.Tasks {
			out = append(out, page.Tasks[i].ID)
		}
		if query.After = page.Next; page.Next == "" {
			return out
		}
	}
}

func (w *whole) String() string { return fmt.Sprintf("list everything in pages of %d", w.page) }

// sortedNames returns the names of the queues of a claim, sorted.
func sortedNames(queues []storage.ClaimQueue) []string {
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
	}
	sort.Strings(names)
	return names
}
