package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// look calls read in a transaction that sees one moment. It tries again while another connection is in
// the way.
func (s *Storage) look(ctx context.Context, read func(*work)) error {
	if err := s.enter(); err != nil {
		return err
	}
	return s.insist(ctx, func() error { return s.lookOnce(ctx, read) })
}

// insist repeats do while another connection is in the way, such as one that opens or closes the
// file.
func (s *Storage) insist(ctx context.Context, do func() error) error {
	for begun := time.Now(); ; {
		err := do()
		if !s.isBusy(err) || time.Since(begun) > lockTime {
			return s.translate(err, false)
		}
		if !sleep.For(ctx, pauseMost/2+rand.N(pauseMost)) {
			return ctx.Err()
		}
	}
}

func (s *Storage) lookOnce(ctx context.Context, read func(*work)) error {
	if err := s.checkMoved(nil); err != nil { // SQLite could make a new file
		return err
	}
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	w := s.newWork(ctx, tx, nil)
	w.readOnly = true
	read(w)
	return w.err
}

// looker is where tasks are read: in a storage, or within a transaction of the application's.
type looker interface {
	look(ctx context.Context, read func(*work)) error
}

// Task reads one task. It returns [storage.ErrNotFound] if there is none, and [storage.ErrDamaged] if
// its record cannot be read.
func (s *Storage) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	return readTask(ctx, s, ref)
}

func readTask(ctx context.Context, l looker, ref storage.Ref) (t storage.Task, err error) {
	if err := storage.CheckRef(ref); err != nil {
		return t, err
	}
	var verdict error
	err = l.look(ctx, func(w *work) {
		verdict = nil
		r := w.Find(ref)
		switch {
		case r == nil:
			verdict = storage.ErrNotFound
			return
		case r.Flags&record.Newer != 0 && !w.rows[ref].bad:
			verdict = record.ErrNewer
			return
		case r.State == engine.Damaged:
			verdict = storage.ErrDamaged
			return
		}
		r.CopyTo(&t)
		w.one("SELECT coalesce(stack, ''), result, progress, checkpoint FROM {p}sides WHERE task = ?",
			[]any{w.rows[ref].task}, &t.Stack, &t.Result, &t.Progress, &t.Checkpoint)
	})
	return t, wrap("task "+ref.String(), cmp.Or(err, verdict))
}

// Tasks lists a page of the tasks of one state, in the order of that state. Next is the place of the page's
// last task. Records that cannot be read are left out.
func (s *Storage) Tasks(ctx context.Context, query storage.TasksQuery) (storage.TasksPage, error) {
	return readTasks(ctx, s, query)
}

func readTasks(ctx context.Context, l looker, query storage.TasksQuery) (page storage.TasksPage, err error) {
	if err := storage.CheckTasks(&query); err != nil {
		return page, err
	}
	after, err := engine.ParseMark(&query)
	if err != nil {
		return page, err
	}
	err = l.look(ctx, func(w *work) {
		page = storage.TasksPage{}
		if q := w.Lookup(query.Queue); q != nil {
			page = w.step.List(q, &query, after)
		}
	})
	return page, wrap("tasks of "+query.Queue, err)
}

// Page returns the next tasks of a line after a mark. Places that are no numbers are left out.
func (w *work) Page(l *engine.Line, after engine.Mark, newest bool, n int) (found []*engine.Record) {
	way, desc := ">", ""
	if newest {
		way, desc = "<", " DESC"
	}
	text := "SELECT " + columns + " FROM {p}tasks t " +
		"WHERE t.line = ? AND (t.sort, t.turn, t.task) " + way + " (?, ?, ?) " +
		"AND typeof(t.sort) = 'integer' AND typeof(t.turn) = 'integer' " +
		"ORDER BY t.sort" + desc + ", t.turn" + desc + ", t.task" + desc + " LIMIT ?"
	line := ours(l.Queue).line(l.State)
	if own := namedOf(l); own != nil {
		line = own.line()
	}
	args := []any{line, after.Sort, after.Turn, after.Row, n}
	for _, r := range w.read(ours(l.Queue), text, args, 0) {
		w.fill(r)
		r.sub = l.Sub
		found = append(found, &r.Record)
	}
	return found
}

// MarkOf returns the mark of a task in a listing.
func (w *work) MarkOf(r *engine.Record) engine.Mark { return markOf(w.rows[r.Ref]) }

func markOf(r *row) engine.Mark {
	m := engine.Mark{Place: r.place, Row: r.task}
	if r.was.HasSubs() {
		m.In, m.Sub = r.was, r.sub
	}
	return m
}

// Queues lists names of queues, sorted. Next is the last name of the page.
func (s *Storage) Queues(ctx context.Context, query storage.QueuesQuery) (storage.QueuesPage, error) {
	return readQueues(ctx, s, query)
}

func readQueues(
	ctx context.Context, l looker, query storage.QueuesQuery,
) (page storage.QueuesPage, err error) {
	if err := storage.CheckQueues(&query); err != nil {
		return page, err
	}
	err = l.look(ctx, func(w *work) {
		page = storage.QueuesPage{}
		w.step.Now = engine.Moment(w.store.cfg.Now())
		for after := query.After; ; {
			names := w.names(query.Prefix, after, query.Limit+1)
			for _, name := range names {
				after = name
				if q := w.lookup(name); q == nil || q.IsAbandoned(w.step.Now) && !w.isHeld(q) && !w.hasTasks(q, 0) {
					continue // the sweep removes it when it next inspects it
				}
				if len(page.Names) == query.Limit {
					page.Next = page.Names[query.Limit-1]
					return
				}
				page.Names = append(page.Names, name)
			}
			if len(names) <= query.Limit {
				return
			}
		}
	})
	return page, wrap("queues", err)
}

// names returns up to most names of queues after another. '~' ends a range of names: no name has it.
func (w *work) names(prefix, after string, most int) (names []string) {
	var name string
	w.each("SELECT name FROM {p}queues WHERE name >= ? AND name > ? AND name < ? ORDER BY name LIMIT ?",
		[]any{prefix, after, prefix + "~", most}, func() bool {
			names = append(names, name)
			return true
		}, &name)
	return names
}

// Stats returns the sizes and totals of queues, all at one moment.
func (s *Storage) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	for _, name := range queues {
		if err := storage.CheckName("queue name", name); err != nil {
			return nil, err
		}
	}
	stats := make([]storage.Stats, len(queues))
	err := s.look(ctx, func(w *work) {
		w.begin()
		for i, name := range queues {
			stats[i] = storage.Stats{Queue: name}
			if q := w.Lookup(name); q != nil {
				stats[i] = w.step.Stats(q)
			}
		}
	})
	if err != nil {
		return nil, wrap("stats", err)
	}
	return stats, nil
}
