package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Extend extends leases and keeps the runner's heartbeat.
func (s *Storage) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	if err := storage.CheckExtend(s.limits, &req); err != nil {
		return storage.Extended{}, err
	}
	c := &call{Call: combine.Call{Identity: req.Call, Ops: len(req.Leases)}}
	for i := range req.Leases {
		e := &req.Leases[i]
		c.Bytes += len(e.Progress) + len(e.Checkpoint)
		c.lasting = c.lasting || e.Progress != nil || e.Checkpoint != nil
	}
	var extended storage.Extended
	c.run = func(w *work) error {
		extended = storage.Extended{Now: engine.Time(w.step.Now)}
		outcome, repeated, err := w.admit(req.Call, engine.VerbExtend)
		switch {
		case err != nil:
			return err
		case repeated:
			if err := json.Unmarshal(outcome, &extended); err != nil {
				return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
			}
			return nil
		}
		for _, e := range req.Leases {
			if e.For > 0 {
				e.For = max(e.For, s.cfg.MinLease)
			}
			w.step.Extend(&e, &extended)
		}
		if req.Runner.ID != "" {
			w.hear(&req.Runner)
		}
		w.remember(req.Call, engine.VerbExtend, packExtended(&extended))
		return nil
	}
	if err := s.do(ctx, c); err != nil {
		return storage.Extended{}, wrap("extend", err)
	}
	return extended, nil
}

// hear keeps a heartbeat, or deletes a runner that leaves. The parts that a heartbeat leaves out stay.
func (w *work) hear(info *storage.RunnerInfo) {
	if info.Leaving {
		w.exec("DELETE FROM {p}runners WHERE id = ?", info.ID)
		return
	}
	copied := engine.CopyRunner(info)
	if copied.Vitals == nil || copied.Schedules == nil {
		before := w.heard(info.ID)
		engine.KeepParts(&copied, &before)
	}
	copied.Seen = engine.Time(w.step.Now)
	b, _ := json.Marshal(&copied) //nolint:errchkjson // cannot fail: texts, numbers, times of this century
	w.exec("INSERT INTO {p}runners (id, until, info) VALUES (?, ?, ?) "+
		"ON CONFLICT DO UPDATE SET until = excluded.until, info = excluded.info",
		info.ID, w.step.Now+info.For.Microseconds(), string(b))
}

// heard returns the last heartbeat of a runner, without parts if there is none.
func (w *work) heard(id string) (info storage.RunnerInfo) {
	var b []byte
	w.each("SELECT info FROM {p}runners WHERE id = ?", []any{id}, func() bool {
		_ = json.Unmarshal(b, &info) // a damaged heartbeat has no parts
		return true
	}, &b)
	return info
}

// Runners lists the runners whose heartbeat has not expired, by id. It leaves out a heartbeat that
// cannot be read: the next heartbeat of the runner replaces it.
func (s *Storage) Runners(ctx context.Context) ([]storage.RunnerInfo, error) {
	var alive []storage.RunnerInfo
	err := s.look(ctx, func(w *work) {
		alive = nil
		var b []byte
		now := engine.Moment(s.cfg.Now())
		const alives = "SELECT info FROM {p}runners WHERE until > ? AND typeof(until) = 'integer' ORDER BY id"
		w.each(alives, []any{now}, func() bool {
			var info storage.RunnerInfo
			if json.Unmarshal(b, &info) == nil && storage.CheckName("runner id", info.ID) == nil {
				alive = append(alive, info)
			}
			return true
		}, &b)
	})
	return alive, wrap("runners", err)
}
