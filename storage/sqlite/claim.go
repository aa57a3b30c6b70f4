package sqlite

import (
	"context"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/combine"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Claim maintains the named queues and takes tasks from them.
func (s *Storage) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	if err := storage.CheckClaim(&req); err != nil {
		return storage.Claimed{}, err
	}
	req.Lease = max(req.Lease, s.cfg.MinLease)
	since := s.rings.since(&s.events, &req) // before the claim reads, so that no event is lost in between
	var answer storage.Claimed
	// A power cut may lose a claim: its tasks wait again, and no process is left that runs them.
	c := &call{Call: combine.Call{Identity: req.Call, Ops: min(req.Most(), claimOps)}}
	c.run = func(w *work) (err error) {
		answer, err = w.claim(&req)
		answer.Since = since
		return err
	}
	if err := s.do(ctx, c); err != nil {
		return storage.Claimed{}, wrap("claim", err)
	}
	if answer.More {
		s.events.Left(&req)
	}
	return answer, nil
}

func (w *work) claim(req *storage.ClaimRequest) (answer storage.Claimed, err error) {
	_, repeated, err := w.admit(req.Call, engine.VerbClaim)
	if err != nil {
		return answer, err
	}
	repeated = repeated || w.store.isIdle(req.Call)
	queues := make([]*engine.Queue, len(req.Queues))
	for i := range queues {
		if q := w.lookup(req.Queues[i].Name); q != nil {
			w.verify(q)
			queues[i] = &q.Queue
		}
	}
	c := w.step.Claim(req, queues)
	if repeated {
		c.Again(w.fencesOf(queues, req.Token)) // without ticks: later claims get them
		c.Give(&answer)
	} else {
		before := w.changed
		w.changed = false
		w.sweep()
		c.Maintain(&answer)
		w.loadWaiting(&c)
		c.Take()
		for _, r := range c.Taken {
			w.fill(w.rows[r.Ref])
		}
		c.Give(&answer)
		w.save()
		if w.changed {
			w.remember(req.Call, engine.VerbClaim, nil)
		} else {
			w.store.idle.Store(req.Call.Lane.ID, req.Call)
		}
		w.changed = w.changed || before
	}
	c.Finish(&answer)
	return answer, nil
}

// loadWaiting reads as many tasks as the claim may take, and one more for its survey.
func (w *work) loadWaiting(c *engine.Claim) {
	left := int64(c.Req.Most())
	for i, q := range c.Queues {
		if left <= 0 || !c.LimitAdmits(i, c.Req.Start > 0) {
			continue
		}
		come := w.step.Come
		if q.Sizes[engine.Waiting] > 0 && q.Sizes[engine.Keyed] == 0 && !q.IsPaused(come) && q.Rest <= come {
			w.load(ours(q), engine.Waiting, int(left)+1)
			left -= q.Sizes[engine.Waiting]
		}
	}
}

// fencesOf returns the fences of the tasks that the claim of a token still holds, in the order in which
// it took them.
func (w *work) fencesOf(queues []*engine.Queue, token storage.Token) (fences []storage.Fence) {
	const held = "SELECT " + columns + " FROM {p}tasks t WHERE t.line IN (?, ?) AND substr(t.lease, 1, ?) = ? " +
		"ORDER BY t.version"
	for _, eq := range queues {
		if eq == nil {
			continue
		}
		q := ours(eq)
		args := []any{q.line(engine.Pending), q.line(engine.Asked), len(token), token[:]}
		for _, r := range w.read(q, held, args, 0) {
			fences = append(fences, storage.Fence{Ref: r.Ref, Version: r.Version, Token: token})
		}
	}
	return fences
}

const (
	sweepEvery = 500_000 // microseconds
	sweepMost  = 200
)

// sweep deletes lanes, runners and unique windows whose time is over, and inspects some queues that
// perhaps nobody names any more.
func (w *work) sweep() {
	s, come := w.store, w.step.Come
	last := s.swept.Load()
	if w.step.Now-last < sweepEvery && w.step.Now >= last || come == 0 {
		return
	}
	s.swept.Store(w.step.Now)
	s.forgetIdle(come)
	w.exec("DELETE FROM {p}lanes WHERE lane IN "+
		"(SELECT lane FROM {p}lanes WHERE opened < ? ORDER BY opened LIMIT ?)",
		come-(storage.LaneLife+time.Minute).Microseconds(), sweepMost)
	w.exec("DELETE FROM {p}runners WHERE until <= ? OR typeof(until) <> 'integer'", come)
	w.exec("DELETE FROM {p}keys WHERE until > 0 AND (queue, key) IN (SELECT queue, key FROM {p}keys "+
		"WHERE until > 0 AND until <= ? ORDER BY until LIMIT ?)", come, sweepMost)
	var names []string
	var name string
	var number int64
	w.each("SELECT queue, name FROM {p}queues WHERE queue > ? ORDER BY queue LIMIT ?",
		[]any{s.visited.Load(), engine.BatchLeast}, func() bool {
			names = append(names, name)
			return true
		}, &number, &name)
	if len(names) < engine.BatchLeast {
		number = 0
	}
	s.visited.Store(number)
	for _, name := range names {
		switch q := w.lookup(name); {
		case q == nil || !q.IsAbandoned(come):
		case w.hasTasks(q, 0): // its counts are wrong
			w.recount(q)
		case !w.isHeld(q):
			w.DeleteQueue(&q.Queue)
		}
	}
}

// hasTasks reports whether the table has tasks of a queue outside a line, 0 for none, whatever its counts
// are: they may be damaged.
func (w *work) hasTasks(q *queue, but int64) bool {
	w.save()
	var one int
	return w.one("SELECT 1 FROM {p}tasks WHERE queue = ? AND line <> ? LIMIT 1", []any{q.number, but}, &one)
}

// isHeld reports whether a unique window of a queue is held, or a partition of it is there for a moment that
// has not come.
func (w *work) isHeld(q *queue) bool {
	var one int
	return w.one("SELECT 1 FROM {p}keys WHERE queue = ? AND until > ? UNION ALL "+
		"SELECT 1 FROM {p}lines WHERE queue = ? AND state = ? AND sort > ? LIMIT 1",
		[]any{q.number, w.step.Now, q.number, int(engine.Keyed), w.step.Now}, &one)
}

// DeleteQueue deletes an empty queue, with the records that are set apart.
func (w *work) DeleteQueue(eq *engine.Queue) {
	q := ours(eq)
	w.exec("DELETE FROM {p}sides WHERE task IN (SELECT task FROM {p}tasks WHERE queue = ?)", q.number)
	w.exec("DELETE FROM {p}tasks WHERE queue = ?", q.number)
	w.exec("DELETE FROM {p}keys WHERE queue = ?", q.number)
	w.exec("DELETE FROM {p}lines WHERE queue = ?", q.number)
	w.exec("DELETE FROM {p}queues WHERE queue = ?", q.number)
	w.queues[q.Name] = nil
	w.store.events.Forget(q.Name)
}
