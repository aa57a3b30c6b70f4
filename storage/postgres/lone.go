package postgres

import (
	"context"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// A call that inserts one task which waits at once is a step of its own. No other call shares its
// transaction, so that the call pays for all of the step.

// lone returns the insert of such a call, and false for any other call.
func (p *part) lone() (*storage.Insert, bool) {
	if p.Identity.IsZero() || len(p.txs) != 1 || len(p.txs[0].Inserts) != 1 || !isPlain(&p.txs[0]) ||
		len(p.txs[0].Settles) > 0 {
		return nil, false
	}
	in := &p.txs[0].Inserts[0]
	return in, in.Delay.Microseconds() == 0 && in.At.IsZero()
}

// add carries out a call that inserts one task. It reports false if the step did nothing because
// something did not go as expected.
func (s *Storage) add(ctx context.Context, p *part, in *storage.Insert) (done bool) {
	var at int64
	var numbers, told []int32
	var queues map[string]int32
	var begun time.Time
	err := s.retry(ctx, func() (err error) {
		begun = time.Now()
		if queues, err = s.numbersOf(ctx, []string{in.Ref.Queue}); err != nil {
			return err
		}
		numbers = []int32{queues[in.Ref.Queue]}
		told = s.notes.loud(numbers)
		return heldUp(s.ask(ctx, s.pool, s.adding(p.Identity, in, numbers[0], len(told) > 0, &at)), []*part{p})
	})
	switch {
	case err != nil && !unexpected(err):
		p.done, p.err = true, translate(err)
		return true
	case at == 0:
		return false
	}
	s.lateSince(ctx, begun, queues)
	s.notes.rung(ctx, numbers, told, wakeup.Work)
	p.done, p.applied = true, expected(p.txs, at)
	return true
}

// adding calls the function add; loud is true if the step notifies.
func (s *Storage) adding(call storage.Call, in *storage.Insert, queue int32, loud bool, at *int64) query {
	sender := ""
	if loud {
		sender = s.notes.sender
	}
	sp := engine.SpecOf(in)
	return query{
		text: "SELECT {schema}.add($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		args: []any{
			call.Lane.ID[:], call.Lane.Opened.UnixMicro(), int64(call.Seq), queue, packID(in.Ref.ID),
			int16(in.Priority), int16(marks(&sp)), record.AppendSpec(nil, &sp, nil), s.notes.channel, sender,
		},
		scan: one(at),
	}
}
