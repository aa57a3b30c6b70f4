package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// part is one call of Apply or Extend: its Txs are carried out in one transaction.
type part struct {
	combine.Call

	txs   []storage.Tx
	begin int64 // its offset in the time of a plain step, in microseconds

	extend *extension // nil for an Apply
	pass   bool       // its cancels wait for locks for a moment, and pass over tasks that stay locked

	applied []storage.Applied
	outcome []byte // of a verb other than Apply, as the lane remembers it
	err     error
	done    bool // it has its answer
}

func newPart(call storage.Call, txs []storage.Tx) *part {
	p := &part{Call: combine.Call{Identity: call}, txs: txs}
	for i := range txs {
		p.Ops += txs[i].Ops()
		p.Bytes += txs[i].Bytes()
	}
	return p
}

// takes lists the ids that a part inserts as storage.Ref, and its unique keys as key.
func (p *part) takes() []any {
	var all []any
	for i := range p.txs {
		for j := range p.txs[i].Inserts {
			in := &p.txs[i].Inserts[j]
			all = append(all, in.Ref)
			if in.Unique.Mode != "" {
				all = append(all, key{in.Ref.Queue, in.Unique.Key})
			}
		}
	}
	return all
}

var (
	// errBusy means that another transaction has locked a task that one of several parts names: they
	// are carried out one by one.
	errBusy = errors.New("one of several tasks is locked by another transaction")
	// errHeld means the same for a part by itself, which is tried again for a while.
	errHeld = errors.New("a task is locked by another transaction")
	// errLeft is errHeld of a part with cancels, which has left its flush.
	errLeft = errors.New("a task to cancel is locked by another transaction")
	// errAwaited means that a part by itself has waited for another transaction's id or unique key for
	// as long as a flush may wait: other parts must not wait for it again.
	errAwaited = errors.New("an id or unique key is being taken by another transaction")
)

// heldUp replaces the error of a step that another transaction held up, and returns any other error
// as it is.
func heldUp(err error, parts []*part) error {
	switch waited := code(err) == "55P03"; {
	case !waited && !errors.Is(err, errBusy):
		return err
	case len(parts) > 1:
		return errBusy
	case waited:
		return errAwaited
	}
	return errHeld
}

// step is the general way to carry out parts: it loads and locks the records that they name, carries
// the parts out in memory, one after the other (work.go), and writes the changes. That takes two
// round trips: the first begins the transaction, and the second commits it. Some steps take a third,
// to load records that they turn out to need, or two more, to copy many new tasks.
type step struct {
	store *Storage
	link  link
	wait  bool // wait for locks: in a transaction of the application's
	verb  engine.Verb
	pass  bool // wait for locks for a moment, and refuse cancels of tasks that are locked for longer

	queues  map[string]int32
	now     int64 // by the server's clock
	base    int64 // the first version
	loaded  map[storage.Ref]*raw
	keys    map[key]*hold
	parts   []*part // those that were admitted
	blocked map[*part]bool
}

// raw is a task as it was loaded.
type raw struct {
	found, held, ended            bool
	sort, turn, version, at       int64
	state, flags, priority        int16
	lease, past, record, attempts []byte
}

// clone copies a task, whose memory the next row reuses.
func (rec *raw) clone() *raw {
	c := *rec
	c.lease, c.past = slices.Clone(rec.lease), slices.Clone(rec.past)
	c.record, c.attempts = slices.Clone(rec.record), slices.Clone(rec.attempts)
	return &c
}

func (s *Storage) newStep(l link, queues map[string]int32) *step {
	return &step{
		store: s, link: l, queues: queues, loaded: make(map[storage.Ref]*raw),
		keys: make(map[key]*hold), blocked: make(map[*part]bool), verb: verbOutcome,
	}
}

// queuesOfParts lists the queues that parts name.
func queuesOfParts(parts []*part) []string {
	set := make(map[string]struct{})
	last := ""
	for _, p := range parts {
		for i := range p.txs {
			if tx := &p.txs[i]; tx.Ops() == 1 && last != "" && // most Txs name the queue of the Tx before
				(len(tx.Settles) == 1 && tx.Settles[0].Fence.Queue == last ||
					len(tx.Inserts) == 1 && tx.Inserts[0].Ref.Queue == last) {
				continue
			}
			for _, q := range p.txs[i].Queues() {
				set[q] = struct{}{}
				last = q
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// versions is how many versions and places parts can need: a few for each operation.
func versions(parts []*part) int64 {
	n := int64(1)
	for _, p := range parts {
		n += 4 * int64(p.Ops)
	}
	return n
}

// enter reads the time, presents the calls to their lanes and loads the records that the parts name. The
// calls are in the order of their lanes, so that two steps never wait for each other. Parts that must not
// be carried out again get their answer.
func (st *step) enter(ctx context.Context, parts []*part) error {
	calls, lanes, opens, seqs := present(parts)
	var letters string
	queries := []query{{
		text: "SELECT now, base, letters FROM {schema}.enter($1, $2, $3, $4::text::\"char\", $5)",
		args: []any{lanes, opens, seqs, string(st.verb), versions(parts)},
		scan: one(&st.now, &st.base, &letters),
	}}
	refs, keys := named(parts)
	if len(refs) > 0 {
		queries = append(queries, st.loading(refs))
	}
	if len(keys) > 0 {
		queries = append(queries, st.finding(keys))
	}
	if err := st.link.run(ctx, queries...); err != nil {
		return err
	}
	return st.admit(ctx, parts, calls, letters)
}

// stamping reads the time and reserves versions.
const stamping = "SELECT t.now, {schema}.stamp(t.now, $1) FROM {schema}.told() AS t (now)"

// present returns the calls of parts as arrays, in the order of their lanes. calls are the parts in
// that order, without those whose call has no identity.
func present(parts []*part) (calls []*part, lanes [][]byte, opens, seqs []int64) {
	calls = slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return p.Identity.IsZero() })
	slices.SortFunc(calls, func(a, b *part) int {
		return bytes.Compare(a.Identity.Lane.ID[:], b.Identity.Lane.ID[:])
	})
	lanes, opens, seqs = make([][]byte, len(calls)), make([]int64, len(calls)), make([]int64, len(calls))
	for i, p := range calls {
		lanes[i] = p.Identity.Lane.ID[:]
		opens[i], seqs[i] = p.Identity.Lane.Opened.UnixMicro(), int64(p.Identity.Seq)
	}
	return calls, lanes, opens, seqs
}

// named lists the tasks and unique keys that parts name. The value of a ref is true if a part relies on
// the task or writes it, so that it has to be locked. It is false if only an insert may find the
// task, which is then only read: whoever runs or settles it must not wait for the insert's transaction.
func named(parts []*part) (refs map[storage.Ref]bool, keys []key) {
	refs = make(map[storage.Ref]bool, opsOf(parts))
	wanted := make(map[key]bool)
	for _, p := range parts {
		for i := range p.txs {
			nameIn(&p.txs[i], refs, wanted)
		}
	}
	return refs, sortedKeys(wanted)
}

// nameIn adds the tasks and keys that a Tx names.
func nameIn(tx *storage.Tx, seen map[storage.Ref]bool, wanted map[key]bool) {
	for j := range tx.Inserts {
		in := &tx.Inserts[j]
		tell(seen, in.Ref)
		if in.Unique.Mode != "" {
			wanted[key{in.Ref.Queue, in.Unique.Key}] = true
		}
	}
	for j := range tx.Changes {
		ch := &tx.Changes[j]
		seen[ch.Ref] = true
		tell(seen, storage.Ref{Queue: engine.TargetQueue(ch), ID: ch.Ref.ID})
	}
	for j := range tx.Deletes {
		seen[tx.Deletes[j].Ref] = true
	}
	for j := range tx.Depends {
		seen[tx.Depends[j].Ref] = true
	}
	for j := range tx.Settles {
		seen[tx.Settles[j].Fence.Ref] = true
	}
}

func compareRefs(a, b storage.Ref) int {
	return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.ID, b.ID))
}

// tell adds a task that need not be locked, unless another operation locks it.
func tell(seen map[storage.Ref]bool, ref storage.Ref) {
	if !seen[ref] {
		seen[ref] = false
	}
}

func sortedKeys[V any](set map[key]V) []key {
	return slices.SortedFunc(maps.Keys(set), func(a, b key) int {
		return cmp.Or(strings.Compare(a.queue, b.queue), strings.Compare(a.key, b.key))
	})
}

// place is where a task is searched for, and whether it is locked.
type place struct {
	ref   storage.Ref
	lock  bool
	queue int32
	id    []byte
}

// loading reads the named tasks, and locks those whose value is true.
func (st *step) loading(named map[storage.Ref]bool) query {
	places, missing := make([]place, 0, len(named)), new(raw)
	if len(st.loaded) == 0 {
		st.loaded = make(map[storage.Ref]*raw, len(named))
	}
	for ref, lock := range named {
		places = append(places, place{ref, lock, st.queues[ref.Queue], packID(ref.ID)})
		st.loaded[ref] = missing
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.lock != b.lock { // those to be locked come first, in the order in which all steps lock
			if a.lock {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.queue, b.queue), bytes.Compare(a.id, b.id))
	})
	locks := int32(0)
	queues, ids := make([]int32, len(places)), make(blobs, len(places))
	for i, p := range places {
		queues[i], ids[i] = p.queue, p.id
		if p.lock {
			locks++
		}
	}
	read := ids[locks:]
	low, high := bounds(read, len(slices.Compact(slices.Clone(queues[locks:]))))
	var n int32
	var r raw
	return query{
		text: "SELECT * FROM {schema}.load($1, $2, $3, $4, $5, $6, $7)",
		args: []any{queues, ids, locks, st.wait, st.pass, low, high},
		scan: each(func() error {
			got := r.clone()
			got.found = true
			st.loaded[places[n-1].ref] = got
			return nil
		}, &n, &r.held, &r.ended, &r.sort, &r.turn, &r.version, &r.state, &r.flags, &r.priority, &r.lease, &r.past,
			&r.record, &r.at, &r.attempts),
	}
}

// finding reads the holders of unique keys.
func (st *step) finding(keys []key) query {
	queues, names := make([]int32, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		queues[i], names[i] = st.queues[k.queue], k.key
		st.keys[k] = nil
	}
	var n int32
	var id []byte
	var until int64
	return query{
		text: "SELECT * FROM {schema}.found($1, $2)", args: []any{queues, names},
		scan: each(func() error {
			st.keys[keys[n-1]] = &hold{Hold: engine.Hold{ID: unpackID(id), Until: until}}
			return nil
		}, &n, &id, &until),
	}
}

// carryOut tries the parts on the loaded records, and loads more that they need, until none is
// missing. It returns the work to be saved.
func (st *step) carryOut(ctx context.Context) (*work, error) {
	for {
		w, err := st.try()
		if err != nil {
			return nil, err
		}
		if w.complete() {
			return w, nil
		}
		var queries []query
		if len(w.needRows) > 0 {
			queries = append(queries, st.loading(w.needRows))
		}
		if len(w.needKeys) > 0 {
			queries = append(queries, st.finding(sortedKeys(w.needKeys)))
		}
		if err := st.link.run(ctx, queries...); err != nil {
			return nil, err
		}
	}
}

// try carries out the parts in memory. It returns errBusy if another transaction has locked a task
// that they need.
func (st *step) try() (*work, error) {
	w := st.loadedWork()
	for _, p := range st.parts {
		p.applied = engine.Answers(p.txs)
		for i := range p.txs {
			w.step.Apply(&p.txs[i], &p.applied[i])
		}
		if w.step.Busy {
			st.blocked[p] = true
			w.step.Busy = false
		}
	}
	if len(st.blocked) > 0 && w.complete() {
		return nil, errBusy
	}
	return w, nil
}

// loadedWork makes a work of the loaded records.
func (st *step) loadedWork() *work {
	w := newWork(st.store.limits, st.now, st.base, func(name string) int32 { return st.queues[name] })
	w.rows, w.all = make(map[storage.Ref]*row, len(st.loaded)), make([]*row, 0, len(st.loaded))
	for ref, rec := range st.loaded {
		w.rows[ref] = nil
		if rec.found {
			w.load(rec.row(ref, st.queues[ref.Queue]))
		}
	}
	maps.Copy(w.keys, st.keys)
	w.step.PassOver = st.pass
	return w
}

// row makes the row of a loaded task; a task that cannot be read gets the state Damaged.
func (rec *raw) row(ref storage.Ref, queue int32) *row {
	r := &row{
		Record: engine.Record{
			Ref: ref, Place: engine.Place{Sort: rec.sort, Turn: rec.turn}, Version: rec.version,
			State: engine.State(rec.state), Flags: engine.Flags(rec.flags), Priority: rec.priority,
			At: rec.at, Locked: !rec.held,
		},
		was: origin{table: inTasks, flags: engine.Flags(rec.flags)},
	}
	if rec.ended {
		r.was.table = inEnded
	}
	if r.State.IsPending() {
		r.At = rec.turn
	}
	err := r.decode(rec.past, rec.record)
	r.was.standing = standing{queue, r.State, r.sub()}
	if err == nil && len(rec.attempts) > 0 {
		r.Side = new(engine.Side)
		r.Side.Attempts, err = record.Attempts(rec.attempts)
	}
	if err != nil || r.State.HasEnded() != rec.ended || !record.SetLease(&r.Record, rec.lease) ||
		r.Flags&record.Newer != 0 {
		r.State = engine.Damaged
	}
	return r
}
