package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// batch bounds each kind of maintenance that one Claim does in a queue.
const batch = 500

// Claim maintains the named queues and takes tasks from them. It costs one round trip, and more if a lease or
// a kept record has expired or the engine chooses.
func (s *Storage) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := storage.CheckClaim(&req); err != nil {
		return storage.Claimed{}, err
	}
	if err := s.enter(); err != nil {
		return storage.Claimed{}, wrap("claim", err)
	}
	s.sweep.visit(false)
	s.wake.claims.Add(1)
	defer s.wake.claims.Add(-1)
	since := s.wake.looking(&req) // before the claim searches, so that no event between the two is lost
	c := &claim{store: s, req: &req, general: s.noShort, mark: s.wake.heard() && s.wake.idling.due(&req)}
	err := s.allowance.with(ctx, c.run)
	if c.mark && !c.marked {
		s.wake.idling.drop(c.open()...)
	}
	s.room.Wrote(err)
	if err != nil {
		return storage.Claimed{}, wrap("claim", err)
	}
	c.Since = since
	if c.More {
		s.wake.events.Left(&req)
		if c.general { // else the function claim has woken others
			s.wake.pass(c.open())
		}
	}
	s.brought.Store(int64(len(c.Tasks)))
	s.vacuum.left(len(c.Tasks))
	if len(c.Tasks) > 0 {
		s.sweep.append()
	}
	return c.Claimed, nil
}

// claim is the state of one Claim.
type claim struct {
	storage.Claimed

	store   *Storage
	req     *storage.ClaimRequest
	asked   []int64 // the place from which it searched in each queue
	rings   []int64 // and the turn from which it searched in its ring
	begun   time.Time
	behind  []int32  // numbers of queues that need maintenance first
	damaged []damage // records that cannot be read
	verdict string   // "v" or "x" if the call is refused, "g" if the engine has to choose
	left    bool     // more maintenance remains
	// maintained is true if the queues need no maintenance first, or had it. looked is true if this
	// claim itself found that they need none.
	maintained, looked bool
	// general is true if the engine chooses the tasks (choose.go). ticks were handed out before that
	// was decided.
	general bool
	ticks   []storage.Task
	queues  map[string]int32 // the numbers of the queues that exist
	base    int64            // the first version
	repeat  bool             // the lane remembers the call
	mark    bool             // the claim marks the process as idle if it leaves nothing
	marked  bool             // it has done so
	ended   []storage.Ended
	kind    string // of the last task: the next one shares the string
}

// damage names a record that cannot be read.
type damage struct {
	queue string
	id    []byte
}

func (c *claim) run(ctx context.Context) error {
	s := c.store
	if names := s.overfull.take(c.req.Queues); len(names) > 0 {
		if err := c.trimDead(ctx, names); err != nil {
			return err
		}
	}
	c.maintained = s.hints.maintained(c.req.Queues)
	for over := false; !over; {
		if err := s.retry(ctx, func() error { return c.try(ctx) }); err != nil {
			return translate(err)
		}
		switch {
		case c.verdict == "g":
			c.looked, c.general, c.ticks = !c.maintained, true, c.Ticks
			c.maintained = true
		case len(c.behind) > 0:
			c.maintained = true
			var err error
			if err = c.maintain(ctx, batch); err != nil {
				return err
			}
		default:
			over = true
		}
	}
	if err := refused(c.verdict); err != nil {
		return err
	}
	c.More, c.Ended = c.More || c.left, c.ended
	c.setApart(ctx)
	return nil
}

// try makes one try, the short way or the general way. It drops the results of a try that was rolled
// back.
func (c *claim) try(ctx context.Context) error {
	c.Claimed = storage.Claimed{Ticks: slices.Clone(c.ticks)}
	c.behind, c.damaged, c.verdict, c.repeat, c.marked, c.kind = nil, nil, "", false, false, ""
	if c.general {
		return c.choose(ctx)
	}
	return c.store.ask(ctx, c.store.pool, c.query())
}

// query calls the function claim. In the general way this takes no tasks; it only returns those of a
// repeat.
func (c *claim) query() query {
	req := c.req
	names, maxes := make([]string, len(req.Queues)), make([]int32, len(req.Queues))
	for i, q := range req.Queues {
		names[i], maxes[i] = q.Name, int32(min(q.Max, storage.MaxClaim))
	}
	holder := append(slices.Clone(req.Token[:]), req.Runner...)
	opened := int64(0)
	if !req.Call.IsZero() {
		opened = req.Call.Lane.Opened.UnixMicro()
	}
	lows, froms, sinces, recovered := c.store.hints.of(names)
	c.asked, c.begun, c.rings = froms, time.Now(), c.store.hints.rings(names)
	room := int64(storage.MaxClaimBytes)
	for i := range c.ticks { // less is left than the whole room, in which the function fits any first cursor
		room -= 1 + int64(len(c.ticks[i].Payload))
	}
	var r claimRow
	return query{
		text: "SELECT o_kind::text, o_place, o_id, o_version, o_at, o_flags, o_priority, o_past, o_record FROM " +
			"{schema}.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, " +
			"$19, $20, $21, $22, $23)",
		args: []any{
			req.Call.Lane.ID[:], opened, int64(req.Call.Seq), names, maxes, int32(req.Most()), int32(req.Start),
			req.Suspect, c.general, req.Lease.Microseconds(), holder, c.maintained, int32(batch),
			room, lows, froms, sinces, c.kinds(), recovered, c.recoverTo(),
			c.store.notes.sender, c.mark && !c.general, c.rings,
		},
		scan: each(func() error { return c.got(&r) },
			&r.kind, &r.place, &r.id, &r.version, &r.at, &r.flags, &r.priority, &r.past, &r.record),
	}
}

// recoverTo returns the moment up to which leases that ended are recovered.
func (c *claim) recoverTo() int64 {
	if c.req.RecoverBefore.IsZero() {
		return engine.Never
	}
	return engine.Moment(c.req.RecoverBefore) - 1
}

// open returns the names of the queues, with "" for those from which the claim takes nothing.
func (c *claim) open() []string {
	return c.names(func(q *storage.ClaimQueue) bool { return q.Max >= 0 })
}

// names returns the names of the queues, with "" for those that are left out.
func (c *claim) names(wanted func(*storage.ClaimQueue) bool) []string {
	names := make([]string, len(c.req.Queues))
	for i := range c.req.Queues {
		if q := &c.req.Queues[i]; wanted(q) {
			names[i] = q.Name
		}
	}
	return names
}

// namings is how many times per DeclinedFor it is noted that claims name a kind.
const namings = 24

// naming notes that claims name these kinds.
func (c *claim) naming() query {
	span := c.store.limits.DeclinedFor.Microseconds() / namings
	queues := c.names((*storage.ClaimQueue).Names)
	return query{text: "SELECT {schema}.name($1, $2, $3)", args: []any{queues, c.kinds(), span}}
}

// kinds returns the kinds that the claim names; an empty list stands for all.
func (c *claim) kinds() []string {
	if c.req.Kinds == nil {
		return []string{} // a nil slice would be null
	}
	return c.req.Kinds
}

// claimRow is a row that the function claim returns.
type claimRow struct {
	kind            string
	place           int32
	id              pgtype.DriverBytes // valid until the next row
	version         int64
	at              *int64
	flags, priority int16
	past            pgtype.DriverBytes // valid until the next row
	record          []byte
}

// got handles a row.
func (c *claim) got(r *claimRow) error {
	switch r.kind {
	case "m":
		c.behind = append(c.behind, int32(*r.at))
	case "t", "a", "k":
		return c.take(r)
	case "d":
		c.damaged = append(c.damaged, damage{c.req.Queues[r.place-1].Name, slices.Clone(r.id)})
	case "h":
		c.Now = engine.Time(r.version)
		if r.at != nil {
			c.NextDue = engine.Time(*r.at)
		}
		c.More = r.flags&1 != 0
		c.Cancels = r.flags&2 != 0
		c.repeat, c.marked = r.flags&8 != 0, r.flags&16 != 0
		for i := range c.Tasks {
			if t := &c.Tasks[i]; t.Claimed.IsZero() { // else the call is a repeat
				t.Claimed = engine.Time(engine.ClaimedAt(t.Version, r.version))
			}
		}
		c.learn(r)
	default:
		c.verdict = r.kind
	}
	return nil
}

// learn notes the values that the last row holds about the queues.
func (c *claim) learn(r *claimRow) {
	c.base = int64(binary.BigEndian.Uint64(r.id))
	if c.general {
		c.queues = make(map[string]int32, len(c.req.Queues))
	}
	for i := range c.req.Queues {
		name, number := c.req.Queues[i].Name, int32(binary.BigEndian.Uint32(r.past[4*i:]))
		c.store.numbers.hear(name, number)
		if c.general && number != 0 {
			c.queues[name] = number
		}
		last := int64(binary.BigEndian.Uint64(r.record[8*i:]))
		if c.general {
			c.store.hints.served(name, c.rings[i], last, c.base, time.Since(c.begun))
			last = 0
		}
		c.store.hints.learn(name, seen{
			now: r.version, recoverTo: c.recoverTo(), base: c.base, from: c.asked[i], last: last,
			clean: r.flags&4 != 0, took: time.Since(c.begun), maintained: !c.maintained || c.looked,
			looked: last != 0 || !c.general && len(c.Tasks) < c.req.Most() && c.req.Queues[i].Max >= 0,
		})
	}
}

// take adds a task or a tick to the answer.
func (c *claim) take(r *claimRow) error {
	queue := c.req.Queues[r.place-1].Name
	t := row{Record: engine.Record{
		Ref: storage.Ref{Queue: queue, ID: unpackID(r.id)}, Place: engine.Place{Sort: *r.at}, Version: r.version,
		State: engine.Pending, Flags: engine.Flags(r.flags), Priority: r.priority, Runner: c.req.Runner,
	}}
	if r.kind == "k" {
		t.State = engine.Cursor
	}
	past := []byte(r.past)
	if r.kind == "a" {
		t.At, past = engine.ClaimedAt(r.version, int64(binary.BigEndian.Uint64(past))), past[8:]
	}
	t.Kind = c.kind
	err := t.decode(past, r.record)
	if errors.Is(err, storage.ErrDamaged) {
		c.damaged = append(c.damaged, damage{queue, slices.Clone(r.id)})
		return nil
	}
	if r.kind == "k" {
		c.Ticks = append(c.Ticks, t.task())
		return err
	}
	if c.Tasks == nil { // expect about as many as the last time
		c.grow(int(min(c.store.brought.Load()*9/8+1, int64(c.req.Most()))))
	}
	c.kind = t.Kind
	c.give(&t.Record)
	return err
}

// grow reserves memory for n tasks.
func (c *claim) grow(n int) {
	c.Grow(n)
	c.Fences = make([]storage.Fence, 0, n)
}

// give appends a task and its fence to the answer.
func (c *claim) give(r *engine.Record) {
	n := len(c.Tasks)
	c.Tasks = slices.Grow(c.Tasks, 1)[:n+1] // not cleared: CopyTo overwrites every field
	task := &c.Tasks[n]
	r.CopyTo(task)
	task.Attempts = nil
	c.Fences = append(c.Fences, storage.Fence{Ref: task.Ref, Version: r.Version, Token: c.req.Token})
}

// setApart sets apart the records that cannot be read, so that they stop no other claim. If that
// fails, they stay pending, and are set apart when their leases expire.
func (c *claim) setApart(ctx context.Context) {
	for _, d := range c.damaged {
		queues, err := c.store.numbersOf(ctx, []string{d.queue})
		if err == nil {
			_ = c.store.retry(ctx, func() error {
				return c.store.ask(ctx, c.store.pool, apart(queues[d.queue], d.id))
			})
		}
	}
}

// apart sets a record that cannot be read apart, and counts it.
func apart(queue int32, id []byte) query {
	return query{text: "SELECT {schema}.apart($1, $2)", args: []any{queue, id}}
}

// trimDead deletes the oldest dead tasks of queues in which this storage may have made too many.
func (c *claim) trimDead(ctx context.Context, names []string) error {
	queues, err := c.store.numbersOf(ctx, names)
	if err != nil {
		return translate(err)
	}
	for _, q := range queues {
		if _, err := c.store.trim(ctx, q, batch); err != nil {
			return err
		}
	}
	return nil
}

// maintain recovers expired leases and deletes expired records in the queues that are behind. Each queue
// gets an equal share of most, and 20 at least.
func (c *claim) maintain(ctx context.Context, most int) error {
	s := c.store
	most = max(most/len(c.behind), 20)
	for _, q := range c.behind {
		n := 0
		var some []storage.Ended
		err := s.retry(ctx, func() (err error) {
			n, some, err = c.recoverExpired(ctx, q, most)
			return err
		})
		if err != nil {
			return translate(err)
		}
		trimmed, err := s.trim(ctx, q, most)
		if err != nil {
			return err
		}
		c.left = c.left || n >= most || trimmed >= most
		c.ended = append(c.ended, some...)
	}
	return nil
}

// trim deletes the expired records of a queue, and its oldest dead tasks if it has too many. It
// returns the number of tasks deleted.
func (s *Storage) trim(ctx context.Context, queue int32, most int) (n int, err error) {
	err = s.retry(ctx, func() error {
		return s.ask(ctx, s.pool, query{
			text: "SELECT {schema}.trim($1, {schema}.come({schema}.told()), $2, $3)",
			args: []any{queue, int32(most), int64(s.limits.DeadMax)},
			scan: one(&n),
		})
	})
	return n, translate(err)
}

// recoverExpired ends the expired leases of a queue, and its declined tasks that waited too long, up
// to most of each. It passes over tasks that another transaction has locked, such as a settle in a
// transaction of the application's. It returns the number of tasks handled, and those of them that
// ended.
func (c *claim) recoverExpired(
	ctx context.Context, queue int32, most int,
) (n int, ended []storage.Ended, err error) {
	s := c.store
	name, err := s.nameOf(ctx, queue)
	if err != nil || name == "" {
		return 0, nil, err
	}
	tx, err := s.begin(ctx, s.pool)
	if err != nil {
		return 0, nil, err
	}
	defer tx.close(ctx)
	var now, base int64
	var id []byte
	var rec raw
	var all []*row
	var spoiled []query
	long := s.limits.DeclinedFor.Microseconds()
	err = tx.run(ctx,
		query{text: "SELECT {schema}.advance($1, $2)", args: []any{queue, int32(most)}},
		query{text: stamping, args: []any{int64(5*2*most + 10)}, scan: one(&now, &base)},
		c.naming(), // first: tasks of the kinds named here have not waited too long
		query{
			text: "SELECT * FROM {schema}.expired($1, {schema}.come({schema}.told()), $2, $3, $4)",
			args: []any{queue, int32(most), long, c.recoverTo()},
			scan: each(func() error {
				r := rec.clone().row(storage.Ref{Queue: name, ID: unpackID(id)}, queue)
				r.Locked = false
				if r.State == engine.Damaged {
					spoiled = append(spoiled, apart(queue, slices.Clone(id)))
				} else {
					all = append(all, r)
				}
				return nil
			}, &id, &rec.sort, &rec.turn, &rec.version, &rec.state, &rec.flags, &rec.priority, &rec.lease, &rec.past,
				&rec.record, &rec.attempts),
		})
	if err != nil {
		return 0, nil, err
	}
	w := newWork(s.limits, now, base, func(string) int32 { return queue })
	var expired, unknown []*engine.Record
	for _, r := range all {
		w.load(r)
		if r.State == engine.Declined {
			unknown = append(unknown, &r.Record)
		} else {
			expired = append(expired, &r.Record)
		}
	}
	ended = append(w.step.Recover(expired), w.step.Abandon(unknown)...)
	writes, rung := s.ringing(w)
	if err := tx.commit(ctx, slices.Concat(spoiled, w.save(false), writes)...); err != nil {
		return 0, nil, err
	}
	rung(ctx)
	s.noteDead(w)
	return len(all) + len(spoiled), ended, nil
}

// nameOf returns the name of the queue that has a number, "" if there is none.
func (s *Storage) nameOf(ctx context.Context, queue int32) (string, error) {
	if name := s.numbers.name(queue); name != "" {
		return name, nil
	}
	var name string
	err := s.ask(ctx, s.pool, query{
		text: "SELECT name FROM {schema}.queues WHERE queue = $1", args: []any{queue},
		scan: each(func() error {
			s.numbers.hear(name, queue)
			return nil
		}, &name),
	})
	return name, err
}

// noteDead remembers the queues in which a work made dead tasks: they may have too many now.
func (s *Storage) noteDead(w *work) {
	for name, q := range w.queues {
		if q.Sizes[engine.Dead] > 0 {
			s.overfull.note([]string{name})
		}
	}
}

// take returns the queues of a claim that were noted, and forgets them.
func (o *oddities) take(queues []storage.ClaimQueue) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var names []string
	for _, q := range queues {
		if _, some := o.until[q.Name]; some {
			delete(o.until, q.Name)
			names = append(names, q.Name)
		}
	}
	return names
}
