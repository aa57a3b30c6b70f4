package postgres

import (
	"context"
	"encoding/binary"
	"io"
	"sync"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// Many plain inserts are copied into the table of tasks: the server receives rows while the client
// packs the next, and adds them a page at a time. A copy costs three round trips. The first reserves
// the versions of the tasks, because each row states its version.

// isBulk reports whether parts of a class are many plain inserts.
func isBulk(class int, parts []*part) bool { return class == classInsert && opsOf(parts) >= largeOps }

func opsOf(parts []*part) (n int) {
	for _, p := range parts {
		n += p.Ops
	}
	return n
}

// copyStep carries out many plain inserts.
func (s *Storage) copyStep(ctx context.Context, st *plainStep) error {
	tx, err := s.begin(ctx, s.pool)
	if err != nil {
		return err
	}
	defer tx.close(ctx)
	b := newBulk(st.parts, st.queues)
	defer b.close()
	if err = tx.run(ctx, b.opened()); err != nil || b.base == 0 {
		return err
	}
	err = tx.copy(ctx, copyRows, b)
	b.close()
	if err == nil {
		st.told, st.event = s.notes.loud(b.dqueues), eventOf(b.dscheduled)
		// A commit that notifies takes a lock of the whole server, and must wait for it however long
		// that takes.
		err = tx.commit(ctx, b.copied(s.notes, st), query{text: "SET LOCAL lock_timeout TO DEFAULT"})
	}
	switch {
	case err == nil:
		st.base = b.base
	case code(err) == "23505", unexpected(err): // an id is taken
		s.vacuum.left(b.made)
		return nil
	}
	return err
}

const copyRows = "COPY {schema}.tasks " +
	"(sort, turn, version, line, queue, flags, priority, id, lease, past, record) FROM STDIN BINARY"

// The form that COPY reads (www.postgresql.org/docs/current/sql-copy.html): a header, rows whose
// columns stand behind their lengths, and an end.
const (
	bulkHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	bulkEnd    = "\xff\xff"
	bulkWidth  = 11
)

// buffers are buffers of packed rows, to be used again. Each holds as much as the driver reads at a
// time (64 KiB) and one more row. A buffer that a payload made larger than bufferMost is not kept.
var buffers sync.Pool

const (
	bufferSize = 80 << 10
	bufferMost = 128 << 10
)

func newBuffer() []byte {
	if b, some := buffers.Get().(*[]byte); some {
		return (*b)[:0]
	}
	return make([]byte, 0, bufferSize)
}

// bulk is plain inserts in the form that COPY reads. Read packs them.
type bulk struct {
	presented

	inserts []*storage.Insert
	queues  []int32 // of each insert
	ids     [][]byte
	base    int64 // the version of the first insert; 0 where something did not go as expected
	now     int64 // by the server's clock
	timed   bool  // some inserts name a due moment
	// Where the ids are close the server gets only their bounds.
	low, high []byte

	mu     sync.Mutex // guards the fields below: after an error the driver may go on reading
	closed bool
	made   int // rows packed so far
	buf    []byte
	unread []byte // the rest of buf
	tally
	firsts []int64 // of each queue: when its first scheduled task is due
}

func newBulk(parts []*part, queues map[string]int32) *bulk {
	n := opsOf(parts)
	b := &bulk{
		presented: presenting(parts), tally: newTally(), firsts: []int64{}, buf: append(newBuffer(), bulkHeader...),
		inserts: make([]*storage.Insert, 0, n), queues: make([]int32, 0, n), ids: make([][]byte, 0, n),
	}
	b.unread = b.buf
	for _, p := range parts {
		for i := range p.txs {
			for j := range p.txs[i].Inserts {
				in := &p.txs[i].Inserts[j]
				b.inserts = append(b.inserts, in)
				b.queues = append(b.queues, queues[in.Ref.Queue])
				b.ids = append(b.ids, packID(in.Ref.ID))
				b.timed = b.timed || !in.At.IsZero()
			}
		}
	}
	b.low, b.high = bounds(b.ids, len(queues))
	return b
}

// Read gives the next bytes of the rows.
func (b *bulk) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, io.ErrClosedPipe
	}
	if len(b.unread) < len(p) {
		b.buf = append(b.buf[:0], b.unread...)
		for len(b.buf) < len(p) && b.made < len(b.inserts) {
			b.row(b.inserts[b.made])
			if b.made++; b.made == len(b.inserts) {
				b.buf = append(b.buf, bulkEnd...)
			}
		}
		b.unread = b.buf
	}
	n := copy(p, b.unread)
	if b.unread = b.unread[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// close ends reading, so that the inserts belong to their callers again.
func (b *bulk) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && cap(b.buf) <= bufferMost {
		buf := b.buf // apart: a pointer into b would keep the callers' inserts
		buffers.Put(&buf)
	}
	b.closed, b.buf, b.unread = true, nil, nil
}

// row packs an insert.
func (b *bulk) row(in *storage.Insert) {
	version, now := b.base+int64(b.made), b.now+int64(b.made)
	queue, priority := b.queues[b.made], int16(in.Priority)
	state, place := engine.Waiting, engine.Band(priority)+version
	if due := dueFrom(in, now); due > now {
		state, place = engine.Scheduled, due
	}
	i := b.count(queue, state == engine.Scheduled)
	if i == len(b.firsts) {
		b.firsts = append(b.firsts, engine.Never)
	}
	if state == engine.Scheduled {
		b.firsts[i] = min(b.firsts[i], place)
	}
	id, sp := b.ids[b.made], engine.SpecOf(in)
	to := binary.BigEndian.AppendUint16(b.buf, bulkWidth)
	to = column64(column64(column64(to, place), version), version)
	to = column32(column64(to, int64(queue)*16+int64(state)), queue) // the function line
	to = column16(column16(to, int16(marks(&sp))), priority)
	to = append(binary.BigEndian.AppendUint32(to, uint32(len(id))), id...)
	to = binary.BigEndian.AppendUint32(to, 0) // no lease
	if version == now {
		to = binary.BigEndian.AppendUint32(to, 0) // no past
	} else {
		to = column64(to, now)
	}
	size := len(to)
	to = record.AppendSpec(append(to, 0, 0, 0, 0), &sp, nil)
	binary.BigEndian.PutUint32(to[size:], uint32(len(to)-size-4))
	b.buf = to
}

// dueFrom gives the due moment of a plain insert that is made now.
func dueFrom(in *storage.Insert, now int64) int64 {
	if in.At.IsZero() {
		return now + in.Delay.Microseconds()
	}
	return in.At.UnixMicro()
}

func column64(to []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(to, 0, 0, 0, 8), uint64(v))
}

func column32(to []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(append(to, 0, 0, 0, 4), uint32(v))
}

func column16(to []byte, v int16) []byte {
	return binary.BigEndian.AppendUint16(append(to, 0, 0, 0, 2), uint16(v))
}

// copying marks a transaction that copies tasks: for as long as the transaction lasts, the server's
// locks show its process. The lock is shared, so nobody waits for it.
const copying = "pg_advisory_xact_lock_shared(" + copyingKeys + ")"

const copyingKeys = "hashtext('midge.copy'), hashtext('{schema}')"

// unstick ends processes of the server whose client began to copy tasks longer ago than after, and
// neither goes on nor ends: the client is frozen, or unreachable. No setting of the server bounds
// such a copy, and its transaction keeps every vacuum from removing dead rows. unstick passes over
// processes of roles of which its own role is no member.
func (s *Storage) unstick(ctx context.Context, after time.Duration) error {
	return s.askAside(ctx, query{
		text: `SELECT pg_terminate_backend(a.pid)
			FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid AND a.datid = l.database
			WHERE l.locktype = 'advisory' AND l.objsubid = 2
				AND (l.classid::int8, l.objid::int8) = (SELECT k.a::int8 & 4294967295, k.b::int8 & 4294967295
					FROM (SELECT ` + copyingKeys + `) AS k (a, b))
				AND a.datname = current_database() AND pg_has_role(a.usesysid, 'MEMBER')
				AND a.state = 'active' AND a.wait_event = 'ClientRead'
				AND a.query_start < clock_timestamp() - make_interval(secs => $1)
				AND {schema}.come({schema}.told()) > 0`,
		args: []any{after.Seconds()},
	})
}

// opened is the first query of a copy, and copied the last.
func (b *bulk) opened() query {
	queues, ids := b.told()
	return query{
		text: "SELECT base, now FROM set_config('lock_timeout', '50ms', true), " + copying +
			", {schema}.opened($1, $2, $3, $4)",
		args: []any{b.span, queues, ids, b.timed}, scan: one(&b.base, &b.now),
	}
}

func (b *bulk) copied(n *notes, st *plainStep) query {
	queues, ids := b.told()
	return query{
		text: "SELECT coalesce({schema}.copied($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, " +
			"$15, $16, $17), '{}')",
		args: []any{
			b.base, blobs(b.lanes), b.opens, b.seqs, b.begins, queues, ids, b.low, b.high,
			b.dqueues, b.dwaiting, b.dscheduled, b.firsts, n.channel, n.sender, letters[st.event],
			st.told,
		},
		scan: one(&st.rung),
	}
}

// told gives the ids that the server checks: none where they are close. Close ids were made for these
// tasks, so that only a repeat of the call can have taken them.
func (b *bulk) told() (queues []int32, ids blobs) {
	if len(b.low) > 0 {
		return []int32{}, blobs{}
	}
	return b.queues, b.ids
}
