package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Extend extends leases and keeps the runner's heartbeat, in one transaction of two round trips on a
// connection of the reserve, unless it carries a large checkpoint. A task that another transaction
// keeps locked for more than a moment, such as a settle in a transaction of the application's, is
// neither extended nor lost. Progress or a checkpoint for such a task is an error: nothing was
// written.
func (s *Storage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := storage.CheckExtend(s.limits, &req); err != nil {
		return storage.Extended{}, err
	}
	var extended storage.Extended
	tries := 0
	err := s.pooled().bounded(ctx, "extend", func(ctx context.Context) (err error) {
		tries++
		extended, err = s.extend(ctx, &req, tries < extendTries)
		return err
	})
	s.room.Wrote(err)
	return extended, err
}

// extendTries is how often leases are tried before a locked task is passed over: steps of this
// package lock tasks for some milliseconds.
const extendTries = 4

// extend extends leases. With insist it returns errHeld where a task is locked.
func (s *Storage) extend(
	ctx context.Context, req *storage.ExtendRequest, insist bool,
) (x storage.Extended, err error) {
	txs := make([]storage.Tx, 1)
	for i := range req.Leases { // settles, so that a step loads and locks the tasks
		txs[0].Settles = append(txs[0].Settles, storage.Settle{Fence: req.Leases[i].Fence})
	}
	p := newPart(req.Call, txs)
	queues, err := s.numbersOf(ctx, queuesOfParts([]*part{p}))
	if err != nil {
		return x, err
	}
	for i := range req.Leases {
		p.size += len(req.Leases[i].Progress) + len(req.Leases[i].Checkpoint)
	}
	tx, err := s.begin(ctx, s.reserveFor(p.size))
	if err != nil {
		return x, err
	}
	defer tx.close(ctx)
	st := s.newStep(tx, queues)
	st.verb = verbExtend
	if err := st.enter(ctx, []*part{p}); err != nil {
		return x, err
	}
	if len(st.parts) == 0 { // it was not admitted
		if p.err == nil {
			p.err = json.Unmarshal(p.outcome, &x)
		}
		return x, p.err
	}
	w := st.loadedWork()
	x.Now = engine.Time(st.now)
	for i := range req.Leases {
		e := &req.Leases[i]
		if w.step.Extend(e, &x) {
			continue
		}
		if insist || e.Progress != nil || e.Checkpoint != nil {
			return x, errHeld
		}
		x.Locked = append(x.Locked, e.Fence.Ref)
	}
	writes := w.save(false)
	if req.Runner.ID != "" {
		writes = append(writes, hear(&req.Runner, st.now))
	}
	if !req.Call.IsZero() {
		b, err := json.Marshal(&x)
		if err != nil {
			return x, fmt.Errorf("remember: %w", err)
		}
		writes = append(writes, query{
			text: "SELECT {schema}.remember($1, $2)", args: []any{[][]byte{req.Call.Lane.ID[:]}, [][]byte{b}},
		})
	}
	return x, tx.commit(ctx, writes...)
}

// hear keeps a heartbeat, or deletes a runner that leaves. The parts that a heartbeat leaves out stay.
func hear(info *storage.RunnerInfo, now int64) query {
	if info.Leaving {
		return query{text: "DELETE FROM {schema}.runners WHERE id = $1", args: []any{info.ID}}
	}
	copied := engine.CopyRunner(info)
	copied.Seen = engine.Time(now)
	copied.Schedules, copied.Vitals = nil, nil
	b, _ := json.Marshal(&copied) //nolint:errchkjson // cannot fail: texts, numbers, times of this century
	var schedules []byte
	if info.Schedules != nil {
		schedules, _ = json.Marshal(info.Schedules) //nolint:errchkjson // texts
	}
	return query{
		text: `INSERT INTO {schema}.runners AS kept (id, seen, until, info, schedules, vitals)
			VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, until = excluded.until, info = excluded.info,
				schedules = coalesce(excluded.schedules, kept.schedules),
				vitals = coalesce(excluded.vitals, kept.vitals)`,
		args: []any{info.ID, now, now + info.For.Microseconds(), b, schedules, info.Vitals},
	}
}

// Runners lists the runners whose heartbeat has not expired, by id. It leaves out a heartbeat that
// cannot be read: the runner's next one replaces it.
func (s *Storage) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	var alive []storage.RunnerInfo
	var b, schedules, vitals []byte
	err := s.pooled().bounded(ctx, "runners", func(ctx context.Context) error {
		alive = nil
		return s.ask(ctx, s.pool, query{
			text: "SELECT info, schedules, vitals FROM {schema}.runners WHERE until > {schema}.told() ORDER BY id",
			scan: each(func() error {
				var info storage.RunnerInfo
				if json.Unmarshal(b, &info) == nil && storage.CheckName("runner id", info.ID) == nil {
					_ = json.Unmarshal(schedules, &info.Schedules) // none, or damaged: they count as none
					info.Vitals = vitals
					alive = append(alive, info)
				}
				return nil
			}, &b, &schedules, &vitals),
		})
	})
	return alive, err
}

// RunnerIDs lists the ids of the runners whose heartbeat has not expired, in order.
func (s *Storage) RunnerIDs(ctx context.Context) ([]string, error) {
	var ids []string
	var id string
	err := s.pooled().bounded(ctx, "runner ids", func(ctx context.Context) error {
		ids = []string{}
		return s.ask(ctx, s.pool, query{
			text: "SELECT id FROM {schema}.runners WHERE until > {schema}.told() ORDER BY id",
			scan: each(func() error { ids = append(ids, id); return nil }, &id),
		})
	})
	return ids, err
}
