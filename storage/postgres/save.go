package postgres

import (
	"maps"
	"slices"

	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// A work is saved by a handful of statements over arrays, however many tasks there are, in one round
// trip. Rows are written in the order of queue and id, in which they were locked.

// changes groups the rows of a work by the writes that they need.
type changes struct {
	drops, lifts, puts, makes, keeps, sides, forgets []*row
	shifts                                           []*row // their rows in sides move to another queue
}

func (w *work) changes() changes {
	var c changes
	slices.SortStableFunc(w.all, func(a, b *row) int { return compareRefs(a.Ref, b.Ref) })
	for _, r := range w.all {
		if r.Touched == 0 {
			continue
		}
		r.queue = w.ids(r.Ref.Queue)
		present, ended := w.rows[r.Ref] == r, r.State.HasEnded()
		stays := present && r.was.queue == r.queue && r.was.table == inTasks && !ended
		switch {
		case stays:
			c.puts = append(c.puts, r)
		case r.was.table == inTasks:
			c.drops = append(c.drops, r)
		case r.was.table == inEnded:
			c.lifts = append(c.lifts, r)
		}
		switch {
		case !present:
		case ended:
			c.keeps = append(c.keeps, r)
		case !stays:
			c.makes = append(c.makes, r)
		}
		hadSide := r.was.table != nowhere && r.was.flags&engine.HasSide != 0
		switch {
		case hadSide && !present:
			c.forgets = append(c.forgets, r)
		case hadSide && r.was.queue != r.queue:
			c.shifts = append(c.shifts, r)
		}
		if present && r.Touched&engine.SideParts != 0 {
			c.sides = append(c.sides, r)
		}
	}
	return c
}

// save returns the statements that write a work. They wait 50 ms for an id or a unique key that another
// transaction is taking, and 2 s with patient, which is right only if no other call waits for them.
func (w *work) save(patient bool) []query {
	c := w.changes()
	var queries []query
	add := func(text string, args ...any) { queries = append(queries, query{text: text, args: args}) }
	if q, some := w.joining(patient); some { // before keys, the order of locks in all steps
		queries = append(queries, q)
	}
	if len(w.frees) > 0 {
		queries = append(queries, w.freeing())
	}
	if len(c.drops) > 0 {
		queues, ids := origins(c.drops)
		add("SELECT {schema}.drop($1, $2, false)", queues, ids)
	}
	if len(c.lifts) > 0 {
		queues, ids := origins(c.lifts)
		add("SELECT {schema}.drop($1, $2, true)", queues, ids)
	}
	if len(c.puts) > 0 {
		v := vectorsOf(c.puts, func(r *row) bool { return r.Touched&engine.PartSpec != 0 })
		add("SELECT {schema}.put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)", v.queues, v.ids, v.sorts,
			v.turns, v.versions, v.states, v.flags, v.priorities, v.leases, v.pasts, v.records, v.subs, v.partitions)
	}
	if !patient && copies(c.makes) {
		queries = append(queries, copying(c.makes)...)
	} else if len(c.makes) > 0 {
		v := vectorsOf(c.makes, func(*row) bool { return true })
		add("SELECT {schema}.make($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)", v.queues, v.ids,
			v.sorts, v.turns, v.versions, v.states, v.flags, v.priorities, v.pasts, v.records, v.subs, v.partitions,
			patient)
	}
	if arrived := arrivals(c.keeps); len(arrived.queues) > 0 {
		add("SELECT {schema}.arrive($1, $2, $3)", arrived.queues, arrived.ids, patient)
	}
	if len(c.keeps) > 0 {
		v := vectorsOf(c.keeps, func(*row) bool { return true })
		add("SELECT {schema}.keep($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", v.queues, v.ids, v.sorts,
			v.versions, v.states, v.flags, v.priorities, v.pasts, v.records, v.ats)
	}
	if len(c.forgets) > 0 {
		queues, ids := origins(c.forgets)
		add("SELECT {schema}.forget($1, $2)", queues, ids)
	}
	if len(c.shifts) > 0 {
		queues, ids := origins(c.shifts)
		targets := make([]int32, len(c.shifts))
		for i, r := range c.shifts {
			targets[i] = r.queue
		}
		add("SELECT {schema}.shift($1, $2, $3)", queues, ids, targets)
	}
	if len(c.sides) > 0 {
		queries = append(queries, siding(c.sides))
	}
	if q, some := w.taking(patient); some {
		queries = append(queries, q)
	}
	if q, some := w.counting(); some {
		queries = append(queries, q)
	}
	return append(queries, w.leaving(patient)...)
}

// copies reports whether new rows are copied into the table: they are many, and each is in a line without
// a name.
func copies(makes []*row) bool {
	return len(makes) >= largeOps &&
		!slices.ContainsFunc(makes, func(r *row) bool { return r.sub() != "" || r.Partition != "" })
}

// copying returns the statements that copy new rows into the table, as bulk does.
func copying(makes []*row) []query {
	queues, ids := make([]int32, len(makes)), make(blobs, len(makes))
	for i, r := range makes {
		queues[i], ids[i] = r.queue, packID(r.ID)
	}
	low, high := bounds(ids, len(slices.Compact(slices.Clone(queues))))
	pack := func(to []byte, i int) []byte {
		r := makes[i]
		c := columns{
			sort: r.Sort, turn: r.turn(), version: r.Version, queue: r.queue, state: r.State, flags: r.marks(),
			priority: r.Priority, id: ids[i], past: packPast(r),
		}
		return c.append(to, &r.Spec, r.rest)
	}
	return []query{
		{text: "SELECT set_config('lock_timeout', '50ms', true), " + copyMark},
		{text: copyRows, copy: newPacker(len(makes), pack)},
		{text: "SELECT {schema}.made($1, $2, $3, $4)", args: []any{queues, ids, low, high}},
		{text: "SET LOCAL lock_timeout TO DEFAULT"},
	}
}

// leaving puts partitions to rest, and checks those that tasks have left.
func (w *work) leaving(patient bool) (queries []query) {
	looks := []func() (query, bool){w.resting}
	if !patient { // nobody waits for a transaction of the application's
		looks = append(looks, w.beginningAgain, w.vacating)
	}
	for _, look := range looks {
		if q, some := look(); some {
			queries = append(queries, q)
		}
	}
	return queries
}

// arrivals returns the new queues and ids of tasks that have ended and were moved to another queue.
func arrivals(keeps []*row) (v vectors) {
	for _, r := range keeps {
		if r.was.queue != r.queue {
			v.queues, v.ids = append(v.queues, r.queue), append(v.ids, packID(r.ID))
		}
	}
	return v
}

// origins returns the queues and ids under which rows were loaded.
func origins(all []*row) (queues []int32, ids [][]byte) {
	queues, ids = make([]int32, len(all)), make([][]byte, len(all))
	for i, r := range all {
		queues[i], ids[i] = r.was.queue, packID(r.ID)
	}
	return queues, ids
}

// vectors are rows as one array per column.
type vectors struct {
	queues                      []int32
	ids, leases, pasts, records [][]byte
	sorts, turns, versions, ats []int64
	states, flags, priorities   []int16
	subs                        []string // the names of their lines, else ""
	partitions                  []string
}

func vectorsOf(all []*row, recorded func(*row) bool) vectors {
	var v vectors
	for _, r := range all {
		v.queues = append(v.queues, r.queue)
		v.ids = append(v.ids, packID(r.ID))
		v.sorts = append(v.sorts, r.Sort)
		v.turns = append(v.turns, r.turn())
		v.versions = append(v.versions, r.Version)
		v.states = append(v.states, int16(r.State))
		v.flags = append(v.flags, int16(r.marks()))
		v.priorities = append(v.priorities, r.Priority)
		v.leases = append(v.leases, record.Lease(&r.Record))
		v.pasts = append(v.pasts, packPast(r))
		spec := []byte{}
		if recorded(r) {
			spec = record.AppendSpec(nil, &r.Spec, r.rest)
		}
		v.records = append(v.records, spec)
		v.ats = append(v.ats, r.At)
		v.subs = append(v.subs, r.sub())
		v.partitions = append(v.partitions, r.Partition)
	}
	return v
}

// turn returns the column turn of a row.
func (r *row) turn() int64 {
	if r.State.IsPending() {
		return r.At
	}
	return r.Turn
}

// marks returns the flags with which a row is written. Only here it is known whether the task's end
// needs more than a delete.
func (r *row) marks() engine.Flags {
	flags := r.Flags &^ engine.Special
	if flags&engine.HasSide != 0 || r.State == engine.Cursor || r.Unique.Mode != "" || marks(&r.Spec) != 0 {
		flags |= engine.Special
	}
	return flags
}

// siding writes the rows of tasks in sides.
func siding(all []*row) query {
	n := len(all)
	queues, ids, masks := make([]int32, n), make([][]byte, n), make([]int16, n)
	columns := [5][][]byte{}
	for i := range columns {
		columns[i] = make([][]byte, n)
	}
	for i, r := range all {
		queues[i], ids[i], masks[i] = r.queue, packID(r.ID), int16(r.Touched&engine.SideParts)
		side := r.Side
		columns[2][i], columns[3][i], columns[4][i] = side.Result, side.Progress, side.Checkpoint
		if r.Touched&engine.PartAttempts != 0 {
			columns[0][i] = record.PackAttempts(side.Attempts)
		}
		if r.Touched&engine.PartStack != 0 {
			columns[1][i] = []byte(side.Stack)
		}
	}
	return query{
		text: "SELECT {schema}.side($1, $2, $3, $4, $5, $6, $7, $8)",
		args: []any{queues, ids, masks, columns[0], columns[1], columns[2], columns[3], columns[4]},
	}
}

// freeing releases unique keys.
func (w *work) freeing() query {
	n := len(w.frees)
	queues, names, ids := make([]int32, n), make([]string, n), make([][]byte, n)
	for i, k := range sortedKeys(w.frees) {
		queues[i], names[i], ids[i] = w.ids(k.queue), k.key, packID(w.frees[k])
	}
	return query{text: "SELECT {schema}.free($1, $2, $3)", args: []any{queues, names, ids}}
}

// taking takes unique keys.
func (w *work) taking(patient bool) (query, bool) {
	var queues []int32
	var names []string
	var ids [][]byte
	var untils []int64
	for _, k := range sortedKeys(w.keys) {
		if h := w.keys[k]; h == nil || !h.fresh {
			continue
		}
		queues, names = append(queues, w.ids(k.queue)), append(names, k.key)
		ids, untils = append(ids, packID(w.keys[k].ID)), append(untils, w.keys[k].Until)
	}
	return query{
		text: "SELECT {schema}.take($1, $2, $3, $4, $5, $6)",
		args: []any{queues, names, ids, untils, w.step.Now, patient},
	}, len(queues) > 0
}

// subs are the lines with a name that a work changes, in the order in which all steps lock them.
type subs struct {
	queues  []int32
	states  []int16
	names   []string
	changes []int32 // of the number of tasks in each
	joined  []bool  // whether tasks join it
	turns   []int64 // of a partition that begins
}

func (w *work) subs() (l subs) {
	counts, joined, turns := make(map[standing]int32), make(map[standing]bool), make(map[standing]int64)
	for _, r := range w.all {
		var at standing
		if w.rows[r.Ref] == r {
			at = standing{w.ids(r.Ref.Queue), r.State, r.sub()}
		}
		if r.Touched == 0 || at == r.was.standing || at.sub == "" && r.was.sub == "" {
			continue
		}
		counts[r.was.standing]--
		counts[at]++
		joined[at] = true
		if at.state == engine.Keyed {
			turns[at] = w.beginningOf(&r.Record).turn
		}
	}
	maps.DeleteFunc(counts, func(at standing, _ int32) bool { return at.sub == "" })
	for _, at := range slices.SortedFunc(maps.Keys(counts), standing.compare) {
		l.queues, l.states = append(l.queues, at.queue), append(l.states, int16(at.state))
		l.names, l.joined = append(l.names, at.sub), append(l.joined, joined[at])
		l.changes, l.turns = append(l.changes, counts[at]), append(l.turns, turns[at])
	}
	return l
}

// vacating checks the partitions that tasks leave and none joins, in their lines or as running tasks. It
// removes those of which nothing is left.
func (w *work) vacating() (query, bool) {
	left := make(map[standing]bool)
	l := w.subs()
	for i, joined := range l.joined {
		if engine.State(l.states[i]) == engine.Keyed {
			left[standing{l.queues[i], engine.Keyed, l.names[i]}] = !joined
		}
	}
	leave := func(queue int32, partition string) {
		at := standing{queue, engine.Keyed, partition}
		if _, known := left[at]; !known {
			left[at] = true
		}
	}
	for _, r := range w.all {
		if r.was.flags&engine.Counted != 0 && (w.rows[r.Ref] != r || r.Flags&engine.Counted == 0) {
			leave(r.was.queue, r.Partition)
		}
	}
	for at, s := range w.shares {
		if s.Changed && s.Ring == nowhereInRing { // a declined task was taken
			leave(w.ids(at.queue), at.sub)
		}
	}
	maps.DeleteFunc(left, func(_ standing, leaves bool) bool { return !leaves })
	queues, names := make([]int32, 0, len(left)), make([]string, 0, len(left))
	for _, at := range slices.SortedFunc(maps.Keys(left), standing.compare) {
		queues, names = append(queues, at.queue), append(names, at.sub)
	}
	return query{text: "SELECT {schema}.vacate($1, $2)", args: []any{queues, names}}, len(queues) > 0
}

// joining counts the tasks that join and leave the lines with a name.
func (w *work) joining(patient bool) (query, bool) {
	l := w.subs()
	return query{
		text: "SELECT {schema}.joining($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		args: []any{l.queues, l.states, l.names, l.changes, l.joined, l.turns, w.step.Now, w.look(), patient},
	}, len(l.queues) > 0
}

// opening makes the lines with a name that tasks join, if there are none yet.
func (w *work) opening() (query, bool) {
	l := w.subs()
	return query{
		text: "SELECT {schema}.open($1, $2, $3, $4, $5, $6, $7)",
		args: []any{l.queues, l.states, l.names, l.joined, l.turns, w.step.Now, w.look()},
	}, slices.Contains(l.joined, true)
}

// look returns the next moment to search for tasks that waited too long in a line of a kind.
func (w *work) look() int64 { return w.step.Now + w.step.Limits.DeclinedFor.Microseconds() }

// counting appends the changes of sizes and totals.
func (w *work) counting() (query, bool) {
	var queues, changes []int32
	var counters []int16
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		for counter, n := range w.queues[name].Counts() {
			if n != 0 {
				queues, counters = append(queues, w.ids(name)), append(counters, int16(counter))
				changes = append(changes, int32(n))
			}
		}
	}
	return query{
		text: "INSERT INTO {schema}.deltas (queue, counter, n) " +
			"SELECT q, c, n FROM unnest($1::int4[], $2::int2[], $3::int4[]) AS d (q, c, n)",
		args: []any{queues, counters, changes},
	}, len(queues) > 0
}
