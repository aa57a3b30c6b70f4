package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
	read(w)
	return w.err
}

// looker is where tasks are read: in a storage, or within a transaction of the application's.
type looker interface {
	look(ctx context.Context, read func(*work)) error
}

// Task reads one task. It returns [storage.ErrNotFound] where there is none, and [storage.ErrDamaged]
// where its record cannot be read.
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

// place is a place in a listing: the place of a task in its line, and the task's number.
type place struct {
	engine.Place

	task int64
	kind string // of declined tasks, which are listed behind all others that wait
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.Sort, o.Sort), cmp.Compare(p.Turn, o.Turn), cmp.Compare(p.task, o.task))
}

// String gives the place as text, for [storage.TasksPage].
func (p place) String() string {
	text := fmt.Sprintf("%d.%d.%d", p.Sort, p.Turn, p.task)
	if p.kind != "" {
		text += "." + p.kind
	}
	return text
}

// beginning is before all other places, and end behind them.
var (
	beginning = place{Place: engine.Place{Sort: math.MinInt64, Turn: math.MinInt64}}
	end       = place{Place: engine.Place{Sort: math.MaxInt64, Turn: math.MaxInt64}, task: math.MaxInt64}
)

// parsePlace reads the text of a place. The empty text is before all places.
func parsePlace(text string) (p place, err error) {
	if text == "" {
		return beginning, nil
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) == 4 {
		p.kind = parts[3]
	}
	n, err := fmt.Sscanf(strings.Join(parts[:min(3, len(parts))], "."), "%d.%d.%d", &p.Sort, &p.Turn, &p.task)
	if err != nil || n != 3 || p.String() != text {
		return place{}, storage.Invalid("TasksQuery.After", text, "the Next of a page")
	}
	return p, nil
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
	after, err := parsePlace(query.After)
	if err != nil {
		return page, err
	}
	if query.Newest && query.After == "" {
		after = end
	}
	err = l.look(ctx, func(w *work) {
		page = storage.TasksPage{}
		if q := w.lookup(query.Queue); q != nil {
			page = w.list(q, &query, after)
		}
	})
	return page, wrap("tasks of "+query.Queue, err)
}

func (w *work) list(q *queue, query *storage.TasksQuery, after place) storage.TasksPage {
	var all []*row
	if query.Newest {
		return w.page(w.listNewest(q, engine.StatesOf(query.State)[0], after, query.Limit+1), query.Limit)
	}
	if after.kind == "" {
		for _, state := range engine.StatesOf(query.State) {
			if !state.HasSubs() {
				all = append(all, w.listLine(q, q.line(state), after, query.Limit+1)...)
			}
		}
		slices.SortFunc(all, func(a, b *row) int { return placeOf(a).compare(placeOf(b)) })
	}
	if query.State == storage.Waiting && q.Sizes[engine.Declined] > 0 {
		for _, l := range w.kindLines(&q.Queue, query.Limit+2, fromKind, after.kind) {
			switch n := query.Limit + 1 - len(all); {
			case n <= 0:
			case l.Sub == after.kind:
				all = append(all, w.listLine(q, kindOf(l).line(), after, n)...)
			default:
				all = append(all, w.listLine(q, kindOf(l).line(), beginning, n)...)
			}
		}
	}
	return w.page(all, query.Limit)
}

// page makes a page of rows. One row more was asked for, to know whether there is a next page.
func (w *work) page(all []*row, limit int) (page storage.TasksPage) {
	if len(all) > limit {
		all = all[:limit]
		page.Next = placeOf(all[len(all)-1]).String()
	}
	for _, r := range all {
		if r.State == engine.Damaged {
			continue
		}
		var t storage.Task
		w.Find(r.Ref) // with its history
		r.CopyTo(&t)
		page.Tasks = append(page.Tasks, t)
	}
	return page
}

// listLine gives up to most tasks of a line behind a place.
func (w *work) listLine(q *queue, line int64, after place, most int) []*row {
	return w.read(q, "SELECT "+columns+" FROM {p}tasks t "+
		"WHERE t.line = ? AND (t.sort, t.turn, t.task) > (?, ?, ?) "+
		"AND typeof(t.sort) = 'integer' AND typeof(t.turn) = 'integer' ORDER BY t.sort, t.turn, t.task LIMIT ?",
		[]any{line, after.Sort, after.Turn, after.task, most}, 0)
}

// listNewest gives up to most tasks of an ended state before a place, the last first.
func (w *work) listNewest(q *queue, state engine.State, before place, most int) []*row {
	return w.read(q, "SELECT "+columns+" FROM {p}tasks t "+
		"WHERE t.line = ? AND (t.sort, t.turn, t.task) < (?, ?, ?) "+
		"AND typeof(t.sort) = 'integer' AND typeof(t.turn) = 'integer' "+
		"ORDER BY t.sort DESC, t.turn DESC, t.task DESC LIMIT ?",
		[]any{q.line(state), before.Sort, before.Turn, before.task, most}, 0)
}

func placeOf(r *row) place {
	p := place{Place: r.place, task: r.task}
	if r.was == engine.Declined {
		p.kind = r.Kind
	}
	return p
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
				if q := w.lookup(name); q == nil || q.IsAbandoned(w.step.Now) && !w.hasWindow(q) && !w.hasTasks(q) {
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

// names gives up to most names of queues after another. '~' ends a range of names: no name has it.
func (w *work) names(prefix, after string, most int) (names []string) {
	var name string
	w.each("SELECT name FROM {p}queues WHERE name >= ? AND name > ? AND name < ? ORDER BY name LIMIT ?",
		[]any{prefix, after, prefix + "~", most}, func() bool {
			names = append(names, name)
			return true
		}, &name)
	return names
}

// Stats gives the sizes and totals of queues, all at one moment.
func (s *Storage) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	for _, name := range queues {
		if err := storage.CheckName("queue name", name); err != nil {
			return nil, err
		}
	}
	stats := make([]storage.Stats, len(queues))
	err := s.look(ctx, func(w *work) {
		w.step.Now = engine.Moment(s.cfg.Now())
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
