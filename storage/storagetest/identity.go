package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
)

func identityRules() []rule {
	return []rule{
		state("identity/insert", identityInsert,
			"A repeated Apply gives the first outcome and does nothing: no second task, even if the "+
				"first has run and vanished."),
		state("identity/refusal", identityRefusal,
			"A refused Tx repeated is refused as it was, even if it would succeed by now."),
		state("identity/several Txs", identityTxs,
			"Each Tx of a repeated Apply gives its own first outcome, whatever queue it concerns."),
		state("identity/settle", identitySettle,
			"A repeated settle that succeeded succeeds; it is not ErrLeaseLost."),
		state("identity/claim", identityClaim,
			"A repeated Claim gives the tasks of the first that are still claimed under its token, and "+
				"takes no others."),
		state("identity/claim of nothing", identityClaimNothing,
			"A repeated Claim that took nothing takes nothing, or what is there now, and from then on the same."),
		state("identity/extend", identityExtend,
			"A repeated Extend gives the first outcome and writes nothing."),
		state("identity/configure", identityConfigure,
			"A repeated Configure does nothing."),
		state("identity/smaller number", identitySmaller,
			"A smaller number than the lane's last is refused with ErrUnknown and never executed, for "+
				"every mutating verb."),
		state("identity/lane expired", identityExpired,
			"A call on a lane past its life is refused with ErrLaneExpired and never executed, for every "+
				"mutating verb."),
		state("identity/end of a lane", identityEnd,
			"When its lane's life ends a call may be remembered still or refused, and is never executed again."),
		state("identity/none", identityNone,
			"The zero Call has no identity and is never remembered."),
		state("identity/lanes apart", identityLanes,
			"Lanes know nothing of each other's numbers."),
		state("identity/numbers with gaps", identityGaps,
			"A lane's numbers only have to grow."),
		state("identity/at once", identityAtOnce,
			"One call that arrives several times at once is executed once."),
		state("identity/opened ahead", identityAhead,
			"A call on a lane that was opened more than LaneLife ahead of the storage's clock is refused with "+
				"ErrLaneExpired."),
		state("identity/other content", identityOther,
			"The same number with other content does nothing; its answer means nothing, and its error is an "+
				"ErrUnknown."),
		state("identity/beside others", identityBeside,
			"A call that is repeated while others arrive changes nothing of theirs: what they are told is so."),
		state("identity/another handle", identityHandles,
			"A call is remembered with the data: repeating it through another handle gives the first outcome."),
	}
}

// lane opens a lane.
func (r *rig) lane() storage.Lane {
	r.Helper()
	return storage.Lane{ID: storage.NewToken(), Opened: r.now().Truncate(time.Microsecond)}
}

// called applies Txs under the identity of a call, without the session.
func (r *rig) called(call storage.Call, txs ...storage.Tx) []storage.Applied {
	r.Helper()
	applied, err := r.store.Apply(r.ctx, call, txs...)
	r.must("apply", err)
	if len(applied) != len(txs) {
		r.Fatalf("apply: got %d answers, want %d", len(applied), len(txs))
	}
	return applied
}

// first returns the first call of a new lane.
func (r *rig) first() storage.Call {
	r.Helper()
	return storage.Call{Lane: r.lane(), Seq: 1}
}

func inserting(ins ...storage.Insert) storage.Tx { return storage.Tx{Inserts: ins} }

func identityInsert(r *rig) {
	call, tx := r.first(), inserting(job("a"), delayed("b", time.Hour))
	once := r.called(call, tx)
	r.want("repeated", r.called(call, tx), once)
	r.end(r.take(ask(1), "a"), storage.Complete)
	r.cancel("b")
	r.want("repeated after the end", r.called(call, tx), once)
	r.gone("a", "b")
	r.want("enqueued", r.stats().Totals.Enqueued, int64(2))
}

func identityRefusal(r *rig) {
	call := r.first()
	tx := cancelOf(in("a"))
	once := r.called(call, tx)
	var dep *storage.DependencyError
	r.want("refused", errors.As(once[0].Err, &dep), true)
	r.add("a")
	again := r.called(call, tx)
	var same *storage.DependencyError
	r.want("refused again", errors.As(again[0].Err, &same), true)
	r.want("refusal", [2]any{len(same.Missing), same.Error()}, [2]any{1, dep.Error()})
	r.is("a", storage.Waiting)
}

func identityTxs(r *rig) {
	there, other := job("b"), job("a")
	there.Ref.Queue, other.Kind = sideQueue, "other"
	call := r.first()
	txs := []storage.Tx{inserting(job("a")), inserting(other), inserting(there), inserting(job("c"))}
	once := r.called(call, txs...)
	r.want("refused", [4]bool{once[0].Err != nil, once[1].Err != nil, once[2].Err != nil, once[3].Err != nil},
		[4]bool{false, true, false, false})
	r.delete("a")
	for i, a := range r.called(call, txs...) {
		r.want("placed again", a.Inserted, once[i].Inserted)
		r.want("refused again", a.Err != nil, once[i].Err != nil)
	}
	r.gone("a")
	r.want("enqueued", r.stats().Totals.Enqueued, int64(2))
}

func identitySettle(r *rig) {
	h := r.holding(job("a"))
	call := r.first()
	tx := settling(h)
	tx.Inserts = []storage.Insert{job("next")}
	once := r.called(call, tx)
	r.must("settle", once[0].Err)
	r.end(r.take(ask(1), "next"), storage.Complete)
	r.want("repeated", r.called(call, tx), once)
	r.gone("next")
	r.want("completed", r.stats().Totals.Completed, int64(2))
}

// claimedAs claims under the identity in req, without the session.
func (r *rig) claimedAs(req storage.ClaimRequest) []held {
	r.Helper()
	c, err := r.store.Claim(r.ctx, req)
	r.must("claim", err)
	holds := make([]held, len(c.Tasks))
	for i := range holds {
		holds[i] = held{c.Tasks[i], c.Fences[i]}
	}
	return holds
}

func identityClaim(r *rig) {
	r.add("a", "b", "c", "d")
	req := ask(2)
	req.Call, req.Token = r.first(), storage.NewToken()
	once := r.claimedAs(req)
	r.want("claimed", len(once), 2)
	r.want("repeated", r.claimedAs(req), once)
	s := r.stats()
	r.want("pending, waiting", [2]int64{s.Pending, s.Waiting}, [2]int64{2, 2})
	r.end(once[0], storage.Complete)
	r.want("repeated after one has ended", r.claimedAs(req), once[1:])
	r.end(once[1], storage.Release)
	r.want("repeated after the other went back", len(r.claimedAs(req)), 0)
	r.hold(ask(1), 1)
	r.want("repeated when another holds it", len(r.claimedAs(req)), 0)
	r.want("waiting", r.stats().Waiting, int64(2))
}

func identityClaimNothing(r *rig) {
	req := ask(2)
	req.Call, req.Token = r.first(), storage.NewToken()
	r.want("claimed", len(r.claimedAs(req)), 0)
	r.add("a", "b", "c")
	taken := r.claimedAs(req)
	r.want("repeated again", r.claimedAs(req), taken)
	r.want("pending", r.stats().Pending, int64(len(taken)))
}

func identityExtend(r *rig) {
	r.add("a", "b")
	holds := r.hold(ask(2), 2)
	r.end(holds[1], storage.Release)
	req := storage.ExtendRequest{Call: r.first(), Leases: []storage.Extension{
		{Fence: holds[0].Fence, For: time.Hour, Progress: []byte("old")}, {Fence: holds[1].Fence, For: time.Hour},
	}}
	once, err := r.store.Extend(r.ctx, req)
	r.must("extend", err)
	r.want("lost", once.Lost, []storage.Ref{in("b")})
	r.extend(storage.Extension{Fence: holds[0].Fence, For: 2 * time.Hour, Progress: []byte("new")})
	r.cancel("a")
	r.unchanged(func() {
		again, err := r.store.Extend(r.ctx, req)
		r.must("extend again", err)
		r.want("repeated", [2]any{again.Lost, len(again.CancelAsked)}, [2]any{once.Lost, 0})
	}, "a", "b")
}

func identityConfigure(r *rig) {
	r.add("a")
	call := r.first()
	pause := func() {
		r.must("configure", r.store.Configure(r.ctx, call, mainQueue, pausing(0)))
	}
	pause()
	r.want("paused", r.stats().Paused, true)
	r.configure(resuming())
	pause()
	r.want("paused again", r.stats().Paused, false)
	r.take(ask(1), "a")
}

// verbs calls each mutating method once, and returns their errors by name. If they happened they
// would change task a, which is claimed, claim task c, add task b, and pause main.
func (r *rig) verbs(h held, call func() storage.Call) map[string]error {
	r.Helper()
	claim := ask(1)
	claim.Call, claim.Token = call(), storage.NewToken()
	extend := storage.ExtendRequest{Call: call(), Leases: []storage.Extension{{Fence: h.Fence, For: time.Hour}}}
	_, applyErr := r.store.Apply(r.ctx, call(), inserting(job("b")))
	_, settleErr := r.store.Apply(r.ctx, call(), settling(h))
	_, claimErr := r.store.Claim(r.ctx, claim)
	_, extendErr := r.store.Extend(r.ctx, extend)
	return map[string]error{
		"apply": applyErr, "settle": settleErr, "claim": claimErr, "extend": extendErr,
		"configure": r.store.Configure(r.ctx, call(), mainQueue, pausing(0)),
	}
}

func identitySmaller(r *rig) {
	r.add("a", "c")
	h := r.take(ask(1), "a")
	lane := r.lane()
	r.called(storage.Call{Lane: lane, Seq: 10}, inserting(delayed("first", time.Hour)))
	r.unchanged(func() {
		seq := uint64(0)
		next := func() storage.Call {
			seq++
			return storage.Call{Lane: lane, Seq: seq}
		}
		for verb, err := range r.verbs(h, next) {
			r.wantError(verb+" with a smaller number", err, storage.ErrUnknown)
			r.want(verb+" is not of an expired lane", errors.Is(err, storage.ErrLaneExpired), false)
		}
	}, "a", "b", "c")
	r.want("paused", r.stats().Paused, false)
}

func identityExpired(r *rig) { r.refusesLane(-storage.LaneLife - time.Second) }

func identityAhead(r *rig) {
	r.refusesLane(storage.LaneLife + time.Minute)
	lane := r.lane()
	lane.Opened = lane.Opened.Add(storage.LaneLife / 2)
	r.want("placed", r.called(storage.Call{Lane: lane, Seq: 1}, inserting(job("d")))[0].Inserted[0].Ref, in("d"))
}

func identityOther(r *rig) {
	r.add("a", "c")
	h := r.take(ask(1), "a")
	call := r.first()
	r.called(call, inserting(delayed("first", time.Hour)))
	r.unchanged(func() {
		for verb, err := range r.verbs(h, func() storage.Call { return call }) {
			if err != nil {
				r.wantError(verb+" with the number of another call", err, storage.ErrUnknown)
			}
		}
	}, "a", "b", "c", "first")
	r.want("paused", r.stats().Paused, false)
	one, two := inserting(job("d")), inserting(job("e"), job("f"))
	for _, txs := range [][]storage.Tx{{one}, {one, two}, nil} {
		if _, err := r.store.Apply(r.ctx, call, txs...); err != nil {
			r.wantError("other Txs with the number of another call", err, storage.ErrUnknown)
		}
	}
	r.gone("d", "e", "f")
	r.want("enqueued", r.stats().Totals.Enqueued, int64(3))
}

// refusesLane tests that no call happens on a lane that was opened at this offset from now.
func (r *rig) refusesLane(opened time.Duration) {
	r.Helper()
	r.add("a", "c")
	h := r.take(ask(1), "a")
	lane := r.lane()
	lane.Opened = lane.Opened.Add(opened)
	r.unchanged(func() {
		for verb, err := range r.verbs(h, func() storage.Call {
			lane.ID = storage.NewToken()
			return storage.Call{Lane: lane, Seq: 1}
		}) {
			r.wantError(verb+" on an expired lane", err, storage.ErrLaneExpired)
			r.wantError(verb+" on an expired lane", err, storage.ErrUnknown)
		}
	}, "a", "b", "c")
	r.want("paused", r.stats().Paused, false)
}

func identityEnd(r *rig) {
	lane := r.lane()
	lane.Opened = lane.Opened.Add(time.Second - storage.LaneLife)
	call, tx := storage.Call{Lane: lane, Seq: 1}, inserting(job("a"))
	once := r.called(call, tx)
	r.delete("a")
	r.passTo(lane.Opened.Add(storage.LaneLife))
	r.maintain()
	again, err := r.store.Apply(r.ctx, call, tx)
	if err != nil {
		r.wantError("a call whose lane has expired", err, storage.ErrLaneExpired)
	} else {
		r.want("repeated", again, once)
	}
	call.Seq = 2
	_, err = r.store.Apply(r.ctx, call, tx)
	r.wantError("the next call of a lane that has expired", err, storage.ErrLaneExpired)
	r.gone("a")
}

func identityNone(r *rig) {
	tx := inserting(job("a"))
	r.want("Existing", r.called(storage.Call{}, tx)[0].Inserted[0].Existing, false)
	r.want("Existing of a second one", r.called(storage.Call{}, tx)[0].Inserted[0].Existing, true)
	r.delete("a")
	r.want("Existing after it is gone", r.called(storage.Call{}, tx)[0].Inserted[0].Existing, false)
}

func identityLanes(r *rig) {
	one, two := r.lane(), r.lane()
	r.called(storage.Call{Lane: one, Seq: 5}, inserting(job("a")))
	r.must("another lane", r.called(storage.Call{Lane: two, Seq: 1}, inserting(job("b")))[0].Err)
	r.must("the first lane", r.called(storage.Call{Lane: one, Seq: 6}, inserting(job("c")))[0].Err)
	r.want("claimed", r.drain(), []string{"a", "b", "c"})
}

func identityGaps(r *rig) {
	lane := r.lane()
	for i, seq := range []uint64{3, 4, 1000, 1 << 40} {
		id := string(rune('a' + i))
		a := r.called(storage.Call{Lane: lane, Seq: seq}, inserting(job(id)))
		r.want("placed", a[0].Inserted[0].Ref, in(id))
	}
	r.want("claimed", r.drain(), []string{"a", "b", "c", "d"})
}

func identityAtOnce(r *rig) {
	r.add("a", "b", "c", "d", "e", "f")
	req := ask(2)
	req.Call, req.Token = r.first(), storage.NewToken()
	answers := make([][]string, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			c, err := r.store.Claim(r.ctx, req)
			if err != nil {
				r.Errorf("claim: %v", err)
			}
			answers[i] = ids(c.Tasks)
		})
	}
	all.Wait()
	for _, got := range answers {
		r.want("claimed", got, []string{"a", "b"})
	}
	r.want("waiting", r.stats().Waiting, int64(4))
}

func identityBeside(r *rig) {
	const calls = 20
	repeated, fresh, want := make([]storage.Call, calls), make([]storage.Call, calls), make([]string, calls)
	tx := func(kind string, i int) storage.Tx { return inserting(job(fmt.Sprintf("%s%02d", kind, i))) }
	for i := range calls {
		repeated[i], fresh[i], want[i] = r.first(), r.first(), tx("new", i).Inserts[0].Ref.ID
		r.called(repeated[i], tx("old", i))
	}
	for _, h := range r.hold(ask(calls), calls) {
		r.end(h, storage.Complete)
	}
	var all sync.WaitGroup
	apply := func(call storage.Call, tx storage.Tx) {
		if a, err := r.store.Apply(r.ctx, call, tx); err != nil || a[0].Err != nil {
			r.Errorf("apply: got %+v, error %v", a, err)
		}
	}
	for i := range calls {
		all.Go(func() { apply(repeated[i], tx("old", i)) })
		all.Go(func() { apply(fresh[i], tx("new", i)) })
	}
	all.Wait()
	got := r.drain()
	slices.Sort(got)
	r.want("claimed", got, want)
	r.want("enqueued", r.stats().Totals.Enqueued, int64(2*calls))
}

func identityHandles(r *rig) {
	other, ok := r.again()
	if !ok {
		return
	}
	r.insert(delayed("before", time.Hour))
	call, tx := r.first(), inserting(job("a"))
	once := r.called(call, tx)
	r.end(r.take(ask(1), "a"), storage.Complete)
	r.want("repeated", other.called(call, tx), once)
	r.gone("a")
}
