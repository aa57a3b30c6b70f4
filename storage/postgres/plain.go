package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/midgehq/midge/storage"
)

// Plain inserts and completions, which is what a busy queue sees all day, take one round
// trip: a step of the database does them if all go as expected, and nothing where one
// does not. Then the general way (step.go) finds out what stands in the way.

// plainArgs are the arguments of the steps enqueue and finish (schema/002_steps.sql).
type plainArgs struct {
	span                          int64
	lanes                         [][]byte
	opens, seqs                   []int64
	offs                          []int64
	queues                        []int32
	ids                           [][]byte
	ats, dues                     []int64
	priorities                    []int16
	marks                         []int16
	records                       [][]byte
	ends                          []int32
	endIDs                        [][]byte
	dqueues, dwaiting, dscheduled []int32
	timed                         bool
	low, high                     []byte // the ids are between these, where they are close
	versions                      []int64
	tokens                        [][]byte
}

// flushPlain carries out parts of one of the plain classes. It gives those that have to
// go the general way: all of them or none.
func (s *Storage) flushPlain(ctx context.Context, class int, parts []*part) []*part {
	var base int64
	var offs []int64
	var rung, told []int32
	var queues map[string]int32
	var begun time.Time
	err := s.retry(ctx, func() (err error) {
		begun = time.Now()
		queues, err = s.numbersOf(ctx, queuesOfParts(parts))
		if err != nil {
			return err
		}
		var args *plainArgs
		args, offs = plain(parts, queues)
		told = s.notes.loud(args.dqueues)
		return heldUp(s.ask(ctx, s.poolOf(class), s.plainQuery(args, class, told, &base, &rung)), parts)
	})
	switch {
	case errors.Is(err, errBusy):
		flushApart(parts, func(p *part) { s.flush(ctx, class, []*part{p}) })
		return nil
	case err != nil && !unexpected(err):
		err = translate(err)
		for _, p := range parts {
			p.done, p.err = true, err
		}
		return nil
	case err != nil || base == 0:
		if class == classSettle {
			s.odd.note(queuesOfParts(parts))
		}
		return parts
	}
	s.lateSince(ctx, begun, queues)
	s.notes.rung(ctx, rung, told, false)
	for i, p := range parts {
		p.done = true
		p.applied = expected(p.txs, base+offs[i])
	}
	return nil
}

// plainQuery is the step of a class: enqueue, or finish where tasks are completed too.
func (s *Storage) plainQuery(a *plainArgs, class int, told []int32, base *int64, rung *[]int32) query {
	args := []any{
		a.span, blobs(a.lanes), a.opens, a.seqs, a.offs, a.queues, blobs(a.ids), a.ats, a.dues, a.priorities,
		a.marks, blobs(a.records), a.dqueues, a.dwaiting, a.dscheduled, a.timed, a.low, a.high, s.notes.channel,
		s.notes.sender, told,
	}
	text := "SELECT base, coalesce(rung, '{}') FROM {schema}.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, " +
		"$10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"
	if class == classSettle {
		args = append(args, a.ends, blobs(a.endIDs), a.versions, blobs(a.tokens))
		text = "SELECT base, coalesce(rung, '{}') FROM {schema}.finish($1, $2, $3, $4, $5, $6, $7, $8, $9, " +
			"$10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)"
	}
	return query{text: text, args: args, scan: one(base, rung)}
}

// blobs is an array that the driver writes without reflection.
type blobs = pgtype.FlatArray[[]byte]

// plain gives the arguments for parts, and where in the time of the step each part
// begins: its inserts and then its completions take a microsecond each.
func plain(parts []*part, queues map[string]int32) (*plainArgs, []int64) {
	inserts, settles := 0, 0
	for _, p := range parts {
		for j := range p.txs {
			inserts, settles = inserts+len(p.txs[j].Inserts), settles+len(p.txs[j].Settles)
		}
	}
	a := newPlainArgs(inserts, settles)
	offs := make([]int64, len(parts))
	var calls []storage.Call
	begins := make(map[[16]byte]int64)
	for i, p := range parts {
		offs[i] = a.span
		if !p.call.IsZero() {
			calls = append(calls, p.call)
			begins[p.call.Lane.ID] = a.span
		}
		for j := range p.txs {
			a.add(&p.txs[j], queues)
		}
	}
	a.byEnd()
	a.bound()
	a.span++
	a.lanes, a.opens, a.seqs = present(calls)
	a.offs = make([]int64, len(a.lanes))
	for i := range calls {
		a.offs[i] = begins[calls[i].Lane.ID]
	}
	return a, offs
}

// newPlainArgs makes room for so many inserts and completions.
func newPlainArgs(inserts, settles int) *plainArgs {
	return &plainArgs{
		queues: make([]int32, 0, inserts), ids: make([][]byte, 0, inserts), ats: make([]int64, 0, inserts),
		dues: make([]int64, 0, inserts), priorities: make([]int16, 0, inserts), marks: make([]int16, 0, inserts),
		records: make([][]byte, 0, inserts),
		dqueues: []int32{}, dwaiting: []int32{}, dscheduled: []int32{},
		ends: make([]int32, 0, settles), endIDs: make([][]byte, 0, settles),
		versions: make([]int64, 0, settles), tokens: make([][]byte, 0, settles),
	}
}

func (a *plainArgs) add(tx *storage.Tx, queues map[string]int32) {
	for k := range tx.Inserts {
		in := &tx.Inserts[k]
		a.queues = append(a.queues, queues[in.Ref.Queue])
		a.ids = append(a.ids, packID(in.Ref.ID))
		a.ats = append(a.ats, a.span)
		a.span++
		due := -in.Delay.Microseconds()
		if !in.At.IsZero() {
			due = max(in.At.UnixMicro(), 0)
			a.timed = a.timed || due > 0
		}
		a.dues = append(a.dues, due)
		// Whether a moment is in the future the server decides: this is what is expected.
		a.count(queues[in.Ref.Queue], due < 0 || due > time.Now().UnixMicro())
		a.priorities = append(a.priorities, int16(in.Priority))
		sp := specOf(in)
		a.marks = append(a.marks, sp.marks())
		a.records = append(a.records, sp.pack())
	}
	for k := range tx.Settles {
		f := &tx.Settles[k].Fence
		a.ends = append(a.ends, queues[f.Queue])
		a.endIDs = append(a.endIDs, packID(f.ID))
		a.versions = append(a.versions, f.Version)
		a.tokens = append(a.tokens, f.Token[:])
		a.span++
	}
}

// marks gives the flags of a plain insert.
func (sp *spec) marks() int16 {
	if sp.Keep.For > 0 || sp.Keep.UntilRead {
		return special
	}
	return 0
}

// count notes an insert that is expected to be scheduled, or to wait.
func (a *plainArgs) count(queue int32, later bool) {
	i := slices.Index(a.dqueues, queue)
	if i < 0 {
		i = len(a.dqueues)
		a.dqueues = append(a.dqueues, queue)
		a.dwaiting, a.dscheduled = append(a.dwaiting, 0), append(a.dscheduled, 0)
	}
	if later {
		a.dscheduled[i]++
	} else {
		a.dwaiting[i]++
	}
}

// nearby is how much of the beginning of ids that are made about the same time is equal: the
// time but for its last minute.
const nearby = 4

// bound finds the ends of where the ids of inserts are, if they are of one queue and were made
// about the same time: one look there tells that none of them is that of a task which has
// ended. Elsewhere it would pass over what may be millions of dead entries.
func (a *plainArgs) bound() {
	a.low, a.high = []byte{}, []byte{}
	if len(a.ids) == 0 || len(a.dqueues) != 1 {
		return
	}
	low, high := a.ids[0], a.ids[0]
	for _, id := range a.ids {
		if len(id) != madeBytes || id[0] >= firstText || !bytes.Equal(id[:nearby], low[:nearby]) {
			return
		}
		if bytes.Compare(id, low) < 0 {
			low = id
		} else if bytes.Compare(id, high) > 0 {
			high = id
		}
	}
	a.low, a.high = low, high
}

// byEnd puts the completions in the order of queue and id, in which tasks are locked
// everywhere.
func (a *plainArgs) byEnd() {
	order := make([]int, len(a.ends))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if a.ends[i] != a.ends[j] {
			return int(a.ends[i]) - int(a.ends[j])
		}
		return bytes.Compare(a.endIDs[i], a.endIDs[j])
	})
	ends, ids := slices.Clone(a.ends), slices.Clone(a.endIDs)
	versions, tokens := slices.Clone(a.versions), slices.Clone(a.tokens)
	for to, from := range order {
		a.ends[to], a.endIDs[to], a.versions[to], a.tokens[to] = ends[from], ids[from], versions[from], tokens[from]
	}
}

// expected gives the outcome of plain Txs that went as expected, from a moment on. It
// depends on nothing else, therefore a lane remembers the moment alone.
func expected(txs []storage.Tx, at int64) []storage.Applied {
	applied := make([]storage.Applied, len(txs))
	n := 0
	for i := range txs {
		n += txs[i].Ops()
	}
	places := make([]storage.Placed, 0, n) // of all, cut into pieces
	for i := range txs {
		tx := &txs[i]
		begin := len(places)
		for j := range tx.Inserts {
			in := &tx.Inserts[j]
			placed := storage.Placed{Ref: in.Ref, Version: at, State: storage.Waiting}
			if in.Delay.Microseconds() > 0 || !in.At.IsZero() && in.At.UnixMicro() > at {
				placed.State = storage.Scheduled
			}
			places = append(places, placed)
			at++
		}
		applied[i].Inserted = cut(places, begin)
		begin = len(places)
		for j := range tx.Settles {
			f := &tx.Settles[j].Fence
			places = append(places, storage.Placed{
				Ref: f.Ref, Version: max(at, f.Version+1), State: storage.Completed,
			})
			at++
		}
		applied[i].Settled = cut(places, begin)
	}
	return applied
}

// cut gives what was appended since begin, nil for nothing.
func cut(places []storage.Placed, begin int) []storage.Placed {
	if begin == len(places) {
		return nil
	}
	return places[begin:len(places):len(places)]
}

// oddities remembers for a while in which queues completions need the general way, as
// those of tasks that are kept do: there it is not tried to do without.
type oddities struct {
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

const oddFor = time.Second

func (o *oddities) is(queues []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range queues {
		if until, some := o.until[q]; some {
			if time.Now().Before(until) {
				return true
			}
			delete(o.until, q)
		}
	}
	return false
}

func (o *oddities) note(queues []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range queues {
		o.until[q] = time.Now().Add(oddFor)
	}
}
