package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// In the general way of a claim the engine chooses among candidates, which are read without locks and
// without payloads. The claim then locks exactly the chosen ones and compares them with the candidates.
// If some have changed, the engine chooses again. The function claim does everything else, as in the
// short way: it presents the call to its lane, promotes due tasks and hands out due cursors.
//
// If a queue has a rate, the task behind the chosen ones is read too, because its cost decides. Candidates
// that are not read yet count as of cost 1 at first. If these are not enough, the others count as of no cost,
// so that the claim reads them all at once. The tasks because of which partitions rest are read too.
//
// The limits of queues are locked first, before the transaction has any other lock, so that two claims never
// take the same slot, and never wait for each other in a circle (limits.go).

const (
	// chooseRounds bounds how often the engine chooses again because other transactions have changed
	// or locked chosen tasks. After that the claim takes those that it has locked.
	chooseRounds = 3
	// spare is how many more candidates are read than the claim may take: other claims may take some.
	spare = 100
	// spareTurns is how many more candidates in partitions are read: claims take these one after the other.
	spareTurns = 16
	// heldPause is when to claim again if other transactions have locked all tasks that are left.
	heldPause = 100 * time.Millisecond
	// mostReads is how often a claim reads candidates, if partitions do not admit the declined tasks among them.
	mostReads = 5
)

// choice is the state of a claim for which the engine chooses.
type choice struct {
	*claim

	step       *step
	candidates []candidate
	gone       map[storage.Ref]bool // candidates that have changed or are locked
	read       bool                 // some were locked and read
	held       bool                 // another transaction has locked some of them
	left       map[string]bool      // queues in which some tasks were not read
	limits     limits
	starts     map[line]engine.Starts // those that count, of the partitions of candidates
	full       map[string]bool        // queues in which partitions are passed over at their Concurrency
	passed     []line                 // partitions that go to the end of the ring
	parts      map[line]bool          // partitions of which candidates were read
	refused    map[keyed]bool         // partitions that admit no more declined tasks
	next       int64                  // when the first refused partition admits a task, 0 for never
}

// candidate is a task that the claim may take, as it was read without a lock.
type candidate struct {
	place        int32 // index of its queue among the names, from 1
	foreign      bool  // it stands in a line that is not of its queue
	state, flags int16
	id           []byte
	version      int64
	sort         int64
	size         int32
	last         bool // the tasks behind it in its line were not read
	ref          storage.Ref
	sub          string // the name of its line, if it has one
	turn         int64  // of its partition, if it stands in the line of one
	left         int32  // how many tasks are left of the turn of that partition
	partition    string
	running      int64  // how many tasks of its partition count for the Concurrency
	own          string // the limit of its partition alone
}

// keyed is a partition of a queue whose index among the names is place, from 1.
type keyed struct {
	place int32
	key   string
}

// line identifies a sequence of candidates.
type line struct {
	queue string
	state engine.State
	sub   string // the name of the line, if it has one
}

// choose carries out the claim in one transaction.
func (c *claim) choose(ctx context.Context) error {
	tx, err := c.store.begin(ctx, c.store.pool)
	if err != nil {
		return err
	}
	defer tx.close(ctx)
	ch := &choice{claim: c, gone: make(map[storage.Ref]bool), refused: make(map[keyed]bool)}
	if err := tx.run(ctx, ch.limiting(), c.query(), c.naming(), ch.query(false)); err != nil {
		return err
	}
	if c.verdict != "" || len(c.behind) > 0 {
		return nil
	}
	ch.step = c.store.newStep(tx, c.queues)
	ch.step.now, ch.step.base = c.Now.UnixMicro(), c.base
	w, chosen, err := ch.rounds(ctx)
	if err != nil {
		return err
	}
	writes := slices.Concat(w.turning(ch.passedOver(chosen)), w.save(false), ch.starting(w))
	if len(writes) > 0 { // the function claim, which took nothing, may have turned the wait for the disk off
		writes = append(writes, query{text: "SET LOCAL synchronous_commit TO DEFAULT"})
	}
	if err := tx.commit(ctx, writes...); err != nil {
		return err
	}
	next, more, bounded, held := chosen.Survey()
	next = engine.Sooner(next, ch.next)
	if ch.limits.wait { // no start ceases to count before its end, which the function claim returned
		next = 0
	}
	for _, name := range bounded {
		delete(ch.left, name)
	}
	c.Bounded, c.Held, c.More = bounded, ch.allHeld(held, bounded), c.More || more || len(ch.left) > 0
	if (ch.held || ch.limits.held) && !c.More {
		next = c.Now.Add(heldPause).UnixMicro()
	}
	if due := engine.Time(next); !due.IsZero() && (c.NextDue.IsZero() || due.Before(c.NextDue)) {
		c.NextDue = due
	}
	if !c.repeat {
		c.grow(len(chosen.Taken))
		for _, r := range chosen.Taken {
			c.give(r)
		}
	}
	return nil
}

// query reads the candidates; with free, only candidates that no other transaction has locked.
func (ch *choice) query(free bool) query {
	ch.candidates, ch.passed = nil, nil
	ch.starts, ch.full = make(map[line]engine.Starts), make(map[string]bool)
	ch.parts = make(map[line]bool)
	starts, suspects := 0, 0
	if ch.req.Start > 0 {
		starts = ch.req.Start + spare
		if ch.req.Suspect {
			suspects = 1 + spare
		}
	}
	refusers, keys := make([]int32, 0, len(ch.refused)), make([]string, 0, len(ch.refused))
	for p := range ch.refused {
		refusers, keys = append(refusers, p.place), append(keys, p.key)
	}
	var r candidate
	var packed []byte
	return query{
		text: "SELECT * FROM {schema}.candidates($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		args: []any{
			ch.open(), ch.kinds(), int32(ch.req.Most() + spare), int32(starts), int32(suspects), free,
			int32(ch.turns()), ch.rings, refusers, keys,
		},
		scan: each(func() error {
			got, queue := r, ch.req.Queues[r.place-1].Name
			if r.id == nil {
				ch.passes(queue, r.sub)
				return nil
			}
			if r.state == int16(engine.Keyed) {
				ch.parts[line{queue, engine.Keyed, r.sub}] = true
			}
			if len(packed) > 0 {
				ch.starts[line{queue, engine.Keyed, r.partition}] = engine.UnpackStarts(packed)
			}
			got.id = slices.Clone(r.id)
			got.ref = storage.Ref{Queue: queue, ID: unpackID(got.id)}
			if got.foreign || got.ref.ID == "" {
				ch.damaged = append(ch.damaged, damage{got.ref.Queue, got.id})
			} else {
				ch.candidates = append(ch.candidates, got)
			}
			return nil
		}, &r.place, &r.foreign, &r.state, &r.sub, &r.id, &r.version, &r.sort, &r.flags, &r.size,
			&r.last, &r.turn, &r.left, &r.partition, &r.running, &packed, &r.own),
	}
}

// rounds chooses and locks until all chosen tasks are locked, and returns the work to be saved.
func (ch *choice) rounds(ctx context.Context) (*work, *engine.Claim, error) {
	for reads, round := 1, 0; ; {
		w, chosen := ch.choose(round == chooseRounds)
		if reads < mostReads && ch.refuse(chosen) {
			reads++
			if err := ch.readOn(ctx, chosen); err != nil {
				return nil, nil, err
			}
			continue
		}
		wanted := ch.wanted(chosen)
		if len(wanted) == 0 {
			return w, chosen, nil
		}
		if err := ch.step.link.run(ctx, ch.step.loading(wanted)); err != nil {
			return nil, nil, err
		}
		ch.read = true
		changed, held := ch.lookAgain(wanted)
		if changed || held {
			round++
		}
		ch.held = ch.held || held
		if ch.readmit() || held {
			if err := ch.readAgain(ctx, chosen); err != nil {
				return nil, nil, err
			}
		}
	}
}

// wanted returns the tasks that are to be locked and read: the chosen ones, and those whose cost decides.
func (ch *choice) wanted(chosen *engine.Claim) map[storage.Ref]bool {
	wanted := make(map[storage.Ref]bool)
	read := chosen.Heads()
	if !ch.repeat {
		read = append(read, chosen.Taken...)
	}
	for _, r := range read {
		if ch.step.loaded[r.Ref] == nil {
			wanted[r.Ref] = true
		}
	}
	return wanted
}

// choose lets the engine choose among the remaining candidates, or only among the locked ones.
func (ch *choice) choose(locked bool) (*work, *engine.Claim) {
	st := ch.step
	w := newWork(st.store.limits, st.now, st.base, func(name string) int32 { return st.queues[name] })
	w.step.Lines, w.lines, ch.left = w, make(map[line][]*row), make(map[string]bool)
	w.shares = make(map[line]*engine.Line)
	var taken []*candidate // by this claim or another, without a check of those behind them
	if !ch.limits.wait {
		w.step.Come = st.now
	}
	for i := range ch.candidates {
		cand := &ch.candidates[i]
		rec := st.loaded[cand.ref]
		if cand.last && rec != nil {
			taken = append(taken, cand)
		}
		if ch.gone[cand.ref] {
			continue
		}
		if _, locked := ch.limits.turns[cand.ref.Queue]; !locked && cand.state == int16(engine.Keyed) {
			ch.left[cand.ref.Queue] = true // the partition began after the queue could be locked
			continue
		}
		if locked && rec == nil {
			ch.left[cand.ref.Queue] = true
			continue
		}
		ch.stand(w, cand, rec)
	}
	w.beginRing()
	queues := make([]*engine.Queue, len(ch.req.Queues))
	for i := range queues {
		if name := ch.req.Queues[i].Name; st.queues[name] != 0 {
			queues[i] = w.Queue(name)
			queues[i].Limit, queues[i].Turn = ch.limits.of(name), ch.limits.turns[name]
		}
	}
	claim := w.step.Claim(ch.req, queues)
	if ch.repeat {
		claim.Again(ch.again(w))
	} else {
		claim.Take()
	}
	for _, cand := range taken {
		if cand.state != int16(engine.Keyed) || !w.isHeld(line{cand.ref.Queue, engine.Keyed, cand.sub}) {
			ch.left[cand.ref.Queue] = true
		}
	}
	ch.behindRests(w)
	return w, &claim
}

// refuse notes the partitions of declined tasks that the claim has passed over because these admit none now,
// if it has come to the last candidate of a line and others stand behind. It reports whether the candidates
// have to be read again, without the tasks of these partitions.
func (ch *choice) refuse(chosen *engine.Claim) (again bool) {
	cut := make(map[line]bool)
	for i := range ch.candidates {
		if cand := &ch.candidates[i]; cand.last && cand.state == int16(engine.Declined) {
			cut[line{cand.ref.Queue, engine.Declined, cand.sub}] = true
		}
	}
	if len(cut) == 0 || ch.repeat {
		return false
	}
	for i := range ch.req.Queues {
		for l, tasks := range chosen.Refused(i) {
			for _, r := range tasks {
				p := keyed{int32(i + 1), r.Partition}
				if cut[line{l.Queue.Name, engine.Declined, l.Sub}] && !ch.refused[p] {
					ch.refused[p], again = true, true
				}
			}
		}
	}
	return again
}

// readOn reads the candidates again, after refuse. It notes when the refused partitions admit tasks, and
// which queues they hold back, because their tasks are not read again.
func (ch *choice) readOn(ctx context.Context, chosen *engine.Claim) error {
	next, _, _, held := chosen.Survey()
	ch.next = engine.Sooner(ch.next, next)
	for _, name := range held {
		ch.full[name] = true
	}
	return ch.readAgain(ctx, chosen)
}

// readAgain reads the candidates again. The tasks of refused partitions that the claim has chosen stay
// candidates: it is because of them that these partitions admit no more. It keeps which queues partitions
// hold back, because the tasks of refused partitions are not read.
func (ch *choice) readAgain(ctx context.Context, chosen *engine.Claim) error {
	taken := make(map[storage.Ref]bool, len(chosen.Taken))
	for _, r := range chosen.Taken {
		taken[r.Ref] = true
	}
	var stay []candidate
	for _, cand := range ch.candidates {
		declined := cand.state == int16(engine.Declined)
		if taken[cand.ref] && declined && ch.refused[keyed{cand.place, cand.partition}] {
			cand.last = false
			stay = append(stay, cand)
		}
	}
	starts, full := ch.starts, ch.full
	err := ch.step.link.run(ctx, ch.query(ch.held))
	maps.Copy(ch.full, full)
	if err != nil || len(stay) == 0 {
		return err
	}
	found := make(map[storage.Ref]bool, len(ch.candidates))
	for i := range ch.candidates {
		found[ch.candidates[i].ref] = true
	}
	for _, cand := range stay {
		if found[cand.ref] { // it has changed meanwhile
			continue
		}
		ch.candidates = append(ch.candidates, cand)
		if at := (line{cand.ref.Queue, engine.Keyed, cand.partition}); starts[at] != nil {
			ch.starts[at] = starts[at]
		}
	}
	slices.SortStableFunc(ch.candidates, func(a, b candidate) int { return cmp.Compare(a.sort, b.sort) })
	return nil
}

// readmit lets partitions be read again whose chosen tasks are gone: they may admit others. It reports
// whether there are any.
func (ch *choice) readmit() bool {
	before := len(ch.refused)
	for i := range ch.candidates {
		if cand := &ch.candidates[i]; ch.gone[cand.ref] {
			delete(ch.refused, keyed{cand.place, cand.partition})
		}
	}
	return len(ch.refused) < before
}

// turns returns of how many partitions of a queue candidates are read.
func (ch *choice) turns() int { return ch.req.Most() + spareTurns }

// behindRests notes the queues in which the claim puts partitions to rest after it has read as many as it
// asked for: further partitions may stand behind them. The next claim comes closer to these, because each
// such claim leaves fewer ready partitions before them.
func (ch *choice) behindRests(w *work) {
	read := make(map[string]int)
	for at := range ch.parts {
		read[at.queue]++
	}
	for _, at := range ch.passed { // turned has passed these over because others are left
		read[at.queue] = ch.turns()
	}
	for _, l := range w.parts {
		if l.Ring.Sort > 0 && read[l.Queue.Name] >= min(ch.turns(), storage.MaxTurns) {
			ch.left[l.Queue.Name] = true
		}
	}
}

// passes notes a partition that was passed over because of what it has at its place in the ring, or with no
// key that partitions of the queue are held back.
func (ch *choice) passes(queue, key string) {
	if key == "" {
		ch.full[queue] = true
	} else {
		ch.passed = append(ch.passed, line{queue, engine.Keyed, key})
	}
}

// passedOver returns the partitions that go to the end of the ring, after a claim that read MaxTurns and
// left out others. If the claim has taken tasks of the queue, another claim finds more.
func (ch *choice) passedOver(chosen *engine.Claim) (passed []line) {
	for _, at := range ch.passed {
		if _, locked := ch.limits.turns[at.queue]; locked && !ch.repeat {
			passed = append(passed, at)
			if slices.ContainsFunc(chosen.Taken, func(r *engine.Record) bool { return r.Queue.Name == at.queue }) {
				ch.left[at.queue] = true
			}
		}
	}
	return passed
}

// allHeld returns the queues that are not bounded, in which the limit of partitions holds tasks back, as the
// engine found and the server.
func (ch *choice) allHeld(found, bounded []string) (held []string) {
	for i := range ch.req.Queues {
		name := ch.req.Queues[i].Name
		if (ch.full[name] || slices.Contains(found, name)) && !slices.Contains(bounded, name) {
			held = append(held, name)
		}
	}
	return held
}

// stand puts a candidate, which rec has if it was read, into its line.
func (ch *choice) stand(w *work, cand *candidate, rec *raw) {
	var r *row
	if rec != nil {
		r = rec.row(cand.ref, ch.step.queues[cand.ref.Queue])
		w.load(r)
	} else {
		r = ch.unread(w, cand)
		w.rows[cand.ref] = r
	}
	r.size = int(cand.size)
	if cand.partition != "" {
		w.share(r.Queue, cand, ch.starts)
	}
	at := line{cand.ref.Queue, r.State, cand.sub}
	w.lines[at] = append(w.lines[at], r)
}

// unread makes a row for a candidate that was not read.
func (ch *choice) unread(w *work, cand *candidate) *row {
	r := &row{Record: engine.Record{
		Ref: cand.ref, Queue: w.Queue(cand.ref.Queue), Place: engine.Place{Sort: cand.sort},
		State: engine.State(cand.state), Flags: engine.Flags(cand.flags), Version: cand.version,
	}}
	r.Partition = cand.partition
	if ch.read {
		r.Cost = storage.NoCost
	}
	return r
}

// again makes rows for the tasks that a repeated call was given, and returns their fences.
func (ch *choice) again(w *work) []storage.Fence {
	for i := range ch.Tasks {
		t, f := &ch.Tasks[i], &ch.Fences[i]
		r := &row{Record: engine.Record{Ref: t.Ref, State: engine.Pending, Version: f.Version, Token: f.Token}}
		if storage.Suspect(t.Crashes, t.CrashLimit) {
			r.Flags = engine.IsSuspect
		}
		w.rows[t.Ref] = r
	}
	return ch.Fences
}

// lookAgain removes the wanted candidates that could not be locked or have changed since they were
// read. It reports whether some have changed, and whether another transaction holds some.
func (ch *choice) lookAgain(wanted map[storage.Ref]bool) (changed, held bool) {
	for i := range ch.candidates {
		cand := &ch.candidates[i]
		if !wanted[cand.ref] {
			continue
		}
		rec := ch.step.loaded[cand.ref]
		switch {
		case !rec.found || rec.version != cand.version || rec.state != cand.state || rec.sort != cand.sort:
			ch.gone[cand.ref], changed = true, true
		case !rec.held:
			ch.gone[cand.ref], held = true, true
		case cand.isDamaged(rec.row(cand.ref, 0)):
			ch.gone[cand.ref] = true
			ch.damaged = append(ch.damaged, damage{cand.ref.Queue, cand.id})
		}
	}
	return changed, held
}

// isDamaged reports whether a candidate cannot be read, or stands in the line of another partition than
// its own.
func (c *candidate) isDamaged(r *row) bool {
	return r.State == engine.Damaged || r.State == engine.Keyed && r.Partition != c.sub
}

// First returns the first candidate in a line. Candidates that the claim has taken have another state.
func (w *work) First(q *engine.Queue, state engine.State) *engine.Record {
	at := line{q.Name, state, ""}
	all := w.lines[at]
	for len(all) > 0 && all[0].State != state {
		all = all[1:]
	}
	w.lines[at] = all
	if len(all) == 0 {
		return nil
	}
	return &all[0].Record
}

// Size returns the bytes of a candidate's record, nearly all of which are its payload.
func (w *work) Size(r *engine.Record) int { return w.rows[r.Ref].size }

// LinesNamed returns the lines of kinds that have candidates. Only kinds that the claim names have any.
func (w *work) LinesNamed(q *engine.Queue, _ []string) (found []*engine.Line) {
	for at, all := range w.lines {
		if at.queue == q.Name && at.state == engine.Declined {
			found = append(found, &engine.Line{
				Queue: q, State: at.state, Sub: at.sub, Size: int64(len(all)), Tasks: inLine(all),
			})
		}
	}
	return found
}

// LinesFrom returns the lines of kinds that have candidates, for a claim that names no kind.
func (w *work) LinesFrom(q *engine.Queue, _ engine.State, _ string, _ int) []*engine.Line {
	return w.LinesNamed(q, nil)
}

// inLine are the candidates in a line with a name.
type inLine []*row

// Range returns the first candidates at a place or behind it, without any of some flags, that the claim has
// not taken.
func (all inLine) Range(from engine.Place, without engine.Flags, n int) (found []*engine.Record) {
	for _, r := range all {
		if len(found) < n && r.State.HasSubs() && r.Flags&without == 0 && !r.Before(from) {
			found = append(found, &r.Record)
		}
	}
	return found
}
