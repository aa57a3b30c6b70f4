package postgres

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
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

// bulk is plain inserts in the form that COPY reads.
type bulk struct {
	presented
	*packer

	inserts []*storage.Insert
	queues  []int32 // of each insert
	ids     [][]byte
	base    int64 // the version of the first insert; 0 if something did not go as expected
	now     int64 // by the server's clock
	timed   bool  // some inserts name a due moment
	// If the ids are close, the server gets only their bounds.
	low, high []byte

	// The following fields are complete once all rows are packed.
	tally
	firsts []int64 // of each queue: when its first scheduled task is due
}

func newBulk(parts []*part, queues map[string]int32) *bulk {
	n := opsOf(parts)
	b := &bulk{
		presented: presenting(parts), tally: newTally(), firsts: []int64{},
		inserts: make([]*storage.Insert, 0, n), queues: make([]int32, 0, n), ids: make([][]byte, 0, n),
	}
	b.packer = newPacker(n, b.row)
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

// row packs an insert.
func (b *bulk) row(to []byte, n int) []byte {
	in := b.inserts[n]
	version, now := b.base+int64(n), b.now+int64(n)
	c := columns{
		turn: version, version: version, queue: b.queues[n], priority: int16(in.Priority), id: b.ids[n],
		state: engine.Waiting, sort: engine.Band(int16(in.Priority)) + version,
	}
	if due := dueFrom(in, now); due > now {
		c.state, c.sort = engine.Scheduled, due
	}
	i := b.count(c.queue, c.state == engine.Scheduled)
	if i == len(b.firsts) {
		b.firsts = append(b.firsts, engine.Never)
	}
	if c.state == engine.Scheduled {
		b.firsts[i] = min(b.firsts[i], c.sort)
	}
	if version != now {
		c.past = binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(now))
	}
	sp := engine.SpecOf(in)
	c.flags = marks(&sp)
	return c.append(to, &sp, nil)
}

// dueFrom returns the due moment of a plain insert that is made now.
func dueFrom(in *storage.Insert, now int64) int64 {
	if in.At.IsZero() {
		return now + in.Delay.Microseconds()
	}
	return in.At.UnixMicro()
}

// copyMark marks a transaction that copies tasks: for as long as the transaction lasts, the server's
// locks show its process. The lock is shared, so nobody waits for it.
const copyMark = "pg_advisory_xact_lock_shared(" + copyKeys + ")"

const copyKeys = "hashtext('midge.copy'), hashtext('{schema}')"

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
					FROM (SELECT ` + copyKeys + `) AS k (a, b))
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
		text: "SELECT base, now FROM set_config('lock_timeout', '50ms', true), " + copyMark +
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

// told returns the ids that the server checks: none if they are close. Close ids were made for these
// tasks, so that only a repeat of the call can have taken them.
func (b *bulk) told() (queues []int32, ids blobs) {
	if len(b.low) > 0 {
		return []int32{}, blobs{}
	}
	return b.queues, b.ids
}
