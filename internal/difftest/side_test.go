package difftest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// side is one storage under the sequence, and the values of its answers that differ between
// storages: versions and fences. Everything else is the same on all sides.
type side struct {
	name  string
	store storage.Storage
	// slots means that queues may be unable to share a step, so that the order of a claim across
	// them is best effort.
	slots bool
	// lazy means that a claim may take a due task without promoting it, so that a later claim
	// promotes the other due tasks.
	lazy bool
	// fresh means that a claim skips maintenance if the one a moment before it found nothing to
	// maintain, by a clock that no test moves, unless it names a new queue.
	fresh bool

	versions map[storage.Ref][]int64
	fences   map[storage.Ref][]storage.Fence
	sent     map[[16]byte]sent // the last call in each lane
	unheard  int               // number of the last new queue that a claim named
}

// sent is a call that can be sent again, and the outcome of its first execution.
type sent struct {
	again func(ctx context.Context) outcome
	first outcome
}

// outcome is the result of a step on one side, in lines that are the same on every side.
type outcome []string

func newSide(name string, store storage.Storage) *side {
	return &side{
		name: name, store: store,
		versions: make(map[storage.Ref][]int64), fences: make(map[storage.Ref][]storage.Fence),
		sent: make(map[[16]byte]sent),
	}
}

// begin is the time at which each sequence begins. It is half a step of the clock after a multiple of such steps, at
// which the parts end in which starts are counted, so that no step comes near the end of a part.
var begin = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Add(grid / 2)

// saw returns the number of a version in the order in which the versions of the task were first
// seen.
func (s *side) saw(ref storage.Ref, version int64) string {
	if version == 0 {
		return "v-"
	}
	seen := s.versions[ref]
	if i := slices.Index(seen, version); i >= 0 {
		return fmt.Sprint("v", i)
	}
	s.versions[ref] = append(seen, version)
	if n := len(seen); n > 0 && version < seen[n-1] {
		return fmt.Sprint("v", n, " which is smaller than the one before")
	}
	return fmt.Sprint("v", len(seen))
}

// knows is like saw, for a version that a caller named. It returns "v?" for a version that was
// never seen.
func (s *side) knows(ref storage.Ref, version int64) string {
	if slices.Contains(s.versions[ref], version) {
		return s.saw(ref, version)
	}
	return "v?"
}

// moved copies the versions of a task that was moved to its new reference.
func (s *side) moved(from, to storage.Ref) { s.versions[to] = slices.Clone(s.versions[from]) }

// none is a version that no task has.
const none = 1

// version returns the present version of a task, or the one that it had back versions ago.
func (s *side) version(ctx context.Context, ref storage.Ref, back int) int64 {
	if t, err := s.store.Task(ctx, ref); err == nil {
		s.saw(ref, t.Version)
		if back == 0 {
			return t.Version
		}
	}
	seen := s.versions[ref]
	if n := len(seen) - 1 - back; n >= 0 {
		return seen[n]
	}
	return none
}

// fence returns the fence of the last claim of a task, or of the one back claims before it.
func (s *side) fence(ref storage.Ref, back int) storage.Fence {
	got := s.fences[ref]
	if n := len(got) - 1 - back; n >= 0 {
		return got[n]
	}
	return storage.Fence{Ref: ref, Version: none, Token: storage.Token{1}}
}

// failed renders the error of a call.
func (s *side) failed(err error) outcome {
	for _, known := range []error{
		storage.ErrLaneExpired, storage.ErrUnknown, storage.ErrNotEmpty, storage.ErrNotFound, storage.ErrSpan,
	} {
		if errors.Is(err, known) {
			return outcome{"error: " + known.Error()}
		}
	}
	if invalid, some := errors.AsType[*storage.InvalidError](err); some {
		return outcome{"error: " + invalid.Error()}
	}
	return outcome{"error: " + err.Error()}
}

func (s *side) applied(all []storage.Applied, err error) outcome {
	if err != nil {
		return s.failed(err)
	}
	var out outcome
	for i, a := range all {
		var dep *storage.DependencyError
		switch {
		case errors.As(a.Err, &dep):
			out = append(out, s.refused(i, dep)...)
			continue
		case errors.Is(a.Err, storage.ErrSpan):
			out = append(out, fmt.Sprintf("tx %d: refused", i))
			continue
		case a.Err != nil:
			out = append(out, fmt.Sprintf("tx %d: %v", i, a.Err))
			continue
		}
		for what, placed := range map[string][]storage.Placed{
			"inserted": a.Inserted, "changed": a.Changed, "settled": a.Settled,
		} {
			for j, p := range placed {
				line := fmt.Sprintf("tx %d: %s %d: %s %s %s", i, what, j, p.Ref, p.State, s.saw(p.Ref, p.Version))
				if p.Existing {
					line += " existing"
				}
				out = append(out, line)
			}
		}
	}
	sort.Strings(out)
	return out
}

// refused renders the reasons for which a Tx was refused, sorted, because their order may
// differ.
func (s *side) refused(i int, dep *storage.DependencyError) outcome {
	var out outcome
	add := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("tx %d: refused: ", i)+fmt.Sprintf(format, args...))
	}
	for _, r := range dep.Missing {
		add("missing %s", r)
	}
	for _, r := range dep.Lost {
		add("lost %s", r)
	}
	for _, st := range dep.Stale {
		add("stale %s: want %s, have %s", st.Ref, s.knows(st.Ref, st.Want), s.saw(st.Ref, st.Have))
	}
	for _, c := range dep.Colliding {
		add("collision of %s with %s, unique %v", c.Ref, c.Holder, c.Unique)
	}
	for _, b := range dep.Barred {
		add("barred %s: %s", b.Ref, b.State)
	}
	sort.Strings(out)
	return out
}

func (s *side) claimed(req *storage.ClaimRequest, c storage.Claimed, err error) outcome {
	if err != nil {
		return s.failed(err)
	}
	var out outcome
	for i := range c.Tasks {
		if c.Tasks[i].Ref != c.Fences[i].Ref {
			out = append(out, fmt.Sprintf("the fence of %s is that of %s", c.Tasks[i].Ref, c.Fences[i].Ref))
		}
		if got := s.fences[c.Fences[i].Ref]; !slices.Contains(got, c.Fences[i]) {
			s.fences[c.Fences[i].Ref] = append(got, c.Fences[i])
		}
	}
	if s.slots { // the queues may be in another order
		slices.SortStableFunc(c.Tasks, func(a, b storage.Task) int {
			return turn(req, a.Queue) - turn(req, b.Queue)
		})
	}
	for i := range c.Tasks {
		c.Tasks[i].Reason = "" // may be left out
		out = append(out, "claimed "+s.task(&c.Tasks[i]))
	}
	out = append(out, s.found(c)...)
	if c.More {
		out = append(out, more)
	}
	slices.Sort(c.Bounded) // the queues may be in another order
	slices.Sort(c.Held)
	if !c.NextDue.IsZero() {
		// A Cluster returns it by the clock of another slot, which was read a little later. The end of a part of a rate
		// is the microsecond before a step of the clock, and would come to stand behind that step.
		c.NextDue = c.NextDue.Add(time.Second / 2)
	}
	return append(out, fmt.Sprint("cancels ", c.Cancels), fmt.Sprint(bounded, c.Bounded), fmt.Sprint(held, c.Held),
		nextDue+moment(c.NextDue))
}

// The lines that are not always compared.
const (
	more    = "more"
	nextDue = "next due "
	bounded = "bounded "
	held    = "held "
)

// found renders the findings of the maintenance of a claim, sorted, because its order may differ.
func (s *side) found(c storage.Claimed) outcome {
	var out outcome
	for i := range c.Ticks {
		out = append(out, "tick "+s.task(&c.Ticks[i]))
	}
	for _, e := range c.Ended {
		out = append(out, fmt.Sprintf("ended %s of kind %s: %s %s", e.Ref, e.Kind, e.State, e.Reason))
	}
	sort.Strings(out)
	return out
}

func turn(req *storage.ClaimRequest, queue string) int {
	return slices.IndexFunc(req.Queues, func(q storage.ClaimQueue) bool { return q.Name == queue })
}

func (s *side) extended(e storage.Extended, err error) outcome {
	if err != nil {
		return s.failed(err)
	}
	var out outcome
	for what, refs := range map[string][]storage.Ref{
		"lost": e.Lost, "locked": e.Locked, "cancel asked": e.CancelAsked,
	} {
		for _, ref := range refs {
			out = append(out, what+" "+ref.String())
		}
	}
	sort.Strings(out)
	return out
}

// maintain completes the maintenance of a queue, by claims that name some kinds, and returns its findings.
func (s *side) maintain(t testing.TB, queue string, kinds []string) outcome {
	var all outcome
	for range 100 {
		req := storage.ClaimRequest{Runner: "maintainer", Queues: []storage.ClaimQueue{{Name: queue}}, Kinds: kinds}
		c, err := s.store.Claim(t.Context(), *s.asking(&req))
		if err != nil {
			return s.failed(err)
		}
		all = append(all, s.found(c)...)
		if !c.More {
			sort.Strings(all)
			return all
		}
	}
	return append(all, "the maintenance of "+queue+" comes to no end")
}

// asking returns the request as this side must be asked: with a new queue, if it is fresh.
func (s *side) asking(req *storage.ClaimRequest) *storage.ClaimRequest {
	if !s.fresh {
		return req
	}
	asking := *req
	s.unheard++
	asking.Queues = append(slices.Clone(req.Queues), storage.ClaimQueue{Name: fmt.Sprint("unheard-", s.unheard)})
	return &asking
}

// remember sends a call and stores it, with its outcome, for the steps that repeat it.
func (s *side) remember(ctx context.Context, call storage.Call, send func(context.Context) outcome) outcome {
	out := send(ctx)
	if !call.IsZero() {
		s.sent[call.Lane.ID] = sent{again: send, first: out}
	}
	return out
}
