package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// Plain inserts and completions are most of the work of a busy queue. They take one round trip:
// a function of the database carries them out if all of them go as expected, and does nothing if one
// does not. Then the general way (step.go) finds out why.

// plainArgs are the arguments of the functions enqueue and finish (schema/functions).
type plainArgs struct {
	presented
	tally

	queues     []int32
	ids        [][]byte
	ats, dues  []int64
	priorities []int16
	marks      []int16
	records    [][]byte
	timed      bool
	low, high  []byte
	settles    []end
}

// end is a completion.
type end struct {
	queue int32
	id    []byte
	fence *storage.Fence
}

// presented are the calls of parts, each with its offset in the time of the step: every insert and
// completion takes a microsecond.
type presented struct {
	span        int64 // microseconds of all parts, and one more
	lanes       [][]byte
	opens, seqs []int64
	begins      []int64 // the offset of each lane's call
}

// presenting sets the offset of each part in the time of a step.
func presenting(parts []*part) presented {
	pr := presented{span: 1}
	for _, p := range parts {
		p.begin = pr.span - 1
		pr.span += int64(p.Ops)
	}
	var calls []*part
	calls, pr.lanes, pr.opens, pr.seqs = present(parts)
	pr.begins = make([]int64, len(calls))
	for i, p := range calls {
		pr.begins[i] = p.begin
	}
	return pr
}

// tally counts for each queue the inserts that are expected to wait and to be scheduled.
type tally struct{ dqueues, dwaiting, dscheduled []int32 }

func newTally() tally { return tally{[]int32{}, []int32{}, []int32{}} }

// count counts an insert and returns the index of its queue.
func (t *tally) count(queue int32, later bool) int {
	i := slices.Index(t.dqueues, queue)
	if i < 0 {
		i = len(t.dqueues)
		t.dqueues = append(t.dqueues, queue)
		t.dwaiting, t.dscheduled = append(t.dwaiting, 0), append(t.dscheduled, 0)
	}
	if later {
		t.dscheduled[i]++
	} else {
		t.dwaiting[i]++
	}
	return i
}

// plainStep is the state of a flush of plain parts.
type plainStep struct {
	class  int
	parts  []*part
	queues map[string]int32
	begun  time.Time
	base   int64   // the first version; 0 if something did not go as expected
	rung   []int32 // queues with new work, or with a task that is now due before all others
	told   []int32 // queues whose wake-up goes with the commit
	event  wakeup.Event
}

// flushPlain carries out parts of one of the plain classes. It reports whether they are left, to go
// the general way. After errBusy none of them happened.
func (s *Storage) flushPlain(ctx context.Context, class int, parts []*part) (left bool, err error) {
	st := &plainStep{class: class, parts: parts}
	err = s.retry(ctx, func() (err error) {
		st.begun, st.base = time.Now(), 0
		if st.queues, err = s.numbersOf(ctx, queuesOfParts(parts)); err != nil {
			return err
		}
		if isBulk(class, parts) {
			return heldUp(s.copyStep(ctx, st), parts)
		}
		return heldUp(s.plainStep(ctx, st), parts)
	})
	switch {
	case errors.Is(err, errBusy):
		return false, err
	case err != nil && !unexpected(err):
		if err = translate(err); errors.Is(err, storage.ErrUnknown) { // it may have happened, with a late commit
			s.late(numbersIn(st.queues))
		}
		for _, p := range parts {
			p.done, p.err = true, err
		}
		return false, nil
	case err != nil || st.base == 0:
		if class == classSettle {
			s.odd.note(queuesOfParts(parts))
		}
		return true, nil
	}
	s.lateSince(ctx, st.begun, st.queues)
	s.notes.rung(ctx, st.rung, st.told, st.event)
	for _, p := range parts {
		p.done = true
		p.applied = expected(p.txs, st.base+p.begin)
	}
	return false, nil
}

// plainStep carries out parts with one function of the server.
func (s *Storage) plainStep(ctx context.Context, st *plainStep) error {
	a := plain(st.parts, st.queues)
	st.event = eventOf(a.dscheduled)
	st.told = s.notes.loud(a.dqueues)
	return s.ask(ctx, s.poolOf(st.parts), s.plainQuery(a, st))
}

// plainQuery calls the function of a class: enqueue, or finish if tasks are completed too.
func (s *Storage) plainQuery(a *plainArgs, st *plainStep) query {
	args := []any{
		a.span, blobs(a.lanes), a.opens, a.seqs, a.begins, a.queues, blobs(a.ids), a.ats, a.dues, a.priorities,
		a.marks, blobs(a.records), a.dqueues, a.dwaiting, a.dscheduled, a.timed, a.low, a.high, s.notes.channel,
		s.notes.sender, letters[st.event], st.told,
	}
	text := "SELECT base, coalesce(rung, '{}') FROM {schema}.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, " +
		"$10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)"
	if st.class == classSettle {
		args = append(args, a.ends()...)
		text = "SELECT base, coalesce(rung, '{}') FROM {schema}.finish($1, $2, $3, $4, $5, $6, $7, $8, $9, " +
			"$10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)"
	}
	return query{text: text, args: args, scan: one(&st.base, &st.rung)}
}

// eventOf returns the kind of event of inserts into queues, of which so many are to be scheduled.
func eventOf(scheduled []int32) wakeup.Event {
	return wakeup.Of(!slices.ContainsFunc(scheduled, func(n int32) bool { return n > 0 }), false)
}

// blobs is an array that the driver writes without reflection.
type blobs = pgtype.FlatArray[[]byte]

// plain returns the arguments for parts.
func plain(parts []*part, queues map[string]int32) *plainArgs {
	inserts, settles := 0, 0
	for _, p := range parts {
		for j := range p.txs {
			inserts, settles = inserts+len(p.txs[j].Inserts), settles+len(p.txs[j].Settles)
		}
	}
	a := newPlainArgs(inserts, settles)
	a.presented = presenting(parts)
	at := int64(0)
	for _, p := range parts {
		for j := range p.txs {
			at = a.add(&p.txs[j], queues, at)
		}
	}
	a.low, a.high = bounds(a.ids, len(a.dqueues))
	return a
}

// newPlainArgs reserves memory for so many inserts and completions.
func newPlainArgs(inserts, settles int) *plainArgs {
	return &plainArgs{
		queues: make([]int32, 0, inserts), ids: make([][]byte, 0, inserts), ats: make([]int64, 0, inserts),
		dues: make([]int64, 0, inserts), priorities: make([]int16, 0, inserts), marks: make([]int16, 0, inserts),
		records: make([][]byte, 0, inserts),
		tally:   newTally(), settles: make([]end, 0, settles),
	}
}

// add adds a Tx, whose first moment is at, and returns the moment after its last.
func (a *plainArgs) add(tx *storage.Tx, queues map[string]int32, at int64) int64 {
	for k := range tx.Inserts {
		in := &tx.Inserts[k]
		a.queues = append(a.queues, queues[in.Ref.Queue])
		a.ids = append(a.ids, packID(in.Ref.ID))
		a.ats = append(a.ats, at)
		at++
		due := -in.Delay.Microseconds()
		if !in.At.IsZero() {
			due = max(in.At.UnixMicro(), 0)
			a.timed = a.timed || due > 0
		}
		a.dues = append(a.dues, due)
		// The server decides whether a moment is in the future; this is the client's expectation.
		a.count(queues[in.Ref.Queue], due < 0 || due > time.Now().UnixMicro())
		a.priorities = append(a.priorities, int16(in.Priority))
		sp := engine.SpecOf(in)
		a.marks = append(a.marks, int16(marks(&sp)))
		a.records = append(a.records, record.AppendSpec(nil, &sp, nil))
	}
	for k := range tx.Settles {
		f := &tx.Settles[k].Fence
		a.settles = append(a.settles, end{queues[f.Queue], packID(f.ID), f})
		at++
	}
	return at
}

// marks returns the flags of a plain insert.
func marks(sp *engine.Spec) engine.Flags {
	if sp.Keep.For > 0 || sp.Keep.UntilRead {
		return engine.Special
	}
	return 0
}

// nearby is how many bytes ids have in common that were made at about the same time: the time without
// its last quarter of a second. Texts that end with a number of so many digits have all of it in common but
// the last so many.
const (
	nearby     = 5
	digits     = 10
	lastDigits = 4
)

// near returns the beginning that an id has in common with the ids that are close to it.
func near(id []byte) []byte {
	if id[0] < firstText {
		return id[:nearby]
	}
	number := id[max(len(id)-digits, 0):]
	if slices.ContainsFunc(number, func(c byte) bool { return c < '0' || c > '9' }) || len(number) < digits {
		return id
	}
	return id[:len(id)-lastDigits]
}

// bounds returns the lowest and the highest id of inserts if all are of one queue and were made at about the
// same time, or are numbered one after the other. Otherwise it returns two empty ids. One query between these
// bounds finds out whether any of the ids belongs to a task that has ended. Between bounds further apart the
// query would pass over millions of dead entries.
func bounds(ids [][]byte, queues int) (low, high []byte) {
	if len(ids) == 0 || queues != 1 {
		return []byte{}, []byte{}
	}
	low, high = ids[0], ids[0]
	for _, id := range ids {
		if len(id) != len(low) || !bytes.Equal(near(id), near(low)) {
			return []byte{}, []byte{}
		}
		if bytes.Compare(id, low) < 0 {
			low = id
		} else if bytes.Compare(id, high) > 0 {
			high = id
		}
	}
	return low, high
}

// ends returns the completions as arrays, by queue and id: the order in which all steps lock tasks.
func (a *plainArgs) ends() []any {
	slices.SortFunc(a.settles, func(x, y end) int {
		return cmp.Or(cmp.Compare(x.queue, y.queue), bytes.Compare(x.id, y.id))
	})
	n := len(a.settles)
	queues, versions := make([]int32, n), make([]int64, n)
	ids, tokens := make(blobs, n), make(blobs, n)
	for i, e := range a.settles {
		queues[i], ids[i], versions[i], tokens[i] = e.queue, e.id, e.fence.Version, e.fence.Token[:]
	}
	return []any{queues, ids, versions, tokens}
}

// expected returns the outcome of plain Txs that went as expected, with versions from at on. The
// outcome depends on nothing else, so that a lane remembers only the version. If inserts name a due
// moment, the version was also the time of the clock.
func expected(txs []storage.Tx, at int64) []storage.Applied {
	applied := engine.Answers(txs)
	for i := range txs {
		tx, a := &txs[i], &applied[i]
		for j := range tx.Inserts {
			in := &tx.Inserts[j]
			a.Inserted[j] = storage.Placed{Ref: in.Ref, Version: at, State: storage.Waiting}
			if in.Delay.Microseconds() > 0 || !in.At.IsZero() && in.At.UnixMicro() > at {
				a.Inserted[j].State = storage.Scheduled
			}
			at++
		}
		for j := range tx.Settles {
			f := &tx.Settles[j].Fence
			a.Settled[j] = storage.Placed{Ref: f.Ref, Version: max(at, f.Version+1), State: storage.Completed}
			at++
		}
	}
	return applied
}

// oddities remembers for a while in which queues completions need the general way, such as
// completions of tasks that are kept. In these queues the short way is not tried.
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
