package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// reading reads tasks, on the pool or within a transaction of the application's.
type reading struct {
	store *Storage
	ask   func(ctx context.Context, q query) error
	retry func(ctx context.Context, step func() error) error
	// told translates an error for the caller.
	told func(error) error
}

// pooled reads on the pool.
func (s *Storage) pooled() reading {
	ask := func(ctx context.Context, q query) error { return s.ask(ctx, s.pool, q) }
	return reading{s, ask, s.retry, translate}
}

// bounded carries out a step in bounded time, and names the action in an error.
func (s reading) bounded(ctx context.Context, action string, step func(context.Context) error) error {
	err := s.store.enter()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, replyTime)
		defer cancel()
		err = s.retry(ctx, func() error { return step(ctx) })
	}
	return wrap(action, s.told(err))
}

// Task reads one task. It returns [storage.ErrNotFound] if there is none, and [storage.ErrDamaged] if
// its record cannot be read.
func (s *Storage) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	return s.pooled().task(ctx, ref)
}

func (s reading) task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	if err := storage.CheckRef(ref); err != nil {
		return storage.Task{}, err
	}
	var t storage.Task
	err := s.bounded(ctx, "task "+ref.String(), func(ctx context.Context) (err error) {
		t, err = s.read(ctx, ref)
		return err
	})
	return t, err
}

func (s reading) read(ctx context.Context, ref storage.Ref) (t storage.Task, err error) {
	var rec raw
	var stack, result, progress, checkpoint []byte
	err = s.ask(ctx, query{
		text: "SELECT * FROM {schema}.read($1, $2)",
		args: []any{ref.Queue, packID(ref.ID)},
		scan: each(func() error {
			rec.found = true
			return nil
		}, &rec.ended, &rec.sort, &rec.turn, &rec.version, &rec.state, &rec.flags, &rec.priority, &rec.lease,
			&rec.past, &rec.record, &rec.at, &rec.attempts, &stack, &result, &progress, &checkpoint),
	})
	if err != nil {
		return t, err
	}
	if !rec.found {
		return t, storage.ErrNotFound
	}
	r := rec.row(ref, 0)
	switch {
	case r.Flags&record.Newer != 0:
		return t, record.ErrNewer
	case r.State == engine.Damaged:
		return t, storage.ErrDamaged
	}
	t = r.task()
	t.Stack, t.Result, t.Progress, t.Checkpoint = string(stack), result, progress, checkpoint
	return t, nil
}

// Tasks lists a page of the tasks of one state, in the order of that state. Next is the place of the
// page's last task. Records that cannot be read are left out.
func (s *Storage) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	return s.pooled().tasks(ctx, q)
}

func (s reading) tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	if err := storage.CheckTasks(&q); err != nil {
		return storage.TasksPage{}, err
	}
	after, err := parsePlace(q.After)
	if err != nil {
		return storage.TasksPage{}, err
	}
	if q.Newest && q.After == "" {
		after.sort, after.id = math.MaxInt64, []byte{0xff}
	}
	var page storage.TasksPage
	err = s.bounded(ctx, "tasks of "+q.Queue, func(ctx context.Context) (err error) {
		page, err = s.list(ctx, &q, after)
		return err
	})
	return page, err
}

// spot is the place of a task in the order of its state.
type spot struct {
	line       int16  // the state of a line with a name, else 0
	sub        string // the name of the line, else ""
	sort, turn int64
	id         []byte // as it is stored, damaged or not
}

func (a spot) compare(b spot) int {
	return cmp.Or(cmp.Compare(a.line, b.line), strings.Compare(a.sub, b.sub), cmp.Compare(a.sort, b.sort),
		cmp.Compare(a.turn, b.turn), bytes.Compare(a.id, b.id))
}

// listed is a row of a page.
type listed struct {
	spot
	row *row
}

func (s reading) list(
	ctx context.Context, q *storage.TasksQuery, after spot,
) (page storage.TasksPage, err error) {
	var rec raw
	var line int16
	var sub string
	var id []byte
	var all []listed
	states, most := numbersOfState(q.State), int32(q.Limit+1)
	function := "page(q.queue, $2, $3, $4, $5, $6, $7, $8, $9)"
	args := []any{q.Queue, states, q.Partition, after.line, after.sub, after.sort, after.turn, after.id, most}
	if q.Newest {
		function = "newest(q.queue, $2, $3, $4, $5)"
		args = []any{q.Queue, states[0], after.sort, after.id, most}
	}
	err = s.ask(ctx, query{
		text: `SELECT o_line, o_sub, o_id, o_sort, o_turn, o_version, o_state, o_flags, o_priority, o_lease, o_past,
			o_record, o_at, o_attempts FROM {schema}.queues q, {schema}.` + function + " p WHERE q.name = $1",
		args: args,
		scan: each(func() error {
			got := rec.clone()
			got.ended = q.State.Ended()
			all = append(all, listed{
				spot: spot{line, sub, got.sort, got.turn, slices.Clone(id)},
				row:  got.row(storage.Ref{Queue: q.Queue, ID: unpackID(id)}, 0),
			})
			return nil
		}, &line, &sub, &id, &rec.sort, &rec.turn, &rec.version, &rec.state, &rec.flags, &rec.priority, &rec.lease,
			&rec.past, &rec.record, &rec.at, &rec.attempts),
	})
	if err != nil {
		return page, err
	}
	// A state may be several states in the tables: their orders are merged.
	slices.SortFunc(all, func(a, b listed) int { return a.compare(b.spot) })
	if q.Newest {
		slices.Reverse(all)
	}
	if len(all) > q.Limit { // one more was asked for, to know whether there is a next page
		all = all[:q.Limit]
		page.Next = all[len(all)-1].text(q.Newest)
	}
	for _, l := range all {
		if l.row.State != engine.Damaged {
			page.Tasks = append(page.Tasks, l.row.task())
		}
	}
	return page, nil
}

// text returns a place as text, for [storage.TasksPage]. A damaged id may be long: its place then is
// behind all others of its moment, also if the last come first.
func (a spot) text(newest bool) string {
	if len(a.id) > storage.MaxName {
		a.id = []byte{0xff}
		if newest {
			a.id = []byte{0}
		}
	}
	id := base64.RawURLEncoding.EncodeToString(a.id)
	return fmt.Sprintf("%d,%d,%s,%d,%s", a.sort, a.turn, id, a.line, a.sub)
}

// parsePlace reads the text of a place. The empty text is before all places.
func parsePlace(text string) (after spot, err error) {
	if text == "" {
		return spot{sort: math.MinInt64, turn: math.MinInt64, id: []byte{}}, nil
	}
	parts := strings.SplitN(text, ",", 5) // the key of a partition may have a comma
	if len(parts) == 5 {
		after.sub = parts[4]
		after.sort, err = strconv.ParseInt(parts[0], 10, 64)
		if err == nil {
			after.turn, err = strconv.ParseInt(parts[1], 10, 64)
		}
		if err == nil {
			after.id, err = base64.RawURLEncoding.DecodeString(parts[2])
		}
	}
	if err == nil && len(parts) == 5 {
		after.line, err = parseLine(parts[3], after.sub)
	}
	if err != nil || len(parts) != 5 {
		return spot{}, storage.Invalid("TasksQuery.After", text, "the Next of a page")
	}
	return after, nil
}

// parseLine reads the number of the state of a line, and checks the name of the line.
func parseLine(number, sub string) (line int16, err error) {
	n, err := strconv.ParseInt(number, 10, 16)
	switch state := engine.State(n); {
	case err != nil || (n == 0) != (sub == "") || n != 0 && !state.HasSubs():
		err = storage.Invalid("line", number, "that of a state")
	case state == engine.Declined:
		err = storage.CheckName("kind", sub)
	case state == engine.Keyed:
		err = storage.CheckPartition(sub)
	}
	return int16(n), err
}

// Queues lists names of queues, sorted. Next is the last name of the page. Names that no queue can
// have are left out.
func (s *Storage) Queues(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
	return s.pooled().queues(ctx, q)
}

func (s reading) queues(ctx context.Context, q storage.QueuesQuery) (storage.QueuesPage, error) {
	if err := storage.CheckQueues(&q); err != nil {
		return storage.QueuesPage{}, err
	}
	var page storage.QueuesPage
	var names []string
	err := s.bounded(ctx, "queues", func(ctx context.Context) error {
		names = nil
		var name string
		return s.ask(ctx, query{
			// '~' ends a range of names: no name has it. A delta that is not folded yet unhides a
			// queue.
			text: `SELECT q.name FROM {schema}.queues q
				WHERE q.name >= $1 AND q.name > $2 AND q.name < $1 || '~' AND (NOT q.hidden OR EXISTS (
					SELECT FROM {schema}.deltas d WHERE d.queue = q.queue))
				ORDER BY q.name LIMIT $3`,
			args: []any{q.Prefix, q.After, int32(q.Limit + 1)},
			scan: each(func() error {
				names = append(names, name)
				return nil
			}, &name),
		})
	})
	if err != nil {
		return page, err
	}
	if len(names) > q.Limit {
		names = names[:q.Limit]
		page.Next = names[q.Limit-1]
	}
	page.Names = slices.DeleteFunc(names, func(name string) bool {
		return storage.CheckName("queue name", name) != nil
	})
	return page, nil
}

// Stats returns the sizes and totals of queues, all at one moment: the folded counters, and the changes
// since.
func (s *Storage) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	for _, name := range queues {
		if err := storage.CheckName("queue name", name); err != nil {
			return nil, err
		}
	}
	found := make(map[string]storage.Stats)
	var name string
	var paused bool
	var until int64
	var v, tasks []int64
	var oldest, now, come, rest int64
	var kinds []string
	var operator, declared string
	var starts []byte
	err := s.pooled().bounded(ctx, "stats", func(ctx context.Context) error {
		return s.ask(ctx, s.pool, query{
			text: "SELECT * FROM {schema}.stats($1)", args: []any{append([]string{}, queues...)},
			scan: each(func() error {
				if len(kinds) != len(tasks) || len(v) < engine.Counters-1 {
					return fmt.Errorf("%w: %d counters", errReply, len(v))
				}
				limit := engine.LimitOf(operator, declared, starts)
				st := statsOf(name, paused, until, v, limit)
				st.Limit = limit.Stats(now, come)
				st.Oldest = time.Duration(oldest) * time.Microsecond
				if rest > now {
					st.Rests = engine.Time(rest)
				}
				for i, kind := range kinds {
					st.Declined = append(st.Declined, storage.KindSize{Kind: kind, Tasks: tasks[i]})
				}
				found[name] = st
				return nil
			}, &name, &paused, &until, &v, &kinds, &tasks, &oldest, &now, &come,
				&operator, &declared, &starts, &rest),
		})
	})
	if err != nil {
		return nil, err
	}
	stats := make([]storage.Stats, len(queues))
	for i, name := range queues {
		stats[i] = found[name]
		stats[i].Queue = name
	}
	return stats, nil
}

func statsOf(name string, paused bool, until int64, v []int64, limit *engine.Limit) storage.Stats {
	q := engine.Queue{Name: name, Limit: limit}
	q.SetCounts(append([]int64{0}, v...)) // an array of the database begins at 1
	st := q.Stats()
	st.Paused = paused
	if paused {
		st.PausedUntil = engine.Time(until)
	}
	return st
}
