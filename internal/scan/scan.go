// Package scan reads the tasks that match a filter, queue by queue, state by state and page by page. A
// call reads no more than its budget allows and says where the next one goes on, so that a million tasks
// are searched in steps of which each answers soon:
//
//	searched 120,000 of 1,000,000
//
// Queues come in the order of their names, states in the order of a task's life, and tasks in the
// storage's order of their state. Tasks that move while they are searched may be left out or come twice,
// and those that stay come once.
package scan

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/storage"
)

// What a request means where it says nothing.
const (
	DefaultLimit = 50
	DefaultTasks = 20_000
	DefaultTime  = 250 * time.Millisecond
)

// Live are the states of the tasks that have not ended, which are read where neither a request nor its
// filter names states.
var Live = []storage.State{storage.Waiting, storage.Pending, storage.Scheduled, storage.Retry}

// Source is what of a storage is read.
type Source interface {
	storage.Reader

	Stats(ctx context.Context, queues ...string) ([]storage.Stats, error)
	Describe(ctx context.Context) (storage.Description, error)
}

// Request asks for tasks. Its zero value asks for the first live tasks of all queues.
type Request struct {
	// Filter chooses the tasks. Its durations count from the storage's time at the first call.
	Filter filter.Filter
	// Queues are read where the filter matches their names, nil for all that are not hidden.
	Queues []string
	// States are read where the filter names none by itself, nil for [Live].
	States []storage.State
	// Limit is how many tasks are wanted: 0 for DefaultLimit.
	Limit int
	// Count goes on behind the last task that is wanted, and counts what matches up to the budget: see Page.Rest.
	Count bool
	// Tasks is how many tasks are read at most, to a page more: 0 for DefaultTasks, negative for no bound.
	Tasks int
	// Time is how long pages are read at most, to a page more, whose tasks are matched for as long at most: 0 for
	// DefaultTime, negative for no bound.
	Time time.Duration
	// Newest reads the ended tasks of each queue newest first, see storage.TasksQuery. Queues and states keep
	// their order.
	Newest bool
	// Cursor is that of the page before, "" for the first. It belongs to a filter, its queues and states,
	// and to Newest.
	Cursor string
}

// Order says in which order the tasks come, "" where the newest are not first: where it is not asked for, or
// states are read whose tasks have not ended.
func (r *Request) Order() string {
	states := r.States
	if states == nil {
		states = Live
	}
	states = r.Filter.States(states...)
	for _, state := range states {
		if !r.Newest || !state.Ended() {
			return ""
		}
	}
	exact, _ := r.Filter.Queues()
	switch one := len(r.Queues) == 1 || len(exact) == 1; {
	case one && len(states) > 1:
		return "the newest of each state first"
	case one:
		return "newest first"
	case len(states) > 1:
		return "the newest of each queue and state first"
	}
	return "the newest of each queue first"
}

// Page is what a call found.
type Page struct {
	// Tasks match, at most Request.Limit. Stack, Result, Progress and Checkpoint are left out.
	Tasks []storage.Task
	// Searched is how many tasks were read and Matched how many of them matched, since the first call.
	Searched, Matched int64
	// Total is about how many tasks there are to search: at least Searched.
	Total int64
	// Cursor is where the next call goes on, "" where all is searched. There may be nothing behind it.
	Cursor string
	// Rest is where tasks go on that match and were counted, and for which Request.Limit left no room: "" where
	// there are none. Cursor is behind them.
	Rest string
	// Now is the storage's time at the first call.
	Now time.Time
}

// Done reports whether all is searched.
func (p *Page) Done() bool { return p.Cursor == "" }

// Next reads on from the cursor of a request, a page at least. A cursor of another filter, or one that is
// damaged, gives a *[storage.InvalidError], and so does a name that is none.
func Next(ctx context.Context, store Source, req Request) (Page, error) {
	w, err := begin(ctx, store, req)
	if err != nil {
		return Page{}, err
	}
	if err := w.walk(ctx); err != nil {
		return Page{}, err
	}
	w.page.Total = max(w.page.Total, w.page.Searched)
	return w.page, nil
}

// place is a state of a queue, and where in it a page begins.
type place struct {
	queue string
	state storage.State
	after string
}

// mark is what a cursor says.
type mark struct {
	Queue    string        `json:"q"`
	State    storage.State `json:"s"`
	After    string        `json:"a,omitempty"`
	Searched int64         `json:"n"`
	Matched  int64         `json:"m"`
	Now      int64         `json:"t"` // in microseconds
	Of       uint64        `json:"f"` // tells requests apart
}

// walker is one call under way.
type walker struct {
	store  Source
	req    Request
	of     uint64
	places []place // that are left
	read   int
	until  time.Time // zero for no bound
	page   Page

	rest    mark      // behind the last task that is wanted, where more are counted
	most    int       // tasks of a page of the storage
	reached time.Time // when the last task that was read ended, zero where it has not
}

func begin(ctx context.Context, store Source, req Request) (*walker, error) {
	w := &walker{store: store, req: req, most: storage.MaxPage}
	w.defaults()
	from, err := w.from(req.Cursor)
	if err != nil {
		return nil, err
	}
	w.page = Page{Searched: from.Searched, Matched: from.Matched, Now: time.UnixMicro(from.Now).UTC()}
	if req.Cursor == "" {
		d, err := store.Describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("scan: ask for the time: %w", err)
		}
		w.page.Now = d.Now
	}
	w.req.Filter = req.Filter.At(w.page.Now)
	if req.Queues != nil {
		w.req.Filter = w.req.Filter.WithHidden()
	}
	names, err := w.names(ctx)
	if err != nil {
		return nil, err
	}
	return w, w.list(ctx, names, from)
}

// defaults fills what the request leaves out.
func (w *walker) defaults() {
	r := &w.req
	if r.Limit == 0 {
		r.Limit = DefaultLimit
	}
	if r.Tasks == 0 {
		r.Tasks = DefaultTasks
	}
	if r.Time == 0 {
		r.Time = DefaultTime
	}
	if r.Time > 0 {
		w.until = time.Now().Add(r.Time)
	}
	if r.States == nil {
		r.States = Live
	}
	r.States = r.Filter.States(r.States...)
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s|%q|%v|%t", r.Filter, r.Queues, r.States, r.Newest)
	w.of = h.Sum64()
}

// from reads a cursor.
func (w *walker) from(cursor string) (mark, error) {
	var m mark
	if cursor == "" {
		return m, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil || m.Queue == "" || !m.State.Valid() || m.Searched < 0 || m.Matched < 0 {
		return m, storage.Invalid("cursor", cursor, "the cursor of a page before")
	}
	if m.Of != w.of {
		return m, storage.Invalid("cursor", cursor, "a cursor of the same filter, queues, states and order")
	}
	return m, nil
}

// names lists the queues that are searched.
func (w *walker) names(ctx context.Context) (names []string, err error) {
	exact, prefix := w.req.Filter.Queues()
	switch {
	case exact != nil && w.req.Queues != nil:
		names = slices.DeleteFunc(exact, func(name string) bool { return !slices.Contains(w.req.Queues, name) })
	case exact != nil:
		names = exact
	case w.req.Queues != nil:
		names = slices.Compact(slices.Sorted(slices.Values(w.req.Queues)))
	default:
		for name, err := range storage.EachQueue(ctx, w.store, prefix) {
			if err != nil {
				return nil, fmt.Errorf("scan: list queues: %w", err)
			}
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := storage.CheckName("queue name", name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !w.req.Filter.MatchQueue(name) }), nil
}

// list makes the places that are left of what is not empty, and counts the tasks of all.
func (w *walker) list(ctx context.Context, names []string, from mark) error {
	for some := range slices.Chunk(names, storage.MaxNames) {
		stats, err := w.store.Stats(ctx, some...)
		if err != nil {
			return fmt.Errorf("scan: count the tasks of queues: %w", err)
		}
		for i := range stats {
			for _, state := range w.req.States {
				size := stats[i].Size(state)
				w.page.Total += size
				p := place{queue: stats[i].Queue, state: state}
				order := strings.Compare(p.queue, from.Queue)
				if order == 0 {
					order = slices.Index(w.req.States, state) - slices.Index(w.req.States, from.State)
				}
				if order == 0 {
					p.after = from.After
				}
				if size > 0 && order >= 0 {
					w.places = append(w.places, p)
				}
			}
		}
	}
	return nil
}

// walk reads place after place.
func (w *walker) walk(ctx context.Context) error {
	for len(w.places) > 0 {
		if w.page.Cursor = w.cursor(); w.spent() {
			break
		}
		p := &w.places[0]
		next, err := w.step(ctx, *p)
		if err != nil {
			return fmt.Errorf("scan: list %s tasks of %s: %w", p.state, p.queue, err)
		}
		if p.after = next; next == "" {
			w.places = w.places[1:]
		}
		if w.req.Count && w.rest.Queue == "" && len(w.page.Tasks) >= w.req.Limit && len(w.places) > 0 {
			w.rest = w.mark()
		}
	}
	if len(w.places) == 0 {
		w.page.Cursor = ""
	}
	if w.rest.Queue != "" && w.rest.Matched < w.page.Matched {
		w.page.Rest = w.rest.String()
	}
	return nil
}

// spent reports whether all tasks that were wanted are found, or the budget is used up.
func (w *walker) spent() bool {
	if !w.req.Count && len(w.page.Tasks) >= w.req.Limit {
		return true
	}
	return w.read > 0 && (w.req.Tasks > 0 && w.read >= w.req.Tasks || !w.until.IsZero() && time.Now().After(w.until))
}

// step reads a page and gives where the next begins, "" behind the last. A page on which more tasks match
// than are wanted, if any are, is read again up to the last of these, and so is one whose tasks take longer to
// match than the budget, up to those that it was enough for: the next call goes on behind it, and a place is
// all that a storage can go on from.
func (w *walker) step(ctx context.Context, p place) (next string, err error) {
	wanted := w.req.Limit - len(w.page.Tasks)
	query := w.query(p, wanted)
	for late := false; ; {
		page, err := w.store.Tasks(ctx, query)
		if err != nil {
			return "", err
		}
		w.read += len(page.Tasks) // also where it is read again: it is work
		found := make([]storage.Task, 0, max(0, min(wanted, len(page.Tasks))))
		matched, last := 0, 0
		cut, began := 0, time.Now()
		for i, t := range page.Tasks {
			if err := ctx.Err(); err != nil {
				return "", err
			}
			if !late && i > 0 && w.req.Time > 0 && time.Since(began) > w.req.Time {
				cut = i
				break
			}
			if !w.req.Filter.Match(t) {
				continue
			}
			if matched++; matched <= wanted {
				found, last = append(found, t), i
			}
		}
		if matched > wanted && (wanted > 0 || !w.req.Count) {
			query.Limit = last + 1
			continue
		}
		if cut > 0 { // as many as there was time for, all of them
			query.Limit, late = cut, true
			continue
		}
		w.page.Tasks = append(w.page.Tasks, found...)
		w.passed(page.Tasks)
		w.page.Matched += int64(matched)
		return page.Next, nil
	}
}

// query asks for a page at a place.
func (w *walker) query(p place, wanted int) storage.TasksQuery {
	query := storage.TasksQuery{
		Queue: p.queue, State: p.state, After: p.after, Limit: w.most, Newest: w.req.Newest && p.state.Ended(),
	}
	if w.req.Filter.IsZero() && !w.req.Count {
		query.Limit = min(query.Limit, wanted)
	}
	return query
}

// passed counts tasks that were searched.
func (w *walker) passed(tasks []storage.Task) {
	if n := len(tasks); n > 0 {
		w.reached = tasks[n-1].Ended
	}
	w.page.Searched += int64(len(tasks))
}

// cursor returns the cursor of the first place that is left.
func (w *walker) cursor() string { return w.mark().String() }

// mark returns the first place that is left.
func (w *walker) mark() mark {
	p := w.places[0]
	return mark{
		Queue: p.queue, State: p.state, After: p.after, Searched: w.page.Searched, Matched: w.page.Matched,
		Now: w.page.Now.UnixMicro(), Of: w.of,
	}
}

// String is the cursor of a place.
func (m mark) String() string {
	b, _ := json.Marshal(m) //nolint:errchkjson // cannot fail: texts and numbers
	return base64.RawURLEncoding.EncodeToString(b)
}
