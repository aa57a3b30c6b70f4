package postgres

import (
	"context"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// Configure changes the settings of a queue, or removes it. It returns storage.ErrNotEmpty for a
// queue that is to be removed and holds a record.
func (s *Storage) Configure(
	ctx context.Context, call storage.Call, queue string, settings storage.Settings,
) error {
	if err := storage.CheckCall(call); err != nil {
		return err
	}
	if err := storage.CheckSettings(queue, &settings); err != nil {
		return err
	}
	err := s.pooled().bounded(ctx, "configure "+queue, func(ctx context.Context) error {
		return s.configure(ctx, call, queue, &settings)
	})
	s.room.Wrote(err)
	return err
}

// ownText returns the text of the limit of one partition that settings set, nil if they set none.
func ownText(settings *storage.Settings) *string {
	if settings.Partition == "" || settings.Limit == nil {
		return nil
	}
	text := engine.OperatorText(settings.Limit)
	return &text
}

// pauseOf returns whether settings pause the queue, nil if the pause stays, and for how many microseconds.
func pauseOf(settings *storage.Settings) (on *bool, span int64) {
	if p := settings.Pause; p != nil {
		return &p.On, p.For.Microseconds()
	}
	return nil, 0
}

func (s *Storage) configure(
	ctx context.Context, call storage.Call, queue string, settings *storage.Settings,
) error {
	begun := time.Now()
	tx, err := s.begin(ctx, s.pool)
	if err != nil {
		return err
	}
	defer tx.close(ctx)
	st := s.newStep(tx, nil)
	st.verb = engine.VerbConfigure
	p := newPart(call, nil)
	if err := st.enter(ctx, []*part{p}); err != nil {
		return err
	}
	if len(st.parts) == 0 {
		return s.unadmitted(queue, p)
	}
	paused, pausedFor := pauseOf(settings)
	var done bool
	var number *int32
	var operator, declared string
	var starts []byte
	err = tx.run(ctx, query{
		text: "SELECT done, number, coalesce(operator, ''), coalesce(declared, ''), coalesce(starts, '') " +
			"FROM {schema}.configure($1, $2, $3, $4, $5, $6, $7, $8)",
		args: []any{
			queue, paused, pausedFor, settings.Remove, settings.Makes(), settings.Partition, st.base,
			ownText(settings),
		},
		scan: one(&done, &number, &operator, &declared, &starts),
	})
	if err != nil {
		return err
	}
	var writes []query
	if !done && !call.IsZero() { // the lane remembers the refusal
		writes = append(writes, query{
			text: "SELECT {schema}.remember($1, $2)",
			args: []any{[][]byte{call.Lane.ID[:]}, [][]byte{[]byte("not empty")}},
		})
	}
	var queues []int32
	if done && number != nil {
		queues = []int32{*number}
		writes = append(writes, bounding(*number, settings, operator, declared, starts)...)
		writes = append(writes, query{
			text: "SELECT {schema}.ring($1, $2, 'c', $3)", args: []any{s.notes.channel, s.notes.sender, queues},
		})
	}
	if err := tx.commit(ctx, writes...); err != nil {
		return err
	}
	if !done {
		return storage.ErrNotEmpty
	}
	if number != nil {
		s.lateSince(ctx, begun, map[string]int32{queue: *number})
	}
	s.wake.ring(queues, wakeup.Alert)
	return nil
}

// unadmitted returns the outcome of a call that was not admitted.
func (s *Storage) unadmitted(queue string, p *part) error {
	switch {
	case p.err != nil:
		return p.err
	case len(p.outcome) > 0:
		return storage.ErrNotEmpty
	}
	s.wake.events.Ring(wakeup.Alert, queue) // the first reply was lost, and with it the wake-up here
	return nil
}
