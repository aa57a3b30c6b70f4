package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/midgehq/midge/storage"
)

// These limits of a script call keep each call from holding the server for long. The limit of
// operations is higher for a call that has nothing but runs. A Tx is never split.
const (
	partOps   = 40
	insertOps = 250 // plain inserts
	endOps    = 500 // plain completions
	extendOps = 200
	partBytes = 4 << 20
)

// part is a piece of an Apply call that one script call carries out: Txs in order, all in one
// slot and of one class (grows). Its lane field is made of the call's lane and the index of the
// part, so that a repeat of the call repeats each part.
type part struct {
	slot   int
	grows  bool   // a full Redis has to refuse it
	mixed  bool   // it has other Txs than runs
	plain  string // the letter of its runs if it has nothing else
	queues []string
	ops    int
	bytes  int
	id     identity
	before string // lane field of the part before it in the same call and slot
	short  bool   // it and all parts of its call may go by a short way, so that they stay in order
	args   []any  // the Txs, without the runs in run
	units  []unit // one for each Tx or run, in the order of args
	run    []run  // runs that are not in args yet; a plain part keeps all of its runs here
	count  int    // of Txs

	outcome string
	err     error
	sent    bool // one of its tries may have been sent
	spoiled bool // it did not happen, because another part made their script call fail
	of      *slotCall

	lone lone
}

// lone is memory for the slices of a part of one plain Tx. It is in the part itself, because most calls
// are such a part.
type lone struct {
	queue [1]string
	unit  [1]unit
	run   [1]run
	tx    [1]int
	items [2]string
}

// identity identifies a script call, so that a repeat is recognized.
type identity struct {
	lane   string // id of the caller's lane, then the index of the script call in its call
	seq    uint64 // number of the call on its lane; 0 for a call that the server does not remember
	opened int64  // when the lane was opened, in microseconds
}

// identityOf returns the identity of a call's i-th script call.
func identityOf(call storage.Call, i int) identity {
	var lane [len(call.Lane.ID) + 4]byte
	copy(lane[:], call.Lane.ID[:])
	binary.BigEndian.PutUint32(lane[len(call.Lane.ID):], uint32(i))
	return identity{lane: string(lane[:]), seq: call.Seq, opened: max(call.Lane.Opened.UnixMicro(), 0)}
}

// append appends the identity to the arguments of a script.
func (id *identity) append(args []any) []any { return append(args, &id.lane, &id.seq, &id.opened) }

// Apply carries out each Tx whole or not at all. Calls that arrive while others are under way go
// out together in the next flush.
func (s *Storage) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	if err := storage.CheckCall(call); err != nil {
		return nil, err
	}
	if err := storage.CheckTxs(s.limits, txs); err != nil {
		return nil, err
	}
	parts, apart := s.split(call, txs)
	if err := s.mayWrite(); err != nil {
		return nil, fmt.Errorf("redis: apply: %w", err)
	}
	applied := make([]storage.Applied, len(txs))
	for _, i := range apart {
		applied[i].Err = storage.ErrSpan
	}
	if len(parts) == 0 {
		return applied, nil
	}
	fresh, err := s.register(ctx, txs)
	if err != nil {
		s.room.Wrote(err)
		return nil, wrap("apply: register queues", err)
	}
	for _, p := range parts {
		p.short = p.short && len(fresh) == 0 // a short way would leave a new queue to apply.lua
	}
	err = s.carryOut(ctx, call, parts, txs, applied)
	s.unregister(ctx, fresh, txs, applied, err)
	s.room.Wrote(err, applied...)
	if err != nil {
		return nil, wrap("apply", err)
	}
	return applied, nil
}

// carryOut sends the parts of a call and fills applied with the outcomes of its Txs.
func (s *Storage) carryOut(
	ctx context.Context, call storage.Call, parts []*part, txs []storage.Tx, applied []storage.Applied,
) error {
	err := s.send(ctx, call, parts)
	if err == nil && len(txs) > 1 {
		parts, err = s.applyEach(ctx, call, parts, txs, applied)
	}
	if err != nil {
		return err
	}
	return gather(parts, txs, applied)
}

// split makes the parts of a call. apart are the indexes of the Txs that span slots and are in no part.
func (s *Storage) split(call storage.Call, txs []storage.Tx) (parts []*part, apart []int) {
	open := make(map[int]*part, 1) // the last part of each slot
	scratch := make([]byte, 0, 512)
	var one [1]string
	for i := range txs {
		tx := &txs[i]
		queues := queuesOf(tx, &one)
		if !s.Spans(queues...) {
			apart = append(apart, i)
			continue
		}
		slot, grows, ops, bytes := s.slot(queues[0]), needsRoom(tx), tx.Ops(), tx.Bytes()
		p := open[slot]
		if p == nil || p.grows != grows || p.ops+ops > p.most(tx) || p.bytes+bytes > partBytes {
			p = &part{slot: slot, grows: grows, id: identityOf(call, len(parts))}
			p.queues, p.units, p.run = p.lone.queue[:0], p.lone.unit[:0], p.lone.run[:0]
			parts = append(parts, p)
			open[slot] = p
		}
		scratch = p.add(i, txs, queues, scratch)
		p.ops += ops
		p.bytes += bytes
	}
	short, before := true, make(map[int]string, 1)
	for _, p := range parts {
		p.finish(txs)
		p.before, before[p.slot] = before[p.slot], p.id.lane
		// The short ways leave the first call of a lane, and a call without a lane, to apply.lua.
		short = short && p.id.seq > 1 && p.plain == parts[0].plain &&
			(p.plain == insertRun && len(p.queues) == 1 || p.plain == completionRun)
	}
	if short && len(parts) > 1 && parts[0].plain == completionRun {
		short = completesOnce(txs)
	}
	for _, p := range parts {
		p.short = short
	}
	return parts, apart
}

// completesOnce reports whether no two of the plain completions txs have one fence. Then their order makes no
// difference.
func completesOnce(txs []storage.Tx) bool {
	fences := make(map[storage.Fence]struct{}, len(txs))
	for i := range txs {
		fences[txs[i].Settles[0].Fence] = struct{}{}
	}
	return len(fences) == len(txs)
}

// most returns how many operations the part may have once it has taken on tx.
func (p *part) most(tx *storage.Tx) int {
	if p.mixed || !completes(tx) && !insertsPlainly(tx) {
		return partOps
	}
	return runOps(completes(tx))
}

// runOps returns how many operations a part of nothing but runs may have.
func runOps(completions bool) int {
	if completions {
		return endOps
	}
	return insertOps
}

// queuesOf returns Tx.Queues. For a plain Tx it uses one instead of an allocation.
func queuesOf(tx *storage.Tx, one *[1]string) []string {
	switch {
	case completes(tx):
		one[0] = tx.Settles[0].Fence.Queue
	case insertsPlainly(tx):
		one[0] = tx.Inserts[0].Ref.Queue
	default:
		return tx.Queues()
	}
	return one[:]
}

// laneArgs returns the identity of a call's i-th script call, as arguments.
func laneArgs(call storage.Call, i int) []any {
	id := identityOf(call, i)
	return id.append(make([]any, 0, 8))
}

// needsRoom reports whether a full Redis has to refuse a Tx. It has to accept every Tx that settles tasks,
// even if their follow-ups take memory, and changes that only remove something or name a moment (DueHeader).
func needsRoom(tx *storage.Tx) bool {
	if len(tx.Settles) > 0 {
		return false
	}
	for i := range tx.Changes {
		ch := &tx.Changes[i]
		headers := len(ch.Headers) > 0 && !ch.Now && ch.Delay == 0 && ch.At.IsZero()
		if headers || ch.Encoding != "" || ch.Cost != nil && *ch.Cost != 0 || ch.Cursor != nil ||
			ch.Queue != "" || ch.Partition != nil && *ch.Partition != "" {
			return true
		}
	}
	return len(tx.Inserts) > 0
}

// unit is a Tx or a run of plain Txs: a script carries it out in one step, with one version.
type unit struct {
	txs []int // indexes of the Txs in the call
}

// run is several Txs of one plain operation each that the server carries out together, at little cost
// for each: completions under one fence, or inserts whose records begin with the same bytes.
type run struct {
	letter, queue string
	fence         storage.Fence // of completions, without the id
	ids           []byte        // of completions, with commas between
	width         int           // length of each id, 0 if the lengths differ
	lead          string        // of inserts: the first leadSize bytes of each record
	items         []string      // of inserts: id and rest of the record
	txs           []int         // indexes of the Txs in the call
}

// shortRun is the length below which a run gains nothing beside other Txs: then its Txs go one by one.
const shortRun = 4

// add adds the i-th Tx of the call to the part. Completions under one fence form one run even if other
// Txs stand between them, because their order makes no difference. add makes records in scratch, and
// returns the memory to use for the next one.
func (p *part) add(i int, txs []storage.Tx, queues []string, scratch []byte) []byte {
	for _, q := range queues {
		if !slices.Contains(p.queues, q) {
			p.queues = append(p.queues, q)
		}
	}
	p.count++
	switch tx := &txs[i]; {
	case completes(tx):
		p.addCompletion(i, txs)
	case insertsPlainly(tx):
		return p.addInsert(i, txs, scratch)
	default:
		p.mixed = true
		p.close(txs)
		p.addTx(i, tx)
	}
	return scratch
}

// completes reports whether a Tx is a plain completion: it has no result and no other operation.
func completes(tx *storage.Tx) bool {
	return len(tx.Settles) == 1 && tx.Ops() == 1 &&
		tx.Settles[0].Outcome == storage.Complete && tx.Settles[0].Result == nil
}

// insertsPlainly reports whether a Tx is a plain insert: it is due now, without a unique key, a
// large payload, a partition or a cursor, and has no other operation.
func insertsPlainly(tx *storage.Tx) bool {
	if len(tx.Inserts) != 1 || tx.Ops() != 1 {
		return false
	}
	return isPlain(&tx.Inserts[0])
}

// isPlain reports whether an insert can be part of a run.
func isPlain(in *storage.Insert) bool {
	return in.Cursor == nil && in.Unique.Mode == "" && in.Partition == "" && in.Delay <= 0 && in.At.IsZero() &&
		len(in.Payload) <= largePayload
}

func (p *part) addCompletion(i int, txs []storage.Tx) {
	if len(p.run) > 0 && p.run[0].letter != completionRun {
		p.close(txs)
	}
	fence := txs[i].Settles[0].Fence
	id := fence.ID
	fence.ID = ""
	at := len(p.run) - 1
	for at >= 0 && p.run[at].fence != fence {
		at--
	}
	if at < 0 {
		at = len(p.run)
		p.run = append(p.run, run{letter: completionRun, queue: fence.Queue, fence: fence, width: len(id)})
	}
	r := &p.run[at]
	if len(r.txs) > 0 {
		r.ids = append(r.ids, ',')
	}
	if len(id) != r.width {
		r.width = 0
	}
	r.ids = append(r.ids, id...)
	r.txs = append(r.txs, i)
}

func (p *part) addInsert(i int, txs []storage.Tx, scratch []byte) []byte {
	if len(p.run) > 0 && p.run[0].letter != insertRun {
		p.close(txs)
	}
	in := &txs[i].Inserts[0]
	record, _ := newRecord(in, scratch)
	last := len(p.run) - 1
	if last < 0 || p.run[last].queue != in.Ref.Queue || p.run[last].lead != string(record[:leadSize]) {
		last = len(p.run)
		r := run{letter: insertRun, queue: in.Ref.Queue, lead: string(record[:leadSize])}
		if left := min(len(txs)-i, insertOps); last == 0 && len(p.units) == 0 && left > 1 {
			r.txs, r.items = make([]int, 0, left), make([]string, 0, 2*left)
		} else if last == 0 && len(p.units) == 0 {
			r.txs, r.items = p.lone.tx[:0], p.lone.items[:0]
		}
		p.run = append(p.run, r)
	}
	r := &p.run[last]
	r.items = append(r.items, in.Ref.ID, string(record[stampEnd:]))
	r.txs = append(r.txs, i)
	return record
}

// The letters of runs.
const (
	completionRun = "c"
	insertRun     = "i"
	insertsRun    = "I" // within a Tx
)

// finish puts the runs that are left into args. A part of nothing but runs becomes plain and keeps
// them in run.
func (p *part) finish(txs []storage.Tx) {
	if len(p.units) > 0 {
		p.close(txs)
		return
	}
	p.plain = p.run[0].letter
	for i := range p.run {
		p.units = append(p.units, unit{p.run[i].txs})
	}
}

// close puts the runs into args. The caller adds a Tx of another kind next.
func (p *part) close(txs []storage.Tx) {
	for i := range p.run {
		r := &p.run[i]
		if len(r.txs) >= shortRun {
			p.units = append(p.units, unit{r.txs})
			p.args = r.append(p.args)
			continue
		}
		for _, tx := range r.txs {
			p.addTx(tx, &txs[tx])
		}
	}
	p.run = nil // not reused: args points into these runs
}

// append appends a run to the arguments of apply.lua or shortcomplete.lua. args points into the run,
// which must not move while args is in use.
func (r *run) append(args []any) []any {
	args = append(args, &r.letter, &r.queue)
	if r.letter == completionRun {
		return append(args, packFence(&r.fence), len(r.txs), r.width, r.ids)
	}
	args = append(args, &r.lead, len(r.items)/2)
	for i := range r.items {
		args = append(args, &r.items[i])
	}
	return args
}

// append appends a part to the arguments of apply.lua or shortcomplete.lua.
func (p *part) append(args []any) []any {
	args = append(append(p.id.append(args), &p.queues[0], p.count), p.args...)
	if p.plain != "" {
		for i := range p.run {
			args = p.run[i].append(args)
		}
	}
	return args
}

// appendInserts appends a part of plain inserts into one queue to the arguments of shortinsert.lua.
func (p *part) appendInserts(args []any, leads []*string) []any {
	args = append(args, &p.id.lane, &p.id.seq)
	for i := range p.run {
		r := &p.run[i]
		number := 256*len(r.txs) + 1 +
			slices.IndexFunc(leads, func(lead *string) bool { return *lead == r.lead })
		if i < len(p.run)-1 {
			number = -number
		}
		args = append(args, number)
		for j := range r.items {
			args = append(args, &r.items[j])
		}
	}
	return args
}

// size returns an upper bound of the number of arguments of the part.
func (p *part) size() int {
	n := 6 + len(p.args)
	for i := range p.run {
		n += 6 + len(p.run[i].items)
	}
	return n
}

// addTx puts one Tx into args. Deletes come before inserts, because a Tx may replace a cursor.
// addTx copies the caller's memory: the caller may return before the flush.
func (p *part) addTx(i int, tx *storage.Tx) {
	p.units = append(p.units, unit{[]int{i}})
	args := p.args
	args = append(args, tx.Ops())
	for i := range tx.Deletes {
		d := &tx.Deletes[i]
		args = append(args, "d", d.Ref.Queue, d.Ref.ID, d.Version)
	}
	for i := range tx.Settles {
		args = appendSettle(args, &tx.Settles[i])
	}
	for i := range tx.Changes {
		args = appendChange(args, &tx.Changes[i])
	}
	args = appendInserts(args, tx.Inserts)
	for i := range tx.Depends {
		d := &tx.Depends[i]
		args = append(args, "n", d.Ref.Queue, d.Ref.ID, d.Version)
	}
	p.args = args
}

// settleLetters are the letters of settles; C is a completion with a result.
var settleLetters = map[storage.Outcome]string{
	storage.Complete: "c", storage.Fail: "f", storage.Snooze: "s", storage.Release: "r", storage.Bury: "b",
	storage.Cancel: "x", storage.Decline: "y",
}

func appendSettle(args []any, se *storage.Settle) []any {
	f := &se.Fence
	letter := settleLetters[se.Outcome]
	if letter == "c" && se.Result != nil {
		letter = "C"
	}
	args = append(args, letter, f.Queue, f.ID, packFence(f))
	switch letter {
	case "c":
		return args
	case "C":
		return append(args, slices.Clone(se.Result))
	}
	message, stack := storage.AttemptTexts(se.Error, se.Stack)
	reason := storage.CleanText(se.Reason, storage.MaxReason)
	return append(args, se.Delay.Microseconds(), reason, message, stack, letterOfAttempt(se))
}

// appendInserts appends the inserts of a Tx. Plain ones whose records begin with the same bytes are a run.
func appendInserts(args []any, inserts []storage.Insert) []any {
	for len(inserts) > 0 {
		r := runOf(inserts)
		n := len(r.items) / 2
		if n < shortRun {
			n = 1
			args = appendInsert(args, &inserts[0])
		} else {
			args = r.append(args)
		}
		inserts = inserts[n:]
	}
	return args
}

// runOf returns the run of plain inserts with which the inserts of a Tx begin.
func runOf(inserts []storage.Insert) *run {
	r := &run{letter: insertsRun, queue: inserts[0].Ref.Queue}
	var record []byte
	for i := range inserts {
		in := &inserts[i]
		if !isPlain(in) || in.Ref.Queue != r.queue {
			break
		}
		record, _ = newRecord(in, record)
		if i == 0 {
			r.lead, r.items = string(record[:leadSize]), make([]string, 0, 2*len(inserts))
		} else if string(record[:leadSize]) != r.lead {
			break
		}
		r.items = append(r.items, in.Ref.ID, string(record[stampEnd:]))
	}
	return r
}

func appendInsert(args []any, in *storage.Insert) []any {
	letter := "i"
	if in.OnConflict == storage.Skip {
		letter = "k"
	}
	record, body := newRecord(in, nil)
	due := dueArg(in.Delay, in.At)
	if in.Cursor != nil {
		due = cursorDue(in.Cursor)
	}
	return append(args, letter, in.Ref.Queue, in.Ref.ID, record, due, slices.Clone(body))
}

// dueArg returns a due time as the scripts read it (moment in check.lua).
func dueArg(delay time.Duration, at time.Time) string {
	switch {
	case !at.IsZero():
		return "=" + strconv.FormatInt(max(at.UnixMicro(), 0), 10)
	case delay != 0:
		return "+" + strconv.FormatInt(delay.Microseconds(), 10)
	}
	return ""
}

// never is the due time of a cursor without a next moment, in microseconds.
const never = 1<<53 - 1

func cursorDue(c *storage.Cursor) string {
	if c.Next.IsZero() {
		return "=" + strconv.FormatInt(never, 10)
	}
	return "=" + strconv.FormatInt(max(c.Next.UnixMicro(), 0), 10)
}

func appendChange(args []any, ch *storage.Change) []any {
	target, to, priority, partition, cost, parts, due := "", "", "", "", "", "", dueArg(ch.Delay, ch.At)
	switch {
	case ch.Cancel:
		to = letterOf(storage.Cancelled)
	case ch.Now:
		to = letterOf(storage.Waiting)
	}
	if ch.Requeue {
		parts += "q"
	}
	if ch.FromStart {
		parts += "s"
	}
	if ch.Queue != ch.Ref.Queue {
		target = ch.Queue
	}
	if ch.Priority != nil {
		priority = strconv.Itoa(*ch.Priority)
	}
	if ch.Partition != nil {
		partition = "=" + *ch.Partition
	}
	if ch.Cost != nil {
		cost = "=" + packCost(*ch.Cost)
	}
	if ch.Encoding != "" {
		parts += "p"
		if len(ch.Payload) > largePayload {
			parts += "P"
		}
	}
	var headers, cursor []byte
	if ch.Headers != nil {
		parts += "h"
		headers = packHeaders(ch.Headers)
	}
	if ch.Cursor != nil {
		parts += "c"
		cursor, due = packCursor(ch.Cursor), cursorDue(ch.Cursor)
	}
	return append(args, "m", ch.Ref.Queue, ch.Ref.ID, ch.Version, target, to, due,
		priority, parts, packEncoding(ch.Encoding), slices.Clone(ch.Payload), headers, cursor, partition,
		cost)
}
