package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Extend extends leases and keeps the runner's heartbeat, in one transaction of two round trips on a
// connection of the reserve, unless it carries a large checkpoint. Calls for the progress or the checkpoint
// of one task share a transaction: otherwise the jobs of a runner, which store such values again and again,
// would wait for a turn of the disk each. A task that another transaction keeps locked for more than a
// moment, such as a settle in a transaction of the application's, is neither extended nor lost. Progress or
// a checkpoint for such a task is an error: nothing was written.
func (s *Storage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := storage.CheckExtend(s.limits, &req); err != nil {
		return storage.Extended{}, err
	}
	p := extending(&req)
	var err error
	if p.shares() {
		if err = s.enter(); err == nil {
			err = s.send(ctx, classExtend, p)
		}
		err = wrap("extend", err)
	} else {
		tries := 0
		err = s.pooled().bounded(ctx, "extend", func(ctx context.Context) error {
			tries++
			if err := s.extend(ctx, []*part{p}, tries < extendTries); err != nil {
				return err
			}
			return p.err
		})
	}
	s.room.Wrote(err)
	if err != nil { // a flush may still write to the part
		return storage.Extended{}, err
	}
	return p.extend.Extended, nil
}

// extendTries is how often leases are tried before a locked task is passed over: steps of this
// package lock tasks for some milliseconds.
const extendTries = 4

// extension is a call of Extend, and its outcome.
type extension struct {
	*storage.ExtendRequest
	storage.Extended
}

// extending returns the part of a call of Extend. Its Txs settle the tasks, so that a step loads and locks
// them.
func extending(req *storage.ExtendRequest) *part {
	txs := make([]storage.Tx, 1)
	for i := range req.Leases {
		txs[0].Settles = append(txs[0].Settles, storage.Settle{Fence: req.Leases[i].Fence})
	}
	p := newPart(req.Call, txs)
	p.extend = &extension{ExtendRequest: req}
	for i := range req.Leases {
		p.Bytes += len(req.Leases[i].Progress) + len(req.Leases[i].Checkpoint)
	}
	return p
}

// shares reports whether a call of Extend shares its transaction with others: no lease then waits for the
// locks of other calls, or for the transmission of a large value.
func (p *part) shares() bool {
	leases := p.extend.Leases
	return p.extend.Runner.ID == "" && len(leases) == 1 && carries(&leases[0]) && p.Bytes <= largeBytes
}

// carries reports whether an extension has a value to be stored.
func carries(e *storage.Extension) bool { return e.Progress != nil || e.Checkpoint != nil }

// extendOnce carries out calls of Extend that share a transaction. tries counts how often that was tried.
// The first tries are repeated together if a task is locked: the heartbeat of a runner locks the tasks
// of all its jobs for a moment.
func (s *Storage) extendOnce(ctx context.Context, parts []*part, tries int) error {
	err := s.extend(ctx, parts, true)
	if len(parts) > 1 && tries >= extendTries && (errors.Is(err, errHeld) || code(err) == "55P03") {
		return errBusy
	}
	return err
}

// extend carries out calls of Extend. With insist it returns errHeld if a task is locked.
func (s *Storage) extend(ctx context.Context, parts []*part, insist bool) error {
	queues, err := s.numbersOf(ctx, queuesOfParts(parts))
	if err != nil {
		return err
	}
	tx, err := s.begin(ctx, s.poolOf(parts))
	if err != nil {
		return err
	}
	defer tx.close(ctx)
	st := s.newStep(tx, queues)
	st.verb = engine.VerbExtend
	if err := st.enter(ctx, parts); err != nil {
		return err
	}
	for _, p := range parts {
		if p.outcome != nil && p.err == nil { // it was not admitted
			p.err = json.Unmarshal(p.outcome, &p.extend.Extended)
		}
	}
	if len(st.parts) == 0 {
		return nil
	}
	w := st.loadedWork()
	var writes []query
	var lanes, outcomes [][]byte
	for _, p := range st.parts {
		if err := p.extendIn(&w.step, insist); err != nil {
			return err
		}
		if p.extend.Runner.ID != "" {
			writes = append(writes, hear(&p.extend.Runner, st.now))
		}
		if p.Identity.IsZero() {
			continue
		}
		b, err := json.Marshal(&p.extend.Extended)
		if err != nil {
			return fmt.Errorf("remember: %w", err)
		}
		lanes, outcomes = append(lanes, p.Identity.Lane.ID[:]), append(outcomes, b)
	}
	if len(lanes) > 0 {
		writes = append(writes, query{text: "SELECT {schema}.remember($1, $2)", args: []any{lanes, outcomes}})
	}
	if err := tx.commit(ctx, append(w.save(false), writes...)...); err != nil {
		return err
	}
	for _, p := range st.parts {
		p.done, p.err = true, nil
	}
	return nil
}

// extendIn extends the leases of a call in a step.
func (p *part) extendIn(step *engine.Step, insist bool) error {
	p.extend.Extended = storage.Extended{Now: engine.Time(step.Now)}
	for i := range p.extend.Leases {
		e := &p.extend.Leases[i]
		if step.Extend(e, &p.extend.Extended) {
			continue
		}
		if insist || carries(e) {
			return errHeld
		}
		p.extend.Extended.Locked = append(p.extend.Extended.Locked, e.Fence.Ref)
	}
	return nil
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
